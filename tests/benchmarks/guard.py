"""`make bench-guard`: calls and memory a pod, by stage of its way, against a committed baseline.

    python -m tests.benchmarks.guard            compare with the baseline of this Python
    python -m tests.benchmarks.guard --write    make the figures of now the baseline

Noise of the machine changes neither number: a fixed, seeded run of each workload in process, from a
pod's first event to the event that confirms its binding, in virtual time. Calls are Python's and
those into C; memory is the most that a stage held beyond what it found, in sum over its entries.
More than 5 % over the baseline in any stage fails, and names the stage. The baseline is one for
each minor version of Python; the lock files pin the rest.
"""

import argparse
import gc
import json
import os
import sys
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, Final

from stellwerk.backend.cache import Cache
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.framework.filter_phase import FilterPhase
from stellwerk.framework.score_phase import ScorePhase
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk_kube.clock import VirtualClock
from stellwerk_simulation.workloads import KINDS
from tests.benchmarks.workloads import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

BASELINE: Final = Path(__file__).with_name("guard.json")
ALLOWED: Final = 0.05
_SLACK: Final = {"calls": 2.0, "bytes": 512.0}
"""What is below it is not worth a word, however large a share it is."""
NODES: Final = 200
WARM_UP, PODS, AT_ONCE = 10, 40, 10
_TURNS: Final = 120
REST: Final = "rest"
SEAMS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    "event": (EventHandlers.on_pod,),
    "queue": (
        SchedulingQueue.add,
        SchedulingQueue.pop,
        SchedulingQueue.done,
        SchedulingQueue.delete,
        SchedulingQueue.move_all_to_active_or_backoff,
    ),
    "update snapshot": (Cache.update_snapshot,),
    "filter": (FilterPhase.find_feasible,),
    "score": (ScorePhase.prioritize,),
    "assume": (Cache.assume_pod,),
    "cycle around": (ScheduleOne.schedule_one,),
    "binding": (BindingCycle.run,),
}
"""The functions in which a stage begins; whatever they call is theirs up to the next stage."""

Figures = dict[str, dict[str, float]]
"""Calls and bytes a pod, by stage."""


class Meter:
    """Counts by stage, as `sys.setprofile` tells of calls and returns."""

    def __init__(self, *, memory: bool) -> None:
        self._stages: dict[CodeType, str] = {
            function.__code__: stage for stage, functions in SEAMS.items() for function in functions
        }
        self._memory = memory
        self.counts: dict[str, float] = defaultdict(float)
        self._stack: list[str] = [REST]
        self._held: list[list[int]] = []
        """Of each open stage, the memory at its beginning and the most since."""

    def start(self) -> None:
        """Count from now on."""
        if self._memory:
            tracemalloc.start()
        sys.setprofile(self._stages_only if self._memory else self._every_call)

    def stop(self) -> None:
        """Count no more."""
        sys.setprofile(None)
        if self._memory:
            tracemalloc.stop()

    def _every_call(self, frame: FrameType, event: str, _: object) -> None:
        if event == "c_call":
            self.counts[self._stack[-1]] += 1
        elif event == "call":
            stage = self._stages.get(frame.f_code)
            if stage is not None:
                self._stack.append(stage)
            self.counts[self._stack[-1]] += 1
        elif event == "return" and frame.f_code in self._stages and len(self._stack) > 1:
            self._stack.pop()

    def _stages_only(self, frame: FrameType, event: str, _: object) -> None:
        if event not in {"call", "return"}:
            return
        stage = self._stages.get(frame.f_code)
        if stage is None:
            return
        now, peak = tracemalloc.get_traced_memory()
        if self._held:
            self._held[-1][1] = max(self._held[-1][1], peak)
        if event == "call":
            self._held.append([now, now])
        elif self._held:
            found, most = self._held.pop()
            self.counts[stage] += most - found
            if self._held:
                self._held[-1][1] = max(self._held[-1][1], most)
        tracemalloc.reset_peak()


async def _pods_come(world: InProcess, kind: str, first: int, number: int) -> None:
    for begin in range(first, first + number, AT_ONCE):
        pods = [make_pod(kind, index) for index in range(begin, begin + AT_ONCE)]
        world.apply(*pods)
        await quiet(_TURNS)
        unbound = [pod["metadata"]["name"] for pod in pods if not world.node_of(_name(pod))]
        if unbound:
            raise RuntimeError(f"{kind}: not bound, so that the figures mean nothing: {unbound}")


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def counted(kind: str, *, memory: bool) -> dict[str, float]:
    """Calls, or bytes, a pod of a workload by stage."""
    meter = Meter(memory=memory)

    async def play(clock: VirtualClock) -> None:
        async with running(clock, numbers=lambda _: Random(1)) as world:
            world.apply(make_profile("stellwerk"))
            world.apply(*(make_node(index) for index in range(NODES)))
            await _pods_come(world, kind, 0, WARM_UP)
            gc.collect()
            gc.disable()
            meter.start()
            try:
                await _pods_come(world, kind, WARM_UP, PODS)
            finally:
                meter.stop()
                gc.enable()

    run_skipping(play)
    return {stage: round(count / PODS, 1) for stage, count in sorted(meter.counts.items())}


def figures_of(kind: str) -> Figures:
    """Calls and bytes a pod by stage."""
    calls, held = counted(kind, memory=False), counted(kind, memory=True)
    stages = [*SEAMS, REST]
    return {
        stage: {"calls": calls.get(stage, 0.0), "bytes": held.get(stage, 0.0)} for stage in stages
    }


def complaints(kind: str, now: Figures, before: Figures) -> list[str]:
    """What is more than 5 % over the baseline, a line each."""
    found = []
    for stage, figures in now.items():
        for name, value in figures.items():
            base = before.get(stage, {}).get(name, 0.0)
            if value > base * (1 + ALLOWED) and value - base > _SLACK[name]:
                more = f", {100 * (value / base - 1):+.1f} %" if base else ""
                found.append(
                    f"{kind}: {stage}: {value:,.1f} {name} a pod, {base:,.1f} before{more}"
                )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="make this the baseline")
    parser.add_argument("--kind", choices=KINDS, action="append", help="these workloads only")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts are gone through in another order with each seed, and sizes differ.
        command = [sys.executable, "-m", "tests.benchmarks.guard", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    known: dict[str, dict[str, Figures]] = (
        json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    )
    if minor not in known and not options.write:
        print(f"there is no baseline for Python {minor}: make bench-guard-baseline")
        return 1
    found: list[str] = []
    measured: dict[str, Figures] = {}
    for kind in options.kind or KINDS:
        now = measured[kind] = figures_of(kind)
        total = {name: sum(each[name] for each in now.values()) for name in _SLACK}
        print(f"{kind:12} {total['calls']:8,.0f} calls {total['bytes']:10,.0f} bytes a pod")
        found += complaints(kind, now, known.get(minor, {}).get(kind, {}))
    if options.write:
        known[minor] = {**known.get(minor, {}), **measured}
        BASELINE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        return 0
    print("\n".join(found) or "no stage is more than 5 % over the baseline")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
