"""Takes events straight from kopf's watch streams to the deliveries, at a small part of the cost.

kopf keeps login, discovery, connections, time-outs and pauses. Replaced, for the watched kinds
only, is what it puts between a watch event and a handler (a queue and a task per object, and the
detection of causes that `on.event` handlers do not need), and its lists, which take anything for a
list (`watch_stream`). The only module that touches kopf's private parts: where they are missing it
cannot be imported, where their shape is not the known one `unsupported()` says so, and either way
`lifecycle` takes kopf's own path. Invariant: the deliveries are given the same events, in the same
order per object, on both paths.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from contextlib import aclosing, contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import orjson
from kopf._cogs.clients import api, errors, watching
from kopf._cogs.structs import references
from kopf._core.reactor import observation, queueing

from stellwerk.errors import in_words
from stellwerk.handlers.watch_stream import LARGE_EVENT_CHARACTERS, LargeEvent, WatchStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    import kopf
    from kopf._cogs.aiokits import aiotasks, aiotoggles
    from kopf._cogs.configs import configuration

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.availability import Availability
    from stellwerk.handlers.delivery import Delivery
    from stellwerk.handlers.watch_stream import Watch
    from stellwerk.metrics import Metrics

logger = logging.getLogger(__name__)

_KOPF: Final = "1.45."
_SHAPES: Final[dict[Callable[..., Any], frozenset[str]]] = {
    queueing.watcher: frozenset(
        {
            "namespace",
            "settings",
            "resource",
            "processor",
            "operator_paused",
            "operator_indexed",
            "resource_indexed",
        }
    ),
    watching.watch_objs: frozenset(
        {
            "settings",
            "resource",
            "namespace",
            "since",
            "operator_pause_waiter",
        }
    ),
    watching.streaming_block: frozenset({"resource", "namespace", "operator_paused"}),
}
_AWAY: Final = (errors.APIServerError, errors.APITooManyRequestsError, errors.APISessionClosed)
"""What kopf raises while the server is away; what was seen of it before still holds."""
_STREAM_BACKOFFS_SECONDS: Final = (0.25, 0.5, 1.0, 2.0)
"""kopf's own retries within a stream; what outlasts them comes back to the lane."""
_REOPEN_SECONDS: Final = 0.02
"""Before a stream is opened again that has given news, or lasted as a quiet one does."""
_WELL_SECONDS: Final = 5.0
_RESTART_FIRST_SECONDS: Final = 0.1
_REOPEN_LONGEST_SECONDS: Final = 1.0
"""Before a stream is opened again that ended without an error, and without news."""
_RESTART_LONGEST_SECONDS: Final = 15.0
_FAILURES_A_LINE: Final = 10
"""In a row: in an outage every kind fails again and again."""


def unsupported() -> str | None:
    """Return why this kopf cannot be used with the fast lane; None if it can."""
    if not (installed := version("kopf")).startswith(_KOPF):
        return f"it was written for kopf {_KOPF}x, not {installed}"
    for function, parameters in _SHAPES.items():
        if set(inspect.signature(function).parameters) - {"_iterations"} != parameters:
            return f"{function.__module__}.{function.__qualname__} has other parameters"
    if getattr(api, "json", None) is not json:
        return "kopf reads its streams in another way"
    return None


