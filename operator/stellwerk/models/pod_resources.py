"""Requests and limits of each container of a pod, for plugins that ask more than the sum.

A SchedulingSpec keeps them as JSON and reads them when a plugin first asks. Invariant: amounts are
exact to the billionth and rounded up beyond, as the API server keeps them; what becomes of them
(millicores, whole units, sums) is the plugin's to say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import billionths, saturate

ExactAmounts: TypeAlias = Mapping[str, int]
"""Billionths of a unit by resource."""

GUARANTEED: Final = "Guaranteed"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BestEffort"
_QOS_RESOURCES: Final = frozenset({"cpu", "memory"})
_KEPT_CHARACTERS: Final = 1 << 12
"""Pods with more text than this about resources are read anew each time."""


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """The resources of one container."""

    requests: ExactAmounts
    limits: ExactAmounts
    sidecar: bool = False
    """An init container that goes on running."""


@dataclass(frozen=True, slots=True)
class PodResources:
    """The resources of a pod's containers, and of the pod as a whole."""

    init_containers: tuple[ContainerResources, ...]
    """Sidecars too, in the order in which they start."""
    containers: tuple[ContainerResources, ...]
    pod_level: ContainerResources | None
    """spec.resources; None: it is not set."""
    overhead: ExactAmounts
    qos_class: str
    """Guaranteed, Burstable or BestEffort, computed as in the API (`ComputePodQOS`, v1.36)."""


def millis(amount: int) -> int:
    """An exact amount in thousandths of the unit, rounded up (`Quantity.MilliValue`)."""
    return saturate(-(-amount // 10**6))


def units(amount: int) -> int:
    """An exact amount in whole units, rounded up (`Quantity.Value`)."""
    return saturate(-(-amount // 10**9))


def exact_amount(text: str | float) -> int:
    """A quantity in billionths of the unit, rounded up, as the API server keeps it.

    Raises:
        ValueError: the text is no quantity.
    """
    return int(-(-billionths(text) // 1))


def resources_json(spec: JsonObject) -> bytes:
    """The part of a pod's spec that `read_resources` reads."""
    init_containers = spec.get("initContainers") or ()
    return orjson.dumps(
        (
            [(each.get("resources"), each.get("restartPolicy")) for each in init_containers],
            [each.get("resources") for each in spec.get("containers") or ()],
            spec.get("resources"),
            spec.get("overhead"),
        )
    )


def read_resources(text: bytes) -> PodResources:
    """The resources that `resources_json` wrote."""
    return _known(text) if len(text) <= _KEPT_CHARACTERS else _read(text)


def _read(text: bytes) -> PodResources:
    init_containers, containers, pod_level, overhead = orjson.loads(text)
    init = tuple(_container(resources, policy) for resources, policy in init_containers)
    regular = tuple(_container(resources) for resources in containers)
    of_pod = _container(pod_level) if pod_level is not None else None
    qos = _qos_class([of_pod] if of_pod is not None else [*regular, *init])
    return PodResources(init, regular, of_pod, _amounts(overhead), qos)


_known: Final = lru_cache(maxsize=1024)(_read)


def _container(
    resources: Mapping[str, Any] | None, policy: str | None = None
) -> ContainerResources:
    given = resources or {}
    return ContainerResources(
        _amounts(given.get("requests")), _amounts(given.get("limits")), policy == "Always"
    )


def _amounts(given: Mapping[str, Any] | None) -> ExactAmounts:
    return {name: exact_amount(text) for name, text in (given or {}).items()}


def _qos_class(parts: Iterable[ContainerResources]) -> str:
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for part in parts:
        limited = set()
        for name in _QOS_RESOURCES:
            request, limit = part.requests.get(name, 0), part.limits.get(name, 0)
            if request > 0:
                requests[name] = requests.get(name, 0) + request
            if limit > 0:
                limits[name] = limits.get(name, 0) + limit
                limited.add(name)
        guaranteed &= limited == _QOS_RESOURCES
    if not requests and not limits:
        return BEST_EFFORT
    return GUARANTEED if guaranteed and requests == limits else BURSTABLE
