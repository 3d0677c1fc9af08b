"""Which rows changed since they were looked at for pods of one spec.

Statuses that are kept between cycles and outcomes of dry runs that are kept ask it. Invariant: a
row is stale if its node, a pod on it or a nomination that counts there changed since `note`.
"""

from stellwerk.framework.interface import Nominations
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot


class RowsSeen:
    """See the module docstring."""

    __slots__ = ("_nominations", "_nominations_seen", "_own", "_usage_seen")

    def __init__(self, nominations: Nominations) -> None:
        self._nominations = nominations
        self._usage_seen = self._nominations_seen = 0
        self._own = ("", "")
        """(uid, node) of the pod whose own nomination was left out: it counts for all others."""

    def stale(self, snapshot: Snapshot, pod: PodInfo) -> set[int] | None:
        """The rows to look at again for this pod, free ones too; None: too long ago to tell."""
        rows = snapshot.usage_changes.since(self._usage_seen)
        names = self._nominations.changes.since(self._nominations_seen)
        if rows is None or names is None:
            return None
        own = self._own_of(pod)
        if own != self._own:
            names = [*names, self._own[1], own[1]]
        row_of = snapshot.row_of
        return {*rows, *(row_of[name] for name in names if name in row_of)}

    def note(self, snapshot: Snapshot, pod: PodInfo) -> None:
        """Every row has been looked at for this pod."""
        self._usage_seen = snapshot.usage_changes.position
        self._nominations_seen = self._nominations.changes.position
        self._own = self._own_of(pod)

    def _own_of(self, pod: PodInfo) -> tuple[str, str]:
        return pod.uid, self._nominations.node_of(pod.uid)
