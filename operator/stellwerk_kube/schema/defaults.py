"""The values that the API server fills in where a client leaves a field out, as one table.

The strategies of the embedded cluster's kinds call it, and so does whatever reads manifests to
decide on them. Values stand in the tables (`default=`); what follows from other fields is done by a
function of this module, which the block of the kind names. Kinds that no decision reads have their
functions in `stellwerk_cluster.defaults`. Invariant: only fields that are not there are filled in,
first those of the tables in the order of their numbers; a second pass changes nothing.
"""

from __future__ import annotations

import copy
import json
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stellwerk_kube.pod_amounts import pod_amounts, qos_class
from stellwerk_kube.schema.tables import tables
from stellwerk_kube.schema.types import leads_to, type_block, types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject
    from stellwerk_kube.schema.types import Field

_EMPTY: Final[JsonObject] = {}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_POD_LEVEL: Final = ("cpu", "memory")
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


class TypeDefaults(NamedTuple):
    """The defaults of one type: values by field, and the fields whose parts have defaults."""

    values: tuple[tuple[str, Any], ...]
    """A dict is copied for each object."""
    parts: tuple[tuple[str, str, str], ...]
    """Field, type of its parts, and `[` or `{` for a list or map of them."""


@cache
def has_defaults(type_name: str) -> bool:
    """Whether any field of a type, or of the types that it leads to, has a default."""
    return type_name in types() and any(
        "default" in field.words for each in leads_to(type_name) for field in types()[each].values()
    )


def fill_defaults(type_name: str, obj: JsonObject) -> None:
    """Fill in what is missing in an object of a type, and in the objects inside."""
    plan = declared_defaults(type_name)
    for name, value in plan.values:
        if name not in obj:
            obj[name] = copy.deepcopy(value) if isinstance(value, dict) else value
    for name, element, shape in plan.parts:
        part = obj.get(name)
        if part is None:
            continue
        for each in part if shape == "[" else part.values() if shape == "{" else (part,):
            fill_defaults(element, each)


@cache
def declared_defaults(type_name: str) -> TypeDefaults:
    """The defaults of one type."""
    fields = sorted(type_block(type_name).fields.values(), key=lambda field: field.number)
    return TypeDefaults(
        tuple((field.name, _value(field)) for field in fields if "default" in field.words),
        tuple(
            (field.name, field.element, field.type[0])
            for field in fields
            if has_defaults(field.element)
        ),
    )


def filling(
    type_name: str, default: Callable[[JsonObject], None] | None
) -> Callable[[JsonObject], None]:
    """The function that fills in a type's values of the tables, and then calls another one."""
    if default is None:
        return partial(fill_defaults, type_name)

    def fill(obj: JsonObject) -> None:
        fill_defaults(type_name, obj)
        default(obj)

    return fill


def function_of(name: str) -> Callable[[JsonObject], None]:
    """The function of this module that the block of a kind names.

    Raises:
        KeyError: there is none.
    """
    found: Callable[[JsonObject], None] = globals()[name]
    return found


@cache
def default_of(type_name: str) -> Callable[[JsonObject], None]:
    """The function that fills in whatever decisions may read of an object of a kind.

    It is given the object in the form of `decoder.decode`.
    """
    named = next(
        (
            name
            for block in tables().kinds
            if block.words.get("schema", block.kind) == type_name
            and (name := block.rules.get("default"))
        ),
        ".",
    )
    own = None if "." in named else function_of(named)
    return filling(type_name, own) if has_defaults(type_name) else own or (lambda _: None)


def _value(field: Field) -> Any:  # noqa: ANN401  (JSON)
    text = field.words["default"]
    match field.type:
        case "int":
            return int(text)
        case "bool":
            return text == "true"
        case "string":
            return text
        case _ if text[0] == "{":
            return json.loads(text)
        case _:
            raise ValueError(f"{field.name}: no default of type {field.type}")


