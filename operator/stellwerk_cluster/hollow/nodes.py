"""The objects of hollow nodes.

`hollow_nodes` makes manifests for N equal machines, `register_nodes` stores them. Invariant: a
hollow node is Ready from its first status on, and its addresses are its own.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.kind_plugins import NOT_READY
from stellwerk_cluster.apimachinery.objects import (
    deep_copy,
    pick,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.releases import RECORDED_RELEASE, git_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.hollow.kubelet import KubeletOptions
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

ZONES: Final = ("zone-a", "zone-b", "zone-c")
REGION: Final = "region-1"
CAPACITY: Final = {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_FIRST_ADDRESS: Final = IPv4Address("10.1.0.1")
WRITTEN_OFF: Final = "NodeStatusUnknown"
"""The reason of conditions that the node lifecycle controller has set to Unknown."""
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def hollow_nodes(count: int) -> list[JsonObject]:
    """Manifests of nodes `node-1` to `node-N`, zones round robin."""
    return [
        {
            "metadata": {
                "name": f"node-{number}",
                "labels": {
                    "beta.kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": f"node-{number}",
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": "hollow",
                    "topology.kubernetes.io/region": REGION,
                    "topology.kubernetes.io/zone": ZONES[(number - 1) % len(ZONES)],
                },
            }
        }
        for number in range(1, count + 1)
    ]


def ready_node(
    manifest: JsonObject, number: int, now: str, release: str = RECORDED_RELEASE
) -> JsonObject:
    """The node of a manifest, with what a kubelet would report where the manifest is silent."""
    node = deep_copy(manifest)
    name = node["metadata"]["name"]
    labels = node["metadata"]["labels"] = node["metadata"].get("labels") or {}
    labels.setdefault("kubernetes.io/hostname", name)
    labels.setdefault("kubernetes.io/os", "linux")
    labels.setdefault("kubernetes.io/arch", "amd64")
    status = node["status"] = node.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity") or CAPACITY
    status.setdefault("capacity", dict(allocatable))
    status["allocatable"] = dict(allocatable)
    given = {condition.get("type") for condition in status.get("conditions") or ()}
    own = [condition for condition in _conditions(now) if condition["type"] not in given]
    status["conditions"] = [*(status.get("conditions") or ()), *own]
    address = str(_FIRST_ADDRESS + number)
    default_addresses = [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": name},
    ]
    status.setdefault("addresses", default_addresses)
    given_info = {key: value for key, value in (status.get("nodeInfo") or {}).items() if value}
    status["nodeInfo"] = {**_node_info(name, release), **given_info}
    return node


def heard_again(node: JsonObject, now: str) -> JsonObject:
    """The node with the conditions that were written off reported as of a node that is well."""
    fresh = {each["type"]: each for each in _conditions(now)}
    conditions = [
        fresh.get(each["type"], each) if each.get("reason") == WRITTEN_OFF else each
        for each in node["status"]["conditions"]
    ]
    return with_value(node, ("status", "conditions"), conditions)


def _conditions(now: str) -> list[JsonObject]:
    pressures = [(type_, "False", reason, text) for type_, reason, text in _PRESSURES]
    ready = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    return [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": text,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for type_, status, reason, text in (*pressures, ready)
    ]


def _node_info(name: str, release: str) -> JsonObject:
    return {
        "architecture": "amd64",
        "bootID": name,
        "containerRuntimeVersion": "hollow://1",
        "kernelVersion": "hollow",
        "kubeProxyVersion": "",
        "kubeletVersion": git_version(release),
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": "Hollow",
        "systemUUID": name,
    }


def register_nodes(
    api: Api, manifests: Iterable[JsonObject], options: KubeletOptions | None = None
) -> None:
    """Create nodes that are Ready, without the taint that every new node gets.

    Those that a restored cluster has kept stay as they are.

    Raises:
        StatusError: a manifest is invalid.
    """
    kind = api.kinds.resource("nodes")
    configuration = options.configuration if options else None
    now = timestamp(api.now())
    for number, manifest in enumerate(manifests):
        if api.find(kind.storage_name, "", (manifest.get("metadata") or {}).get("name", "")):
            continue
        node = ready_node(manifest, number, now, api.release)
        if configuration is not None and not pick(manifest, ("status", "allocatable")):
            node["status"]["allocatable"] = configuration.allocatable(node["status"]["capacity"])
        entry = api.create(kind, "", node)
        api.modify(kind, entry.key, without_not_ready_taint)


def without_not_ready_taint(node: JsonObject) -> JsonObject:
    """The node without the taint of admission, as the node lifecycle controller leaves it."""
    taints = [each for each in node["spec"].get("taints") or () if each["key"] != NOT_READY]
    spec = {name: value for name, value in node["spec"].items() if name != "taints"}
    return {**node, "spec": {**spec, "taints": taints} if taints else spec}
