"""The objects of one kind on their way into WatchHandlers, whichever way they came.

kopf's handlers call `deliver`; the fast lane and the periodic lists mark where a list begins and
ends. Adds what a cache cannot live without: deletions that no watch reported, no event twice, and a
second look at an object whose handling failed. Invariant: the objects that the sink was given and
whose deletion it was not given are exactly `known`, up to objects that cannot be read at all.
"""

from __future__ import annotations

import logging
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.framework.watch_handlers import WatchHandlers
    from stellwerk.handlers.watched import WatchedKind
    from stellwerk.metrics import Metrics
    from stellwerk.models.json_values import JsonObject

logger = logging.getLogger(__name__)

_UNREAD: Final = ""
"""In place of a resourceVersion: whatever comes next is news."""


class KnownObject(NamedTuple):
    """What is remembered of an object that the sink has been given."""

    namespace: str | None
    name: str
    resource_version: str


class Delivery:
    """The events of one kind, made complete and free of echoes. For the event loop's thread."""

    def __init__(
        self,
        watched: WatchedKind,
        events: WatchHandlers,
        metrics: Metrics,
        read_again: Callable[[Delivery, str, KnownObject], None],
    ) -> None:
        """Prepare the delivery of a kind.

        Args:
            watched: the kind.
            events: takes the events.
            metrics: counts what went wrong.
            read_again: takes the uid of an object whose handling failed.
        """
        self.watched = watched
        self.synced = False
        self._events = events
        self._sink = watched.sink(events)
        self._metrics = metrics
        self._read_again = read_again
        self._known: dict[str, KnownObject] = {}
        self._failed: dict[str, str] = {}  # uid → the resourceVersion whose handling failed
        self._met: set[str] | None = None  # uids met since the list in progress began
        self._unavailable: str | None = None

    @property
    def known(self) -> int:
        """How many objects exist, as far as is known."""
        return len(self._known)

    def deliver(self, event_type: str | None, obj: JsonObject) -> None:
        """Pass an event on, unless it is an echo; raise nothing."""
        try:
            metadata = obj["metadata"]
            uid: str = metadata["uid"]
            namespace = metadata.get("namespace")
            now = KnownObject(
                namespace and intern(namespace), metadata["name"], metadata["resourceVersion"]
            )
        except (KeyError, TypeError, AttributeError):
            self._malformed(f"{obj!r:.200}", "it has no usable metadata")
            return
        if self._met is not None:
            self._met.add(uid)
        before = self._known.get(uid)
        if event_type == "DELETED":
            if before is not None:
                del self._known[uid]
                self._pass_on(event_type, obj, uid, now)
        elif before is None or before.resource_version != now.resource_version:
            self._known[uid] = now
            self._pass_on(event_type, obj, uid, now)

    def begin_listing(self) -> None:
        """A complete list follows; one that was begun before and never ended is forgotten."""
        self._met = set()

    def listed(self, obj: JsonObject) -> None:
        """Take an item of a list that is read while a watch runs; what the watch said is newer."""
        uid = (obj.get("metadata") or {}).get("uid")
        if self._met is None or uid not in self._met:
            self.deliver(None, obj)

    def end_listing(self) -> None:
        """The list is complete: what it did not show is gone, and the kind is synced."""
        met = self._met
        if met is None:
            return
        self._met = None
        for uid in self._known.keys() - met:
            self._metrics.missed_deletions.labels(self.watched.kind).inc()
            self.deliver_tombstone(uid)
        self._metrics.lists.labels(self.watched.kind).inc()
        if self._unavailable is not None:
            logger.info("%s can be watched now", self.watched.kind)
            self._unavailable = None
        self._mark_synced()

    def unavailable(self, reason: str, *, absent: bool) -> None:
        """The kind cannot be watched: it counts as synced until it can.

        Where the kind is absent, so are its objects. Where it can no longer be seen, what was known
        last is a better guess than nothing: nodes would look empty without their pods.
        """
        if self._unavailable != reason:
            self._unavailable = reason
            logger.warning("%s is not watched: %s", self.watched.kind, reason)
        self._met = None
        if absent:
            for uid in list(self._known):
                self.deliver_tombstone(uid)
        self._mark_synced()

    def deliver_tombstone(self, uid: str) -> None:
        """A deletion that no watch reported: only metadata, since its last state is unknown."""
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
            self._known[uid] = known._replace(resource_version=_UNREAD)
        self.deliver("ADDED" if known is None else "MODIFIED", obj)

    def redeliver_deletion(self, uid: str, namespace: str | None, name: str) -> None:
        """Pass on that an object is gone which the sink still has, known or not."""
        self._known.setdefault(uid, KnownObject(namespace, name, _UNREAD))
        self.deliver_tombstone(uid)

    def _mark_synced(self) -> None:
        if not self.synced:
            self.synced = True
            self._metrics.kind_synced.labels(self.watched.kind).set(1)
            self._events.on_synced(self.watched.kind)

    def _pass_on(self, event_type: str | None, obj: JsonObject, uid: str, now: KnownObject) -> None:
        try:
            self._sink(event_type, obj)
        except ValueError as error:
            self._malformed(_title(now), str(error))
        except Exception:
            self._metrics.handler_failures.labels(self.watched.kind).inc()
            logger.exception("%s %s: handling an event failed", self.watched.kind, _title(now))
            self._mark_failed(uid, now)
        else:
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

    def _malformed(self, title: str, reason: str) -> None:
        self._metrics.malformed_objects.labels(self.watched.kind).inc()
        text = " ".join(reason.split())
        logger.error("%s %s is malformed and skipped: %s", self.watched.kind, title, text)


def _title(obj: KnownObject) -> str:
    return f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name
