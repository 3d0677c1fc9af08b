"""Accepted specs of SchedulerProfiles as ControllerRevisions: how they are written and read.

`profiles/history.py` writes them while the operator runs, `stellwerk profile` reads them.
Invariant: what is read may have been made or edited by others; it becomes a Revision whose fields
have the types and sizes that they promise, or None. A ControllerRevision's data never changes (the
API server sees to that), so the number of pods that its spec has scheduled stands in an annotation.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from stellwerk.profiles.spec.profile import API_VERSION, GROUP, KIND
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.json_values import JsonObject, without_nulls

KEPT_REVISIONS: Final = 10
"""Revisions of one profile that stay in the cluster, as the default of a Deployment."""
MAX_SPEC_BYTES: Final = 256 * 1024
"""Size of the largest spec that a revision holds. A larger one is noted without its text, because
etcd takes no object above 1.5 MiB."""
PROFILE_LABEL: Final = f"{GROUP}/profile-uid"
"""The label of a ControllerRevision with the uid of its SchedulerProfile."""
SCHEDULED_ANNOTATION: Final = f"{GROUP}/scheduled-pods"
"""The annotation of a revision with the number of pods scheduled while its spec was in use."""
MAX_REVISION_NUMBER: Final = 2**53
"""Numbers of revisions are below it. A larger one cannot be a count of edits, and is not exact in
the JSON of every client."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,15}")
_MAX_PREFIX_CHARACTERS: Final = 200
"""Characters of a profile's name in the name of its revision, which may have 253 with the hash and
the number behind it."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A spec that was accepted, and when."""

    profile: str
    uid: str
    """The uid of the profile."""
    generation: int
    spec: JsonObject
    at: datetime


@dataclass(frozen=True, slots=True)
class Revision:
    """An accepted spec as kept in the cluster."""

    name: str
    uid: str
    number: int
    """Counts the accepted specs of one profile, from 1."""
    profile_uid: str
    generation: int
    """The generation of the profile when it had that spec; 0: not known."""
    spec: JsonObject | None
    """None: it is too large to be kept, or what is kept is no spec."""
    digest: str
    accepted_at: str
    """RFC 3339, in UTC; empty: not known."""
    scheduled_pods: int


def revisions_path(namespace: str) -> str:
    """The collection that holds the revisions of all profiles."""
    return f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/controllerrevisions"


def revision_path(namespace: str, name: str) -> str:
    """One revision."""
    return f"{revisions_path(namespace)}/{quote(name, safe='')}"


def selection(profile_uid: str | None = None) -> str:
    """The query for the revisions of one profile, or of all."""
    selector = PROFILE_LABEL if profile_uid is None else f"{PROFILE_LABEL}={profile_uid}"
    return urlencode({"labelSelector": selector})


def spec_digest(spec: Any) -> str:  # noqa: ANN401 any JSON
    """A hash that is equal for specs that mean the same: without null members and without order."""
    return sha256(orjson.dumps(without_nulls(spec), option=orjson.OPT_SORT_KEYS)).hexdigest()


def revision_object(accepted: Acceptance, number: int) -> JsonObject:
    """The ControllerRevision to create.

    The profile owns it, so that the cluster's garbage collector deletes it with the profile, also
    while no operator runs.
    """
    spec = without_nulls(accepted.spec)
    size = len(orjson.dumps(spec))
    kept = {"spec": spec} if size <= MAX_SPEC_BYTES else {"leftOutBytes": size}
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": accepted.profile,
        "uid": accepted.uid,
        "controller": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": _name(accepted, number),
            "labels": {PROFILE_LABEL: accepted.uid},
            "ownerReferences": [owner],
        },
        "revision": number,
        "data": {
            "profile": accepted.profile,
            "generation": accepted.generation,
            "acceptedAt": rfc3339_seconds(accepted.at),
            "digest": spec_digest(spec),
            **kept,
        },
    }


def scheduled_patch(uid: str, pods: int) -> JsonObject:
    """The merge patch that states how many pods the revision of that uid has scheduled."""
    return {
        "metadata": {"uid": uid, "annotations": {SCHEDULED_ANNOTATION: str(pods)}},
    }


def read_revision(obj: object) -> Revision | None:
    """A ControllerRevision as a profile's; None: it is no profile's, or has no usable number."""
    obj = _mapping(obj)
    metadata = _mapping(obj.get("metadata"))
    uid = _mapping(metadata.get("labels")).get(PROFILE_LABEL)
    number = _number(obj.get("revision"))
    name = metadata.get("name")
    owned = any(
        _mapping(each).get("uid") == uid and _mapping(each).get("kind") == KIND
        for each in _sequence(metadata.get("ownerReferences"))
    )
    if not (isinstance(uid, str) and isinstance(name, str) and number and owned):
        return None
    data = _mapping(obj.get("data"))
    spec = data.get("spec")
    kept = spec if isinstance(spec, dict) and len(orjson.dumps(spec)) <= MAX_SPEC_BYTES else None
    count = str(_mapping(metadata.get("annotations")).get(SCHEDULED_ANNOTATION, ""))
    accepted_at = str(data.get("acceptedAt", ""))
    return Revision(
        name=name,
        uid=str(metadata.get("uid", "")),
        number=number,
        profile_uid=uid,
        generation=_number(data.get("generation")),
        spec=kept,
        digest=str(data.get("digest", ""))[:64] if kept is None else spec_digest(kept),
        accepted_at=accepted_at if _TIME.fullmatch(accepted_at) else "",
        scheduled_pods=int(count) if _COUNT.fullmatch(count) else 0,
    )


def revisions_by_profile(objects: Iterable[object]) -> dict[str, list[Revision]]:
    """The usable ones by uid of the profile, oldest first."""
    found: dict[str, list[Revision]] = {}
    for obj in objects:
        revision = read_revision(obj)
        if revision is not None:
            found.setdefault(revision.profile_uid, []).append(revision)
    for revisions in found.values():
        revisions.sort(key=lambda each: each.number)
    return found


def _name(accepted: Acceptance, number: int) -> str:
    """The name of a revision: valid for any profile's name, and unique for each object."""
    prefix = accepted.profile[:_MAX_PREFIX_CHARACTERS].rstrip("-.")
    return f"{prefix}-{sha256(accepted.uid.encode()).hexdigest()[:8]}-{number}"


def _number(value: object) -> int:
    """A count of edits; 0 if it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 < value < MAX_REVISION_NUMBER else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> list[object]:
    return value if isinstance(value, list) else []
