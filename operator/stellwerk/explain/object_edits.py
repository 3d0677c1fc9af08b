"""Edits of objects that plugins propose, tried one after the other, in pairs if none helps alone.

The explanation of a pod asks for them, on a fork. Invariant: nothing is suggested that was not put
into the fork's objects and decided anew; the objects are as before when a try is over.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import combinations, islice
from typing import Final

import numpy as np

from stellwerk.explain.steps import Steps
from stellwerk.framework.changes import EditObject
from stellwerk.framework.types import CycleState
from stellwerk.models.answers.suggestion import ChangeFields, Suggestion
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import RowColumn
from stellwerk.world.decide import find_nodes
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

_MOST_TRIES: Final = 48
_SHOWN: Final = 5
_AT_ONCE: Final = -1.0
"""A slice that is over with the first node: how much is done in one go is the caller's affair."""


def searched(world: World, pod: PodInfo, profile: ServedProfile) -> Iterator[None]:
    """Search the nodes for a pod's devices step by step, so that asking about it is quick."""
    if not pod.spec.resource_claims and not pod.extended_requests:
        return
    state = CycleState()
    state.slice_seconds = _AT_ONCE
    find_nodes(world, pod, profile, state, thorough=True)
    if state.unfinished is not None:
        yield from state.unfinished


def suggested_edits(
    world: World, pod: PodInfo, profile: ServedProfile, edits: Sequence[EditObject]
) -> Steps[list[Suggestion]]:
    """The edits that help, in the order in which they were proposed.

    Raises:
        PluginFailure: a plugin raised.
    """
    tries = _Tries(world, pod, profile)
    yield from tries.run([(edit,) for edit in edits[:_MOST_TRIES]])
    if not tries.found:
        yield from tries.run(list(islice(combinations(edits, 2), _MOST_TRIES)))
    return tries.found


class _Tries:
    def __init__(self, world: World, pod: PodInfo, profile: ServedProfile) -> None:
        self._world = world
        self._pod = pod
        self._profile = profile
        self._helped: set[str] = set()
        self.found: list[Suggestion] = []

    def run(self, choices: Iterable[Sequence[EditObject]]) -> Iterator[None]:
        """Try each, and keep what helps."""
        for edits in choices:
            groups = {edit.group for edit in edits} - {""}
            if groups & self._helped:
                continue
            rows = yield from self._rows(edits)
            if len(rows):
                self._helped |= groups
                self.found.append(self._suggestion(edits, rows))
            yield

    def _rows(self, edits: Sequence[EditObject]) -> Steps[RowColumn]:
        """The rows that take the pod after the edits; the objects are as before then."""
        before = {(edit.object_kind, edit.target): edit.obj for edit in edits}
        after = deepcopy(before)
        for edit in edits:
            edit.edit(after[edit.object_kind, edit.target])
        objects = self._world.objects
        try:
            for (kind, _), obj in after.items():
                objects.set(kind, obj)
            yield from searched(self._world, self._pod, self._profile)
            found = find_nodes(self._world, self._pod, self._profile, thorough=True).found
        finally:
            for (kind, _), obj in before.items():
                objects.set(kind, obj)
        return np.flatnonzero(found.fits)

    def _suggestion(self, edits: Sequence[EditObject], rows: RowColumn) -> Suggestion:
        changes = [
            ChangeFields(kind=edit.kind, claim=edit.target, change=edit.text) for edit in edits
        ]
        return Suggestion(
            text=" and ".join(edit.text for edit in edits),
            changes=changes,
            feasible_nodes=len(rows),
            nodes=self._world.cache.snapshot.names(rows[:_SHOWN].tolist()),
            alternatives=[],
        )