# --- pods ---------------------------------------------------------------------------------------
def merge_label_keys(pod: JsonObject) -> None:
    """Give selectors with label keys the values that the pod itself has under them."""
    labels = pod["metadata"].get("labels") or _EMPTY
    for holder in _holders(pod["spec"]):
        selector = holder.get("labelSelector")
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for name, operator in _OPERATORS.items()
            for key in holder.get(name) or ()
            if key in labels
        ]
        if selector is not None and added:
            expressions = [*(selector.get("matchExpressions") or ()), *added]
            holder["labelSelector"] = {**selector, "matchExpressions": expressions}


def _holders(spec: JsonObject) -> Iterator[JsonObject]:
    """All terms and constraints of a pod that may have label keys."""
    yield from spec.get("topologySpreadConstraints") or ()
    affinity = spec.get("affinity") or _EMPTY
    for part in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(part) or _EMPTY
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or {}


def default_pod(pod: JsonObject) -> None:
    """Fill in the defaults of a pod, its status included."""
    pod["spec"] = spec = pod.get("spec") or {}
    default_pod_spec(spec)
    for container in containers_of(spec):
        _default_requests(container)
    if (spec.get("resources") or _EMPTY).get("limits"):
        _default_pod_requests(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _default_host_ports(spec)
    status = pod["status"] = pod.get("status") or {}
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", qos_class(spec))


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in what templates get too, and no table can say."""
    for container in containers_of(spec):
        if "imagePullPolicy" not in container:
            container["imagePullPolicy"] = pull_policy(container.get("image", ""))
        for name in _PROBES:
            if name in container:
                _default_probe(container[name])
    for volume in spec.get("volumes") or ():
        if not volume.keys() - {"name"}:
            volume["emptyDir"] = {}
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]


def containers_of(spec: JsonObject) -> Iterable[JsonObject]:
    """All containers of a pod, the initial ones first."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()
    yield from spec.get("ephemeralContainers") or ()


def pull_policy(image: str) -> str:
    """Always for an image without a tag or with the tag latest, unless it is named by digest."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: JsonObject) -> None:
    for name, value in _PROBE_DEFAULTS.items():
        if not probe.get(name):
            probe[name] = value


def _default_requests(holder: JsonObject) -> None:
    """A resource with a limit and no request requests its limit."""
    resources = holder.get("resources") or _EMPTY
    limits = resources.get("limits")
    if not limits:
        return
    requests = {**limits, **(resources.get("requests") or {})}
    holder["resources"] = {**resources, "requests": dict(sorted(requests.items()))}


def _default_pod_requests(spec: JsonObject) -> None:
    """A pod with limits of its own requests what its containers do, or else its limits."""
    resources = spec["resources"]
    limits, requests = resources["limits"], resources.get("requests") or {}
    own = {
        name: amount
        for name, amount in pod_amounts(spec, "requests", whole_pod=False).items()
        if name in _POD_LEVEL
    }
    known = {
        name: amount
        for name, amount in limits.items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
    }
    filled = {**known, **own, **requests}
    spec["resources"] = {**resources, "requests": dict(sorted(filled.items()))}


def _default_host_ports(spec: JsonObject) -> None:
    for container in containers_of(spec):
        for port in container.get("ports") or ():
            port.setdefault("hostPort", port.get("containerPort", 0))


# --- kinds beside pods ---------------------------------------------------------------------------
def default_node(node: JsonObject) -> None:
    """The capacity is allocatable unless the node says otherwise."""
    status, spec = node["status"], node["spec"]
    if status.get("capacity"):
        allocatable = {**status["capacity"], **(status.get("allocatable") or {})}
        if allocatable != status.get("allocatable"):
            node["status"] = {**status, "allocatable": dict(sorted(allocatable.items()))}
    blocks = spec.get("podCIDRs") or ()
    if spec.get("podCIDR") and (not blocks or blocks[0] != spec["podCIDR"]):
        # Clients that know one block alone say which one.
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif spec.get("podCIDRs") and not spec.get("podCIDR"):
        spec["podCIDR"] = spec["podCIDRs"][0]


def default_claim(claim: JsonObject) -> None:
    """Waiting for a volume; both ways to name a source say the same."""
    spec = claim["spec"]
    if "dataSource" in spec and "dataSourceRef" not in spec:
        spec["dataSourceRef"] = dict(spec["dataSource"])
    elif "dataSource" not in spec and not spec.get("dataSourceRef", _EMPTY).get("namespace"):
        spec.update({"dataSource": dict(spec["dataSourceRef"])} if "dataSourceRef" in spec else {})
    claim["status"] = {**claim["status"]}
    claim["status"].setdefault("phase", "Pending")


def default_volume(volume: JsonObject) -> None:
    """Waiting for its controller."""
    volume["status"] = {**volume["status"]}
    volume["status"].setdefault("phase", "Pending")


def default_csi_driver(driver: JsonObject) -> None:
    """The defaults of a driver."""
    spec = driver["spec"]
    spec.setdefault("attachRequired", True)
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")


def default_resource_claim(claim: JsonObject) -> None:
    """One device for each request, and tolerations that compare."""
    _default_devices(claim["spec"].get("devices") or {})


def default_claim_template(template: JsonObject) -> None:
    """Fill in the defaults of the claims that are made from a template."""
    _default_devices((template["spec"].get("spec") or _EMPTY).get("devices") or {})


def _default_devices(devices: JsonObject) -> None:
    for request in devices.get("requests") or ():
        for choice in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if choice is None:
                continue
            if not choice.get("allocationMode"):
                choice["allocationMode"] = "ExactCount"
            if choice["allocationMode"] == "ExactCount" and not choice.get("count"):
                choice["count"] = 1
            for toleration in choice.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"


def default_slice(slice_: JsonObject) -> None:
    """Nothing is left open but what a driver leaves open on purpose."""
    for device in slice_["spec"].get("devices") or ():
        for attribute in (device.get("attributes") or _EMPTY).values():
            for unset in [name for name, value in attribute.items() if value is None]:
                del attribute[unset]


def default_namespace(namespace: JsonObject) -> None:
    """A namespace has its name as a label; a name that the server makes comes too late for it."""
    if not namespace["metadata"].get("generateName"):
        label_with_name(namespace)


def label_with_name(namespace: JsonObject) -> None:
    """Give a namespace the label that has its name."""
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), _NAME_LABEL: metadata.get("name", "")}
    metadata["labels"] = dict(sorted(labels.items()))


def default_limit_range(limit_range: JsonObject) -> None:
    """The most that a container may use is its limit unless it says so, and that its request."""
    for limit in limit_range["spec"].get("limits") or ():
        if limit.get("type") != "Container":
            continue
        limits = {**(limit.get("max") or {}), **(limit.get("default") or {})}
        requests = {**(limit.get("min") or {}), **limits, **(limit.get("defaultRequest") or {})}
        if limits:
            limit["default"] = dict(sorted(limits.items()))
        if requests:
            limit["defaultRequest"] = dict(sorted(requests.items()))


def default_template(owner: JsonObject) -> None:
    """Fill in the template of pods that an object has, or the jobs that it makes."""
    holder = owner.get("spec") or owner
    job = (holder.get("jobTemplate") or _EMPTY).get("spec")
    template = (holder if job is None else job).get("template")
    if template:
        default_pod_spec(template["spec"])


def default_replica_set(replica_set: JsonObject) -> None:
    """Without pods so far."""
    default_template(replica_set)
    replica_set["status"] = {"replicas": 0, **replica_set["status"]}


def default_replication_controller(controller: JsonObject) -> None:
    """Pods are selected by the labels of the template."""
    default_replica_set(controller)
    spec = controller["spec"]
    labels = ((spec.get("template") or _EMPTY).get("metadata") or _EMPTY).get("labels")
    if labels:
        spec.setdefault("selector", labels)
        controller["metadata"].setdefault("labels", labels)
