"""What plugins remember during one scheduling attempt.

The runtime makes one per attempt and passes it to every extension point. Invariant: nothing in it
outlives the attempt.
"""

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stellwerk.framework.status import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.pod import PodInfo
    from stellwerk.models.pod_group_key import PodGroupKey
    from stellwerk.snapshot.columns import Mask

Value = TypeVar("Value")


class PointRun(NamedTuple):
    """All plugins of an extension point have run."""

    label: str
    """The point as kube-scheduler's metrics write it ("PreFilter")."""
    code: Code
    seconds: float
    skipped: AbstractSet[str] | None
    """All plugins of the point but these were evaluated; None: that is not counted."""


class CycleState:
    """Values by key (a plugin uses its own name), and which plugins skipped their coupled point."""

    __slots__ = (
        "_values",
        "among",
        "broken_filter",
        "group",
        "pods_to_activate",
        "point_runs",
        "sampled",
        "skipped_filters",
        "skipped_pre_binds",
        "skipped_scores",
        "turn_seconds",
        "unfinished",
    )

    def __init__(self, *, sampled: bool = False) -> None:
        """`sampled`: plugins are timed one by one in this attempt."""
        self.sampled = sampled
        self._values: dict[str, Any] = {}
        self.among: Mask | None = None
        """(N,) bool, the only rows that exist for this attempt; None: all of them."""
        self.group: PodGroupKey | None = None
        """The group with which the pod is decided; None: it is decided by itself."""
        self.broken_filter: Status | None = None
        """What ends the attempt: a costly filter has an error for a node that others let pass."""
        self.skipped_filters: set[str] = set()
        """Plugins whose PreFilter answered Skip."""
        self.skipped_scores: set[str] = set()
        """Plugins whose PreScore answered Skip."""
        self.skipped_pre_binds: set[str] = set()
        """Plugins whose PreBindPreFlight answered Skip."""
        self.point_runs: list[PointRun] = []
        """What was measured; `Stopwatch.attempt` takes it after the cycle and after the binding."""
        self.pods_to_activate: dict[str, PodInfo] = {}
        """Pods (by uid) that a plugin wants moved to activeQ at the end of the cycle."""
        self.turn_seconds: float | None = None
        """How long a costly filter may take at once; None: as long as it needs."""
        self.unfinished: Iterator[None] | None = None
        """What a costly filter has left undone when that time was over."""

    def begin_anew(self) -> None:
        """Forget what was found: the attempt is made once more."""
        fresh = CycleState(sampled=self.sampled)
        fresh.among, fresh.group = self.among, self.group
        for slot in self.__slots__:
            setattr(self, slot, getattr(fresh, slot))

    def write(self, key: str, value: object) -> None:
        """Remember a value."""
        self._values[key] = value

    def read(self, key: str, kind: type[Value]) -> Value:
        """A value written earlier in the attempt.

        Raises:
            LookupError: nothing of that kind was written.
        """
        value = self._values.get(key)
        if not isinstance(value, kind):
            message = f"cycle state holds no {kind.__name__} under {key!r}"
            raise LookupError(message)  # noqa: TRY004 nothing was written, whatever lies there
        return value

    def get(self, key: str, kind: type[Value]) -> Value | None:
        """A value written earlier in the attempt, or None."""
        value = self._values.get(key)
        return value if isinstance(value, kind) else None
