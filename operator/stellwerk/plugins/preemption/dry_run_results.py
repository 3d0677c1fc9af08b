"""Outcomes of dry runs that still hold, for pods that preempt in crowds: most share a spec.

The dry run asks before it tries a node, and tells what it found. Invariant: an outcome is handed
out only while the node, every pod on it, the pods nominated to it and all budgets are the very
objects that it was found with; its victims are therefore the newest records of these pods.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, TypeAlias

from stellwerk.framework.interface import Candidate, Handle
from stellwerk.framework.rows_seen import RowsSeen
from stellwerk.framework.status import Status
from stellwerk.models.pod import PodInfo

MAX_SPECS: Final = 4
"""Crowds of so many kinds are remembered at a time."""

Outcome: TypeAlias = Candidate | Status
Outcomes: TypeAlias = dict[int, Outcome]
"""By row, what was found there."""


class DryRunResults:
    """See the module docstring."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._budgets_version = -1
        self._of_key: OrderedDict[Hashable, _SpecResults] = OrderedDict()

    def of(self, key: Hashable, pod: PodInfo, budgets_version: int) -> Outcomes:
        """What holds for a pod, found for others of the same key; the caller adds to it."""
        if budgets_version != self._budgets_version:
            self._of_key.clear()
            self._budgets_version = budgets_version
        crowd = self._of_key.get(key)
        if crowd is None:
            while len(self._of_key) >= MAX_SPECS:
                self._of_key.popitem(last=False)
            crowd = self._of_key[key] = _SpecResults(self._handle)
        self._of_key.move_to_end(key)
        crowd.catch_up(pod)
        return crowd.trials


class _SpecResults:
    """Outcomes for pods of one key, and up to which changes they were looked through."""

    def __init__(self, handle: Handle) -> None:
        self.trials: Outcomes = {}
        self._snapshot = handle.snapshot
        self._seen = RowsSeen(handle.nominations)
        self._records_seen = 0

    def catch_up(self, pod: PodInfo) -> None:
        """Forget what was found on rows that changed since."""
        snapshot = self._snapshot
        rows = self._seen.stale(snapshot, pod)
        records = snapshot.record_changes.since(self._records_seen)
        if rows is None or records is None:
            self.trials.clear()
        else:
            for row in rows.union(records):
                self.trials.pop(row, None)
        self._seen.note(snapshot, pod)
        self._records_seen = snapshot.record_changes.position
