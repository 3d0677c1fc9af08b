"""A pod's demands on a node, parsed once and shared by every pod that demands the same.

`models.pod` calls `intern_spec` for each pod. Invariant: equal JSON gives the identical
SchedulingSpec for as long as any pod uses it, so that verdicts, scores and hints are computed once
per spec and not once per pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

from stellwerk.models.complexity import too_complex, volumes_complexity
from stellwerk.models.pod_affinity import (
    PodAffinity,
    SpreadConstraint,
    parse_pod_affinity,
    parse_spread_constraints,
)
from stellwerk.models.pod_claims import ClaimReference, parse_claim_references
from stellwerk.models.pod_resources import PodResources, read_resources, resources_json
from stellwerk_kube.json_values import (
    JsonObject,
    packed,
    text_map,
    text_or_empty,
    texts,
    whole_number,
)
from stellwerk_kube.resource_amounts import ResourceAmounts, resource_amounts
from stellwerk_kube.selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    PreferredTerm,
    parse_node_selector,
    parse_preferred_terms,
)
from stellwerk_kube.taints import Toleration, parse_tolerations

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
PREEMPT_NEVER: Final = "Never"
EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 a host port's, never one to listen on
"""The hostIP of a port that is claimed on every address."""
_ASKED_OF_NODES: Final = frozenset({"nodeSelector", "tolerations", "topologySpreadConstraints"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod claims on its node; EVERY_ADDRESS claims it on all of them."""

    host_ip: str
    protocol: str
    port: int


# Where no two pods are alike, one is made for each: a frozen dataclass takes 3 µs more.
@dataclass(slots=True, eq=False, weakref_slot=True)
class SchedulingSpec:
    """A pod's demands on a node, shared by all pods that demand the same; compared by identity.

    Treat as immutable.
    """

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
    """Init and regular containers: the divisor of ImageLocality until v1.36."""
    scheduling_gates: tuple[str, ...]
    resource_claims: tuple[ClaimReference, ...]
    required_features: frozenset[str]
    """Node features that the pod needs declared (NodeDeclaredFeatures)."""
    too_complex: str = ""
    """The reason why the pod is not scheduled, and nothing else of it compiled; empty: it is."""
    size_bytes: int = 0
    """Bytes of the JSON that it was compiled from."""
    resources_text: bytes = b""
    """The JSON that `resources` reads."""

    @property
    def resources(self) -> PodResources:
        """The requests and limits of each container, where `amounts` do not say enough."""
        return read_resources(self.resources_text or _NO_RESOURCES)


_NO_RESOURCES: Final = resources_json({})
_specs: WeakValueDictionary[bytes, SchedulingSpec] = WeakValueDictionary()


def intern_spec(
    spec: JsonObject,
    affinity: JsonObject | None,
    namespace: str,
    labels: Mapping[str, str],
    priority: int,
    policy: str,
    max_complexity: int | None = None,
) -> SchedulingSpec:
    """The one SchedulingSpec of pods like this.

    Of a pod beyond `max_complexity` only what other pods' decisions need is compiled if it has a
    node, else nothing.

    Args:
        spec: spec of the pod.
        affinity: its affinity without the node names that are the pod's own.
        namespace: where the pod is; terms of its affinity mean this one by default.
        labels: of the pod; matchLabelKeys take values from them.
        priority: as resolved.
        policy: the preemption policy, as resolved.
        max_complexity: the limit; None: there is none.
    """
    key = _key(spec, affinity, namespace, labels, priority, policy)
    # No part has less than a byte; volumes are no part of the key.
    of_volumes = volumes_complexity(spec) if spec.get("volumes") else 0
    if max_complexity is not None and len(key) + of_volumes > max_complexity:
        reason = too_complex(spec, max_complexity)
        if reason:
            spec, affinity, key = _reduced(spec, affinity or {}, key + reason.encode())
            found = _specs.get(key)
            if found is None:
                compiled = _compile(spec, affinity, namespace, labels, priority, policy, len(key))
                pending = not spec.get("nodeName")
                found = _specs[packed(key)] = (
                    replace(compiled, too_complex=reason) if pending else compiled
                )
            return found
    found = _specs.get(key)
    if found is None:
        found = _specs[packed(key)] = _compile(
            spec, affinity or {}, namespace, labels, priority, policy, len(key)
        )
    return found


