"""The rules of Services: defaults, cluster addresses, immutability.

Called through their strategy. Invariant: no two services have the same cluster address, unless a
client asked for one that was taken.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import Cause, bad_value, internal, required

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

FIRST_ADDRESS: Final = IPv4Address("10.0.0.2")
"""10.0.0.1 is the API server's own service."""
_ADDRESSES: Final = 65_000


def default_service(service: JsonObject) -> None:
    """A TCP service inside the cluster, on the port of its target."""
    spec = service["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))


def allocate_service_address(service: JsonObject, cluster: Reader, _kind: ResourceKind) -> None:
    """Give the service a free address, or the one it asks for.

    Raises:
        StatusError: no address is left (500).
    """
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(cluster)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _free_address(cluster: Reader) -> str:
    taken = {each["spec"].get("clusterIP") for each in cluster.all("services")}
    for offset in range(_ADDRESSES):
        address = str(FIRST_ADDRESS + offset)
        if address not in taken:
            return address
    message = "failed to allocate a serviceIP: range is full"
    raise internal(message)


def validate_service(service: JsonObject) -> list[Cause]:
    """What is wrong with a service."""
    spec = service["spec"]
    headless = spec.get("clusterIP") == "None" or spec["type"] == "ExternalName"
    return [] if spec.get("ports") or headless else [required("spec.ports")]


def validate_service_update(new: JsonObject, old: JsonObject, subresource: str) -> list[Cause]:
    """The address stays."""
    if subresource == "status":
        return []
    causes = validate_service(new)
    had, has = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
    if had and has and had != has:
        causes.append(bad_value("spec.clusterIPs[0]", [has], "may not change once set"))
    return causes
