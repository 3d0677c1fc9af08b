"""DynamicResources: devices for the resource claims of a pod, and for extended resources.

PreFilter looks at the claims, Filter searches each node for devices, Reserve keeps what was found
for the chosen node in flight, so that no other pod gets it, and PreBind writes it. Invariant: from
Reserve on, the devices of a pod are taken in the eyes of every profile, until the API shows the
allocation or Unreserve gives back what was not written. Unreserve also has written reservations
removed (`ClaimBinding.undo`). A written allocation stays, and PostFilter of a later attempt may
take it away (`deallocatable`). Of the queueing hints, at the end of the module: a pod whose claims
are not all there is left alone; what may have freed a device wakes every pod that was rejected.
Source: v1.36 with its default feature gates.
"""

from collections.abc import Generator, Hashable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final
from uuid import UUID

import numpy as np
from typing_extensions import override

from stellwerk.answers.pod import DevicesOfPod
from stellwerk.framework.changes import Proposal
from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
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
    MAX_NODE_SCORE,
    SKIP_FILTER,
    APICall,
    EnqueueExtensions,
    EqualPods,
    EqualPodsPlugin,
    ExplainPlugin,
    FilterPlugin,
    NormalizeScorePlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    ProposePlugin,
    ReservePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle, ObjectStore, PodGroups
from stellwerk.framework.types import (
    OK,
    SKIP,
    Code,
    CycleState,
    FilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.plugins.dynamic_resources.allocator import FilterTimeoutError
from stellwerk.plugins.dynamic_resources.bind_claim import (
    ClaimBinding,
    ClaimReservations,
    allocations,
    deallocated,
    delete_claim,
    unreserving,
)
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationError,
    ClaimMissingError,
    claims_of,
    shared_consumers,
    why_not_ready,
)
from stellwerk.plugins.dynamic_resources.explain import DeviceSearch, considered, proposals
from stellwerk.plugins.dynamic_resources.extended_resources import (
    CLAIM_NAME,
    backed_resources,
    claim_for,
    stale_claim,
)
from stellwerk.plugins.dynamic_resources.node_verdicts import (
    NAME,
    NOT_ALLOCATED,
    UNAVAILABLE,
    AllocationVerdicts,
    NodeAllocator,
    NodeVerdicts,
)
from stellwerk.plugins.dynamic_resources.state_data import PendingAllocation, StateData
from stellwerk.plugins.shared.pod_resource_claims import claim_names, consumer_of
from stellwerk.profiles.spec.plugin_args import DynamicResourcesArgs
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.compatibility import ReleaseRule
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import parse_duration
from stellwerk_kube.resource_claim import (
    DeviceClaim,
    device_claim_of,
    is_allocated,
    key_of,
    reserved_for,
    uid_of,
)

