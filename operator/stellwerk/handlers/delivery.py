"""The objects of one kind on their way into WatchHandlers, whichever way they came.

`lifecycle` makes one Delivery for each row of WATCHED, the one table of kinds. kopf's handlers and
the fast lane call `deliver`; the fast lane and the periodic lists hand in the items of a list, and
mark where it begins and ends. Adds what a cache cannot live without: deletions that no watch
reported, no event twice, a list that counts only as a whole, and a second look at an object whose
handling failed. Invariants: `kind` is the key under which every other part of the operator knows
the kind; the objects that WatchHandlers were given and whose deletion they were not given are
exactly `known`, up to objects that cannot be read at all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import quote

from typing_extensions import override

from stellwerk.framework.watch_handlers import Identified, Lack
from stellwerk.models.api_kinds import API_KINDS, newest_form
from stellwerk.models.pod_group import COSCHEDULING_API
from stellwerk.profiles.spec import profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.framework.watch_handlers import WatchHandlers
    from stellwerk.metrics import Metrics
    from stellwerk_kube.json_values import JsonObject


logger = logging.getLogger(__name__)
_UNREAD: Final = ""
"""In place of a resourceVersion: whatever comes next is news."""
_TITLE_CHARACTERS: Final = 200
_REASON_CHARACTERS: Final = 500
_PARTS: Final = 16
_REMEMBERED_COMPLAINTS: Final = 1_000
"""Objects without identity have no version by which to know that they were named before."""
EVENTS_PER_SLICE: Final = 32
"""So many events are handled in a row, in an ordinary slice."""
SLICE_SECONDS: Final = 0.002
"""The same, however few they are: of pods that are all different each takes its time."""
LONGEST_SLICE: Final = 4
"""In ordinary slices: bindings wait for it, too."""
_WORKER: Final = ThreadPoolExecutor(1, "stellwerk-prepare")
"""Its thread is started by the first object."""
_STORAGE: Final = "storage.k8s.io"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind, where the API serves it, and what of it is not worth watching."""

    kind: str
    group: str
    version: str
    """The version that is watched."""
    plural: str
    field_selector: str | None = None
    served_as: str = ""
    """What the API calls it, where another kind of that name is watched; empty: `kind`."""
    optional: bool = False
    """Whether most clusters do without it: nothing waits for its first list."""
    readable: tuple[str, ...] = ()
    """Every version that can be read, newest first, where releases serve different ones."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Every version that can be read, newest first."""
        return self.readable or (self.version,)

    @property
    def may_be_absent(self) -> bool:
        """Whether a discovery that does not name it is believed at once."""
        return self.optional or bool(self.readable)

    @property
    def is_defined(self) -> bool:
        """Whether a definition brings the kind, so that its storage is made when it is applied."""
        return self.optional or self.group == profile.GROUP

    @property
    def core(self) -> bool:
        """Whether every API server has the kind: where it seems absent, the answer is wrong."""
        return not self.group

    @property
    def api_kind(self) -> str:
        """The kind as objects and lists say it."""
        return self.served_as or self.kind

    @property
    def indispensable(self) -> bool:
        """Whether nothing can be decided without it: without pods, every node looks empty."""
        return self.kind in {"Pod", "Node"}

    @property
    def group_version_path(self) -> str:
        """The API path under which discovery lists the kind."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def path(self) -> str:
        """The API path of all objects of the kind that are watched, in every namespace."""
        query = f"?fieldSelector={quote(self.field_selector)}" if self.field_selector else ""
        return f"{self.collection_path}{query}"

    @property
    def collection_path(self) -> str:
        """The API path of all objects of the kind, in every namespace."""
        return f"{self.group_version_path}/{self.plural}"

    def object_path(self, namespace: str | None, name: str) -> str:
        """Return the API path of one object."""
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{self.group_version_path}{inside}/{self.plural}/{quote(name, safe='')}"


def _negotiated(kind: str) -> WatchedKind:
    """A kind of which discovery chooses the version."""
    found = API_KINDS[kind]
    newest = found.versions[0]
    return WatchedKind(kind, found.group, newest, found.plural, readable=found.versions)


WATCHED: Final = (
    # A finished pod holds nothing; it leaves the selector, and so arrives as deleted.
    WatchedKind("Pod", "", "v1", "pods", "status.phase!=Succeeded,status.phase!=Failed"),
    WatchedKind("Node", "", "v1", "nodes"),
    WatchedKind("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses"),
    WatchedKind(profile.KIND, profile.GROUP, profile.VERSION, profile.PLURAL),
    WatchedKind("Namespace", "", "v1", "namespaces"),
    WatchedKind("Service", "", "v1", "services"),
    WatchedKind("ReplicationController", "", "v1", "replicationcontrollers"),
    WatchedKind("ReplicaSet", "apps", "v1", "replicasets"),
    WatchedKind("StatefulSet", "apps", "v1", "statefulsets"),
    WatchedKind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    WatchedKind("PersistentVolume", "", "v1", "persistentvolumes"),
    WatchedKind("StorageClass", _STORAGE, "v1", "storageclasses"),
    WatchedKind("CSINode", _STORAGE, "v1", "csinodes"),
    WatchedKind("CSIDriver", _STORAGE, "v1", "csidrivers"),
    WatchedKind("CSIStorageCapacity", _STORAGE, "v1", "csistoragecapacities"),
    WatchedKind("VolumeAttachment", _STORAGE, "v1", "volumeattachments"),
    WatchedKind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    _negotiated("ResourceClaim"),
    _negotiated("ResourceSlice"),
    _negotiated("DeviceClass"),
    _negotiated("DeviceTaintRule"),
    # Groups of pods: kube-scheduler's are behind a gate, the coscheduling plugin's a definition.
    _negotiated("PodGroup"),
    WatchedKind(
        "CoschedulingPodGroup",
        COSCHEDULING_API,
        "v1alpha1",
        "podgroups",
        served_as="PodGroup",
        optional=True,
    ),
)


class KnownObject(NamedTuple):
    """The identity and version of an object that WatchHandlers were given."""

    namespace: str | None
    name: str
    resource_version: str


class KnownObjects(MutableMapping[str, Identified]):
    """What is known by uid, in parts that grow one after the other.

    A dict of 700,000 holds the loop for 34 ms as it grows, and the cache's does so at the same pod.
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
        """Let an object go, if it is known."""
        self._parts[hash(uid) % _PARTS].pop(uid, None)

    def copy(self) -> KnownObjects:
        """The same objects; of a million in 40 ms, where a set of their uids takes 110."""
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
        self.list_wanted = asyncio.Event()
        """Set when a list is due before its time; cleared when one begins."""
        self._events = events
        self._metrics = metrics
        self._read_again = read_again
        self._now_seconds = now_seconds
        self._heard_seconds = now_seconds()
        metrics.watch_silence.labels(watched.kind).set_function(self.silence_seconds)
        self._known = KnownObjects()
        self._failed: dict[str, str] = {}  # uid → the resourceVersion whose handling failed
        self._complaints: set[str] = set()
        self._unmet = KnownObjects()
        """The objects that were known when the list in progress began and were not met since."""
        self._news: set[str] | None = None
        """The uids that the watch told of since then; None: no list is in progress."""
        self._changed: dict[str, JsonObject] = {}  # uid → item of the list in progress
        self._unavailable: str | None = None

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
        """The API server has said something about the kind, be it that there is no news."""
        self._heard_seconds = self._now_seconds()

    def silence_seconds(self) -> float:
        """Return how long ago the API server was last heard of the kind.

        0 where it is not watched, and nothing of it is known that could be out of date.
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
        """Have a large object parsed in a thread; to be kept until delivered.

        Of one kind, nothing else is delivered meanwhile.
        """
        return await beside_the_loop(partial(self._events.prepare, self.watched.kind, obj))

    def skip_event(self, event: object) -> None:
        """An event that is of no known type: it is counted, and named in the log."""
        self._without_identity(event)

    def begin_listing(self) -> None:
        """A complete list follows; one that was begun before and never ended is forgotten."""
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

    async def end_listing(self) -> None:
        """The list is complete: it is applied, what it did not show is gone, the kind is synced.

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
        """Deliver what the list has shown, unless an event overtakes it."""
        step = 0
        for uid in list(self._changed):
            if (obj := self._changed.pop(uid, None)) is None:
                continue
            self.deliver(None, obj)
            step += 1
            if step % EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)
        while self._unmet:
            uid, _ = self._unmet.popitem()
            self._metrics.missed_deletions.labels(self.watched.kind).inc()
            self.deliver_tombstone(uid)
            step += 1
            if step % EVENTS_PER_SLICE == 0:
                await asyncio.sleep(0)

    def unavailable(self, reason: str, *, absent: bool, unreadable: bool = False) -> None:
        """The kind cannot be watched: it counts as synced until it can, unless indispensable.

        `unreadable`: it is served, in no version that can be read; nothing is then said to be gone.
        Where the kind is absent, so are its objects. Where it can no longer be seen, what was known
        last is a better guess than nothing: nodes would look empty without their pods.
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
            self._known[uid] = KnownObject(known.namespace, known.name, _UNREAD)
        self.deliver("ADDED" if known is None else "MODIFIED", obj)

    def redeliver_deletion(self, uid: str, namespace: str | None, name: str) -> None:
        """Pass on that an object is gone which the sink still has, known or not."""
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
        title = f"{obj!r:.{_TITLE_CHARACTERS}}"
        if title in self._complaints:
            self._metrics.malformed_objects.labels(self.watched.kind).inc()
            return
        if len(self._complaints) == _REMEMBERED_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add(title)
        self._malformed(title, "it has no usable metadata")

    def _malformed(self, title: str, reason: str) -> None:
        self._metrics.malformed_objects.labels(self.watched.kind).inc()
        text = " ".join(reason[:_REASON_CHARACTERS].split())
        logger.error("%s %s is malformed and skipped: %s", self.watched.kind, title, text)


def handle_event(
    events: WatchHandlers, kind: str, event_type: str | None, obj: JsonObject
) -> Identified | None:
    """Give an event to the method of WatchHandlers that takes the kind; what `on_pod` returns."""
    match kind:
        case "Pod":
            return events.on_pod(event_type, obj)
        case "Node":
            events.on_node(event_type, obj)
        case _:
            events.on_object(kind, event_type, obj)
    return None


def _identity(obj: JsonObject) -> tuple[str, KnownObject] | None:
    """The uid of an object, and what is remembered of it; None: it has no identity."""
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
    """Run an act in the one thread for large objects, after those that were asked for before.

    One, since every thread that allocates keeps memory of its own, and two that parse are no faster
    than one.
    """
    return await asyncio.get_running_loop().run_in_executor(_WORKER, act)


class StreamSlice:
    """The events that one stream handles in a row before other tasks run.

    A stream that uses up its slice has more to say than it could, and is behind: its slices double
    until they suffice, so that what was not read does not pile up while pods are tried that are
    known already. Invariant: where a stream had nothing to say for a round of the loop, its next
    slice is an ordinary one.
    """

    __slots__ = ("_began_seconds", "_events", "_length", "_used_up")

    def __init__(self) -> None:
        self._events = 0
        """Handled since the loop last ran other tasks."""
        self._began_seconds = 0.0
        self._used_up = False
        self._length = 1

    def used_up(self, began_seconds: float) -> bool:
        """Whether other tasks should run now; asked after an event, with when it began."""
        events = self._events = self._events + 1
        if events == 1:
            self._began_seconds = began_seconds
            asyncio.get_running_loop().call_soon(self._end)
        length = self._length
        self._used_up = (
            events >= length * EVENTS_PER_SLICE
            or time.monotonic() - self._began_seconds >= length * SLICE_SECONDS
        )
        return self._used_up

    def _end(self) -> None:
        """End the slice: other tasks have run, or the stream had nothing more to say."""
        self._length = min(2 * self._length, LONGEST_SLICE) if self._used_up else 1
        self._events, self._used_up = 0, False
