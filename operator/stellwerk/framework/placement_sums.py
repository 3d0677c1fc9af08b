"""What PlacementScore plugins see of the placements that would hold a group.

Group decisions make it. Invariant: every column has one value for each placement, in one order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stellwerk.snapshot.columns import IntColumn


@dataclass(frozen=True, slots=True)
class PlacementSums:
    """Sums over the nodes of each of P placements, the group's members on them included."""

    members: IntColumn
    """(P,) int64, members scheduled there already and placed there now."""
    allocatable: Mapping[str, IntColumn]
    """(P,) int64, in the unit of each resource that members request or NodeResourcesFit scores."""
    requested: Mapping[str, IntColumn]
    """(P,) int64 for the same resources, at most what is allocatable."""

    @property
    def count(self) -> int:
        """P."""
        return len(self.members)


def joined(placements: Sequence[PlacementSums]) -> PlacementSums:
    """Placements that were looked at one by one, of which each has the same resources."""
    names = placements[0].allocatable.keys()
    return PlacementSums(
        np.concatenate([each.members for each in placements]),
        {name: np.concatenate([each.allocatable[name] for each in placements]) for name in names},
        {name: np.concatenate([each.requested[name] for each in placements]) for name in names},
    )
