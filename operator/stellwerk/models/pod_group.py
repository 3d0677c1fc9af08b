"""A PodGroup as the scheduler sees it, of either API, with the annotations of ours.

Event handlers parse the objects into the state of groups. Annotations are for settings that the API
has no fields for. Invariants: a record says all that the scheduler asks of a group; what an
annotation says that cannot be used is among `problems` and changes nothing, names that none of them
has included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from stellwerk.models.pod_claims import ClaimReference, parse_claim_references
from stellwerk_kube.json_values import (
    JsonObject,
    number_or_none,
    text,
    text_map,
    text_or_empty,
    whole_number,
)
from stellwerk_kube.names import is_label_value, is_qualified_name, suggestion
from stellwerk_kube.quantity import resource_amount

WORKLOAD_API: Final = "scheduling.k8s.io"
"""PodGroups of kube-scheduler, which pods name in spec.schedulingGroup."""
COSCHEDULING_API: Final = "scheduling.x-k8s.io"
"""PodGroups of the coscheduling plugin (v1alpha1), which pods name by a label."""
GROUP_KINDS: Final = {"PodGroup": WORKLOAD_API, "CoschedulingPodGroup": COSCHEDULING_API}
"""Kinds as `handlers.delivery` calls them, and the API of each."""
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"

POD_GROUP_SCHEDULED: Final = "PodGroupScheduled"
WAITING_FOR_PODS: Final = "WaitingForPods"
"""Reason of a group's condition, and of its pods', while too few of them exist."""
POD_GROUP_INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
_SCHEDULED_BY_VERSION: Final = {"v1alpha2": POD_GROUP_SCHEDULED}
"""The condition by which a version says that enough members had a node; later ones: the other."""
PREFIX: Final = "scheduling.stellwerk.dev/"
ROLE_LABEL: Final = f"{PREFIX}role"
"""The label by which a member says which role of its group it has."""
MIN_COUNT_BY_ROLE: Final = f"{PREFIX}min-count-by-role"
"""The number of members of each role that are placed, or none is: `launcher=1,worker=3`."""
TOPOLOGY: Final = f"{PREFIX}topology"
"""Further label keys, comma separated; all members share one value of each."""
PREFERRED_TOPOLOGY: Final = f"{PREFIX}preferred-topology"
"""Label keys of which the members share one value each if they can, widest first."""
RESERVES_ROOM: Final = f"{PREFIX}reserves-room"
"""`true`: room is kept for the group while it is blocked, so that smaller pods of no higher
priority cannot delay it."""
GIVE_BACK_SECONDS: Final = f"{PREFIX}give-back-seconds"
"""The time after which a group of which too few are bound gives those back."""
QUEUE_ANNOTATION: Final = f"{PREFIX}queue"
"""The queue of its namespace that the group stands in, where a profile keeps the order."""
_KNOWN: Final = (
    MIN_COUNT_BY_ROLE,
    TOPOLOGY,
    PREFERRED_TOPOLOGY,
    RESERVES_ROOM,
    GIVE_BACK_SECONDS,
    QUEUE_ANNOTATION,
)
_OLDEST_VERSION: Final = "v1alpha2"
"""The version of objects that say none."""
_MAX_LEVELS: Final = 4
"""Label keys of an annotation: each level of preferred topology is tried apart, with all of its
placements."""
_MAX_ROLES: Final = 32
"""Roles of a group: each is counted for every attempt."""
_MAX_DIGITS: Final = 9
"""Digits of a number in an annotation, so that every number is below 2³¹."""


class PodGroupKey(NamedTuple):
    """The identity of a group, as its members give it; the group need not exist."""

    api: str
    namespace: str
    name: str

    @property
    def shown(self) -> str:
        """The group's namespace/name, for messages."""
        return f"{self.namespace}/{self.name}"


