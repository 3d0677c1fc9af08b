"""LimitRanger: the requests and limits that LimitRanges give, and those that they refuse.

Called for pods and claims. Invariant: defaults are given before validation, bounds are checked
after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.pod_amounts import pod_amounts
from stellwerk.models.quantity import parse_quantity
from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader

LIMIT_RANGES: Final = "limitranges"
_ANNOTATION: Final = "kubernetes.io/limit-ranger"


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
