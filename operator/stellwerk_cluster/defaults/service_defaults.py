"""Defaults of Services, Endpoints and EndpointSlices, and what an update of a Service keeps.

Called through their strategies. Invariant: what was allocated stays where an update says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.services import EXTERNAL

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.strategy import Reader

_AFFINITY_SECONDS: Final = 10_800


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
    """An update that says nothing of what was allocated keeps it."""
    spec, was = new["spec"], old["spec"]
    if subresource or spec["type"] == "ExternalName":
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
