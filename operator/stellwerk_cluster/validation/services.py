"""The rules of Services: what a service of each type may say, and what does not change.

Called through their strategy. Invariant: a service keeps its first address and family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import labels_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    PROTOCOLS,
    cidr,
    ip_address,
    label,
    one_of,
    parsed_ip,
    port_number,
    port_number_or_name,
    qualified_name,
    subdomain,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
EXTERNAL: Final = ("LoadBalancer", "NodePort")
_POLICIES: Final = ("Cluster", "Local")
_AFFINITIES: Final = ("ClientIP", "None")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_FAMILIES: Final = ("IPv4", "IPv6")
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_MAX_AFFINITY_SECONDS: Final = 86_400
"""Longest time for which a client keeps its endpoint (`MaxClientIPServiceAffinitySeconds`)."""


def validate_service(service: JsonObject) -> Iterator[FieldError]:
    """Errors of a service."""
    spec = service["spec"]
    kind, ports = spec["type"], spec.get("ports") or ()
    headless = (spec.get("clusterIPs") or [""])[0] == "None"
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if kind in EXTERNAL and headless:
        text = f"may not be set to 'None' for {kind} services"
        yield bad_value("spec.clusterIPs[0]", "None", text)
    if kind == "ExternalName":
        yield from _external_name_errors(spec)
    yield from _port_errors(ports)
    if spec.get("selector"):
        yield from labels_errors(spec["selector"], "spec.selector")
    yield from _affinity_errors(spec)
    yield from _family_errors(spec)
    for position, address in enumerate(spec.get("externalIPs") or ()):
        yield from plain_address_errors(address, f"spec.externalIPs[{position}]")
    if kind not in _TYPES:
        yield unsupported("spec.type", kind, _TYPES)
    yield from _repeated_port_errors(spec)
    yield from _balancer_errors(spec)
    yield from _traffic_errors(spec)


def _external_name_errors(spec: JsonObject) -> Iterator[FieldError]:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            yield forbidden_field(f"spec.{name}", "may not be set for ExternalName services")
    host = spec.get("externalName", "").removesuffix(".")
    if not host:
        yield required("spec.externalName")
    else:
        yield from subdomain(host, "spec.externalName")


def _port_errors(ports: list[JsonObject] | tuple[()]) -> Iterator[FieldError]:
    names = set()
    for position, port in enumerate(ports):
        where, name = f"spec.ports[{position}]", port.get("name", "")
        if not name and len(ports) > 1:
            yield required(f"{where}.name")
        elif name:
            yield from label(name, f"{where}.name")
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        yield from port_number(port.get("port", 0), f"{where}.port")
        yield from one_of(port.get("protocol", ""), PROTOCOLS, f"{where}.protocol")
        yield from port_number_or_name(port.get("targetPort", 0), f"{where}.targetPort")
        if port.get("appProtocol") is not None:
            yield from qualified_name(port["appProtocol"], f"{where}.appProtocol")


def _affinity_errors(spec: JsonObject) -> Iterator[FieldError]:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    yield from one_of(affinity, _AFFINITIES, "spec.sessionAffinity")
    if affinity == "ClientIP":
        seconds = ((config or EMPTY).get("clientIP") or EMPTY).get("timeoutSeconds", 0)
        if not 0 < seconds <= _MAX_AFFINITY_SECONDS:
            field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            text = f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}"
            yield bad_value(field, seconds, text)


def _family_errors(spec: JsonObject) -> Iterator[FieldError]:
    """Addresses and address families of the cluster network."""
    if spec["type"] == "ExternalName":
        return
    families, policy = spec.get("ipFamilies") or (), spec.get("ipFamilyPolicy")
    for position, family in enumerate(families):
        if family not in _FAMILIES:
            yield unsupported(f"spec.ipFamilies[{position}]", family, _FAMILIES)
    seen = set()
    for position, family in enumerate(families):
        if family in seen:
            yield duplicate(f"spec.ipFamilies[{position}]", family)
        seen.add(family)
    if policy is not None and policy not in _FAMILY_POLICIES:
        yield unsupported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)
    addresses = spec.get("clusterIPs") or ()
    for position, address in enumerate(addresses):
        if address != "None":
            yield from ip_address(address, f"spec.clusterIPs[{position}]")
        elif addresses[1:]:
            text = "'None' must be the first and only value"
            yield bad_value(f"spec.clusterIPs[{position}]", address, text)


def plain_address_errors(address: str, field: str) -> Iterator[FieldError]:
    """An address that is neither unspecified, nor loopback, nor link-local."""
    parsed = parsed_ip(address)
    if parsed is None:
        yield from ip_address(address, field)
        return
    for wrong, text in (
        (parsed.is_unspecified, f"may not be unspecified ({address})"),
        (parsed.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (
            parsed.is_link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
    ):
        if wrong:
            yield bad_value(field, address, text)


def _repeated_port_errors(spec: JsonObject) -> Iterator[FieldError]:
    ports = list(enumerate(spec.get("ports") or ()))
    if spec["type"] == "ClusterIP":
        for position, port in ports:
            if port.get("nodePort"):
                text = "may not be used when `type` is 'ClusterIP'"
                yield forbidden_field(f"spec.ports[{position}].nodePort", text)
    seen: set[tuple[str, str, int]] = set()
    for position, port in ports:
        number, protocol = port.get("nodePort", 0), port.get("protocol", "")
        if number and ("node", protocol, number) in seen:
            yield duplicate(f"spec.ports[{position}].nodePort", number)
        seen.add(("node", protocol, number))
    for position, port in ports:
        key = ("own", port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            shown = internal_form("ServicePort", {"protocol": key[1], "port": key[2]})
            yield duplicate(f"spec.ports[{position}]", shown)
        seen.add(key)


def _balancer_errors(spec: JsonObject) -> Iterator[FieldError]:
    """Errors of fields for balanced services alone."""
    balanced = spec["type"] == "LoadBalancer"
    only = "may only be used when `type` is 'LoadBalancer'"
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and not balanced:
        yield forbidden_field("spec.LoadBalancerSourceRanges", only)
    for position, block in enumerate(ranges):
        yield from cidr(block.strip(), f"spec.LoadBalancerSourceRanges[{position}]")
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        yield forbidden_field("spec.allocateLoadBalancerNodePorts", only)
    name = spec.get("loadBalancerClass")
    if name is not None:
        if not balanced:
            yield forbidden_field("spec.loadBalancerClass", only)
        else:
            yield from qualified_name(name, "spec.loadBalancerClass")


def _traffic_errors(spec: JsonObject) -> Iterator[FieldError]:
    external, internal = spec.get("externalTrafficPolicy", ""), spec.get("internalTrafficPolicy")
    reachable = spec["type"] in EXTERNAL or (
        spec["type"] == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if not reachable:
        if external:
            text = "may only be set for externally-accessible services"
            yield bad_value("spec.externalTrafficPolicy", external, text)
    elif external or spec["type"] in EXTERNAL:
        yield from one_of(external, _POLICIES, "spec.externalTrafficPolicy")
    checked = spec["type"] == "LoadBalancer" and external == "Local"
    port = spec.get("healthCheckNodePort", 0)
    if port and not checked:
        text = (
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        )
        yield bad_value("spec.healthCheckNodePort", port, text)
    if internal is not None and internal not in _POLICIES:
        yield unsupported("spec.internalTrafficPolicy", internal, _POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def validate_service_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change: the first address and family stay, unless the name is a host."""
    if subresource == "status":
        return
    spec, was = new["spec"], old["spec"]
    if "ExternalName" not in (spec["type"], was["type"]):
        for name in ("clusterIPs", "ipFamilies"):
            has, had = spec.get(name) or [], was.get(name) or []
            if had and not has:
                yield bad_value(f"spec.{name}[0]", has, "primary clusterIP can not be unset")
            elif had and has[0] != had[0]:
                yield bad_value(f"spec.{name}[0]", has, "may not change once set")
    if was["type"] == spec["type"] == "LoadBalancer":
        name = spec.get("loadBalancerClass")
        if name != was.get("loadBalancerClass"):
            text = "may not change once set"
            yield bad_value("spec.loadBalancerClass", name, text)
    yield from validate_service(new)
