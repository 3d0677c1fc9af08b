"""The metrics of a run: loads, waiting times, allocation, nodes in use, fragmentation.

A simulation tells it what happens. Fragmentation after each placement is worked out in blocks: each
placement changes one node, and many such states at once take a fraction of the time that one after
the other would. Invariant: it changes nothing of the World, and a run without times gives one event
for each arrival.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stellwerk.backend.cache import Cache
from stellwerk.models.gpu import DEVICES
from stellwerk.plugins.gpu.fragmentation import FloatColumn, Fragmentation, TypicalPods, idle_cpu
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.resource_amounts import CPU, MEMORY
from stellwerk_simulation.arrivals import gpu_capacity
from stellwerk_simulation.node_usage import MeasuredNodes
from stellwerk_simulation.trace import TraceNode, TracePod

_ROWS_PER_BLOCK: Final = 256
"""Rows that are computed at a time."""


class FragmentationRecord:
    """The states that nodes went through."""

    def __init__(self, snapshot: Snapshot, typical: TypicalPods) -> None:
        self._snapshot = snapshot
        self._measure = Fragmentation(snapshot, typical)
        self._devices = snapshot.book(GpuDevices)
        self._begun: FloatColumn = np.zeros(0)
        self._rows: list[int] = []
        self._idle_cpu: list[npt.NDArray[np.int64]] = []
        self._free_milli: list[npt.NDArray[np.int64]] = []

    def begin(self) -> None:
        """Measure the nodes as they are, before the first placement."""
        self._begun = self._measure.column().copy()

    def note(self, node_name: str) -> None:
        """A pod was placed on a node, and the snapshot shows it."""
        row = self._snapshot.row_of[node_name]
        nodes = NodeView(self._snapshot, np.array([row], np.intp))
        self._rows.append(row)
        self._idle_cpu.append(idle_cpu(nodes))
        self._free_milli.append(self._devices.free_milli(nodes))

    def totals(self) -> Iterator[float]:
        """The fragmentation of all nodes at the beginning, and after each placement."""
        column = self._begun.copy()
        yield float(column.sum())
        for start in range(0, len(self._rows), _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            rows = self._rows[block]
            nodes = NodeView(self._snapshot, np.array(rows, np.intp))
            values = self._measure.of(
                nodes,
                np.concatenate(self._idle_cpu[block]),
                np.concatenate(self._free_milli[block]),
            )
            for row, value in zip(rows, values.tolist(), strict=True):
                column[row] = value
                yield float(column.sum())


GPU: Final = "gpu"
_RESOURCES: Final = (CPU, MEMORY)
_SECONDS_PER_HOUR: Final = 3600


class Event(NamedTuple):
    """The cluster after one arrival; amounts in thousandths of a device."""

    arrived: int
    """Requests of all pods so far, this one and dropped ones included."""
    used: int
    fragmented: float
    """The share of fragments in what is idle, rounded to two decimals."""
    ratio_pct: float
    """The fragmented share of what is idle, in percent, rounded to two decimals."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run."""

    profile: str
    seed: int
    capacity: int
    """Thousandths of all devices."""
    events: Sequence[Event]
    placed: int
    """Pods; the rest of the arrivals was dropped, or waits."""
    nodes_in_use: int
    """At the most, at one time."""
    waiting_seconds: tuple[float, float] = (0.0, 0.0)
    """From arrival to binding, of pods that were bound: the median and the 99th percentile."""
    allocated: Mapping[str, float] = field(default_factory=dict)
    """At the most, at one time: the share of each resource that the nodes offer."""
    preempted: int = 0
    hottest_pct: float | None = None
    """The most of its CPU that any node used at any reading; None: no pod says what it uses."""
    hot_share_pct: float | None = None
    """The share of nodes and readings above `node_usage.HOT_PCT`."""
    cost: float = 0.0
    """The cost of the nodes in use: while they were, if pods leave; per hour at the end, if none
    does."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The node of each pod, by the pod's name."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reasons for which pods have no node at the end, by their names."""
    compatibility: str = ""
    """The release of Kubernetes that its decisions followed."""


