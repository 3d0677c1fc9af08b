"""Delivers the objects of one kind to WatchHandlers: each change once, each deletion, whole lists.

`lifecycle` makes one Delivery for each row of WATCHED. A Reflector calls `deliver` for the events
of a watch and `listed` for the items of a list, and marks where the list begins and ends; the
Delivery passes each to `handle_event`, and that to `EventHandlers`. A Delivery makes a watch safe
for a cache: it reports deletions that no watch event reported, drops repeated events, applies a
list only when it is complete, and retries an object whose handling failed. Invariant: `known` holds
exactly the objects that the handlers have received and not seen deleted, except objects that cannot
be read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from typing_extensions import override

from stellwerk.framework.watch_handlers import Identified, Lack
from stellwerk.models.api_kinds import newest_form

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.framework.watch_handlers import WatchHandlers
    from stellwerk.handlers.watched_kinds import WatchedKind
    from stellwerk.metrics import Metrics
    from stellwerk_kube.json_values import JsonObject


logger = logging.getLogger(__name__)
_UNREAD: Final = ""
"""Stands for the resourceVersion of an object that has to be read again: any version is news."""
_MAX_TITLE_CHARACTERS: Final = 200
"""Characters of an object without identity that the log shows."""
_MAX_REASON_CHARACTERS: Final = 500
"""Characters of the reason for which an object is malformed that the log shows."""
_PARTS: Final = 16
"""Dictionaries into which KnownObjects are divided: to grow, each holds the event loop for a
sixteenth of the time."""
_MAX_COMPLAINTS: Final = 1_000
"""Objects without identity that are remembered, so that the log names each once: they have no
version by which to know them. Above it, all are forgotten."""
MAX_NAMED_PER_MINUTE: Final = 20
"""Malformed objects of a kind that the log names in a minute; further ones are counted. A server
that sends nothing else would fill the disk of the log."""
_NAMING_SECONDS: Final = 60.0
"""Time after which the log names malformed objects again."""
MAX_EVENTS_PER_SLICE: Final = 32
"""Events, or items of a list, that are handled before the event loop runs other tasks: a
millisecond, at 39 µs a pod."""
_WORKER: Final = ThreadPoolExecutor(1, "stellwerk-prepare")
"""The thread that parses large objects; it is started by the first one."""

Result = TypeVar("Result")


class KnownObject(NamedTuple):
    """The identity and version of an object that WatchHandlers were given."""

    namespace: str | None
    name: str
    resource_version: str


class KnownObjects(MutableMapping[str, Identified]):
    """The objects that are known, by uid, in 16 dictionaries that grow one after the other.

    The plain version is one dictionary. One of 700,000 objects holds the event loop for 34 ms when
    it grows, and the cache's dictionary grows at the same pod. `get` and `forget` are overridden,
    because those of MutableMapping raise and catch a KeyError.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        """Know of nothing."""
        self._parts: tuple[dict[str, Identified], ...] = tuple({} for _ in range(_PARTS))

    @override
    def get(self, uid: str, default: Identified | None = None) -> Identified | None:  # type: ignore[override]
        return self._parts[hash(uid) % _PARTS].get(uid, default)

    @override
    def __getitem__(self, uid: str) -> Identified:
        return self._parts[hash(uid) % _PARTS][uid]

    @override
    def __setitem__(self, uid: str, known: Identified) -> None:
        self._parts[hash(uid) % _PARTS][uid] = known

    @override
    def __delitem__(self, uid: str) -> None:
        del self._parts[hash(uid) % _PARTS][uid]

    @override
    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    @override
    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @override
    def popitem(self) -> tuple[str, Identified]:
        return next(part for part in self._parts if part).popitem()

    def forget(self, uid: str) -> None:
        """Remove an object, if it is known."""
        self._parts[hash(uid) % _PARTS].pop(uid, None)

    def copy(self) -> KnownObjects:
        """Return a copy; a million objects take 40 ms, and a set of their uids would take 110."""
        copied = KnownObjects()
        copied._parts = tuple(part.copy() for part in self._parts)
        return copied


