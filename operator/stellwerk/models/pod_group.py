"""A PodGroup as the scheduler sees it, of either API: what its members are placed by.

Event handlers parse the objects into the book of groups. Invariant: a record says all that the
scheduler asks of a group; what an annotation says that cannot be used is among `problems` and
changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stellwerk.models.group_annotations import parse_group_annotations
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


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One group; treat as immutable."""

    key: PodGroupKey
    uid: str
    resource_version: str
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
    """Resources that must be free before members are looked at; coscheduling's."""
    schedule_timeout_seconds: int | None = None
    """The time in which the group has to be placed; None: without limit."""
    claims: tuple[ClaimReference, ...] = ()
    """Resource claims that members with the same references share, reserved for the group."""

    @property
    def is_gang(self) -> bool:
        """Whether there is a number that its members are placed by together."""
        return self.min_count > 0

    @property
    def asks_for(self) -> "PodGroup":
        """The group without what is said of it: another one is to be tried anew."""
        return replace(self, resource_version="", conditions=(), status={})

    @property
    def was_placed(self) -> bool:
        """Whether members were placed before, as its status says; what it says is never undone.

        PodGroupScheduled is written once enough of them have a node. Coscheduling's groups have no
        conditions, but the time at which their first member was bound.
        """
        if self.key.api == COSCHEDULING_API:
            return bool(self.status.get("scheduleStartTime"))
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
    """The fields that groups of both APIs have in the same place."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    namespace, name = text(metadata.get("namespace") or "default"), text(metadata["name"])
    said = parse_group_annotations(text_map(metadata.get("annotations")))
    return PodGroup(
        key=PodGroupKey(api, namespace, name),
        uid=text_or_empty(metadata.get("uid")),
        resource_version=text_or_empty(metadata.get("resourceVersion")),
        min_count=0,
        created=text_or_empty(metadata.get("creationTimestamp")),
        topology=said.topology,
        preferred_topology=said.preferred_topology,
        min_count_by_role=said.min_count_by_role,
        give_back_seconds=said.give_back_seconds,
        reserves_room=said.reserves_room,
        queue=said.queue,
        conditions=tuple(status.get("conditions") or ()),
        status=status,
        terminating="deletionTimestamp" in metadata,
        problems=said.problems,
    )
