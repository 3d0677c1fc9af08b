"""Events of events.k8s.io, written in the background, as client-go's recorder does.

The scheduler calls `event` on its critical path; tasks of this object write. The first event of a
kind about an object is created, a repeat within six minutes makes it a series of two, and further
repeats are only counted here, until a refresh after half an hour or the end of the series. Unlike
client-go, the queue counts what it drops, an object that causes too many events is limited, and
while no writer is free a newer event takes the place of one that waits and says the same, and
namespaces take turns. While the API server is away, an event is tried twelve times, ten seconds
apart, and others wait; an event that is refused, tried in vain, or too many is dropped and counted.
The end of the process waits one second for what is left.
Invariant: `event` never blocks and never raises, whatever the API does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from typing_extensions import override

from stellwerk.framework.services import Recorder
from stellwerk_kube.clock import rfc3339_microseconds
from stellwerk_kube.errors import ApiError, Conflict, NotFound, Throttled, Unavailable
from stellwerk_kube.untrusted_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from datetime import datetime

    from stellwerk.client.connection import Fence
    from stellwerk.metrics import Metrics
    from stellwerk.models.object_reference import ObjectReference
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

SERIES_END_SECONDS: Final = 360.0
"""Time without a repetition after which an event's series ends; client-go's `finishTime`."""
SERIES_REFRESH_SECONDS: Final = 1800.0
"""Time after which the count of a series is written again; client-go's `refreshTime`."""
MAINTENANCE_SECONDS: Final = 60.0
"""Time between two looks for series that have ended or are to be written."""
CLOSING_SECONDS: Final = 1.0
"""Longest wait of the process's end for events: they inform, and decide nothing."""
EVENTS_PER_WARNING: Final = 8
"""Events written for one that may be a warning, while others wait."""
Queued = TypeVar("Queued")
_Line = OrderedDict[str, OrderedDict["Hashable", Queued]]
"""Namespaces in the order of their turns, and the events of each by topic."""
_MAX_NAME_BYTES: Final = 253
"""Bytes of an event's name, a DNS subdomain; longer names of objects are cut."""
_MAX_INSTANCE_BYTES: Final = 128
"""Bytes of `reportingInstance` that the API server takes."""
_MAX_QUEUED_EVENTS: Final = 32_768
"""Events that wait to be written. Further ones are dropped and counted."""
_MAX_REMEMBERED_EVENTS: Final = 10_000
"""Events whose repetitions become a series. Above it, the oldest is forgotten."""
_MAX_SPAM_BUCKETS: Final = 4_096
"""Objects whose events are counted for the spam filter. Above it, the oldest is forgotten."""
_SPAM_BURST: Final = 25
"""Events about one object that may come at once; client-go's `defaultSpamBurst`."""
_SPAM_REFILL_SECONDS: Final = 300.0
"""Time after which one more may come; client-go's `defaultSpamQPS` is one in five minutes."""
_MAX_WRITERS: Final = 32
"""Events that are written at once."""
_EVENTS_PER_STEP: Final = 500
"""Events that the maintenance looks at before the event loop runs other tasks: a millisecond."""
_MAX_TRIES: Final = 12
"""Attempts to write an event to an API server that is away; client-go's `maxTriesPerEvent`."""
_TRY_AGAIN_SECONDS: Final = 10.0
"""Pause between two attempts; client-go's `defaultSleepDuration`."""


