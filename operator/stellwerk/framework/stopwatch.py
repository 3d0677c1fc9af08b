"""How long extension points and plugins take; metrics live above this layer.

`point_runner` uses one for every run of a point, and for plugins one by one in sampled attempts;
`scheduler.observers.instruments` implements it. Invariant: what is measured is not changed.
"""

from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from typing_extensions import override

from stellwerk.framework.status import Code


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
