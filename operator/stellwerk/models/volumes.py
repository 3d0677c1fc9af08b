"""Volumes of a pod that a scheduler must look at: claims, and disks named in the pod itself.

Parsed with the pod; used by the volume plugins and counted per node by the snapshot. Invariant: `usage_keys` of two
volumes share a key only if both name the same claim or disk.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]
UsageKey: TypeAlias = tuple[str, ...]

_WATCHED_KINDS: Final = (
    "persistentVolumeClaim",
    "ephemeral",
    "csi",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cinder",
    "iscsi",
    "portworxVolume",
    "rbd",
    "vsphereVolume",
)


@dataclass(frozen=True, slots=True, eq=False)
class PodVolume:
    """One volume of one pod."""

    name: str
    kind: str
    """The key of the volume source, e.g. persistentVolumeClaim, ephemeral, gcePersistentDisk, csi."""
    claim_name: str
    """The claim's name for persistentVolumeClaim and ephemeral volumes, otherwise empty."""
    source: JsonObject
    """The volume source as in the API."""

    def usage_keys(self, namespace: str) -> tuple[UsageKey, ...]:
        """What the volume occupies on its node, for counting: ("claim", namespace, name)."""
        return (("claim", namespace, self.claim_name),) if self.claim_name else ()


def parse_volumes(pod_name: str, volumes: Iterable[JsonObject]) -> tuple[PodVolume, ...]:
    """spec.volumes without those that no plugin looks at (config maps, projected tokens …)."""
    found = []
    for volume in volumes:
        kind = next((kind for kind in _WATCHED_KINDS if kind in volume), None)
        if kind is None:
            continue
        source = volume[kind] or {}
        claim_name = ""
        if kind == "persistentVolumeClaim":
            claim_name = source["claimName"]
        elif kind == "ephemeral":
            claim_name = f"{pod_name}-{volume['name']}"
        found.append(PodVolume(volume["name"], kind, claim_name, source))
    return tuple(found)
