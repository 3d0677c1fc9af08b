"""How many members of a group could be held, kept up to date while pods come back to their nodes.

Group preemption asks it which victims can be spared. Invariant: the answer is never "too few" where
members would fit; where `is_exact`, it is never "enough" where they would not.
"""

from collections.abc import Sequence

import numpy as np

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import PODS
from stellwerk.world.gangs.attempt import Ground
from stellwerk.world.gangs.bounds import counted_resources, free, rows_but_for_resources


class Room:
    """What is free on each row for members as small as the smallest, in plain integers."""

    def __init__(
        self, ground: Ground, members: Sequence[PodInfo], needed: int, *, alike: bool
    ) -> None:
        """Count what is free now, members not placed.

        `alike`: the members are, and nothing but the node and its resources matters to filters, as
        `counts_exactly` says while all pods are there.
        """
        snapshot = ground.world.cache.update_snapshot()
        counted = sorted(counted_resources(ground, members))
        asked = members[0].amounts.requests.keys() - {PODS}
        self.is_exact = alike and bool(counted) and asked <= set(counted)
        exact = self.is_exact
        is_open = rows_but_for_resources(ground, members[0]) if exact else snapshot.alive
        self._row_of = snapshot.row_of
        self._needed = needed
        self._resources = [*counted, PODS] if counted else []
        self._least = [
            1 if each == PODS else min(pod.amounts.requests.get(each, 0) for pod in members)
            for each in self._resources
        ]
        self._free = [
            np.where(is_open, free(snapshot, each), -1).tolist() for each in self._resources
        ]
        self._open: list[bool] = is_open.tolist()
        self._wanted = [
            sum(sorted(pod.amounts.requests.get(each, 0) for pod in members)[:needed])
            for each in self._resources
        ]
        """What the smallest of them take, of each resource."""
        self._left = [sum(amount for amount in column if amount > 0) for column in self._free]
        self._most = needed if counted else 0
        self._held = [self._holds(row) for row in range(len(self._open))]
        self._total = sum(self._held)

    @property
    def is_enough(self) -> bool:
        """Whether enough members could be held."""
        return not self._resources or (
            self._total >= self._needed and all(map(int.__le__, self._wanted, self._left))
        )

    def takes_back(self, pods: Sequence[PodInfo]) -> bool:
        """Count pods on their nodes again, unless there would be too little room then."""
        self._change(pods, -1)
        if self.is_enough:
            return True
        self._change(pods, 1)
        return False

    def gives_up(self, pods: Sequence[PodInfo]) -> None:
        """Count pods no more that it took back."""
        self._change(pods, 1)

    def _change(self, pods: Sequence[PodInfo], change: int) -> None:
        for pod in pods:
            row = self._row_of.get(pod.node_name)
            if row is None or not self._open[row]:
                continue
            requests = pod.amounts.requests
            for index, resource in enumerate(self._resources):
                amount = 1 if resource == PODS else requests.get(resource, 0)
                if amount:
                    before = self._free[index][row]
                    after = self._free[index][row] = before + change * amount
                    self._left[index] += max(0, after) - max(0, before)
            held = self._holds(row)
            self._total += held - self._held[row]
            self._held[row] = held

    def _holds(self, row: int) -> int:
        """How many of the smallest a row could hold, or as many as are needed."""
        held = self._most if self._open[row] else 0
        for column, least in zip(self._free, self._least, strict=True):
            if least:
                held = min(held, max(0, column[row]) // least)
        return held
