"""VolumeBinding: a node must reach the pod's volumes, and unbound claims get theirs with the node.

Filter finds, Reserve assumes what Filter found for the chosen node, so that the next cycle sees it;
PreBind writes it and waits until the volume controller or a provisioner has bound every claim, at
most for `bindTimeoutSeconds`: after that the binding fails as an error, and what was written stays.
Invariant: what Reserve assumed is restored by Unreserve unless the API has taken it over.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.changes import Change
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
    MAX_NODE_SCORE,
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ProposePlugin,
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
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import EPHEMERAL
from stellwerk.plugins.resources.strategies import score_by_utilization
from stellwerk.plugins.shared.row_by_row import RowByRowWithoutVolumes
from stellwerk.plugins.shared.volume_claims import (
    claim_volumes,
    find_claim,
    foreign_claim,
    not_found,
    uses_own_claim,
)
from stellwerk.plugins.shared.volume_proposals import volume_labels, without_volumes
from stellwerk.plugins.volume_binding.binder import (
    MIGRATED_PLUGINS,
    NO_MATCH,
    NO_SPACE,
    NO_VOLUME,
    NODE_CONFLICT,
    PodVolumeClaims,
    SchedulerVolumeBinder,
    chosen_by_another,
    sort_claims,
)
from stellwerk.plugins.volume_binding.provisioning import capacity_limit
from stellwerk.plugins.volume_binding.writes import (
    VolumeWrites,
    bound_to_claim,
    path_of,
    with_selected_node,
)
from stellwerk.profiles.spec.plugin_args import MAX_SHAPE_SCORE, VolumeBindingArgs
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.compatibility import ReleaseRule
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject

_NAME: Final = "VolumeBinding"
_REASONS: Final = {
    NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    NO_MATCH: "node(s) didn't find available persistent volumes to bind",
    NO_SPACE: "node(s) did not have enough free storage",
    NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
_STATUSES: Final = {
    code: unresolvable(_NAME, *(text for bit, text in _REASONS.items() if code & bit))
    for code in range(1, NODE_CONFLICT + NO_MATCH + NO_SPACE + NO_VOLUME + 1)
}


@dataclass(slots=True)
class _State:
    """One attempt's claims, and what was assumed for the node it chose."""

    claims: PodVolumeClaims
    writes: VolumeWrites = field(default_factory=VolumeWrites)


