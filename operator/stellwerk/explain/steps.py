"""The type of long answers: computed in steps, between which decisions have their turn.

Every part of `explain` that the operator's port serves returns one. Invariant: a step takes
milliseconds, and the live World may change between two of them.
"""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from random import Random  # noqa: TID251 breaks ties of a fork, on which nothing hangs
from typing import Final, TypeAlias, TypeVar

from stellwerk.world.world import World
from stellwerk_kube.names import misspelt, suggestion

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]
"""Yields between steps, returns the result."""


_MAX_NAMES_PER_STEP: Final = 200
"""Names that are compared with a misspelt one before yielding."""


class OutOfTime(Exception):  # noqa: N818 no error
    """Is thrown into steps that have taken the time of an answer; they end with what they have."""


def on_fork(live: World, steps: Callable[[World], Steps[Result]]) -> Steps[Result]:
    """Steps on a fork of a World, which is dropped at their end, its results freed at once."""
    fork = live.fork(Random(0))
    try:
        yield
        return (yield from steps(fork))
    finally:
        fork.forget_results()


def finished(steps: Steps[Result]) -> Result:
    """The result of all steps, taken at once: for where no decision waits behind them."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: Result = ended.value
            return result


def suggested(name: str, known: Iterable[str]) -> Steps[str]:
    """The `suggestion` out of any number of names; where time runs out, out of the first ones."""
    nearest = yield from nearest_name(name, known)
    return suggestion(name, [] if nearest is None else [nearest])


def nearest_name(name: str, known: Iterable[str]) -> Steps[str | None]:
    """The name that a misspelt one nearly is, out of any number; None: none is near.

    Where time runs out, it is the nearest of the first ones.
    """
    nearest: str | None = None
    left = iter(known)
    try:
        while names := list(islice(left, _MAX_NAMES_PER_STEP)):
            nearest = misspelt(name, names if nearest is None else [nearest, *names])
            yield
    except OutOfTime:
        pass
    return nearest
