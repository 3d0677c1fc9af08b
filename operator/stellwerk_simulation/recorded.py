"""A recording as a trace: the nodes of its cluster, and its pods with the times of their lives.

Experiments read one in place of manifests. Invariant: of the recording's decisions nothing is left
but how long pods ran; where and when they run in a simulation is decided anew.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from stellwerk.journal.entries import WatchEvent
from stellwerk.journal.reader import open_journal
from stellwerk.models.json_values import JsonObject
from stellwerk_simulation.manifest_errors import made, some
from stellwerk_simulation.manifests import FINISHED, node_of, pod_of
from stellwerk_simulation.trace import TraceNode, TracePod, since_the_first

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
    """Where and why the recording cannot be read any further; empty: it is whole."""
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
