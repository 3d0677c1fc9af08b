"""What faults have found and is not mended yet, each as the smallest run that shows it.

A defect that is mended fails here (strict), and its test moves on as an ordinary one.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stellwerk.clock import SystemClock
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from tests.support.builders import make_node, make_pod
from tests.support.fault_runs import Case, Disruption, Load, Outcome, run_case
from tests.support.in_process import make_profile
from tests.support.processes import running
from tests.support.running_operator import install, is_active, until
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

BINDINGS = {"resources": ["pods/binding"]}
PODS = {"resources": ["pods"]}


async def run(
    directory: Path, *faults: dict[str, Any], load: Load | None = None, recovery: float = 20.0
) -> Outcome:
    table = FaultTable.model_validate({"faults": faults})
    case = Case("defect", table, recovery_seconds=recovery)
    return await run_case(case, fault_seed(1), directory, load)


@pytest.mark.xfail(
    strict=True,
    reason="scheduler/scheduler.py _confirm: a pod that the API shows unbound after a binding that "
    "was answered 2xx stays BINDING, and audit._stranded takes the assumption for an explanation",
)
async def test_a_binding_answered_2xx_but_not_applied_is_made_again(tmp_path: Path) -> None:
    outcome = await run(tmp_path, {"fault": "falseSuccess", **BINDINGS, "times": 3}, recovery=48)
    assert not outcome.judgement.unbound


@pytest.mark.xfail(
    strict=True,
    reason="scheduler/binding_cycle.py undo: a binding whose outcome is unknown is forgotten, and "
    "its room given away, although it was applied",
)
async def test_a_binding_of_unknown_outcome_keeps_its_room(tmp_path: Path) -> None:
    outcome = await run(
        tmp_path,
        {"fault": "lostAnswer", **BINDINGS, "between": [1, 8]},
        {"fault": "reset", "verbs": ["get"], **PODS, "between": [1, 12]},
        {"fault": "reorder", "types": ["MODIFIED"], "seconds": 20, **PODS, "between": [1, 8]},
        load=Load(nodes=25, pods=100, per_second=12, fill=1.0),
        recovery=40,
    )
    assert not outcome.judgement.over_committed


@pytest.mark.xfail(
    strict=True,
    reason="scheduler/event_handlers.py _pod_unbound: a bound pod that a restored server shows "
    "unbound stays in the cache and cannot be decided (the watches notice, and list anew)",
)
async def test_older_versions_are_noticed(tmp_path: Path) -> None:
    outage = {"fault": "outage", "between": [2, 4], "history": "older", "revisions": 100}
    outcome = await run(tmp_path, outage, recovery=10)
    assert not outcome.judgement.unbound
    assert not outcome.discrepancies


@pytest.mark.xfail(
    strict=True,
    reason="scheduler/scheduler.py _schedule_forever awaits bindings.room() and stops its "
    "heartbeat, so that /livez answers for the API server",
)
async def test_bindings_that_hang_do_not_turn_liveness_red(tmp_path: Path) -> None:
    hang = {"fault": "hang", "seconds": 40, **BINDINGS, "between": [1, 30]}
    load = Load(nodes=300, pods=1100, per_second=200)
    outcome = await run(tmp_path, hang, load=load, recovery=60)
    assert not outcome.failed_probes


@pytest.mark.xfail(
    strict=True,
    reason="app.py _supervise: a second SIGTERM is the same as the first, which waits ten seconds "
    "for bindings that hang",
)
async def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    hang = {"fault": "hang", "seconds": 60, **BINDINGS}
    plan = FaultPlan(FaultTable.model_validate({"faults": [hang]}), 1, SystemClock())
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, faults=plan)
    async with EmbeddedCluster([make_node("n1")], options=options) as cluster:
        install(cluster, make_profile("default-scheduler"))
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        plan.arm()
        arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--bind-address", "127.0.0.1:0")
        async with running(tmp_path / "run.log", "run", *arguments) as operator:
            await until(lambda: is_active(cluster, "default-scheduler"))
            pods = cluster.api.kinds.resource("pods")
            cluster.api.create(pods, "default", make_pod("web"))
            await until(lambda: plan.struck)
            operator.process.terminate()
            await asyncio.sleep(0.5)
            operator.process.terminate()
            ending = asyncio.create_task(operator.process.wait())
            ended, _ = await asyncio.wait({ending}, timeout=3)
            assert ended


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="there is no --leader-elect yet: one replica alone"
)
async def test_a_second_replica_takes_over(tmp_path: Path) -> None:
    disruptions = (Disruption("kill", (2, 4)), Disruption("pause", (1, 3), (1, 20)))
    case = Case("two replicas", disruptions=disruptions, replicas=2)
    load = Load(pods=1500, per_second=100)
    outcome = await run_case(case, fault_seed(1), tmp_path, load, "--leader-elect")
    assert not outcome.wrongs, str(outcome)
