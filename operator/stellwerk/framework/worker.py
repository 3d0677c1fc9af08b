"""Computations that a plugin does not wait for: submitted in one cycle, read in a later one.

Plugins submit, `app` and simulations compute. Invariant: submitting and reading never wait; the
arguments can be pickled, because they may go to another process.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class PendingResult(Protocol[Result_co]):
    """A task that was handed over, under way."""

    def ready(self) -> bool:
        """Return whether there is a result, or a failure."""
        ...

    def result(self) -> Result_co:
        """Return the result, or raise what went wrong; asked only when it is ready."""
        ...


class Worker(Protocol):
    """Computes elsewhere."""

    def compute(self, work: Callable[[], Result]) -> PendingResult[Result]:
        """Begin; `work` is a function of a module, or a partial of one."""
        ...


class _Never(PendingResult[Result], Generic[Result]):
    """Not begun."""

    @override
    def ready(self) -> bool:
        return False

    @override
    def result(self) -> Result:
        message = "nothing was computed"
        raise LookupError(message)


class NoWorker(Worker):
    """Computes nothing: decisions made for explanations start no work."""

    @override
    def compute(self, work: Callable[[], Result]) -> PendingResult[Result]:
        return _Never()
