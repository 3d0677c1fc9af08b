"""Writes the status of every SchedulerProfile, and an event when the news is bad.

The scheduler runs `ProfileStatusWriter` beside the scheduling coroutine; `conditions` has what is
said, `ProfileLoader` the verdicts. Invariant: a status is written only when it changed; a verdict
within a second, the counts every few seconds at most, and nothing by a replica that may not write.
If there are thousands of profiles, every second those are looked at whose verdicts or objects are
new, and some of the others, one part after the other.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from stellwerk.answers.profiles import ProfileCondition, ProfileObject
from stellwerk.backend.queued_pod import Place
from stellwerk.models.object_reference import ObjectReference
from stellwerk.profiles.conditions import (
    ACCEPTED,
    RefusedSources,
    Statement,
    conditions,
    find_condition,
    overlap,
)
from stellwerk.profiles.entry import ProfileEntry
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.profiles.shadows import counts as shadow_counts
from stellwerk.profiles.spec.profile import API_VERSION, KIND, PLURAL
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.errors import Conflict, NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject, without_nulls

logger = logging.getLogger(__name__)

STATUS_ROUND_SECONDS: Final = 1.0
"""Pause between two rounds over the profiles: a verdict is written this much later at the most."""
MIN_COUNTS_SECONDS: Final = 3.0
"""Shortest time between two writes of one profile's counts. They change with every pod, and each
write comes back as an event."""
STATUS_RETRY_SECONDS: Final = 30.0
"""Time without another write after a status could not be written."""
MAX_PROFILES_PER_ROUND: Final = 500
"""Profiles that a round looks at although nothing about them is known to be new. The next round
takes the next ones."""
STATUSES_PER_SLICE: Final = 50
"""Statuses worked out before control returns to the event loop; one takes a tenth of a
millisecond."""
PODS_PER_SLICE: Final = 500
"""Pods counted before control returns to the event loop: a flood has tens of thousands."""
MAX_LAST_WRITE_SECONDS: Final = 1.0
"""Time for which the end of the process waits for the answer to a write that was begun. A write
takes milliseconds; without its answer the lease has to expire, which takes 15 s."""
_CONTROLLER: Final = "stellwerk"
_QUEUES: Final = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.ERROR_BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "gated",
}
"""The field of `pendingPods` that counts a pod, by its place; pods in flight count nowhere."""


@dataclass(slots=True)
class _Written:
    """The status of one object as this process has written it, and when it may write again."""

    due_seconds: float = 0.0
    """The earliest time of the next write of counts."""
    retry_seconds: float = 0.0
    """The earliest time of any write, after a failure."""
    reported: tuple[object, ...] = ()
    """The verdict of the last event: (status, reason, message, observedGeneration)."""
    overlap: Statement | None = None
    """The statement on its selector, as of the last count."""


@dataclass(slots=True)
class ProfileStatusWriter:
    """Looks at all profiles every second, and remembers what it wrote about each."""

    world: World
    loader: ProfileLoader
    dispatcher: APIDispatcher
    may_write: Callable[[], bool] = lambda: True
    refused_sources: RefusedSources = lambda _: ()
    """The Secrets of plugins' sources that refuse their addresses, by schedulerName."""
    _written: dict[str, _Written] = field(default_factory=dict)
    """By uid of the object."""
    _next: int = 0
    """The index of the profile with which the next round begins."""

    async def run(self) -> None:
        """Write what changed, until cancelled."""
        while True:
            try:
                await self.write_changed()
            except Exception:
                logger.exception("the status of profiles could not be computed")
            await asyncio.sleep(STATUS_ROUND_SECONDS)

    async def write_changed(self) -> None:
        """Write the statuses that differ from what their objects say and are due."""
        news = self.loader.take_unreported()
        if not self.may_write():
            return
        everything = {uid: each for each in self.loader.entries.values() if (uid := each.uid)}
        self._written = {uid: self._written.get(uid) or _Written() for uid in everything}
        entries = self._looked_at(everything, news)
        now = self.world.clock.monotonic()
        due = {each.uid for each in entries if self._written[each.uid].due_seconds <= now}
        pending = await self._pending() if due else {}
        for number, entry in enumerate(entries, 1):
            written = self._written[entry.uid]
            # Until a profile is judged, its status says what holds for the generation before.
            if entry.is_judged and written.retry_seconds <= now:
                await self._write(entry, pending if entry.uid in due else None)
            if number % STATUSES_PER_SLICE == 0:
                await asyncio.sleep(0)

    def _looked_at(
        self, everything: Mapping[str, ProfileEntry], news: set[str]
    ) -> list[ProfileEntry]:
        """The profiles that this round looks at: the next ones in order, and those with news.

        `everything` are all profiles by uid, `news` the names of those that were judged.
        """
        entries = list(everything.values())
        if len(entries) <= MAX_PROFILES_PER_ROUND:
            return entries
        first = self._next % len(entries)
        self._next = first + MAX_PROFILES_PER_ROUND
        rotated = [*entries, *entries][first : self._next]
        looked_at = {each.uid for each in rotated}
        named = (self.loader.entries.get(name) for name in news)
        return rotated + [
            each
            for each in named
            if each is not None and each.uid in everything and each.uid not in looked_at
        ]

    async def _write(
        self, entry: ProfileEntry, pending: Mapping[str, Mapping[str, int]] | None
    ) -> None:
        """Write one status; without `pending`, only if its verdict changed."""
        written, now = self._written[entry.uid], self.world.clock.monotonic()
        before = entry.obj.get("status") or {}
        if pending is not None:
            written.overlap = overlap(self.world.profiles, entry.serving)
        after = self._verdict(entry, before, written.overlap)
        verdict_changed = any(before.get(key) != value for key, value in after.items())
        if pending is None and not verdict_changed:
            return
        self._report(entry, before, after["conditions"][0], written)
        after = {**before, **after}
        if pending is not None:
            after |= self._counts(entry, pending)
        patch = merge_patch(before, after)
        if not patch:
            return
        if pending is not None:
            written.due_seconds = now + MIN_COUNTS_SECONDS
        await self._send(entry, written, patch)

    async def _send(self, entry: ProfileEntry, written: _Written, patch: JsonObject) -> None:
        """Write a patch into the status of the object that was judged, and of no other.

        An object that was made anew under the name, or edited meanwhile, gets its own verdict.
        """
        obj, now = entry.obj, self.world.clock.monotonic()
        metadata = obj["metadata"]
        judged = {key: metadata[key] for key in ("uid", "resourceVersion") if key in metadata}
        path = f"/apis/{API_VERSION}/{PLURAL}/{entry.name}/status"
        try:
            body = {"metadata": judged, "status": patch}
            stored = await _answered_at_the_end(self.dispatcher.client.patch(path, body))
        except Conflict as conflict:
            # The watch will show what it is now, and one of the next rounds writes about that.
            logger.debug("SchedulerProfile %s has changed: %s", entry.name, conflict)
            written.due_seconds = now
        except NotFound:
            # Gone; or the cluster has an older definition of the kind, without a status.
            written.retry_seconds = now + STATUS_RETRY_SECONDS
        except SchedulerError as failure:
            written.retry_seconds = now + STATUS_RETRY_SECONDS
            logger.warning(
                "cannot write the status of SchedulerProfile %s: %s", entry.name, failure
            )
        else:
            # The watch will show it. Until then the next round compares with what was stored; a
            # version that the watch has shown meanwhile is newer and stays.
            if entry.obj is obj and stored["metadata"].get("uid") == entry.uid:
                version = stored["metadata"].get("resourceVersion")
                entry.obj = {
                    **obj,
                    "metadata": {**metadata, "resourceVersion": version},
                    "status": stored.get("status") or {},
                }

    def described(self) -> Iterator[ProfileObject]:
        """The objects with their conditions as they are or are about to be written, one by one."""
        for entry in list(self.loader.entries.values()):
            overlaps = overlap(self.world.profiles, entry.serving)
            verdict = self._verdict(entry, entry.obj.get("status") or {}, overlaps)
            said = verdict["conditions"] if entry.is_judged else ()
            conditions = [_answered(each) for each in said]
            yield ProfileObject(name=entry.name, generation=entry.generation, conditions=conditions)

    def _verdict(
        self, entry: ProfileEntry, before: JsonObject, overlaps: Statement | None
    ) -> JsonObject:
        """The status of a profile without the counts: its conditions and its last good version."""
        status: JsonObject = {
            "observedGeneration": entry.generation,
            "conditions": conditions(
                self.world, self.loader.extenders, entry, before, overlaps, self.refused_sources
            ),
        }
        if entry.good is not None:
            status["lastGoodGeneration"] = entry.good.generation
            status["lastGoodSpec"] = without_nulls(entry.good_spec)
        return status

    def _counts(self, entry: ProfileEntry, pending: Mapping[str, Mapping[str, int]]) -> JsonObject:
        by_queue = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        if entry.serving is not None:
            by_queue |= pending.get(entry.serving.scheduler_name, {})
        counts: JsonObject = {
            "pendingPods": {"total": sum(by_queue.values()), **by_queue},
            "scheduledPods": entry.activity.scheduled_pods,
        }
        shadow = self.loader.shadows.by_name.get(entry.name)
        if shadow is not None:
            counts["shadow"] = shadow_counts(shadow)
        last_decision_seconds = entry.activity.last_decision_seconds
        if last_decision_seconds is not None:
            clock = self.world.clock
            ago = timedelta(seconds=clock.monotonic() - last_decision_seconds)
            counts["lastDecisionTime"] = rfc3339_seconds(clock.now() - ago)
        return counts

    async def _pending(self) -> Mapping[str, Mapping[str, int]]:
        """Count pending pods by schedulerName of their profile and by queue, in slices."""
        served, queue = self.world.profiles.served, self.world.queue
        if len(served) == 1 and not self.world.profiles.observing:
            # Every pod in the queue has this profile: the queue's own counts spare a loop over all.
            return {name: queue.pending() for name in served}
        pending: dict[str, Counter[str]] = defaultdict(Counter)
        for number, entry in enumerate(tuple(queue.entries.values()), 1):
            if entry.place in _QUEUES:
                pending[entry.profile_name][_QUEUES[entry.place]] += 1
            if number % PODS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return pending

    def _report(
        self, entry: ProfileEntry, before: JsonObject, accepted: JsonObject, written: _Written
    ) -> None:
        """Record an event when a version is refused, or when all is well again."""
        old = find_condition(before, ACCEPTED)
        keys = ("status", "reason", "message", "observedGeneration")
        verdict = tuple(accepted[key] for key in keys)
        if written.reported == verdict or verdict == tuple(old.get(key) for key in keys):
            return
        written.reported = verdict
        good = accepted["status"] == "True"
        if good and old.get("status") != "False":
            return
        metadata = entry.obj["metadata"]
        self.dispatcher.recorder.event(
            ObjectReference(
                KIND, API_VERSION, "", entry.name, entry.uid, metadata.get("resourceVersion", "")
            ),
            "Normal" if good else "Warning",
            accepted["reason"],
            "Loading",
            accepted["message"] or "the profile is accepted",
            reporting_controller=_CONTROLLER,
        )


def _answered(condition: JsonObject) -> ProfileCondition:
    return ProfileCondition(
        type=condition["type"],
        status=condition["status"],
        reason=condition["reason"],
        message=condition["message"],
        last_transition_time=condition["lastTransitionTime"],
        observed_generation=condition["observedGeneration"],
    )


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> JsonObject:
    """The JSON merge patch (RFC 7386) that makes one object the other; `after` holds no null."""
    if before == after:  # as in nearly every round
        return {}
    patch: JsonObject = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = merge_patch(old, value)
            if inner:
                patch[key] = inner
        elif old != value or key not in before:
            patch[key] = value
    return patch


async def _answered_at_the_end(write: Coroutine[Any, Any, JsonObject]) -> JsonObject:
    """Return the answer to a write; a cancellation waits for the answer of one that was begun.

    A write that is cut off may still have its effect, and then the lease is not released: the next
    leader would wait until it expires.
    """
    writing = asyncio.create_task(write, name="status of a profile")
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing}, timeout=MAX_LAST_WRITE_SECONDS)
        if not writing.done():
            writing.cancel()
        elif not writing.cancelled():
            writing.exception()  # retrieved, or asyncio would log it; at the end it is of no use
        raise
