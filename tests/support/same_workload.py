"""One workload lived through by a simulation, by the operator on the embedded cluster, by a rerun.

All begin with the same manifests and the same seed, in virtual time; what happened to pods, and
when, comes out as text. The rerun is of what the operator recorded, under the same profile. The
test's own part of the cluster is what users and kubelets do: pods are created when they arrive, run
from their binding on, and are deleted when their time is over.
"""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from unittest.mock import patch

from typing_extensions import override

from stellwerk import wiring
from stellwerk.journal.entries import Head
from stellwerk.journal.reader import open_journal
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import API_VERSION, KIND, load_profile
from stellwerk.scheduler.observers.recording import Recording
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.registry.entries import StoreEvent
from stellwerk_kube.clock import VirtualClock, rfc3339_milliseconds
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.arrivals import Arrivals, typical_pods
from stellwerk_simulation.cluster import VirtualWorker
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.manifests import nodes_of, pods_of
from stellwerk_simulation.ready_profiles import ready_manifest
from stellwerk_simulation.rerunning import Rerun
from stellwerk_simulation.simulation import Simulation, SimulationOptions
from stellwerk_simulation.trace import TracePod
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

Result = TypeVar("Result")

SEED = 7
_MOMENT_SECONDS = 1 / 4096
"""Between two things that happen one after the other; nothing else does meanwhile."""
_PLAN_SECONDS = 5.0
CONTROLLERS = (
    "disruption-controller",
    "resourceclaim-controller",
    "garbage-collector-controller",
)
"""What a simulation does at once: budgets, and claims that are made, given up and deleted."""
_GPU_RIGHT = frozenset({("", "pods", "patch")})


