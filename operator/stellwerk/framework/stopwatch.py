"""How long extension points and plugins take; metrics live above this layer.

The runtime measures every point with a Timing, and plugins one by one in attempts that are sampled.
Invariant: a point that raises is measured, too, with code Error.
"""

from collections.abc import Set as AbstractSet
from typing import Final, Protocol, Self

from typing_extensions import override

from stellwerk.framework.status import Code, Status


class Stopwatch(Protocol):
    """Takes the durations of one profile.

    A `label` is the extension point as kube-scheduler's metrics write it ("PreFilter").
    """

    def started(self) -> float:
        """The time now, to be handed back."""
        ...

    def point(self, label: str, code: Code, started: float) -> None:
        """All plugins of an extension point have run."""
        ...

    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        """One plugin has run, in an attempt that is sampled."""
        ...

    def evaluated(self, label: str, skipped: AbstractSet[str]) -> None:
        """The plugins of a point were asked in an attempt, but for those that skipped."""
        ...


class Unmeasured(Stopwatch):
    """Measures nothing: for decisions outside the scheduler."""

    @override
    def started(self) -> float:
        return 0.0

    @override
    def point(self, label: str, code: Code, started: float) -> None:
        pass

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        pass

    @override
    def evaluated(self, label: str, skipped: AbstractSet[str]) -> None:
        pass


UNMEASURED: Final = Unmeasured()


class Timing:
    """One run of an extension point, measured from entering the context to leaving it."""

    __slots__ = ("_label", "_started", "_stopwatch", "code")

    def __init__(self, stopwatch: Stopwatch, label: str) -> None:
        self._stopwatch = stopwatch
        self._label = label
        self.code = Code.ERROR
        """How the run ended; Error until something else is noted."""

    def __enter__(self) -> Self:
        self._started = self._stopwatch.started()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopwatch.point(self._label, self.code, self._started)

    def noted(self, status: Status) -> Status:
        """The same status, with which the run ended."""
        self.code = status.code
        return status
