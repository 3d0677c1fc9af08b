"""One namespace floods the cluster with pods that fit nowhere while others create pods that fit.

A benchmark and a test run it: the whole operator in process, without sockets, fed as by watches.
Invariant: what is waited for is a pod of the others, from its event to the call that binds it;
pods that fit come at a steady rate in every phase, live for a while and go, and nodes keep
changing, so that whatever may wake the flood does.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from stellwerk.app import RunOptions
from stellwerk.backend.scheduling_queue import MAX_UNSCHEDULABLE_SECONDS
from stellwerk.framework.offline import Offline
from stellwerk.garbage import collect_seldom
from stellwerk.handlers.delivery import MAX_EVENTS_PER_SLICE
from stellwerk.handlers.reflector import STREAM_SLICE_SECONDS
from stellwerk.metrics import Metrics
from stellwerk.wiring import Operator
from stellwerk_kube.clock import SystemClock
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stellwerk_kube.json_values import JsonObject

TEMPLATES: Final = 6
_ZONES: Final = 3
FULL_CPU: Final = "2500m"
"""Of a node's 4 CPUs, taken by a pod that stays: a pod of the flood fits an empty node alone."""
FLOOD: Final = "flood"
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class Load:
    """What the cluster is given."""

    nodes: int = 1000
    flood: int = 20_000
    different: bool = False
    """No two pods of the flood are alike; otherwise they are of six templates."""
    flood_per_second: float = 2000.0
    others_per_second: float = 50.0
    lifetime_seconds: float = 2.0
    node_changes_per_second: float = 5.0
    phase_seconds: float = 10.0


@dataclass
class Waits:
    """How long pods of the others took from event to binding in one phase."""

    phase: str
    wall_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """The same in CPU time of the process: what else the machine does is not in it."""
    rejected_meanwhile: list[int] = field(default_factory=list)
    """How many attempts at pods of the flood came between an event and its binding."""
    attempts: int = 0
    """At pods of the flood, in the whole phase."""
    longest_turn_cpu_seconds: float = 0.0

    def percentile(self, share: float, *, cpu: bool = False) -> float:
        """A percentile in seconds."""
        ascending = sorted(self.cpu_seconds if cpu else self.wall_seconds)
        return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


