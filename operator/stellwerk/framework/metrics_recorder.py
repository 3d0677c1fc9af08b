"""Protocol of the durations of extension points and plugins; metrics live above this layer.

`PointRunner` notes every run of a point in the attempt, and reports single plugins in sampled
attempts; `scheduler.observers.instruments` implements it. Invariant: measuring changes no result.
"""

from typing import Final, Protocol

from typing_extensions import override

from stellwerk.framework.types import Code, CycleState


class MetricsRecorder(Protocol):
    """Takes the durations of one profile.

    A `label` is the extension point as kube-scheduler's metrics write it ("PreFilter").
    """

    def started(self) -> float:
        """The time now, to be handed back."""
        ...

    def attempt(self, state: CycleState) -> None:
        """The runs of extension points that an attempt has noted since the last call."""
        ...

    def point(self, label: str, code: Code, seconds: float) -> None:
        """All plugins of an extension point have run."""
        ...

    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        """One plugin has run, in an attempt that is sampled."""
        ...


class Unmeasured(MetricsRecorder):
    """Measures nothing: for decisions outside the scheduler."""

    @override
    def started(self) -> float:
        return 0.0

    @override
    def attempt(self, state: CycleState) -> None:
        pass

    @override
    def point(self, label: str, code: Code, seconds: float) -> None:
        pass

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        pass


UNMEASURED: Final = Unmeasured()
