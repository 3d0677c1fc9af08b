"""The way of one pod: which modules it goes through, from its first watch event to its binding.

`python -m tests.structure.pod_way` prints the way, module by module, and what it counts. Counted is
each time control enters a named function of `stellwerk` (a coroutine also when it goes on), by the
profile of one pod that an operator in process schedules after a few alike: its ADDED event, the
scheduling cycle, the binding, the MODIFIED event that confirms it. Comprehensions, generator
expressions and lambdas have no name and are not counted, nor are returns, nor what the test's event
loop asks the clock that it shares with the operator. Readings of the clock by the operator count
like any other call, and the pods come without `spec.priority`, which then has to be resolved.
A module counts once however often the way comes back to it; a change of module is two entries in a
row in different modules, those of plugins, models, metrics and clock among them.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import FrameType
from typing import Final

from stellwerk.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

BESIDE: Final = ("plugins", "models", "metrics", "series", "clock")
"""What the way cannot avoid, and a reader looks up when needed: each plugin is a module."""

_PACKAGE: Final = "stellwerk."
_NODES: Final = 3
_WARM_UP_PODS: Final = 5
"""After these, everything is made and cached that the first pods of a kind make."""


@dataclass(frozen=True, slots=True)
class PodWay:
    """The functions that one pod's way enters, in order."""

    entered: Sequence[tuple[str, str]]
    """(module, function)."""

    @property
    def modules(self) -> list[str]:
        """Every module, in the order in which the way first comes to it."""
        return list(dict.fromkeys(module for module, _ in self.entered))

    @property
    def modules_to_read(self) -> list[str]:
        """The modules beside plugins, models, metrics and clock."""
        return [module for module in self.modules if module.split(".")[1] not in BESIDE]

    @property
    def changes(self) -> int:
        """How often the way goes from one module to another."""
        return sum(before != after for (before, _), (after, _) in pairwise(self.entered))


def pod_way() -> PodWay:
    """Profile one pod; no timer interferes, because time stands still while anything happens.

    Raises:
        AssertionError: the pod is not bound, or its binding not confirmed.
    """
    return run_skipping(_profile_one)


async def _profile_one(clock: VirtualClock) -> PodWay:
    async with running(clock) as world:
        world.apply(make_profile("stellwerk"))
        world.apply(*(make_node(f"node-{number}") for number in range(_NODES)))
        for number in range(_WARM_UP_PODS):
            await _schedule(world, f"before-{number}")
        entered: list[tuple[str, str]] = []
        with _profiled(entered):
            await _schedule(world, "web")
        assert world.node_of("web") is not None
        assert world.metrics.cache_size.labels("assumed_pods").current() == 0
    return PodWay(entered)


async def _schedule(world: InProcess, name: str) -> None:
    world.apply(make_pod(name, cpu="100m", scheduler_name="stellwerk"))
    await quiet()


@contextmanager
def _profiled(entered: list[tuple[str, str]]) -> Iterator[None]:
    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            module = frame.f_globals.get("__name__", "")
            caller = frame.f_back.f_globals.get("__name__") if frame.f_back else None
            if module.startswith(_PACKAGE) and caller != run_skipping.__module__:
                entered.append((module, frame.f_code.co_qualname.rpartition("<locals>.")[2]))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def lines(way: PodWay) -> Iterator[str]:
    """A line for each stay in one module, with the functions entered; last, what is counted."""
    for module, stay in groupby(way.entered, key=lambda entry: entry[0]):
        yield f"{module.removeprefix(_PACKAGE):38} {' '.join(name for _, name in stay)}"
    yield (
        f"{len(way.modules_to_read)} modules beside {', '.join(BESIDE)}; "
        f"{len(way.modules)} in all; {way.changes} changes of module"
    )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(pod_way()))
