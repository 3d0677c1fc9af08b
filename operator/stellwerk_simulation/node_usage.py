"""The usage of simulated nodes, which sources of plugins read as from a cluster's metrics API.

Pods use what their annotations `stellwerk.dev/usage` and `stellwerk.dev/load` say, as those of
hollow nodes do. Invariant: a source sees what a cluster would have shown it at its last reading,
and no reading changes anything but the object that it is shown as.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from typing_extensions import override

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.handle import NothingRead
from stellwerk.framework.services import ClusterClient, NumberSource, Web
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.clock import Clock
from stellwerk_kube.declared_usage import at_load, parse_load, parse_usage
from stellwerk_kube.errors import NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.trace import TracePod

METRICS_PATH: Final = "/apis/metrics.k8s.io/v1beta1/nodes"
USAGE: Final = "stellwerk.dev/usage"
LOAD: Final = "stellwerk.dev/load"
"""The share of the usage by time of day: `08:00=100%,20:00=30%`."""
USAGE_SECONDS: Final = 30.0
"""Time between two readings of the usage of nodes."""
HOT_PCT: Final = 80.0
"""A node that uses so much of its CPU is hot."""


@dataclass(slots=True)
class MeasuredNodes:
    """CPU use as the measurements of a run show it; all 0 where no pod says what it uses."""

    readings: int = 0
    hottest_pct: float = 0.0
    """The most that any node used."""
    hot: int = 0
    """Readings of single nodes above HOT_PCT."""

    def take(self, used_pct: Mapping[str, float]) -> None:
        """Take one reading into account."""
        self.readings += len(used_pct)
        self.hottest_pct = max(self.hottest_pct, max(used_pct.values(), default=0.0))
        self.hot += sum(pct > HOT_PCT for pct in used_pct.values())

    @property
    def hot_share_pct(self) -> float:
        """The share of time and nodes that was hot."""
        return 100 * self.hot / max(1, self.readings)


class NodeUsages(NothingRead):
    """The sources that plugins follow, read in virtual time from what pods use."""

    def __init__(self, clock: Clock, objects: IndexedObjectStore, snapshot: Snapshot) -> None:
        self._clock, self._objects, self._snapshot = clock, objects, snapshot
        self._pods: dict[str, dict[str, tuple[Mapping[str, int], str]]] = {}
        """By node, of each pod that says it, by uid: what it uses, and its load over the day."""
        self._sources: list[NumberSource] = []
        self._due: dict[str, float] = {}
        self.is_declared = False
        """Whether any pod has said what it uses."""
        self.measured = MeasuredNodes()
        self.on_reading: Callable[[float, Mapping[str, float]], None] = lambda _, __: None
        """Called with each time and what every node used of its CPU then, in percent."""

    @override
    def follow(self, source: NumberSource) -> None:
        self._sources.append(source)

    def bound(self, uid: str, pod: TracePod, node_name: str) -> None:
        """A pod runs."""
        annotations = ((pod.manifest or {}).get("metadata") or {}).get("annotations") or {}
        usage, load = (
            parse_usage(str(annotations.get(USAGE) or "")),
            str(annotations.get(LOAD) or ""),
        )
        if usage:
            self.is_declared = True
            self._pods.setdefault(node_name, {})[uid] = (usage, load if _is_load(load) else "")

    def left(self, uid: str, node_name: str) -> None:
        """It is gone."""
        self._pods.get(node_name, {}).pop(uid, None)

    def read_what_is_due(self) -> None:
        """Read each source whose period is over, as the operator does beside its cycle."""
        now = self._clock.monotonic()
        for source in self._sources:
            if now < self._due.get(source.name, 0.0):
                continue
            self._due[source.name] = now + source.period_seconds
            answer = _done(source.read(cast("ClusterClient", self), cast("Web", _NoWeb())))
            if answer is not None:
                fields = source.checked(answer)
                self._objects.hold(source.kind, {"metadata": {"name": source.name}, **fields})

    def measure(self) -> None:
        """Take down what every node uses now."""
        used_pct = self.cpu_pct()
        self.measured.take(used_pct)
        self.on_reading(self._clock.monotonic(), used_pct)

    def cpu_pct(self) -> dict[str, float]:
        """The share of its CPU that each node uses now, in percent."""
        capacity = {name: self._capacity(name) for name in self._snapshot.row_of}
        return {
            name: 100 * self._used(name)["cpu"] / millis
            for name, millis in capacity.items()
            if millis
        }

    def _capacity(self, node_name: str) -> int:
        node = self._snapshot.node_at(self._snapshot.row_of[node_name])
        return node.capacity.get("cpu") or node.allocatable.get("cpu", 0)

    def _used(self, node_name: str) -> Counter[str]:
        used: Counter[str] = Counter(cpu=0, memory=0)
        for usage, load in self._pods.get(node_name, {}).values():
            used.update(at_load(usage, load, self._clock.now()))
        return used

    # --- the part of a ClusterClient that sources ask ---------------------------------------------

    async def get(self, path: str) -> JsonObject:
        """Answer as metrics.k8s.io.

        Raises:
            NotFound: it is another path.
        """
        if path != METRICS_PATH:
            raise NotFound(f"get {path}", 404, "NotFound", "a simulation has no such API")
        now = self._clock.now().isoformat().replace("+00:00", "Z")
        items = []
        for name in self._snapshot.row_of:
            used = self._used(name)
            usage = {"cpu": f"{used['cpu']}m", "memory": str(used["memory"])}
            items.append({"metadata": {"name": name}, "timestamp": now, "usage": usage})
        return {"items": items}


class _NoWeb:
    """Addresses outside of the cluster, of which a simulation calls none."""

    async def get(self, url: str, **_: Any) -> object:
        raise SchedulerError(f"a simulation does not call {url}")

    async def pause(self) -> None:
        """Nothing else goes on meanwhile."""


def _is_load(text: str) -> bool:
    try:
        parse_load(text)
    except ValueError:
        return False
    return True


def _done(reading: Coroutine[Any, Any, object]) -> object | None:
    """The answer of a reading, which waits for nothing here; None: it failed."""
    try:
        reading.send(None)
    except StopIteration as ended:
        answer: object = ended.value
        return answer
    except SchedulerError:
        return None
    reading.close()
    return None
