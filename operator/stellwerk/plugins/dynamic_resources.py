"""DynamicResources: what kube-scheduler's plugin does for pods without resource claims.

Pods with claims need an allocator of devices, which Stellwerk does not have: they stay pending
with a message that says so. Invariant: a pod with claims never fits, whichever of this plugin's
extension points a profile leaves on.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.events import ClusterEventWithHint
from stellwerk.framework.filter_result import FilterResult
from stellwerk.framework.interface import (
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.status import Status, error, unresolvable, unschedulable
from stellwerk.models.plugin_args import DynamicResourcesArgs
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.node_view import NodeView

_NAME: Final = "DynamicResources"
_NO_CLAIMS: Final = unschedulable(_NAME, "no new claims to deallocate")
_STILL: Final = unschedulable(_NAME, "still not schedulable")
_NO_STATE: Final = error(_NAME, "not found")


class DynamicResources(
    PreFilterPlugin, FilterPlugin, PostFilterPlugin, ScorePlugin, EnqueueExtensions
):
    """Refuses pods with claims; scores 0 everywhere."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs
    filter_reuse: ClassVar[Reuse] = Reuse.NODE
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, _handle: Handle, _args: DynamicResourcesArgs) -> None:
        pass

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        state.write(self.name, pod.spec.resource_claims)
        return PreFilterResult(_refusal(pod)) if pod.spec.resource_claims else SKIP_FILTER

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        # Reached only where a profile turned this plugin's PreFilter off.
        fails = np.full(len(nodes), bool(pod.spec.resource_claims))
        return FilterResult.of_mask(fails, _refusal(pod))

    @override
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        # A PreFilter plugin before this one that rejects the pod ends PreFilter: upstream then
        # misses its state here, and this error ends PostFilter before preemption.
        claims = state.get(self.name, tuple)
        if claims is None:
            return PostFilterResult(_NO_STATE)
        return PostFilterResult(_STILL if claims else _NO_CLAIMS)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        return np.zeros(len(nodes), np.int64)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        return self.name

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # Nothing that happens in the cluster makes a pod with claims schedulable here.
        return ()


def _refusal(pod: PodInfo) -> Status:
    claims = ", ".join(pod.spec.resource_claims)
    return unresolvable(
        _NAME, f"pod has resource claims ({claims}), and this scheduler does not allocate devices"
    )
