"""The conditions in the status of a SchedulerProfile: the meaning and the reasons of each.

`ProfileStatusWriter` writes them and lists them; `spec/status_fields.py` has their schema. Each
function computes one condition. Invariant: Accepted, Active and Ready are always present,
Overlapping for every profile with a selector, and Stalled or Reconciling while Ready is not True.
Another condition appears at the first fault, and stays.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from stellwerk.profiles.entry import PROCESS_REASONS, ProfileEntry
from stellwerk.profiles.spec.config_model import inline_credentials
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.profiles.spec.spec_fields import PROMOTION_ANNOTATION
from stellwerk.scheduler.extenders.pool import ExtenderLacks, ExtenderPool
from stellwerk.world.profiles import Profiles
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import shown

ACCEPTED: Final = "Accepted"
"""The newest version is valid and free of conflicts."""
ACTIVE: Final = "Active"
"""A version schedules or observes pods, or decides beside another profile."""
READY: Final = "Ready"
"""The newest version acts as it is written. Flux, Helm and Argo CD read it."""
RECONCILING: Final = "Reconciling"
"""Ready is not known yet, or may become True without an edit (kstatus). It is stated only while it
is True."""
STALLED: Final = "Stalled"
"""Ready is False and stays so until the object is changed (kstatus). It is stated only while it is
True, as kstatus asks for."""
OVERLAPPING: Final = "Overlapping"
"""Pods that the selector matches are matched by the selector of another profile."""
OBJECTS_SEEN: Final = "ObjectsSeen"
"""The objects that plugins of the profile need can be seen."""
INLINE_CREDENTIALS: Final = "InlineCredentials"
"""Credentials stand in the profile."""
EXTENDER_FILES: Final = "ExtenderFilesUsable"
"""The files that extenders name can be used."""
EXTENDER_ADDRESSES: Final = "ExtenderAddressesAllowed"
"""The administrator allows the addresses of the extenders."""
SECRETS: Final = "SecretsUsable"
"""The Secrets that a profile names allow the addresses to which it has them sent."""
PLUGINS_TRUSTED: Final = "PluginsTrusted"
"""No plugin was found whose kept answers were wrong."""
PENDING: Final = "Pending"
"""The reason of a condition that is not known yet."""
_DEPENDS_ON: Final = {
    "PodGroup": GANG_SCHEDULING,
    "CoschedulingPodGroup": GANG_SCHEDULING,
    **dict.fromkeys(
        ("ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule"), "DynamicResources"
    ),
}
"""The plugin that needs to see objects of a kind."""
MAX_NAMED_OVERLAPS: Final = 3
"""Other profiles that the message on overlaps names. Beyond it only their number is given."""

Statement: TypeAlias = tuple[str, str, str, str]
"""(type, status, reason, message) of a condition."""
RefusedSources: TypeAlias = Callable[[str], Sequence[str]]
"""Profile's schedulerName → the Secrets of its plugins' sources that refuse their addresses."""


def conditions(
    world: World,
    extenders: ExtenderPool,
    entry: ProfileEntry,
    before: JsonObject,
    overlaps: Statement | None,
    refused_sources: RefusedSources,
) -> list[JsonObject]:
    """The conditions of a profile.

    Args:
        world: the profiles that serve, and what cannot be seen in the cluster.
        extenders: the files and addresses of extenders that cannot be used.
        entry: the profile with its verdict.
        before: its status as last written.
        overlaps: the statement of `overlap`, as of the last count.
        refused_sources: the sources of numbers that get no Secret.
    """
    refusal, serving = entry.refusal, entry.serving
    remarks = "; ".join(entry.newest.remarks) if entry.newest else ""
    accepted = (
        (ACCEPTED, "True", "Valid", remarks)
        if refusal is None
        else (ACCEPTED, "False", refusal.reason, refusal.message)
    )
    pods = pods_of(world.profiles, serving) if serving is not None else ""
    lacking = objects_seen(world, serving, before)
    active = _activity(entry, serving, pods)
    lacks = ExtenderLacks()
    if serving is not None and not serving.spec.shadow_of:  # a shadow asks no extender
        lacks = extenders.lacks(serving.spec.extenders)
    usable = list(usability_statements(lacks, serving, before, refused_sources))
    statements = (
        accepted,
        active,
        *readiness_statements(accepted, active, usable, is_known=lacks.is_known),
        overlaps,
        lacking,
        *usable,
        credential_statement(entry.newest, before),
        distrust_statement(world.profiles, serving, before),
    )
    now = world.clock.now()
    return [_stated(each, entry.generation, before, now) for each in statements if each is not None]


def pods_of(profiles: Profiles, serving: LoadedProfile) -> str:
    """The pods that a profile schedules or observes, in words."""
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
        *_said(profiles, got, 'the younger SchedulerProfile "{}" also matches {} of this selector'),
        *_said(profiles, lost, 'the older SchedulerProfile "{}" got {} of this selector'),
    ]
    if not said:
        return OVERLAPPING, "False", "NoOverlap", "no pod was also matched by another selector"
    more = len(said) - MAX_NAMED_OVERLAPS
    if more > 0:
        said[MAX_NAMED_OVERLAPS:] = [f"and {more} more profiles"]
    return OVERLAPPING, "True", "SelectorsOverlap", "; ".join(said)


def objects_seen(
    world: World, serving: LoadedProfile | None, before: JsonObject
) -> Statement | None:
    """The statement on the objects that a profile's plugins need; None: there is no doubt.

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
    if find_condition(before, PLUGINS_TRUSTED):
        return PLUGINS_TRUSTED, "True", "NothingFound", ""
    return None


