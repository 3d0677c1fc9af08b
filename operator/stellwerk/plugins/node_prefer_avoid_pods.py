"""NodePreferAvoidPods: avoids nodes whose annotation names the pod's ReplicaSet or controller.

Off by default; kube-scheduler had it until 1.22. Invariant: with its weight of 10000 an avoided
node is chosen only if every feasible node is avoided.
"""

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import orjson
from typing_extensions import override

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.stateless import StatelessPlugin
from stellwerk.snapshot.changes import ChangeCursor
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.node_view import NodeView
from stellwerk.snapshot.snapshot import Snapshot

Controller: TypeAlias = tuple[str, str]
"""(kind, uid)."""

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_AVOIDABLE_KINDS: Final = frozenset({"ReplicaSet", "ReplicationController"})


class NodePreferAvoidPods(StatelessPlugin, ScorePlugin):
    """0 on a node that avoids the pod's controller, 100 elsewhere."""

    name: ClassVar[str] = "NodePreferAvoidPods"
    default_weight: ClassVar[int] = 10_000
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    _avoiding: "_AvoidingRows | None" = None

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        controller = _controller(pod)
        if controller is None:
            return np.full(len(nodes), MAX_NODE_SCORE, np.int64)
        if self._avoiding is None or self._avoiding.snapshot is not nodes.snapshot:
            self._avoiding = _AvoidingRows(nodes.snapshot)
        avoided = nodes.users(self._avoiding.rows(controller)) > 0
        return np.where(avoided, np.int64(0), np.int64(MAX_NODE_SCORE))

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        return _controller(pod) or ""


class _AvoidingRows:
    """Which rows avoid which controller, followed through changes of nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._cursor = ChangeCursor(snapshot.node_changes)
        self._rows: dict[Controller, dict[int, int]] = {}
        self._of_row: dict[int, frozenset[Controller]] = {}

    def rows(self, controller: Controller) -> Mapping[int, int]:
        """The rows (each with 1) that avoid a controller now."""
        changed = self._cursor.advance()
        for row in range(self.snapshot.size) if changed is None else changed:
            self._write(row, self.snapshot.nodes[row])
        return self._rows.get(controller, {})

    def _write(self, row: int, node: NodeInfo | None) -> None:
        before = self._of_row.pop(row, frozenset())
        now = _avoided(node.annotations) if node is not None else frozenset()
        if now:
            self._of_row[row] = now
        for controller in before - now:
            del self._rows[controller][row]
        for controller in now - before:
            self._rows.setdefault(controller, {})[row] = 1


def _controller(pod: PodInfo) -> Controller | None:
    """The pod's controller, if it is of a kind that nodes can avoid."""
    if pod.owner is None:
        return None
    kind = pod.owner[0].rpartition(" ")[2]
    return (kind, pod.owner[2]) if kind in _AVOIDABLE_KINDS else None


def _avoided(annotations: Mapping[str, str]) -> frozenset[Controller]:
    """The controllers that an annotation names; one that cannot be read names none."""
    text = annotations.get(ANNOTATION)
    if not text:
        return frozenset()
    try:
        entries: list[dict[str, Any]] = orjson.loads(text).get("preferAvoidPods") or []
        controllers = [entry["podSignature"]["podController"] for entry in entries]
        return frozenset((each["kind"], each["uid"]) for each in controllers)
    except (AttributeError, KeyError, TypeError, ValueError):
        return frozenset()
