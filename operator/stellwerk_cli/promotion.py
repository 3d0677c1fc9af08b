"""A shadow and the profile that it shadows change places, in writes that can be resumed.

`stellwerk promote` calls it with the user's own credentials. Invariant: names, schedulerNames and
selectors stay, whatever the shadow and its annotation say; wherever it is interrupted, the
annotation on the shadow holds what the last write needs, and promoting again finishes it. Who may
write the shadow may write the annotation, so it is believed only as far as both profiles agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson

from stellwerk.framework.services import ClusterClient
from stellwerk.profiles.spec.profile import API_VERSION, PLURAL
from stellwerk.profiles.spec.spec_fields import PROMOTION_ANNOTATION
from stellwerk_kube.errors import AbsentError, Conflict, NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject

_SHADOW_FIELDS: Final = ("shadowOf", "sampleOneIn", "skipIfWaitedSeconds")
_ACTIVE_FIELDS: Final = ("schedulerName", "mode", "allowBeside", "selector", "namespaces")
"""Fields that say which pods a profile schedules and whether, but not how: it keeps its own."""
_CONFLICTS: Final = 5
"""So often may the operator have written a status between reading a profile and writing it."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """Both profiles as they are, and the specs that they are given."""

    active: JsonObject
    shadow: JsonObject
    active_spec: JsonObject
    shadow_spec: JsonObject
    former_spec: JsonObject
    """The active profile's spec before the first write of this promotion."""
    resumed: bool
    """An earlier promotion was interrupted, and this one finishes it."""


async def prepare_promotion(client: ClusterClient, name: str) -> Promotion:
    """Read a shadow and the profile that it shadows, and return what promoting would write.

    Raises:
        AbsentError: there is no such profile.
        SchedulerError: it shadows none, or what is left of an
            interrupted promotion cannot be read.
        ApiError: the API server refuses.
    """
    shadow = await _profile(client, name)
    begun = (shadow["metadata"].get("annotations") or {}).get(PROMOTION_ANNOTATION)
    if begun is None:
        active_name = shadow["spec"].get("shadowOf")
        if not active_name:
            raise SchedulerError(f"SchedulerProfile {name} has no spec.shadowOf")
        active = await _profile(client, active_name)
        former = active["spec"]
    else:
        plan = _begun(begun, shadow)
        active, former = await _profile(client, plan["active"]), plan["spec"]
    whose = {key: active["spec"][key] for key in _ACTIVE_FIELDS if key in active["spec"]}
    not_taken = (*_SHADOW_FIELDS, *_ACTIVE_FIELDS)
    wanted = {k: v for k, v in shadow["spec"].items() if k not in not_taken} | whose
    if begun is not None and orjson.loads(begun) not in (
        _noted(active, shadow, former, 0 if active["spec"] == former else None),
        _noted(active, shadow, former, 1 if active["spec"] == wanted else None),
    ):
        raise _damaged(name)
    if whose != {key: former[key] for key in _ACTIVE_FIELDS if key in former}:
        raise _damaged(name)
    kept = {key: shadow["spec"][key] for key in _SHADOW_FIELDS if key in shadow["spec"]}
    left = {key: value for key, value in former.items() if key not in _ACTIVE_FIELDS}
    return Promotion(active, shadow, wanted, {**left, **kept}, former, begun is not None)


def _noted(
    active: JsonObject, shadow: JsonObject, former: JsonObject, writes: int | None
) -> JsonObject | None:
    """The note of a promotion on the shadow, given how many writes of the active profile it made.

    `writes` is 0 before the first write and 1 after it. None: the spec of the active profile is
    neither of both, and no annotation fits.
    """
    if writes is None:
        return None
    identities = {}
    for role, profile, later in (("active", active, writes), ("shadow", shadow, 0)):
        metadata = profile["metadata"]
        generation = metadata.get("generation", 0) - later
        identities[f"{role}Identity"] = [metadata.get("uid", ""), generation]
    return {"active": active["metadata"]["name"], "spec": former, **identities}


