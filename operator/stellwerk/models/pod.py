"""A pod as the scheduler sees it: parsed once per change, sharing what many pods have in common.

Whole pods differ, but their parts repeat. A `SchedulingSpec` (what the pod asks for) and a
`LabelSet` (namespace and labels) are interned and compared by identity. A `PodInfo` is the small
part that differs. Called by event handlers and `decide`. Invariant: a record has everything that
the scheduler reads of a pod, so the object itself is not kept.
"""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import orjson

from stellwerk.models.gpu import DEVICE_IDS, parse_device_ids
from stellwerk.models.pod_claims import (
    ContainerRequests,
    GeneratedClaims,
    container_requests,
    generated_claims,
)
from stellwerk.models.pod_group import (
    COSCHEDULING_API,
    COSCHEDULING_LABEL,
    WORKLOAD_API,
    PodGroupKey,
)
from stellwerk.models.scheduling_spec import (
    PREEMPT_LOWER_PRIORITY,
    SchedulingSpec,
    intern_spec,
    without_node_names,
)
from stellwerk.models.volumes import PodUses, PodVolume, parse_volumes
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.deletion_cost import written_deletion_cost
from stellwerk_kube.json_values import (
    JsonObject,
    number_or_none,
    packed,
    text,
    text_map,
    text_or_empty,
)
from stellwerk_kube.resource_amounts import ResourceAmounts, is_resized, resource_amounts


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LabelSet:
    """Namespace and labels of a pod, shared by all that have the same; compared by identity."""

    namespace: str
    labels: Mapping[str, str]


@dataclass(slots=True, eq=False, weakref_slot=True)
class PodDetails:
    """The fields of a pod that are seldom asked for, shared by pods in which they are the same.

    Treat as immutable. Few bound pods of a cluster differ here; one with conditions that are kept,
    volumes or claims has details of its own.
    """

    generation: int
    """metadata.generation, which conditions observe; 0: unknown."""
    nominated_node_name: str
    node_names: frozenset[str] | None
    """Nodes that the metadata.name fields of all required terms name; None: any node."""
    phase: str
    condition_types: tuple[str, ...]
    """The types of all conditions in their order, which patches have to name."""
    group: PodGroupKey | None
    """The group that it is a member of, whether or not that exists."""
    reported_qos_class: str
    """status.qosClass; empty: the status does not say."""
    active_deadline_seconds: int | None
    """spec.activeDeadlineSeconds: it ends so long after its start, at the latest; None: unknown."""
    gpu_devices: tuple[int, ...]
    """The numbers of its GPUs on the node."""
    is_ready: bool
    """Whether its condition Ready is True; budgets may let others go."""
    deletion_cost: int | None
    """The cost that ReplicaSets compare when they have too many pods; nearly always 0. None: the
    annotation is no such number, and counts as 0."""
    created: str
    """metadata.creationTimestamp of a pod without a node; empty: it has one, or the time is not
    known. Bound pods of a workload differ in it, and could not share their details."""
    conditions: tuple[JsonObject, ...] = ()
    """status.conditions of a pod that is unbound or terminating; others keep `condition_types`."""
    volumes: tuple[PodVolume, ...] = ()
    generated_claims: GeneratedClaims | None = None
    """The resource claims that were made for the pod; None: its status names none."""
    extended_requests: tuple[ContainerRequests, ...] = ()
    """Requests of each container of a pod without a node, if any requests extended resources."""
    volume_uses: PodUses | None = None
    """The uses of very many volumes, as a whole; None: there are few."""


