"""The volume that each of a pod's claims has or would get on each node.

VolumeBinding asks for all rows when it filters, and for the chosen row when it reserves. Nothing
here changes anything. Invariant: the volumes of a row depend on its node alone, given the objects.
Source: pkg/scheduler/framework/plugins/volumebinding/binder.go of v1.36.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.in_tree_volumes import migrated_node_selector, migration_of
from stellwerk.models.volumes import storage_class_name
from stellwerk.plugins.shared.csi_nodes import CSINodeRows
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.plugins.shared.volume_claims import is_fully_bound
from stellwerk.plugins.volume_binding.accessible_nodes import (
    AccessibleNodesBySelector,
    node_selector,
)
from stellwerk.plugins.volume_binding.provisioning import (
    MAX_PERCENT_BYTES,
    StorageCapacities,
    provisionable,
)
from stellwerk.plugins.volume_binding.volume_pools import (
    NO_VOLUME_CHOSEN,
    StaticMatch,
    VolumePools,
    capacity_of,
    match_volumes,
    requested_storage,
)
from stellwerk.snapshot.columns import IntColumn, Mask, VerdictColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import parse_node_selector

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"

NODE_CONFLICT: Final = 1
"""A bound volume is not reachable from the node."""
NO_MATCH: Final = 2
"""Nothing to bind an unbound claim to, and nothing that would make a volume here."""
NO_SPACE: Final = 4
"""The driver has no room for a new volume here."""
NO_VOLUME: Final = 8
"""A claim is bound to a volume that does not exist."""


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """A pod's claims by what has to happen to them."""

    bound: tuple[JsonObject, ...]
    waiting: tuple[JsonObject, ...]
    """Unbound, to be bound when the pod has a node (WaitForFirstConsumer)."""
    immediate: tuple[JsonObject, ...]
    """Unbound although their class does not wait, or half bound by a user."""
    awaited: tuple[JsonObject, ...] = ()
    """Unbound, and a volume is to be made for a member of the pod's group that was placed just now.
    Which nodes will reach it is not known yet."""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes for a pod's claims on the rows of a view (kube-scheduler's PodVolumes)."""

    reasons: VerdictColumn
    """(n,) int32, the reasons against a row, added up; 0: the row fits."""
    matches: Sequence[StaticMatch] = ()
    provisions: Sequence[tuple[JsonObject, Mask]] = ()
    """(claim, rows where a volume is to be made for it)."""

    def bindings_at(self, position: int) -> list[tuple[JsonObject, JsonObject]]:
        """(claim, existing volume) to bind if the pod goes there."""
        return [
            (match.claim, match.volumes[match.choice[position]])
            for match in self.matches
            if match.choice[position] != NO_VOLUME_CHOSEN
        ]

    def provisions_at(self, position: int) -> list[JsonObject]:
        """Claims for which a volume is to be made if the pod goes there."""
        return [claim for claim, needed in self.provisions if needed[position]]


def sort_claims(
    objects: ObjectStore, claims: Iterable[JsonObject], *, shares: bool = False
) -> PodVolumeClaims:
    """The claims by what has to happen to them (`GetPodVolumeClaims`).

    `shares`: the pod may go to another node than the one that a member of its group has chosen for
    the claim, in the same decision.

    Raises:
        ValueError: a StorageClass does not say when to bind.
    """
    bound, waiting, immediate, awaited = [], [], [], []
    for claim in claims:
        if is_fully_bound(claim):
            bound.append(claim)
        elif shares and chosen_by_another(objects, claim):
            awaited.append(claim)
        elif _waits(objects, claim) and not claim["spec"].get("volumeName"):
            waiting.append(claim)
        else:
            immediate.append(claim)
    return PodVolumeClaims(tuple(bound), tuple(waiting), tuple(immediate), tuple(awaited))


def chosen_by_another(objects: ObjectStore, claim: JsonObject) -> bool:
    """Whether another pod's Reserve has chosen the claim's node, and the API does not show it."""
    metadata = claim["metadata"]
    if SELECTED_NODE not in (metadata.get("annotations") or {}):
        return False
    stored = objects.stored(
        "PersistentVolumeClaim", metadata.get("namespace") or "", metadata["name"]
    )
    return stored is None or SELECTED_NODE not in (stored["metadata"].get("annotations") or {})


class SchedulerVolumeBinder:
    """Finds volumes, and remembers what many searches have in common."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._migrated = CSINodeRows(objects, _migrated_plugins)
        self._accessible = AccessibleNodesBySelector()
        self._pools = VolumePools(objects, self._accessible)
        self._capacities = StorageCapacities(objects, self._accessible)

    def find_pod_volumes(self, nodes: NodeView, claims: PodVolumeClaims) -> PodVolumes:
        """Find the volumes for the claims on the rows of a view (`FindPodVolumes`)."""
        objects = self._objects
        reasons = _bound_reasons(objects, nodes, claims.bound, self._migrated)
        if not claims.waiting and not claims.awaited:
            return PodVolumes(reasons)
        elsewhere, selected, others = _by_selection(nodes, claims.waiting)
        matches = match_volumes(objects, self._pools, self._accessible, nodes, others)
        everywhere: Mask = np.ones(len(nodes), np.bool_)
        provisions = [(claim, everywhere) for claim in selected]
        provisions += [(match.claim, match.choice == NO_VOLUME_CHOSEN) for match in matches]
        provisions += [(claim, everywhere) for claim in claims.awaited]
        reasons[elsewhere] |= NO_MATCH
        self._provide(nodes, provisions, reasons, ~elsewhere)
        return PodVolumes(reasons, matches, provisions)

    def capacity_scores(
        self, nodes: NodeView, claims: PodVolumeClaims, score_by_utilization: IntColumn
    ) -> IntColumn:
        """(n,) int64, 0–100: by how full the storage would be that the claims get on each row.

        A row with any existing volume to bind is scored by those alone, any other by what is to be
        provisioned there. Source: `VolumeBinding.Score` and `buildScorerFunction`, v1.37.

        Args:
            nodes: rows that the claims fit on.
            claims: of the pod.
            score_by_utilization: (101,) int64, the score at each whole percent.
        """
        found = self.find_pod_volumes(nodes, claims)
        static: Mask = np.zeros(len(nodes), np.bool_)
        for match in found.matches:
            static |= match.choice != NO_VOLUME_CHOSEN
        classes: dict[str, _ClassStorage] = {}
        for match in found.matches:
            storage = classes.setdefault(storage_class_name(match.claim), _ClassStorage(nodes))
            taken = match.choice != NO_VOLUME_CHOSEN
            storage.requested += taken * _size(requested_storage(match.claim))
            for index in np.unique(match.choice[taken]).tolist():
                size = _size(capacity_of(match.volumes[index]))
                storage.capacity += (match.choice == index) * size
            storage.counts |= taken
        for claim, needed in found.provisions:
            name = storage_class_name(claim)
            storage_class = self._objects.get("StorageClass", "", name)
            if storage_class is None:
                continue
            capacity = self._capacities.accepted(nodes, claim, storage_class)
            if capacity is None:
                continue
            made = needed & ~static & (capacity >= 0)
            storage = classes.setdefault(name, _ClassStorage(nodes))
            storage.requested += made * _size(requested_storage(claim))
            # Set, not added: the last claim of the class decides.
            storage.capacity[made] = capacity[made]
            storage.counts |= made
        total: IntColumn = np.zeros(len(nodes), np.int64)
        count: IntColumn = np.zeros(len(nodes), np.int64)
        for storage in classes.values():
            total += np.where(storage.counts, score_by_utilization[storage.utilization()], 0)
            count += storage.counts
        # Half away from zero, as Go's math.Round; no score is negative.
        return (2 * total + count) // np.maximum(2 * count, 1)

    def _provide(
        self,
        nodes: NodeView,
        provisions: Iterable[tuple[JsonObject, Mask]],
        reasons: VerdictColumn,
        undecided: Mask,
    ) -> None:
        """Note why volumes cannot be made; a row's first failing claim decides.

        Adds NO_MATCH or NO_SPACE to `reasons` where `undecided`, and takes those rows out of it.
        Source: `checkVolumeProvisions`.
        """
        capacities = self._capacities
        for claim, needed in provisions:
            rows = undecided & needed
            if not rows.any():
                continue
            class_name = storage_class_name(claim)
            storage_class = self._objects.get("StorageClass", "", class_name)
            possible = provisionable(nodes, storage_class)
            reasons[rows & ~possible] |= NO_MATCH
            room = (
                possible if storage_class is None else capacities.roomy(nodes, claim, storage_class)
            )
            reasons[rows & possible & ~room] |= NO_SPACE
            undecided &= ~rows | (possible & room)


