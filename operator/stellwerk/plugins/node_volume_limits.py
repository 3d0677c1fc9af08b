"""NodeVolumeLimits: no more volumes of a CSI driver on a node than its CSINode allows.

Counted are the volumes of pods on the node, each once, and VolumeAttachments beside them; a volume
that the node already has costs the pod nothing. Invariant: a node without a CSINode has no limit,
and no driver.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
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
    QueueingHintFn,
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
from stellwerk.framework.types import (
    OK,
    CycleState,
    FilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stellwerk.models.in_tree_volumes import MIGRATABLE_DRIVERS
from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import CLAIM, EPHEMERAL, UsageKey
from stellwerk.plugins.shared.attached_volumes import (
    AttachedVolumes,
    VolumeId,
    csi_node_limits,
    volume_id,
)
from stellwerk.plugins.shared.csi_nodes import CSINodeRows
from stellwerk.plugins.shared.hints import had_node
from stellwerk.plugins.shared.row_by_row import RowByRowWithoutVolumes
from stellwerk.plugins.shared.volume_claims import (
    BY_NAME,
    claim_volumes,
    find_claim,
    foreign_claim,
    not_found,
    overlay_uses,
    uses_own_claim,
)
from stellwerk.plugins.shared.volume_proposals import without_volumes
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.compatibility import ReleaseRule
from stellwerk_kube.json_values import JsonObject

_NAME: Final = "NodeVolumeLimits"
_EXCEEDED: Final = unschedulable(_NAME, "node(s) exceed max volume count")
_COUNTED_KINDS: Final = frozenset({CLAIM, EPHEMERAL, *MIGRATABLE_DRIVERS})


@dataclass(frozen=True, slots=True)
class _NewVolumes:
    """The volumes that the pod would attach, or the reason that they are not known."""

    by_driver: dict[str, frozenset[VolumeId]]
    rejection: Status | None = None
    """The status of every node."""


class NodeVolumeLimits(
    RowByRowWithoutVolumes, PreFilterPlugin, FilterPlugin, EnqueueExtensions, ProposePlugin
):
    """Rejects nodes that cannot attach all of the pod's volumes."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._handle = handle
        self._attached: AttachedVolumes | None = None
        self._requires_drivers = ReleaseRule.REQUIRE_CSI_DRIVER in handle.compatibility
        self._installed = CSINodeRows(handle.objects, _drivers)

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        if not any(volume.kind in _COUNTED_KINDS for volume in pod.details.volumes):
            return SKIP_FILTER
        state.write(_NAME, _new_volumes(self._handle.objects, pod))
        return GO_ON

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        # Not in the state where the profile has the plugin at Filter alone.
        new = state.get(_NAME, _NewVolumes) or _new_volumes(self._handle.objects, pod)
        if new.rejection is not None:
            return FilterResult.of_mask(np.ones(len(nodes), np.bool_), new.rejection)
        exceeded = self._exceeded(new, nodes)
        required = self._required(new) if self._requires_drivers else []
        if not required:
            return FilterResult.of_mask(exceeded, _EXCEEDED)
        # Before any limit is looked at; of several that are missing the first by name is named.
        codes = exceeded.astype(np.int32)
        for code, driver in reversed([*enumerate(required, start=2)]):
            codes[~self._installed.mask(nodes, driver)] = code
        statuses = [OK, _EXCEEDED, *map(_not_installed, required)]
        return FilterResult(codes, statuses.__getitem__)

    def _required(self, new: _NewVolumes) -> list[str]:
        """The drivers of new volumes whose CSIDriver keeps pods from nodes without them."""
        return [driver for driver in sorted(new.by_driver) if self._is_required(driver)]

    def _is_required(self, driver: str) -> bool:
        found = self._handle.objects.get("CSIDriver", "", driver)
        return found is not None and prevents_scheduling(found)

    def _exceeded(self, new: _NewVolumes, nodes: NodeView) -> Mask:
        """(n,) bool, True where some driver's limit is passed."""
        attached = self._follow(nodes)
        exceeded: Mask = np.zeros(len(nodes), np.bool_)
        for driver, volumes in new.by_driver.items():
            limit = attached.limit(driver)
            if limit is not None:
                added, count = _additions(attached, nodes, driver, volumes)
                # Nothing to add, nothing to exceed: the node may have passed its limit before.
                exceeded |= (added > 0) & (count + added > nodes.gather(limit))
        return exceeded

    def _follow(self, nodes: NodeView) -> AttachedVolumes:
        """The counts of the view's snapshot, up to date."""
        attached = self._attached
        if attached is None or attached.snapshot is not nodes.snapshot:
            attached = AttachedVolumes(nodes.snapshot, self._handle.objects)
            if nodes.snapshot is self._handle.snapshot:
                self._attached = attached
        attached.refresh()
        return attached

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        return without_volumes(pod) if row is None else iter(())

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        by_drivers: tuple[ClusterEventWithHint, ...] = ()
        grew: QueueingHintFn = _limit_grew
        if self._requires_drivers:
            # Upstream leaves both to the periodic flush.
            grew = _limit_grew_or_driver_came
            gone = Action.UPDATE_OTHER | Action.DELETE
            by_drivers = (ClusterEventWithHint(Resource.CSI_DRIVER, gone, _no_longer_required),)
        return (
            *by_drivers,
            ClusterEventWithHint(Resource.CSI_NODE, Action.ADD),
            ClusterEventWithHint(Resource.CSI_NODE, Action.UPDATE_OTHER, grew),
            ClusterEventWithHint(Resource.POD, Action.DELETE, _freed_volume),
            ClusterEventWithHint(
                Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, uses_own_claim, HintScope.POD
            ),
            ClusterEventWithHint(
                Resource.VOLUME_ATTACHMENT, Action.DELETE, _may_use_attachment, HintScope.POD
            ),
        )