@dataclass(frozen=True, slots=True)
class Workload:
    """Manifests in the API's shape, and who decides on them."""

    nodes: Sequence[JsonObject]
    pods: Sequence[JsonObject]
    """Annotated with arrival and run time."""
    others: Sequence[JsonObject] = ()
    profile: str | JsonObject = "default"
    """The name of a ready profile, or a SchedulerProfile."""
    queues: bool = True
    """Whether pods that no node takes wait; otherwise they are given up."""
    feature_gates: frozenset[str] = frozenset()
    """Of the embedded cluster."""

    def arriving(self) -> list[TracePod]:
        """The pods as a simulation reads them."""
        return pods_of(self.pods, "pods")

    def served(self) -> JsonObject:
        """The SchedulerProfile object, under a name that the cluster does not have yet."""
        profile = self.profile
        if isinstance(profile, str):
            pods = self.arriving()
            profile = ready_manifest(profile, typical_pods(pods), pods)
        return {**profile, "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "tried"}}


def simulated(workload: Workload) -> tuple[list[str], float]:
    """What happened in a simulation, and when it ended."""
    pods = workload.arriving()
    arrivals = Arrivals(
        pods, nodes_of(workload.nodes, "nodes"), ClusterObjects.among(workload.others, "others")
    )
    profile = load_profile(workload.served(), known_plugins())
    run_options = SimulationOptions(timed=True, queues=workload.queues, plan_seconds=_PLAN_SECONDS)
    simulation = _Noting(arrivals, profile, typical_pods(pods), SEED, run_options)
    simulation.run(pods, lambda _: None)
    return simulation.notes, simulation.now()


def operated(
    workload: Workload, until_seconds: float, journal: JournalWriter | None = None
) -> list[str]:
    """What happened on the embedded cluster up to a time; all of it goes into the journal."""
    notes: list[str] = []

    async def flow(clock: VirtualClock) -> None:
        options = ClusterOptions(
            seed=1,
            heartbeats=False,
            kubelet=None,
            chosen_controllers=CONTROLLERS,
            feature_gates=workload.feature_gates,
        )
        worker = _OperatorsWorker(clock, _PLAN_SECONDS)
        with patch.object(wiring, "WorkerProcess", lambda: worker):
            opened = open_virtual_cluster(
                clock,
                workload.nodes,
                options,
                recording=None if journal is None else Recording(journal, clock),
                numbers=_numbers,
                also_granted=_GPU_RIGHT,
            )
            async with opened as world:
                await _Life(world, workload, notes).run(until_seconds)

    run_skipping(flow)
    return notes


def operated_and_rerun(workload: Workload, until_seconds: float) -> tuple[list[str], list[str]]:
    """What happened on the embedded cluster up to a time, and what its journal says run again."""
    with TemporaryDirectory() as folder:
        options = JournalOptions(Path(folder) / "journal")
        head = Head("test", rfc3339_milliseconds(VirtualClock().now()), hashed=False)
        writer = JournalWriter(options, head)
        try:
            notes = operated(workload, until_seconds, writer)
        finally:
            writer.close()
        return notes, asyncio.run(_rerun(options.file, workload.served()))


async def _rerun(journal: Path, profile: JsonObject) -> list[str]:
    rerun: _NotingRerun | None = None
    for entry in open_journal(journal):
        if rerun is None:
            assert isinstance(entry, Head)
            rerun = _NotingRerun(entry, [profile], SEED)
        rerun.feed(entry)
    assert rerun is not None
    rerun.finish()
    return rerun.notes


def _numbers(own: int | None) -> Random:
    return Random(SEED if own is None else own)


def _bound(now: float, name: str, node_name: str) -> str:
    return f"{now:.4f} {name} on {node_name}"


def _preempted(now: float, name: str) -> str:
    return f"{now:.4f} {name} preempted"


class _OperatorsWorker(VirtualWorker):
    """The same with what an operator asks of its own."""

    async def computed(self, work: Callable[[], Result]) -> Result:
        return work()


class _Noting(Simulation):
    """A simulation that keeps what happens."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.notes: list[str] = []

    def now(self) -> float:
        return self._clock.monotonic()

    @override
    def bind(self, assumed: PodInfo) -> None:
        super().bind(assumed)
        self.notes.append(_bound(self.now(), assumed.name, assumed.node_name))

    @override
    def delete(self, victim: PodInfo) -> None:
        is_there = self._world.cache.pod(victim.uid) is not None
        super().delete(victim)
        if is_there:
            self.notes.append(_preempted(self.now(), victim.name))


class _NotingRerun(Rerun):
    """A rerun that keeps what happens."""

    def __init__(self, *arguments: Any) -> None:
        self.notes: list[str] = []
        super().__init__(*arguments)

    @override
    def bind(self, assumed: PodInfo) -> None:
        self.notes.append(_bound(self._clock.monotonic(), assumed.name, assumed.node_name))
        super().bind(assumed)

    @override
    def delete(self, victim: PodInfo) -> None:
        if self.world.cache.pod(victim.uid) is not None:
            self.notes.append(_preempted(self._clock.monotonic(), victim.name))
        super().delete(victim)


@dataclass(slots=True)
class _Life:
    """Users and kubelets of a virtual cluster."""

    world: VirtualCluster
    workload: Workload
    notes: list[str]
    _runs: dict[str, float | None] = field(default_factory=dict)
    """How long each pod runs, by name."""
    _over: set[str] = field(default_factory=set)
    """Pods whose end is their own."""

    async def run(self, until_seconds: float) -> None:
        """Let everything happen that does up to a time, and end with an empty queue."""
        world, loop = self.world, asyncio.get_running_loop()
        profile = self.workload.served()
        world.apply(*self.workload.others)
        world.apply(profile)
        world.api.store.listeners.append(self._on_change)
        scheduler_name = profile["spec"]["schedulerName"]
        arriving = self.workload.arriving()
        for at_seconds, together in groupby(arriving, lambda pod: pod.arrives_seconds):
            manifests = [self._manifest(pod, scheduler_name) for pod in together]
            loop.call_at(at_seconds, self._arrive, manifests)
        await asyncio.sleep(until_seconds + 2 * _MOMENT_SECONDS)
        world.api.store.listeners.remove(self._on_change)
        for name, pod in world.pods.items():
            if not pod["spec"].get("nodeName"):
                world.delete("pods", name)

    def _manifest(self, pod: TracePod, scheduler_name: str) -> JsonObject:
        assert pod.manifest is not None
        manifest = copy.deepcopy(pod.manifest)
        manifest["spec"]["schedulerName"] = scheduler_name
        manifest["spec"]["terminationGracePeriodSeconds"] = 0
        self._runs[manifest["metadata"]["name"]] = pod.runs_seconds
        return manifest

    def _arrive(self, manifests: Sequence[JsonObject]) -> None:
        self.world.apply(*manifests)
        for manifest in () if self.workload.queues else manifests:
            name = manifest["metadata"]["name"]
            asyncio.get_running_loop().call_later(_MOMENT_SECONDS, self._give_up, name)

    def _give_up(self, name: str) -> None:
        pod = self.world.pods.get(name)
        if pod is not None and not pod["spec"].get("nodeName"):
            self.world.delete("pods", name)

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        if storage_name != "pods":
            return
        pod, now = event.entry.obj, self.world.clock.monotonic()
        name, node_name = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if event.type == "DELETED":
            if node_name and name not in self._over:
                self.notes.append(_preempted(now, name))
        elif node_name and event.previous and not event.previous.obj["spec"].get("nodeName"):
            self.notes.append(_bound(now, name, node_name))
            self._start(name)

    def _start(self, name: str) -> None:
        """What the kubelet does, and the pod's own end."""
        running = {"phase": "Running", "startTime": rfc3339_milliseconds(self.world.clock.now())}
        ready = {"type": "Ready", "status": "True"}
        self.world.patch_status("pods", name, {"status": running | {"conditions": [ready]}})
        seconds = self._runs[name]
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._end, name)

    def _end(self, name: str) -> None:
        if name in self.world.pods:
            self._over.add(name)
            self.world.delete("pods", name)
