"""Runs of the operator under faults, and what the API's history shows afterwards.

One run is an embedded cluster in this process, the operator in one of its own, pods that come and
go so that the nodes are nearly full at any moment, a table of faults between the two, and a process
that is killed or stopped now and then. Invariant: every pod that is created has room by the API's
own count, so that one without a node is lost, and a node with too many was over-committed.
"""

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from typing_extensions import override

from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable, read_fault_table
from stellwerk_kube.clock import SystemClock
from tests.support.builders import make_node
from tests.support.fault_load import PROFILE, Load, PreemptingWorkload, Workload
from tests.support.fault_proxy import fault_proxy
from tests.support.history import History, Judgement
from tests.support.in_process import make_profile
from tests.support.jumping_clock import PERIOD_SECONDS
from tests.support.repository import ROOT
from tests.support.rights import ENFORCED, write_operator_kubeconfig
from tests.support.running_operator import install, is_active
from tests.support.supervised_operator import STELLWERK, SupervisedOperator, supervised

logger = logging.getLogger(__name__)

EXAMPLES = ROOT / "docs" / "faults"
_START_SECONDS = 120.0
_JUMPING_CLOCK = "tests.support.jumping_clock"
_SHADOW = {
    "metadata": {"name": "shadow"},
    "spec": {"shadowOf": PROFILE, "plugins": {"score": {"disabled": [{"name": "*"}]}}},
}


@dataclass(frozen=True)
class Disruption:
    """What is done to the process now and then."""

    act: Literal["kill", "pause", "terminate"]
    every_seconds: tuple[float, float]
    for_seconds: tuple[float, float] = (0.5, 3.0)
    """Of a pause."""
    times: int = 1_000_000
    between_bindings: bool = False
    """Whether it waits for a moment at which some members of a group are bound and others not."""


@dataclass(frozen=True)
class Case:
    """One kind of fault."""

    title: str
    table: FaultTable = field(default_factory=FaultTable)
    disruptions: tuple[Disruption, ...] = ()
    clock_jumps: bool = False
    by_proxy: bool = False
    replicas: int = 1
    """How many operators; more than one need `--leader-elect` among the arguments."""
    arguments: tuple[str, ...] = ()
    """Of each operator; `{directory}` is one of the run's own."""
    shadowed: bool = False
    """Whether a shadow profile decides beside the one that serves."""
    group_size: int = 1
    """Of gangs that the pods come in; 1: each for itself."""
    preempting: bool = False
    """Whether pods come to full nodes, and preempt others."""
    recovery_seconds: float = 60.0
    """From the end of the faults until everything must be well again."""
    audit_seconds: float = 15.0
    """From then until the caches must be as a fresh list; no longer than the recovery."""

    @property
    def seconds(self) -> float:
        """How long the table has something to do at a certain time."""
        return max((fault.between[1] for fault in self.table.faults if fault.between), default=0.0)


def example(name: str, title: str = "") -> Case:
    """The case of a file in docs/faults."""
    table = read_fault_table(EXAMPLES / f"{name}.yaml")
    return Case(title or name.replace("-", " "), table)


@dataclass
class Outcome:
    """What a run has shown."""

    title: str
    seed: int
    planned: int
    judgement: Judgement
    discrepancies: list[str]
    """Between the cache of a replica and a fresh list, at the end."""
    unexpected_endings: list[int]
    failed_probes: list[str]
    bad_statuses: list[int | None]
    """Of replicas that were asked to end; None: it did not."""
    lost_leases: int
    """How often a replica ended since it had not renewed its lease in time, as it should."""
    struck: Mapping[str, int]

    @property
    def wrongs(self) -> list[str]:
        """Everything that may not be."""
        judged = self.judgement
        found = [f"lost: {name}" for name in judged.unbound]
        if judged.created < self.planned:
            found.append(f"only {judged.created} of {self.planned} pods found room in time")
        found += [f"bound twice: {name}" for name in judged.doubled]
        found += [f"over-committed: {text}" for text in judged.over_committed]
        return found + self.others

    @property
    def others(self) -> list[str]:
        """What else may not be: of the cache, the probes and the endings."""
        found = [f"the cache differs: {text}" for text in self.discrepancies]
        found += [f"ended with {status}" for status in self.unexpected_endings]
        found += [f"not live: {text}" for text in dict.fromkeys(self.failed_probes)]
        found += [f"asked to end, it ended with {status}" for status in self.bad_statuses]
        return found

    @override
    def __str__(self) -> str:
        judged = self.judgement
        struck = ", ".join(f"{title}: {times}" for title, times in self.struck.items())
        head = (
            f"{self.title}, seed {self.seed}: {judged.created} pods, worst delay "
            f"{judged.worst_delay_seconds:.1f} s, leases lost: {self.lost_leases}, "
            f"struck {struck or 'nothing'}"
        )
        wrongs = self.wrongs
        lines = [head] + [f"  {wrong:.400}" for wrong in wrongs[:10]]
        if len(wrongs) > 10:
            lines.append(f"  and {len(wrongs) - 10} more")
        return "\n".join(lines)