class VolumeBinding(
    RowByRowWithoutVolumes,
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    EnqueueExtensions,
    ProposePlugin,
):
    """Binds unbound claims together with their pod."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[BaseModel] | None] = VolumeBindingArgs
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, args: VolumeBindingArgs | None = None) -> None:
        self._handle = handle
        args = args or VolumeBindingArgs()
        self._bind_timeout_seconds = args.bind_timeout_seconds
        self._binder = SchedulerVolumeBinder(handle.objects)
        self._scores_capacity = ReleaseRule.SCORE_STORAGE_CAPACITY in handle.compatibility
        self._score_by_utilization = score_by_utilization(
            args.shape, MAX_NODE_SCORE // MAX_SHAPE_SCORE
        )

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        if not pod.details.volumes or not any(claim_volumes(pod)):
            return SKIP_FILTER
        found = self._usable_claims(pod)
        if isinstance(found, str):
            return PreFilterResult(unresolvable(_NAME, found))
        try:
            claims = sort_claims(self._handle.objects, found, shares=state.shares_volumes)
        except ValueError as failure:
            return PreFilterResult(error(_NAME, str(failure)))
        if claims.immediate:
            unbound = "pod has unbound immediate PersistentVolumeClaims"
            return PreFilterResult(unresolvable(_NAME, unbound))
        state.write(_NAME, _State(claims))
        return GO_ON

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        claims = state.read(_NAME, _State).claims
        try:
            found = self._binder.find_pod_volumes(nodes, claims)
        except Exception:
            self._handle.volume_counts.failed("predicate")
            raise
        return FilterResult(found.reasons, _STATUSES.__getitem__)

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        # With StorageCapacityScoring every pod is scored, also one without claims.
        return OK if self._scores_capacity else SKIP

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        attempt = state.get(_NAME, _State)
        if attempt is None or not attempt.claims.waiting:
            return np.zeros(len(nodes), np.int64)
        return self._binder.capacity_scores(nodes, attempt.claims, self._score_by_utilization)

    # --- reserving ------------------------------------------------------------------------------

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if not pod.details.volumes:  # most pods: PreFilter has left no state to look for
            return OK
        attempt = state.get(_NAME, _State)
        if attempt is None or not (attempt.claims.waiting or attempt.claims.awaited):
            return OK
        failure = self._assume(attempt, node_name)
        if failure:
            self._handle.volume_counts.failed("assume")
            self.unreserve(state, pod, node_name)
            return error(_NAME, failure)
        return OK

    def _assume(self, attempt: _State, node_name: str) -> str:
        """Show what is about to be written for the node; returns why that cannot be."""
        snapshot, objects = self._handle.snapshot, self._handle.objects
        row = snapshot.row_of.get(node_name)
        if row is None:
            return not_found("node", node_name)
        view = NodeView(snapshot, np.array([row], np.intp))
        found = self._binder.find_pod_volumes(view, attempt.claims)
        if found.reasons[0]:
            return f'no pod volume found for node "{node_name}"'
        provisions = found.provisions_at(0)
        # Written by the pod that has chosen the node first; a second write would be refused.
        awaited = [claim for claim in provisions if chosen_by_another(objects, claim)]
        writes = VolumeWrites(
            [bound_to_claim(volume, claim) for claim, volume in found.bindings_at(0)],
            [claim for claim, _ in found.bindings_at(0)],
            [with_selected_node(claim, node_name) for claim in provisions if claim not in awaited],
            awaited,
        )
        attempt.writes = writes
        try:
            for kind, obj in writes.objects():
                objects.assume(kind, obj)
                self._handle.volume_counts.assumed("add")
        except ValueError as failure:
            return str(failure)
        return ""

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        attempt = state.get(_NAME, _State)
        if attempt is not None:
            for kind, obj in attempt.writes.objects():
                self._handle.objects.restore(kind, obj)
                self._handle.volume_counts.assumed("delete")

    # --- binding --------------------------------------------------------------------------------

    @override
    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if not pod.details.volumes:
            return SKIP
        attempt = state.get(_NAME, _State)
        return OK if attempt is not None and attempt.writes else SKIP

    @override
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(_NAME, _State)
        if attempt is None or not attempt.writes:
            return OK
        failure = await self._bind_volumes(attempt.writes, node_name)
        if not failure:
            return OK
        self._handle.volume_counts.failed("bind")
        return error(_NAME, failure)

    async def _bind_volumes(self, writes: VolumeWrites, node_name: str) -> str:
        """Write what was assumed and wait until it is bound; returns why it is not."""
        failures = list[str]()
        try:
            await self._write(writes)
        except ApiError as failure:
            return str(failure)
        done = await self._handle.wait_until(
            self._settled(writes, node_name, failures), self._bind_timeout_seconds
        )
        if not done:
            failures.append("context deadline exceeded")
        return f"binding volumes: {failures[0]}" if failures else ""

    async def _write(self, writes: VolumeWrites) -> None:
        """Write what was assumed; keep what the API made of it, to know it when the watch shows it.

        What is written stays so whatever comes after: upstream does not roll back either.
        """
        for written in (writes.volumes, writes.claims):
            for index, obj in enumerate(written):
                written[index] = await self._handle.client.replace(path_of(obj), obj)

    def _settled(
        self, writes: VolumeWrites, node_name: str, failures: list[str]
    ) -> Callable[[], bool]:
        """Whether the waiting is over: every claim is bound, or a failure is noted."""

        def settled() -> bool:
            row = self._handle.snapshot.row_of.get(node_name)
            node = None if row is None else self._handle.snapshot.nodes[row]
            if node is None:
                failures.append(f'failed to get node "{node_name}": {not_found("node", node_name)}')
                return True
            progress = writes.progress(self._handle.objects, node)
            if progress.failure:
                failures.append(progress.failure)
            return progress.bound or bool(progress.failure)

        return settled

    # --- queueing -------------------------------------------------------------------------------

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is None:
            return without_volumes(pod)
        return volume_labels(self._handle.objects, pod, nodes.snapshot.node_at(row))

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changed = Action.ADD | Action.UPDATE_OTHER
        return (
            ClusterEventWithHint(Resource.STORAGE_CLASS, changed, _topologies_changed),
            ClusterEventWithHint(
                Resource.PERSISTENT_VOLUME_CLAIM, changed, uses_own_claim, HintScope.POD
            ),
            ClusterEventWithHint(Resource.PERSISTENT_VOLUME, changed),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            ClusterEventWithHint(Resource.CSI_NODE, changed, _migration_changed),
            ClusterEventWithHint(
                Resource.CSI_DRIVER, Action.UPDATE_OTHER, _stopped_counting, HintScope.POD
            ),
            ClusterEventWithHint(Resource.CSI_STORAGE_CAPACITY, changed, _capacity_grew),
        )

    def _usable_claims(self, pod: PodInfo) -> list[JsonObject] | str:
        """The pod's claims, or why one of them cannot be used (`podHasPVCs`)."""
        found: list[JsonObject] = []
        for volume in claim_volumes(pod):
            claim = find_claim(self._handle.objects, pod, volume)
            if claim is None:
                if volume.kind != EPHEMERAL:
                    return not_found("persistentvolumeclaim", volume.claim_name)
                return (
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                    f'"{volume.claim_name}"'
                )
            reason = _why_unusable(claim)
            if not reason and volume.kind == EPHEMERAL:
                reason = foreign_claim(pod, claim)
            if reason:
                return reason
            found.append(claim)
        return found


