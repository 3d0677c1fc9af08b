"""Worker work of a simulation: done at once, delivered after a stretch of virtual time.

Worlds of simulations carry it. Invariant: what is ready depends on virtual time alone, so that a
seed gives the same run on every machine.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from typing_extensions import override

from stellwerk.clock import Clock
from stellwerk.framework.worker import PendingResult, Worker

Result = TypeVar("Result")


class VirtualWorker(Worker):
    """Takes the stretch that it is made with, however long the work really takes."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    @override
    def compute(self, work: Callable[[], Result]) -> PendingResult[Result]:
        return _Delivered(work(), self._clock, self._clock.monotonic() + self._seconds)


class _Delivered(PendingResult[Result], Generic[Result]):
    def __init__(self, value: Result, clock: Clock, at_seconds: float) -> None:
        self._value, self._clock, self._at_seconds = value, clock, at_seconds

    @override
    def ready(self) -> bool:
        return self._clock.monotonic() >= self._at_seconds

    @override
    def result(self) -> Result:
        return self._value
