"""Sources of an experiment's nodes and pods: CSV, manifests, a recording, a live cluster.

Experiments read them. Invariant: a source is read once, whatever is asked of it; of a recording's
decisions nothing is left but how long pods ran: where and when they run is decided anew.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from typing_extensions import override

from stellwerk.journal.entries import WatchEvent
from stellwerk.journal.reader import open_journal
from stellwerk_kube.compatibility import Compatibility, compatibility_beside
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.yaml_file import read_objects
from stellwerk_simulation.cluster import node_manifest
from stellwerk_simulation.cluster_objects import USED
from stellwerk_simulation.manifest_errors import made, some
from stellwerk_simulation.manifest_reader import admitted, settled
from stellwerk_simulation.manifests import (
    FINISHED,
    is_manifest_file,
    node_of,
    nodes_of,
    pod_of,
    pods_of,
)
from stellwerk_simulation.ready_profiles import NEWEST
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods, since_the_first

SUFFIX: Final = ".journal"
_DELETED: Final = "DELETED"


@dataclass(slots=True)
class _Life:
    """A pod, and when what happened to it; seconds of the recording."""

    obj: JsonObject
    arrived: float
    bound: float | None = None
    ended: float | None = None

    @property
    def runs_seconds(self) -> float | None:
        """From its binding to its end; None: it had not ended when the recording did."""
        if self.ended is None:
            return None
        return self.ended - (self.arrived if self.bound is None else self.bound)


@dataclass(slots=True)
class Recorded:
    """The cluster of a recording."""

    source: str
    nodes: dict[str, JsonObject] = field(default_factory=dict)
    """Every node that ever was there, by name, as it was seen last."""
    others: dict[tuple[str, str, str], JsonObject] = field(default_factory=dict)
    """By kind, namespace and name."""
    damage: str = ""
    """The place and reason from which on the recording cannot be read; empty: it is whole."""
    _lives: dict[str, _Life] = field(default_factory=dict)
    """By uid, in the order of arrival."""

    def trace_nodes(self) -> list[TraceNode]:
        """The nodes, at least one.

        Raises:
            ConfigurationError: there is none, or one is wrong.
        """
        nodes = [made(node_of, obj, self.source) for obj in self.nodes.values()]
        return sorted(some(nodes, self.source, "Node"), key=lambda node: node.name)

    def trace_pods(self) -> list[TracePod]:
        """The pods, at least one, in the order of their arrival; names that return are numbered.

        Raises:
            ConfigurationError: there is none, or one is wrong.
        """
        pods: list[TracePod] = []
        times: Counter[str] = Counter()
        for life in self._lives.values():
            pod = made(pod_of, life.obj, self.source)
            times[pod.name] += 1
            number = times[pod.name]
            name = pod.name if number == 1 else f"{pod.name}#{number}"
            runs = life.runs_seconds
            pods.append(replace(pod, name=name, arrives_seconds=life.arrived, runs_seconds=runs))
        return since_the_first(some(pods, self.source, "Pod"))

    def feed(self, event: WatchEvent) -> None:
        """Take an event into account."""
        obj, gone = event.obj, event.event_type == _DELETED
        metadata = obj["metadata"]
        if event.kind == "Pod":
            self._pod(event, gone=gone)
        elif event.kind == "Node":
            if not gone:
                self.nodes[metadata["name"]] = {**obj, "kind": "Node"}
        elif not gone:
            key = event.kind, metadata.get("namespace") or "", metadata["name"]
            self.others[key] = {**obj, "kind": event.kind}

    def _pod(self, event: WatchEvent, *, gone: bool) -> None:
        obj, seconds = event.obj, event.seconds
        uid = obj["metadata"].get("uid") or ""
        over = gone or (obj.get("status") or {}).get("phase") in FINISHED
        life = self._lives.get(uid)
        if life is None:
            if over:
                return
            life = self._lives[uid] = _Life({**obj, "kind": "Pod"}, seconds)
        claims = (obj.get("status") or {}).get("resourceClaimStatuses")
        if claims:
            # They are made after the pod has come.
            status = {**(life.obj.get("status") or {}), "resourceClaimStatuses": claims}
            life.obj = {**life.obj, "status": status}
        if over:
            life.ended = seconds if life.ended is None else life.ended
        elif life.bound is None and obj["spec"].get("nodeName"):
            life.bound = seconds


def read_recording(path: Path) -> Recorded:
    """The contents of a recording, up to where it is damaged.

    Raises:
        JournalError: it cannot be opened, or is of another format.
    """
    journal, recorded = open_journal(path), Recorded(str(path))
    for entry in journal:
        if isinstance(entry, WatchEvent):
            recorded.feed(entry)
    recorded.damage = journal.damage
    return recorded


@dataclass(slots=True)
class LiveCluster:
    """Reads the objects of a live cluster, and knows from then on the release to decide as."""

    live: Callable[[str | None, str | None], Sequence[JsonObject]]
    """Reads them, by kubeconfig and context."""
    compatibility: Compatibility = NEWEST
    """The meaning of `compatibility: auto`: before, and without, a cluster the newest release."""

    def __call__(self, kubeconfig: str | None, context: str | None) -> Sequence[JsonObject]:
        """Return the objects.

        Raises:
            ConfigurationError, ApiError: the cluster cannot be read.
        """
        found = self.live(kubeconfig, context)
        self.compatibility = compatibility_beside(getattr(found, "server_version", ""))
        return found


class Source(ABC):
    """Nodes, pods and what else there is of a cluster."""

    def __init__(self, place: str, others: Sequence[JsonObject] = (), note: str = "") -> None:
        self.place = place
        """The place of the entry, as messages name it."""
        self.others = others
        """Every object, nodes and pods perhaps among them."""
        self.note = note
        """An oddity of the entry; empty: there is none."""

    @abstractmethod
    def nodes(self) -> list[TraceNode]:
        """The nodes, at least one.

        Raises:
            ConfigurationError: there is none, or one is wrong.
        """

    @abstractmethod
    def pods(
        self, nodes: Sequence[TraceNode] = (), beside: Sequence[JsonObject] = ()
    ) -> list[TracePod]:
        """The pods, at least one; `nodes`: on which DaemonSets that were written have theirs.

        `beside`: objects of other sources by which manifests are admitted.

        Raises:
            ConfigurationError: there is none, or one is wrong.
        """


class Objects(Source):
    """Manifests, from a file or from a cluster."""

    def __init__(self, objects: Sequence[JsonObject], place: str) -> None:
        super().__init__(place, objects)

    @override
    def nodes(self) -> list[TraceNode]:
        return nodes_of(self.others, self.place)

    @override
    def pods(
        self, nodes: Sequence[TraceNode] = (), beside: Sequence[JsonObject] = ()
    ) -> list[TracePod]:
        manifests = [node.manifest or node_manifest(node) for node in nodes]
        return pods_of(self.others, self.place, manifests, beside)


class _Table(Source):
    """A CSV file, of nodes or of pods."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    @override
    def nodes(self) -> list[TraceNode]:
        return read_nodes(self._path)

    @override
    def pods(
        self, nodes: Sequence[TraceNode] = (), beside: Sequence[JsonObject] = ()
    ) -> list[TracePod]:
        return read_pods(self._path)


