"""Existing volumes for unbound claims: the smallest one that each node can use.

`volume_binder` calls it for claims that wait for their pod. Invariant: a row gets no volume twice,
and a volume that names a claim is the only one considered for it (`FindMatchingVolume` of v1.36).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from stellwerk.framework.interface import JsonObject, ObjectStore
from stellwerk.models.quantity import parse_quantity
from stellwerk.models.selectors import (
    LabelSelector,
    NodeSelector,
    parse_label_selector,
    parse_node_selector,
)
from stellwerk.models.volumes import storage_class_name
from stellwerk.plugins.node_matching import matching_nodes
from stellwerk.snapshot.columns import IdColumn, Mask
from stellwerk.snapshot.node_view import NodeView

NO_VOLUME_CHOSEN: Final = -1


@dataclass(frozen=True, slots=True)
class StaticMatch:
    """Existing volumes for one claim."""

    claim: JsonObject
    volumes: Sequence[JsonObject]
    choice: IdColumn
    """(n,) int32, index into `volumes`; −1: none that the node can use."""


def node_selector(volume: JsonObject) -> NodeSelector | None:
    """The nodes that can use a volume; None: all."""
    return parse_node_selector((volume["spec"].get("nodeAffinity") or {}).get("required"))


def claim_uid(claim: JsonObject) -> str:
    """The claim's uid; recorded cases leave it out and mean namespace/name."""
    return str(claim["metadata"].get("uid") or _claim_key(claim))


def match_volumes(
    objects: ObjectStore, nodes: NodeView, claims: Iterable[JsonObject]
) -> list[StaticMatch]:
    """An existing volume per claim and row, the smallest that fits; no volume twice on a row."""
    matches: list[StaticMatch] = []
    masks: dict[NodeSelector | None, Mask] = {}
    for claim in sorted(claims, key=requested_storage):
        prebound = _prebound(objects, claim)
        volumes = _eligible(objects, claim) if prebound is None else [prebound]
        matches.append(_match_claim(nodes, claim, volumes, matches, masks))
    return matches


def _match_claim(
    nodes: NodeView,
    claim: JsonObject,
    volumes: Sequence[JsonObject],
    earlier: Sequence[StaticMatch],
    masks: dict[NodeSelector | None, Mask],
) -> StaticMatch:
    choice: IdColumn = np.full(len(nodes), NO_VOLUME_CHOSEN, np.int32)
    remaining: Mask = np.ones(len(nodes), np.bool_)
    tried: dict[NodeSelector | None, int] = {}
    for index, volume in enumerate(volumes):
        selector = node_selector(volume)
        # Earlier claims took at most one volume each: one more of the same reach serves all rows.
        if tried.get(selector, 0) > len(earlier):
            continue
        tried[selector] = tried.get(selector, 0) + 1
        taken = remaining & _reach(nodes, selector, masks)
        for match in earlier:
            taken &= ~_chosen(match, volume)
        choice[taken] = index
        remaining &= ~taken
        if not remaining.any():
            break
    return StaticMatch(claim, volumes, choice)


def _reach(
    nodes: NodeView, selector: NodeSelector | None, masks: dict[NodeSelector | None, Mask]
) -> Mask:
    found = masks.get(selector)
    if found is None:
        everywhere: Mask = np.ones(len(nodes), np.bool_)
        found = everywhere if selector is None else matching_nodes(nodes, selector)
        masks[selector] = found
    return found


def _chosen(match: StaticMatch, volume: JsonObject) -> Mask:
    """(n,) bool, True where an earlier claim has taken the volume."""
    name = volume["metadata"]["name"]
    index = next((i for i, v in enumerate(match.volumes) if v["metadata"]["name"] == name), None)
    taken: Mask = match.choice == (len(match.volumes) if index is None else index)
    return taken


def _prebound(objects: ObjectStore, claim: JsonObject) -> JsonObject | None:
    """The volume that names the claim; nothing else is considered then."""
    for volume in objects.list_by("PersistentVolume", "claim", _claim_key(claim)):
        uid = volume["spec"]["claimRef"].get("uid")
        if (
            (not uid or uid == claim_uid(claim))
            and storage_class_name(volume) == storage_class_name(claim)
            and _suits(volume, claim)
        ):
            return volume
    return None


def _eligible(objects: ObjectStore, claim: JsonObject) -> list[JsonObject]:
    """Available volumes that the claim could use on some node, smallest first."""
    selector = parse_label_selector(claim["spec"].get("selector"))
    modes = set(claim["spec"].get("accessModes") or ())
    found = [
        volume
        for volume in objects.list_by("PersistentVolume", "available", storage_class_name(claim))
        if _suits(volume, claim)
        and modes.issubset(volume["spec"].get("accessModes") or ())
        and _selected(selector, volume)
    ]
    return sorted(found, key=_capacity)


def _suits(volume: JsonObject, claim: JsonObject) -> bool:
    """Size, mode and attributes class; what even a volume that names the claim must have."""
    wanted, offered = claim["spec"], volume["spec"]
    return (
        _capacity(volume) >= requested_storage(claim)
        and (wanted.get("volumeMode") or "Filesystem")
        == (offered.get("volumeMode") or "Filesystem")
        and (wanted.get("volumeAttributesClassName") or "")
        == (offered.get("volumeAttributesClassName") or "")
        and "deletionTimestamp" not in volume["metadata"]
    )


def _selected(selector: LabelSelector | None, volume: JsonObject) -> bool:
    return selector is None or selector.matches(volume["metadata"].get("labels") or {})


def _capacity(volume: JsonObject) -> Fraction:
    return parse_quantity((volume["spec"].get("capacity") or {}).get("storage") or "0")


def requested_storage(claim: JsonObject) -> Fraction:
    """What a claim asks for, in bytes."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage") or "0")


def _claim_key(claim: JsonObject) -> str:
    metadata = claim["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"