def _reduced(
    spec: JsonObject, affinity: JsonObject, key: bytes
) -> tuple[JsonObject, JsonObject, bytes]:
    """The compiled part of a pod beyond the limit: its spec, its affinity, and the key for both."""
    if not spec.get("nodeName"):
        kept = {field: spec.get(field) for field in ("schedulerName", "schedulingGates")}
        return kept, {}, b"pending " + sha256(key).digest()
    # What it asks of nodes has been answered; what it uses and the pods it repels still count.
    kept = {field: value for field, value in spec.items() if field not in _ASKED_OF_NODES}
    of_pods = {field: value for field, value in affinity.items() if field != "nodeAffinity"}
    return kept, of_pods, b"bound " + sha256(key).digest()


def without_node_names(affinity: JsonObject) -> tuple[JsonObject, frozenset[str] | None]:
    """Take `metadata.name In (…)` out of required terms, so that a DaemonSet's pods share one spec.

    Only where every term has exactly one such field and nothing else: then the terms' names are
    one set.
    """
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get(_REQUIRED) or {}
    terms = required.get("nodeSelectorTerms") or []
    names: set[str] = set()
    for term in terms:
        fields = term.get("matchFields") or []
        if term.get("matchExpressions") or len(fields) != 1:
            return affinity, None
        field = fields[0]
        if field.get("key") != NODE_NAME_FIELD or field.get("operator") != "In":
            return affinity, None
        names.update(texts(field.get("values")))
    if not terms:
        return affinity, None
    rest = {key: value for key, value in node_affinity.items() if key != _REQUIRED}
    return {**affinity, "nodeAffinity": rest}, frozenset(names)


def _key(
    spec: JsonObject,
    affinity: JsonObject | None,
    namespace: str,
    labels: Mapping[str, str],
    priority: int,
    policy: str,
) -> bytes:
    """Everything that `_compile` reads, as bytes; what differs from pod to pod is left out."""
    get = spec.get
    spread = get("topologySpreadConstraints")
    # Terms default to the pod's namespace, and matchLabelKeys take values from its labels.
    context = (namespace, labels) if affinity or spread else None
    if context is not None and not _uses_label_keys(affinity, spread):
        context = (namespace, {})
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


def _uses_label_keys(affinity: JsonObject | None, spread: Sequence[JsonObject] | None) -> bool:
    if any(constraint.get("matchLabelKeys") for constraint in spread or ()):
        return True
    if not affinity or not ("podAffinity" in affinity or "podAntiAffinity" in affinity):
        return False
    # Any value that contains the field's name makes the spec less shared, never wrong.
    return b"atchLabelKeys" in orjson.dumps(affinity)


def _compile(
    spec: JsonObject,
    affinity: JsonObject,
    namespace: str,
    labels: Mapping[str, str],
    priority: int,
    policy: str,
    size_bytes: int,
) -> SchedulingSpec:
    node_affinity = affinity.get("nodeAffinity") or {}
    init_containers, containers = spec.get("initContainers") or (), spec.get("containers") or ()
    return SchedulingSpec(
        scheduler_name=text_or_empty(spec.get("schedulerName")) or DEFAULT_SCHEDULER_NAME,
        priority=priority,
        preemption_policy=policy,
        amounts=resource_amounts(spec),
        node_selector=text_map(spec.get("nodeSelector")),
        required_node_affinity=parse_node_selector(node_affinity.get(_REQUIRED)),
        preferred_node_affinity=parse_preferred_terms(node_affinity.get(_PREFERRED)),
        tolerations=parse_tolerations(spec.get("tolerations")),
        pod_affinity=parse_pod_affinity(affinity, namespace, labels),
        spread_constraints=parse_spread_constraints(spec.get("topologySpreadConstraints"), labels),
        host_ports=_host_ports([*filter(_is_sidecar, init_containers), *containers]),
        images=_images(spec),
        container_count=len(init_containers) + len(containers),
        scheduling_gates=texts(gate["name"] for gate in spec.get("schedulingGates") or ()),
        resource_claims=parse_claim_references(spec.get("resourceClaims")),
        required_features=_required_features(spec, [*init_containers, *containers]),
        size_bytes=size_bytes,
        resources_text=packed(resources_json(spec)),
    )


def _is_sidecar(init_container: JsonObject) -> bool:
    return bool(init_container.get("restartPolicy") == "Always")


def _host_ports(containers: list[JsonObject]) -> tuple[HostPort, ...]:
    """Host ports of containers that run as long as the pod (`util.GetHostPorts`)."""
    return tuple(
        HostPort(
            text_or_empty(port.get("hostIP")) or EVERY_ADDRESS,
            text_or_empty(port.get("protocol")) or "TCP",
            whole_number(port["hostPort"]),
        )
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _images(spec: JsonObject) -> tuple[str, ...]:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    volumes = [volume for volume in spec.get("volumes") or () if volume.get("image") is not None]
    return (
        *(text_or_empty(container.get("image")) for container in containers),
        *(text_or_empty(volume["image"].get("reference")) for volume in volumes),
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