def _why_unusable(claim: JsonObject) -> str:
    name = claim["metadata"]["name"]
    if (claim.get("status") or {}).get("phase") == "Lost":
        volume_name = claim["spec"].get("volumeName") or ""
        return (
            f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume_name}"'
        )
    if "deletionTimestamp" in claim["metadata"]:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _both(change: ClusterChange) -> tuple[JsonObject, JsonObject] | None:
    """The object before and after; None if it was added, or the change has another shape."""
    if isinstance(change.old, dict) and isinstance(change.new, dict):
        return change.old, change.new
    return None


def _topologies_changed(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a class was added, or may now provide for other nodes."""
    both = _both(change)
    if both is None:
        return QUEUE
    before, after = (storage_class.get("allowedTopologies") or [] for storage_class in both)
    return queue_if(before != after)


def _migration_changed(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a CSINode was added, or its node has handed over other in-tree plugins."""
    both = _both(change)
    if both is None:
        return QUEUE
    before, after = (
        (csi_node["metadata"].get("annotations") or {}).get(MIGRATED_PLUGINS) for csi_node in both
    )
    return queue_if(before != after)


def _stopped_counting(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a driver of the pod's inline volumes no longer publishes its capacity."""
    both = _both(change)
    if both is None:
        return QUEUE
    before, after = (driver["spec"].get("storageCapacity") for driver in both)
    name = both[1]["metadata"]["name"]
    uses_driver = any(
        volume.kind == "csi" and volume.source.get("driver") == name for volume in pod.volumes
    )
    return queue_if(uses_driver and before and not after)


def _capacity_grew(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether there is capacity where there was none, or for larger volumes than before."""
    both = _both(change)
    if both is None:
        return QUEUE
    before, after = (capacity_limit(capacity) for capacity in both)
    return queue_if(after is not None and (before is None or after > before))