@dataclass(slots=True, eq=False)
class PodInfo:
    """One pod. Treat as immutable: for a change, take a copy (`with_node`).

    A cluster has very many: a field of its own here costs each of them 8 bytes, a value that no
    other pod shares 50 and more.
    """

    uid: str
    name: str
    namespace: str
    resource_version: str
    spec: SchedulingSpec
    label_set: LabelSet
    amounts: ResourceAmounts
    """spec.amounts, unless an in-place resize makes this pod's own."""
    node_name: str
    """The node it is bound or assumed to; empty: unbound."""
    terminating: bool
    started_seconds: float | None
    """status.startTime in seconds since the epoch; None: not started."""
    owner: tuple[str, str, str] | None
    """(apiVersion kind, name, uid) of the controlling owner."""
    details: PodDetails

    @property
    def gpu_devices(self) -> tuple[int, ...]:
        """The numbers of its GPUs on the node; Reserve writes them into an assumed pod's copy."""
        return self.details.gpu_devices

    @gpu_devices.setter
    def gpu_devices(self, numbers: tuple[int, ...]) -> None:
        self.details = replace(self.details, gpu_devices=numbers)

    @property
    def generation(self) -> int:
        """metadata.generation, which conditions observe; 0: unknown."""
        return self.details.generation

    @property
    def nominated_node_name(self) -> str:
        """status.nominatedNodeName; empty: none."""
        return self.details.nominated_node_name

    @property
    def node_names(self) -> frozenset[str] | None:
        """Nodes that the metadata.name fields of all required terms name; None: any node."""
        return self.details.node_names

    @property
    def volumes(self) -> tuple[PodVolume, ...]:
        """The volumes that a plugin looks at."""
        return self.details.volumes

    @property
    def phase(self) -> str:
        """status.phase."""
        return self.details.phase

    @property
    def conditions(self) -> tuple[JsonObject, ...]:
        """status.conditions of a pod that is unbound or terminating; others keep their types."""
        return self.details.conditions

    @property
    def unscheduled_since_seconds(self) -> float | None:
        """Time since when it waits for a node: lastTransitionTime of its PodScheduled=False.

        Seconds since the epoch, which survive a restart of the scheduler. None: it was not refused
        yet, is gated, or has a node.
        """
        for condition in self.details.conditions:
            if condition.get("type") == "PodScheduled":
                is_refused = condition.get("status") == "False"
                if not is_refused or condition.get("reason") == SCHEDULING_GATED:
                    return None
                try:
                    return parse_moment(condition.get("lastTransitionTime")).timestamp()
                except ValueError:
                    return None
        return None

    @property
    def is_ready(self) -> bool:
        """Whether its condition Ready is True."""
        return self.details.is_ready

    @property
    def deletion_cost(self) -> int:
        """The cost that ReplicaSets compare when they have too many pods."""
        return self.details.deletion_cost or 0

    @property
    def created(self) -> str:
        """metadata.creationTimestamp of a pod without a node; empty: not known."""
        return self.details.created

    @property
    def condition_types(self) -> tuple[str, ...]:
        """The types of all conditions in their order, which patches have to name."""
        return self.details.condition_types

    @property
    def generated_claims(self) -> GeneratedClaims | None:
        """The resource claims that were made for the pod; None: its status names none."""
        return self.details.generated_claims

    @property
    def extended_requests(self) -> tuple[ContainerRequests, ...]:
        """Requests of each container, of a pod that has no node and requests extended resources."""
        return self.details.extended_requests

    @property
    def volume_uses(self) -> PodUses | None:
        """The uses of very many volumes, as a whole; None: there are few."""
        return self.details.volume_uses

    @property
    def group(self) -> PodGroupKey | None:
        """The group that it is a member of, whether or not that exists."""
        return self.details.group

    @property
    def active_deadline_seconds(self) -> int | None:
        """spec.activeDeadlineSeconds; None: unknown."""
        return self.details.active_deadline_seconds

    @property
    def qos_class(self) -> str:
        """Guaranteed, Burstable or BestEffort: as reported, or else as computed (`GetPodQOS`)."""
        return self.details.reported_qos_class or self.spec.resources.qos_class

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels."""
        return self.label_set.labels

    @property
    def priority(self) -> int:
        """spec.priority, 0 when unset; the name of its priority class is not kept."""
        return self.spec.priority

    @property
    def start_time(self) -> str:
        """status.startTime, RFC 3339; empty: not started."""
        if self.started_seconds is None:
            return ""
        return datetime.fromtimestamp(self.started_seconds, UTC).isoformat().replace("+00:00", "Z")

    @property
    def finished(self) -> bool:
        """Whether the pod has run to its end and holds nothing any more."""
        return self.phase in {"Succeeded", "Failed"}

    def with_node(self, node_name: str) -> "PodInfo":
        """Copy the pod, assumed on a node."""
        # copy.replace, but all fields are read at once: it is made for every decision.
        assumed = PodInfo(*_fields(self))
        assumed.node_name = node_name
        return assumed

    def with_nomination(self, node_name: str) -> "PodInfo":
        """Copy the pod, nominated to a node."""
        nominated = PodInfo(*_fields(self))
        nominated.details = replace(self.details, nominated_node_name=node_name)
        return nominated


SCHEDULING_GATED: Final = "SchedulingGated"
"""The reason of PodScheduled=False while a pod has scheduling gates; the API server writes it."""

_fields: Final = attrgetter(*PodInfo.__slots__)

ResolvePriority: TypeAlias = Callable[[str], tuple[int, str]]
"""PriorityClass name ("" for none) → priority and preemption policy."""

_label_sets: WeakValueDictionary[bytes, LabelSet] = WeakValueDictionary()
_details: WeakValueDictionary[Hashable, PodDetails] = WeakValueDictionary()
_owners: dict[tuple[str, str, str], tuple[str, str, str]] = {}
_condition_types: dict[tuple[str, ...], tuple[str, ...]] = {}
_MAX_SHARED_TYPE_LISTS: Final = 1024
"""Lists of condition types that pods share. Lists beyond them, which are made up, cost their pods
memory."""
_MAX_SHARED_OWNERS: Final = 8192
"""Owners that are shared at a time; in a list the pods of an owner stand side by side."""
_MAX_SHARED_OWNER_CHARACTERS: Final = 1024
"""Characters of an owner's kind, name and uid. A longer owner, which no controller has, is not
shared."""
_MAX_SHARED_TYPES: Final = 16
"""Condition types of a list that is shared."""
_CLAIM_REPORTS: Final = frozenset({"resourceClaimStatuses", "extendedResourceClaimStatus"})
"""The fields of status that name claims which were made for the pod."""
_RESIZE_REPORTS: Final = frozenset({"containerStatuses", "initContainerStatuses", "resources"})
"""The fields of status in which a pod may report other resources than its spec."""


def parse_pod(
    obj: JsonObject,
    resolve_priority: ResolvePriority | None = None,
    max_complexity: int | None = None,
    compatibility: Compatibility = AS_RECORDED,
) -> PodInfo:
    """Parse a v1.Pod.

    `compatibility` says how a pod counts that is being resized.
    `resolve_priority` fills in what priority admission would have; without it the priority is 0.
    Beyond `max_complexity` a pod without a node is not compiled, see `spec.too_complex`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    name, namespace = text(metadata["name"]), sys.intern(metadata.get("namespace") or "default")
    node_name = sys.intern(spec.get("nodeName") or "")
    uid = text_or_empty(metadata.get("uid")) or f"{namespace}/{name}"
    resource_version = text_or_empty(metadata.get("resourceVersion"))
    generation = number_or_none(metadata.get("generation")) or 0
    nominated_node_name = text_or_empty(status.get("nominatedNodeName"))
    phase = text_or_empty(status.get("phase"))
    priority = number_or_none(spec.get("priority"))
    policy = text_or_empty(spec.get("preemptionPolicy"))
    qos_class = sys.intern(text_or_empty(status.get("qosClass")))
    deadline_seconds = number_or_none(spec.get("activeDeadlineSeconds"))
    created = "" if node_name else text_or_empty(metadata.get("creationTimestamp"))
    # The class's name is not kept: a feature that needs it adds a field to PodDetails.
    if priority is None and resolve_priority is not None:
        priority, class_policy = resolve_priority(text_or_empty(spec.get("priorityClassName")))
        policy = policy or class_policy
    label_set = intern_label_set(namespace, metadata.get("labels") or {})
    shared, node_names = _intern_spec(spec, label_set, priority or 0, policy, max_complexity)
    amounts = shared.amounts
    if not _RESIZE_REPORTS.isdisjoint(status) and is_resized(spec, status, compatibility):
        amounts = resource_amounts(spec, status, compatibility)
    terminating = "deletionTimestamp" in metadata
    # Of a pod that is going, preemption asks whether it was a victim.
    keeps_conditions = terminating or not node_name
    conditions = status.get("conditions") or ()
    has_volumes = bool(spec.get("volumes")) and not shared.too_complex
    volumes = parse_volumes(name, spec["volumes"]) if has_volumes else ()
    conditions_kept = tuple(conditions) if keeps_conditions else ()
    claims = None if _CLAIM_REPORTS.isdisjoint(status) else generated_claims(status)
    extended = () if node_name else _extended_requests(spec, shared)
    started, annotations = status.get("startTime"), metadata.get("annotations")
    devices = annotations.get(DEVICE_IDS) if annotations else None
    # The first fields of PodDetails in their order, and the key under which pods share one.
    alike = (
        generation,
        nominated_node_name,
        node_names,
        phase,
        _intern_types(conditions),
        _group(spec, label_set),
        qos_class,
        deadline_seconds,
        # Of a pod without a node the annotation is a user's, or of an attempt that failed.
        parse_device_ids(text_or_empty(devices)) if devices and node_name else (),
        any(each["type"] == "Ready" and each.get("status") == "True" for each in conditions),
        written_deletion_cost(annotations) if annotations else 0,
        created,
    )
    is_own = bool(conditions_kept or volumes or claims or extended)
    details = None if is_own else _details.get(alike)
    if details is None:
        uses = PodUses.of(namespace, volumes) if volumes else None
        details = PodDetails(*alike, conditions_kept, volumes, claims, extended, uses)
        if not is_own:
            _details[alike] = details
    return PodInfo(
        uid=uid,
        name=name,
        namespace=namespace,
        resource_version=resource_version,
        spec=shared,
        label_set=label_set,
        amounts=amounts,
        node_name=node_name,
        terminating=terminating,
        started_seconds=parse_moment(started).timestamp() if started else None,
        owner=_controller(metadata["ownerReferences"]) if metadata.get("ownerReferences") else None,
        details=details,
    )


