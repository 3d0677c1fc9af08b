"""The text of /metrics/resources: what each pod requests, as kube-scheduler publishes it.

`app` passes the pods in when somebody scrapes. Invariant: nothing is kept between two scrapes.
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


def resource_metrics(pods: Iterable[PodInfo]) -> bytes:
    """Every pod's requests and limits in Prometheus' text format."""
    pods = list(pods)
    lines: list[str] = []
    for family, text in _FAMILIES:
        lines += [f"# HELP {family} {text}", f"# TYPE {family} gauge"]
        for pod in pods:
            amounts = pod.amounts
            of = amounts.requests if family == "kube_pod_resource_request" else amounts.limits
            lines += _samples(family, pod, of)
    return ("\n".join(lines) + "\n").encode()


def _samples(family: str, pod: PodInfo, amounts: Mapping[str, int]) -> Iterator[str]:
    for resource, amount in sorted(amounts.items()):
        value = amount / 1000 if resource == CPU else amount
        unit = _UNITS.get(resource, "bytes" if resource.startswith("hugepages-") else "integer")
        yield (
            f'{family}{{namespace="{pod.namespace}",pod="{pod.name}",node="{pod.node_name}",'
            f'scheduler="{pod.spec.scheduler_name}",priority="{pod.priority}",'
            f'resource="{resource}",unit="{unit}"}} {value:g}'
        )
