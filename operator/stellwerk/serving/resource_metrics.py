"""The text of /metrics/resources: what each pod requests, as kube-scheduler publishes it.

`app` passes the pods in at each scrape. Invariant: nothing is kept between two scrapes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU, MEMORY

_UNITS: Final = {CPU: "cores", MEMORY: "bytes", "ephemeral-storage": "bytes", "storage": "bytes"}
_FAMILIES: Final = (
    ("kube_pod_resource_request", "Resources requested by pods, as the scheduler counts them."),
    (
        "kube_pod_resource_limit",
        "Resources that pods are limited to, as the scheduler counts them.",
    ),
)
_OVERHEAD_FAMILIES: Final = (
    ("kube_pod_overhead_cpu_cores", CPU, "CPU that the pod's RuntimeClass adds to its requests."),
    (
        "kube_pod_overhead_memory_bytes",
        MEMORY,
        "Memory that the pod's RuntimeClass adds to its requests.",
    ),
)


def resource_metrics(pods: Iterable[PodInfo]) -> bytes:
    """Every pod's requests, limits and overhead in Prometheus' text format."""
    pods = list(pods)
    lines: list[str] = []
    for family, text in _FAMILIES:
        lines += _head(family, text)
        for pod in pods:
            amounts = pod.amounts
            of = amounts.requests if family == "kube_pod_resource_request" else amounts.limits
            lines += _samples(family, pod, of)
    for family, resource, text in _OVERHEAD_FAMILIES:
        lines += _head(family, text)
        lines += [
            f'{family}{{namespace="{pod.namespace}",pod="{pod.name}",uid="{pod.uid}"}} '
            f"{_value(resource, pod.amounts.overhead[resource])}"
            for pod in pods
            if resource in pod.amounts.overhead
        ]
    return ("\n".join(lines) + "\n").encode()


def _head(family: str, text: str) -> tuple[str, str]:
    return f"# HELP {family} {text}", f"# TYPE {family} gauge"


def _samples(family: str, pod: PodInfo, amounts: Mapping[str, int]) -> Iterator[str]:
    for resource, amount in sorted(amounts.items()):
        if not amount:
            continue
        unit = _unit(resource)
        yield (
            f'{family}{{namespace="{pod.namespace}",pod="{pod.name}",node="{pod.node_name}",'
            f'scheduler="{pod.spec.scheduler_name}",priority="{pod.priority}",'
            f'resource="{resource}",unit="{unit}"}} {_value(resource, amount)}'
        )


def _unit(resource: str) -> str:
    """The unit as kube-scheduler labels it; an extended resource has none."""
    if resource.startswith("hugepages-"):
        return "bytes"
    if resource.startswith("attachable-volumes-"):
        return "integer"
    return _UNITS.get(resource, "")


def _value(resource: str, amount: int) -> str:
    """The amount in cores, bytes or units, with all its digits."""
    return str(amount / 1000 if resource == CPU else amount)
