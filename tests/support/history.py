"""What the embedded API has stored, change by change, and what of it may not be.

A run opens a `History` before anything happens and asks `judged` at its end. Invariant: what is
judged is the API's own record alone, never what a scheduler says of itself.
"""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from stellwerk.models.pod import parse_pod
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.registry.store import Store
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.resource_amounts import PODS

_KINDS = frozenset({"pods", "nodes"})


class Change(NamedTuple):
    """One change of a pod or node."""

    at_seconds: float
    kind: str
    before: JsonObject | None
    after: JsonObject | None
    revision: int
    rewound: bool
    """Whether it is part of a return to an older state."""


@dataclass
class Judgement:
    """What a history shows."""

    created: int = 0
    unbound: list[str] = field(default_factory=list)
    """Pods that exist at the end and have no node."""
    doubled: list[str] = field(default_factory=list)
    """Pods that were given a node while they had one."""
    over_committed: list[str] = field(default_factory=list)
    """Nodes that had promised more than they have, and when."""
    delays_seconds: list[float] = field(default_factory=list)
    """From creation to binding, of each binding."""

    @property
    def worst_delay_seconds(self) -> float:
        """Of all bindings."""
        return max(self.delays_seconds, default=0.0)


class History:
    """Records every change of pods and nodes from now on, and what is there already."""

    def __init__(self, store: Store) -> None:
        self._store = store
        now = time.monotonic()
        self.changes = [
            Change(now, kind, None, entry.obj, entry.revision, rewound=False)
            for kind in sorted(_KINDS)
            for entry in store.collection(kind).entries()
        ]
        store.listeners.append(self._on_change)

    def _on_change(self, kind: str, event: StoreEvent) -> None:
        if kind not in _KINDS:
            return
        events = self._store.collection(kind).events
        self.changes.append(
            Change(
                time.monotonic(),
                kind,
                None if event.previous is None else event.previous.obj,
                None if event.type == DELETED else event.entry.obj,
                event.revision,
                # A return to an older state leaves no events.
                rewound=not events or events[-1] is not event,
            )
        )

    def judged(self) -> Judgement:
        """Replay everything."""
        replay = Replay()
        for change in self.changes:
            replay.take(change)
        return replay.judgement()


class Replay:
    """What changes of pods and nodes have come to, one after the other."""

    def __init__(self) -> None:
        self._judgement = Judgement()
        self._allocatable: dict[str, dict[str, int]] = {}
        self._promised: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, Counter[str]]] = {}
        """uid of a bound pod → its node and what it takes there."""
        self._waiting: dict[str, tuple[str, float]] = {}
        """uid of an unbound pod → its name and since when it waits."""

    def take(self, change: Change) -> None:
        if change.kind == "nodes":
            self._node(change)
        else:
            self._pod(change)

    def judgement(self) -> Judgement:
        self._judgement.unbound = sorted(name for name, _ in self._waiting.values())
        return self._judgement

    def _node(self, change: Change) -> None:
        if change.after is not None:
            node = parse_node(change.after)
            self._allocatable[node.name] = dict(node.allocatable)
        elif change.before is not None:
            self._allocatable.pop(change.before["metadata"]["name"], None)

    def _pod(self, change: Change) -> None:
        obj = change.after or change.before
        assert obj is not None
        uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
        had = self._counted.pop(uid, None)
        if had is not None:
            self._promised[had[0]].subtract(had[1])
        if change.after is None:
            self._waiting.pop(uid, None)
            return
        if change.before is None and not change.rewound:
            self._judgement.created += 1
        pod = parse_pod(change.after)
        if not pod.node_name:
            if had is not None or uid not in self._waiting:
                self._waiting[uid] = (name, change.at_seconds)
            return
        if had is not None and had[0] != pod.node_name:
            self._judgement.doubled.append(name)
        waited = self._waiting.pop(uid, None)
        if waited is not None and not change.rewound:
            self._judgement.delays_seconds.append(change.at_seconds - waited[1])
        if pod.finished:
            return
        takes = Counter({**pod.amounts.requests, PODS: 1})
        self._counted[uid] = (pod.node_name, takes)
        self._promised[pod.node_name].update(takes)
        if not change.rewound and had is None:
            self._check(pod.node_name, name, change)

    def _check(self, node_name: str, pod_name: str, change: Change) -> None:
        offered = self._allocatable.get(node_name, {})
        for resource, amount in self._promised[node_name].items():
            if amount > offered.get(resource, 0):
                self._judgement.over_committed.append(
                    f"{node_name} has {offered.get(resource, 0)} {resource} and promised {amount} "
                    f"when {pod_name} was bound (version {change.revision})"
                )
