"""`stellwerk` with a meter at the seams: what each stage of a pod's way costs, from inside.

`python -m tests.benchmarks.stages FILE run …` runs the command line after FILE, and writes CPU
microseconds by stage to FILE when it ends. Nothing of it is in the product: the seams are wrapped
here. A stage's time is its own, without the stages that it calls; what is left over is the event
loop, HTTP parsing, and kopf.
"""

import json
import sys
import time
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.client.event_recorder import EventRecorder
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.framework.filter_phase import FilterPhase
from stellwerk.framework.score_phase import ScorePhase
from stellwerk.handlers.delivery import Delivery
from stellwerk.plugins.default_preemption.plugin import DefaultPreemption
from stellwerk.scheduler import event_handlers
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.preemption import Evictor
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk_cli import cli

Answer = TypeVar("Answer")

_SEAMS: Final[dict[str, tuple[tuple[type[Any], str], ...]]] = {
    "deliver": ((Delivery, "deliver"),),
    "event: unbound pod": ((EventHandlers, "_pod_unbound"),),
    "confirm": ((EventHandlers, "_pod_bound"),),
    "queue": tuple(
        (SchedulingQueue, name)
        for name in ("add", "pop", "done", "delete", "move_all_to_active_or_backoff")
    ),
    "update snapshot": ((Cache, "update_snapshot"),),
    "filter": ((FilterPhase, "find_feasible"),),
    "score": ((ScorePhase, "prioritize"),),
    "assume": ((Cache, "assume_pod"),),
    "cycle around": ((ScheduleOne, "schedule_one"),),
    "binding task": ((BindingCycle, "run"),),
    "bind request": ((KubernetesClient, "bind"),),
    "record event": ((EventRecorder, "event"),),
    "event request": ((KubernetesClient, "write_event"), (EventRecorder, "_write_once")),
    "bound": ((BindingCycle, "_bound"),),
    "task": ((BindingTasks, "start"), (BindingTasks, "_ended")),
    "search for victims": ((DefaultPreemption, "post_filter"),),
    "failed attempt": ((FailureHandler, "handle"), (FailureHandler, "carry_out")),
    "eviction": ((Evictor, "evict"),),
    "condition request": ((KubernetesClient, "patch_pod_status"),),
    "delete request": ((KubernetesClient, "delete_pod"),),
    "event: pod gone": ((EventHandlers, "_pod_gone"),),
}
_STARTS: Final = frozenset({"binding task", "search for victims"})
"""Once one of these has run, the first list is over: what came before is not a pod's cost."""


class Meter:
    """CPU nanoseconds and calls by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._inner = [0]
        """Time of nested stages, one entry per stage that is running."""
        self.total_from: int | None = None

    def begin(self) -> int:
        """Start a stage; the time to be handed to `end`."""
        self._inner.append(0)
        return time.thread_time_ns()

    def end(self, stage: str, started: int) -> None:
        """End the stage that was started last."""
        took = time.thread_time_ns() - started
        own = took - self._inner.pop()
        self._inner[-1] += took
        if self.total_from is None:
            if stage not in _STARTS:
                return
            self.total_from = time.thread_time_ns()
        self.spent[stage] = self.spent.get(stage, 0) + own

    def count(self, stage: str) -> None:
        """One call more."""
        self.calls[stage] = self.calls.get(stage, 0) + 1

    def figures(self) -> dict[str, Any]:
        """Microseconds per scheduled pod, and the number of pods that were evicted for them."""
        pods = max(1, self.calls.get("bind request", 0))
        total = time.thread_time_ns() - (self.total_from or time.thread_time_ns())
        by_stage = {stage: round(spent / pods / 1000, 1) for stage, spent in self.spent.items()}
        by_stage["everything else"] = round((total - sum(self.spent.values())) / pods / 1000, 1)
        victims = self.calls.get("delete request", 0)
        return {
            "pods": pods,
            "victims": victims,
            "us_per_pod": by_stage,
            "total_us": round(total / pods / 1000, 1),
        }


class _Metered(Coroutine[Any, Any, Answer]):
    """A coroutine whose every step is measured."""

    def __init__(self, inner: Coroutine[Any, Any, Answer], meter: Meter, stage: str) -> None:
        self._inner, self._meter, self._stage = inner, meter, stage

    @override
    def send(self, value: Any) -> Any:
        started = self._meter.begin()
        try:
            return self._inner.send(value)
        finally:
            self._meter.end(self._stage, started)

    @override
    def throw(self, *error: Any) -> Any:
        started = self._meter.begin()
        try:
            return self._inner.throw(*error)
        finally:
            self._meter.end(self._stage, started)

    @override
    def close(self) -> None:
        self._inner.close()

    @override
    def __await__(self) -> Generator[Any, Any, Answer]:
        value = None
        while True:
            try:
                waiting_for = self.send(value)
            except StopIteration as stop:
                answer: Answer = stop.value
                return answer
            try:
                value = yield waiting_for
            except BaseException as error:  # noqa: BLE001 handed on to the coroutine
                try:
                    yield self.throw(error)
                except StopIteration as stop:
                    answer = stop.value
                    return answer


def _metered(call: Callable[..., Any], meter: Meter, stage: str) -> Callable[..., Any]:
    @wraps(call)
    def around(*arguments: Any, **named: Any) -> Any:
        meter.count(stage)
        started = meter.begin()
        try:
            answer = call(*arguments, **named)
        finally:
            meter.end(stage, started)
        return _Metered(answer, meter, stage) if isinstance(answer, Coroutine) else answer

    return around


def install() -> Meter:
    """Wrap every seam."""
    meter = Meter()
    for stage, seams in _SEAMS.items():
        for owner, name in seams:
            setattr(owner, name, _metered(getattr(owner, name), meter, stage))
    for name in ("parse_pod", "parse_node"):
        setattr(event_handlers, name, _metered(getattr(event_handlers, name), meter, "parse"))
    return meter


def main() -> int:
    """Run the command line, and write the figures when it ends."""
    meter = install()
    try:
        return cli.main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text(json.dumps(meter.figures(), indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
