"""The kinds of objects that a question needs, and what an answer is worth without one of them.

`local_port` asks for them once nodes and pods are read, `followed` before it watches. Invariant: a
kind that decisions read has a row in KINDS, so that leaving it out is either without effect or
said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import GROUP_KINDS
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject

VOLUME_PLUGINS: Final = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
_DEVICE_PLUGINS: Final = ("DynamicResources",)
_UNCHECKED_VOLUMES: Final = (
    "volumes are not looked at, so that a node that cannot have them may count as one that fits"
)
_UNCHECKED_DEVICES: Final = (
    "devices are not looked at, so that a node without them may count as one that fits"
)
_UNSPREAD: Final = "pods that spread by default are not counted by it"
_ALONE: Final = "a member of a group is decided as if it were alone"


@dataclass(frozen=True, slots=True)
class NeededKind:
    """The meaning of one kind for answers."""

    consequence: str
    """The effect on an answer of not reading it."""
    plugins: tuple[str, ...] = ()
    """The plugins that would take the missing objects for absent, and turn pods away: they are not
    asked without the kind."""


KINDS: Final[Mapping[str, NeededKind]] = {
    PROFILE: NeededKind("pods that Stellwerk serves are decided by the configuration assumed"),
    "Namespace": NeededKind("affinity with a namespaceSelector finds pods of no namespace"),
    "PriorityClass": NeededKind("pods without a priority of their own have priority 0"),
    "Service": NeededKind(_UNSPREAD),
    "ReplicationController": NeededKind(_UNSPREAD),
    "ReplicaSet": NeededKind(_UNSPREAD),
    "StatefulSet": NeededKind(_UNSPREAD),
    "PersistentVolumeClaim": NeededKind(_UNCHECKED_VOLUMES, VOLUME_PLUGINS),
    "PersistentVolume": NeededKind(_UNCHECKED_VOLUMES, VOLUME_PLUGINS),
    "StorageClass": NeededKind(_UNCHECKED_VOLUMES, VOLUME_PLUGINS),
    "CSINode": NeededKind("no node has a limit of volumes"),
    "CSIDriver": NeededKind("the capacity of storage is not checked"),
    "CSIStorageCapacity": NeededKind(_UNCHECKED_VOLUMES, VOLUME_PLUGINS),
    "VolumeAttachment": NeededKind("volumes count on a node only where a pod there names them"),
    "PodDisruptionBudget": NeededKind("preemption and drains meet no disruption budget"),
    "ResourceClaim": NeededKind(_UNCHECKED_DEVICES, _DEVICE_PLUGINS),
    "ResourceSlice": NeededKind(_UNCHECKED_DEVICES, _DEVICE_PLUGINS),
    "DeviceClass": NeededKind(_UNCHECKED_DEVICES, _DEVICE_PLUGINS),
    "DeviceTaintRule": NeededKind("devices have the taints of their slices alone"),
    "PodGroup": NeededKind(_ALONE, ("GangScheduling",)),
    "CoschedulingPodGroup": NeededKind(_ALONE, ("GangScheduling",)),
}
"""By kind, in the order in which they are read once nodes and pods are. SchedulerProfile and
PriorityClass are read before nodes and pods, whatever the question (`local_port`)."""
_VOLUMES: Final = (
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
)
DEVICES: Final = ("DeviceClass", "ResourceSlice", "ResourceClaim", "DeviceTaintRule")
SPREAD: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
"""The kinds that give default spreading its selector; those of the pods' own namespaces do."""


def needed(world: World, pods: Iterable[PodInfo]) -> frozenset[str]:
    """The kinds that decisions on these pods read, beside nodes and pods."""
    found = {"Namespace"}
    lowest = min((each.priority for each in world.cache.pods()), default=None)
    for pod in pods:
        if pod.volumes:
            found.update(_VOLUMES)
        if pod.spec.resource_claims or pod.extended_requests or pod.generated_claims:
            found.update(DEVICES)
        if pod.group is not None:
            found.update(kind for kind, api in GROUP_KINDS.items() if api == pod.group.api)
        if not pod.spec.spread_constraints:
            found.update(SPREAD)
        if lowest is not None and pod.priority > lowest:
            found.add("PodDisruptionBudget")
    return frozenset(found)


def without_blind_plugins(manifest: JsonObject, unread: Iterable[str]) -> JsonObject:
    """The profile without the plugins that need kinds which cannot be read.

    They would take the objects for absent, and turn pods away for the wrong reason.
    """
    blind = {plugin for kind in unread if kind in KINDS for plugin in KINDS[kind].plugins}
    if not blind:
        return manifest
    spec = dict(manifest["spec"])
    plugins = {point: dict(each) for point, each in (spec.get("plugins") or {}).items()}
    for point in {"multiPoint", *plugins}:
        lists = plugins.setdefault(point, {})
        lists["enabled"] = [
            each for each in lists.get("enabled") or () if each.get("name") not in blind
        ]
        if point == "multiPoint":
            known = {each.get("name") for each in lists.get("disabled") or ()}
            more = [{"name": name} for name in sorted(blind - known) if "*" not in known]
            lists["disabled"] = [*(lists.get("disabled") or ()), *more]
    if "GangScheduling" in blind:
        spec["gangScheduling"] = False
    config = [each for each in spec.get("pluginConfig") or () if each.get("name") not in blind]
    return {**manifest, "spec": {**spec, "plugins": plugins, "pluginConfig": config}}
