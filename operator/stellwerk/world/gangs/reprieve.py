"""Which victims of a group's preemption can be spared, where counting alone does not say.

Group preemption runs it on a fork without any of them, on which the group is placed. Invariant: in
the end the group is placed beside all that are spared, and none of the others could be spared: by
count, or by placing the group anew; where that was done too often already, by moving no more
members than those on its nodes.
"""

import math
from collections.abc import Sequence
from typing import Final

from stellwerk.world.gangs.attempt import (
    Attempt,
    Ground,
    Steps,
    Verdict,
    nodes_of,
    place,
    take_back,
    take_back_each,
)
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.gangs.room import Room
from stellwerk.world.gangs.second_look import look_again
from stellwerk.world.gangs.victim_units import PAUSE_UNITS, Unit, come_back, leave

MOST_DECISIONS: Final = 4_000
"""So many members may be decided anew to see whether the whole group can be elsewhere, half of them
in other orders."""


class Reprieve:
    """Puts units back one by one, for as long as the group has its nodes."""

    def __init__(
        self,
        ground: Ground,
        request: GroupRequest,
        attempt: Attempt,
        room: Room,
        *,
        row_local: bool,
    ) -> None:
        """`row_local`: pods on other nodes matter to no member, whatever units come back."""
        self._ground, self._request, self._room = ground, request, room
        self.attempt = attempt
        """The members where they are now, assumed on the fork."""
        self._on: dict[str, set[int]] = {}
        """Positions in its verdicts of the members on each node."""
        self._row_local = row_local
        self._decided = 0
        self._look()

    def run(self, units: Sequence[Unit]) -> Steps[Sequence[Unit] | None]:
        """Spare what can be spared, in this order; returns the others.

        None: it would take too long to find out.
        """
        victims, before = list(units), -1
        while len(victims) != before:
            # Members may have moved since a unit was refused.
            before = len(victims)
            victims = yield from self._refused(victims)
        if self._row_local or (yield from self._hold_still()):
            return victims
        kept = {id(unit) for unit in victims}
        yield from leave(self._ground.world, [unit for unit in units if id(unit) not in kept])
        found = yield from self._by_halves(units)
        while found is not None and (fewer := (yield from self._one_by_one(found))) != found:
            found = fewer
        return found if found is not None and (yield from self._hold_still()) else None

    def _refused(self, units: Sequence[Unit]) -> Steps[list[Unit]]:
        """Spare what can be spared, once; returns the others."""
        refused = []
        for number, unit in enumerate(units):
            if number % PAUSE_UNITS == 0:
                yield None
            if not self._room.takes_back(unit.pods):
                refused.append(unit)
            elif not (yield from self._spare(unit)):
                self._room.gives_up(unit.pods)
                refused.append(unit)
        return refused

    def _spare(self, unit: Unit) -> Steps[bool]:
        """Put a unit back; if the group then has no nodes, take it away again."""
        if not any(pod.node_name in self._on for pod in unit.pods):
            self._return(unit)
            return True
        if (yield from self._spare_with_moves(unit)):
            return True
        return (yield from self._spare_anew(unit))

    def _spare_with_moves(self, unit: Unit) -> Steps[bool]:
        """Put a unit back beside the members on its nodes, or with those elsewhere."""
        ground, attempt = self._ground, self.attempt
        names = {pod.node_name for pod in unit.pods}
        moving = sorted(index for name in names for index in self._on.pop(name, ()))
        verdicts = [attempt.verdicts[index] for index in moving]
        pods, nodes = [each.pod for each in verdicts], nodes_of(Attempt(verdicts=verdicts))
        take_back_each(ground, verdicts)
        self._return(unit)
        # Where others matter, members that move would be judged beside some that came after them.
        tried = yield from place(
            ground, pods, attempt.placement, None if self._row_local else nodes
        )
        is_spared = tried.placed == len(pods)
        if not is_spared:
            take_back(ground, tried)
            self._remove(unit)
            tried = yield from place(ground, pods, attempt.placement, nodes)
        for index, verdict in zip(moving, tried.verdicts, strict=True):
            attempt.verdicts[index] = verdict
            self._note(index, verdict)
        return is_spared

    def _spare_anew(self, unit: Unit) -> Steps[bool]:
        """Put a unit back, and the whole group wherever it fits then."""
        if self._decided >= MOST_DECISIONS:
            return False
        before = self.attempt
        take_back(self._ground, before)
        self._return(unit)
        if (yield from self._placed_anew()):
            return True
        self._remove(unit)
        members = [each.pod for each in before.verdicts]
        self.attempt = yield from place(self._ground, members, before.placement, nodes_of(before))
        self._look()
        return False

    def _placed_anew(self) -> Steps[bool]:
        """Place the group, of which no member is placed; False: nothing is assumed."""
        ground, request = self._ground, self._request
        attempt = yield from place(ground, request.members)
        self._decided += len(request.members)
        if not request.is_met_by(attempt):
            take_back(ground, attempt)
            if self._decided >= MOST_DECISIONS // 2:
                return False
            other, tried = yield from look_again(ground, request, attempt, math.inf)
            self._decided += tried * len(request.members)
            if other is None:
                return False
            attempt = other
        self.attempt = attempt
        self._look()
        return True

    def _hold_still(self) -> Steps[bool]:
        """Place the group beside all that has come back, if it can be; members are taken back."""
        before = self.attempt
        take_back(self._ground, before)
        members = [each.pod for each in before.verdicts]
        attempt = yield from place(self._ground, members, before.placement, nodes_of(before))
        if self._request.is_met_by(attempt):
            self.attempt = attempt
            return True
        take_back(self._ground, attempt)
        return (yield from self._placed_anew())

    def _by_halves(self, units: Sequence[Unit]) -> Steps[list[Unit] | None]:
        """Spare as many at once as can be; returns the others; None: it takes too long.

        No member is assumed, before and after.
        """
        if self._decided >= MOST_DECISIONS:
            return None
        yield from come_back(self._ground.world, units)
        if (yield from self._placed_anew()):
            take_back(self._ground, self.attempt)
            return []
        yield from leave(self._ground.world, units)
        if len(units) == 1:
            return list(units)
        middle = len(units) // 2
        first = yield from self._by_halves(units[:middle])
        second = None if first is None else (yield from self._by_halves(units[middle:]))
        return None if first is None or second is None else [*first, *second]

    def _one_by_one(self, units: list[Unit]) -> Steps[list[Unit]]:
        """Spare what can be spared beside all that was by now; returns the others.

        What comes back may lead members elsewhere, where they leave more room. No member is
        assumed, before and after.
        """
        refused = []
        for unit in units:
            self._return(unit)
            if self._decided < MOST_DECISIONS and (yield from self._placed_anew()):
                take_back(self._ground, self.attempt)
            else:
                self._remove(unit)
                refused.append(unit)
        return refused

    def _look(self) -> None:
        """Note where the members are."""
        self._on.clear()
        for index, verdict in enumerate(self.attempt.verdicts):
            self._note(index, verdict)

    def _note(self, index: int, verdict: Verdict) -> None:
        if verdict.assumed is not None:
            self._on.setdefault(verdict.assumed.node_name, set()).add(index)

    def _return(self, unit: Unit) -> None:
        for pod in unit.pods:
            self._ground.world.cache.set_pod(pod)

    def _remove(self, unit: Unit) -> None:
        for pod in unit.pods:
            self._ground.world.cache.remove_pod(pod.uid)
