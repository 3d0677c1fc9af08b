"""Results of dry runs that still hold: hundreds of pods that preempt at once mostly share a spec.

The dry run asks before it tries a node, and adds what it found. Invariant: a result is handed out
only while the node, every pod on it, the pods nominated to it and all budgets are the very objects
that it was found with; its victims are therefore the newest records of these pods.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, TypeAlias

from stellwerk.framework.interface import Candidate
from stellwerk.framework.result_cache import VerdictCursor
from stellwerk.framework.services import Handle
from stellwerk.framework.types import Status
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.preemption.disruption_budgets import KIND
from stellwerk.snapshot.columns import ChangeCursor

MAX_SPECS: Final = 4
"""Results for pods of so many specs are held at a time."""

Outcome: TypeAlias = Candidate | Status
Outcomes: TypeAlias = dict[int, Outcome]
"""By row, what was found there."""


class DryRunResults:
    """The outcomes by spec, of the specs that were asked for last."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._budgets = ChangeCursor(handle.objects.changes(KIND))
        self._of_key: OrderedDict[Hashable, _SpecResults] = OrderedDict()

    def of(self, key: Hashable, pod: PodInfo) -> Outcomes:
        """What holds for a pod, found for others of the same key; the caller adds to it."""
        if not self._budgets.current:
            self._budgets.catch_up()
            self._of_key.clear()
        results = self._of_key.get(key)
        if results is None:
            while len(self._of_key) >= MAX_SPECS:
                self._of_key.popitem(last=False)
            results = self._of_key[key] = _SpecResults(self._handle)
        self._of_key.move_to_end(key)
        results.forget_changed(pod)
        return results.outcomes


class _SpecResults:
    """Outcomes for pods of one key, and up to which changes they hold."""

    def __init__(self, handle: Handle) -> None:
        self.outcomes: Outcomes = {}
        self._verdicts = VerdictCursor(handle.snapshot, handle.nominations)
        self._records = ChangeCursor(handle.snapshot.record_changes)

    def forget_changed(self, pod: PodInfo) -> None:
        """Drop what was found on rows that changed since the last call."""
        rows, records = self._verdicts.changed(pod), self._records.advance()
        self._verdicts.catch_up(pod)
        if rows is None or records is None:
            self.outcomes.clear()
            return
        for row in rows.union(records):
            self.outcomes.pop(row, None)
