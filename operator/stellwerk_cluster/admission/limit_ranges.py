"""LimitRanges: their rules, the requests and limits that they give, and those that they refuse.

Called through their strategy and, as the admission plugin LimitRanger, for pods and claims.
Invariant: defaults are given before validation, bounds are checked after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import parse_quantity
from stellwerk_cluster.admission.amounts import pod_amounts
from stellwerk_cluster.admission.checks import qualified_name
from stellwerk_cluster.admission.resource_names import (
    container_resource_name,
    is_overcommitted,
    resource_name,
)
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    duplicate,
    forbidden,
    forbidden_field,
    required,
)
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

LIMIT_RANGES: Final = "limitranges"
_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_PARTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_ANNOTATION: Final = "kubernetes.io/limit-ranger"


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


def validate_limit_range(limit_range: JsonObject) -> Iterator[Cause]:
    """What is wrong with a LimitRange."""
    seen = set()
    for position, limit in enumerate(limit_range["spec"].get("limits") or ()):
        field, kind = f"spec.limits[{position}]", limit.get("type", "")
        if qualified_name_errors(kind):
            yield from qualified_name(kind, f"{field}.type")
        elif "/" not in kind and kind not in _TYPES:
            text = "must be a standard limit type or fully qualified"
            yield bad_value(f"{field}.type", kind, text)
        if kind in seen:
            yield duplicate(f"{field}.type", kind)
        seen.add(kind)
        yield from _part_causes(limit, field, kind)
        for name in sorted({name for part in _PARTS for name in limit.get(part) or ()}):
            yield from _order_causes(limit, field, name)


def _part_causes(limit: JsonObject, field: str, kind: str) -> Iterator[Cause]:
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    for part in _PARTS:
        amounts = limit.get(part) or EMPTY
        if kind == "Pod" and part in ("default", "defaultRequest"):
            if amounts:
                yield forbidden_field(
                    f"{field}.{part}", "may not be specified when `type` is 'Pod'"
                )
            continue
        for name in amounts:
            yield from check(name, f"{field}.{part}[{name}]")
    bounded = "storage" in {*(limit.get("min") or ()), *(limit.get("max") or ())}
    if kind == "PersistentVolumeClaim" and not bounded:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{field}.limits", text)


def _order_causes(limit: JsonObject, field: str, name: str) -> Iterator[Cause]:
    """Amounts of one resource that are in the wrong order."""
    texts = {part: (limit.get(part) or EMPTY).get(name) for part in _PARTS}
    values = {part: parse_quantity(text) for part, text in texts.items() if text is not None}
    for low, high, shown_at, part, words in (
        ("min", "max", "min", "min", ("min", "max")),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest", ("min", "default request")),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest", ("default request", "max")),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            ("default request", "default limit"),
        ),
        ("min", "default", "default", "min", ("min", "default")),
        ("default", "max", "default", "max", ("default", "max")),
    ):
        if low in values and high in values and values[low] > values[high]:
            text = f"{words[0]} value {texts[low]} is greater than {words[1]} value {texts[high]}"
            yield bad_value(f"{field}.{shown_at}[{name}]", texts[part], text)
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None:
        where, shown = f"{field}.maxLimitRequestRatio[{name}]", texts["maxLimitRequestRatio"]
        if ratio < 1:
            yield bad_value(where, shown, f"ratio {shown} is less than 1")
        if values.get("min") and "max" in values and ratio > values["max"] / values["min"]:
            largest = float(values["max"] / values["min"])
            text = f"ratio {shown} is greater than max/min = {largest:f}"
            yield bad_value(where, shown, text)
    differ = values.get("default") != values.get("defaultRequest")
    if {"default", "defaultRequest"} <= values.keys() and differ and not is_overcommitted(name):
        text = (
            f"default value {texts['default']} must equal to defaultRequest value "
            f"{texts['defaultRequest']} in {name}"
        )
        yield bad_value(f"{field}.defaultRequest[{name}]", texts["defaultRequest"], text)


def give_default_limits(pod: JsonObject, cluster: Reader) -> bool:
    """Give containers the requests and limits of the namespace; whether there were any to give."""
    given = []
    for limit in _limits(pod, cluster, "Container"):
        for group, shown in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(group) or ():
                for part, source in (("requests", "defaultRequest"), ("limits", "default")):
                    names = _fill(container, part, limit.get(source) or EMPTY)
                    if names:
                        word = part.removesuffix("s")
                        given.append(f"{', '.join(names)} {word} for {shown} {container['name']}")
    if given:
        metadata = pod["metadata"]
        text = f"LimitRanger plugin set: {'; '.join(given)}"
        annotations = {**(metadata.get("annotations") or {}), _ANNOTATION: text}
        metadata["annotations"] = dict(sorted(annotations.items()))
    return bool(given)


def _fill(container: JsonObject, part: str, defaults: JsonObject) -> list[str]:
    resources = container.get("resources") or {}
    has = resources.get(part) or {}
    names = sorted(name for name in defaults if name not in has)
    if names:
        filled = {**has, **{name: defaults[name] for name in names}}
        container["resources"] = {**resources, part: dict(sorted(filled.items()))}
    return names


def _limits(obj: JsonObject, cluster: Reader, kind: str) -> Iterator[JsonObject]:
    for limit_range in _ranges(obj, cluster):
        for limit in limit_range["spec"].get("limits") or ():
            if limit.get("type") == kind:
                yield limit


def _ranges(obj: JsonObject, cluster: Reader) -> list[JsonObject]:
    ranges = cluster.all(LIMIT_RANGES, obj["metadata"].get("namespace", ""))
    return sorted(ranges, key=lambda each: each["metadata"]["name"])


def check_limits(obj: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Refuse a pod or claim outside the bounds of its namespace.

    Raises:
        StatusError: it is (403).
    """
    found = _pod_errors if kind.kind == "Pod" else _claim_errors
    for limit_range in _ranges(obj, cluster):
        errors = [
            error
            for limit in limit_range["spec"].get("limits") or ()
            for error in found(obj, limit)
        ]
        unique = list(dict.fromkeys(errors))
        if unique:
            text = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
            raise forbidden(kind, obj["metadata"].get("name", ""), text)


