"""What a pod requests: containers, sidecars, overhead, pod-level resources, in-place resizes.

`models.pod` calls it once per distinct spec (and per pod that is being resized). Invariant:
quantities are summed exactly and rounded up once, at the end, as kube-scheduler does
(`resource.PodRequests`, v1.36).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from stellwerk.models.json_values import JsonObject
from stellwerk.models.quantity import parse_quantity, saturate

Requests: TypeAlias = dict[str, Fraction]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

DEFAULT_CPU_MILLIS: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
_SCORING_DEFAULTS: Final[Requests] = {
    CPU: Fraction(DEFAULT_CPU_MILLIS, 1000),
    MEMORY: Fraction(DEFAULT_MEMORY_BYTES),
}


@dataclass(frozen=True, slots=True)
class ResourceAmounts:
    """What one pod asks for; cpu in millicores, all else in whole units, never negative."""

    requests: Mapping[str, int]
    """What filters and usage count, by resource; pod-level requests replace the containers' sum."""
    nonzero_cpu_millis: int
    """The pod's share of a node's cpu usage in scoring: containers without a request count 100m."""
    nonzero_memory_bytes: int
    """The same for memory: 200 MiB."""
    scoring_requests: Mapping[str, int]
    """What NodeResourcesFit's score adds for the incoming pod: defaults, no pod-level requests."""
    limits: Mapping[str, int]
    """What the pod is limited to; only published as a metric."""
    overhead: Mapping[str, int]
    """What its RuntimeClass adds, part of the requests already; only published as a metric."""


def resource_amounts(spec: JsonObject, status: JsonObject | None = None) -> ResourceAmounts:
    """The amounts of a pod spec; with a status, in-place resizes count (`UseStatusResources`)."""
    effective = _effective_requests(status)
    pod_level = _pod_level_requests(spec, status)
    requests = _total(spec, effective, pod_level, {})
    missing = {
        resource: amount
        for resource, amount in _SCORING_DEFAULTS.items()
        if not pod_level or resource not in requests
    }
    nonzero = _rounded(_total(spec, effective, pod_level, missing))
    return ResourceAmounts(
        requests=_rounded(requests),
        nonzero_cpu_millis=nonzero.get(CPU, 0),
        nonzero_memory_bytes=nonzero.get(MEMORY, 0),
        scoring_requests=_rounded(_total(spec, effective, {}, _SCORING_DEFAULTS)),
        limits=_limits(spec),
        overhead=_rounded(_parsed(spec.get("overhead"))),
    )


def is_scalar_resource(resource: str) -> bool:
    """Whether a resource is extended, huge pages or a volume limit (`IsScalarResourceName`)."""
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))


def is_resized(spec: JsonObject, status: JsonObject) -> bool:
    """Whether the status reports other resources than the spec: the amounts are its own."""
    by_name = {
        container["name"]: ((container.get("resources") or {}).get("requests") or {})
        for containers in (spec.get("containers"), spec.get("initContainers"))
        for container in containers or ()
    }
    for key in ("containerStatuses", "initContainerStatuses"):
        for container_status in status.get(key) or ():
            resources = container_status.get("resources")
            if resources is None:
                continue
            requests = by_name.get(container_status["name"])
            actual = resources.get("requests") or {}
            allocated = container_status.get("allocatedResources")
            if actual != requests or (allocated is not None and allocated != requests):
                return True
    return bool(status.get("resources")) and _has_pod_level_requests(spec)


def _limits(spec: JsonObject) -> dict[str, int]:
    """Limits by the rules of requests; overhead is added where there is a limit (`PodLimits`)."""

    def of(container: JsonObject, _: JsonObject) -> Requests:
        return _parsed((container.get("resources") or {}).get("limits"))

    limits = _containers_total(spec, of, {}, plain=of)
    pod_level = _parsed((spec.get("resources") or {}).get("limits"))
    limits |= {name: value for name, value in pod_level.items() if _is_pod_level_resource(name)}
    for resource, amount in _parsed(spec.get("overhead")).items():
        if limits.get(resource):
            limits[resource] += amount
    return _rounded(limits)


_Effective: TypeAlias = Callable[[JsonObject, JsonObject], Requests]


