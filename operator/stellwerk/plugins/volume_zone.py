"""VolumeZone: volumes that carry zone or region labels stay where nodes have the same.

Both generations of labels count; a node without any of them is in no zone and takes every volume.
Invariant: only bound claims decide; an unbound one passes if its class waits for a consumer.
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
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState, FilterResult, unresolvable
from stellwerk.models.in_tree_volumes import ZONE_SEPARATOR
from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import storage_class_name
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.plugins.shared.row_by_row import RowByRowWithoutVolumes
from stellwerk.plugins.shared.volume_claims import (
    BY_NAME,
    claim_volumes,
    not_found,
    uses_named_claim,
)
from stellwerk.plugins.shared.volume_proposals import volume_labels, without_volumes
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from stellwerk_kube.selectors import NodeSelector, NodeSelectorTerm, Requirement

_NAME: Final = "VolumeZone"
_CONFLICT: Final = unresolvable(_NAME, "node(s) had no available volume zone")
_TOPOLOGY_LABELS: Final = (BETA_ZONE_LABEL, BETA_REGION_LABEL, ZONE_LABEL, REGION_LABEL)
_GA_LABEL: Final = {BETA_ZONE_LABEL: ZONE_LABEL, BETA_REGION_LABEL: REGION_LABEL}
_IN_SOME_ZONE: Final = NodeSelector(
    tuple(NodeSelectorTerm((Requirement(label, "Exists"),)) for label in _TOPOLOGY_LABELS)
)


@dataclass(frozen=True, slots=True)
class _Zones:
    """The labels that the pod's bound volumes ask of a node."""

    wanted: frozenset[tuple[str, frozenset[str]]]
    """(label, values of which the node must have one)."""


class VolumeZone(
    RowByRowWithoutVolumes, PreFilterPlugin, FilterPlugin, EnqueueExtensions, ProposePlugin
):
    """Rejects nodes in other zones or regions than the pod's volumes."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._handle = handle

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        if not pod.details.volumes:
            return SKIP_FILTER
        zones, rejection = self._zones(pod)
        if rejection:
            return PreFilterResult(unresolvable(_NAME, rejection))
        if not zones.wanted:
            return SKIP_FILTER
        state.write(_NAME, zones)
        return GO_ON

    def _zones(self, pod: PodInfo) -> tuple[_Zones, str]:
        """The labels that the pod's volumes ask of a node, or why they are not known."""
        wanted: set[tuple[str, frozenset[str]]] = set()
        for volume in claim_volumes(pod, BY_NAME):
            zones, rejection = self._claim_zones(pod, volume.claim_name)
            if rejection:
                return _Zones(frozenset()), rejection
            wanted.update(zones)
        return _Zones(frozenset(wanted)), ""

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        zones, rejection = state.get(_NAME, _Zones), ""
        if zones is None:
            # The profile has the plugin at Filter alone.
            zones, rejection = self._zones(pod)
        if rejection:
            every: Mask = np.ones(len(nodes), np.bool_)
            return FilterResult.of_mask(every, unresolvable(_NAME, rejection))
        return FilterResult.of_mask(_elsewhere(nodes, zones), _CONFLICT)

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
            ClusterEventWithHint(Resource.STORAGE_CLASS, Action.ADD, _waits_for_consumer),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            ClusterEventWithHint(
                Resource.PERSISTENT_VOLUME_CLAIM, changed, uses_named_claim, HintScope.POD
            ),
            ClusterEventWithHint(Resource.PERSISTENT_VOLUME, changed, _moved),
        )

    def _claim_zones(
        self, pod: PodInfo, claim_name: str
    ) -> tuple[frozenset[tuple[str, frozenset[str]]], str]:
        """(what the claim's volume wants, why the pod cannot be scheduled at all or "")."""
        nothing: frozenset[tuple[str, frozenset[str]]] = frozenset()
        if not claim_name:
            return nothing, "PersistentVolumeClaim had no name"
        objects = self._handle.objects
        claim = objects.get("PersistentVolumeClaim", pod.namespace, claim_name)
        if claim is None:
            return nothing, not_found("persistentvolumeclaim", claim_name)
        volume_name = claim["spec"].get("volumeName")
        if not volume_name:
            return nothing, self._unbound(claim)
        volume = objects.get("PersistentVolume", "", volume_name)
        if volume is None:
            return nothing, not_found("persistentvolume", volume_name)
        return zones_of(volume), ""

    def _unbound(self, claim: JsonObject) -> str:
        """The reason for which an unbound claim keeps the pod from any node; empty if it waits."""
        class_name = storage_class_name(claim)
        if not class_name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = self._handle.objects.get("StorageClass", "", class_name)
        if storage_class is None:
            return not_found("storageclass.storage.k8s.io", class_name)
        mode = storage_class.get("volumeBindingMode")
        if mode is None:
            return f'VolumeBindingMode not set for StorageClass "{class_name}"'
        return "" if mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def zones_of(volume: JsonObject) -> frozenset[tuple[str, frozenset[str]]]:
    """(label, values) of each topology label of a volume; a label with an empty part is ignored."""
    labels = volume["metadata"].get("labels") or {}
    found = set()
    for label in _TOPOLOGY_LABELS:
        if label in labels:
            values = frozenset(part.strip() for part in labels[label].split(ZONE_SEPARATOR))
            if "" not in values:
                found.add((label, values))
    return frozenset(found)


def _elsewhere(nodes: NodeView, zones: _Zones) -> Mask:
    """(n,) bool, True where a node is in some zone, but not in all that are wanted."""
    in_all: Mask = np.ones(len(nodes), np.bool_)
    for label, values in zones.wanted:
        in_all &= matching_nodes(nodes, _in_zone(label, values))
    return matching_nodes(nodes, _IN_SOME_ZONE) & ~in_all


def _in_zone(label: str, values: frozenset[str]) -> NodeSelector:
    """Nodes whose label has one of the values; where an old label is absent, the newer counts."""
    terms = [NodeSelectorTerm((Requirement(label, "In", values),))]
    if label in _GA_LABEL:
        newer = Requirement(_GA_LABEL[label], "In", values)
        terms.append(NodeSelectorTerm((Requirement(label, "DoesNotExist"), newer)))
    return NodeSelector(tuple(terms))


def _waits_for_consumer(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the added class lets unbound claims pass."""
    new = change.new
    return queue_if(
        not isinstance(new, dict) or new.get("volumeBindingMode") == "WaitForFirstConsumer"
    )


def _moved(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a volume was added, or changed its zones."""
    old, new = change.old, change.new
    if not isinstance(old, dict) or not isinstance(new, dict):
        return QUEUE
    return queue_if(zones_of(old) != zones_of(new))
