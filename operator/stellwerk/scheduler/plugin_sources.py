"""Sources that plugins ask for: kinds to watch, numbers to read from outside, tasks to repeat.

`app` makes one `PluginSources` for all profiles, plugins reach it as `Handle.sources`; handlers
watch the kinds. Invariants: nothing of it runs within a scheduling cycle, a reading that fails or
hangs costs nothing else, and what is read is kept as an object, so that journals and forks have it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from typing_extensions import override

from stellwerk.framework.services import NumberSources
from stellwerk_kube.errors import SecretRefusedError, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stellwerk.backend.object_store import IndexedObjectStore
    from stellwerk.framework.services import ClusterClient, NumberSource, PeriodicTask, Web
    from stellwerk.metrics import Metrics
    from stellwerk.profiles.spec.plugin_description import PluginKind
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

MAX_SOURCE_READ_SECONDS: Final = 20.0
"""Time limit of one reading, or of one run of a task; a reading may send several requests."""
FAILURES_PER_LOG_LINE: Final = 10
"""Failures in a row of which only the first is logged, so that an outage does not fill the log."""
MIN_PERIOD_SECONDS: Final = 1.0
"""Shortest pause between two readings, whatever period a plugin asks for."""


class PluginSources(NumberSources):
    """Tasks that read for plugins, and the kinds that are watched for them."""

    def __init__(
        self,
        client: ClusterClient,
        web: Web,
        objects: IndexedObjectStore,
        clock: Clock,
        metrics: Metrics,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin without sources; `may_write` says whether this replica leads."""
        self._client = client
        self._web = web
        self._objects = objects
        self._clock = clock
        self._metrics = metrics
        self._may_write = may_write
        self._sources: dict[tuple[str, str], WeakSet[NumberSource]] = {}
        self._refused: dict[tuple[str, str], str] = {}
        """The sources whose Secret does not allow the address, and what its owner has to write."""
        self._repeated: dict[str, WeakSet[PeriodicTask]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._synced: set[str] = set()
        self.kinds: dict[PluginKind, None] = {}
        """The kinds that plugins have asked for, in their order."""
        self.on_kind: Callable[[PluginKind], None] = lambda _: None
        """Called with each kind that a plugin asks for from now on."""

    # --- kinds ----------------------------------------------------------------------------------

    @override
    def watch(self, kind: PluginKind) -> None:
        if kind not in self.kinds:
            self.kinds[kind] = None
            self.on_kind(kind)

    @override
    def is_synced(self, kind: str) -> bool:
        return kind in self._synced

    def on_synced(self, kind: str) -> None:
        """Note that every object of a kind has been seen, or that none can be."""
        self._synced.add(kind)

    # --- numbers --------------------------------------------------------------------------------

    @override
    def follow(self, source: NumberSource) -> None:
        key = (source.kind, source.name)
        if key in self._sources:
            self._sources[key].add(source)
        elif self._begin(self._read_on(key)):
            self._sources[key] = WeakSet([source])

    @override
    def repeat(self, task: PeriodicTask) -> None:
        if task.name in self._repeated:
            self._repeated[task.name].add(task)
        elif self._begin(self._repeat(task.name)):
            self._repeated[task.name] = WeakSet([task])

    def refused_secrets(self, profile_name: str) -> list[str]:
        """The Secrets that refuse a profile's sources, with the address that is to be written."""

        def is_of_profile(source: NumberSource) -> bool:
            # Not in the protocol, which plugins of earlier versions fulfil without it.
            return getattr(source, "profile_name", "") == profile_name

        return [
            reason
            for key, reason in self._refused.items()
            if any(map(is_of_profile, self._sources[key]))
        ]

    async def close(self) -> None:
        """Cancel all readings and tasks, and wait for their end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Coroutine[None, None, None]) -> bool:
        """Start a task; False: there is no event loop, as in a replay, which has what was read."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            work.close()
            return False
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _read_on(self, key: tuple[str, str]) -> None:
        kind, name = key
        await asyncio.sleep(0)  # the plugin that asks is still being made
        failures = 0
        read_seconds: float | None = None

        def age_seconds() -> float:
            return -1.0 if read_seconds is None else self._clock.monotonic() - read_seconds

        self._metrics.source_age.labels(name).set_function(age_seconds)
        while source := next(iter(self._sources[key]), None):
            try:
                async with asyncio.timeout(MAX_SOURCE_READ_SECONDS):
                    answer = await source.read(self._client, self._web)
                fields = source.checked(answer)
            except Exception as error:  # noqa: BLE001 whatever the other side does
                failures += 1
                if isinstance(error, SecretRefusedError):
                    self._refused[key] = str(error)
                self._metrics.source_failures.labels(name).inc()
                if failures % FAILURES_PER_LOG_LINE == 1:
                    logger.warning("cannot read %s: %s", name, in_words(error))
            else:
                if failures:
                    logger.info("%s can be read again", name)
                failures, read_seconds = 0, self._clock.monotonic()
                self._refused.pop(key, None)
                self._objects.hold(kind, {"metadata": {"name": name}, **fields})
            period_seconds = max(MIN_PERIOD_SECONDS, source.period_seconds)
            del source
            await asyncio.sleep(period_seconds)
        del self._sources[key]
        self._refused.pop(key, None)
        self._metrics.source_age.remove(name)
        self._objects.let_go(kind, {"metadata": {"name": name}})

    async def _repeat(self, name: str) -> None:
        await asyncio.sleep(0)
        failures = 0
        while task := next(iter(self._repeated[name]), None):
            try:
                if self._may_write():
                    async with asyncio.timeout(MAX_SOURCE_READ_SECONDS):
                        await task.run(self._client)
                failures = 0
            except Exception as error:  # noqa: BLE001 the next run may do better
                failures += 1
                self._metrics.source_failures.labels(name).inc()
                if failures % FAILURES_PER_LOG_LINE == 1:
                    logger.warning("%s failed: %s", name, in_words(error))
            period_seconds = max(MIN_PERIOD_SECONDS, task.period_seconds)
            del task
            await asyncio.sleep(period_seconds)
        del self._repeated[name]