def _effective_requests(status: JsonObject | None) -> _Effective:
    """How to read a container's requests: from the spec, or from spec and status together."""
    if status is None:
        return _declared
    infeasible = _resize_is_infeasible(status)
    statuses = {
        container_status["name"]: container_status
        for key in ("containerStatuses", "initContainerStatuses")
        for container_status in status.get(key) or ()
        if container_status.get("resources") is not None
    }

    def effective(container: JsonObject, requests: JsonObject) -> Requests:
        found = statuses.get(container["name"])
        if found is None:
            return _parsed(requests)
        actual = _parsed(found["resources"].get("requests"))
        allocated = _parsed(found.get("allocatedResources"))
        considered = (actual, allocated) if infeasible else (_parsed(requests), actual, allocated)
        return _maximum(considered)

    return effective


def _declared(_: JsonObject, requests: JsonObject) -> Requests:
    """A container's requests as its spec declares them."""
    return _parsed(requests)


def _resize_is_infeasible(status: JsonObject) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _has_pod_level_requests(spec: JsonObject) -> bool:
    requests = (spec.get("resources") or {}).get("requests") or {}
    return any(_is_pod_level_resource(resource) for resource in requests)


def _is_pod_level_resource(resource: str) -> bool:
    return resource in {CPU, MEMORY} or resource.startswith("hugepages-")


def _pod_level_requests(spec: JsonObject, status: JsonObject | None) -> Requests:
    """spec.resources.requests of the supported resources, resized as the status says."""
    declared = _parsed((spec.get("resources") or {}).get("requests"))
    requests = {name: value for name, value in declared.items() if _is_pod_level_resource(name)}
    actual_resources = (status or {}).get("resources")
    if status is None or actual_resources is None or not requests:
        return requests
    actual = _parsed(actual_resources.get("requests"))
    allocated = _parsed(status.get("allocatedResources"))
    infeasible = _resize_is_infeasible(status)
    effective = _maximum((actual, allocated) if infeasible else (declared, actual, allocated))
    return {name: effective.get(name, Fraction(0)) for name in requests}


def _total(
    spec: JsonObject, effective: _Effective, pod_level: Requests, missing: Requests
) -> Requests:
    """Containers (`missing` where one says nothing), then pod-level requests, then overhead."""
    total = _containers_total(spec, effective, missing)
    total.update(pod_level)
    _add(total, _parsed(spec.get("overhead")))
    return total


def _containers_total(
    spec: JsonObject, effective: _Effective, missing: Requests, plain: _Effective | None = None
) -> Requests:
    """Sum of containers and sidecars, or the largest need while an init container runs."""

    def requests_of(container: JsonObject, read: _Effective) -> Requests:
        declared = (container.get("resources") or {}).get("requests") or {}
        return {**missing, **read(container, declared)}

    plain = plain or _declared
    total: Requests = {}
    for container in spec.get("containers") or ():
        _add(total, requests_of(container, effective))
    sidecars: Requests = {}
    largest_init: Requests = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            requests = requests_of(container, effective)
            _add(total, requests)
            _add(sidecars, requests)
            while_starting = sidecars
        else:
            # A plain init container is gone before a resize could be reported: no status.
            while_starting = requests_of(container, plain)
            _add(while_starting, sidecars)
        largest_init = _maximum((largest_init, while_starting))
    return _maximum((total, largest_init))


def _parsed(requests: JsonObject | None) -> Requests:
    return {resource: parse_quantity(quantity) for resource, quantity in (requests or {}).items()}


def _add(total: Requests, requests: Requests) -> None:
    for resource, amount in requests.items():
        total[resource] = total.get(resource, Fraction(0)) + amount


def _maximum(alternatives: Iterable[Requests]) -> Requests:
    largest: Requests = {}
    for requests in alternatives:
        for resource, amount in requests.items():
            if resource not in largest or amount > largest[resource]:
                largest[resource] = amount
    return largest


def _rounded(requests: Requests) -> dict[str, int]:
    return {
        # The API refuses negative amounts; taken at their word they would make room on a node.
        resource: max(0, saturate(-(-(amount * 1000 if resource == CPU else amount) // 1)))
        for resource, amount in requests.items()
    }
