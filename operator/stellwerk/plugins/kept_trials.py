"""Outcomes of dry runs that still hold, for pods that preempt in crowds: most share a spec.

The dry run asks before it tries a node, and tells what it found. Invariant: an outcome is handed
out only while the node, every pod on it, the pods nominated to it and all budgets are the very
objects that it was found with; its victims are therefore the newest records of these pods.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, TypeAlias

from stellwerk.framework.interface import Candidate, Handle
from stellwerk.framework.status import Status
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo

MAX_SPECS: Final = 4
"""Crowds of so many kinds are remembered at a time."""

Outcome: TypeAlias = Candidate | Status
Trials: TypeAlias = "dict[int, tuple[Circumstances, Outcome]]"
"""By row, what was found there, and when that holds."""


class Circumstances(NamedTuple):
    """All that an outcome on one node depends on, beside the spec and the budgets."""

    node: NodeInfo | None
    pods: Sequence[PodInfo]
    nominated: Sequence[PodInfo]
    """Only those that count against the pod."""


class KeptTrials:
    """See the module docstring."""

    def __init__(self) -> None:
        self._budgets_version = -1
        self._of_key: OrderedDict[Hashable, Trials] = OrderedDict()

    def of(self, key: Hashable, budgets_version: int) -> Trials:
        """What was found for pods of one key; the caller adds to it."""
        if budgets_version != self._budgets_version:
            self._of_key.clear()
            self._budgets_version = budgets_version
        found = self._of_key.get(key)
        if found is None:
            while len(self._of_key) >= MAX_SPECS:
                self._of_key.popitem(last=False)
            found = self._of_key[key] = {}
        self._of_key.move_to_end(key)
        return found


def circumstances(handle: Handle, pod: PodInfo, row: int) -> Circumstances:
    """What an outcome on this row depends on now."""
    snapshot, nominations = handle.snapshot, handle.nominations
    node = snapshot.nodes[row]
    nominated = [] if node is None else nominations.against(pod, node.name)
    return Circumstances(node, list(snapshot.pods[row].values()), nominated)
