"""DynamicResources: devices for the resource claims of a pod, and for extended resources.

PreFilter looks at the claims, Filter searches each node for devices, Reserve keeps what was found
for the chosen node in flight, so that no other pod gets it, and PreBind writes it. Invariant: from
Reserve on, the devices of a pod are taken in the eyes of every profile, until the API shows the
allocation or Unreserve gives them back. Source: v1.36 with its default feature gates.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, Final
from uuid import UUID

import numpy as np
from typing_extensions import override

from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.events import ClusterEventWithHint
from stellwerk.framework.follow_up import FollowUp
from stellwerk.framework.interface import (
    GO_ON,
    MAX_NODE_SCORE,
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    NormalizeScorePlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    ReservePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import (
    OK,
    SKIP,
    CycleState,
    FilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stellwerk.models.json_values import JsonObject
from stellwerk.models.name_syntax import parse_duration
from stellwerk.models.plugin_args import DynamicResourcesArgs
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.plugins.devices.allocation import allocations
from stellwerk.plugins.devices.attempt import Attempt, Decided
from stellwerk.plugins.devices.binding import (
    ClaimBinding,
    deallocated,
    delete_claim,
    unreserving,
)
from stellwerk.plugins.devices.claims import demand_of
from stellwerk.plugins.devices.extended import (
    CLAIM_NAME,
    backed_resources,
    claim_for,
    stale_claim,
)
from stellwerk.plugins.devices.finder import Answers, DeviceFinder
from stellwerk.plugins.devices.hints import device_events
from stellwerk.plugins.devices.node_verdicts import NAME, NOT_ALLOCATED, UNAVAILABLE, NodeVerdicts
from stellwerk.plugins.devices.patience import SearchTimeoutError
from stellwerk.plugins.devices.pod_claims import (
    ClaimMissingError,
    claims_of,
    consumer_of,
    is_allocated,
    key_of,
    reserved_for,
    shared_consumers,
    uid_of,
    why_not_ready,
)
from stellwerk.plugins.devices.task import AllocationError
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView

_NO_CLAIMS: Final = unschedulable(NAME, "no new claims to deallocate")
_STILL: Final = unschedulable(NAME, "still not schedulable")
_NO_STATE: Final = error(NAME, "not found")
_DEALLOCATED: Final = unschedulable(NAME, "deallocation of ResourceClaim completed")
_UNRESERVED: Final = unschedulable(NAME, "ResourceClaim unreserved for PodGroup")
_DELETED: Final = unschedulable(NAME, "deletion of ResourceClaim completed")
_CLAIM: Final = "ResourceClaim"
_NOTHING: Final = Attempt("")
"""Of every pod that devices are no matter for."""


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
        self._made: DeviceFinder | None = None

    @property
    def finder(self) -> DeviceFinder:
        """What is known of devices; made when the first pod needs it: most clusters have none."""
        if self._made is None:
            handle = self._handle
            self._made = DeviceFinder(
                handle.snapshot, handle.objects, handle.now_seconds, self._filter_seconds
            )
        return self._made

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        if not pod.spec.resource_claims:
            return OK
        reason = why_not_ready(self._objects, pod, self._handle.pod_groups.claims_with(pod))
        return unresolvable(NAME, reason) if reason else OK

    # --- PreFilter and Filter -------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        state.write(NAME, _NOTHING)
        if not pod.spec.resource_claims and not pod.extended_requests:
            return SKIP_FILTER
        try:
            claims = claims_of(self._objects, pod, self._handle.pod_groups.claims_with(pod))
        except ClaimMissingError as missing:
            return PreFilterResult(unresolvable(NAME, str(missing)))
        self.finder.refresh()
        backed = backed_resources(pod, self.finder.classes)
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
    ) -> Attempt:
        """An attempt that sees what other members of the pod's group were given already."""
        joined: set[str] = set()
        shown: list[JsonObject] = []
        for claim in claims:
            given = None
            if group is not None and not is_allocated(claim):
                given = self.finder.in_flight.shared_with(uid_of(claim), pod.namespace, group)
            if given is None:
                shown.append(claim)
            else:
                joined.add(uid_of(claim))
                shown.append({**claim, "status": {**claim.get("status", {}), "allocation": given}})
        consumers = shared_consumers(pod, claims, self._handle.pod_groups.claims_with(pod))
        return Attempt(pod.namespace, shown, backed, shared=consumers, joined=frozenset(joined))

    def _examined(
        self,
        pod: PodInfo,
        claims: Sequence[JsonObject],
        backed: tuple[str, ...],
        group: PodGroupKey | None,
    ) -> Attempt | Status:
        """What is known of the pod's claims, or why no node can help."""
        attempt = self._with_shared(pod, claims, backed, group)
        for claim in attempt.to_allocate:
            if self.finder.in_flight.has(uid_of(claim), pod.namespace):
                reason = f"resource claim {key_of(claim)} is in the process of being allocated"
                return unresolvable(NAME, reason)
            try:
                demand = demand_of(claim)
            except (KeyError, TypeError, ValueError, AttributeError) as failure:
                return error(NAME, f"claim {key_of(claim)}: {failure!r}")
            for choice in demand.choices:
                if self.finder.classes.get(choice.class_name) is None:
                    reason = f"device class {choice.class_name} does not exist"
                    return unresolvable(NAME, f"request {choice.full_name}: {reason}")
            attempt.demands += (demand,)
        if backed:
            in_namespace = self._objects.list(_CLAIM, pod.namespace)
            attempt.stale = stale_claim(pod, in_namespace)
        return attempt

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        attempt = state.get(NAME, Attempt)
        if attempt is None and pod.spec.resource_claims:
            # Reached only where a profile turned this plugin's PreFilter off.
            return FilterResult.of_mask(np.ones(len(nodes), np.bool_), NOT_ALLOCATED)
        if attempt is None or not attempt.anything:
            return FilterResult.everywhere(len(nodes))
        return self._verdicts(pod, attempt).filter(nodes, state)

    def _verdicts(self, pod: PodInfo, attempt: Attempt) -> NodeVerdicts:
        return NodeVerdicts(self.finder, pod, attempt, self._handle.now(), self._timeout_seconds)

    def tasks(self, attempt: Attempt, pod: PodInfo) -> Iterator[tuple[int, Answers]]:
        """How many nodes each task is for, and what is known of it.

        There is one, unless nodes differ in what their device plugins offer.
        """
        yield from self._verdicts(pod, attempt).tasks(NodeView(self._handle.snapshot))

    # --- Score ----------------------------------------------------------------------------------

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        attempt = state.get(NAME, Attempt)
        if attempt is None or not attempt.anything:
            return np.zeros(len(nodes), np.int64)
        return self._verdicts(pod, attempt).scores(nodes)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # Without devices every node scores 0; with them, scores change with every allocation.
        if not pod.spec.resource_claims and not pod.extended_requests:
            return NAME
        attempt = state.get(NAME, Attempt)
        return None if attempt is not None and attempt.anything else NAME

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
        attempt = state.get(NAME, Attempt)
        if attempt is None:
            return PostFilterResult(_NO_STATE)
        if not attempt.anything:
            return PostFilterResult(_NO_CLAIMS)
        idle = self.deallocatable(attempt, pod, diagnosis)
        if idle:
            claim = idle[self._handle.random(len(idle)) if len(idle) > 1 else 0]
            act = FollowUp(f"deallocate {key_of(claim)}", lambda client: deallocated(client, claim))
            return PostFilterResult(_DEALLOCATED, follow_up=act)
        kept = self._kept_by_group(attempt, pod, diagnosis)
        if kept is not None:
            act = unreserving(kept, attempt.consumer(kept, pod))
            return PostFilterResult(_UNRESERVED, follow_up=act)
        stale = attempt.stale
        if stale is not None:
            act = FollowUp(f"delete {key_of(stale)}", lambda client: delete_claim(client, stale))
            return PostFilterResult(_DELETED, follow_up=act)
        return PostFilterResult(_STILL)

    def deallocatable(
        self, attempt: Attempt, pod: PodInfo, diagnosis: Diagnosis
    ) -> list[JsonObject]:
        """The claims that some node cannot use, and that no other pod is using."""
        return [
            claim
            for claim in self._unavailable(attempt, pod, diagnosis)
            if all(each.get("uid") == pod.uid for each in reserved_for(claim)[:1])
            and len(reserved_for(claim)) <= 1
        ]

    def _kept_by_group(
        self, attempt: Attempt, pod: PodInfo, diagnosis: Diagnosis
    ) -> JsonObject | None:
        """A claim that some node cannot use, and that is kept for a group without any node."""
        group = self._handle.pod_groups.claims_with(pod)
        if not attempt.shared or group is None or group.in_use:
            return None
        for claim in self._unavailable(attempt, pod, diagnosis):
            if [each.get("uid") for each in reserved_for(claim)] == [group.group_uid]:
                return claim
        return None

    def _unavailable(
        self, attempt: Attempt, pod: PodInfo, diagnosis: Diagnosis
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
        found = self._verdicts(pod, attempt).unavailable(nodes)
        return [claim for claim in found if uid_of(claim) not in attempt.joined]

    # --- Reserve --------------------------------------------------------------------------------

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if not pod.spec.resource_claims and not pod.extended_requests:
            return OK
        attempt = state.get(NAME, Attempt)
        if attempt is None or not attempt.anything:
            return OK
        try:
            decided = self.decide(attempt, pod, node_name)
        except AllocationError as failure:
            return error(NAME, failure.text(attempt.names))
        except SearchTimeoutError:
            return error(NAME, "timed out trying to allocate devices")
        if decided is None:
            return error(NAME, "claim allocation not found for node")
        attempt.decided = decided
        for each in decided:
            self.finder.in_flight.mark(each.uid, pod.namespace, each.allocation, state.group)
        for claim in attempt.joined_alone:
            self.finder.in_flight.join(uid_of(claim), pod.namespace, consumer_of(pod))
        return OK

    def decide(self, attempt: Attempt, pod: PodInfo, node_name: str) -> list[Decided] | None:
        """What each claim of the pod is to be given on a node; None: there is nothing for it.

        Raises:
            AllocationError, SearchTimeoutError: as the search does.
        """
        row = self._handle.snapshot.row_of.get(node_name)
        node = None if row is None else self._handle.snapshot.nodes[row]
        if node is None:
            return None
        finder, verdicts = self.finder, self._verdicts(pod, attempt)
        finder.refresh()
        answers = verdicts.answers_on(node)
        if answers is None:
            return []
        solution = finder.solution(answers.task, node)
        if solution is None:
            return None
        claims = attempt.to_allocate
        attempt.extended = verdicts.extended_on(node)
        if attempt.extended is not None:
            claims = [*claims, claim_for(pod, attempt.extended)]
        written = allocations(answers.task, solution, node_name, self._share_id)
        uids = [
            uid_of(claim) if claim["metadata"]["name"] != CLAIM_NAME else f"{CLAIM_NAME} {pod.uid}"
            for claim in claims
        ]
        return [Decided(*each) for each in zip(claims, uids, written, strict=True)]

    def _share_id(self) -> str:
        return str(UUID(int=self._handle.random(1 << 128), version=4))

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        attempt = state.get(NAME, Attempt)
        if attempt is None or self._made is None:
            return
        binding = self._binding(attempt, pod, node_name)
        for claim in attempt.joined_alone:
            self.finder.in_flight.leave(uid_of(claim), pod.namespace, consumer_of(pod))
        for each in attempt.decided:
            if not binding.is_written(each):
                self.finder.in_flight.forget(each.uid, pod.namespace)
        for follow_up in binding.undo():
            self._handle.in_background(follow_up)

    # --- PreBind --------------------------------------------------------------------------------

    def _binding(self, attempt: Attempt, pod: PodInfo, node_name: str) -> ClaimBinding:
        return ClaimBinding(
            self._handle, self.finder.in_flight, attempt, pod, node_name, self._timeout_seconds
        )

    @override
    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if not pod.spec.resource_claims and not pod.extended_requests:
            return SKIP
        attempt = state.get(NAME, Attempt)
        if attempt is None or not attempt.anything:
            return SKIP
        unreserved = any(not attempt.is_reserved(claim, pod) for claim in attempt.claims)
        waiting = bool(attempt.allocated)
        return OK if attempt.decided or unreserved or waiting else SKIP

    @override
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(NAME, Attempt)
        if attempt is None or not attempt.anything:
            return OK
        return await self._binding(attempt, pod, node_name).run()

    # --- queueing -------------------------------------------------------------------------------

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return device_events(self._objects, self._handle.pod_groups)