def _drivers(csi_node: JsonObject) -> set[str]:
    return {driver["name"] for driver in csi_node["spec"].get("drivers") or ()}


@cache
def _not_installed(driver: str) -> Status:
    return unschedulable(_NAME, f"{driver} CSI driver is not installed on the node")


def prevents_scheduling(csi_driver: JsonObject) -> bool:
    """Whether pods with volumes of the driver are kept from nodes that lack it."""
    return (csi_driver.get("spec") or {}).get("preventPodSchedulingIfMissing") is True


def _new_volumes(objects: ObjectStore, pod: PodInfo) -> _NewVolumes:
    found: set[VolumeId] = set()
    for volume in pod.volumes:
        if volume.claim_name:
            claim = find_claim(objects, pod, volume)
            if claim is None:
                missing = not_found("persistentvolumeclaim", volume.claim_name)
                act = f"looking up PVC {pod.namespace}/{volume.claim_name}"
                return _NewVolumes({}, unresolvable(_NAME, f"{act}: {missing}"))
            if volume.kind == EPHEMERAL and (reason := foreign_claim(pod, claim)):
                return _NewVolumes({}, error(_NAME, reason))
        ids = (volume_id(objects, key) for key in volume.usage_keys(pod.namespace))
        found.update(known for known in ids if known is not None)
    drivers = {driver for driver, _ in found}
    return _NewVolumes(
        {driver: frozenset(item for item in found if item[0] == driver) for driver in drivers}
    )


def _additions(
    attached: AttachedVolumes, nodes: NodeView, driver: str, volumes: frozenset[VolumeId]
) -> tuple[IntColumn, IntColumn]:
    """((n,) volumes that the pod adds, (n,) volumes attached before), overlay included."""
    shared: dict[int, int] = Counter(
        row for volume in volumes for row in attached.rows_using(volume)
    )
    added: IntColumn = len(volumes) - nodes.users(shared)
    count: IntColumn = nodes.gather(attached.count(driver))
    changes: dict[int, Counter[UsageKey]] = {}
    for position, keys, change in overlay_uses(nodes):
        uses = changes.setdefault(position, Counter())
        for key in keys:
            uses[key] += change
    if changes:
        count = count.copy()
        rows = nodes.row_numbers()
        for position, uses in changes.items():
            row = attached.with_changes(int(rows[position]), uses)
            count[position] = row.counts.get(driver, 0)
            added[position] = len(volumes - row.used)
    return added, count


def _limit_grew(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether some driver may attach more volumes than before."""
    old, new = change.old, change.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return QUEUE
    before = csi_node_limits(old)
    return queue_if(
        any(count > before.get(driver, 0) for driver, count in csi_node_limits(new).items())
    )


def _limit_grew_or_driver_came(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the node has a driver that it had not, or takes more volumes of one."""
    old, new = change.old, change.new
    if isinstance(old, dict) and isinstance(new, dict) and _drivers(new) - _drivers(old):
        return QUEUE
    return _limit_grew(pod, change)


def _no_longer_required(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a driver that kept pods from nodes without it does so no more, or is gone."""
    old, new = change.old, change.new
    if not isinstance(old, dict):
        return QUEUE
    return queue_if(
        prevents_scheduling(old) and not (isinstance(new, dict) and prevents_scheduling(new))
    )


def _freed_volume(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the deleted pod had a node and volumes that count."""
    gone = change.old
    if not isinstance(gone, PodInfo):
        return QUEUE
    return queue_if(
        had_node(gone) and any(volume.kind in _COUNTED_KINDS for volume in gone.volumes)
    )


def _may_use_attachment(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the pod wants a claim, or a disk of the driver that detached a volume."""
    if not isinstance(change.old, dict):
        return QUEUE
    driver = change.old["spec"].get("attacher")
    return queue_if(
        any(claim_volumes(pod, BY_NAME))
        or any(MIGRATABLE_DRIVERS.get(volume.kind) == driver for volume in pod.volumes)
    )