def _group(spec: JsonObject, label_set: LabelSet) -> PodGroupKey | None:
    """Membership by field, or by the label of the coscheduling plugin; the field goes first."""
    field = spec.get("schedulingGroup")
    name = text_or_empty(field.get("podGroupName")) if field else ""
    if name:
        return PodGroupKey(WORKLOAD_API, label_set.namespace, name)
    name = label_set.labels.get(COSCHEDULING_LABEL, "")
    return PodGroupKey(COSCHEDULING_API, label_set.namespace, name) if name else None


def _extended_requests(spec: JsonObject, shared: SchedulingSpec) -> tuple[ContainerRequests, ...]:
    """Requests of containers for extended resources, which devices may back."""
    requests = shared.amounts.requests
    return container_requests(spec, requests) if any("/" in each for each in requests) else ()


def _intern_types(conditions: Sequence[JsonObject]) -> tuple[str, ...]:
    """The types of conditions; few lists of them occur, so that pods share theirs."""
    types = tuple([condition["type"] for condition in conditions])
    found = _condition_types.get(types)
    if found is not None:
        return found
    is_long = (
        len(types) > _MAX_SHARED_TYPES or max(map(len, types), default=0) > _MAX_SHARED_TYPE_LISTS
    )
    if not is_long and len(_condition_types) < _MAX_SHARED_TYPE_LISTS:
        _condition_types[types] = types
    return types