# One is made for each event of a group: a frozen dataclass takes 4 µs more.
@dataclass(slots=True)
class PodGroup:
    """One group; treat as immutable. Two are equal if they ask for the same, whatever their status.

    So a group is equal to itself as it comes back with the condition that was written.
    """

    key: PodGroupKey
    uid: str
    resource_version: str = field(compare=False)
    created: str
    """The time of creation, as in the API; empty where it does not say."""
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
    queue: str
    """The queue of its namespace that it stands in; empty: none."""
    conditions: tuple[JsonObject, ...] = field(compare=False)
    status: JsonObject = field(compare=False)
    """As in the API; empty where there is none."""
    terminating: bool
    problems: tuple[str, ...]
    """Annotations that cannot be used, and why."""
    priority: int | None = None
    """None: where groups have none, that of the least of its members."""
    evicted_whole: bool = False
    """disruptionMode PodGroup or all: all members are evicted, or none."""
    has_constraints: bool = False
    """spec.schedulingConstraints is given, be it empty."""
    min_resources: Mapping[str, int] = field(default_factory=dict)
    """Resources that must be free before members are looked at; coscheduling's."""
    schedule_timeout_seconds: int | None = None
    """The longest time for which nodes are kept for it (coscheduling's scheduleTimeoutSeconds);
    None: the profile's limit alone. The group itself is tried without end, also after it."""
    claims: tuple[ClaimReference, ...] = ()
    """Resource claims that members with the same references share, reserved for the group."""
    version: str = ""
    """The API version that the object was read in, in which its status is written."""
    parent: str = ""
    """The CompositePodGroup that it belongs to; such trees are not placed."""

    @property
    def was_taken_back(self) -> bool:
        """Whether its condition may be one that an older version of Stellwerk took back."""
        return any(
            each.get("type") == POD_GROUP_SCHEDULED
            and each.get("status") == "False"
            and each.get("reason") == WAITING_FOR_PODS
            for each in self.conditions
        )

    @property
    def scheduled_type(self) -> str:
        """The type of the condition that says whether enough members had a node."""
        return _SCHEDULED_BY_VERSION.get(self.version, POD_GROUP_INITIALLY_SCHEDULED)

    @property
    def is_gang(self) -> bool:
        """Whether there is a number that its members are placed by together."""
        return self.min_count > 0

    def is_worth_retrying_after(self, before: "PodGroup") -> bool:
        """Whether members that found no node may do better than when the object was `before`.

        It asks for fewer members, or for something else; to ask for more is no help.
        """
        if self == before:
            return False
        fewer = self.min_count < before.min_count
        return fewer or replace(self, min_count=before.min_count) != before

    @property
    def was_placed(self) -> bool:
        """Whether members were placed before, as its status says; what it says is never undone.

        The condition is written once enough of them have a node, in each version under its name.
        Coscheduling's groups have none, but the time at which their first member was bound.
        """
        if self.key.api == COSCHEDULING_API:
            return bool(self.status.get("scheduleStartTime"))
        return any(
            each.get("type") in {POD_GROUP_SCHEDULED, POD_GROUP_INITIALLY_SCHEDULED}
            and each.get("status") == "True"
            for each in self.conditions
        )


def parse_pod_group(obj: JsonObject) -> PodGroup:
    """Parse a PodGroup of scheduling.k8s.io, in any version.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj["spec"]
    gang = spec["schedulingPolicy"].get("gang")
    constraints = spec.get("schedulingConstraints")
    keys = [text(each["key"]) for each in (constraints or {}).get("topology") or ()]
    min_count = whole_number(gang["minCount"]) if gang else 0
    # A text until v1alpha2, then an object with one field.
    mode = spec.get("disruptionMode")
    whole = mode is not None and (
        "all" in mode if isinstance(mode, Mapping) else text(mode) == "PodGroup"
    )
    return PodGroup(
        **_common(obj, WORKLOAD_API, keys),
        min_count=min_count,
        priority=number_or_none(spec.get("priority")),
        evicted_whole=whole,
        version=text_or_empty(obj.get("apiVersion")).rpartition("/")[2] or _OLDEST_VERSION,
        parent=text_or_empty(spec.get("parentCompositePodGroupName")),
        has_constraints=constraints is not None,
        claims=parse_claim_references(spec.get("resourceClaims")),
    )


def parse_coscheduling_group(obj: JsonObject) -> PodGroup:
    """Parse a PodGroup of scheduling.x-k8s.io/v1alpha1.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj.get("spec") or {}
    return PodGroup(
        **_common(obj, COSCHEDULING_API),
        min_count=max(number_or_none(spec.get("minMember")) or 0, 1),
        min_resources={
            name: resource_amount(name, amount)
            for name, amount in (spec.get("minResources") or {}).items()
        },
        schedule_timeout_seconds=number_or_none(spec.get("scheduleTimeoutSeconds")),
    )


