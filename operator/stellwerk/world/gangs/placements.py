"""Placements: the sets of nodes among which all members of a group have to be.

`group_decision` finds them by the labels that a group asks for, and tries them. Invariant: a
placement names values of labels and no nodes, so it holds for every later snapshot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.framework.types import PlacementSums
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import ABSENT, IntColumn, Mask, RowColumn
from stellwerk.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes that have these values of these labels; without any, all nodes."""

    values: tuple[tuple[str, str], ...] = ()
    """(label key, value) of each level, widest first."""

    def rows(self, snapshot: Snapshot) -> Mask | None:
        """(N,) bool, the rows of its nodes; None: all of them."""
        if not self.values:
            return None
        among: Mask = snapshot.alive.copy()
        for key, value in self.values:
            column = snapshot.label(key)
            value_id = column.id_of.get(value)
            if value_id is None:
                return np.zeros_like(among)
            among &= column.ids[: snapshot.size] == value_id
        return among

    @property
    def shown(self) -> str:
        """Its values, for explanations."""
        return ", ".join(f"{key}={value}" for key, value in self.values) or "all nodes"


EVERYWHERE: Final = Placement()


class UndeterminedDomainError(Exception):
    """Members that are scheduled already are not all in the same domain."""


@dataclass(frozen=True, slots=True)
class Domains:
    """Every placement there is, by its values, and which rows each has."""

    placements: Sequence[Placement]
    of_row: RowColumn
    """(N,) intp, index into `placements`; −1 for rows that belong to none."""


def domains(snapshot: Snapshot, keys: Sequence[str], scheduled: Iterable[PodInfo]) -> Domains:
    """Find a placement for each combination of values that nodes have of these labels (at least 1).

    If members are scheduled already, only their placement is found.

    Raises:
        UndeterminedDomainError: those are in several domains, or lack a label.
    """
    of_members = {_values(snapshot, keys, pod) for pod in scheduled}
    if len(of_members) > 1 or None in of_members:
        shown = sorted("none" if each is None else "/".join(each) for each in of_members)
        raise UndeterminedDomainError(
            f"cannot determine domain for already scheduled pods: {', '.join(shown)}"
        )
    columns = [snapshot.label(key) for key in keys]
    ids = np.stack([column.ids[: snapshot.size] for column in columns])
    labelled = np.flatnonzero(snapshot.alive & (ids != ABSENT).all(axis=0))
    distinct, inverse = np.unique(ids[:, labelled], axis=1, return_inverse=True)
    values = [
        tuple(column.values[value_id] for column, value_id in zip(columns, each, strict=True))
        for each in distinct.T.tolist()
    ]
    wanted = sorted(each for each in values if not of_members or each in of_members)
    position = {each: index for index, each in enumerate(wanted)}
    of_row: RowColumn = np.full(snapshot.size, -1, np.intp)
    if values:
        positions = np.array([position.get(each, -1) for each in values], np.intp)
        of_row[labelled] = positions[inverse.reshape(-1)]
    return Domains([Placement(tuple(zip(keys, each, strict=True))) for each in wanted], of_row)


def _values(snapshot: Snapshot, keys: Sequence[str], pod: PodInfo) -> tuple[str, ...] | None:
    row = snapshot.row_of.get(pod.node_name)
    if row is None:
        return None
    labels = snapshot.node_at(row).labels
    return None if any(key not in labels for key in keys) else tuple(labels[key] for key in keys)


def sums(domain_of: RowColumn, count: int, column: IntColumn) -> IntColumn:
    """(count,) int64, a column summed over the rows of each domain."""
    within = domain_of >= 0
    total: IntColumn = np.zeros(count, np.int64)
    np.add.at(total, domain_of[within], column[within])
    return total


def placement_sums(
    snapshot: Snapshot,
    found: Domains,
    members: IntColumn,
    resources: Iterable[str],
    added: Mapping[str, IntColumn],
) -> PlacementSums:
    """Sum up what each placement holds; `added` are amounts by resource that are to come."""
    count = len(found.placements)
    allocatable: dict[str, IntColumn] = {}
    requested: dict[str, IntColumn] = {}
    for resource in resources:
        index = snapshot.resource_index(resource)
        if index is None:
            allocatable[resource] = requested[resource] = np.zeros(count, np.int64)
            continue
        offered = allocatable[resource] = sums(found.of_row, count, snapshot.allocatable[index])
        used = sums(found.of_row, count, snapshot.requested[index]) + added.get(resource, 0)
        requested[resource] = np.minimum(used, offered)
    return PlacementSums(members, allocatable, requested)