class _ClassStorage:
    """The storage of one class that a pod would take, row by row."""

    def __init__(self, nodes: NodeView) -> None:
        self.requested: IntColumn = np.zeros(len(nodes), np.int64)
        """(n,) int64, bytes."""
        self.capacity: IntColumn = np.zeros(len(nodes), np.int64)
        """(n,) int64, bytes."""
        self.counts: Mask = np.zeros(len(nodes), np.bool_)
        """(n,) bool, True where the pod takes any."""

    def utilization(self) -> IntColumn:
        """(n,) int64, 0–100 percent; storage without capacity, or with too little, is full."""
        requested = np.minimum(self.requested, MAX_PERCENT_BYTES)
        capacity = np.minimum(self.capacity, MAX_PERCENT_BYTES)
        fits = (self.capacity > 0) & (self.requested <= self.capacity)
        percent: IntColumn = requested * 100 // np.maximum(capacity, 1)
        return np.where(fits, percent, 100)


def _size(amount: Fraction) -> int:
    """Whole bytes, so few that a hundred times them are an int64."""
    return min(math.ceil(amount), MAX_PERCENT_BYTES)


def reachable_by(volume: JsonObject, labels: Mapping[str, str], *, migrated: bool) -> bool:
    """Whether a node with these labels can use the volume; the plain form of `_reachable`."""
    selector = node_selector(volume)
    migration = migration_of(volume)
    if migrated and migration is not None and migration.topology_key:
        selector = parse_node_selector(migrated_node_selector(volume, migration.topology_key))
    return selector is None or selector.matches(labels, "")


