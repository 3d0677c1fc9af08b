"""Resources: their names, their amounts, and the requests, limits and claims of containers.

Called by the validation of pods, nodes, limits, quotas and RuntimeClasses. Invariant: a name
without a slash is native, and so is one of kubernetes.io; limits are judged before requests.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    not_there,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    is_whole,
    label,
    qualified_name,
    quantity_not_negative,
)
from stellwerk_kube.pod_amounts import pod_amounts
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from stellwerk_kube.json_values import JsonObject, JsonValue

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGE_PAGES: Final = "hugepages-"
_CONTAINER: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
COUNTED_OBJECTS: Final = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
"""The resources of quotas that count objects."""
_QUOTA: Final = (
    _CONTAINER
    | COUNTED_OBJECTS
    | {f"{part}.{name}" for part in ("requests", "limits") for name in _CONTAINER}
    | {"requests.storage"}
)
_STANDARD: Final = _QUOTA | {"storage"}
_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")


def is_huge_pages(name: str) -> bool:
    """Whether the resource is huge pages of some size."""
    return name.startswith(HUGE_PAGES)


def is_native(name: str) -> bool:
    """Whether the resource is one of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=1 << 12)
def is_extended(name: str) -> bool:
    """Whether the resource is an extended one, of a device plugin for example."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name_errors(f"requests.{name}")


def is_overcommitted(name: str) -> bool:
    """Whether requests may be lower than limits."""
    return is_native(name) and not is_huge_pages(name)


def is_standard_for_quota(name: str) -> bool:
    """Whether a quota may limit the resource without a domain before its name."""
    return name in _QUOTA or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def resource_name(name: str, field: str) -> Iterator[FieldError]:
    """Errors of the name of a resource, whatever it is for."""
    if qualified_name_errors(name):
        yield from qualified_name(name, field)
    elif "/" not in name and name not in _STANDARD and not is_huge_pages(name):
        text = "must be a standard resource type or fully qualified"
        yield bad_value(field, name, text)


def container_resource_name(name: str, field: str) -> Iterator[FieldError]:
    """Errors of the name of a resource of containers."""
    if name in _CONTAINER:
        return
    yield from resource_name(name, field)
    if "/" not in name:
        if not is_huge_pages(name):
            yield bad_value(field, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield bad_value(field, name, "doesn't follow extended resource name standard")


def resource_quantity(name: str, amount: JsonValue, field: str) -> Iterator[FieldError]:
    """Errors of the amount of a resource: never negative, and some are whole."""
    yield from quantity_not_negative(amount, field)
    if (name in COUNTED_OBJECTS or is_extended(name)) and not is_whole(amount):
        yield bad_value(field, amount, "must be an integer")


def container_resource_errors(
    resources: JsonObject, field: str, claims: AbstractSet[str] = frozenset()
) -> Iterator[FieldError]:
    """Errors of the requests and limits of a container of a pod with these claims."""
    return _requirement_errors(resources, field, container_resource_name, claims)


def pod_resource_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the requests and limits of a whole pod."""
    resources = spec.get("resources")
    if resources is None:
        return
    if resources.get("claims"):
        text = "claims cannot be set for Resources at pod-level"
        yield forbidden_field(f"{field}.claims", text)
    yield from _requirement_errors(resources, field, _pod_resource_name, frozenset())
    yield from _too_small_pod_requests(spec, resources.get("requests") or EMPTY, field)
    limits = resources.get("limits") or EMPTY
    for position, container in enumerate(spec.get("containers") or ()):
        own = (container.get("resources") or EMPTY).get("limits") or EMPTY
        for name, amount in own.items():
            if name in limits and parse_quantity(amount) > parse_quantity(limits[name]):
                where = f"{field}.containers[{position}][{name}].limits"
                text = f"must be less than or equal to pod limits of {limits[name]}"
                yield bad_value(where, amount, text)


def _too_small_pod_requests(
    spec: JsonObject, requests: JsonObject, field: str
) -> Iterator[FieldError]:
    for name, total in sorted(pod_amounts(spec, "requests", whole_pod=False).items()):
        if parse_quantity(total) > parse_quantity(requests.get(name, "0")):
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield bad_value(f"{field}.requests[{name}]", str(requests.get(name, "0")), text)


