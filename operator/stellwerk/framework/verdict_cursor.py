"""Which rows may be judged otherwise than before, for pods of one spec.

Statuses that are cached between cycles and results of dry runs follow it. Invariant: a row is named
if its node, a pod on it or a nomination that counts there changed since `catch_up`.
"""

from stellwerk.framework.services import Nominations
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import ChangeCursor, RowCursor
from stellwerk.snapshot.snapshot import Snapshot


class VerdictCursor:
    """A cursor over the rows' usage and the nominations to their nodes."""

    __slots__ = ("_nominations", "_nominees", "_own", "_snapshot", "_usage")

    def __init__(self, snapshot: Snapshot, nominations: Nominations) -> None:
        self._snapshot = snapshot
        self._nominations = nominations
        self._usage = RowCursor(snapshot, snapshot.usage_changes)
        self._nominees = ChangeCursor(nominations.changes)
        self._own = ("", "")
        """(uid, node) of the pod whose own nomination was left out: it counts for all others."""

    def changed(self, pod: PodInfo) -> set[int] | None:
        """The rows to look at again for this pod, free ones too; None: all of them."""
        rows, names = self._usage.changed(), self._nominees.changed()
        if rows is None or names is None:
            return None
        own = self._own_of(pod)
        if own != self._own:
            names = [*names, self._own[1], own[1]]
        row_of = self._snapshot.row_of
        return {*rows, *(row_of[name] for name in names if name in row_of)}

    def catch_up(self, pod: PodInfo) -> None:
        """Every row has been looked at for this pod."""
        self._usage.catch_up()
        self._nominees.catch_up()
        self._own = self._own_of(pod)

    def _own_of(self, pod: PodInfo) -> tuple[str, str]:
        return pod.uid, self._nominations.node_of(pod.uid)