class _Recording(Source):
    """A journal of a cluster."""

    def __init__(self, path: Path) -> None:
        self._recorded = read_recording(path)
        damage = self._recorded.damage
        note = f"read up to here: {damage}" if damage else ""
        super().__init__(str(path), tuple(self._recorded.others.values()), note)

    @override
    def nodes(self) -> list[TraceNode]:
        return self._recorded.trace_nodes()

    @override
    def pods(
        self, nodes: Sequence[TraceNode] = (), beside: Sequence[JsonObject] = ()
    ) -> list[TracePod]:
        return self._recorded.trace_pods()


def objects_of(files: Sequence[Path]) -> Objects:
    """Files of manifests as one cluster.

    Raises:
        ConfigurationError: one cannot be read.
    """
    found = [obj for file in files for obj in admitted(f"-f {file}", read_objects(file), USED)]
    return Objects(settled(found, USED), ", ".join(map(str, files)))


def source_of(path: Path, at: str = "", used: AbstractSet[str] = USED) -> Source:
    """A file, by the end of its name; `at` begins messages on manifests, whose kinds are `used`.

    Raises:
        ConfigurationError, JournalError: it cannot be read.
    """
    if is_manifest_file(path):
        found = admitted(f"{at} {path}".strip(), read_objects(path), used)
        return Objects(settled(found, used), str(path))
    return _Recording(path) if path.suffix == SUFFIX else _Table(path)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