def _common(obj: JsonObject, api: str, topology: Sequence[str] = ()) -> dict[str, Any]:
    """The fields that groups of both APIs have in the same place, by name.

    `topology`: keys of the spec, in addition to those of the annotation.
    """
    metadata, status = obj["metadata"], obj.get("status") or {}
    namespace, name = text(metadata.get("namespace") or "default"), text(metadata["name"])
    said = parse_group_annotations(text_map(metadata.get("annotations")))
    return {
        "key": PodGroupKey(api, namespace, name),
        "uid": text_or_empty(metadata.get("uid")),
        "resource_version": text_or_empty(metadata.get("resourceVersion")),
        "created": text_or_empty(metadata.get("creationTimestamp")),
        "topology": tuple(dict.fromkeys([*said.topology, *topology])),
        "preferred_topology": said.preferred_topology,
        "min_count_by_role": said.min_count_by_role,
        "give_back_seconds": said.give_back_seconds,
        "reserves_room": said.reserves_room,
        "queue": said.queue,
        "conditions": tuple(status.get("conditions") or ()),
        "status": status,
        "terminating": "deletionTimestamp" in metadata,
        "problems": said.problems,
    }


@dataclass(frozen=True, slots=True)
class GroupAnnotations:
    """The annotations of one group, as far as they can be used."""

    topology: tuple[str, ...]
    preferred_topology: tuple[str, ...]
    min_count_by_role: Mapping[str, int]
    give_back_seconds: int | None
    reserves_room: bool
    queue: str
    problems: tuple[str, ...]
    """Values that cannot be used, each with the reason."""


_NO_ANNOTATIONS: Final = GroupAnnotations((), (), {}, None, False, "", ())  # noqa: FBT003
"""Annotations of most groups: none. They share it, because it is immutable."""


def parse_group_annotations(annotations: Mapping[str, str]) -> GroupAnnotations:
    """Read a group's annotations; those of others are passed over."""
    if not annotations:
        return _NO_ANNOTATIONS
    problems = [
        f"{name}: is not known{suggestion(name, _KNOWN)}"
        for name in annotations
        if name.startswith(PREFIX) and name not in _KNOWN
    ]
    return GroupAnnotations(
        _label_keys(annotations, TOPOLOGY, problems),
        _label_keys(annotations, PREFERRED_TOPOLOGY, problems),
        _counts(annotations, problems),
        _seconds(annotations, problems),
        _truth(annotations, problems),
        _queue(annotations, problems),
        tuple(problems),
    )


def _label_keys(
    annotations: Mapping[str, str], annotation: str, problems: list[str]
) -> tuple[str, ...]:
    keys = tuple(filter(None, map(str.strip, annotations.get(annotation, "").split(","))))
    if len(keys) > _MAX_LEVELS:
        problems.append(f"{annotation}: at most {_MAX_LEVELS} label keys, not {len(keys)}")
        return ()
    for key in keys:
        if not is_qualified_name(key):
            problems.append(f"{annotation}: {key!r:.80} is not a label key")
            return ()
    return keys


def _counts(annotations: Mapping[str, str], problems: list[str]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for item in filter(None, map(str.strip, annotations.get(MIN_COUNT_BY_ROLE, "").split(","))):
        role, equals, number = (part.strip() for part in item.partition("="))
        if not role or not equals or not number.isdecimal() or len(number) > _MAX_DIGITS:
            problems.append(f"{MIN_COUNT_BY_ROLE}: {item!r:.80} is not ROLE=NUMBER")
            return {}
        counts[role] = int(number)
    if len(counts) > _MAX_ROLES:
        problems.append(f"{MIN_COUNT_BY_ROLE}: at most {_MAX_ROLES} roles, not {len(counts)}")
        return {}
    return counts


def _truth(annotations: Mapping[str, str], problems: list[str]) -> bool:
    value = annotations.get(RESERVES_ROOM, "").strip()
    if value not in {"", "true", "false"}:
        problems.append(f"{RESERVES_ROOM}: {value!r:.80} is neither true nor false")
    return value == "true"


def _seconds(annotations: Mapping[str, str], problems: list[str]) -> int | None:
    value = annotations.get(GIVE_BACK_SECONDS, "").strip()
    if not value:
        return None
    if not value.isdecimal() or len(value) > _MAX_DIGITS or not int(value):
        problems.append(f"{GIVE_BACK_SECONDS}: {value!r:.80} is not a number of seconds")
        return None
    return int(value)


def _queue(annotations: Mapping[str, str], problems: list[str]) -> str:
    value = annotations.get(QUEUE_ANNOTATION, "").strip()
    if is_label_value(value):
        return value
    problems.append(f"{QUEUE_ANNOTATION}: {value!r:.80} is not a name")
    return ""