class EventSink(Protocol):
    """The writer of events: `KubernetesClient`, or a test's in its place."""

    async def write_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        """Create an event."""
        ...

    async def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Patch an event."""
        ...


_Identity = tuple[str, ...]


@dataclass(slots=True)
class _Event:
    """An event that was accepted, and the series it may have become."""

    namespace: str
    name: str
    """The name of the Event object, given when it is accepted and continues no series."""
    event_time: datetime
    regarding: ObjectReference
    related: ObjectReference | None
    type_: str
    reason: str
    action: str
    note: str
    reporting_controller: str
    seen_at_seconds: float
    written_at_seconds: float
    count: int = 1
    written_count: int = 0
    last_observed: datetime | None = None
    pending: bool = False
    """Queued or being written; one writer at a time has it."""

    @property
    def identity(self) -> _Identity:
        """The key that two events of one series share.

        The resourceVersion is part of it, as for client-go: news about a changed object is new.
        """
        regarding = self.regarding
        return (
            regarding.uid,
            regarding.resource_version,
            self.reason,
            self.action,
            self.type_,
            self.reporting_controller,
            regarding.name,
            self.related.uid if self.related is not None else "",
        )

    @property
    def topic(self) -> _Identity:
        """The key of events of which a newer one says the same, perhaps of a changed object."""
        uid, _, *rest = self.identity
        return (uid, *rest)


class EventRecorder(Recorder):
    """Client-go's recorder on asyncio. Start it on a running loop; close it to write the rest."""

    def __init__(
        self,
        sink: EventSink,
        *,
        clock: Clock,
        metrics: Metrics,
        jitter: Callable[[], float],
        host: str | None = None,
        queued_events: int = _MAX_QUEUED_EVENTS,
        writers: int = _MAX_WRITERS,
        fence: Fence | None = None,
    ) -> None:
        """Prepare; nothing is written before `start`.

        Args:
            sink: where events go.
            clock: for timestamps and the ends of series.
            metrics: counts what is written and what is dropped.
            jitter: in [0, 1); spreads retries.
            host: names this instance; the host's name by default.
            queued_events: how many events may wait to be written.
            writers: how many are written at once, at most.
            fence: decides whether an event is recorded by a process that may not lead.
        """
        self._sink = sink
        self._clock = clock
        self._metrics = metrics
        self._jitter = jitter
        self._host = host or socket.gethostname()
        self._queued_events = queued_events
        self._writers = writers
        self._fence = fence
        self._queue: EventQueue[_Event] = EventQueue()
        self._free: deque[asyncio.Future[None]] = deque()
        """Writers that wait for an event; each event wakes one, not all of them."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._writing = 0
        self._remembered: OrderedDict[_Identity, _Event] = OrderedDict()
        self._spam = _SpamFilter()
        self._tasks: list[asyncio.Task[None]] = []
        self._last_nanoseconds = 0
        self._complained: set[int | None] = set()

    @override
    def event(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporting_controller: str,
        related: ObjectReference | None = None,
    ) -> None:
        """Record that something happened to an object; what is written, and when, is decided here.

        Args:
            regarding: the object.
            type_: Normal or Warning.
            reason: why, as one CamelCase word.
            action: what was done, or failed to be.
            note: for people; without control characters, and cut at 1024 bytes.
            reporting_controller: the schedulerName of the profile.
            related: a second object, if the action involved one.
        """
        if self._fence is not None and not self._fence.admits_event(type_):
            self._metrics.events_dropped.labels("not_leader").inc()
            return
        now_seconds = self._clock.monotonic()
        event = _Event(
            regarding.namespace or "default",
            "",
            self._clock.now(),
            regarding,
            related,
            type_,
            reason,
            action,
            note,
            reporting_controller,
            seen_at_seconds=now_seconds,
            written_at_seconds=now_seconds,
        )
        # One that goes on a series is counted there.
        identity = event.identity
        before = self._remembered.get(identity)
        if before is not None and now_seconds - before.seen_at_seconds < SERIES_END_SECONDS:
            self._repeat(before, now_seconds)
            return
        if not self._spam.allows(event.regarding.uid, now_seconds):
            self._metrics.events_dropped.labels("spam").inc()
            return
        event.name = self._name(event.regarding.name, event.event_time)
        if self._enqueue(event):
            self._remembered[identity] = event
            if len(self._remembered) > _MAX_REMEMBERED_EVENTS:
                self._remembered.popitem(last=False)

    def start(self) -> None:
        """Begin to write."""
        self._tasks = [
            asyncio.create_task(self._write_forever(), name=f"event writer {number}")
            for number in range(self._writers)
        ]
        self._tasks.append(asyncio.create_task(self._maintain_forever(), name="event series"))

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything queued is written; False if that takes too long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("%d events were not written", len(self._queue) + self._writing)
            return False
        return True

    async def close(self, timeout_seconds: float = CLOSING_SECONDS) -> None:
        """Write what is left, within the time given, and end; what is left then is counted."""
        if not await self.flush(timeout_seconds):
            self._metrics.events_dropped.labels("shutdown").inc(len(self._queue) + self._writing)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def maintain(self) -> None:
        """Drop events that are not repeated, and queue series whose count is due to be written."""
        for _ in self._maintained():
            pass

    def _maintained(self) -> Iterator[None]:
        """Do what `maintain` does, in steps of a millisecond or so."""
        now_seconds = self._clock.monotonic()
        for number, (identity, event) in enumerate(list(self._remembered.items()), 1):
            ended = now_seconds - event.seen_at_seconds >= SERIES_END_SECONDS
            stale = now_seconds - event.written_at_seconds >= SERIES_REFRESH_SECONDS
            if (ended or stale) and event.count > max(1, event.written_count):
                self._enqueue(event)
            if ended and self._remembered.get(identity) is event:
                del self._remembered[identity]
            if number % _EVENTS_PER_STEP == 0:
                yield

    def _repeat(self, event: _Event, now_seconds: float) -> None:
        event.count += 1
        event.seen_at_seconds = now_seconds
        event.last_observed = self._clock.now()
        if event.count == 2:  # noqa: PLR2004 - the repeat that makes it a series
            self._enqueue(event)

    def _enqueue(self, event: _Event) -> bool:
        if event.pending:
            return True
        will_wait = len(self._queue) + self._writing >= self._writers
        topic = event.topic if will_wait and not event.written_count else event.name
        if len(self._queue) >= self._queued_events and not self._queue.holds(topic):
            self._metrics.events_dropped.labels("queue_full").inc()
            displaced = self._queue.displace(event.namespace)
            if displaced is None:
                return False
            self._forget(displaced)
        event.pending = True
        event.written_at_seconds = self._clock.monotonic()
        warning = event.type_ != "Normal"
        superseded = self._queue.put(topic, event, warning=warning, namespace=event.namespace)
        if superseded is not None:
            self._metrics.events_dropped.labels("superseded").inc()
            self._forget(superseded)
        self._idle.clear()
        while self._free:
            writer = self._free.popleft()
            if not writer.done():
                writer.set_result(None)
                break
        return True

    def _forget(self, event: _Event) -> None:
        """An event is not written: what comes after it is no repeat of it."""
        event.pending = False
        if self._remembered.get(event.identity) is event:
            del self._remembered[event.identity]

    def _name(self, object_name: str, now: datetime) -> str:
        """Return a name that no other event has: the object's, and the time in nanoseconds."""
        nanoseconds = int(now.timestamp()) * 1_000_000_000 + now.microsecond * 1000
        self._last_nanoseconds = max(nanoseconds, self._last_nanoseconds + 1)
        suffix = f".{self._last_nanoseconds:x}"
        return object_name[: _MAX_NAME_BYTES - len(suffix)] + suffix

    async def _write_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                free = loop.create_future()
                self._free.append(free)
                await free
            event = self._queue.take()
            self._writing += 1
            try:
                await self._write(event)
            except Exception:
                self._metrics.events_dropped.labels("rejected").inc()
                logger.exception("cannot write event %s/%s", event.namespace, event.name)
            finally:
                event.pending = False
                self._writing -= 1
                if not self._queue and not self._writing:
                    self._idle.set()

    async def _maintain_forever(self) -> None:
        while True:
            await asyncio.sleep(MAINTENANCE_SECONDS)
            for _ in self._maintained():
                await asyncio.sleep(0)

    async def _write(self, event: _Event) -> None:
        """Write the event, or its series; hold on while the API cannot be reached."""
        for _ in range(_MAX_TRIES):
            try:
                await self._write_once(event)
                if event.count > 1 and event.written_count == 1:
                    await self._write_once(event)  # it was repeated while it was being created
            except (Throttled, Unavailable) as error:
                logger.warning("%s; trying again", error)
                await asyncio.sleep(_TRY_AGAIN_SECONDS * (1 + self._jitter() / 4))
            except ApiError as error:
                self._reject(error)
                return
            else:
                return
        self._metrics.events_dropped.labels("rejected").inc()

    async def _write_once(self, event: _Event) -> None:
        count = event.count
        is_series = event.written_count > 0
        try:
            if is_series:
                await self._sink.patch_event(event.namespace, event.name, _series_patch(event))
            else:
                await self._create(event)
        except NotFound:
            if not is_series:
                raise
            await self._create(event)  # it has expired: begin it anew, with its series
        event.written_count = count
        self._metrics.events_recorded.labels("series" if is_series else "event").inc()

    async def _create(self, event: _Event) -> None:
        try:
            await self._sink.write_event(event.namespace, self._body(event))
        except Conflict as conflict:
            if conflict.earlier is None:
                raise
            # The attempt whose answer was lost had created it: the name is this event's alone.

    def _reject(self, error: ApiError) -> None:
        """Give an event up; a kind of refusal warns once, since it would repeat for every pod."""
        self._metrics.events_dropped.labels("rejected").inc()
        level = logging.DEBUG if error.status in self._complained else logging.WARNING
        self._complained.add(error.status)
        logger.log(level, "%s", error)

    def _body(self, event: _Event) -> dict[str, Any]:
        instance = f"{event.reporting_controller}-{self._host}"
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": event.namespace},
            "regarding": _reference(event.regarding),
            "eventTime": rfc3339_microseconds(event.event_time),
            "reportingController": event.reporting_controller,
            "reportingInstance": instance[:_MAX_INSTANCE_BYTES],
            "action": event.action,
            "reason": event.reason,
            "note": shown(event.note),
            "type": event.type_,
        }
        if event.related is not None:
            body["related"] = _reference(event.related)
        if event.last_observed is not None:
            body |= _series_patch(event)
        return body