def _pod_errors(pod: JsonObject, limit: JsonObject) -> Iterator[str]:
    spec, kind = pod["spec"], limit.get("type", "")
    if kind == "Container":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or EMPTY
            requests, limits = (resources.get(part) or EMPTY for part in ("requests", "limits"))
            yield from _bound_errors(limit, requests, limits)
    elif kind == "Pod":
        yield from _bound_errors(limit, pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))


def _bound_errors(limit: JsonObject, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
    kind = limit["type"]
    for name, bound in (limit.get("min") or EMPTY).items():
        head = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{head}.  No request is specified"
            continue
        for word, amounts in (("request", requests), ("limit", limits)):
            if name in amounts and parse_quantity(amounts[name]) < parse_quantity(bound):
                yield f"{head}, but {word} is {amounts[name]}"
                break
    for name, bound in (limit.get("max") or EMPTY).items():
        head = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
            continue
        for word, amounts in (("limit", limits), ("request", requests)):
            if name in amounts and parse_quantity(amounts[name]) > parse_quantity(bound):
                yield f"{head}, but {word} is {amounts[name]}"
                break
    yield from _ratio_errors(limit, requests, limits)


def _ratio_errors(limit: JsonObject, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
    for name, bound in (limit.get("maxLimitRequestRatio") or EMPTY).items():
        head = f"{name} max limit to request ratio per {limit['type']} is {bound}"
        request = parse_quantity(requests.get(name, "0"))
        largest = parse_quantity(limits.get(name, "0"))
        if request == 0:
            yield f"{head}, but no request is specified or request is 0"
        elif largest == 0:
            yield f"{head}, but no limit is specified or limit is 0"
        elif largest / request > parse_quantity(bound):
            yield f"{head}, but provided ratio is {float(largest / request):f}"


def _claim_errors(claim: JsonObject, limit: JsonObject) -> Iterator[str]:
    if limit.get("type") != "PersistentVolumeClaim":
        return
    requests = (claim["spec"].get("resources") or EMPTY).get("requests") or EMPTY
    for part, word in (("min", "minimum"), ("max", "maximum")):
        for name, bound in (limit.get(part) or EMPTY).items():
            head = f"{word} {name} usage per PersistentVolumeClaim is {bound}"
            if name not in requests:
                yield f"{head}.  No request is specified"
                continue
            asked, edge = parse_quantity(requests[name]), parse_quantity(bound)
            if (asked < edge) if part == "min" else (asked > edge):
                yield f"{head}, but request is {requests[name]}"
