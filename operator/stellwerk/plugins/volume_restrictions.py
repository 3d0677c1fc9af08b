"""VolumeRestrictions: disks and claims that only one pod may use at a time.

A disk named in the pod (GCE PD, EBS, RBD, iSCSI) conflicts with its other users on the same node; a
claim with ReadWriteOncePod conflicts with its user anywhere. Invariant: taking the users of the
disk or claim off a row makes its verdict what it would be without them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.changes import Change
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
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    ProposePlugin,
    Reuse,
)
from stellwerk.framework.services import Handle, ObjectStore
from stellwerk.framework.types import CycleState, FilterResult, Status, unresolvable, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import CLAIM, READ_ONLY, READ_WRITE, PodVolume, UsageKey
from stellwerk.plugins.shared.row_by_row import RowByRowWithoutVolumes
from stellwerk.plugins.shared.volume_claims import (
    BY_NAME,
    claim_volumes,
    find_claim,
    not_found,
    overlay_uses,
    uses_named_claim,
)
from stellwerk.plugins.shared.volume_proposals import without_volumes
from stellwerk.snapshot.columns import IntColumn, VerdictColumn
from stellwerk.snapshot.snapshot import NodeView

_NAME: Final = "VolumeRestrictions"
_DISK: Final = 1
_CLAIM: Final = 2
_CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
_STATUSES: Final = {
    _DISK: unschedulable(_NAME, "node(s) had no available disk"),
    _CLAIM: unschedulable(
        _NAME,
        _CLAIM_IN_USE,
    ),
}
_SINGLE_USER_KINDS: Final = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi"})


@dataclass(frozen=True, slots=True)
class _Restrictions:
    """The volumes that the pod must not share."""

    disks: frozenset[UsageKey]
    """Uses on the same node that conflict."""
    claims: frozenset[UsageKey]
    """The pod's ReadWriteOncePod claims."""
    claims_in_use: int
    """The number of them that have a user somewhere."""


class VolumeRestrictions(
    RowByRowWithoutVolumes, PreFilterPlugin, FilterPlugin, EnqueueExtensions, ProposePlugin
):
    """Rejects nodes with a conflicting disk, and every node while a single-user claim is in use."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._handle = handle

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        if not pod.details.volumes:
            return SKIP_FILTER
        claims, rejection = _single_user_claims(self._handle.objects, pod)
        if rejection is not None:
            return PreFilterResult(rejection)
        users = nodes.snapshot.volume_users
        if claims and self._is_kept(pod, claims):
            return PreFilterResult(unresolvable(_NAME, _CLAIM_IN_USE))
        in_use = sum(1 for claim in claims if users.rows(claim))
        disks = frozenset(key for volume in pod.volumes for key in conflicting_uses(volume))
        if not disks and not in_use:
            return SKIP_FILTER
        state.write(_NAME, _Restrictions(disks, claims, in_use))
        return GO_ON

    def _is_kept(self, pod: PodInfo, claims: frozenset[UsageKey]) -> bool:
        """Whether a pod of higher priority that is nominated to some node waits for such a claim.

        Its victims have left the claim for it. kube-scheduler v1.36 keeps a nominated pod's room on
        its node alone, so that another pod takes the claim elsewhere while the nominated one is
        backing off, and is evicted for it in its turn.
        """
        return any(
            other.priority > pod.priority
            and other.uid != pod.uid
            and not claims.isdisjoint(_single_user_claims(self._handle.objects, other)[0])
            for nominated in self._handle.nominations.by_node.values()
            for other in nominated.values()
        )

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        restrictions = state.read(_NAME, _Restrictions)
        disk_users, claim_users = _users(restrictions, nodes)
        codes: VerdictColumn = np.zeros(len(nodes), np.int32)
        codes[claim_users > 0] = _CLAIM
        codes[disk_users > 0] = _DISK
        return FilterResult(codes, _STATUSES.__getitem__)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        return without_volumes(pod) if row is None else iter(())

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(Resource.POD, Action.DELETE, _freed_disk_or_claim, HintScope.POD),
            # With a node go the claims that its pods use. (kube-scheduler v1.36 wakes no pod.)
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.DELETE),
            ClusterEventWithHint(
                Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, uses_named_claim, HintScope.POD
            ),
        )


def conflicting_uses(volume: PodVolume) -> tuple[UsageKey, ...]:
    """The uses of the volume's disk that keep another pod from mounting it (`isVolumeConflict`).

    Read-only mounts may share, except of an EBS volume, which has one user at a time.
    """
    if volume.kind not in _SINGLE_USER_KINDS:
        return ()
    writers = volume.disk_keys(READ_WRITE)
    if volume.mode == READ_ONLY and volume.kind != "awsElasticBlockStore":
        return writers
    return writers + volume.disk_keys(READ_ONLY)


def _single_user_claims(
    objects: ObjectStore, pod: PodInfo
) -> tuple[frozenset[UsageKey], Status | None]:
    """The pod's ReadWriteOncePod claims, or the rejection because a claim does not exist."""
    found: set[UsageKey] = set()
    for volume in claim_volumes(pod, BY_NAME):
        claim = find_claim(objects, pod, volume)
        if claim is None:
            missing = not_found("persistentvolumeclaim", volume.claim_name)
            return frozenset(), unresolvable(_NAME, missing)
        if "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ()):
            found.update(volume.usage_keys(pod.namespace))
    return frozenset(found), None


def _users(restrictions: _Restrictions, nodes: NodeView) -> tuple[IntColumn, IntColumn]:
    """((n,) conflicting users of disks on the node, (n,) users of single-user claims anywhere)."""
    users = nodes.snapshot.volume_users
    disk_users: IntColumn = np.zeros(len(nodes), np.int64)
    for key in restrictions.disks:
        rows = users.rows(key)
        if rows:
            disk_users += nodes.users(rows)
    claim_users: IntColumn = np.full(len(nodes), restrictions.claims_in_use)
    for position, keys, change in overlay_uses(nodes):
        disk_users[position] += change * sum(key in restrictions.disks for key in keys)
        claim_users[position] += change * sum(key in restrictions.claims for key in keys)
    return disk_users, claim_users


def _freed_disk_or_claim(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the deleted pod used a disk or claim of this one."""
    gone = change.old
    if not isinstance(gone, PodInfo):
        return QUEUE
    if gone.namespace != pod.namespace:
        return QUEUE_SKIP
    wanted = {key for volume in pod.volumes for key in conflicting_uses(volume)}
    wanted |= {(CLAIM, pod.namespace, volume.claim_name) for volume in claim_volumes(pod, BY_NAME)}
    return queue_if(any(volume.uses_any(gone.namespace, wanted) for volume in gone.volumes))
