"""TaintToleration: keeps pods off nodes whose taints they do not tolerate; avoids the soft ones.

Invariant: a taint set is judged once per pod spec, however many nodes have it.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from stellwerk.framework.changes import Change, RemoveTaints, Tolerate, Uncordon
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
from stellwerk.framework.interface import (
    EnqueueExtensions,
    FilterPlugin,
    NormalizeScorePlugin,
    PreScorePlugin,
    ProposePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.types import OK, CycleState, FilterResult, Status, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.hints import changed_node, is_own_update
from stellwerk.plugins.shared.node_matching import untolerated_counts
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.plugins.shared.score_normalization import normalize_to_lowest
from stellwerk.plugins.shared.stateless import StatelessPlugin
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated

_NAME: Final = "TaintToleration"
_UNTOLERATED: Final = unresolvable(_NAME, "node(s) had untolerated taint(s)")
_HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
_SOFT: Final = (PREFER_NO_SCHEDULE,)


class TaintToleration(
    RowByRow,
    StatelessPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensions,
    ProposePlugin,
):
    """Filters by NoSchedule and NoExecute, scores by PreferNoSchedule."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NODE
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        counts = untolerated_counts(nodes, pod.spec.tolerations, _HARD)
        return FilterResult.of_mask(counts > 0, _UNTOLERATED)

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        return OK

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        return untolerated_counts(nodes, pod.spec.tolerations, _SOFT)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # Shared by all pods with these tolerations, so that pods of many specs share one column.
        return pod.spec.tolerations

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        return normalize_to_lowest(scores)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is None:
            return
        node = nodes.snapshot.node_at(row)
        taints = untolerated(node.taints, pod.spec.tolerations, (NO_SCHEDULE, NO_EXECUTE))
        if taints:
            yield RemoveTaints(node.name, tuple(taints))
        if node.unschedulable:
            yield Uncordon(node.name)
        for taint in dict.fromkeys(taints):
            yield Tolerate(taint)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _became_tolerable
            ),
            ClusterEventWithHint(
                Resource.POD, Action.UPDATE_POD_TOLERATION, is_own_update, HintScope.POD
            ),
        )


def _became_tolerable(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the pod tolerates a new node, or a changed one that it did not tolerate before."""
    old, new = changed_node(change)
    if new is None:
        return QUEUE
    was_untolerated = old is None or bool(untolerated(old.taints, pod.spec.tolerations, _HARD))
    return queue_if(was_untolerated and not untolerated(new.taints, pod.spec.tolerations, _HARD))
