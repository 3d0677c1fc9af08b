"""A pod's requests: containers, sidecars, overhead, pod-level resources, in-place resizes.

`models.pod` calls it once per distinct spec (and per pod that is being resized). Invariant:
quantities are summed exactly and rounded up once, at the end, as kube-scheduler does
(`resource.PodRequests`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import SATURATION, Amount, billionths

Requests: TypeAlias = dict[str, Amount]
"""In billionths of a unit, by resource."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

DEFAULT_CPU_MILLIS: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
_SCORING_DEFAULTS: Final[Requests] = {
    CPU: DEFAULT_CPU_MILLIS * 10**6,
    MEMORY: DEFAULT_MEMORY_BYTES * 10**9,
}


# One is made for each distinct spec: a frozen dataclass takes 1 µs more.
@dataclass(slots=True)
class ResourceAmounts:
    """One pod's amounts; cpu in millicores, all else in whole units, never negative.

    Treat as immutable.
    """

    requests: Mapping[str, int]
    """Amounts that filters and usage count; pod-level requests replace the containers' sum."""
    nonzero_cpu_millis: int
    """The pod's share of a node's cpu usage in scoring: containers without a request count 100m."""
    nonzero_memory_bytes: int
    """The pod's share of a node's memory in scoring: containers without a request count 200 MiB."""
    scoring_requests: Mapping[str, int]
    """Amounts that NodeResourcesFit's score adds for the incoming pod: defaults, no pod-level
    requests."""
    limits: Mapping[str, int]
    """The pod's limits; only published as a metric."""
    overhead: Mapping[str, int]
    """The overhead of its RuntimeClass, part of the requests already; only published as a metric.
    """


def resource_amounts(
    spec: JsonObject,
    status: JsonObject | None = None,
    compatibility: Compatibility = AS_RECORDED,
) -> ResourceAmounts:
    """The amounts of a pod spec; with a status, in-place resizes count (`UseStatusResources`)."""
    overhead = _parsed(spec.get("overhead"))
    if status is not None and ReleaseRule.RESIZE_BY_SUMS in compatibility:
        pod_level = _pod_level_by_status(spec, status)
        total, with_defaults = _largest_sums(spec, status)
    else:
        needs = _needs(spec, _effective_requests(status))
        pod_level = _pod_level_requests(spec, status)
        total, with_defaults = _peak(needs), _peak(_with_defaults(needs))
    requests = _rounded(_sum(total | pod_level, overhead))
    scoring_requests = _rounded(_sum(total | with_defaults, overhead))
    # A pod-level request stands for what containers are silent about.
    nonzero = scoring_requests | requests if pod_level else scoring_requests
    return ResourceAmounts(
        requests=requests,
        nonzero_cpu_millis=nonzero.get(CPU, 0),
        nonzero_memory_bytes=nonzero.get(MEMORY, 0),
        scoring_requests=scoring_requests,
        limits=_limits(spec),
        overhead=_rounded(overhead),
    )


def is_scalar_resource(resource: str) -> bool:
    """Whether a resource is extended, huge pages or a volume limit (`IsScalarResourceName`)."""
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))


def is_resized(
    spec: JsonObject, status: JsonObject, compatibility: Compatibility = AS_RECORDED
) -> bool:
    """Whether the status reports other resources than the spec: the amounts are its own."""
    if ReleaseRule.RESIZE_BY_SUMS in compatibility:
        return _differs(spec, status)
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

    def limits_of(container: JsonObject, _: JsonObject) -> Requests:
        return _parsed((container.get("resources") or {}).get("limits"))

    limits = _peak(_needs(spec, limits_of, limits_of))
    pod_level = _parsed((spec.get("resources") or {}).get("limits"))
    if pod_level:
        limits |= {name: value for name, value in pod_level.items() if _is_pod_level_resource(name)}
    for resource, amount in _parsed(spec.get("overhead")).items():
        if limits.get(resource):
            limits[resource] += amount
    return _rounded(limits)


_STATUS_LISTS: Final = ("containerStatuses", "initContainerStatuses")


def _differs(spec: JsonObject, status: JsonObject) -> bool:
    """Whether anything that the status reports is not what the spec says."""
    if "resources" in status or _resize_is_infeasible(status):
        return True
    by_name = {
        container["name"]: (container.get("resources") or {}).get("requests") or {}
        for key in ("containers", "initContainers")
        for container in spec.get(key) or ()
    }
    for key in _STATUS_LISTS:
        for reported in status.get(key) or ():
            wanted = by_name.get(reported["name"])
            resources, allocated = reported.get("resources"), reported.get("allocatedResources")
            if resources is not None and (resources.get("requests") or {}) != wanted:
                return True
            if allocated is not None and allocated != wanted:
                return True
    return False


