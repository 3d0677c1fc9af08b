"""Sums of a pod's requests and limits, as the load-aware plugins of upstream make them."""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from stellwerk.plugin_api import (
    ContainerResources,
    ExactAmounts,
    PodInfo,
    PodResources,
    SchedulingSpec,
    millis,
    units,
)


class CpuAndMemory(NamedTuple):
    """An amount of each."""

    cpu_millis: int
    memory_bytes: int


class RequestsAndLimits(NamedTuple):
    """Requests and limits of one pod; limits are at least the requests."""

    requests: CpuAndMemory
    limits: CpuAndMemory


def requests_and_limits(pod: PodInfo) -> RequestsAndLimits:
    """The sum of containers or the largest init container, and overhead (`GetEffectiveResource`).

    Sidecars count as init containers, pod-level resources not at all, and each container is rounded
    for itself.
    """
    found = _summed_of.get(pod.spec)
    if found is None:
        found = _summed_of[pod.spec] = _summed(pod.spec.resources)
    return found


_summed_of: WeakKeyDictionary[SchedulingSpec, RequestsAndLimits] = WeakKeyDictionary()


def _summed(resources: PodResources) -> RequestsAndLimits:
    requests = _effective(resources, lambda container: container.requests)
    limits = _effective(resources, lambda container: container.limits)
    return RequestsAndLimits(
        requests, CpuAndMemory(*(max(pair) for pair in zip(requests, limits, strict=True)))
    )


def _effective(
    resources: PodResources, read: Callable[[ContainerResources], ExactAmounts]
) -> CpuAndMemory:
    amounts = [_amounts(read(container)) for container in resources.containers]
    cpu_millis = sum(amount.cpu_millis for amount in amounts)
    memory_bytes = sum(amount.memory_bytes for amount in amounts)
    for container in resources.init_containers:
        amount = _amounts(read(container))
        cpu_millis = max(cpu_millis, amount.cpu_millis)
        memory_bytes = max(memory_bytes, amount.memory_bytes)
    overhead = _amounts(resources.overhead)
    return CpuAndMemory(cpu_millis + overhead.cpu_millis, memory_bytes + overhead.memory_bytes)


def _amounts(given: ExactAmounts) -> CpuAndMemory:
    return CpuAndMemory(millis(given.get("cpu", 0)), units(given.get("memory", 0)))
