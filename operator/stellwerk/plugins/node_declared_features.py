"""NodeDeclaredFeatures: keeps a pod off nodes that do not declare the features it needs.

Invariant: which features a pod needs is inferred when it is parsed (models.pod); almost no pod
needs any, and then the filter is skipped.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

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
    GO_ON,
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reuse,
)
from stellwerk.framework.types import CycleState, FilterResult, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.hints import changed_node
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.plugins.shared.stateless import StatelessPlugin
from stellwerk.snapshot.snapshot import NodeView

_NAME: Final = "NodeDeclaredFeatures"
_MISSING: Final = unresolvable(_NAME, "node(s) didn't match Pod's required features")


class NodeDeclaredFeatures(
    RowByRow, StatelessPlugin, PreFilterPlugin, FilterPlugin, EnqueueExtensions
):
    """Compares the pod's features with status.declaredFeatures."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NODE

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        return GO_ON if pod.spec.required_features else SKIP_FILTER

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        required = pod.spec.required_features
        # A loop over nodes, for the rare spec that needs a feature, and once per such spec: the
        # column is cached.
        missing = [
            node is not None and not required <= node.declared_features for node in nodes.nodes()
        ]
        return FilterResult.of_mask(np.array(missing, dtype=np.bool_), _MISSING)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, _declares_other
            ),
            ClusterEventWithHint(Resource.POD, Action.UPDATE_POD, _needs_other, HintScope.POD),
        )


def _declares_other(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the node is new, or declares other features than before."""
    old, new = changed_node(change)
    return queue_if(old is None or new is None or old.declared_features != new.declared_features)


def _needs_other(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the rejected pod itself changed so that it needs other features."""
    old, new = change.old, change.new
    if not isinstance(old, PodInfo) or not isinstance(new, PodInfo):
        return QUEUE
    return queue_if(new.uid == pod.uid and old.spec.required_features != new.spec.required_features)
