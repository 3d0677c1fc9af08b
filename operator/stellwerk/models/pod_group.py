"""A PodGroup as the scheduler sees it, of either API: what its members are placed by.

Event handlers parse the objects into the book of groups. Invariant: a record says all that the
scheduler asks of a group; what an annotation says that cannot be used is among `problems` and
changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stellwerk.models.json_values import (
    JsonObject,
    number_or_none,
    text,
    text_map,
    text_or_empty,
    whole_number,
)
from stellwerk.models.pod_claims import ClaimReference, parse_claim_references
from stellwerk.models.pod_group_key import COSCHEDULING_API, WORKLOAD_API, PodGroupKey
from stellwerk.models.quantity import resource_amount

POD_GROUP_SCHEDULED: Final = "PodGroupScheduled"
ROLE_LABEL: Final = "scheduling.stellwerk.dev/role"
"""The label by which a member says which role of its group it has."""
MIN_COUNT_BY_ROLE: Final = "scheduling.stellwerk.dev/min-count-by-role"
"""Annotation: `launcher=1,worker=3`, so many of each role are placed or none."""
TOPOLOGY: Final = "scheduling.stellwerk.dev/topology"
"""Annotation: further label keys, comma separated; all members share one value of each."""
PREFERRED_TOPOLOGY: Final = "scheduling.stellwerk.dev/preferred-topology"
"""Annotation: label keys of which the members share one value each if they can, widest first."""
RESERVES_ROOM: Final = "scheduling.stellwerk.dev/reserves-room"
"""Annotation: `true`, room is kept for the group while it is blocked, so that smaller pods of no
higher priority cannot delay it."""
GIVE_BACK_SECONDS: Final = "scheduling.stellwerk.dev/give-back-seconds"
"""Annotation: after so long a group of which too few are bound gives those back."""
_MAX_LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One group; treat as immutable."""

    key: PodGroupKey
    uid: str
    resource_version: str
    min_count: int
    """Members placed together or not at all; 0: each for itself (policy basic)."""
    topology: tuple[str, ...]
    """Label keys of which all members share one value, widest first."""
    preferred_topology: tuple[str, ...]
    min_count_by_role: Mapping[str, int]
    give_back_seconds: int | None
    """None: bound members are never given back."""
    reserves_room: bool
    """Whether nodes are kept for it while pods of its priority are in its way."""
    conditions: tuple[JsonObject, ...]
    status: JsonObject
    """As in the API; empty where there is none."""
    terminating: bool
    problems: tuple[str, ...]
    """Annotations that cannot be used, and why."""
    priority: int | None = None
    """None: where groups have none, that of the least of its members."""
    evicted_whole: bool = False
    """disruptionMode PodGroup: all members are evicted, or none."""
    has_constraints: bool = False
    """spec.schedulingConstraints is given, be it empty."""
    min_resources: Mapping[str, int] = field(default_factory=dict)
    """What the cluster has to have free before members are looked at; coscheduling's."""
    schedule_timeout_seconds: int | None = None
    """How long the group may take to be placed; None: as long as it likes."""
    claims: tuple[ClaimReference, ...] = ()
    """Resource claims that members with the same references share, reserved for the group."""

    @property
    def is_gang(self) -> bool:
        """Whether there is a number that its members are placed by together."""
        return self.min_count > 0

    @property
    def has_run(self) -> bool:
        """Whether enough members were placed once, as its status says."""
        return any(
            each.get("type") == POD_GROUP_SCHEDULED and each.get("status") == "True"
            for each in self.conditions
        )


def parse_pod_group(obj: JsonObject) -> PodGroup:
    """Parse a PodGroup of scheduling.k8s.io/v1alpha2.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj["spec"]
    gang = spec["schedulingPolicy"].get("gang")
    constraints = spec.get("schedulingConstraints")
    keys = [text(each["key"]) for each in (constraints or {}).get("topology") or ()]
    min_count = whole_number(gang["minCount"]) if gang else 0
    mode = text_or_empty(spec.get("disruptionMode"))
    common = _common(obj, WORKLOAD_API)
    return replace(
        common,
        min_count=min_count,
        topology=tuple(dict.fromkeys([*common.topology, *keys])),
        priority=number_or_none(spec.get("priority")),
        evicted_whole=mode == "PodGroup",
        has_constraints=constraints is not None,
        claims=parse_claim_references(spec.get("resourceClaims")),
    )


def parse_coscheduling_group(obj: JsonObject) -> PodGroup:
    """Parse a PodGroup of scheduling.x-k8s.io/v1alpha1.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj.get("spec") or {}
    return replace(
        _common(obj, COSCHEDULING_API),
        min_count=max(number_or_none(spec.get("minMember")) or 0, 1),
        min_resources={
            name: resource_amount(name, amount)
            for name, amount in (spec.get("minResources") or {}).items()
        },
        schedule_timeout_seconds=number_or_none(spec.get("scheduleTimeoutSeconds")),
    )


def _common(obj: JsonObject, api: str) -> PodGroup:
    """What groups of both APIs say in the same place."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = text_map(metadata.get("annotations"))
    namespace, name = text(metadata.get("namespace") or "default"), text(metadata["name"])
    problems: list[str] = []
    return PodGroup(
        key=PodGroupKey(api, namespace, name),
        uid=text_or_empty(metadata.get("uid")),
        resource_version=text_or_empty(metadata.get("resourceVersion")),
        min_count=0,
        topology=_label_keys(annotations, TOPOLOGY, problems),
        preferred_topology=_label_keys(annotations, PREFERRED_TOPOLOGY, problems),
        min_count_by_role=_counts(annotations, problems),
        give_back_seconds=_seconds(annotations, problems),
        reserves_room=_truth(annotations, RESERVES_ROOM, problems),
        conditions=tuple(status.get("conditions") or ()),
        status=status,
        terminating="deletionTimestamp" in metadata,
        problems=tuple(problems),
    )


def _label_keys(
    annotations: Mapping[str, str], annotation: str, problems: list[str]
) -> tuple[str, ...]:
    keys = tuple(filter(None, map(str.strip, annotations.get(annotation, "").split(","))))
    if len(keys) > _MAX_LEVELS:
        problems.append(f"{annotation}: at most {_MAX_LEVELS} label keys, not {len(keys)}")
        return ()
    return keys


def _counts(annotations: Mapping[str, str], problems: list[str]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for item in filter(None, map(str.strip, annotations.get(MIN_COUNT_BY_ROLE, "").split(","))):
        role, equals, number = (part.strip() for part in item.partition("="))
        if not role or not equals or not number.isdecimal() or len(number) > len("1000000"):
            problems.append(f"{MIN_COUNT_BY_ROLE}: {item!r:.80} is not ROLE=NUMBER")
            return {}
        counts[role] = int(number)
    return counts


def _truth(annotations: Mapping[str, str], annotation: str, problems: list[str]) -> bool:
    value = annotations.get(annotation, "").strip()
    if value not in {"", "true", "false"}:
        problems.append(f"{annotation}: {value!r:.80} is neither true nor false")
    return value == "true"


def _seconds(annotations: Mapping[str, str], problems: list[str]) -> int | None:
    value = annotations.get(GIVE_BACK_SECONDS, "").strip()
    if not value:
        return None
    if not value.isdecimal() or not 0 < int(value[:9]) == int(value):
        problems.append(f"{GIVE_BACK_SECONDS}: {value!r:.80} is not a number of seconds")
        return None
    return int(value)
