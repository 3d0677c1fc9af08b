"""What faults have found and is not mended yet, each as the smallest run that shows it.

A defect that is mended fails here (strict), and its test moves on as an ordinary one.
"""

from pathlib import Path
from typing import Any

import pytest

from stellwerk_cluster.faults.table import FaultTable
from tests.support.fault_runs import Case, Disruption, Load, Outcome, run_case
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PODS = {"resources": ["pods"]}
FULL = Load(nodes=100, pods=400, per_second=100, fill=1.0)
"""Four seconds until the last pod takes the last room."""


async def run(
    directory: Path, *faults: dict[str, Any], load: Load | None = None, recovery: float = 20.0
) -> Outcome:
    table = FaultTable.model_validate({"faults": faults})
    case = Case("defect", table, recovery_seconds=recovery)
    return await run_case(case, fault_seed(1), directory, load)


@pytest.mark.xfail(
    strict=True,
    reason="handlers/delivery.py unavailable: discovery that says 404 for a moment empties the "
    "cache of pods, and scheduling goes on while the next list is being read",
)
async def test_a_moment_without_discovery_does_not_empty_the_cache(tmp_path: Path) -> None:
    time = {"between": [3.7, 4.9]}
    outcome = await run(
        tmp_path,
        {"fault": "streamError", "code": 410, **PODS, "between": [3.7, 4.0]},
        {"fault": "answer", "code": 404, "resources": ["/api/v1", "pods"], **time},
        load=FULL,
    )
    assert not outcome.judgement.over_committed


@pytest.mark.xfail(
    strict=True,
    reason="handlers/fastlane.py _Stream.run: a list without items, answered 200 with something "
    "that is no list, counts as an empty one",
)
async def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    outcome = await run(
        tmp_path,
        {"fault": "streamError", "code": 410, **PODS, "between": [3.7, 4.0]},
        {
            "fault": "answer",
            "code": 200,
            "body": status,
            "verbs": ["list"],
            **PODS,
            "between": [3.7, 4.9],
        },
        load=FULL,
    )
    assert not outcome.wrongs


@pytest.mark.xfail(
    strict=True,
    reason="handlers/fastlane.py: a watch goes on from a version that the server, restored from a "
    "backup, has not reached yet; nothing lists again, and the probes stay green",
)
async def test_older_versions_are_noticed(tmp_path: Path) -> None:
    outage = {"fault": "outage", "between": [2, 4], "history": "older", "revisions": 100}
    outcome = await run(tmp_path, outage, recovery=10)
    assert not outcome.judgement.unbound
    assert not outcome.discrepancies


@pytest.mark.xfail(
    strict=True,
    reason="handlers/lifecycle.py build_settings leaves kopf's inactivity limit at 70 s",
)
async def test_a_half_open_watch_costs_at_most_half_a_minute(tmp_path: Path) -> None:
    silence = {"fault": "silence", "seconds": 600, **PODS, "between": [1, 2]}
    outcome = await run(tmp_path, silence, recovery=90)
    assert outcome.judgement.worst_delay_seconds < 30


@pytest.mark.xfail(
    strict=True,
    reason="on kopf's own path an in-stream error ends kopf's task, and the process neither "
    "schedules nor exits",
)
async def test_kopfs_own_path_survives_an_error_in_a_stream(tmp_path: Path) -> None:
    error = {"fault": "streamError", "code": 500, **PODS, "between": [1, 2]}
    case = Case("defect", FaultTable.model_validate({"faults": [error]}), recovery_seconds=10)
    outcome = await run_case(case, fault_seed(1), tmp_path, Load(pods=150), "--no-fast-lane")
    assert not outcome.judgement.unbound
    assert not outcome.bad_statuses


@pytest.mark.xfail(
    strict=True,
    reason="handlers/fastlane.py _watch: an error in a stream doubles the pause even where the "
    "list before it was complete, and nothing takes it back but a stream that expires",
)
async def test_errors_in_streams_do_not_add_up(tmp_path: Path) -> None:
    error = {"fault": "streamError", "code": 500, **PODS, "afterSeconds": 0.5, "between": [0, 16]}
    outcome = await run(tmp_path, error, load=Load(pods=160, per_second=10))
    assert outcome.judgement.worst_delay_seconds < 3


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="there is no --leader-elect yet: one replica alone"
)
async def test_a_second_replica_takes_over(tmp_path: Path) -> None:
    disruptions = (Disruption("kill", (2, 4)), Disruption("pause", (1, 3), (1, 20)))
    case = Case("two replicas", disruptions=disruptions, replicas=2)
    load = Load(pods=1500, per_second=100)
    outcome = await run_case(case, fault_seed(1), tmp_path, load, "--leader-elect")
    assert not outcome.wrongs, str(outcome)