def _pod_resource_name(name: str, field: str) -> Iterator[FieldError]:
    wrong = list(resource_name(name, field))
    if wrong:
        yield from wrong
    elif name not in (CPU, MEMORY) and not is_huge_pages(name):
        yield unsupported(field, name, (CPU, HUGE_PAGES, MEMORY))


def _requirement_errors(
    resources: JsonObject,
    field: str,
    name_errors: Callable[[str, str], Iterator[FieldError]],
    claims: AbstractSet[str],
) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or EMPTY, resources.get("requests") or EMPTY
    for name, amount in limits.items():
        yield from _amount_errors(name, amount, f"{field}.limits[{name}]", name_errors)
    for name, amount in requests.items():
        where = f"{field}.requests[{name}]"
        yield from name_errors(name, where)
        yield from resource_quantity(name, amount, where)
        yield from _request_and_limit(name, amount, limits, field)
        yield from _huge_page_multiple(name, amount, where)
    names = {*limits, *requests}
    if any(map(is_huge_pages, names)) and not names & {CPU, MEMORY}:
        yield forbidden_field(field, "HugePages require cpu or memory")
    if resources.get("claims"):
        yield from _claim_errors(resources["claims"], f"{field}.claims", claims)


def _amount_errors(
    name: str,
    amount: JsonValue,
    field: str,
    name_errors: Callable[[str, str], Iterator[FieldError]],
) -> Iterator[FieldError]:
    yield from name_errors(name, field)
    yield from resource_quantity(name, amount, field)
    yield from _huge_page_multiple(name, amount, field)


def _request_and_limit(
    name: str, amount: JsonValue, limits: JsonObject, field: str
) -> Iterator[FieldError]:
    if name in limits:
        limit, request = parse_quantity(limits[name]), parse_quantity(amount)
        if request != limit and not is_overcommitted(name):
            text = f"must be equal to {name} limit of {limits[name]}"
            yield bad_value(f"{field}.requests", amount, text)
        elif request > limit:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            yield bad_value(f"{field}.requests", amount, text)
    elif not is_overcommitted(name):
        yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")


def _huge_page_multiple(name: str, amount: JsonValue, field: str) -> Iterator[FieldError]:
    if not is_huge_pages(name):
        return
    try:
        size = parse_quantity(name.removeprefix(HUGE_PAGES))
    except ValueError:
        size = parse_quantity(0)
    if size <= 0 or parse_quantity(amount) % size:
        text = f"{amount} is not positive integer multiple of {name}"
        yield bad_value(field, amount, text)


def _claim_errors(
    claims: Iterable[JsonObject], field: str, known: AbstractSet[str]
) -> Iterator[FieldError]:
    """Claims and single requests of claims: none twice, all of them claims of the pod."""
    names: set[str] = set()
    with_request: set[str] = set()
    for position, claim in enumerate(claims):
        where, name, request = f"{field}[{position}]", claim.get("name", ""), claim.get("request")
        if not name:
            yield required(where)
            continue
        key = f"{name}/{request}" if request else name
        if name in names:
            yield duplicate(where, name)
        else:
            yield from label(request, f"{where}.request") if request else ()
            if key in names:
                yield duplicate(where, key)
            elif not request and name in with_request:
                yield duplicate(where, name)
            names.add(key)
            with_request.update({name} if request else ())
        if name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{listed}"
            yield not_there(where, name, text)


def resize_policy_errors(
    policies: Iterable[JsonObject], field: str, restart_policy: str
) -> Iterator[FieldError]:
    """Errors of the policies by which a container is resized."""
    seen = set()
    for position, policy in enumerate(policies):
        name, action = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            yield duplicate(f"{field}[{position}]", name)
        seen.add(name)
        for value, allowed in ((name, (CPU, MEMORY)), (action, _RESIZE_POLICIES)):
            if not value:
                yield required(field)
            elif value not in allowed:
                yield unsupported(field, value, allowed)
        if restart_policy == "Never" and action != "NotRequired":
            text = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            yield bad_value(field, action, text)
