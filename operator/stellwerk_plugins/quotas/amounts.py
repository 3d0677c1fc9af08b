"""Amounts by resource, and how quotas compare them.

Cpu is in millicores, all else in whole units. Invariant: of cpu, memory and ephemeral storage there
is always an amount; of another resource only where it is named.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from stellwerk.plugin_api import (
    ContainerResources,
    PodInfo,
    PodResources,
    SchedulingSpec,
    is_scalar_resource,
    millis,
    units,
)

Amounts: TypeAlias = Mapping[str, int]

ALWAYS: Final = ("cpu", "memory", "ephemeral-storage")
UNBOUNDED: Final = 2**63 - 1

_of_spec: WeakKeyDictionary[SchedulingSpec, Amounts] = WeakKeyDictionary()


def requested_by(pod: PodInfo) -> Amounts:
    """The sum of containers or the largest init container, and overhead.

    As upstream (`computePodResourceRequest`), sidecars count as init containers, and pod-level
    resources do not count.
    """
    found = _of_spec.get(pod.spec)
    if found is None:
        found = _of_spec[pod.spec] = _requested(pod.spec.resources)
    return found


def added(one: Amounts, other: Amounts, times: int = 1) -> dict[str, int]:
    """Two amounts in sum, the second so many times."""
    total = dict(one)
    for resource, amount in other.items():
        total[resource] = total.get(resource, 0) + times * amount
    return total


def exceeds(amounts: Amounts, bound: Amounts, unnamed: int, scalars: Iterable[str]) -> bool:
    """Whether amounts are beyond a bound in cpu, memory, ephemeral storage or one of the scalars.

    `unnamed`: the bound of scalars that it does not name.
    """
    if any(amounts.get(resource, 0) > bound.get(resource, 0) for resource in ALWAYS):
        return True
    return any(
        amounts.get(resource, 0) > bound.get(resource, unnamed)
        for resource in scalars
        if resource not in ALWAYS
    )


def amount_as_text(resource: str, amount: int) -> str:
    """A quantity of the API: cores, or millicores where they are no whole ones; whole units."""
    if resource == "cpu" and amount % 1000:
        return f"{amount}m"
    return str(amount // 1000 if resource == "cpu" else amount)


def _requested(resources: PodResources) -> Amounts:
    total: dict[str, int] = {}
    for container in resources.containers:
        total = added(total, _of(container))
    for container in resources.init_containers:
        for resource, amount in _of(container).items():
            total[resource] = max(total.get(resource, 0), amount)
    for resource, amount in resources.overhead.items():
        if _counts(resource):
            total[resource] = total.get(resource, 0) + _rounded(resource, amount)
    return total


def _of(container: ContainerResources) -> dict[str, int]:
    """Each container is rounded for itself."""
    return {
        resource: _rounded(resource, amount)
        for resource, amount in container.requests.items()
        if _counts(resource)
    }


def _counts(resource: str) -> bool:
    return resource in ALWAYS or is_scalar_resource(resource)


def _rounded(resource: str, amount: int) -> int:
    return millis(amount) if resource == "cpu" else units(amount)
