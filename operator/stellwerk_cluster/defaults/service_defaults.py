"""Services and EndpointSlices before they are validated: defaults, addresses and node ports.

Called through their strategies. Invariant: what was allocated stays where an update says nothing,
and what another Service has is given to no second one.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import bad_value, internal, invalid
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import parsed_ip
from stellwerk_cluster.validation.services import EXTERNAL

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

_AFFINITY_SECONDS: Final = 10_800
"""Time for which a client keeps its endpoint (`DefaultClientIPServiceAffinitySeconds`)."""
FIRST_ADDRESS: Final = IPv4Address("10.0.0.2")
"""10.0.0.1 is the API server's own service."""
_MAX_CLUSTER_ADDRESSES: Final = 65_000
"""Addresses of services that are handed out."""
_NETWORK: Final = IPv4Network("10.0.0.0/16")
_MIN_NODE_PORT: Final = 30_000
"""First port that a service may have on nodes (`--service-node-port-range`)."""
_MAX_NODE_PORT: Final = 32_767
"""Last port that a service may have on nodes."""


def default_service(service: JsonObject) -> None:
    """A TCP service inside the cluster, on the port of its target."""
    spec = service["spec"]
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    elif spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports") or ():
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if spec["type"] in EXTERNAL:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def prepare_service(service: JsonObject, _cluster: Reader) -> None:
    """Both ways to name the cluster address agree."""
    spec = service["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def prepare_service_update(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """An update that says nothing of what was allocated keeps it, as far as its type has it."""
    spec, was = new["spec"], old["spec"]
    if subresource:
        return
    _drop_fields_of_other_types(spec, was)
    if spec["type"] == "ExternalName":
        return
    if was["type"] != "ExternalName":
        names = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
        for name in names:
            if name in was and not spec.get(name):
                spec[name] = was[name]
        if spec.get("clusterIP") != was.get("clusterIP") and spec.get("clusterIPs") == was.get(
            "clusterIPs"
        ):
            spec["clusterIPs"] = [spec["clusterIP"]]
        elif spec.get("clusterIPs") != was.get("clusterIPs") and spec["clusterIPs"]:
            spec["clusterIP"] = spec["clusterIPs"][0]
    elif spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec["type"] in EXTERNAL and was["type"] in EXTERNAL:
        _keep_node_ports(spec, was)


def _drop_fields_of_other_types(spec: JsonObject, was: JsonObject) -> None:
    """An update that changes the type alone loses what the new type does not have.

    This is kube-apiserver's `dropTypeDependentFields` (v1.36).
    """
    if spec["type"] not in EXTERNAL and _node_ports(spec) == _node_ports(was):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if spec["type"] == "ExternalName" != was["type"]:
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(name) == was.get(name):
                spec.pop(name, None)


def _node_ports(spec: JsonObject) -> list[int]:
    return sorted(each.get("nodePort", 0) for each in spec.get("ports") or ())


def _keep_node_ports(spec: JsonObject, was: JsonObject) -> None:
    had = {(each.get("protocol"), each.get("port")): each for each in was.get("ports") or ()}
    for port in spec.get("ports") or ():
        same = had.get((port.get("protocol"), port.get("port"))) or EMPTY
        if "nodePort" in same and not port.get("nodePort"):
            port["nodePort"] = same["nodePort"]


def default_endpoint_slice(endpoint_slice: JsonObject) -> None:
    """Ports are TCP and may have an empty name."""
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("name", "")


def allocate_for_service(service: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Give the service free addresses and ports, or those that it asks for.

    Raises:
        StatusError: none is left (500), or another service has what it asks for (422).
    """
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return
    _allocate_address(service, cluster, kind)
    if spec["type"] in EXTERNAL and spec.get("allocateLoadBalancerNodePorts") is not False:
        _allocate_ports(service, cluster, kind)
    checked = spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
    if checked and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = _free_port(_taken_ports(service, cluster))


def allocate_for_changed_service(
    new: JsonObject, old: JsonObject, cluster: Reader, kind: ResourceKind
) -> None:
    """As for a new service, where the change of type asks for it.

    Raises:
        StatusError: as for a new service.
    """
    if new["spec"] != old["spec"]:
        _release(new["spec"])
        allocate_for_service(new, cluster, kind)


def _release(spec: JsonObject) -> None:
    """A service that is no longer reachable from outside needs no ports there."""
    if spec["type"] not in EXTERNAL:
        for name in ("allocateLoadBalancerNodePorts", "healthCheckNodePort"):
            spec.pop(name, None)
        if not spec.get("externalIPs"):
            spec.pop("externalTrafficPolicy", None)
    if spec["type"] == "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(name, None)


def _allocate_address(service: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    spec = service["spec"]
    asked = spec.get("clusterIP", "")
    if not asked:
        spec["clusterIP"] = _free_address(cluster)
    elif asked != "None" and parsed_ip(asked) is not None:
        _check_address(service, asked, cluster, kind)
    if asked != "None" or not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"], *(spec.get("clusterIPs") or ())[1:]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _check_address(service: JsonObject, asked: str, cluster: Reader, kind: ResourceKind) -> None:
    name = service["metadata"].get("name", "")
    if parsed_ip(asked) not in _NETWORK:
        text = (
            "failed to allocate IP "
            f"{asked}: the provided IP ({asked}) is not in the valid range. The range of valid "
            f"IPs is {_NETWORK}"
        )
        raise invalid(kind, name, [bad_value("spec.clusterIPs", [asked], text)])
    if asked in _taken_addresses(service, cluster):
        text = f"failed to allocate IP {asked}: provided IP is already allocated"
        raise invalid(kind, name, [bad_value("spec.clusterIPs", [asked], text)])


def _taken_addresses(service: JsonObject, cluster: Reader) -> set[str]:
    own = service["metadata"].get("uid")
    return {
        each["spec"].get("clusterIP", "")
        for each in cluster.all("services")
        if each["metadata"].get("uid") != own
    }


def _free_address(cluster: Reader) -> str:
    taken = {each["spec"].get("clusterIP") for each in cluster.all("services")}
    for offset in range(_MAX_CLUSTER_ADDRESSES):
        address = str(FIRST_ADDRESS + offset)
        if address not in taken:
            return address
    message = "failed to allocate a serviceIP: range is full"
    raise internal(message)


def _allocate_ports(service: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    taken = _taken_ports(service, cluster)
    for position, port in enumerate(service["spec"].get("ports") or ()):
        asked = port.get("nodePort", 0)
        if not asked:
            port["nodePort"] = _free_port(taken)
        elif asked in taken:
            _refuse_port(service, kind, position, asked, "provided port is already allocated")
        elif not _MIN_NODE_PORT <= asked <= _MAX_NODE_PORT:
            text = (
                "provided port is not in the valid range. The range of valid ports is "
                f"{_MIN_NODE_PORT}-{_MAX_NODE_PORT}"
            )
            _refuse_port(service, kind, position, asked, text)
        taken.add(port["nodePort"])


def _refuse_port(
    service: JsonObject, kind: ResourceKind, position: int, port: int, text: str
) -> None:
    error = bad_value(f"spec.ports[{position}].nodePort", port, text)
    raise invalid(kind, service["metadata"].get("name", ""), [error])


def _taken_ports(service: JsonObject, cluster: Reader) -> set[int]:
    own = service["metadata"].get("uid")
    return {
        port["nodePort"]
        for each in cluster.all("services")
        if each["metadata"].get("uid") != own
        for port in each["spec"].get("ports") or ()
        if port.get("nodePort")
    }


def _free_port(taken: set[int]) -> int:
    for port in range(_MIN_NODE_PORT, _MAX_NODE_PORT + 1):
        if port not in taken:
            return port
    message = "failed to allocate a nodePort: range is full"
    raise internal(message)
