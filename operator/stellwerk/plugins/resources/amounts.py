"""Amounts that nodes offer and that are used, one resource at a time, as plugins compute.

A view of one row, which is what a cached column needs after each binding, is computed in plain
integers, which are cheaper than one-element arrays. The filter's arithmetic has operators that mean
the same for both. Scores are computed in each way by a function of its own: columns in float64
where it is exact, and in place, since memory that is new costs more than a pass. Invariant: both
ways give the same numbers.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import MAX_NODE_SCORE
from stellwerk.snapshot.columns import IntColumn, ScoredAmounts
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.resource_amounts import CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar_resource

Amount: TypeAlias = IntColumn | int
"""(n,) int64 in the resource's unit, or the one number of a view of one row."""

ALWAYS_COUNTED: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_NONZERO_INDEX: Final = {CPU: 0, MEMORY: 1}


def is_counted(resource: str) -> bool:
    """Whether kube-scheduler keeps count of a resource of this name on nodes."""
    return resource in ALWAYS_COUNTED or is_scalar_resource(resource)


def row_of(snapshot: Snapshot, resource: str) -> int | None:
    """The row of a resource in the columns, which most have already; None: no node offers it."""
    found = snapshot.resource_row.get(resource)
    return snapshot.resource_index(resource) if found is None else found


def offered_and_used(nodes: NodeView, resource: str) -> tuple[Amount, Amount] | None:
    """(The amount that nodes can give to pods, what the pods on them request of it).

    None: no node offers the resource.
    """
    snapshot, row = nodes.snapshot, nodes.only_row
    resource_row = row_of(snapshot, resource)
    if resource_row is None:
        return None
    if row is None:
        return nodes.allocatable(resource), nodes.requested(resource)
    return snapshot.allocatable.item(resource_row, row), snapshot.requested.item(resource_row, row)


def offered_and_used_at(
    snapshot: Snapshot, row: int, resource: str, *, for_scoring: bool
) -> tuple[int, int]:
    """(offered, requested) of one row; (0, 0) where no node offers the resource.

    `for_scoring`: cpu and memory in use as if containers without a request had a small one.
    """
    resource_row = row_of(snapshot, resource)
    if resource_row is None:
        return 0, 0
    index = _NONZERO_INDEX.get(resource) if for_scoring else None
    if index is None:
        present = snapshot.requested.item(resource_row, row)
    else:
        present = snapshot.nonzero_requested.item(index, row)
    return snapshot.allocatable.item(resource_row, row), present


def used_within_offer(amounts: ScoredAmounts, request: int) -> npt.NDArray[Any]:
    """(n,) a new column: what is used with the pod, at most what is offered."""
    used: npt.NDArray[Any] = amounts.used + request
    np.minimum(used, amounts.offers, out=used)
    return used


def free_percent(amounts: ScoredAmounts, request: int) -> npt.NDArray[np.float64]:
    """(n,) float64, what stays free beside the pod in percent of the offer, rounded down."""
    return _whole_percent(_free(amounts, request), amounts)


def used_percent(amounts: ScoredAmounts, request: int) -> npt.NDArray[np.float64]:
    """(n,) float64, what is used with the pod in percent of the offer, rounded down."""
    part = _free(amounts, request)
    np.subtract(amounts.offers, part, out=part)
    return _whole_percent(part, amounts)


def _free(amounts: ScoredAmounts, request: int) -> npt.NDArray[Any]:
    free: npt.NDArray[Any] = amounts.free - request
    np.maximum(free, 0, out=free)
    return free


def _whole_percent(part: npt.NDArray[Any], amounts: ScoredAmounts) -> npt.NDArray[np.float64]:
    """(n,) float64, the part in percent of what is offered, rounded down; the part is lost."""
    part *= MAX_NODE_SCORE
    if part.dtype != np.float64:
        part //= amounts.divisors
        return part.astype(np.float64)
    part /= amounts.divisors
    np.floor(part, out=part)
    return part
