"""NodeUnschedulable: keeps pods off cordoned nodes, unless they tolerate the taint of cordoning.

Invariant: spec.unschedulable counts even before the node controller has added the taint.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from stellwerk.framework.changes import Change, Tolerate, Uncordon
from stellwerk.framework.events import (
    QUEUE,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.interface import EnqueueExtensions, FilterPlugin, ProposePlugin, Reuse
from stellwerk.framework.types import CycleState, FilterResult, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.hints import changed_node
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.plugins.shared.stateless import StatelessPlugin
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.taints import NO_SCHEDULE, UNSCHEDULABLE_TAINT_KEY, Taint

_NAME: Final = "NodeUnschedulable"
_UNSCHEDULABLE: Final = unresolvable(_NAME, "node(s) were unschedulable")
_TAINT: Final = Taint(UNSCHEDULABLE_TAINT_KEY, "", NO_SCHEDULE)


class NodeUnschedulable(RowByRow, StatelessPlugin, FilterPlugin, EnqueueExtensions, ProposePlugin):
    """Rejects nodes with spec.unschedulable."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NODE

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        if _tolerates_unschedulable(pod):
            return FilterResult.everywhere(len(nodes))
        return FilterResult.of_mask(nodes.unschedulable(), _UNSCHEDULABLE)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is not None:
            yield Uncordon(nodes.snapshot.node_at(row).name)
            yield Tolerate(Taint(UNSCHEDULABLE_TAINT_KEY, "", NO_SCHEDULE))

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _became_schedulable
            ),
            ClusterEventWithHint(
                Resource.POD, Action.UPDATE_POD_TOLERATION, _began_to_tolerate, HintScope.POD
            ),
        )


def _tolerates_unschedulable(pod: PodInfo) -> bool:
    return any(toleration.tolerates(_TAINT) for toleration in pod.spec.tolerations)


def _became_schedulable(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a node came that is schedulable, or was uncordoned."""
    old, new = changed_node(change)
    return queue_if(new is None or ((old is None or old.unschedulable) and not new.unschedulable))


def _began_to_tolerate(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the rejected pod itself now tolerates cordoned nodes."""
    new = change.new
    if not isinstance(new, PodInfo):
        return QUEUE
    return queue_if(new.uid == pod.uid and _tolerates_unschedulable(new))
