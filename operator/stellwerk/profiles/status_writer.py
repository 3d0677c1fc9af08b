"""Writes the status of every SchedulerProfile, and an event when the news is bad.

The scheduler runs it beside the scheduling coroutine. Invariant: a status is written only when it
changed; a verdict within a second, the counts every few seconds at most, and nothing by a replica
that may not write. Of thousands of profiles, those are looked at every second whose verdicts or
objects are new, and some of the others in turn.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from stellwerk.answers.listings import ProfileCondition, ProfileObject
from stellwerk.backend.queued_pod import Place
from stellwerk.models.object_reference import ObjectReference
from stellwerk.profiles.loader import ProfileEntry, ProfileLoader
from stellwerk.profiles.shadows import counts as shadow_counts
from stellwerk.profiles.spec.config_model import inline_credentials
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.profile import API_VERSION, KIND, PLURAL, LoadedProfile
from stellwerk.profiles.spec.profile_spec import PROMOTION_ANNOTATION
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.extenders.pool import ExtenderLacks, ExtenderPool
from stellwerk.world.profiles import Profiles
from stellwerk.world.world import World
from stellwerk_kube.errors import NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject, without_nulls
from stellwerk_kube.untrusted_text import shown

logger = logging.getLogger(__name__)


ACCEPTED: Final = "Accepted"
ACTIVE: Final = "Active"
LOOK_SECONDS: Final = 1.0
COUNTS_SECONDS: Final = 3.0
"""The time between two writes of counts, while they change."""
FAILURE_SECONDS: Final = 30.0
"""The time without another write after a status could not be written."""
_PROFILES_A_LOOK: Final = 500
"""The number of profiles that are looked at though nothing about them is known to be new."""
_PROFILES_PER_SLICE: Final = 50
"""The number of statuses worked out in a row; one takes a tenth of a millisecond."""
_PODS_PER_SLICE: Final = 500
"""The number of pods counted in a row: of a flood there are tens of thousands."""
_CONTROLLER: Final = "stellwerk"
_QUEUES: Final = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.ERROR_BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "gated",
}
OVERLAPPING: Final = "Overlapping"
OBJECTS_SEEN: Final = "ObjectsSeen"
INLINE_CREDENTIALS: Final = "InlineCredentials"
EXTENDER_FILES: Final = "ExtenderFilesUsable"
EXTENDER_ADDRESSES: Final = "ExtenderAddressesAllowed"
PLUGINS_TRUSTED: Final = "PluginsTrusted"
_DEPENDS_ON: Final = {
    "PodGroup": GANG_SCHEDULING,
    "CoschedulingPodGroup": GANG_SCHEDULING,
    **dict.fromkeys(
        ("ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule"), "DynamicResources"
    ),
}
"""The plugin that needs to see objects of a kind."""
_NAMED: Final = 3
"""So many other profiles are named."""

Statement: TypeAlias = tuple[str, str, str, str]
"""(type, status, reason, message) of a condition."""


@dataclass(slots=True)
class _Written:
    """The status of one object as this process has written it."""

    due_seconds: float = 0.0
    """The earliest time of the next write of counts."""
    retry_seconds: float = 0.0
    """The earliest time of any write, after a failure."""
    reported: tuple[object, ...] = ()
    """The verdict that there was an event about."""
    overlap: Statement | None = None
    """Of its selector, as of the last look at counts."""


@dataclass(slots=True)
class ProfileStatusWriter:
    """Looks at all profiles every second, and remembers what it wrote about each."""

    world: World
    loader: ProfileLoader
    dispatcher: APIDispatcher
    may_write: Callable[[], bool] = lambda: True
    _written: dict[str, _Written] = field(default_factory=dict)
    """By uid of the object."""
    _next: int = 0
    """The place of the first profile to be looked at in turn."""

    async def run(self) -> None:
        """Write what changed, until cancelled."""
        while True:
            try:
                await self.write_changed()
            except Exception:
                logger.exception("the status of profiles could not be worked out")
            await asyncio.sleep(LOOK_SECONDS)

    async def write_changed(self) -> None:
        """Write the statuses that differ from what their objects say and are due."""
        news, self.loader.unsaid = self.loader.unsaid, set()
        if not self.may_write():
            return
        everything = {uid: each for each in self.loader.entries.values() if (uid := _uid(each))}
        self._written = {uid: self._written.get(uid) or _Written() for uid in everything}
        entries = self._looked_at(everything, news)
        now = self.world.clock.monotonic()
        due = {_uid(each) for each in entries if self._written[_uid(each)].due_seconds <= now}
        pending = await self._pending() if due else {}
        for number, entry in enumerate(entries, 1):
            written = self._written[_uid(entry)]
            if written.retry_seconds <= now:
                await self._write(entry, pending if _uid(entry) in due else None)
            if number % _PROFILES_PER_SLICE == 0:
                await asyncio.sleep(0)

    def _looked_at(
        self, everything: Mapping[str, ProfileEntry], news: set[str]
    ) -> list[ProfileEntry]:
        """The profiles that may have to be written, out of all by uid: in turn, and the news."""
        entries = list(everything.values())
        if len(entries) <= _PROFILES_A_LOOK:
            return entries
        first = self._next % len(entries)
        self._next = first + _PROFILES_A_LOOK
        rotated = [*entries, *entries][first : self._next]
        looked_at = {_uid(each) for each in rotated}
        named = (self.loader.entries.get(name) for name in news)
        return rotated + [
            each
            for each in named
            if each is not None and _uid(each) in everything and _uid(each) not in looked_at
        ]

    async def _write(
        self, entry: ProfileEntry, pending: Mapping[str, Mapping[str, int]] | None
    ) -> None:
        """Write one status; without `pending`, only if its verdict changed."""
        written, now = self._written[_uid(entry)], self.world.clock.monotonic()
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
            written.due_seconds = now + COUNTS_SECONDS
        try:
            path = f"/apis/{API_VERSION}/{PLURAL}/{entry.name}/status"
            # With the uid: a profile that was made anew under the name gets its own verdict.
            identity = {"metadata": {"uid": uid}} if (uid := _uid(entry)) else {}
            stored = await self.dispatcher.client.patch(path, {**identity, "status": patch})
        except NotFound:
            # Gone; or the cluster has an older definition of the kind, without a status.
            written.retry_seconds = now + FAILURE_SECONDS
        except SchedulerError as failure:
            written.retry_seconds = now + FAILURE_SECONDS
            logger.warning(
                "cannot write the status of SchedulerProfile %s: %s", entry.name, failure
            )
        else:
            # The watch will show it too; until then the next comparison is with this.
            if stored["metadata"].get("uid") == _uid(entry):
                entry.obj = {**entry.obj, "status": stored.get("status") or {}}

    def described(self) -> Iterator[ProfileObject]:
        """The objects with their conditions as they are or are about to be written, one by one."""
        for entry in list(self.loader.entries.values()):
            overlaps = overlap(self.world.profiles, entry.serving)
            verdict = self._verdict(entry, entry.obj.get("status") or {}, overlaps)
            conditions = [_answered(each) for each in verdict["conditions"]]
            yield ProfileObject(name=entry.name, generation=entry.generation, conditions=conditions)

    def _verdict(
        self, entry: ProfileEntry, before: JsonObject, overlaps: Statement | None
    ) -> JsonObject:
        """The part of a profile's status that depends on profiles, and what its selector meets."""
        refusal, serving = entry.refusal, entry.serving
        remarks = "; ".join(entry.newest.remarks) if entry.newest else ""
        accepted = (
            (ACCEPTED, "True", "Valid", remarks)
            if refusal is None
            else (ACCEPTED, "False", refusal.reason, refusal.message)
        )
        pods = pods_of(self.world.profiles, serving) if serving is not None else ""
        lacking = objects_seen(self.world, serving, before)
        statements = (
            accepted,
            _activity(entry, serving, pods),
            overlaps,
            lacking,
            *extender_statements(self.loader.extenders, serving, before),
            credential_statement(entry.newest, before),
            distrust_statement(self.world.profiles, serving, before),
        )
        now = self.world.clock.now()
        status: JsonObject = {
            "observedGeneration": entry.generation,
            "conditions": [
                _stated(each, entry.generation, before, now)
                for each in statements
                if each is not None
            ],
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
            counts["lastDecisionTime"] = _timestamp(clock.now() - ago)
        return counts

    async def _pending(self) -> Mapping[str, Mapping[str, int]]:
        """Pending pods by schedulerName of their profile, and queue; counted with turns between."""
        served, queue = self.world.profiles.served, self.world.queue
        if len(served) == 1:
            # Every pod in the queue is of this profile: no need to look at each.
            return {name: queue.pending() for name in served}
        pending: dict[str, Counter[str]] = defaultdict(Counter)
        for number, entry in enumerate(tuple(queue.entries.values()), 1):
            if entry.place in _QUEUES:
                pending[entry.profile_name][_QUEUES[entry.place]] += 1
            if number % _PODS_PER_SLICE == 0:
                await asyncio.sleep(0)
        return pending

    def _report(
        self, entry: ProfileEntry, before: JsonObject, accepted: JsonObject, written: _Written
    ) -> None:
        """Record an event when a version is refused, or when all is well again."""
        old = _condition(before, ACCEPTED)
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
                KIND, API_VERSION, "", entry.name, _uid(entry), metadata.get("resourceVersion", "")
            ),
            "Normal" if good else "Warning",
            accepted["reason"],
            "Loading",
            accepted["message"] or "the profile is accepted",
            reporting_controller=_CONTROLLER,
        )


