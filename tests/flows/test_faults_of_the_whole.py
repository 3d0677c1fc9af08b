"""An API server restored from a backup, and a leader that dies and is paused beside a standby."""

from pathlib import Path

import pytest

from stellwerk_cluster.faults.table import FaultTable
from tests.support.fault_runs import Case, Disruption, Load, run_case
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


async def test_older_versions_are_noticed(tmp_path: Path) -> None:
    outage = {"fault": "outage", "between": [2, 4], "history": "older", "revisions": 100}
    case = Case("restored", FaultTable.model_validate({"faults": [outage]}), recovery_seconds=20)
    outcome = await run_case(case, fault_seed(1), tmp_path)
    assert not outcome.judgement.unbound
    assert not outcome.discrepancies


async def test_a_second_replica_takes_over(tmp_path: Path) -> None:
    disruptions = (Disruption("kill", (2, 4)), Disruption("pause", (1, 3), (1, 20)))
    case = Case("two replicas", disruptions=disruptions, replicas=2)
    load = Load(pods=1500, per_second=100)
    outcome = await run_case(case, fault_seed(1), tmp_path, load, "--leader-elect")
    assert not outcome.wrongs, str(outcome)
