"""Which of a group's placements are tried, in which order, and which one is taken.

Group decisions make one for each group with more than one placement. Invariant: what is tried, and
which is best, is decided by scores and then by the labels' values, never by chance.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.framework.extension_points import PLACEMENT_SCORE
from stellwerk.framework.placement_sums import PlacementSums, joined
from stellwerk.models.plugin_args import NodeResourcesFitArgs
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.gangs.attempt import Attempt, Ground
from stellwerk.world.gangs.bounds import capacity
from stellwerk.world.gangs.placements import Domains, Placement, placement_sums, sums

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
    sums: PlacementSums


class PlacementChoice:
    """The order of the placements, and what came of those that were tried."""

    def __init__(
        self, ground: Ground, members: Sequence[PodInfo], needed: int, found: Domains
    ) -> None:
        self._ground, self._found = ground, found
        self._resources = _resources(ground, members)
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
        placed = [each.assumed for each in attempt.verdicts if each.assumed is not None]
        count = np.array([scheduled + len(placed)], np.int64)
        self._chosen.append(
            Chosen(
                attempt.placement,
                [each.pod for each in attempt.verdicts],
                {pod.uid: pod.node_name for pod in placed},
                placement_sums(snapshot, here, count, self._resources, {}),
            )
        )

    def best(self) -> Chosen | None:
        """The best placement that holds the group; None: there is none."""
        if not self._chosen:
            return None
        return self._chosen[
            int(self._scores(joined([each.sums for each in self._chosen])).argmax())
        ]

    def _scores(self, placements: PlacementSums) -> IntColumn:
        """(P,) int64, the weighted scores of the profile's PlacementScore plugins."""
        profile = self._ground.profile
        weights, total = profile.loaded.plugins.weights, np.zeros(placements.count, np.int64)
        for plugin in PLACEMENT_SCORE.among(profile.framework.plugins):
            total += weights.get(plugin.name, 0) * plugin.score_placements(placements)
        return total

    def _rank(self, members: Sequence[PodInfo], needed: int) -> None:
        """Order the placements by what they could hold, and how full they were with that."""
        found, snapshot = self._found, self._ground.world.cache.snapshot
        room = capacity(self._ground, members)
        held = sums(found.of_row, len(found.placements), room.per_row)
        counts = np.minimum(held, len(members))
        mean = {
            resource: sum(pod.amounts.requests.get(resource, 0) for pod in members) // len(members)
            for resource in self._resources
        }
        added = {resource: counts * amount for resource, amount in mean.items()}
        total = self._scores(placement_sums(snapshot, found, counts, self._resources, added))
        total[counts < needed] = -1
        ranked = np.argsort(-total, kind="stable")[:MOST_TRIED]
        hopeful = ranked[total[ranked] >= 0]
        # Where none can hold the group, the roomiest says why.
        self.order = (hopeful if len(hopeful) else np.argsort(-counts, kind="stable")[:1]).tolist()
        self._exact = room.exact


def _resources(ground: Ground, members: Sequence[PodInfo]) -> Collection[str]:
    """What PlacementScore plugins are shown: resources that members request or that are scored."""
    distinct = {id(pod.amounts): pod.amounts for pod in members}
    found = {resource for amounts in distinct.values() for resource in amounts.requests}
    args = ground.profile.loaded.args.get(_FIT)
    if isinstance(args, NodeResourcesFitArgs):
        found.update(each.name for each in args.scoring_strategy.resources)
    return sorted(found)