def pods_of(profiles: Profiles, serving: LoadedProfile) -> str:
    """The pods that a profile schedules, in words."""
    name, selector = serving.scheduler_name, serving.spec.selector
    listing = profiles.selectors.by_scheduler_name.get(name, ())
    others = any(each.profile_name != name for each in listing)
    unless = ", unless the selector of another profile has them" if others else ""
    too = "" if selector is None else ", and those that its selector matches"
    within = "" if serving.spec.namespaces is None else ", of the namespaces in spec.namespaces"
    return f'pods with schedulerName "{name}"{unless}{too}{within}'


def overlap(profiles: Profiles, serving: LoadedProfile | None) -> Statement | None:
    """The statement on a profile's selector; None: it serves no pods by one."""
    if serving is None or serving.spec.selector is None:
        return None
    got, lost = profiles.overlaps.of(serving.scheduler_name)
    said = [
        *_said(profiles, got, 'the younger SchedulerProfile "{}" matches {} of this selector, too'),
        *_said(profiles, lost, 'the older SchedulerProfile "{}" got {} of this selector'),
    ]
    if not said:
        return OVERLAPPING, "False", "NoOverlap", "no pod was matched by another selector, too"
    more = len(said) - _NAMED
    if more > 0:
        said[_NAMED:] = [f"and {more} more profiles"]
    return OVERLAPPING, "True", "SelectorsOverlap", "; ".join(said)