class Delivery:
    """The events of one kind, made complete and free of echoes. For the event loop's thread."""

    def __init__(
        self,
        watched: WatchedKind,
        events: WatchHandlers,
        metrics: Metrics,
        read_again: Callable[[Delivery, str, KnownObject], None],
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the delivery of a kind.

        Args:
            watched: the kind.
            events: takes the events.
            metrics: counts what went wrong.
            read_again: takes the uid of an object whose handling failed.
            now_seconds: a monotonic clock, for the age of the last sign of life.
        """
        self.watched = watched
        """The kind, in the version that is watched."""
        self.listed_version = ""
        """The version of the last complete list; empty: there was none, or it is gone."""
        self.switched = asyncio.Event()
        """Set, and replaced, when the kind is to be watched in another version."""
        self.synced = False
        self._events = events
        self._metrics = metrics
        self._read_again = read_again
        self._now_seconds = now_seconds
        self._heard_seconds = now_seconds()
        metrics.watch_silence.labels(watched.kind).set_function(self.silence_seconds)
        self._known = KnownObjects()
        self._failed: dict[str, str] = {}
        """By uid, the resourceVersion whose handling failed."""
        self._named = 0
        """Malformed objects that the log has named since `_naming_since_seconds`."""
        self._naming_since_seconds = now_seconds()
        self._complaints: set[str] = set()
        """The beginnings of objects without identity that the log has named."""
        self._unmet = KnownObjects()
        """The objects that were known when the list in progress began and were not met since."""
        self._news: set[str] | None = None
        """The uids of the events since then; None: no list is in progress."""
        self._changed: dict[str, JsonObject] = {}
        """By uid, the items of the list in progress that differ from what is known."""
        self._failure = ""
        """The reason for which the last list ended that was to be the first complete one."""
        self._unavailable: str | None = None
        """The reason for which the kind cannot be watched; None: it can."""

    @property
    def known(self) -> int:
        """The number of objects that exist, as far as is known."""
        return len(self._known)

    def use_version(self, version: str) -> None:
        """Watch the kind in this version from here on; what is known of it is read anew."""
        if version == self.watched.version:
            return
        if self.listed_version:
            logger.info(
                "%s is watched in version %s, no longer in %s",
                self.watched.kind,
                version,
                self.watched.version,
            )
        self.watched = replace(self.watched, version=version)
        # The same object has the same resourceVersion in every version, and another form.
        for uid in list(self._known):
            known = self._known[uid]
            self._known[uid] = KnownObject(known.namespace, known.name, _UNREAD)
        self.listed_version = ""
        self.switched.set()
        self.switched = asyncio.Event()

    async def until_version(self, version: str) -> None:
        """Wait until the kind is watched in this version."""
        while self.watched.version != version:
            await self.switched.wait()

    def heard(self) -> None:
        """Note that the API server has said something about the kind, also that nothing is new."""
        self._heard_seconds = self._now_seconds()

    def silence_seconds(self) -> float:
        """Return the seconds since the API server last said something about the kind.

        0 if it is not watched, and nothing of it is known that could be out of date.
        """
        if self._unavailable is not None and not self._known and not self.watched.indispensable:
            return 0.0
        return self._now_seconds() - self._heard_seconds

    def deliver(self, event_type: str | None, obj: JsonObject) -> None:
        """Pass an event on, unless it is an echo; raise nothing."""
        identity = _identity(obj)
        if identity is None:
            self._without_identity(obj)
            return
        uid, now = identity
        if self._news is not None:
            self._news.add(uid)
            self._unmet.forget(uid)
            self._changed.pop(uid, None)  # an event is newer than the list's item
        self._take(event_type, obj, uid, now)

    def _take(self, event_type: str | None, obj: JsonObject, uid: str, now: KnownObject) -> None:
        before = self._known.get(uid)
        if event_type == "DELETED":
            if before is not None:
                del self._known[uid]
                self._pass_on(event_type, obj, uid, now)
        elif before is None or before.resource_version != now.resource_version:
            self._known[uid] = now
            self._pass_on(event_type, obj, uid, now)

    async def prepare(self, obj: JsonObject) -> object:
        """Have a large object parsed in a thread; keep the result until the object is delivered.

        Nothing else of the kind is delivered meanwhile.
        """
        return await beside_the_loop(partial(self._events.prepare, self.watched.kind, obj))

    def skip_event(self, event: object) -> None:
        """Count an event of no known type, and name it in the log."""
        self._without_identity(event)

    def begin_listing(self) -> None:
        """Begin a complete list; one that was begun before and never ended is forgotten."""
        self._unmet, self._news, self._changed = self._known.copy(), set(), {}

    def listed(self, obj: JsonObject) -> None:
        """Take an item of the list; what the watch said since the list began is newer.

        Before the kind is synced nothing is decided, and the item is passed on at once. Later, what
        was known serves until the list is complete, and only what has changed is kept for then.
        """
        identity = _identity(obj)
        if identity is None:
            self._without_identity(obj)
            return
        uid, now = identity
        if self._news is None or uid in self._news:
            return
        self._unmet.forget(uid)
        if not self.synced:
            self._take(None, obj, uid, now)
            return
        before = self._known.get(uid)
        if before is None or before.resource_version != now.resource_version:
            self._changed[uid] = obj

    def not_listed(self, count: int, failure: str = "") -> None:
        """Note why the first list of the kind is not complete.

        Args:
            count: the objects that the list in progress has shown so far.
            failure: what ended a list; it is shown beside the lists that follow.
        """
        if self.synced:
            return
        self._failure = failure or self._failure
        progress = f"{count:,} objects so far" if count else ""
        state = "; the one before: ".join(filter(None, (progress, self._failure)))
        self._events.on_unlisted(self.watched.kind, state)

    async def drop_listing(self) -> None:
        """Forget a list that is given up; before the kind is synced, all that it has shown."""
        self._unmet, self._news, self._changed = KnownObjects(), None, {}
        step = 0
        while not self.synced and self._known:
            self.deliver_tombstone(next(iter(self._known)))
            step += 1
            if step % MAX_EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)

    async def end_listing(self) -> None:
        """Apply the complete list: what it did not show is gone, and the kind is synced.

        Other tasks run meanwhile, but nothing is decided between the first change and the last.
        """
        if self._news is None:
            return
        self.heard()
        if self.synced and (self._changed or self._unmet):
            self._events.on_relist(self.watched.kind, applying=True)
            try:
                await self._apply()
            finally:
                self._events.on_relist(self.watched.kind, applying=False)
        else:
            await self._apply()
        self._news = None
        self._metrics.lists.labels(self.watched.kind).inc()
        if self.watched.readable and self.listed_version != self.watched.version:
            self._events.on_version(
                self.watched.kind, f"{self.watched.group}/{self.watched.version}"
            )
        self.listed_version = self.watched.version
        if self._unavailable is not None:
            logger.info("%s can be watched now", self.watched.kind)
            self._unavailable = None
            self._metrics.kind_unreadable.labels(self.watched.kind).set(0)
            self._events.on_lack(self.watched.kind, None)
        self._mark_synced()

    async def _apply(self) -> None:
        """Deliver what has changed in the list, unless a newer event of the watch overtakes it."""
        step = 0
        for uid in list(self._changed):
            if (obj := self._changed.pop(uid, None)) is None:
                continue
            self.deliver(None, obj)
            step += 1
            if step % MAX_EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)
        while self._unmet:
            uid, _ = self._unmet.popitem()
            self._metrics.missed_deletions.labels(self.watched.kind).inc()
            self.deliver_tombstone(uid)
            step += 1
            if step % MAX_EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)

    def unavailable(self, reason: str, *, absent: bool, unreadable: bool = False) -> None:
        """Note that the kind cannot be watched: unless indispensable, it counts as synced.

        If the kind is absent, so are its objects. If it can no longer be seen, what was known last
        is a better guess than nothing: nodes would look empty without their pods.

        Args:
            reason: why, for the log.
            absent: the API does not have the kind.
            unreadable: it is served, in no version that can be read; nothing is said to be gone.
        """
        if self._unavailable != reason:
            self._unavailable = reason
            usual = self.watched.may_be_absent and absent
            level = logging.INFO if usual else logging.WARNING
            logger.log(level, "%s is not watched: %s", self.watched.kind, reason)
            self._metrics.kind_unreadable.labels(self.watched.kind).set(unreadable)
            self._events.on_lack(self.watched.kind, Lack(reason, unreadable=unreadable))
        self._unmet, self._news, self._changed = KnownObjects(), None, {}
        if absent:
            self.listed_version = ""
            for uid in list(self._known):
                self.deliver_tombstone(uid)
        if not self.watched.indispensable:
            self._mark_synced()

    def deliver_tombstone(self, uid: str) -> None:
        """Deliver a deletion that no watch reported: metadata alone, the last state is unknown."""
        gone = self._known.get(uid)
        if gone is None:
            return
        metadata = {"uid": uid, "name": gone.name, "resourceVersion": gone.resource_version}
        if gone.namespace is not None:
            metadata["namespace"] = gone.namespace
        self.deliver("DELETED", {"metadata": metadata})

    def redeliver(self, obj: JsonObject) -> None:
        """Pass on an object that was read because the sink seems to have it wrong."""
        uid = obj["metadata"]["uid"]
        known = self._known.get(uid)
        if known is not None:
            self._known[uid] = KnownObject(known.namespace, known.name, _UNREAD)
        self.deliver("ADDED" if known is None else "MODIFIED", obj)

    def redeliver_deletion(self, uid: str, namespace: str | None, name: str) -> None:
        """Pass on that an object is gone, which the sink still has, whether it is known or not."""
        if uid not in self._known:
            self._known[uid] = KnownObject(namespace, name, _UNREAD)
        self.deliver_tombstone(uid)

    def _mark_synced(self) -> None:
        if not self.synced:
            self.synced = True
            self._metrics.kind_synced.labels(self.watched.kind).set(1)
            self._events.on_synced(self.watched.kind)

    def _pass_on(self, event_type: str | None, obj: JsonObject, uid: str, now: KnownObject) -> None:
        if self.watched.readable:
            # Items of a list do not say it, and parsers and writers go by it.
            obj.setdefault("apiVersion", f"{self.watched.group}/{self.watched.version}")
        try:
            obj = newest_form(obj) if self.watched.readable else obj
            kept = handle_event(self._events, self.watched.kind, event_type, obj)
        except ValueError as error:
            self._malformed(_title(now), str(error))
        except Exception:
            self._metrics.handler_failures.labels(self.watched.kind).inc()
            logger.exception("%s %s: handling an event failed", self.watched.kind, _title(now))
            self._mark_failed(uid, now)
        else:
            is_gone = event_type == "DELETED"
            if not is_gone and kept and kept.resource_version == now.resource_version:
                self._known[uid] = kept
            if self._failed:
                self._failed.pop(uid, None)

    def _mark_failed(self, uid: str, now: KnownObject) -> None:
        if self._failed.get(uid) == now.resource_version:
            # Read again and failed again: waiting will not help until the object changes.
            self._malformed(_title(now), "it cannot be handled")
            return
        self._failed[uid] = now.resource_version
        # Kept as known, so that the sink is given it again, or its deletion.
        self._known[uid] = now._replace(resource_version=_UNREAD)
        self._read_again(self, uid, now)

    def _without_identity(self, obj: object) -> None:
        title = f"{obj!r:.{_MAX_TITLE_CHARACTERS}}"
        if title in self._complaints:
            self._metrics.malformed_objects.labels(self.watched.kind).inc()
            return
        if len(self._complaints) == _MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add(title)
        self._malformed(title, "it has no usable metadata")

    def _malformed(self, title: str, reason: str) -> None:
        self._metrics.malformed_objects.labels(self.watched.kind).inc()
        now_seconds = self._now_seconds()
        if now_seconds - self._naming_since_seconds > _NAMING_SECONDS:
            self._named, self._naming_since_seconds = 0, now_seconds
        self._named += 1
        if self._named > MAX_NAMED_PER_MINUTE:
            if self._named == MAX_NAMED_PER_MINUTE + 1:
                logger.error(
                    "%s: further malformed objects are counted, and not named for a minute",
                    self.watched.kind,
                )
            return
        text = " ".join(reason[:_MAX_REASON_CHARACTERS].split())
        logger.error("%s %s is malformed and skipped: %s", self.watched.kind, title, text)


def handle_event(
    events: WatchHandlers, kind: str, event_type: str | None, obj: JsonObject
) -> Identified | None:
    """Give an event to the method of WatchHandlers for the kind; return what `on_pod` returns."""
    match kind:
        case "Pod":
            return events.on_pod(event_type, obj)
        case "Node":
            events.on_node(event_type, obj)
        case _:
            events.on_object(kind, event_type, obj)
    return None


def _identity(obj: JsonObject) -> tuple[str, KnownObject] | None:
    """Return the uid of an object, and what is remembered of it; None if it has no identity.

    Here for speed: `__class__ is str` costs half of `isinstance`, for four texts of each event, and
    namespaces are interned because a cluster has few for many objects.
    """
    try:
        metadata = obj["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        namespace, version = metadata.get("namespace"), metadata["resourceVersion"]
    except (LookupError, TypeError, AttributeError):
        return None
    if not (uid.__class__ is name.__class__ is version.__class__ is str and uid and name):
        return None
    if namespace is None or not namespace:
        return uid, KnownObject(None, name, version)
    if namespace.__class__ is not str:
        return None
    return uid, KnownObject(intern(namespace), name, version)


def _title(obj: KnownObject) -> str:
    return f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name


async def beside_the_loop(act: Callable[[], Result]) -> Result:
    """Run an act in the thread for large objects, after the acts that were asked for before.

    There is one thread, because each that allocates keeps memory of its own, and two that parse are
    no faster than one.
    """
    return await asyncio.get_running_loop().run_in_executor(_WORKER, act)
