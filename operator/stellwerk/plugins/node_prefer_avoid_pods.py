"""NodePreferAvoidPods: avoids nodes whose annotation names the pod's ReplicaSet or controller.

Off by default; kube-scheduler had it until 1.22. Invariant: with its weight of 10000 an avoided
node is chosen only if every feasible node is avoided.
"""

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import orjson
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import Counts, IntColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import NodeInfo

Controller: TypeAlias = tuple[str, str]
"""(kind, uid)."""

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_AVOIDABLE_KINDS: Final = frozenset({"ReplicaSet", "ReplicationController"})


class NodePreferAvoidPods(RowByRow, ScorePlugin):
    """0 on a node that avoids the pod's controller, 100 elsewhere."""

    name: ClassVar[str] = "NodePreferAvoidPods"
    default_weight: ClassVar[int] = 10_000
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        """Let the snapshot keep the book from now on."""
        handle.snapshot.book(AvoidingNodes)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        controller = _controller(pod)
        if controller is None:
            return np.full(len(nodes), MAX_NODE_SCORE, np.int64)
        avoided = nodes.users(nodes.snapshot.book(AvoidingNodes).rows(controller)) > 0
        return np.where(avoided, np.int64(0), np.int64(MAX_NODE_SCORE))

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        return _controller(pod) or ""


class AvoidingNodes(Book):
    """The rows that avoid each controller."""

    def __init__(self) -> None:
        self._nodes: Counts[Controller, int] = Counts()

    def rows(self, controller: Controller) -> Mapping[int, int]:
        """The rows (each with 1) that avoid a controller."""
        return self._nodes.of(controller)

    @override
    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        if before is not None:
            self.free(row, before)
        for controller in _avoided(node.annotations):
            self._nodes.add(controller, row, 1)

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        for controller in _avoided(node.annotations):
            self._nodes.add(controller, row, -1)

    @override
    def fork(self) -> "AvoidingNodes":
        fork = AvoidingNodes()
        fork._nodes = self._nodes.fork()
        return fork


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
