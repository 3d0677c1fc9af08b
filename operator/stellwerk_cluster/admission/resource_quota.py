"""ResourceQuota: the usage of a new or larger object, and whether its quotas allow it.

Called by the verbs for every object in a namespace that has quotas, after validation. Invariant:
nothing is written here: the verbs store the new usage together with the object, so that no object
is counted that is not there; a quota whose status does not say what it allows yet counts nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import StatusError, forbidden
from stellwerk_cluster.apimachinery.objects import EMPTY, Key, key_of
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.validation.quotas import (
    CROSS_NAMESPACE_SCOPE,
    PRIORITY_SCOPE,
    VOLUME_CLASS_SCOPE,
)
from stellwerk_cluster.validation.resources import is_extended, is_huge_pages
from stellwerk_kube.pod_amounts import Amounts, pod_amounts, qos_class
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from fractions import Fraction

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_MUST_BE_SAID: Final = frozenset(
    ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
)
_LEGACY: Final = ("configmaps", "secrets", "replicationcontrollers", "resourcequotas")
_CLASS: Final = "storageclass.storage.k8s.io"
_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
"""Behind the name of a class of devices: how many devices claims may ask for."""
_MAX_DEVICES_OF_A_CLAIM: Final = 32
"""Devices that a claim for all devices counts for (`AllocationResultsMaxSize`)."""
_UPDATED: Final = ("Pod", "PersistentVolumeClaim", "Service")
"""Kinds of which an update may use more; others are only counted."""
QUOTAS: Final = "resourcequotas"
_CLAIMS: Final = "resourceclaims"
_OF_DEVICES: Final = f"{_CLAIMS}.resource.k8s.io"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def new_usage(
    obj: JsonObject, old: JsonObject | None, cluster: Reader, kind: ResourceKind
) -> dict[Key, JsonObject]:
    """The usage of each quota that the object counts against, with the object, by the quota's key.

    Raises:
        StatusError: a quota does not allow it, or needs to know more (403).
    """
    namespace = obj["metadata"].get("namespace", "")
    if not namespace or (old is not None and kind.kind not in _UPDATED):
        return {}
    is_pod_update = old is not None and kind.kind == "Pod"
    if old is not None and is_pod_update and not pod_usage_differs(obj, old):
        return {}
    found: dict[Key, JsonObject] = {}
    usage: dict[str, str] | None = None
    ordered = sorted(cluster.all(QUOTAS, namespace), key=lambda each: each["metadata"]["name"])
    quotas = [each for each in ordered if (each["status"].get("hard") or EMPTY)]
    for quota in quotas:
        hard = quota["status"]["hard"]
        if usage is None:
            usage = object_usage(obj, kind)
        counted = _counted(kind, usage, hard)
        if not counted or not in_scope(quota, obj, kind):
            continue
        _check_said(quota, obj, kind, counted)
        used = quota["status"].get("used") or EMPTY
        if any(name not in used for name in counted):
            listed = ",".join(sorted(counted))
            why = f"status unknown for quota: {_name(quota)}, resources: {listed}"
            raise _refusal(obj, kind, why)
        # What an update moves into the scope of a quota counts whole.
        was_counted = old is not None and in_scope(quota, old, kind)
        delta = _delta(usage, object_usage(old, kind) if old and was_counted else {})
        asked = {name: each for name, each in delta.items() if name in hard}
        if asked:
            found[key_of(quota)] = _added(quota, obj, kind, asked)
    return found


def may_use(kind: ResourceKind, names: Iterable[str]) -> bool:
    """Whether objects of a kind use one of these resources."""
    if kind.kind == "Pod" and not kind.group:
        return any(map(_is_of_pods, names))
    if kind.group:
        return any(
            name == f"count/{kind.qualified_resource}"
            or (kind.plural == _CLAIMS and name.endswith(_DEVICES))
            for name in names
        )
    return any(kind.plural in name or "storage" in name for name in names)


def _counted(kind: ResourceKind, usage: dict[str, str], hard: JsonObject) -> set[str]:
    """The resources of a quota that objects of a kind can use."""
    if kind.kind != "Pod":
        return hard.keys() & usage.keys()
    return {name for name in hard if name in usage or _is_of_pods(name)}


def _is_of_pods(name: str) -> bool:
    part, _, rest = name.partition(".")
    bare = rest if part in ("requests", "limits") else name
    if bare in _COMPUTE or name in ("pods", "count/pods"):
        return True
    return is_huge_pages(bare) or (part == "requests" and is_extended(bare))


def _check_said(quota: JsonObject, pod: JsonObject, kind: ResourceKind, counted: set[str]) -> None:
    """Refuse a pod whose containers do not say what they take of limited cpu or memory."""
    needed = counted & _MUST_BE_SAID
    spec = pod["spec"] if kind.kind == "Pod" else EMPTY
    if not needed or not spec:
        return
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        said = _usage_names(container.get("resources") or EMPTY)
        for name in needed - said:
            missing.setdefault(name, set()).add(container["name"])
    own = _usage_names(spec.get("resources") or EMPTY)
    parts = [
        f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing.keys() - own)
    ]
    if parts:
        why = f"failed quota: {_name(quota)}: must specify {'; '.join(parts)}"
        raise _refusal(pod, kind, why)


def _usage_names(resources: JsonObject) -> set[str]:
    requests, limits = resources.get("requests") or (), resources.get("limits") or ()
    return {
        *requests,
        *(f"requests.{name}" for name in requests),
        *(f"limits.{name}" for name in limits),
    }


def _delta(usage: dict[str, str], was: dict[str, str]) -> dict[str, tuple[Fraction, str]]:
    """The additional usage, each amount with a text that shows its form."""
    more = {
        name: (parse_quantity(text) - parse_quantity(was.get(name, "0")), text)
        for name, text in usage.items()
    }
    return {name: pair for name, pair in more.items() if pair[0] > 0}


def _added(
    quota: JsonObject, obj: JsonObject, kind: ResourceKind, asked: dict[str, tuple[Fraction, str]]
) -> JsonObject:
    hard, used = quota["status"]["hard"], quota["status"].get("used") or EMPTY
    requested = Amounts()
    for name, (value, text) in asked.items():
        requested.add({name: text})
        requested.values[name] = value
    shown = requested.texts()
    total = Amounts().plus({name: used.get(name, "0") for name in asked}).plus(shown)
    exceeded = sorted(name for name in asked if total.values[name] > parse_quantity(hard[name]))
    if exceeded:
        parts = (
            ",".join(f"{name}={texts.get(name, '0')}" for name in exceeded)
            for texts in (shown, used, hard)
        )
        requested_text, used_text, limited_text = parts
        why = (
            f"exceeded quota: {_name(quota)}, requested: {requested_text}, used: {used_text}, "
            f"limited: {limited_text}"
        )
        raise _refusal(obj, kind, why)
    return dict(sorted({**used, **total.texts()}.items()))


def _name(quota: JsonObject) -> str:
    name: str = quota["metadata"]["name"]
    return name


def _refusal(obj: JsonObject, kind: ResourceKind, why: str) -> StatusError:
    return forbidden(kind, obj["metadata"].get("name", ""), why)


def object_usage(obj: JsonObject, kind: ResourceKind) -> dict[str, str]:
    """The usage of one object of the resources that quotas may limit, its own count included."""
    counted = f"count/{kind.qualified_resource}"
    usage = {counted: "1"}
    if not kind.group and kind.plural in _LEGACY:
        usage[kind.plural] = "1"
    if kind.group:
        return usage | (
            _device_usage(obj["spec"]) if kind.qualified_resource == _OF_DEVICES else {}
        )
    if kind.kind == "Pod":
        usage |= {} if is_finished(obj) else _pod_usage(obj["spec"])
    elif kind.kind == "PersistentVolumeClaim":
        usage |= _claim_usage(obj["spec"])
    elif kind.kind == "Service":
        usage |= _service_usage(obj["spec"])
    return usage


def _pod_usage(spec: JsonObject) -> dict[str, str]:
    usage = {"pods": "1"}
    for name, amount in pod_amounts(spec, "requests").items():
        if name in _COMPUTE or is_huge_pages(name):
            usage[name] = amount
        if name in _COMPUTE or is_huge_pages(name) or is_extended(name):
            usage[f"requests.{name}"] = amount
    for name, amount in pod_amounts(spec, "limits").items():
        if name in _COMPUTE:
            usage[f"limits.{name}"] = amount
    return usage


def _claim_usage(spec: JsonObject) -> dict[str, str]:
    size = ((spec.get("resources") or EMPTY).get("requests") or EMPTY).get("storage", "0")
    usage = {"persistentvolumeclaims": "1", "requests.storage": size}
    if spec.get("storageClassName"):
        prefix = f"{spec['storageClassName']}.{_CLASS}"
        usage |= {f"{prefix}/persistentvolumeclaims": "1", f"{prefix}/requests.storage": size}
    return usage


def _device_usage(spec: JsonObject) -> dict[str, str]:
    """The devices of each class that a claim may get at most: of alternatives, the largest."""
    devices: Counter[str] = Counter()
    for request in (spec.get("devices") or EMPTY).get("requests") or ():
        most: dict[str, int] = {}
        for each in request.get("firstAvailable") or [request.get("exactly") or EMPTY]:
            name, mode = each.get("deviceClassName", ""), each.get("allocationMode")
            count = each.get("count", 1) if mode == "ExactCount" else 0
            count = _MAX_DEVICES_OF_A_CLAIM if mode == "All" else count
            most[name] = max(most.get(name, 0), count)
        devices.update(most)
    return {f"{name}{_DEVICES}": str(count) for name, count in devices.items() if name}


def _service_usage(spec: JsonObject) -> dict[str, str]:
    kind, ports = spec.get("type"), len(spec.get("ports") or ())
    balanced = kind == "LoadBalancer"
    has_ports = kind == "NodePort" or (
        balanced and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    return {
        "services": "1",
        "services.nodeports": str(ports if has_ports else 0),
        "services.loadbalancers": "1" if balanced else "0",
    }


def total_usage(usages: Iterable[dict[str, str]]) -> dict[str, str]:
    """The usage of many objects together."""
    total = Amounts()
    for usage in usages:
        total.add(usage)
    return total.texts()


def pod_usage_differs(pod: JsonObject, old: JsonObject) -> bool:
    """Whether an update of a pod changes what quotas count (`podEvaluator.Handles`, v1.36)."""
    spec, before = pod["spec"], old["spec"]
    return spec != before and (
        _has_deadline(spec) != _has_deadline(before) or _pod_usage(spec) != _pod_usage(before)
    )


def in_scope(quota: JsonObject, obj: JsonObject, kind: ResourceKind) -> bool:
    """Whether an object is one of those that a quota is about.

    Scopes are about pods, and one of them about claims for volumes.
    """
    spec = quota["spec"]
    expressions = [
        *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()),
        *((spec.get("scopeSelector") or EMPTY).get("matchExpressions") or ()),
    ]
    if kind.kind == "PersistentVolumeClaim":
        return all(_matches_claim(expression, obj) for expression in expressions)
    if kind.kind != "Pod":
        return not expressions
    return all(_matches(expression, obj["spec"]) for expression in expressions)


def _matches_claim(expression: JsonObject, claim: JsonObject) -> bool:
    """Whether one of the classes that a claim has, wants or gets is one of the expression's."""
    if expression.get("scopeName") != VOLUME_CLASS_SCOPE:
        return False
    status = claim.get("status") or EMPTY
    classes = (
        claim["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or EMPTY).get("targetVolumeAttributesClassName"),
    )
    names = {name for name in classes if name}
    return _is_among(expression, names or {""})


def _is_among(expression: JsonObject, names: set[str]) -> bool:
    """Whether one of the names, of which the empty one stands for none, fits an expression."""
    values = set(expression.get("values") or ())
    by_operator = {
        "Exists": names != {""},
        "DoesNotExist": names == {""},
        "In": bool(names & values),
        "NotIn": bool(names - values),
    }
    return by_operator.get(expression.get("operator", ""), False)


def _has_deadline(spec: JsonObject) -> bool:
    return spec.get("activeDeadlineSeconds") is not None


def _matches(expression: JsonObject, spec: JsonObject) -> bool:
    scope = expression.get("scopeName", "")
    if scope != PRIORITY_SCOPE:
        return scope in _BY_SCOPE and _BY_SCOPE[scope](spec)
    return _is_among(expression, {spec.get("priorityClassName", "")})


def _terms(spec: JsonObject) -> Iterable[JsonObject]:
    for part in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or EMPTY).get(part) or EMPTY
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or EMPTY


_BY_SCOPE: Final[dict[str, Callable[[JsonObject], bool]]] = {
    "Terminating": _has_deadline,
    "NotTerminating": lambda spec: not _has_deadline(spec),
    "BestEffort": lambda spec: qos_class(spec) == "BestEffort",
    "NotBestEffort": lambda spec: qos_class(spec) != "BestEffort",
    CROSS_NAMESPACE_SCOPE: lambda spec: any(
        term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec)
    ),
}
