"""A pod as the scheduler sees it.

Parsed once per change, sharing everything that many pods have in common.

Whole pods do not repeat, but three parts do. A `SchedulingSpec` (what the pod asks for) and a
`LabelSet` (namespace and labels) are interned and compared by identity; a `PodInfo` is the small
rest. Called by event handlers and `decide`. Invariant: equal JSON gives the identical
SchedulingSpec for as long as any pod uses it, so that verdicts, scores and hints are computed once
per spec and not once per pod.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import orjson

from stellwerk.models.pod_affinity import (
    PodAffinity,
    SpreadConstraint,
    parse_pod_affinity,
    parse_spread_constraints,
)
from stellwerk.models.pod_resources import ResourceAmounts, is_resized, resource_amounts
from stellwerk.models.selectors import (
    NodeSelector,
    PreferredTerm,
    parse_node_selector,
    parse_preferred_terms,
)
from stellwerk.models.taints import Toleration, parse_tolerations
from stellwerk.models.volumes import PodVolume, parse_volumes

JsonObject: TypeAlias = Mapping[str, Any]

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
_NAME_FIELD: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod claims on its node; host_ip 0.0.0.0 claims it on every address."""

    host_ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SchedulingSpec:
    """What a pod asks of a node, shared by all pods that ask the same; compared by identity."""

    scheduler_name: str
    priority: int
    preemption_policy: str
    amounts: ResourceAmounts
    node_selector: Mapping[str, str]
    required_node_affinity: NodeSelector | None
    """Without the metadata.name fields that PodInfo.node_names holds."""
    preferred_node_affinity: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    pod_affinity: PodAffinity
    spread_constraints: tuple[SpreadConstraint, ...]
    host_ports: tuple[HostPort, ...]
    images: tuple[str, ...]
    """Image of each init container, container and image volume, in the pod's words."""
    container_count: int
    """Init and regular containers: the divisor of ImageLocality."""
    scheduling_gates: tuple[str, ...]
    resource_claims: tuple[str, ...]
    required_features: frozenset[str]
    """Node features that the pod needs declared (NodeDeclaredFeatures)."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LabelSet:
    """Namespace and labels of a pod, shared by all pods that have the same.

    Compared by identity.
    """

    namespace: str
    labels: Mapping[str, str]


@dataclass(slots=True, eq=False)
class PodInfo:
    """One pod. Treat as immutable: whoever needs a change takes a copy (`with_node`)."""

    uid: str
    name: str
    namespace: str
    resource_version: str
    generation: int
    """metadata.generation, which conditions observe; 0: unknown."""
    spec: SchedulingSpec
    label_set: LabelSet
    amounts: ResourceAmounts
    """spec.amounts, unless an in-place resize makes this pod's own."""
    node_name: str
    """The node it is bound or assumed to; empty: unbound."""
    nominated_node_name: str
    node_names: frozenset[str] | None
    """Nodes named by metadata.name matchFields of every required term; None.

    No such restriction.
    """
    volumes: tuple[PodVolume, ...]
    phase: str
    terminating: bool
    start_time: str
    """status.startTime, RFC 3339; empty: not started."""
    creation_time: str
    conditions: tuple[JsonObject, ...]
    """status.conditions of a pod that is not bound, or is terminating.

    Of others nothing is kept but `condition_types`.
    """
    condition_types: tuple[str, ...]
    """The types of all conditions in their order, which patches have to name."""
    owner: tuple[str, str, str] | None
    """(apiVersion kind, name, uid) of the controlling owner."""

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
        """spec.priority, 0 when unset."""
        return self.spec.priority

    @property
    def finished(self) -> bool:
        """Whether the pod has run to its end and holds nothing any more."""
        return self.phase in {"Succeeded", "Failed"}

    def with_node(self, node_name: str) -> "PodInfo":
        """The same pod, assumed on a node."""
        # copy.replace spelled out: it is made for every decision.
        assumed = PodInfo.__new__(PodInfo)
        for field in self.__slots__:
            setattr(assumed, field, getattr(self, field))
        assumed.node_name = node_name
        return assumed


ResolvePriority: TypeAlias = Callable[[str], tuple[int, str]]
"""PriorityClass name ("" for none) → priority and preemption policy."""

_specs: WeakValueDictionary[bytes, SchedulingSpec] = WeakValueDictionary()
_label_sets: WeakValueDictionary[bytes, LabelSet] = WeakValueDictionary()
_condition_types: dict[tuple[str, ...], tuple[str, ...]] = {}
_MANY: Final = 1024
"""So many lists of condition types are shared; somebody who makes up more pays for it."""