_NO_CLAIMS: Final = unschedulable(NAME, "no new claims to deallocate")
_NOTHING_TO_SAY: Final = Status(Code.UNSCHEDULABLE, plugin=NAME)
_STILL: Final = unschedulable(NAME, "still not schedulable")
_NO_STATE: Final = error(NAME, "not found")
_DEALLOCATED: Final = unschedulable(NAME, "deallocation of ResourceClaim completed")
_UNRESERVED: Final = unschedulable(NAME, "ResourceClaim unreserved for PodGroup")
_DELETED: Final = unschedulable(NAME, "deletion of ResourceClaim completed")
_NOTHING: Final = StateData("")
"""The state of every pod that asks for no devices."""
MAX_POD_SELECTOR_BYTES: Final = 16 * 1024
"""Bytes of the different selectors of a pod's claims: compiling so many takes a tenth of a second.
A pod with more is unschedulable."""


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    EnqueueExtensions,
    ExplainPlugin,
    ProposePlugin,
    EqualPodsPlugin,
):
    """Allocates the devices that a pod's claims ask for on the node it gets."""

    name: ClassVar[str] = NAME
    args_model: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER
    costly_filter: ClassVar[bool] = True
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, handle: Handle, args: DynamicResourcesArgs) -> None:
        self._handle = handle
        self._objects = handle.objects
        self._timeout_seconds = parse_duration(args.binding_timeout)
        self._filter_seconds = parse_duration(args.filter_timeout)
        self._node_allocator: NodeAllocator | None = None
        self._reservations = ClaimReservations(handle)

    @override
    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        needs_devices = bool(pod.spec.resource_claims or pod.extended_requests)
        return EqualPods.ANYTHING if needs_devices else EqualPods.ROW

    @property
    def node_allocator(self) -> NodeAllocator:
        """Devices and their use; made when the first pod needs it: most clusters have none."""
        if self._node_allocator is None:
            handle = self._handle
            self._node_allocator = NodeAllocator(
                handle.snapshot,
                handle.objects,
                handle.now_seconds,
                self._filter_seconds,
                handle.compatibility,
            )
        return self._node_allocator

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        if not pod.spec.resource_claims or self._objects.why_unseen(RESOURCE_CLAIM):
            # A pod whose claims cannot be seen is tried: what is refused there is said to users.
            return OK
        reason = why_not_ready(self._objects, pod, self._handle.pod_groups.claims_with(pod))
        return unresolvable(NAME, reason) if reason else OK

    # --- PreFilter and Filter -------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        state.write(NAME, _NOTHING)
        if not pod.spec.resource_claims and not pod.details.extended_requests:
            return SKIP_FILTER
        try:
            claims = claims_of(self._objects, pod, self._handle.pod_groups.claims_with(pod))
        except ClaimMissingError as missing:
            return PreFilterResult(unresolvable(NAME, str(missing)))
        self.node_allocator.refresh()
        backed = backed_resources(pod, self.node_allocator.classes)
        if not claims and not backed:
            return SKIP_FILTER
        found = self._examined(pod, claims, backed, state.group)
        if isinstance(found, Status):
            return PreFilterResult(found)
        state.write(NAME, found)
        return GO_ON

    def _with_shared(
        self,
        pod: PodInfo,
        claims: Sequence[JsonObject],
        backed: tuple[str, ...],
        group: PodGroupKey | None,
    ) -> StateData:
        """The pod's claims, with what other members of its group were given already."""
        joined: set[str] = set()
        shown: list[JsonObject] = []
        for claim in claims:
            given = None
            if group is not None and not is_allocated(claim):
                given = self.node_allocator.in_flight.shared_with(
                    uid_of(claim), pod.namespace, group
                )
            if given is None:
                shown.append(claim)
            else:
                joined.add(uid_of(claim))
                shown.append({**claim, "status": {**claim.get("status", {}), "allocation": given}})
        consumers = shared_consumers(pod, claims, self._handle.pod_groups.claims_with(pod))
        return StateData(
            pod.namespace, shown, backed, group_consumers=consumers, joined=frozenset(joined)
        )

    def _examined(
        self,
        pod: PodInfo,
        claims: Sequence[JsonObject],
        backed: tuple[str, ...],
        group: PodGroupKey | None,
    ) -> StateData | Status:
        """The pod's claims, or the status that no node can help."""
        state_data = self._with_shared(pod, claims, backed, group)
        for claim in state_data.to_allocate:
            if self.node_allocator.in_flight.has(uid_of(claim), pod.namespace):
                reason = f"resource claim {key_of(claim)} is in the process of being allocated"
                return unresolvable(NAME, reason)
            try:
                spec = device_claim_of(claim)
            except (KeyError, TypeError, ValueError, AttributeError) as failure:
                return error(NAME, f"claim {key_of(claim)}: {failure!r}")
            for choice in spec.choices:
                if self.node_allocator.classes.get(choice.class_name) is None:
                    unseen = self._objects.why_unseen("DeviceClass")
                    why = f": {unseen}" if unseen else ""
                    reason = f"device class {choice.class_name} does not exist{why}"
                    return unresolvable(NAME, f"request {choice.full_name}: {reason}")
            state_data.specs += (spec,)
        if reason := _too_complex(state_data.specs):
            return unresolvable(NAME, reason)
        if backed:
            in_namespace = self._objects.list(RESOURCE_CLAIM, pod.namespace)
            state_data.stale = stale_claim(pod, in_namespace)
        return state_data

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        state_data = state.get(NAME, StateData)
        if state_data is None and pod.spec.resource_claims:
            # Reached only where a profile turned this plugin's PreFilter off.
            return FilterResult.of_mask(np.ones(len(nodes), np.bool_), NOT_ALLOCATED)
        if state_data is None or not state_data.anything:
            return FilterResult.everywhere(len(nodes))
        return self._verdicts(pod, state_data).filter(nodes, state)

    def _verdicts(self, pod: PodInfo, state_data: StateData) -> NodeVerdicts:
        return NodeVerdicts(
            self.node_allocator, pod, state_data, self._handle.now(), self._timeout_seconds
        )

    def allocation_verdicts(
        self, state_data: StateData, pod: PodInfo
    ) -> Iterator[tuple[int, AllocationVerdicts]]:
        """The number of nodes for each set of claims that they come to, and their verdicts.

        There is one set, unless nodes differ in what their device plugins offer.
        """
        yield from self._verdicts(pod, state_data).allocation_verdicts(
            NodeView(self._handle.snapshot)
        )

    # --- Score ----------------------------------------------------------------------------------

    # --- explanations ---------------------------------------------------------------------------

    @override
    def explain(
        self, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> Generator[None, None, DevicesOfPod | None]:
        return considered(self._search(state, pod, nodes))

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Proposal | None]:
        return proposals(self._search(state, pod, nodes)) if row is None else iter(())

    def _search(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> DeviceSearch:
        state_data = state.get(NAME, StateData)
        verdicts = []
        if state_data is not None and state_data.anything:
            verdicts = list(self.allocation_verdicts(state_data, pod))
        objects, snapshot = self._handle.objects, nodes.snapshot
        return DeviceSearch(pod, objects, snapshot, state_data, self.node_allocator, verdicts)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        state_data = state.get(NAME, StateData)
        if state_data is None or not state_data.anything:
            return np.zeros(len(nodes), np.int64)
        return self._verdicts(pod, state_data).scores(nodes)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # Without devices every node scores 0; with them, scores change with every allocation.
        if not pod.spec.resource_claims and not pod.details.extended_requests:
            return NAME
        state_data = state.get(NAME, StateData)
        return None if state_data is not None and state_data.anything else NAME

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        highest = int(scores.max(initial=0))
        return scores * MAX_NODE_SCORE // highest if highest else scores

    # --- PostFilter -----------------------------------------------------------------------------

    @override
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        # A PreFilter plugin before this one that rejects the pod ends PreFilter: upstream then
        # misses its state here, and this error ends PostFilter before preemption.
        state_data = state.get(NAME, StateData)
        if state_data is None:
            return PostFilterResult(_NO_STATE)
        if not state_data.anything:
            has_text = ReleaseRule.NO_TEXT_WITHOUT_CLAIMS not in self._handle.compatibility
            return PostFilterResult(_NO_CLAIMS if has_text else _NOTHING_TO_SAY)
        idle = self.deallocatable(state_data, pod, diagnosis)
        if idle:
            claim = idle[self._handle.random(len(idle)) if len(idle) > 1 else 0]
            act = APICall(f"deallocate {key_of(claim)}", lambda client: deallocated(client, claim))
            return PostFilterResult(_DEALLOCATED, api_call=act)
        kept = self._kept_by_group(state_data, pod, diagnosis)
        if kept is not None:
            act = unreserving(kept, state_data.consumer(kept, pod))
            return PostFilterResult(_UNRESERVED, api_call=act)
        stale = state_data.stale
        if stale is not None:
            act = APICall(f"delete {key_of(stale)}", lambda client: delete_claim(client, stale))
            return PostFilterResult(_DELETED, api_call=act)
        return PostFilterResult(_STILL)

    def deallocatable(
        self, state_data: StateData, pod: PodInfo, diagnosis: Diagnosis
    ) -> list[JsonObject]:
        """The claims that some node cannot use, and that no other pod is using."""
        return [
            claim
            for claim in self._unavailable(state_data, pod, diagnosis)
            if all(each.get("uid") == pod.uid for each in reserved_for(claim)[:1])
            and len(reserved_for(claim)) <= 1
        ]

    def _kept_by_group(
        self, state_data: StateData, pod: PodInfo, diagnosis: Diagnosis
    ) -> JsonObject | None:
        """A claim that some node cannot use, and that is kept for a group without any node."""
        group = self._handle.pod_groups.claims_with(pod)
        if not state_data.group_consumers or group is None or group.in_use:
            return None
        for claim in self._unavailable(state_data, pod, diagnosis):
            if [each.get("uid") for each in reserved_for(claim)] == [group.group_uid]:
                return claim
        return None

    def _unavailable(
        self, state_data: StateData, pod: PodInfo, diagnosis: Diagnosis
    ) -> list[JsonObject]:
        """The claims that some node cannot use, as the API has them allocated."""
        rows = [
            row
            for row, status in zip(diagnosis.rows, diagnosis.statuses, strict=True)
            if status == UNAVAILABLE
        ]
        if not rows:
            return []
        nodes = NodeView(self._handle.snapshot, np.array(rows, np.intp))
        found = self._verdicts(pod, state_data).unavailable(nodes)
        return [claim for claim in found if uid_of(claim) not in state_data.joined]

    # --- Reserve --------------------------------------------------------------------------------

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if not pod.spec.resource_claims and not pod.details.extended_requests:
            return OK
        state_data = state.get(NAME, StateData)
        if state_data is None or not state_data.anything:
            return OK
        try:
            decided = self.decide(state_data, pod, node_name)
        except AllocationError as failure:
            return error(NAME, failure.text(state_data.names))
        except FilterTimeoutError:
            return error(NAME, "timed out trying to allocate devices")
        if decided is None:
            return error(NAME, "claim allocation not found for node")
        state_data.decided = decided
        for each in decided:
            self.node_allocator.in_flight.mark(
                each.uid, pod.namespace, each.allocation, state.group
            )
        for claim in state_data.joined_for_itself:
            self.node_allocator.in_flight.join(uid_of(claim), pod.namespace, consumer_of(pod))
        return OK

    def decide(
        self, state_data: StateData, pod: PodInfo, node_name: str
    ) -> list[PendingAllocation] | None:
        """The allocation of each claim of the pod on a node; None: there is none.

        Raises:
            AllocationError, FilterTimeoutError: as the search does.
        """
        row = self._handle.snapshot.row_of.get(node_name)
        node = None if row is None else self._handle.snapshot.nodes[row]
        if node is None:
            return None
        node_allocator, verdicts = self.node_allocator, self._verdicts(pod, state_data)
        node_allocator.refresh()
        known = verdicts.known_on(node)
        if known is None:
            return []
        solution = node_allocator.solution(known.allocation_request, node)
        if solution is None:
            return None
        claims = state_data.to_allocate
        state_data.extended = verdicts.extended_on(node)
        if state_data.extended is not None:
            claims = [*claims, claim_for(pod, state_data.extended)]
        written = allocations(
            known.allocation_request,
            solution,
            node_name,
            self._share_id,
            self._handle.compatibility,
        )
        uids = [
            uid_of(claim) if claim["metadata"]["name"] != CLAIM_NAME else f"{CLAIM_NAME} {pod.uid}"
            for claim in claims
        ]
        return [PendingAllocation(*each) for each in zip(claims, uids, written, strict=True)]

    def _share_id(self) -> str:
        return str(UUID(int=self._handle.random(1 << 128), version=4))

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo Reserve and PreBind.

        In memory: the pod leaves what it has joined; unwritten allocations are forgotten.
        In the API, later: reservations and a generated claim are removed (`ClaimBinding.undo`).
        What stays: an allocation that is written, or may be (in flight until that is known).
        """
        state_data = state.get(NAME, StateData)
        if state_data is None or self._node_allocator is None:
            return
        in_flight = self.node_allocator.in_flight
        for claim in state_data.joined_for_itself:
            in_flight.leave(uid_of(claim), pod.namespace, consumer_of(pod))
        for each in state_data.decided:
            if not in_flight.may_be_in_api(each.uid, pod.namespace):
                in_flight.forget(each.uid, pod.namespace)
        for api_call in self._binding(state_data, pod, node_name).undo():
            self._handle.write_later(api_call)

    # --- PreBind --------------------------------------------------------------------------------

    def _binding(self, state_data: StateData, pod: PodInfo, node_name: str) -> ClaimBinding:
        return ClaimBinding(
            self._handle,
            self.node_allocator.in_flight,
            self._reservations,
            state_data,
            pod,
            node_name,
            self._timeout_seconds,
        )

    @override
    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if not pod.spec.resource_claims and not pod.details.extended_requests:
            return SKIP
        state_data = state.get(NAME, StateData)
        if state_data is None or not state_data.anything:
            return SKIP
        unreserved = any(not state_data.is_reserved(claim, pod) for claim in state_data.claims)
        waiting = bool(state_data.allocated)
        return OK if state_data.decided or unreserved or waiting else SKIP

    @override
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        state_data = state.get(NAME, StateData)
        if state_data is None or not state_data.anything:
            return OK
        return await self._binding(state_data, pod, node_name).run()

    # --- queueing -------------------------------------------------------------------------------

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return device_events(self._objects, self._handle.pod_groups)


def _too_complex(specs: Sequence[DeviceClaim]) -> str:
    """The reason for which these claims are not looked at; empty where they are."""
    expressions = set().union(*(each.expressions for each in specs))
    size = sum(map(len, expressions))
    if size <= MAX_POD_SELECTOR_BYTES:
        return ""
    return (
        f"too complex to schedule: the selectors of its resource claims have {size} characters, "
        f"and may have {MAX_POD_SELECTOR_BYTES}"
    )


def device_events(objects: ObjectStore, groups: PodGroups) -> Sequence[ClusterEventWithHint]:
    """The events that DynamicResources registers for."""
    changed = Action.ADD | Action.UPDATE_OTHER
    return (
        ClusterEventWithHint(
            Resource.NODE,
            Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE,
        ),
        ClusterEventWithHint(
            Resource.POD,
            Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
            partial(_own_claims_known, objects, groups),
            HintScope.POD,
        ),
        ClusterEventWithHint(
            Resource.RESOURCE_CLAIM,
            changed,
            partial(_claim_changed, objects, groups),
            HintScope.POD,
        ),
        ClusterEventWithHint(Resource.RESOURCE_CLAIM, Action.DELETE, _claim_deleted, HintScope.POD),
        ClusterEventWithHint(Resource.ASSIGNED_POD, Action.DELETE, _may_have_given_back),
        ClusterEventWithHint(Resource.DEVICE_CLASS, changed),
        ClusterEventWithHint(Resource.RESOURCE_SLICE, changed),
    )


def _own_claims_known(
    objects: ObjectStore, groups: PodGroups, pod: PodInfo, change: ClusterChange
) -> QueueingHint:
    """Whether the pod's own status has come to name its claims, and all are there."""
    new = change.new
    if not isinstance(new, PodInfo):
        return QUEUE
    return queue_if(new.uid == pod.uid and not why_not_ready(objects, new, groups.claims_with(new)))


def _may_have_given_back(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the pod that goes had devices: those of a binding that failed were never in the API.

    kube-scheduler lets nothing wake here, and pods wait for devices that are free.
    """
    gone = change.old
    if not isinstance(gone, PodInfo):
        return QUEUE
    return queue_if(bool(gone.spec.resource_claims or gone.extended_requests))


def _claim_deleted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether devices went free with the claim, or it stood in the way of another for the pod.

    kube-scheduler lets nothing wake here, and a pod whose stale claim it has deleted waits.
    """
    if not isinstance(change.old, dict):
        return QUEUE
    owners = change.old["metadata"].get("ownerReferences") or ()
    return queue_if(
        is_allocated(change.old) or any(owner.get("uid") == pod.uid for owner in owners)
    )


def _claim_changed(
    objects: ObjectStore, groups: PodGroups, pod: PodInfo, change: ClusterChange
) -> QueueingHint:
    """Whether a claim gave devices back, or one of the pod's own was made or has a new status."""
    if not isinstance(change.new, dict):
        return QUEUE
    if why_not_ready(objects, pod, groups.claims_with(pod)):
        return QUEUE_SKIP
    old = change.old if isinstance(change.old, dict) else None
    if old is not None and is_allocated(old) and not is_allocated(change.new):
        return QUEUE
    metadata = change.new["metadata"]
    if metadata.get("namespace") != pod.namespace or metadata["name"] not in claim_names(pod):
        return QUEUE_SKIP
    return queue_if(old is None or old.get("status") != change.new.get("status"))