def _largest_sums(spec: JsonObject, status: JsonObject) -> tuple[Requests, Requests]:
    """The largest of what is desired, allocated and actual, each added up over the whole pod.

    The second is the same with the amounts that scores count where a container requests nothing.
    Source: `AggregateContainerRequests`, v1.37 (#140047).
    """
    statuses = {
        reported["name"]: reported for key in _STATUS_LISTS for reported in status.get(key) or ()
    }
    infeasible = _resize_is_infeasible(status)

    def allocated(container: JsonObject, requests: JsonObject) -> Requests:
        reported = statuses.get(container["name"]) or {}
        if reported.get("allocatedResources") is not None:
            return _parsed(reported["allocatedResources"])
        return {} if infeasible else _parsed(requests)

    def actual(container: JsonObject, requests: JsonObject) -> Requests:
        reported = statuses.get(container["name"]) or {}
        resources = reported.get("resources")
        if resources is not None and resources.get("requests") is not None:
            return _parsed(resources["requests"])
        return allocated(container, requests)

    of_pod = (status.get("resources") or {}).get("requests"), status.get("allocatedResources")
    desired = _needs(spec, _declared)
    if None not in of_pod:
        # They are sums of the whole pod already.
        reports = [_parsed(each) for each in of_pod]
        considered = reports if infeasible else [_peak(desired), *reports]
        filled = reports if infeasible else [_peak(_with_defaults(desired)), *reports]
        return _maximum(considered), _scored(_maximum(filled))
    needs = [_needs(spec, allocated, allocated), _needs(spec, actual, actual)]
    if not infeasible:
        needs.insert(0, desired)
    return (
        _maximum(_peak(each) for each in needs),
        _maximum(_peak(_with_defaults(each)) for each in needs),
    )


def _scored(requests: Requests) -> Requests:
    """The requests of the resources that have a default in scores alone."""
    return {name: requests.get(name, 0) for name in _SCORING_DEFAULTS}


def _pod_level_by_status(spec: JsonObject, status: JsonObject) -> Requests:
    """Pod-level requests, which replace those of the containers, as v1.37 reads them."""
    declared = _parsed((spec.get("resources") or {}).get("requests"))
    requests = declared
    resources = status.get("resources")
    if declared and resources is not None:
        reports = [_parsed(resources.get("requests")), _parsed(status.get("allocatedResources"))]
        requests = _maximum(reports if _resize_is_infeasible(status) else [declared, *reports])
    return {name: value for name, value in requests.items() if _is_pod_level_resource(name)}


_Effective: TypeAlias = Callable[[JsonObject, JsonObject], Requests]


def _effective_requests(status: JsonObject | None) -> _Effective:
    """The reading of a container's requests: from the spec, or from spec and status together."""
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
    return {name: effective.get(name, 0) for name in requests}


class _Needs(NamedTuple):
    """The requests of each container of a pod."""

    containers: Sequence[Requests]
    init_containers: Sequence[tuple[bool, Requests]]
    """(whether it is a sidecar, its requests), in the order in which they start."""


def _needs(spec: JsonObject, read: _Effective, read_plain: _Effective | None = None) -> _Needs:
    read_plain = read_plain or _declared

    def requests_of(container: JsonObject, how: _Effective) -> Requests:
        return how(container, (container.get("resources") or {}).get("requests") or {})

    def init(container: JsonObject) -> tuple[bool, Requests]:
        sidecar = container.get("restartPolicy") == "Always"
        # A plain init container is gone before a resize could be reported: no status.
        return sidecar, requests_of(container, read if sidecar else read_plain)

    return _Needs(
        [requests_of(container, read) for container in spec.get("containers") or ()],
        [init(container) for container in spec.get("initContainers") or ()],
    )


def _with_defaults(needs: _Needs) -> _Needs:
    """The requests that scores count of the resources that have a default."""

    def filled(requests: Requests) -> Requests:
        return {
            resource: requests.get(resource, default)
            for resource, default in _SCORING_DEFAULTS.items()
        }

    return _Needs(
        [filled(requests) for requests in needs.containers],
        [(sidecar, filled(requests)) for sidecar, requests in needs.init_containers],
    )


def _peak(needs: _Needs) -> Requests:
    """Sum of containers and sidecars, or the largest need while an init container runs.

    Linear in what is requested: what a container does not name is as it was before it.
    """
    if len(needs.containers) == 1 and not needs.init_containers:
        return needs.containers[0]
    total: Requests = {}
    sidecars: Requests = {}
    while_starting: Requests = {}
    for requests in needs.containers:
        for resource, amount in requests.items():
            total[resource] = total.get(resource, 0) + amount
    for is_sidecar, requests in needs.init_containers:
        for resource, amount in requests.items():
            now = sidecars.get(resource, 0) + amount
            if is_sidecar:
                total[resource] = total.get(resource, 0) + amount
                sidecars[resource] = now
            if resource not in while_starting or now > while_starting[resource]:
                while_starting[resource] = now
    return _maximum((total, while_starting)) if while_starting else total


def _parsed(requests: JsonObject | None) -> Requests:
    if not requests:
        return {}
    return {resource: billionths(quantity) for resource, quantity in requests.items()}


def _sum(one: Requests, other: Requests) -> Requests:
    if not other:
        return one
    return one | {resource: one.get(resource, 0) + amount for resource, amount in other.items()}


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
        resource: min(max(0, -(-amount // (10**6 if resource == CPU else 10**9))), SATURATION)
        for resource, amount in requests.items()
    }