class FloodedCluster(Offline):
    """The API: what is written to it comes back in a later turn, as from a watch."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._version = 0
        self._news: deque[tuple[str, JsonObject]] = deque()
        self._news_came = asyncio.Event()
        self.pods: dict[tuple[str, str], JsonObject] = {}
        self.operator = Operator(self, self, Metrics(), SystemClock(), RunOptions())
        self.queue = self.operator.world.queue
        self.waits = Waits("")
        self._seen: dict[str, tuple[float, float, int]] = {}
        self._rejected = 0
        self._number = 0

    # --- the API, for the operator --------------------------------------------------------------

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        seen = self._seen.pop(uid, None)
        if seen is not None:
            self.waits.wall_seconds.append(time.perf_counter() - seen[0])
            self.waits.cpu_seconds.append(time.process_time() - seen[1])
            self.waits.rejected_meanwhile.append(self._rejected - seen[2])
        pod = self.pods[namespace, name]
        pod = {**pod, "spec": {**pod["spec"], "nodeName": node_name}}
        self._store("MODIFIED", pod)
        asyncio.get_running_loop().call_later(
            self._load.lifetime_seconds, self._delete, namespace, name
        )

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        await asyncio.sleep(0)
        pod = self.pods.get((namespace, name))
        if pod is not None:
            status = {**pod["status"], **patch["status"]}
            self._store("MODIFIED", {**pod, "status": status})

    @override
    async def patch(
        self, path: str, body: Mapping[str, Any], *, content_type: str = ""
    ) -> JsonObject:
        """The profile's status is what is written besides."""
        return {"metadata": {}}

    @override
    def event(self, *args: Any, **kwargs: Any) -> None:
        """Every rejection records one."""
        self._rejected += 1

    # --- what watches bring ---------------------------------------------------------------------

    def _store(self, event_type: str, pod: JsonObject) -> None:
        self._version += 1
        metadata = {**pod["metadata"], "resourceVersion": str(self._version)}
        pod = {**pod, "metadata": metadata}
        self.pods[metadata["namespace"], metadata["name"]] = pod
        self._news.append((event_type, pod))
        self._news_came.set()

    def _delete(self, namespace: str, name: str) -> None:
        self._news.append(("DELETED", self.pods.pop((namespace, name))))
        self._news_came.set()

    async def watch_pods(self) -> None:
        """Hand on what has happened to pods, as a Reflector does, until cancelled."""
        while True:
            await self._news_came.wait()
            began = time.monotonic()
            for _ in range(min(len(self._news), MAX_EVENTS_PER_SLICE)):
                if time.monotonic() - began >= STREAM_SLICE_SECONDS:
                    break
                event_type, pod = self._news.popleft()
                if event_type == "ADDED" and pod["metadata"]["namespace"] == _OTHERS:
                    seen = time.perf_counter(), time.process_time(), self._rejected
                    self._seen[pod["metadata"]["uid"]] = seen
                self.operator.handlers.on_pod(event_type, pod)
            if not self._news:
                self._news_came.clear()
            await asyncio.sleep(0)

    async def watch_turns(self) -> None:
        """Measure the turns of the loop, until cancelled."""
        while True:
            started = time.process_time()
            await asyncio.sleep(0.001)
            turn = time.process_time() - started
            self.waits.longest_turn_cpu_seconds = max(self.waits.longest_turn_cpu_seconds, turn)

    # --- what users and kubelets do -------------------------------------------------------------

    def fill(self) -> None:
        """A profile, nodes, and on each a pod that leaves 1.5 CPUs."""
        handlers = self.operator.handlers
        handlers.on_object("SchedulerProfile", None, make_profile("default-scheduler"))
        for index in range(self._load.nodes):
            handlers.on_node(None, self._node(index))
            pod = make_pod(f"full-{index}", cpu=FULL_CPU, node_name=f"n{index}")
            handlers.on_pod(None, pod)

    def _node(self, index: int, **labels: str) -> JsonObject:
        self._version += 1
        node = make_node(f"n{index}", zone=f"zone{index % _ZONES + 1}", labels=labels, pods="1000")
        node["metadata"]["resourceVersion"] = str(self._version)
        return node

    async def create_flood(self) -> None:
        """Create the flood at its rate."""
        started = time.perf_counter()
        for number in range(self._load.flood):
            due = started + number / self._load.flood_per_second
            if due > time.perf_counter():
                await asyncio.sleep(due - time.perf_counter())
            template = number if self._load.different else number % TEMPLATES
            self._store("ADDED", flood_pod(number, template))

    async def create_others(self, seconds: float) -> None:
        """Create pods that fit at their rate for so long."""
        started = time.perf_counter()
        for number in range(int(seconds * self._load.others_per_second)):
            due = started + number / self._load.others_per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._number += 1
            labels = {"app": f"other-{self._number % 5}"}
            name = f"other-{self._number}"
            self._store("ADDED", make_pod(name, namespace=_OTHERS, cpu="10m", labels=labels))

    async def change_nodes(self) -> None:
        """Let nodes change, label and allocatable in turn, until cancelled."""
        number = 0
        while True:
            await asyncio.sleep(1 / self._load.node_changes_per_second)
            number += 1
            node = self._node(number % self._load.nodes, revision=str(number // 2))
            node["status"]["allocatable"]["memory"] = f"{32768 + number % 2 + number}Mi"
            self.operator.handlers.on_node("MODIFIED", node)

    # --- phases ---------------------------------------------------------------------------------

    async def phase(self, name: str) -> Waits:
        """Others create pods for a phase; what they waited."""
        self.waits = Waits(name)
        before = self.flood_attempts()
        await self.create_others(self._load.phase_seconds)
        deadline = time.perf_counter() + 60
        while self._seen and time.perf_counter() < deadline:  # noqa: ASYNC110 no event to wait for
            await asyncio.sleep(0.01)
        self.waits.attempts = self.flood_attempts() - before
        return self.waits

    async def until_tried(self) -> None:
        """Wait until every pod of the flood was tried."""
        deadline = time.perf_counter() + 60
        while not self.tried() and time.perf_counter() < deadline:  # noqa: ASYNC110 the same
            await asyncio.sleep(0.05)

    def flood_attempts(self) -> int:
        """How often pods of the flood were tried."""
        return sum(
            entry.attempts for entry in self.queue.entries.values() if entry.pod.namespace == FLOOD
        )

    def tried(self) -> bool:
        """Whether every pod of the flood was tried."""
        return all(
            entry.attempts for entry in self.queue.entries.values() if entry.pod.namespace == FLOOD
        )


def flood_pod(number: int, template: int) -> JsonObject:
    """A pod that no node takes, of one of six kinds of reason."""
    app = {"app": f"flood-{template}"}
    selector = {"matchLabels": app}
    spec: dict[str, Any] = {}
    cpu = "10m"
    match template % TEMPLATES:
        case 0:  # fits an empty node: every pod that goes may help it
            cpu = f"{2000 + template // TEMPLATES % 2000}m"
        case 1:
            cpu = f"{5000 + template}m"
        case 2:
            spec["nodeSelector"] = {"pool": f"pool-{template}"}
        case 3:
            peers = {"matchLabels": {"app": f"peer-{template}"}}
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": peers}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"podAffinity": required}
        case 4:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "rack",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector,
                }
            ]
        case _:
            cpu = f"{1600 + template // TEMPLATES % 2000}m"
            spec["nodeSelector"] = {"topology.kubernetes.io/zone": f"zone{template % _ZONES + 1}"}
    return make_pod(f"flood-{number}", namespace=FLOOD, cpu=cpu, labels=app, **spec)


async def run(load: Load, report: Callable[[Waits], None] = lambda _: None) -> list[Waits]:
    """The phases: undisturbed, while the flood comes, with it waiting, and after five minutes."""
    thresholds = gc.get_threshold()
    try:
        return await _run(load, report)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _run(load: Load, report: Callable[[Waits], None]) -> list[Waits]:
    found: list[Waits] = []
    cluster = FloodedCluster(load)
    cluster.fill()
    gc.collect()
    gc.freeze()
    collect_seldom()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(cluster.operator.scheduler.run()),
            tasks.create_task(cluster.watch_pods()),
            tasks.create_task(cluster.watch_turns()),
            tasks.create_task(cluster.change_nodes()),
        ]

        async def phase(name: str) -> None:
            waits = await cluster.phase(name)
            found.append(waits)
            report(waits)

        await phase("undisturbed")
        flood = tasks.create_task(cluster.create_flood())
        await phase("the flood comes")
        await flood
        await cluster.until_tried()
        await phase("the flood waits")
        cluster.queue.flush_unschedulable(time.monotonic() + MAX_UNSCHEDULABLE_SECONDS + 1)
        await phase("five minutes later")
        for task in running:
            task.cancel()
    return found