def is_migrated(csi_node: JsonObject | None, volume: JsonObject) -> bool:
    """Whether the node hands the volume's in-tree plugin over to a CSI driver."""
    migration = migration_of(volume)
    if csi_node is None or migration is None:
        return False
    return migration.plugin_name in _migrated_plugins(csi_node)


# --- bound claims -------------------------------------------------------------------------------


def _bound_reasons(
    objects: ObjectStore, nodes: NodeView, claims: Iterable[JsonObject], migrated: CSINodeRows
) -> VerdictColumn:
    """(n,) int32, NODE_CONFLICT or NO_VOLUME by the first claim that fails (`checkBoundClaims`)."""
    reasons: VerdictColumn = np.zeros(len(nodes), np.int32)
    for claim in claims:
        volume = objects.get("PersistentVolume", "", claim["spec"]["volumeName"])
        if volume is None:
            reasons[reasons == 0] = NO_VOLUME
            break
        reachable = _reachable(nodes, volume, migrated)
        if reachable is not None:
            reasons[~reachable] = NODE_CONFLICT
    return reasons


def _reachable(nodes: NodeView, volume: JsonObject, migrated: CSINodeRows) -> Mask | None:
    """(n,) bool, True where the volume can be used; None: everywhere."""
    selector, migration = node_selector(volume), migration_of(volume)
    plain = None if selector is None else matching_nodes(nodes, selector)
    if migration is None or not migration.topology_key:
        return plain
    on_csi = migrated.mask(nodes, migration.plugin_name)
    selector = parse_node_selector(migrated_node_selector(volume, migration.topology_key))
    if selector is None or not on_csi.any():
        return plain
    by_driver = matching_nodes(nodes, selector)
    return np.where(on_csi, by_driver, True if plain is None else plain)


def _migrated_plugins(csi_node: JsonObject) -> list[str]:
    annotations = csi_node["metadata"].get("annotations") or {}
    return (annotations.get(MIGRATED_PLUGINS) or "").split(",")


# --- claims that wait for their pod --------------------------------------------------------------


def _waits(objects: ObjectStore, claim: JsonObject) -> bool:
    class_name = storage_class_name(claim)
    storage_class = objects.get("StorageClass", "", class_name) if class_name else None
    if storage_class is None:
        return False
    mode = storage_class.get("volumeBindingMode")
    if mode is None:
        raise ValueError(f'VolumeBindingMode not set for StorageClass "{class_name}"')
    return bool(mode == "WaitForFirstConsumer")


def _by_selection(
    nodes: NodeView, claims: Iterable[JsonObject]
) -> tuple[Mask, list[JsonObject], list[JsonObject]]:
    """((n,) rows that are not the node of a claim with one, those claims, the other claims)."""
    elsewhere: Mask = np.zeros(len(nodes), np.bool_)
    selected, others = [], []
    for claim in claims:
        node_name = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if node_name is None:
            others.append(claim)
            continue
        selected.append(claim)
        elsewhere |= nodes.row_numbers() != nodes.snapshot.row_of.get(node_name, -1)
    return elsewhere, selected, others
