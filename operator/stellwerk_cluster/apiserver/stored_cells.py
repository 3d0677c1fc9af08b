"""The table cells of kinds that are stored and shown only: ingresses, quotas, bindings of roles.

Listed in `cells.CELLS` beside the others. Invariant: as there, a function never raises for a stored
object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, pick

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from stellwerk.models.json_values import JsonObject

_NONE: Final = "<none>"
_MOST: Final = 3
"""So many of a list are shown."""


def _first_few(texts: Sequence[str]) -> str:
    shown = ",".join(texts[:_MOST])
    return f"{shown} + {len(texts) - _MOST} more..." if len(texts) > _MOST else shown


def ingress_hosts(ingress: JsonObject, _now: datetime) -> str:
    """The hosts of the rules of an ingress."""
    hosts = [rule["host"] for rule in ingress["spec"].get("rules") or () if rule.get("host")]
    return _first_few(hosts) or "*"


def ingress_address(ingress: JsonObject, _now: datetime) -> str:
    """Where an ingress is reached."""
    found = pick(ingress, ("status", "loadBalancer", "ingress")) or ()
    return ",".join(each.get("ip") or each.get("hostname", "") for each in found)


def ingress_ports(ingress: JsonObject, _now: datetime) -> str:
    """80, and 443 if an ingress has certificates."""
    return "80, 443" if ingress["spec"].get("tls") else "80"


def autoscaler_reference(autoscaler: JsonObject, _now: datetime) -> str:
    """Kind and name of what an autoscaler scales."""
    target = autoscaler["spec"].get("scaleTargetRef") or EMPTY
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def autoscaler_targets(autoscaler: JsonObject, _now: datetime) -> str:
    """What an autoscaler aims at; the present values are unknown, as no metrics are measured."""
    texts = [_metric_target(metric) for metric in autoscaler["spec"].get("metrics") or ()]
    return ", ".join(texts) or _NONE


def _metric_target(metric: JsonObject) -> str:
    type_ = metric.get("type", "")
    part = metric.get(type_[:1].lower() + type_[1:]) or EMPTY
    target = part.get("target") or EMPTY
    percent = target.get("averageUtilization")
    wanted = target.get("averageValue") or target.get("value") if percent is None else f"{percent}%"
    name = f"{part['name']}: " if part.get("name") else ""
    return f"{name}<unknown>/{wanted}"


def quota_usage(quota: JsonObject, _now: datetime, part: str) -> str:
    """What is used of what a quota allows: its limits, or everything else."""
    status = quota.get("status") or EMPTY
    hard, used = status.get("hard") or EMPTY, status.get("used") or EMPTY
    wanted = part == "limits"
    return ", ".join(
        f"{name}: {used.get(name, 0)}/{hard[name]}"
        for name in sorted(hard)
        if name.startswith("limits") == wanted
    )


def role_reference(binding: JsonObject, _now: datetime) -> str:
    """Kind and name of the role that a binding gives."""
    reference = binding.get("roleRef") or EMPTY
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def subjects(binding: JsonObject, _now: datetime, kind: str) -> str:
    """Who is given a role, of one kind of subjects."""
    found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
    names = (
        "/".join(filter(None, (each.get("namespace"), each.get("name"))))
        if kind == "ServiceAccount"
        else each.get("name", "")
        for each in found
    )
    return ", ".join(names)


def endpoint_addresses(endpoints: JsonObject, _now: datetime) -> str:
    """The first addresses with their ports."""
    texts: list[str] = []
    for subset in endpoints.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = [port.get("port", 0) for port in subset.get("ports") or ()]
        texts += [f"{ip}:{port}" for port in ports for ip in addresses] or addresses
    return _first_few(texts) or _NONE


def slice_ports(endpoint_slice: JsonObject, _now: datetime) -> str:
    """The ports of an endpoint slice."""
    found = [str(port.get("port", "*")) for port in endpoint_slice.get("ports") or ()]
    return _first_few(found) or "<unset>"


def slice_addresses(endpoint_slice: JsonObject, _now: datetime) -> str:
    """The first addresses of an endpoint slice."""
    found = [
        address
        for endpoint in endpoint_slice.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    ]
    return _first_few(found) or "<unset>"