class RunMetrics:
    """Follows one run."""

    def __init__(
        self,
        nodes: Sequence[TraceNode],
        cache: Cache,
        typical: TypicalPods,
        profile: str,
        seed: int,
    ) -> None:
        self._profile, self._seed = profile, seed
        self._capacity = gpu_capacity(nodes)
        self._prices = {node.name: node.hourly_price for node in nodes}
        self._record = FragmentationRecord(cache.snapshot, typical)
        cache.update_snapshot()
        self._record.begin()
        self._offered = {
            resource: int(NodeView(cache.snapshot).allocatable(resource).sum())
            for resource in (*_RESOURCES, DEVICES)
        }
        self._loads: list[tuple[int, int, int]] = []
        self._arrived = self._used = self._placed = self._changes = self._preempted = 0
        self._came: dict[str, float] = {}
        self._waited: list[float] = []
        self._pods_on: Counter[str] = Counter()
        self._most_nodes = 0
        self._most: Counter[str] = Counter()
        self._requested: Counter[str] = Counter()
        self._in_use_since: dict[str, float] = {}
        self._node_cost, self._any_left = 0.0, False
        self._node_of: dict[str, str] = {}
        self._why: dict[str, str] = {}

    def arrived(self, pod: TracePod, now: float) -> None:
        """A pod came."""
        self._arrived += pod.total_milli
        self._came[pod.name] = now
        self._why[pod.name] = "it was not tried"

    def note_load(self) -> None:
        """Note the load once an arrival and all that follows from it are decided."""
        self._loads.append((self._arrived, self._used, self._changes))

    def bound(self, pod: TracePod, requests: Mapping[str, int], node_name: str, now: float) -> None:
        """A pod runs, and the snapshot shows it; `requests` as the scheduler counts them."""
        self._node_of[pod.name] = node_name
        self._why.pop(pod.name, None)
        self._used += pod.total_milli
        self._placed += 1
        self._changed(node_name)
        self._waited.append(now - self._came.pop(pod.name, now))
        if not pod.of_daemon_set:
            self._in_use_since.setdefault(node_name, now)
            self._pods_on[node_name] += 1
        self._most_nodes = max(self._most_nodes, len(self._in_use_since))
        for resource in _RESOURCES:
            self._requested[resource] += requests.get(resource, 0)
            self._most[resource] = max(self._most[resource], self._requested[resource])
        self._most[GPU] = max(self._most[GPU], self._used)

    def left(self, pod: TracePod, requests: Mapping[str, int], node_name: str, now: float) -> None:
        """A pod is gone, and the snapshot shows it."""
        for resource in _RESOURCES:
            self._requested[resource] -= requests.get(resource, 0)
        self._used -= pod.total_milli
        self._any_left = True
        self._changed(node_name)
        if pod.of_daemon_set:
            return
        self._pods_on[node_name] -= 1
        if not self._pods_on[node_name]:
            self._end_use(node_name, now)

    def refused(self, pod: TracePod, message: str) -> None:
        """No node took a pod."""
        self._why[pod.name] = message

    def evicted(self, pod: TracePod) -> None:
        """A pod lost its node to another one."""
        self._node_of.pop(pod.name, None)
        self._why[pod.name] = "it was preempted"

    def preempted(self, victims: int) -> None:
        """Pods were evicted for another one."""
        self._preempted += victims

    def result(self, now: float, measured: MeasuredNodes | None = None) -> RunResult:
        """The figures of the run; `measured`: usage of nodes."""
        used = measured if measured is not None and measured.readings else None
        fragmented = list(self._record.totals())
        cost = sum(self._prices[name] for name in self._in_use_since)
        if self._any_left:
            for name in tuple(self._in_use_since):
                self._end_use(name, now)
            cost = self._node_cost
        waited = np.array(self._waited or [0.0])
        allocated = {
            resource: self._most[resource] / self._offered[resource]
            for resource in _RESOURCES
            if self._offered[resource]
        }
        if self._capacity:
            allocated[GPU] = self._most[GPU] / self._capacity
        return RunResult(
            self._profile,
            self._seed,
            self._capacity,
            [self._event(came, used, fragmented[changes]) for came, used, changes in self._loads],
            self._placed,
            self._most_nodes,
            (float(np.quantile(waited, 0.5)), float(np.quantile(waited, 0.99))),
            allocated,
            self._preempted,
            None if used is None else used.hottest_pct,
            None if used is None else used.hot_share_pct,
            cost,
            self._node_of,
            self._why,
        )

    def _changed(self, node_name: str) -> None:
        self._record.note(node_name)
        self._changes += 1

    def _end_use(self, node_name: str, now: float) -> None:
        seconds = now - self._in_use_since.pop(node_name)
        self._node_cost += self._prices[node_name] * seconds / _SECONDS_PER_HOUR

    def _event(self, arrived: int, used: int, fragmented: float) -> Event:
        idle = self._capacity - used
        ratio = 100 * fragmented / idle if idle else 0.0
        return Event(arrived, used, round(fragmented, 2), round(ratio, 2))