class FastLane:
    """The short way from watch streams to handlers, while installed."""

    def __init__(
        self,
        registry: kopf.OperatorRegistry,
        deliveries: Iterable[Delivery],
        availability: Availability,
        client: ClusterClient,
        metrics: Metrics,
        jitter: Callable[[], float],
    ) -> None:
        """Prepare the lane for the kinds of `deliveries`; `jitter` is in [0, 1)."""
        self.insights = references.Insights()
        """To be given to kopf's operator: it says which kinds kopf watches."""
        self._registry = registry
        self._deliveries = {
            (delivery.watched.group, delivery.watched.plural): delivery for delivery in deliveries
        }
        self._watching: set[Delivery] = set()
        self._availability = availability
        self._client = client
        self._metrics = metrics
        self._jitter = jitter

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the place of kopf's per-object workers, and of its JSON parser for streams."""
        watcher = queueing.watcher

        async def fast_watcher(*, resource: references.Resource, **arguments: Any) -> None:
            delivery = self._deliveries.get((resource.group, resource.plural))
            if delivery is None:
                await watcher(resource=resource, **arguments)
            else:
                self._watching.add(delivery)
                try:
                    await self._watch(delivery, resource=resource, **arguments)
                finally:
                    self._watching.discard(delivery)

        queueing.watcher = fast_watcher
        vars(api)["json"] = _Orjson
        try:
            yield
        finally:
            queueing.watcher = watcher
            vars(api)["json"] = json

    async def find_kinds(self, settings: configuration.OperatorSettings) -> None:
        """Look again and again for kinds that kopf does not watch: absent ones may appear."""
        for pause_seconds in self._availability.pauses():
            await asyncio.sleep(pause_seconds)  # at first, kopf is just looking itself
            for delivery in self._deliveries.values():
                if delivery not in self._watching:
                    try:
                        await self._find(delivery, settings)
                    except Exception as error:  # noqa: BLE001 - the next look may do better
                        logger.warning(
                            "looking for %s failed: %s", delivery.watched.plural, in_words(error)
                        )

    async def _find(self, delivery: Delivery, settings: configuration.OperatorSettings) -> None:
        obstacle = await self._availability.obstacle(delivery.watched)
        if obstacle is not None:
            delivery.unavailable(obstacle.reason, absent=obstacle.absent)
            return
        # Have kopf look again at what the API serves, as if a definition had changed.
        await observation.process_discovered_resource_event(
            raw_event={"type": "MODIFIED", "object": {"spec": {"group": delivery.watched.group}}},
            registry=self._registry,
            settings=settings,
            insights=self.insights,
        )

    async def _watch(
        self,
        delivery: Delivery,
        *,
        namespace: references.Namespace,
        settings: configuration.OperatorSettings,
        resource: references.Resource,
        processor: queueing.WatchStreamProcessor,  # noqa: ARG002 - what the lane replaces
        operator_paused: aiotoggles.ToggleSet | None = None,
        operator_indexed: aiotoggles.ToggleSet | None = None,  # noqa: ARG002 - no index handlers
        resource_indexed: aiotoggles.Toggle | None = None,  # noqa: ARG002
    ) -> None:
        """Stream a kind until cancelled: stands for kopf's `queueing.watcher`.

        kopf ends the whole operator when a watch ends with an error; here it begins anew.
        """
        stream = WatchStream(delivery, self._client, self._metrics)
        patience = replace(settings.networking, error_backoffs=_STREAM_BACKOFFS_SECONDS)
        settings = replace(settings, networking=patience)
        pause_seconds, failures, loop = _RESTART_FIRST_SECONDS, 0, asyncio.get_running_loop()
        while True:
            failed, began = False, loop.time()
            try:
                if stream.must_list:
                    await self._availability.wait_for(delivery)
                async with watching.streaming_block(
                    resource=resource, namespace=namespace, operator_paused=operator_paused
                ) as pause_waiter:
                    await stream.run(_watch_of(settings, resource, namespace, pause_waiter))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # kopf's inactivity limit, passed while an event was being handled: the process was
                # stopped, or the machine suspended. The stream is closed like any that is silent.
            except Exception as error:  # noqa: BLE001 - whatever it is, the kind must be watched
                failed = True
                failures = 1 if stream.gave_news else failures + 1
                self._metrics.watch_failures.labels(delivery.watched.kind).inc()
                if failures % _FAILURES_A_LINE == 1:
                    logger.warning(
                        "watching %s failed, beginning anew: %s", resource, in_words(error)
                    )
            if not failed:
                failures = 0
            lasted = not failed and loop.time() - began > _WELL_SECONDS
            pause_seconds = _next_pause(
                pause_seconds, failed=failed, well=stream.gave_news or lasted
            )
            await asyncio.sleep(pause_seconds * (1 + self._jitter()))


def _next_pause(pause_seconds: float, *, failed: bool, well: bool) -> float:
    """The seconds until the next round; `well`: this one gave news, or lasted as quiet ones do."""
    if well:
        return _RESTART_FIRST_SECONDS if failed else _REOPEN_SECONDS
    return min(2 * pause_seconds, _RESTART_LONGEST_SECONDS if failed else _REOPEN_LONGEST_SECONDS)


def _watch_of(
    settings: configuration.OperatorSettings,
    resource: references.Resource,
    namespace: references.Namespace,
    pause_waiter: aiotasks.Future,
) -> Watch:
    async def watch(since: str) -> AsyncGenerator[Any, None]:
        """Kopf's stream; its errors become those that say whether the server is only away."""
        events = watching.watch_objs(
            settings=settings,
            resource=resource,
            namespace=namespace,
            since=since,
            operator_pause_waiter=pause_waiter,
        )
        try:
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    yield event
        except _AWAY as away:
            raise ConnectionError(repr(away)) from away

    return watch


def _event(line: str) -> object:
    event: object = orjson.loads(line)
    if len(line) > LARGE_EVENT_CHARACTERS and isinstance(event, dict):
        return LargeEvent(event)
    return event


class _Orjson:
    """What kopf's streams use of the json module."""

    loads = staticmethod(_event)
    JSONDecodeError = orjson.JSONDecodeError
