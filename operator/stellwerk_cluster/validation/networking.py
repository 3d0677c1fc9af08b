"""The rules of Ingresses, NetworkPolicies, Endpoints, EndpointSlices, and of autoscalers.

Called through their strategies. Invariant: nothing in the embedded cluster acts upon these kinds;
what is stored is what the API server would store.
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
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    IMMUTABLE,
    PROTOCOLS,
    in_range,
    label,
    one_of,
    parsed_cidr,
    parsed_ip,
    port_number,
    port_number_or_name,
    subdomain,
)
from stellwerk_cluster.validation.placement import label_selector_errors
from stellwerk_cluster.validation.services import plain_address_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject

_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_DIRECTIONS: Final = ("Egress", "Ingress")
_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_MAX_ENDPOINTS: Final = 1000
"""Endpoints of an EndpointSlice (`maxEndpoints`)."""
_MAX_PORTS: Final = 20_000
"""Ports of an EndpointSlice (`maxPorts`)."""
_LARGEST_PORT: Final = 65_535


def validate_ingress(ingress: JsonObject) -> Iterator[FieldError]:
    """Errors of an Ingress."""
    spec = ingress["spec"]
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield required("spec", "either `defaultBackend` or `rules` must be specified")
    if spec.get("defaultBackend") is not None:
        yield from _backend_errors(spec["defaultBackend"], "spec.defaultBackend")
    for position, rule in enumerate(spec.get("rules") or ()):
        field, host = f"spec.rules[{position}]", rule.get("host", "")
        if host and parsed_ip(host) is not None:
            yield bad_value(f"{field}.host", host, "must be a DNS name, not an IP address")
        elif host:
            yield from subdomain(host.removeprefix("*."), f"{field}.host")
        paths = (rule.get("http") or EMPTY).get("paths")
        if rule.get("http") is not None and not paths:
            yield required(f"{field}.http.paths")
        for index, path in enumerate(paths or ()):
            yield from _path_errors(path, f"{field}.http.paths[{index}]")
    if spec.get("ingressClassName") is not None:
        yield from subdomain(spec["ingressClassName"], "spec.ingressClassName")


def _path_errors(path: JsonObject, field: str) -> Iterator[FieldError]:
    kind, text = path.get("pathType"), path.get("path", "")
    if not kind:
        yield required(f"{field}.pathType", "pathType must be specified")
    elif kind not in _PATH_TYPES:
        yield unsupported(f"{field}.pathType", kind, _PATH_TYPES)
    elif (kind != "ImplementationSpecific" or text) and not text.startswith("/"):
        yield bad_value(f"{field}.path", text, "must be an absolute path")
    yield from _backend_errors(path.get("backend") or EMPTY, f"{field}.backend")


def _backend_errors(backend: JsonObject, field: str) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        text = "cannot set both resource and service backends"
        yield bad_value(field, "", text)
    elif service is None and resource is None:
        yield required(field, "resource or service backend is required")
    elif service is not None:
        yield from _service_errors(service, f"{field}.service")


def _service_errors(service: JsonObject, field: str) -> Iterator[FieldError]:
    name, port = service.get("name", ""), service.get("port") or EMPTY
    if not name:
        yield required(f"{field}.name")
    else:
        yield from label(name, f"{field}.name")
    if port.get("name") and port.get("number"):
        text = "cannot set both port name & port number"
        yield bad_value(field, "", text)
    elif port.get("name"):
        yield from port_number_or_name(port["name"], f"{field}.port.name")
    elif port.get("number"):
        yield from port_number(port["number"], f"{field}.port.number")
    else:
        yield required(field, "port name or number is required")


def validate_network_policy(policy: JsonObject) -> Iterator[FieldError]:
    """Errors of a NetworkPolicy."""
    spec = policy["spec"]
    yield from label_selector_errors(spec.get("podSelector") or EMPTY, "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(spec.get(direction) or ()):
            field = f"spec.{direction}[{position}]"
            for index, port in enumerate(rule.get("ports") or ()):
                yield from _policy_port_errors(port, f"{field}.ports[{index}]")
            for index, peer in enumerate(rule.get(peers) or ()):
                yield from _peer_errors(peer, f"{field}.{peers}[{index}]")
    types = spec.get("policyTypes") or ()
    if len(types) > len(_DIRECTIONS):
        text = "may not specify more than two policyTypes"
        yield bad_value("spec.policyTypes", types, text)
        return
    for position, kind in enumerate(types):
        if kind not in _DIRECTIONS:
            yield unsupported(f"spec.policyTypes[{position}]", kind, _DIRECTIONS)


def _policy_port_errors(port: JsonObject, field: str) -> Iterator[FieldError]:
    protocol, number, last = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in PROTOCOLS:
        yield unsupported(f"{field}.protocol", protocol, PROTOCOLS)
    if number is not None:
        yield from port_number_or_name(number, f"{field}.port")
        if last is not None and isinstance(number, str):
            text = "may not be specified when `port` is non-numeric"
            yield bad_value(f"{field}.endPort", last, text)
        elif last is not None and last < number:
            text = "must be greater than or equal to `port`"
            yield bad_value(f"{field}.endPort", last, text)
    elif last is not None:
        text = "may not be specified when `port` is not specified"
        yield bad_value(f"{field}.endPort", last, text)


def _peer_errors(peer: JsonObject, field: str) -> Iterator[FieldError]:
    block = peer.get("ipBlock")
    given = [name for name in ("podSelector", "namespaceSelector") if peer.get(name) is not None]
    for name in given:
        yield from label_selector_errors(peer[name] or EMPTY, f"{field}.{name}")
    if not given and block is None:
        yield required(field, "must specify a peer")
    elif given and block is not None:
        yield forbidden_field(field, "may not specify both ipBlock and another peer")
    if block is not None:
        yield from _block_errors(block, f"{field}.ipBlock")


def _block_errors(block: JsonObject, field: str) -> Iterator[FieldError]:
    text = block.get("cidr", "")
    network = parsed_cidr(text)
    if not text:
        yield required(f"{field}.cidr")
        return
    if network is None:
        why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield bad_value(f"{field}.cidr", text, why)
        return
    for position, part in enumerate(block.get("except") or ()):
        inner = parsed_cidr(part)
        same_family = inner is not None and inner.version == network.version
        inside = same_family and inner is not None and inner.network_address in network
        if not inside or str(inner) == str(network):
            why = f"must be a strict subset of `cidr`: {text}"
            yield bad_value(f"{field}.except[{position}]", part, why)


def validate_endpoint_slice(endpoint_slice: JsonObject) -> Iterator[FieldError]:
    """Errors of an EndpointSlice."""
    kind = endpoint_slice.get("addressType", "")
    if not kind:
        yield required("addressType")
    elif kind not in _ADDRESS_TYPES:
        yield unsupported("addressType", kind, _ADDRESS_TYPES)
    endpoints, ports = endpoint_slice.get("endpoints") or (), endpoint_slice.get("ports") or ()
    if len(endpoints) > _MAX_ENDPOINTS:
        yield FieldError(
            "endpoints", "FieldValueTooMany", _too_many(len(endpoints), _MAX_ENDPOINTS)
        )
        return
    for position, endpoint in enumerate(endpoints):
        yield from _endpoint_errors(endpoint, f"endpoints[{position}]", kind)
    if len(ports) > _MAX_PORTS:
        yield FieldError("ports", "FieldValueTooMany", _too_many(len(ports), _MAX_PORTS))
        return
    yield from _slice_port_errors(ports)


def _endpoint_errors(endpoint: JsonObject, field: str, kind: str) -> Iterator[FieldError]:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        yield required(f"{field}.addresses", "must contain at least 1 address")
    for index, address in enumerate(addresses):
        if kind == "FQDN":
            yield from subdomain(address, f"{field}.addresses[{index}]")
        elif kind:
            yield from plain_address_errors(address, f"{field}.addresses[{index}]")
    if endpoint.get("nodeName") is not None:
        yield from subdomain(endpoint["nodeName"], f"{field}.nodeName")
    if endpoint.get("hostname") is not None:
        yield from label(endpoint["hostname"], f"{field}.hostname")


def _slice_port_errors(ports: Iterable[JsonObject]) -> Iterator[FieldError]:
    names = set()
    for position, port in enumerate(ports):
        name = port.get("name", "")
        if name:
            yield from label(name, f"ports[{position}].name")
        if name in names:
            yield duplicate(f"ports[{position}].name", name)
        names.add(name)
        if port.get("port") is not None and not 1 <= port["port"] <= _LARGEST_PORT:
            where = f"ports[{position}].port"
            yield bad_value(where, port["port"], in_range(1, _LARGEST_PORT))
        yield from one_of(port.get("protocol", ""), PROTOCOLS, f"ports[{position}].protocol")


def _too_many(number: int, most: int) -> str:
    return f"Too many: {number}: must have at most {most} items"


def validate_endpoint_slice_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """The family of the addresses stays."""
    yield from validate_endpoint_slice(new)
    if new.get("addressType") != old.get("addressType"):
        yield bad_value("addressType", new.get("addressType", ""), IMMUTABLE)


def validate_endpoints(endpoints: JsonObject) -> Iterator[FieldError]:
    """Errors of Endpoints."""
    for position, subset in enumerate(endpoints.get("subsets") or ()):
        field = f"subsets[{position}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(field, "must specify `addresses` or `notReadyAddresses`")
        for group in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(group) or ()):
                where = f"{field}.{group}[{index}]"
                yield from plain_address_errors(address.get("ip", ""), f"{where}.ip")
                if address.get("hostname"):
                    yield from label(address["hostname"], f"{where}.hostname")
        ports = subset.get("ports") or ()
        for index, port in enumerate(ports):
            where, name = f"{field}.ports[{index}]", port.get("name", "")
            if name:
                yield from label(name, f"{where}.name")
            elif ports[1:]:
                yield required(f"{where}.name")
            yield from port_number(port.get("port", 0), f"{where}.port")
            yield from one_of(port.get("protocol", ""), PROTOCOLS, f"{where}.protocol")