def parse_pod(obj: JsonObject, resolve_priority: ResolvePriority | None = None) -> PodInfo:
    """Parse a v1.Pod.

    `resolve_priority` fills in what priority admission would have; without it the priority is 0.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    name, namespace = metadata["name"], sys.intern(metadata.get("namespace") or "default")
    label_set = intern_label_set(namespace, metadata.get("labels") or {})
    node_name = sys.intern(spec.get("nodeName") or "")
    shared, node_names = _intern_spec(spec, label_set, resolve_priority)
    amounts = resource_amounts(spec, status) if _reports_resize(spec, status) else shared.amounts
    terminating = "deletionTimestamp" in metadata
    # Of a pod that is going, preemption asks whether it was a victim.
    keeps_conditions = terminating or not node_name
    conditions = status.get("conditions") or ()
    return PodInfo(
        uid=metadata.get("uid") or f"{namespace}/{name}",
        name=name,
        namespace=namespace,
        resource_version=metadata.get("resourceVersion") or "",
        generation=metadata.get("generation") or 0,
        spec=shared,
        label_set=label_set,
        amounts=amounts,
        node_name=node_name,
        nominated_node_name=status.get("nominatedNodeName") or "",
        node_names=node_names,
        volumes=parse_volumes(name, spec["volumes"]) if spec.get("volumes") else (),
        phase=status.get("phase") or "",
        terminating=terminating,
        start_time=status.get("startTime") or "",
        creation_time=metadata.get("creationTimestamp") or "",
        conditions=tuple(conditions) if keeps_conditions else (),
        condition_types=_intern_types(conditions),
        owner=_controller(metadata["ownerReferences"]) if "ownerReferences" in metadata else None,
    )


def _intern_types(conditions: Sequence[JsonObject]) -> tuple[str, ...]:
    """The types of conditions; few lists of them occur, so that pods share theirs."""
    types = tuple(condition["type"] for condition in conditions)
    return _condition_types.setdefault(types, types) if len(_condition_types) < _MANY else types


def intern_label_set(namespace: str, labels: Mapping[str, str]) -> LabelSet:
    """The one LabelSet of these labels in this namespace."""
    key = orjson.dumps((namespace, labels))
    found = _label_sets.get(key)
    if found is None:
        found = _label_sets[key] = LabelSet(namespace, dict(labels))
    return found


def _reports_resize(spec: JsonObject, status: JsonObject) -> bool:
    return ("containerStatuses" in status or "resources" in status) and is_resized(spec, status)


def _controller(owners: list[JsonObject]) -> tuple[str, str, str] | None:
    for owner in owners:
        if owner.get("controller"):
            return (f"{owner['apiVersion']} {owner['kind']}", owner["name"], owner["uid"])
    return None


def _intern_spec(
    spec: JsonObject, label_set: LabelSet, resolve_priority: ResolvePriority | None
) -> tuple[SchedulingSpec, frozenset[str] | None]:
    priority, policy = _priority(spec, resolve_priority)
    affinity = spec.get("affinity")
    node_names = None
    if affinity:
        affinity, node_names = _without_node_names(affinity)
    key = _spec_key(spec, affinity, label_set, priority, policy)
    found = _specs.get(key)
    if found is None:
        found = _specs[key] = _compile(spec, affinity or {}, label_set, priority, policy)
    return found, node_names


def _priority(spec: JsonObject, resolve: ResolvePriority | None) -> tuple[int, str]:
    """The priority admission resolved, or what it would have resolved."""
    priority, policy = spec.get("priority"), spec.get("preemptionPolicy")
    if priority is None and resolve is not None:
        priority, class_policy = resolve(spec.get("priorityClassName") or "")
        policy = policy or class_policy
    return priority or 0, policy or PREEMPT_LOWER_PRIORITY


def _spec_key(
    spec: JsonObject,
    affinity: JsonObject | None,
    label_set: LabelSet,
    priority: int,
    policy: str,
) -> bytes:
    """Everything that `_compile` reads, as bytes; what differs from pod to pod is left out."""
    get = spec.get
    spread = get("topologySpreadConstraints")
    # Terms default to the pod's namespace, and matchLabelKeys take values from its labels.
    context = (label_set.namespace, label_set.labels) if affinity or spread else None
    if context is not None and not _uses_label_keys(affinity, spread):
        context = (label_set.namespace, {})
    return orjson.dumps(
        (
            get("schedulerName"),
            priority,
            policy,
            get("nodeSelector"),
            affinity,
            get("tolerations"),
            spread,
            get("overhead"),
            get("resources"),
            get("schedulingGates"),
            get("resourceClaims"),
            get("hostNetwork"),
            get("hostUsers"),
            [_container_key(container) for container in get("containers") or ()],
            [_container_key(container) for container in get("initContainers") or ()],
            [volume["image"] for volume in get("volumes") or () if "image" in volume],
            context,
        )
    )


def _container_key(container: JsonObject) -> tuple[Any, ...]:
    return (
        container.get("image"),
        container.get("resources"),
        container.get("ports"),
        container.get("restartPolicy"),
        container.get("restartPolicyRules"),
    )


def _uses_label_keys(affinity: JsonObject | None, spread: list[JsonObject] | None) -> bool:
    if any(constraint.get("matchLabelKeys") for constraint in spread or ()):
        return True
    if not affinity or not ("podAffinity" in affinity or "podAntiAffinity" in affinity):
        return False
    # Any value that contains the field's name makes the spec less shared, never wrong.
    text = orjson.dumps(affinity)
    return b"atchLabelKeys" in text


def _without_node_names(affinity: JsonObject) -> tuple[JsonObject, frozenset[str] | None]:
    """Take `metadata.name In (…)` out of required terms, so that a DaemonSet's pods share one spec.

    Only where every term has exactly one such field and nothing else: then the terms' names are
    one set.
    """
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    names: set[str] = set()
    for term in terms:
        fields = term.get("matchFields") or []
        if term.get("matchExpressions") or len(fields) != 1:
            return affinity, None
        field = fields[0]
        if field.get("key") != _NAME_FIELD or field.get("operator") != "In":
            return affinity, None
        names.update(field.get("values") or ())
    if not terms:
        return affinity, None
    rest = {
        key: value
        for key, value in node_affinity.items()
        if key != "requiredDuringSchedulingIgnoredDuringExecution"
    }
    return {**affinity, "nodeAffinity": rest}, frozenset(names)


def _compile(
    spec: JsonObject, affinity: JsonObject, label_set: LabelSet, priority: int, policy: str
) -> SchedulingSpec:
    node_affinity = affinity.get("nodeAffinity") or {}
    init_containers, containers = spec.get("initContainers") or (), spec.get("containers") or ()
    return SchedulingSpec(
        scheduler_name=spec.get("schedulerName") or DEFAULT_SCHEDULER_NAME,
        priority=priority,
        preemption_policy=policy,
        amounts=resource_amounts(spec),
        node_selector=spec.get("nodeSelector") or {},
        required_node_affinity=parse_node_selector(
            node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        ),
        preferred_node_affinity=parse_preferred_terms(
            node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution")
        ),
        tolerations=parse_tolerations(spec.get("tolerations")),
        pod_affinity=parse_pod_affinity(affinity, label_set.namespace, label_set.labels),
        spread_constraints=parse_spread_constraints(
            spec.get("topologySpreadConstraints"), label_set.labels
        ),
        host_ports=_host_ports([*filter(_is_sidecar, init_containers), *containers]),
        images=_images(spec),
        container_count=len(init_containers) + len(containers),
        scheduling_gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or ()),
        resource_claims=tuple(claim["name"] for claim in spec.get("resourceClaims") or ()),
        required_features=_required_features(spec, [*init_containers, *containers]),
    )


def _is_sidecar(init_container: JsonObject) -> bool:
    return bool(init_container.get("restartPolicy") == "Always")


def _host_ports(containers: list[JsonObject]) -> tuple[HostPort, ...]:
    """Host ports of containers that run as long as the pod (`util.GetHostPorts`)."""
    return tuple(
        HostPort(port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])  # noqa: S104 the wildcard address, not a socket to bind
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _images(spec: JsonObject) -> tuple[str, ...]:
    return (
        *(container.get("image") or "" for container in spec.get("initContainers") or ()),
        *(container.get("image") or "" for container in spec.get("containers") or ()),
        *(
            volume["image"].get("reference") or ""
            for volume in spec.get("volumes") or ()
            if volume.get("image")
        ),
    )


def _required_features(spec: JsonObject, containers: list[JsonObject]) -> frozenset[str]:
    """Declared features that scheduling infers from a pod (`InferForScheduling`, v1.36)."""
    features = set()
    if any(
        rule.get("action") == "RestartAllContainers"
        for container in containers
        for rule in container.get("restartPolicyRules") or ()
    ):
        features.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        features.add("UserNamespacesHostNetworkSupport")
    return frozenset(features)
