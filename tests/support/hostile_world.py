"""What one object costs a running operator: the loop's longest step, and what stays in memory.

CPU time of the loop's thread is measured, so that other work on the machine does not count.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Self

import orjson

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.handlers.delivery import Delivery, beside_the_loop
from stellwerk.handlers.reflector import LARGE_EVENT_CHARACTERS
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """What an object cost."""

    stall_ms: float
    """The longest step of the loop while it was there: its events, decisions on it and others."""
    step: str
    """Which step that was."""
    left_mib: float
    """Allocated memory that stayed after its deletion."""
    message: str
    """Of its condition PodScheduled; empty: it has none."""


class LoopMeter:
    """The longest step of the event loop, in CPU time of its thread."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self.longest_step = ""
        self.total_seconds = 0.0
        self.phase = ""
        self._run = asyncio.Handle._run  # noqa: SLF001 a step of the loop has no public seam

    def __enter__(self) -> Self:
        run, own = self._run, asyncio.current_task()

        def timed(handle: asyncio.Handle) -> None:
            if _owner(handle) is own:
                run(handle)
            else:
                self.call(f"{self.phase}: the loop", lambda: run(handle))

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment] # noqa: SLF001
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign] # noqa: SLF001

    def call(self, name: str, step: Callable[[], object]) -> None:
        """Time one step."""
        started = time.thread_time()
        step()
        seconds = time.thread_time() - started
        self.total_seconds += seconds
        if seconds > self.longest_seconds:
            self.longest_seconds, self.longest_step = seconds, name


def _owner(handle: asyncio.Handle) -> object:
    """The task whose step it is; None: it is none."""
    return getattr(getattr(handle, "_callback", None), "__self__", None)


class HostileWorld:
    """A running operator that is shown objects as a watch shows them, and whose words are kept."""

    def __init__(self, world: InProcess) -> None:
        self.world = world
        self.messages: dict[str, str] = {}
        """Of the condition PodScheduled, by pod."""
        world.client.patch_pod_status = self._patch_pod_status  # type: ignore[method-assign]
        handlers = world.operator.handlers
        self._deliveries = {
            watched.kind: Delivery(watched, handlers, world.metrics, lambda *_: None)
            for watched in WATCHED
        }
        self._versions = count(1)

    async def cost_of(self, obj: JsonObject, *, memory: bool = True) -> Cost:
        """Show the object, decide on other pods beside it, add a node, delete all again."""
        gc.collect()
        with LoopMeter() as meter:
            await self.live_through(obj, meter)
        await quiet(1)
        message, left = self.messages.pop(obj["metadata"]["name"], ""), 0
        if memory:
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                await self.live_through(obj, LoopMeter())
                self.messages.clear()
                # The scheduler's beats do it, within a second and when a backoff has passed.
                self.world.cache.update_snapshot()
                self.world.clock.advance(Backoff().max_seconds + 1)
                self.world.queue.flush_backoff(self.world.clock.monotonic())
                await self._decide_once_more()
                # The thread drops what it has parsed when it turns to something else, which may be
                # after the loop has gone on; on a busy machine long after.
                await beside_the_loop(lambda: None)
                gc.collect()
                left = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
        return Cost(1e3 * meter.longest_seconds, meter.longest_step, left / MIB, message)

    async def live_through(self, obj: JsonObject, meter: LoopMeter) -> None:
        """The life of an object, with a pod, a node and an update beside it."""
        world = self.world
        await self.show(meter, "ADDED", obj)
        await self.show(meter, "ADDED", make_pod("other", cpu="100m", labels={"app": "x"}))
        await self.show(meter, "ADDED", late := make_node("late", labels={"app": "x"}))
        touched = {**obj, "metadata": {**obj["metadata"], "generation": 2}}
        await self.show(meter, "MODIFIED", touched)
        await self.show(meter, "DELETED", make_pod("other"))
        world.apply(make_pod("another", cpu="100m"))
        await quiet(50)
        await self.show(meter, "DELETED", touched)
        await self.show(meter, "DELETED", late)
        world.delete("Pod", "another")
        await quiet(50)

    async def _decide_once_more(self) -> None:
        """What plugins have read of an object goes when they are asked again."""
        self.world.apply(make_pod("after", cpu="100m", labels={"app": "x"}))
        await quiet(50)
        self.world.delete("Pod", "after")
        await quiet(50)

    async def show(self, meter: LoopMeter, event_type: str, obj: JsonObject) -> None:
        """An event, from the bytes on; and what it leads to."""
        metadata = {**obj["metadata"], "resourceVersion": f"{next(self._versions)}"}
        shown_obj = {**obj, "metadata": metadata}
        if obj["kind"] == "Pod":
            # Admission gives every pod a priority.
            shown_obj["spec"] = {"priority": 0, **obj.get("spec", {})}
        body = orjson.dumps(shown_obj)
        delivery, name = self._deliveries[obj["kind"]], f"{event_type} {obj['kind']}"
        meter.phase = f"after {name}"
        shown: list[JsonObject] = []
        meter.call(f"reading {name}", lambda: shown.append(orjson.loads(body)))
        prepared = None
        if len(body) > LARGE_EVENT_CHARACTERS:
            prepared = await delivery.prepare(shown[0])
        meter.call(name, lambda: delivery.deliver(event_type, shown.pop()))
        del prepared

        await quiet(50)

    async def _patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        assert namespace, urgent
        for condition in patch["status"].get("conditions", ()):
            self.messages[name] = condition["message"]


@asynccontextmanager
async def hostile_world(nodes: int) -> AsyncIterator[HostileWorld]:
    """An operator with so many nodes in three zones, and a pod on one of them."""
    async with running() as world:
        world.apply(
            *(make_node(f"n{number}", zone=f"z{number % 3}") for number in range(nodes)),
            make_profile("default-scheduler"),
        )
        world.apply(make_pod("first", cpu="100m"))
        await quiet(100)
        yield HostileWorld(world)