async def run_case(
    case: Case, seed: int, directory: Path, load: Load | None = None, *arguments: str
) -> Outcome:
    """One run; `arguments` are further ones of `stellwerk run`."""
    load = load or Load()
    logger.info("%s, seed %d: %s", case.title, seed, load)
    plan = FaultPlan(case.table, seed, SystemClock())
    rng = random.Random(seed)
    disrupted: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(_cluster(case, plan, load, seed))
        history = History(cluster.store)
        operators = await stack.enter_async_context(
            _operators(case, cluster, plan, directory, arguments, seed)
        )
        await _until(lambda: is_active(cluster, PROFILE), _START_SECONDS, *operators)
        workload = _workload(case, cluster, load, rng)
        _write_versions(cluster, plan)
        plan.arm()
        disrupting = [
            asyncio.create_task(_disrupt(operators, each, rng, disrupted, workload))
            for each in case.disruptions
        ]
        try:
            await asyncio.wait_for(
                workload.run(), load.pods / load.per_second + case.seconds + case.recovery_seconds
            )
            elapsed = plan.elapsed_seconds or 0.0
            await asyncio.sleep(max(case.seconds - elapsed, 0.0))
        except TimeoutError:
            pass  # pods are lost, which is judged below
        finally:
            for task in disrupting:
                task.cancel()
            await asyncio.gather(*disrupting, return_exceptions=True)
        if case.clock_jumps:
            disrupted["jump"] = int((plan.elapsed_seconds or 0.0) / PERIOD_SECONDS)
        plan.disarm()
        with suppress(TimeoutError):
            await asyncio.wait_for(workload.end(), case.recovery_seconds)
            await _until(lambda: workload.all_bound, case.recovery_seconds)
        patience_seconds = min(case.recovery_seconds, case.audit_seconds)
        discrepancies = [await operator.audited(patience_seconds) for operator in operators]
        statuses = [await operator.end() for operator in operators]
    outcome = Outcome(
        case.title,
        seed,
        load.pods,
        history.judged(),
        [found for found in discrepancies if found != "no discrepancies"],
        [status for operator in operators for status in operator.unexpected_endings],
        [text for operator in operators for text in operator.failed_probes],
        [status for status in statuses if status != 0],
        sum(operator.lost_leases for operator in operators),
        dict(plan.counts()) | disrupted,
    )
    logger.info("%s", outcome)
    return outcome


def _write_versions(cluster: EmbeddedCluster, plan: FaultPlan) -> None:
    """Write so many versions that what an outage takes back is never older than the run.

    A busy machine may have written few by then: the operator's service account would be lost, too.
    """
    api, config_maps = cluster.api, cluster.api.kinds.resource("configmaps")
    older = [each.revisions for _, each in plan.outages if each.history == "older"]
    for number in range(max(older, default=0)):
        api.create(config_maps, "default", {"metadata": {"name": f"version-{number}"}})


def _workload(case: Case, cluster: EmbeddedCluster, load: Load, rng: random.Random) -> Workload:
    if case.preempting:
        return PreemptingWorkload(cluster, load, rng)
    return Workload(cluster, load, rng, case.group_size)


@asynccontextmanager
async def _cluster(
    case: Case, plan: FaultPlan, load: Load, seed: int
) -> AsyncIterator[EmbeddedCluster]:
    options = ClusterOptions(
        controllers=False,
        kubelet=None,
        heartbeats=False,
        seed=seed,
        faults=None if case.by_proxy else plan,
        feature_gates=GANGS if case.group_size > 1 else frozenset(),
        identity=ENFORCED,
    )
    nodes = [make_node(f"n{number}", cpu=str(load.pods_a_node)) for number in range(load.nodes)]
    async with EmbeddedCluster(nodes, options=options) as cluster:
        install(cluster, make_profile(PROFILE), *([_SHADOW] if case.shadowed else []))
        yield cluster


@asynccontextmanager
async def _operators(
    case: Case,
    cluster: EmbeddedCluster,
    plan: FaultPlan,
    directory: Path,
    arguments: tuple[str, ...],
    seed: int,
) -> AsyncIterator[list[SupervisedOperator]]:
    kubeconfig = directory / "kubeconfig"
    async with AsyncExitStack() as stack:
        write_operator_kubeconfig(cluster, kubeconfig)
        if case.by_proxy:
            url = await stack.enter_async_context(fault_proxy(cluster.url, plan))
            text = kubeconfig.read_text(encoding="utf-8")
            kubeconfig.write_text(text.replace(cluster.url, url), encoding="utf-8")
        os.environ["JUMPING_CLOCK_SEED"] = str(seed)
        module = _JUMPING_CLOCK if case.clock_jumps else STELLWERK
        operators = [
            SupervisedOperator(
                kubeconfig,
                directory / f"run{each}.log",
                *(text.format(directory=directory) for text in case.arguments),
                *arguments,
                module=module,
            )
            for each in range(case.replicas)
        ]
        for operator in operators:
            await stack.enter_async_context(supervised(operator))
        yield operators


async def _disrupt(
    operators: list[SupervisedOperator],
    disruption: Disruption,
    rng: random.Random,
    disrupted: Counter[str],
    workload: Workload,
) -> None:
    for number in range(disruption.times):
        await asyncio.sleep(rng.uniform(*disruption.every_seconds))
        operator = rng.choice(operators)
        if number % 2:
            # Every second time it has got as far as probes: a machine on which a start takes longer
            # than the pauses would see none of them through.
            await operator.live.wait()
            await asyncio.sleep(rng.uniform(*disruption.every_seconds))
        if disruption.between_bindings:
            workload.between_bindings.clear()
            await workload.between_bindings.wait()
        disrupted[disruption.act] += 1
        match disruption.act:
            case "kill":
                operator.kill()
            case "terminate":
                operator.terminate()
            case "pause":
                await operator.pause(rng.uniform(*disruption.for_seconds))


async def _until(
    condition: Callable[[], bool], seconds: float, *operators: SupervisedOperator
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 any condition
                await asyncio.sleep(0.05)
    except TimeoutError:
        if operators:
            logs = [operator.log.read_text(encoding="utf-8")[-2000:] for operator in operators]
            raise AssertionError("\n".join(logs)) from None
        raise


def with_proxy(case: Case) -> Case:
    """The same case, with its faults in a proxy."""
    return replace(case, title=f"{case.title}, by a proxy", by_proxy=True)