def intern_label_set(namespace: str, labels: Mapping[str, str]) -> LabelSet:
    """The one LabelSet of these labels in this namespace."""
    key = orjson.dumps((namespace, labels))
    found = _label_sets.get(key)
    if found is None:
        found = _label_sets[packed(key)] = LabelSet(namespace, dict(text_map(labels)))
    return found


def _controller(owners: list[JsonObject]) -> tuple[str, str, str] | None:
    for owner in owners:
        if owner.get("controller"):
            kind = f"{owner['apiVersion']} {owner['kind']}"
            found = (kind, text(owner["name"]), text(owner["uid"]))
            if sum(map(len, found)) > _MAX_SHARED_OWNER_CHARACTERS:
                return found
            if len(_owners) >= _MAX_SHARED_OWNERS:
                _owners.clear()
            return _owners.setdefault(found, found)
    return None


def _intern_spec(
    spec: JsonObject,
    label_set: LabelSet,
    priority: int,
    policy: str,
    max_complexity: int | None,
) -> tuple[SchedulingSpec, frozenset[str] | None]:
    policy = policy or PREEMPT_LOWER_PRIORITY
    affinity = spec.get("affinity")
    node_names = None
    if affinity:
        affinity, node_names = without_node_names(affinity)
    namespace, labels = label_set.namespace, label_set.labels
    shared = intern_spec(spec, affinity, namespace, labels, priority, policy, max_complexity)
    return shared, node_names