class _SpamFilter:
    """A token bucket per object: 25 events at once, then one in five minutes."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, uid: str, now_seconds: float) -> bool:
        tokens, filled_at_seconds = self._buckets.pop(uid, (float(_SPAM_BURST), now_seconds))
        refill = (now_seconds - filled_at_seconds) / _SPAM_REFILL_SECONDS
        tokens = min(float(_SPAM_BURST), tokens + refill)
        allowed = tokens >= 1
        self._buckets[uid] = (tokens - 1 if allowed else tokens, now_seconds)
        if len(self._buckets) > _MAX_SPAM_BUCKETS:
            self._buckets.popitem(last=False)
        return allowed


class EventQueue(Generic[Queued]):
    """The events that wait to be written: a line of what went well, and a line of warnings.

    What went well is written first, for there is one such event a binding, while pods that fit
    nowhere cause any number of warnings; but of eight that are written one may be a warning. In
    each line namespaces take turns. Invariant: about one topic at most one event waits, the newest,
    in the place of the first.
    """

    def __init__(self) -> None:
        self._normal: _Line[Queued] = OrderedDict()
        self._warnings: _Line[Queued] = OrderedDict()
        self._namespaces: dict[Hashable, str] = {}
        """By topic, the namespace of the waiting event."""
        self._waiting = _Counts()
        """By namespace, the number of waiting events."""
        self._taken = 0

    def __len__(self) -> int:
        return len(self._namespaces)

    def holds(self, topic: Hashable) -> bool:
        """Whether an event about the topic waits."""
        return topic in self._namespaces

    def put(
        self, topic: Hashable, event: Queued, *, warning: bool, namespace: str = ""
    ) -> Queued | None:
        """Let an event wait; the one that it stands in place of, if there was one."""
        line = self._warnings if warning else self._normal
        # A plain dict walks past all that were taken from its front before.
        events = line.setdefault(namespace, OrderedDict())
        before = events.get(topic)
        events[topic] = event
        if before is None:
            self._namespaces[topic] = namespace
            self._waiting.add(namespace)
        return before

    def displace(self, namespace: str) -> Queued | None:
        """Give up the newest event of the namespace that has most, in favour of another one.

        None: the other one has as many, within one, or none waits.
        """
        if not len(self):
            return None
        most = self._waiting.largest()
        if self._waiting[most] <= self._waiting[namespace] + 1:
            return None
        line = self._warnings if most in self._warnings else self._normal
        return self._taken_from(line, most, last=True)

    def take(self) -> Queued:
        """The next event to write.

        Raises:
            KeyError: none waits.
        """
        self._taken += 1
        warning_is_due = self._taken % EVENTS_PER_WARNING == 0 and bool(self._warnings)
        line = self._warnings if warning_is_due or not self._normal else self._normal
        if not line:
            raise KeyError("no event waits")
        namespace = next(iter(line))
        event = self._taken_from(line, namespace, last=False)
        if namespace in line:
            line.move_to_end(namespace)
        return event

    def _taken_from(self, line: _Line[Queued], namespace: str, *, last: bool) -> Queued:
        events = line[namespace]
        topic, event = events.popitem(last=last)
        if not events:
            del line[namespace]
        del self._namespaces[topic]
        self._waiting.remove(namespace)
        return event


class _Counts:
    """Counts by name, of which the largest is known at once, however many names there are."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._names: dict[int, dict[str, None]] = {}
        """By count above 0, the names that have it."""
        self._largest = 0

    def __getitem__(self, name: str) -> int:
        return self._of.get(name, 0)

    def add(self, name: str) -> None:
        """Count one more."""
        count = self._leave(name) + 1
        self._enter(name, count)
        self._largest = max(self._largest, count)

    def remove(self, name: str) -> None:
        """Count one less; there was one."""
        count = self._leave(name) - 1
        if count:
            self._enter(name, count)
        # Whatever was alone with the largest count has one less than that now.
        if self._largest not in self._names:
            self._largest = count

    def largest(self) -> str:
        """A name with the largest count; there is one."""
        return next(iter(self._names[self._largest]))

    def _leave(self, name: str) -> int:
        """Take a name from those of its count, and return the count."""
        count = self._of.pop(name, 0)
        if count:
            names = self._names[count]
            del names[name]
            if not names:
                del self._names[count]
        return count

    def _enter(self, name: str, count: int) -> None:
        self._of[name] = count
        self._names.setdefault(count, {})[name] = None


def _series_patch(event: _Event) -> dict[str, Any]:
    last_observed = event.last_observed or event.event_time
    return {
        "series": {"count": event.count, "lastObservedTime": rfc3339_microseconds(last_observed)}
    }


def _reference(obj: ObjectReference) -> dict[str, str]:
    reference = {"apiVersion": obj.api_version, "kind": obj.kind, "name": obj.name, "uid": obj.uid}
    if obj.namespace:
        reference["namespace"] = obj.namespace
    if obj.resource_version:
        reference["resourceVersion"] = obj.resource_version
    return reference
