"""The arithmetic of a Deployment's rollout: how far each ReplicaSet may grow or shrink now.

Used by `deployment`; pure functions of a Deployment and its ReplicaSets. Invariant: together the
ReplicaSets never want more than `replicas` + maxSurge, and a healthy pod is given up only while
`replicas` - maxUnavailable others are available.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, meta
from stellwerk_cluster.controllers.workload import absolute

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject

REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
HASH_LABEL: Final = "pod-template-hash"


def replicas_of(replica_set: JsonObject) -> int:
    """The number of pods that a ReplicaSet wants."""
    count: int = replica_set["spec"].get("replicas", 1)
    return count


def total_of(replica_sets: list[JsonObject], status_field: str = "") -> int:
    """The sum of what the ReplicaSets want, or of a count of their status."""
    if status_field:
        return sum(each["status"].get(status_field, 0) for each in replica_sets)
    return sum(map(replicas_of, replica_sets))


def revision_of(obj: JsonObject) -> int:
    """The revision that an object's annotation names; 0: none."""
    text = annotation(obj, REVISION)
    return int(text) if text.isdigit() else 0


def annotation(obj: JsonObject, key: str) -> str:
    """An annotation of an object, or the empty text."""
    return str((meta(obj).get("annotations") or EMPTY).get(key, ""))


def roll_limits(spec: JsonObject) -> tuple[int, int]:
    """(most pods too many, most pods unavailable) while rolling over; never both zero."""
    if spec["strategy"]["type"] != "RollingUpdate":
        return 0, 0
    rolling = spec["strategy"].get("rollingUpdate") or EMPTY
    wanted = spec["replicas"]
    surge = absolute(rolling.get("maxSurge", 0), wanted, round_up=True)
    unavailable = absolute(rolling.get("maxUnavailable", 0), wanted, round_up=False)
    return surge, min(wanted, unavailable if surge or unavailable else 1)


def same_template(template: JsonObject, replica_set: JsonObject) -> bool:
    """Whether a ReplicaSet was made from this template, its own hash label aside."""
    own = replica_set["spec"]["template"]
    labels = {
        key: value for key, value in (meta(own).get("labels") or EMPTY).items() if key != HASH_LABEL
    }
    plain = {**meta(own), "labels": labels}
    wanted = {**meta(template), "labels": meta(template).get("labels") or {}}
    return _given(plain) == _given(wanted) and own.get("spec") == template.get("spec")


def _given(metadata: JsonObject) -> JsonObject:
    return {key: value for key, value in metadata.items() if value}


def grown(spec: JsonObject, current: JsonObject, owned: list[JsonObject]) -> int:
    """The number of pods that the current ReplicaSet may want now, as maxSurge allows."""
    wanted, has = spec["replicas"], replicas_of(current)
    if has >= wanted:
        return int(wanted)
    room = wanted + roll_limits(spec)[0] - total_of(owned)
    return int(has + max(0, min(room, wanted - has)))


def shrunk(spec: JsonObject, current: JsonObject, old: list[JsonObject]) -> dict[str, int]:
    """The number of pods that each old ReplicaSet may want now: unhealthy pods go first."""
    sizes = {each["metadata"]["name"]: replicas_of(each) for each in old}
    least = spec["replicas"] - roll_limits(spec)[1]
    starting = replicas_of(current) - current["status"].get("availableReplicas", 0)
    removable = sum(sizes.values()) + replicas_of(current) - least - starting
    oldest_first = sorted(old, key=lambda each: str(meta(each).get("creationTimestamp")))
    for each in oldest_first:
        name = each["metadata"]["name"]
        unhealthy = sizes[name] - each["status"].get("availableReplicas", 0)
        less = max(0, min(unhealthy, removable))
        sizes[name] -= less
        removable -= less
    spare = min(removable, total_of([*old, current], "availableReplicas") - least)
    for each in oldest_first:
        name = each["metadata"]["name"]
        less = max(0, min(sizes[name], spare))
        sizes[name] -= less
        spare -= less
    return sizes


def proportional(spec: JsonObject, active: list[JsonObject]) -> dict[str, int]:
    """Sizes of ReplicaSets amid a rollout whose Deployment was scaled: shares are kept."""
    wanted = spec["replicas"]
    allowed = wanted + roll_limits(spec)[0] if wanted else 0
    missing = allowed - total_of(active)
    newest_first = sorted(
        active, key=lambda each: str(meta(each).get("creationTimestamp")), reverse=missing > 0
    )
    by_size = sorted(newest_first, key=replicas_of, reverse=True)
    sizes = {}
    left = missing
    for each in by_size:
        delta = _share(each, allowed) - replicas_of(each) if missing else 0
        delta = max(0, min(delta, left)) if missing > 0 else min(0, max(delta, left))
        sizes[each["metadata"]["name"]] = replicas_of(each) + delta
        left -= delta
    if by_size and left:
        largest = by_size[0]["metadata"]["name"]
        sizes[largest] = max(0, sizes[largest] + left)
    return sizes


def _share(replica_set: JsonObject, allowed: int) -> int:
    """The size that keeps a ReplicaSet's part of the whole."""
    text = annotation(replica_set, MOST)
    before = int(text) if text.isdigit() and int(text) else allowed
    return round(replicas_of(replica_set) * allowed / before) if before else 0