def usability_statements(
    lacks: ExtenderLacks,
    serving: LoadedProfile | None,
    before: JsonObject,
    refused_sources: RefusedSources,
) -> Iterator[Statement]:
    """The statements on files, addresses and Secrets; none of those that were never in doubt."""
    sources: Sequence[str] = ()
    if serving is not None and not serving.spec.shadow_of:  # a shadow reads nothing
        sources = refused_sources(serving.scheduler_name)
    secrets = "; ".join(filter(None, (lacks.secrets, *sources)))
    for type_, reason, lack in (
        (EXTENDER_FILES, "NotUsable", lacks.files),
        (EXTENDER_ADDRESSES, "NotAllowed", lacks.addresses),
        (SECRETS, "NotAllowed", secrets),
    ):
        if lack:
            yield type_, "False", reason, shown(lack)
        elif find_condition(before, type_):
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
            f"{', '.join(fields)}: all who may read profiles or their history can read it, "
            "and the next minor version refuses it. Put it into a Secret and name that in secretRef"
        )
        return INLINE_CREDENTIALS, "True", "CredentialsInProfile", shown(message)
    if find_condition(before, INLINE_CREDENTIALS):
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
        message = f"generation {serving.generation} stays active until a newer one is accepted"
        return ACTIVE, "True", "LastGoodVersion", message
    if serving.spec.shadow_of:
        if PROMOTION_ANNOTATION in (entry.obj["metadata"].get("annotations") or {}):
            message = f"stellwerk promote {entry.name} was interrupted; run it again to finish it"
            return ACTIVE, "True", "PromotionUnfinished", message
        message = f'shadows SchedulerProfile "{serving.spec.shadow_of}"'
        return ACTIVE, "True", "Shadowing", message
    if serving.observes:
        message = f"observes {pods}, which another scheduler schedules; nothing is written"
        return ACTIVE, "True", "Observing", message
    return ACTIVE, "True", "Serving", f"schedules {pods}"


def readiness_statements(
    accepted: Statement, active: Statement, usable: Iterable[Statement], *, is_known: bool = True
) -> Iterator[Statement]:
    """The statements that kstatus reads: Ready, and Stalled with the same reason if it is False.

    While this process may not schedule, it is Reconciling instead: Helm installs the next process
    and its rights together with the profile, and gives up at once where anything is Stalled.

    While its files, addresses and Secrets are being looked at for the first time (`is_known` is
    False), it is neither: then Reconciling is stated.

    A profile is ready if its newest version acts as written: it is accepted, active, and gets the
    files, addresses and Secrets that it names. An older version that goes on is not enough.
    """
    faults = (each for each in (accepted, active, *usable) if each[1] != "True")
    fault = next(faults, None)
    if fault is None and not is_known:
        message = "files, addresses and Secrets of its extenders are being looked at"
        yield READY, "Unknown", PENDING, message
        yield RECONCILING, "True", PENDING, message
        return
    _, _, reason, message = fault or active
    yield READY, "False" if fault else "True", reason, message
    if fault:
        yield RECONCILING if reason in PROCESS_REASONS else STALLED, "True", reason, message


def _stated(statement: Statement, generation: int, before: JsonObject, now: datetime) -> JsonObject:
    """A condition; the time is that of the last change of its status."""
    type_, status, reason, message = statement
    old = find_condition(before, type_)
    since = old["lastTransitionTime"] if old.get("status") == status else rfc3339_seconds(now)
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": shown(message),
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def find_condition(status: JsonObject, type_: str) -> JsonObject:
    """The condition of a type in a status; empty: there is none."""
    conditions: Iterable[JsonObject] = status.get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), {})