def objects_seen(
    world: World, serving: LoadedProfile | None, before: JsonObject
) -> Statement | None:
    """Whether the objects that a profile's plugins need can be seen; None: there is no doubt.

    A kind that is not served is no lack until pods name objects of it.
    """
    lacks = {
        kind: lack
        for kind, lack in world.lacks.items()
        if serving is not None and _DEPENDS_ON.get(kind) in serving.plugins.names
        if lack.unreadable or world.misses(kind)
    }
    if not lacks:
        known = any(each.get("type") == OBJECTS_SEEN for each in before.get("conditions") or ())
        return (OBJECTS_SEEN, "True", "Seen", "") if known else None
    unreadable = any(lack.unreadable for lack in lacks.values())
    reason = "VersionUnknown" if unreadable else "NotServed"
    message = "; ".join(lack.reason for _, lack in sorted(lacks.items()))
    return OBJECTS_SEEN, "False", reason, shown(message)


def distrust_statement(
    profiles: Profiles, serving: LoadedProfile | None, before: JsonObject
) -> Statement | None:
    """The statement on plugins whose answers are reused no longer; None: there never was one."""
    served = None if serving is None else profiles.served.get(serving.scheduler_name)
    distrusted = {} if served is None else served.framework.distrusted
    if distrusted:
        said = "; ".join(f"{name}: {why}" for name, why in sorted(distrusted.items()))
        return PLUGINS_TRUSTED, "False", "KeptAnswerWrong", shown(said)
    if _condition(before, PLUGINS_TRUSTED):
        return PLUGINS_TRUSTED, "True", "NothingFound", ""
    return None


