"""An API server restored from a backup, and a leader that dies and is paused beside a standby."""

from pathlib import Path

import pytest

from stellwerk_cluster.faults.table import FaultTable
from tests.support.fault_load import Load
from tests.support.fault_runs import Case, Disruption, run_case
from tests.support.replicas import OWN_LEASE
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


async def test_older_versions_are_noticed(tmp_path: Path) -> None:
    outage = {"fault": "outage", "between": [2, 4], "history": "older", "revisions": 100}
    case = Case("restored", FaultTable.model_validate({"faults": [outage]}), recovery_seconds=20)
    outcome = await run_case(case, fault_seed(1), tmp_path)
    assert not outcome.judgement.unbound
    assert not outcome.discrepancies


async def test_a_second_replica_takes_over(tmp_path: Path) -> None:
    disruptions = (Disruption("kill", (5, 8)), Disruption("pause", (3, 5), (1, 6)))
    case = Case("two replicas", disruptions=disruptions, replicas=2)
    # A lease that outlives neither the pods nor the patience of a test; some pauses outlive it, and
    # a machine on which others work may cost a leader its lease, too: both are right endings.
    lease = ("--leader-elect-lease-duration", "4s", "--leader-elect-renew-deadline", "3s")
    election = ("--leader-elect", *lease, "--leader-elect-retry-period", "500ms", *OWN_LEASE)
    load = Load(pods=600, per_second=40)
    outcome = await run_case(case, fault_seed(1), tmp_path, load, *election)
    assert not outcome.wrongs, str(outcome)
