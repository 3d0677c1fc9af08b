"""The operator under every kind of fault, one run each: the long set, of `make test-all`."""

from dataclasses import replace
from pathlib import Path

import pytest

from stellwerk_cluster.faults.table import FaultTable
from tests.support.fault_cases import CASES, LONG_OUTAGE, with_standby
from tests.support.fault_load import Load
from tests.support.fault_runs import Case, run_case, with_proxy
from tests.support.jumping_clock import STEP
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LOAD = Load(pods=300, per_second=150)
RESTARTED = Load(pods=1200, per_second=100)
"""Long enough for several restarts."""


def _params() -> list[object]:
    params: list[object] = []
    for name, case in CASES.items():
        if name == LONG_OUTAGE:
            continue  # two minutes away, but in `make soak`
        load = RESTARTED if case.disruptions else LOAD
        params.append(pytest.param(case, load, id=name))
    params += [
        pytest.param(with_proxy(CASES[name]), LOAD, id=f"{name}, by a proxy")
        for name in ("connection-resets", "cut-lines", "outage")
    ]
    return params


@pytest.mark.parametrize(("case", "load"), _params())
async def test_every_pod_is_bound_exactly_once(case: Case, load: Load, tmp_path: Path) -> None:
    outcome = await run_case(case, fault_seed(1), tmp_path, load)
    assert not outcome.wrongs, str(outcome)


async def test_bindings_that_hang_do_not_turn_liveness_red(tmp_path: Path) -> None:
    """More pods than there are slots, so that the scheduling coroutine waits."""
    hang = {"fault": "hang", "seconds": 40, "resources": ["pods/binding"], "between": [1, 30]}
    case = Case("hang", FaultTable.model_validate({"faults": [hang]}), recovery_seconds=60)
    load = Load(nodes=300, pods=1100, per_second=200)
    outcome = await run_case(case, fault_seed(1), tmp_path, load)
    assert not outcome.failed_probes


async def test_bindings_of_unknown_outcome_keep_their_room(tmp_path: Path) -> None:
    """Applied, every answer lost, not to be read one by one, and shown by the watch much later."""
    pods = {"resources": ["pods"]}
    faults = [
        {"fault": "lostAnswer", "resources": ["pods/binding"], "between": [1, 8]},
        {"fault": "reset", "verbs": ["get"], **pods, "between": [1, 12]},
        {"fault": "reorder", "types": ["MODIFIED"], "seconds": 20, **pods, "between": [1, 8]},
    ]
    case = Case("unknown", FaultTable.model_validate({"faults": faults}), recovery_seconds=40)
    load = Load(nodes=25, pods=100, per_second=12, fill=1.0)
    outcome = await run_case(case, fault_seed(1), tmp_path, load)
    assert not outcome.wrongs, str(outcome)


async def test_an_event_that_never_comes_is_made_up_for_by_the_audit(tmp_path: Path) -> None:
    drop = {"fault": "drop", "resources": ["pods"], "probability": 0.02}
    case = Case("drop", FaultTable.model_validate({"faults": [drop]}), recovery_seconds=20)
    outcome = await run_case(case, fault_seed(1), tmp_path, LOAD, "--audit-period", "2s")
    assert not outcome.wrongs, str(outcome)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("0", id="an hour in either direction"),
        pytest.param("1", id="a second forwards each second"),
        pytest.param("-1", id="a second backwards each second"),
        pytest.param("-3600", id="an hour backwards each second"),
    ],
)
@pytest.mark.parametrize("case", ["jumping-clock", "gangs"])
async def test_a_clock_that_goes_wrong_costs_no_pod_and_no_lease(
    case: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STEP, step)
    on_a_standby = with_standby(case, case=replace(CASES[case], table=FaultTable()))
    jumping = replace(on_a_standby, clock_jumps=True)
    outcome = await run_case(jumping, fault_seed(1), tmp_path, Load(pods=400, per_second=40))
    assert not outcome.wrongs, str(outcome)
    assert outcome.lost_leases == 0