def extender_statements(
    extenders: ExtenderPool, serving: LoadedProfile | None, before: JsonObject
) -> Iterator[Statement | None]:
    """The statements on files and addresses of extenders; None: there is no doubt of them."""
    lacks = ExtenderLacks() if serving is None else extenders.lacks(serving.spec.extenders)
    for type_, reason, lack in (
        (EXTENDER_FILES, "NotUsable", lacks.files),
        (EXTENDER_ADDRESSES, "NotAllowed", lacks.addresses),
    ):
        if lack:
            yield type_, "False", reason, shown(lack)
        elif _condition(before, type_):
            yield type_, "True", "NothingFound", ""


def credential_statement(newest: LoadedProfile | None, before: JsonObject) -> Statement | None:
    """The statement on credentials that stand in a profile; None: none ever did."""
    fields = [] if newest is None else list(inline_credentials(newest.spec, "spec"))
    if newest is not None:
        places = {each.name: index for index, each in enumerate(newest.spec.plugin_config)}
        for name, args in newest.args.items():
            if name in places:
                path = f"spec.pluginConfig[{places[name]}].args"
                fields += inline_credentials(args, path)
    if fields:
        message = (
            f"{', '.join(fields)}: readable to all who read profiles or their history; the next "
            "minor version refuses it. Put it into a Secret, and name that by secretRef"
        )
        return INLINE_CREDENTIALS, "True", "CredentialsInProfile", shown(message)
    if _condition(before, INLINE_CREDENTIALS):
        return INLINE_CREDENTIALS, "False", "NoCredentials", ""
    return None


def _said(profiles: Profiles, pods: Counter[str], sentence: str) -> list[str]:
    lines = []
    for name, count in pods.most_common():
        served = profiles.served.get(name)
        shown = name if served is None else served.loaded.name
        lines.append(sentence.format(shown, "1 pod" if count == 1 else f"{count} pods"))
    return lines


def _activity(entry: ProfileEntry, serving: LoadedProfile | None, pods: str) -> Statement:
    if serving is None:
        reason = entry.refusal.reason if entry.refusal else "NotServing"
        return ACTIVE, "False", reason, "no version of this profile schedules pods"
    if entry.refusal is not None:
        message = f"generation {serving.generation} goes on until a newer one is accepted"
        return ACTIVE, "True", "LastGoodVersion", message
    if serving.spec.shadow_of:
        if PROMOTION_ANNOTATION in (entry.obj["metadata"].get("annotations") or {}):
            message = f"stellwerk promote {entry.name} was interrupted; promoting again finishes it"
            return ACTIVE, "True", "PromotionUnfinished", message
        message = f'decides beside SchedulerProfile "{serving.spec.shadow_of}"'
        return ACTIVE, "True", "Shadowing", message
    return ACTIVE, "True", "Serving", f"schedules {pods}"


def _stated(statement: Statement, generation: int, before: JsonObject, now: datetime) -> JsonObject:
    """A condition; the time is that of the last change of its status."""
    type_, status, reason, message = statement
    old = _condition(before, type_)
    since = old["lastTransitionTime"] if old.get("status") == status else _timestamp(now)
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": shown(message),
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def _answered(condition: JsonObject) -> ProfileCondition:
    return ProfileCondition(
        type=condition["type"],
        status=condition["status"],
        reason=condition["reason"],
        message=condition["message"],
        last_transition_time=condition["lastTransitionTime"],
        observed_generation=condition["observedGeneration"],
    )


def _condition(status: JsonObject, type_: str) -> JsonObject:
    conditions: Iterable[JsonObject] = status.get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), {})


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> JsonObject:
    """The JSON merge patch (RFC 7386) that makes one object the other; `after` holds no null."""
    if before == after:  # as at nearly every look
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


def _uid(entry: ProfileEntry) -> str:
    return str(entry.obj["metadata"].get("uid") or "")


def _timestamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
