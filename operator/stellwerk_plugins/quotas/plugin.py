"""CapacityScheduling: the plugin at its points.

A pod of a namespace with an ElasticQuota is let in while the namespace stays within its maximum,
and all namespaces together within the sum of their guarantees; else pods of lower priority, or
pods that run on borrowed capacity, may be preempted for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from stellwerk.plugin_api import (
    GO_ON,
    OK,
    QUEUE,
    QUEUE_SKIP,
    Action,
    Candidate,
    Change,
    ClusterChange,
    ClusterEventWithHint,
    Code,
    CycleState,
    DeletePod,
    Diagnosis,
    DisruptionBudgets,
    EnqueueExtensions,
    ExplainPlugin,
    Handle,
    HintScope,
    NodeView,
    PluginFacts,
    PluginKind,
    PodInfo,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    ProposePlugin,
    QueueingHint,
    ReservePlugin,
    Resource,
    Status,
    StatusColumn,
    best_candidates,
    by_importance,
    error,
    fit_error,
    queue_if,
    unresolvable,
    unschedulable,
)
from stellwerk_plugins.quotas.amounts import ALWAYS, UNBOUNDED, added, amount_as_text, requested_by
from stellwerk_plugins.quotas.quota import KIND, NamespaceUse, Quota, Quotas, QuotaState, summed
from stellwerk_plugins.quotas.status import QuotaStatus
from stellwerk_plugins.quotas.victims import Outcome, PodDemand, VictimFinder

_NAME: Final = "CapacityScheduling"
_NEVER: Final = "Never"
_NOT_HELPFUL: Final = unresolvable("", "Preemption is not helpful for scheduling")
_UNDER_WAY: Final = unresolvable(_NAME, "waiting for the preemption for this pod to be finished")
_MAX_PROPOSALS: Final = 8
"""Pods that are proposed for deletion, nodes on which they are looked for, and quotas named."""


class CapacityScheduling(
    PreEnqueuePlugin,
    PreFilterPlugin,
    PostFilterPlugin,
    ReservePlugin,
    EnqueueExtensions,
    ExplainPlugin,
    ProposePlugin,
):
    """Keeps namespaces within their elastic quotas, and takes back what was borrowed."""

    name: ClassVar[str] = _NAME
    watched_kinds: ClassVar[Sequence[PluginKind]] = (
        PluginKind(KIND, "scheduling.x-k8s.io", "v1alpha1", "elasticquotas"),
    )

    def __init__(self, handle: Handle, _: None = None) -> None:
        self._handle = handle
        self._quotas = Quotas(handle.objects)
        self._use = handle.snapshot.book(NamespaceUse)
        self._budgets = DisruptionBudgets(handle.objects, handle.compatibility)
        self._status = QuotaStatus(
            handle.objects, self._quotas, self._use, handle.recorder, handle.metrics
        )
        handle.sources.repeat(self._status)

    # --- whether there is room in the quotas ----------------------------------------------------

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        return _UNDER_WAY if pod.uid in self._handle.preempting else OK

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        if not self._handle.sources.is_synced(KIND):
            return PreFilterResult(unschedulable(_NAME, "waiting for the first list of quotas"))
        quotas = self._state()
        demand = self._demand(pod, quotas)
        state.write(_NAME, demand)
        quota = quotas.quotas.get(pod.namespace)
        if quota is None:
            return GO_ON
        rejected = f"Pod {pod.namespace}/{pod.name} is rejected in PreFilter because "
        if quota.over_max(quotas.used(pod.namespace), demand.in_quota):
            reason = f"{rejected}ElasticQuota {pod.namespace} is more than Max"
            return PreFilterResult(unschedulable(_NAME, reason))
        if quotas.over_total_min(demand.in_total, demand.total_min):
            reason = f"{rejected}total ElasticQuota used is more than min"
            return PreFilterResult(unschedulable(_NAME, reason))
        return GO_ON

    def _state(self) -> QuotaState:
        return QuotaState(
            self._quotas.by_namespace(), lambda namespace: self._use.used.get(namespace, {})
        )

    def _demand(self, pod: PodInfo, quotas: QuotaState) -> PodDemand:
        """The pod's request, and what was promised to nominated pods."""
        request = requested_by(pod)
        total_min = summed(quota.min for quota in quotas.quotas.values())
        if pod.namespace not in quotas.quotas:
            return PodDemand(request, request, request, total_min)
        in_quota, in_total = dict(request), dict(request)
        row_of = self._handle.snapshot.row_of
        for node_name, nominated in self._handle.nominations.by_node.items():
            for other in nominated.values() if node_name in row_of else ():
                quota = quotas.quotas.get(other.namespace)
                if quota is None or other.uid == pod.uid:
                    continue
                if other.namespace == pod.namespace:
                    if other.priority >= pod.priority:
                        in_quota = added(in_quota, requested_by(other))
                        in_total = added(in_total, requested_by(other))
                elif not quota.over_min(quotas.used(other.namespace)):
                    in_total = added(in_total, requested_by(other))
        return PodDemand(request, in_quota, in_total, total_min)

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """The pod counts in its quota from its decision on: the book has it."""
        return OK

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """It is taken out of the book, too."""

    # --- room by preemption ---------------------------------------------------------------------

    @override
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        quotas = self._state()
        demand = state.get(_NAME, PodDemand) or self._demand(pod, quotas)
        obstacle = self._why_not_eligible(pod, diagnosis, quotas, demand)
        if obstacle:
            return PostFilterResult(unschedulable(_NAME, obstacle))
        resolvable = diagnosis.statuses.where(Code.UNSCHEDULABLE)
        rows = diagnosis.row_numbers()[resolvable].tolist()
        finder = VictimFinder(self._handle, state, pod, demand, quotas, self._budgets)
        found = finder.find(rows)
        candidates = [each for each in found.values() if isinstance(each, Candidate)]
        if candidates:
            return PostFilterResult(OK, tuple(candidates), best_candidates)
        failures = [
            each.message
            for each in found.values()
            if isinstance(each, Status) and each.code is Code.ERROR
        ]
        if failures:
            return PostFilterResult(error(_NAME, ", ".join(dict.fromkeys(failures))))
        message = _nothing_found(diagnosis, found)
        return PostFilterResult(unschedulable(_NAME, message), clear_nomination=True)

    def _why_not_eligible(
        self, pod: PodInfo, diagnosis: Diagnosis, quotas: QuotaState, demand: PodDemand
    ) -> str:
        """Empty if the pod may preempt others (`PodEligibleToPreemptOthers`)."""
        if pod.spec.preemption_policy == _NEVER:
            return "not eligible due to preemptionPolicy=Never."
        row = self._handle.snapshot.row_of.get(pod.nominated_node_name)
        if row is None or row not in diagnosis.rows:
            return ""
        status = diagnosis.statuses[diagnosis.rows.index(row)]
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        own = quotas.quotas.get(pod.namespace)
        beyond = own is not None and own.over_min_with(quotas.used(pod.namespace), demand.in_quota)
        for other in self._handle.snapshot.pods[row].values():
            if other.terminating and self._is_leaving_for(pod, other, quotas, beyond=beyond):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _is_leaving_for(
        self, pod: PodInfo, other: PodInfo, quotas: QuotaState, *, beyond: bool
    ) -> bool:
        """Whether a terminating pod makes room that this one may take."""
        quota = quotas.quotas.get(other.namespace)
        if pod.namespace not in quotas.quotas:
            return quota is None and other.priority < pod.priority
        if quota is None:
            return False
        if other.namespace == pod.namespace:
            return other.priority < pod.priority
        return not beyond and quota.over_min(quotas.used(other.namespace))

    # --- what may help --------------------------------------------------------------------------

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        freed = Action.DELETE | Action.UPDATE_POD_SCALE_DOWN
        scope = HintScope.SPEC_AND_LABELS
        return (
            ClusterEventWithHint(Resource.ASSIGNED_POD, freed, self._quota_freed, scope),
            ClusterEventWithHint(KIND, Action.ALL, self._quota_changed, scope),
        )

    def _quota_freed(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Room in some quota: its own maximum, or the sum of all guarantees."""
        other = change.old
        if not isinstance(other, PodInfo):
            return QUEUE_SKIP
        quotas = self._quotas.by_namespace()
        own = quotas.get(pod.namespace)
        if own is None or other.namespace not in quotas or not requested_by(other):
            return QUEUE_SKIP
        if other.namespace == pod.namespace:
            return QUEUE
        # Others free nothing of the namespace's own maximum. What is used may still hold pods of
        # the namespace that have ended: their own ends wake the pod.
        return queue_if(not own.over_max(self._use.used.get(pod.namespace, {}), requested_by(pod)))

    def _quota_changed(self, _: PodInfo, change: ClusterChange) -> QueueingHint:
        """Another specification; what is written into the status makes no room."""
        old, new = change.old, change.new
        if isinstance(old, dict) and isinstance(new, dict) and old.get("spec") == new.get("spec"):
            return QUEUE_SKIP
        return queue_if(True)  # noqa: FBT003 whatever it says now

    # --- explanations ---------------------------------------------------------------------------

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        quotas = self._state()
        quota = quotas.quotas.get(pod.namespace)
        if quota is None:
            return None
        lines = [self._of_quota(quota, quotas)]
        lines += [f"quota {pod.namespace}: {fault}" for fault in quota.faults]
        beside = self._quotas.doubled.get(pod.namespace)
        if beside:
            lines.append(
                f"of several quotas of {pod.namespace} the oldest counts, {quota.name}; "
                f"not {', '.join(beside[:_MAX_PROPOSALS])}"
            )
        return PluginFacts(lines=tuple(lines))

    def _of_quota(self, quota: Quota, quotas: QuotaState) -> str:
        """Used, guaranteed and largest amounts of what the quota names, and who has borrowed."""
        used = quotas.used(quota.namespace)
        named = dict.fromkeys([*used, *quota.min, *(quota.max or {})])
        parts = []
        for resource in named:
            most = (quota.max or {}).get(
                resource, 0 if quota.max is not None and resource in ALWAYS else UNBOUNDED
            )
            bound = "any" if most == UNBOUNDED else amount_as_text(resource, most)
            parts.append(
                f"{amount_as_text(resource, used.get(resource, 0))} of {bound} {resource} used "
                f"({amount_as_text(resource, quota.min.get(resource, 0))} guaranteed"
                f"{self._borrowed(resource, quota, quotas)})"
            )
        return f"quota {quota.namespace}: {', '.join(parts) or 'nothing used'}"

    def _borrowed(self, resource: str, quota: Quota, quotas: QuotaState) -> str:
        """The namespaces that use more of a resource than is guaranteed, in words."""
        lent = [
            f"{amount_as_text(resource, over)} borrowed by {namespace}"
            for namespace, other in quotas.quotas.items()
            if namespace != quota.namespace
            and (over := quotas.used(namespace).get(resource, 0) - other.min.get(resource, 0)) > 0
        ]
        return "".join(f", {each}" for each in lent[:3])

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change | None]:
        """Pods whose end would make room in the quotas, those of least importance first."""
        quotas = self._state()
        own = quotas.quotas.get(pod.namespace)
        if row is not None or own is None:
            return
        namespaces = [pod.namespace]
        namespaces += [
            namespace
            for namespace, quota in quotas.quotas.items()
            if namespace != pod.namespace and quota.over_min(quotas.used(namespace))
        ]
        for namespace in namespaces:
            rows = self._use.rows.get(namespace, {})
            pods = [
                other
                for each in list(rows)[:_MAX_PROPOSALS]
                for other in self._handle.snapshot.pods[each].values()
                if other.namespace == namespace and requested_by(other)
            ]
            yield None
            for other in reversed(by_importance(pods)[-_MAX_PROPOSALS:]):
                yield DeletePod(other)


def _nothing_found(diagnosis: Diagnosis, found: Mapping[int, Outcome]) -> str:
    """The numbers of nodes that cannot be cleared, by reason."""
    statuses = [
        outcome if isinstance(outcome := found.get(row), Status) else _NOT_HELPFUL
        for row in diagnosis.rows
    ]
    return fit_error(Diagnosis(diagnosis.rows, StatusColumn.of(statuses)))
