"""Lists and watches that lie, fall silent, or end in errors: what each of it may cost at most."""

from pathlib import Path
from typing import Any

import pytest

from stellwerk_cluster.faults.table import FaultTable
from tests.support.fault_load import Load
from tests.support.fault_runs import Case, Outcome, run_case
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PODS = {"resources": ["pods"]}
FULL = Load(nodes=100, pods=400, per_second=100, fill=1.0)
"""Four seconds until the last pod takes the last room."""


async def run(
    directory: Path, *faults: dict[str, Any], load: Load | None = None, recovery: float = 20.0
) -> Outcome:
    table = FaultTable.model_validate({"faults": faults})
    case = Case("watches", table, recovery_seconds=recovery)
    return await run_case(case, fault_seed(1), directory, load)


async def test_a_moment_without_discovery_does_not_empty_the_cache(tmp_path: Path) -> None:
    time = {"between": [3.7, 4.9]}
    outcome = await run(
        tmp_path,
        {"fault": "streamError", "code": 410, **PODS, "between": [3.7, 4.0]},
        {"fault": "answer", "code": 404, "resources": ["/api/v1", "pods"], **time},
        load=FULL,
    )
    assert not outcome.judgement.over_committed


async def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    outcome = await run(
        tmp_path,
        {"fault": "streamError", "code": 410, **PODS, "between": [3.7, 4.0]},
        {
            "fault": "answer",
            "code": 200,
            "body": status,
            "verbs": ["list", "watch"],
            **PODS,
            "between": [3.7, 4.9],
        },
        load=FULL,
    )
    assert not outcome.wrongs


async def test_a_half_open_watch_costs_at_most_half_a_minute(tmp_path: Path) -> None:
    silence = {"fault": "silence", "seconds": 600, **PODS, "between": [1, 2]}
    outcome = await run(tmp_path, silence, recovery=90)
    assert outcome.judgement.worst_delay_seconds < 30


async def test_errors_in_streams_do_not_add_up(tmp_path: Path) -> None:
    error = {"fault": "streamError", "code": 500, **PODS, "afterSeconds": 0.5, "between": [0, 16]}
    outcome = await run(tmp_path, error, load=Load(pods=160, per_second=10))
    assert outcome.judgement.worst_delay_seconds < 6, "pauses that double would come to 8"
