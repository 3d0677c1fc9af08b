"""Amounts that nodes offer and that are used, one resource at a time, as plugins compute.

The resource plugins write their arithmetic with operators that mean the same for a column and for
a plain integer. A view of one row, which is what a cached column needs after each binding, is then
computed in integers, which are cheaper than one-element arrays. Invariant: both ways give the
same numbers.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import MAX_NODE_SCORE
from stellwerk.models.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar_resource
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot

Amount: TypeAlias = IntColumn | int
"""(n,) int64 in the resource's unit, or the one number of a view of one row."""
Fraction: TypeAlias = npt.NDArray[np.floating[Any]] | float
"""(n,) float64, 0–1, or the one number of a view of one row."""

_NONZERO_INDEX: Final = {CPU: 0, MEMORY: 1}


def is_counted(resource: str) -> bool:
    """Whether kube-scheduler keeps count of a resource of this name on nodes."""
    return resource in {CPU, MEMORY, EPHEMERAL_STORAGE} or is_scalar_resource(resource)


def row_of(snapshot: Snapshot, resource: str) -> int | None:
    """The row of a resource in the columns, which most have already; None: no node offers it."""
    found = snapshot.resource_row.get(resource)
    return snapshot.resource_index(resource) if found is None else found


def offered(nodes: NodeView, resource: str) -> Amount:
    """The amount that nodes can give to pods; 0 where a node lacks the resource."""
    row = nodes.only_row
    if row is None:
        return nodes.allocatable(resource)
    resource_row = row_of(nodes.snapshot, resource)
    if resource_row is None:
        return 0
    return nodes.snapshot.allocatable.item(resource_row, row)


def used(nodes: NodeView, resource: str) -> Amount:
    """The amount that the pods on the nodes request."""
    row = nodes.only_row
    if row is None:
        return nodes.requested(resource)
    resource_row = row_of(nodes.snapshot, resource)
    if resource_row is None:
        return 0
    amount = nodes.snapshot.requested.item(resource_row, row)
    return (
        amount if nodes.overlay is None else amount + int(nodes.overlay.requested(resource_row)[0])
    )


def used_for_scoring(nodes: NodeView, resource: str) -> Amount:
    """The same, with cpu and memory as if containers without a request had a small one."""
    index = _NONZERO_INDEX.get(resource)
    if index is None:
        return used(nodes, resource)
    row = nodes.only_row
    if row is None:
        return nodes.nonzero_requested(resource)
    amount = nodes.snapshot.nonzero_requested.item(index, row)
    return (
        amount if nodes.overlay is None else amount + int(nodes.overlay.nonzero_requested(index)[0])
    )


def lesser(one: Amount, other: Amount) -> Amount:
    """The smaller of two amounts, row by row."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    smaller: IntColumn = np.minimum(one, other)
    return smaller


def divisor(amount: Amount) -> Amount:
    """The amount, with 1 in place of 0: what to divide by where the quotient of 0 is never used."""
    if isinstance(amount, int):
        return amount or 1
    # A pass less where every row has some, as is usual.
    return amount if amount.min(initial=1) > 0 else amount + (amount == 0)


def fraction(requested: Amount, allocatable: Amount, nonzero: Amount) -> Fraction:
    """The fraction in use, at most 1; 0 where nothing is offered.

    `nonzero`: the `divisor` of what can be allocated.
    """
    within = lesser(requested, allocatable)
    if isinstance(within, int):
        # Each side is rounded to float64 first, as in Go and NumPy; Python would divide exactly.
        return float(within) / float(nonzero)
    return within / nonzero


def half_distance(one: Fraction, other: Fraction) -> Fraction:
    """Half of how far two fractions lie apart: their standard deviation."""
    distance = one - other
    absolute = abs(distance) if isinstance(distance, float) else np.abs(distance)
    return absolute * 0.5


def used_percent(allocatable: Amount, requested: Amount) -> Amount:
    """Utilization in whole percent, at most 100; 0 where nothing is offered."""
    return lesser(requested, allocatable) * MAX_NODE_SCORE // divisor(allocatable)


def free_percent(allocatable: Amount, requested: Amount) -> Amount:
    """The rest in whole percent, at least 0; 0 where nothing is offered."""
    free = allocatable - lesser(requested, allocatable)
    return free * MAX_NODE_SCORE // divisor(allocatable)


def offered_weight(allocatable: Amount, weight: int) -> Amount:
    """The weight where the resource is offered, else 0; one number where every row offers it."""
    if not isinstance(allocatable, int) and allocatable.min(initial=1) > 0:
        return weight
    return (allocatable > 0) * weight


def column(nodes: NodeView, values: Amount) -> IntColumn:
    """(n,) int64, the values as a column again."""
    if isinstance(values, np.ndarray):
        return values
    if nodes.size == 1:
        return np.array([values], np.int64)  # in a third of the time of np.full
    return np.full(nodes.size, values, np.int64)
