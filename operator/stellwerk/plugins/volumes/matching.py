"""Existing volumes for unbound claims: the smallest one that each node can use.

`volume_binder` calls it for claims that wait for their pod. Invariant: a row gets no volume twice,
and a volume that names a claim is the only one considered for it (`FindMatchingVolume` of v1.36).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.volumes import storage_class_name
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.plugins.volumes.pools import (
    VolumePool,
    VolumePools,
    capacity_of,
    first_of_each,
    offer_of,
    requested_storage,
)
from stellwerk.plugins.volumes.reach import Reaches, joined, node_selector
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.snapshot import NodeView

NO_VOLUME_CHOSEN: Final = -1


@dataclass(frozen=True, slots=True)
class StaticMatch:
    """Existing volumes for one claim."""

    claim: JsonObject
    volumes: Sequence[JsonObject]
    choice: IntColumn
    """(n,) int64, index into `volumes`; −1: none that the node can use."""


def claim_uid(claim: JsonObject) -> str:
    """The claim's uid; recorded cases leave it out and mean namespace/name."""
    return str(claim["metadata"].get("uid") or _claim_key(claim))


def match_volumes(
    objects: ObjectStore,
    pools: VolumePools,
    reaches: Reaches,
    nodes: NodeView,
    claims: Iterable[JsonObject],
) -> list[StaticMatch]:
    """An existing volume per claim and row, smallest claims first."""
    matches: list[StaticMatch] = []
    chosen: dict[str, list[IntColumn]] = {}
    for claim in sorted(claims, key=requested_storage):
        prebound = _prebound(objects, claim)
        if prebound is not None:
            matches.append(StaticMatch(claim, [prebound], _at_once(nodes, prebound)))
            continue
        class_name = storage_class_name(claim)
        pool, earlier = pools.pool(class_name), chosen.setdefault(class_name, [])
        eligible = pool.eligible(claim)
        reaches.refresh(nodes.snapshot)
        choice = _smallest(pool, nodes.snapshot.size, eligible, earlier)
        earlier.append(choice)
        matches.append(StaticMatch(claim, pool.volumes, nodes.gather(choice)))
    return matches


def _at_once(nodes: NodeView, volume: JsonObject) -> IntColumn:
    """(n,) int64, 0 where the node can use the only volume, else NO_VOLUME_CHOSEN."""
    selector = node_selector(volume)
    if selector is None:
        return np.zeros(len(nodes), np.int64)
    return np.where(matching_nodes(nodes, selector), 0, NO_VOLUME_CHOSEN)


def _smallest(
    pool: VolumePool, size: int, eligible: RowColumn, earlier: Sequence[IntColumn]
) -> IntColumn:
    """(N,) int64, the first eligible position that each row can use, or NO_VOLUME_CHOSEN.

    `earlier` are (N,) positions that claims before this one took of the same pool.
    """
    unmatched = len(pool.volumes)
    choice: IntColumn = np.full(size, unmatched, np.int64)
    # Earlier claims took at most one volume each: one more of the same reach serves every row.
    candidates = eligible[first_of_each(pool.group[eligible], len(earlier) + 1)]
    groups = pool.group[candidates].tolist()
    rows, lengths = joined(pool.reaches[group] for group in groups)
    positions = np.repeat(candidates, lengths)
    for taken in earlier:
        free = taken[rows] != positions
        rows, positions = rows[free], positions[free]
    np.minimum.at(choice, rows, positions)
    choice[choice == unmatched] = NO_VOLUME_CHOSEN
    return choice


def _prebound(objects: ObjectStore, claim: JsonObject) -> JsonObject | None:
    """The volume that names the claim; nothing else is considered then."""
    wanted = offer_of(claim)
    for volume in objects.list_by("PersistentVolume", "claim", _claim_key(claim)):
        uid = volume["spec"]["claimRef"].get("uid")
        if (
            (not uid or uid == claim_uid(claim))
            and storage_class_name(volume) == storage_class_name(claim)
            and capacity_of(volume) >= requested_storage(claim)
            and offer_of(volume)[1:] == wanted[1:]
            and "deletionTimestamp" not in volume["metadata"]
        ):
            return volume
    return None


def _claim_key(claim: JsonObject) -> str:
    metadata = claim["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"
