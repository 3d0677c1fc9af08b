"""NodeName: a pod that names its node fits nowhere else.

Pods in the queue have no spec.nodeName; `decide`, explain and what-if ask about those that do.
Invariant: a pod without spec.nodeName fits everywhere.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.changes import Change, EditPod
from stellwerk.framework.events import Action, ClusterEventWithHint, Resource
from stellwerk.framework.interface import EnqueueExtensions, FilterPlugin, ProposePlugin, Reuse
from stellwerk.framework.types import CycleState, FilterResult, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.plugins.shared.stateless import StatelessPlugin
from stellwerk.snapshot.columns import ABSENT
from stellwerk.snapshot.snapshot import NodeView

_NAME: Final = "NodeName"
_OTHER_NODE: Final = unresolvable(_NAME, "node(s) didn't match the requested node name")


class NodeName(RowByRow, StatelessPlugin, FilterPlugin, EnqueueExtensions, ProposePlugin):
    """Compares spec.nodeName with the node's name."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NODE

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        if not pod.node_name:
            return FilterResult.everywhere(len(nodes))
        wanted = nodes.snapshot.row_of.get(pod.node_name, ABSENT)
        return FilterResult.of_mask(nodes.row_numbers() != np.intp(wanted), _OTHER_NODE)

    @override
    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # The name is no part of the spec that pods share.
        return None if pod.node_name else pod.spec

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is None and pod.node_name:
            words = f"leave out nodeName {pod.node_name}"
            yield EditPod(words, lambda each: each.with_node(""))

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint(Resource.NODE, Action.ADD),)