async def promote(client: ClusterClient, planned: Promotion, *, dry_run: bool = False) -> None:
    """Give the shadowed profile the spec of its shadow, then the shadow the former one.

    In a dry run the API server tries both writes.

    Raises:
        Conflict: another client has written meanwhile; promoting again goes on.
        ApiError: the API server refuses.
    """
    name = planned.shadow["metadata"]["name"]
    # The operator writes the status all the time: only other specs are an edit in between.
    present = await prepare_promotion(client, name)
    if _written(present) != _written(planned):
        raise Conflict(
            f"replace {_path(name)}", 409, "Conflict", "edited meanwhile: run the command again"
        )
    shadow, query = present.shadow, "?dryRun=All" if dry_run else ""
    if not (planned.resumed or dry_run):
        noted = _noted(present.active, present.shadow, planned.former_spec, 0)
        text = orjson.dumps(noted).decode()
        shadow = await replace_profile(
            client, shadow, lambda profile: _annotation_set(profile, text)
        )
    if planned.active["spec"] != planned.active_spec:
        await replace_profile(
            client, present.active, lambda profile: {**profile, "spec": planned.active_spec}, query
        )
    await replace_profile(
        client,
        shadow,
        lambda profile: {**_annotation_set(profile, None), "spec": planned.shadow_spec},
        query,
    )


async def replace_profile(
    client: ClusterClient,
    seen: JsonObject,
    change: Callable[[JsonObject], JsonObject],
    query: str = "",
) -> JsonObject:
    """Write a profile changed, as it is now where only its status is another than was seen.

    Raises:
        Conflict: its spec or its annotation has changed, or its status again and again.
        ApiError: the API server refuses.
    """
    name, present = seen["metadata"]["name"], seen
    for _ in range(_CONFLICTS):
        try:
            return await client.replace(f"{_path(name)}{query}", change(present))
        except Conflict:
            present = await _profile(client, name)
            if _edited_part(present) != _edited_part(seen):
                raise
    return await client.replace(f"{_path(name)}{query}", change(present))


def _edited_part(profile: JsonObject) -> tuple[object, ...]:
    """The uid, the spec, and what a promotion has noted on it."""
    metadata = profile["metadata"]
    noted = (metadata.get("annotations") or {}).get(PROMOTION_ANNOTATION)
    return metadata.get("uid"), profile["spec"], noted


def _written(promotion: Promotion) -> tuple[object, ...]:
    """Both profiles as they were shown, and their specs after it."""
    before = (_edited_part(promotion.active), _edited_part(promotion.shadow))
    return (*before, promotion.active_spec, promotion.shadow_spec)


def _begun(text: str, shadow: JsonObject) -> dict[str, Any]:
    """The rest of an interrupted promotion.

    Raises:
        SchedulerError: it is not what a promotion of this shadow writes.
    """
    try:
        plan = orjson.loads(text)
    except orjson.JSONDecodeError:
        plan = None
    if (
        isinstance(plan, dict)
        and isinstance(plan.get("spec"), dict)
        and plan.get("active") == shadow["spec"].get("shadowOf")
    ):
        return plan
    raise _damaged(shadow["metadata"]["name"])


def _damaged(name: str) -> SchedulerError:
    return SchedulerError(
        f"the annotation {PROMOTION_ANNOTATION} of SchedulerProfile {name} does not match these "
        "profiles as they are. Remove it to start the promotion again"
    )


async def _profile(client: ClusterClient, name: str) -> JsonObject:
    try:
        return await client.get(_path(name))
    except NotFound as error:
        raise AbsentError(f"there is no SchedulerProfile {name}") from error


def _annotation_set(obj: JsonObject, text: str | None) -> JsonObject:
    metadata = obj["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(PROMOTION_ANNOTATION, None)
    if text is not None:
        annotations[PROMOTION_ANNOTATION] = text
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def _path(name: str) -> str:
    return f"/apis/{API_VERSION}/{PLURAL}/{quote(name, safe='')}"
