"""Which of a group's placements are tried, in which order, and which one is taken.

Group decisions make one for each group with more than one placement. Invariant: what is tried, and
which is best, is decided by scores and then by the labels' values, never by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.models.plugin_args import NodeResourcesFitArgs
from stellwerk.models.pod import PodInfo
from stellwerk.world.gangs.attempt import Attempt, Ground
from stellwerk.world.gangs.bounds import capacity
from stellwerk.world.gangs.placements import Domains, Placement, fullness, scores, sums

_FIT: Final = "NodeResourcesFit"
MOST_TRIED: Final = 10
"""Of more placements, only so many are tried: the best by what their rows could hold."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A placement that holds the group, and where its members were."""

    placement: Placement
    members: Sequence[PodInfo]
    nodes: Mapping[str, str]
    """Node name by uid, of the members that have one."""
    count: int
    full: int


class PlacementChoice:
    """The order of the placements, and what came of those that were tried."""

    def __init__(
        self, ground: Ground, members: Sequence[PodInfo], needed: int, found: Domains
    ) -> None:
        self._ground, self._found = ground, found
        self._weight = ground.profile.loaded.plugins.weights.get(_FIT, 0)
        self._resources = _scored_resources(ground)
        self._chosen: list[Chosen] = []
        self.closest = Attempt()
        """The attempt that placed most, the first of them."""
        many = len(found.placements) > MOST_TRIED
        self.order: Sequence[int] = range(len(found.placements))
        self._exact = False
        if many:
            self._rank(members, needed)

    @property
    def is_settled(self) -> bool:
        """Whether the first placement that holds the group is the best one."""
        return self._exact

    def tried(self, index: int, attempt: Attempt, *, met: bool, scheduled: int) -> None:
        """Note what came of a placement, while its members are still assumed there."""
        if attempt.placed > self.closest.placed or not self.closest.verdicts:
            self.closest = attempt
        if not met or self._exact:
            return
        found, snapshot = self._found, self._ground.world.cache.update_snapshot()
        # Nodes may have come or gone since the placements were found.
        rows = found.placements[index].rows(snapshot)
        of_row = np.where(snapshot.alive if rows is None else rows, 0, -1)
        here = Domains((found.placements[index],), of_row)
        full = int(fullness(snapshot, here, self._resources, {})[0])
        placed = [each.assumed for each in attempt.verdicts if each.assumed is not None]
        self._chosen.append(
            Chosen(
                attempt.placement,
                [each.pod for each in attempt.verdicts],
                {pod.uid: pod.node_name for pod in placed},
                scheduled + len(placed),
                full,
            )
        )

    def best(self) -> Chosen | None:
        """The best placement that holds the group; None: there is none."""
        if not self._chosen:
            return None
        counts = np.array([each.count for each in self._chosen], np.int64)
        full = np.array([each.full for each in self._chosen], np.int64)
        return self._chosen[int(scores(counts, full, self._weight).argmax())]

    def _rank(self, members: Sequence[PodInfo], needed: int) -> None:
        """Order the placements by what they could hold, and how full they were with that."""
        found, snapshot = self._found, self._ground.world.cache.snapshot
        room = capacity(self._ground, members)
        held = sums(found.of_row, len(found.placements), room.per_row)
        counts = np.minimum(held, len(members))
        mean = {
            resource: sum(pod.amounts.requests.get(resource, 0) for pod in members) // len(members)
            for resource, _ in self._resources
        }
        added = {resource: counts * amount for resource, amount in mean.items()}
        full = fullness(snapshot, found, self._resources, added)
        total = scores(counts, full, self._weight)
        total[counts < needed] = -1
        ranked = np.argsort(-total, kind="stable")[:MOST_TRIED]
        hopeful = ranked[total[ranked] >= 0]
        # Where none can hold the group, the roomiest says why.
        self.order = (hopeful if len(hopeful) else np.argsort(-counts, kind="stable")[:1]).tolist()
        self._exact = room.exact


def _scored_resources(ground: Ground) -> Sequence[tuple[str, int]]:
    args = ground.profile.loaded.args.get(_FIT)
    if not isinstance(args, NodeResourcesFitArgs):
        return ()
    return [(each.name, each.weight) for each in args.scoring_strategy.resources]
