"""Requests of a pod to zones: each container for itself, or the pod as one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from stellwerk.plugin_api import (
    GUARANTEED,
    ContainerResources,
    PodInfo,
    PodResources,
    SchedulingSpec,
)

Request: TypeAlias = Mapping[str, int]
"""Billionths by resource, zeros included."""

_WHOLE: Final = 10**9
_ANYWHERE: Final = frozenset({"ephemeral-storage", "storage"})


@dataclass(frozen=True, slots=True)
class ZoneRequests:
    """A pod's requests in the order in which the kubelet aligns them."""

    pod: Request
    """The sum of containers or the largest init container, with overhead."""
    init_containers: tuple[tuple[Request, bool], ...]
    """(request, whether it is a sidecar)."""
    containers: tuple[Request, ...]
    asks: bool
    """Whether some container requests an extended resource."""


_of_spec: WeakKeyDictionary[SchedulingSpec, ZoneRequests] = WeakKeyDictionary()


def zone_requests(pod: PodInfo) -> ZoneRequests:
    """The requests of a pod to zones."""
    found = _of_spec.get(pod.spec)
    if found is None:
        found = _of_spec[pod.spec] = _requests(pod.spec.resources)
    return found


def is_extended(resource: str) -> bool:
    """Whether a resource is a device or the like (not `IsNativeResource`)."""
    return "/" in resource and "kubernetes.io/" not in resource


def may_be_anywhere(resource: str) -> bool:
    """Whether a resource that no zone reports restricts the pod to no zone."""
    return resource in _ANYWHERE or is_extended(resource)


def is_shared(resource: str) -> bool:
    """Whether only Guaranteed pods have a share of their own of it."""
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def is_exclusive(pod: PodInfo, reported: frozenset[str]) -> bool:
    """Whether a pod takes something of zones for itself; `reported`: by the node's zones."""
    guaranteed = pod.qos_class == GUARANTEED
    return any(
        amount > 0
        and (
            (is_extended(resource) and resource in reported)
            or (guaranteed and is_shared(resource) and (resource != "cpu" or amount % _WHOLE == 0))
        )
        for container in _running(pod.spec.resources)
        for resource, amount in container.requests.items()
    )


def _running(resources: PodResources) -> Iterator[ContainerResources]:
    yield from resources.containers
    yield from (container for container in resources.init_containers if container.sidecar)


def _requests(resources: PodResources) -> ZoneRequests:
    total: dict[str, int] = {}
    for container in resources.containers:
        for resource, amount in container.requests.items():
            total[resource] = total.get(resource, 0) + amount
    for container in resources.init_containers:
        for resource, amount in container.requests.items():
            total[resource] = max(total.get(resource, amount), amount)
    for resource, amount in resources.overhead.items():
        total[resource] = total.get(resource, 0) + amount
    everything = (*resources.init_containers, *resources.containers)
    return ZoneRequests(
        pod=total,
        init_containers=tuple((each.requests, each.sidecar) for each in resources.init_containers),
        containers=tuple(each.requests for each in resources.containers),
        asks=any(is_extended(resource) for each in everything for resource in each.requests),
    )
