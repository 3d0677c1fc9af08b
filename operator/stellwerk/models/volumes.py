"""Volumes of a pod that a scheduler must look at: claims, and disks named in the pod itself.

Parsed with the pod; used by the volume plugins and counted per node by the snapshot. Invariant:
`usage_keys` of two volumes share a key only if both name the same claim or disk.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from stellwerk.models.json_values import JsonObject, text, text_or_empty, texts

UsageKey: TypeAlias = tuple[str, ...]
"""The kind of the volume source, then what names the claim or disk."""

CLAIM: Final = "persistentVolumeClaim"
EPHEMERAL: Final = "ephemeral"
READ_WRITE: Final = "rw"
READ_ONLY: Final = "ro"

_WATCHED_KINDS: Final = (
    CLAIM,
    EPHEMERAL,
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
MANY_USES: Final = 1000
"""A volume with more is counted as a whole, whatever a pod invents."""
_RANK: Final = {kind: rank for rank, kind in enumerate(_WATCHED_KINDS)}
"""Where a volume names two sources, the first counts."""
_DISK_NAMES: Final = {
    "gcePersistentDisk": "pdName",
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskURI",
    "cinder": "volumeID",
    "iscsi": "iqn",
    "portworxVolume": "volumeID",
}
"""Kind → the field of the source that names the disk."""


@dataclass(frozen=True, slots=True, eq=False)
class PodVolume:
    """One volume of one pod."""

    name: str
    kind: str
    """The key of the volume source, e.g. persistentVolumeClaim, ephemeral, gcePersistentDisk."""
    claim_name: str
    """The claim's name for persistentVolumeClaim and ephemeral volumes, otherwise empty."""
    source: JsonObject
    """The volume source as in the API."""
    disk_uses: tuple[UsageKey, ...] | frozenset[UsageKey] = ()
    """What a disk occupies, mounted as it is; a set if these are many; of a claim nothing."""

    @property
    def mode(self) -> str:
        """How a disk is mounted: READ_ONLY or READ_WRITE."""
        return READ_ONLY if self.source.get("readOnly") else READ_WRITE

    def disk_keys(self, mode: str) -> tuple[UsageKey, ...]:
        """What a volume of this disk occupies when mounted so; nothing if it names no disk.

        An RBD image is one key per monitor: images are the same if any monitor is.
        """
        return _disk_keys(self.kind, self.source, mode)

    def usage_keys(self, namespace: str) -> Collection[UsageKey]:
        """What the volume occupies on its node, for counting: a claim, or a disk and its mode."""
        if self.claim_name:
            return ((self.kind, namespace, self.claim_name),)
        return self.disk_uses


def storage_class_name(obj: JsonObject) -> str:
    """The storage class of a claim or volume; the beta annotation comes first, as upstream."""
    annotations = obj["metadata"].get("annotations") or {}
    beta = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str((obj["spec"].get("storageClassName") or "") if beta is None else beta)


def parse_volumes(pod_name: str, volumes: Iterable[JsonObject]) -> tuple[PodVolume, ...]:
    """spec.volumes without those that no plugin looks at (config maps, projected tokens …)."""
    found = []
    for volume in volumes:
        kinds = _RANK.keys() & volume.keys()
        if not kinds:
            continue
        kind = min(kinds, key=_RANK.__getitem__) if len(kinds) > 1 else kinds.pop()
        source = volume[kind] or {}
        claim_name = ""
        if kind == CLAIM:
            claim_name = text(source["claimName"])
        elif kind == EPHEMERAL:
            claim_name = f"{pod_name}-{volume['name']}"
        # A source that cannot be read is to be found now, and not when the volume is counted.
        mode = READ_ONLY if source.get("readOnly") else READ_WRITE
        uses = () if claim_name else _disk_keys(kind, source, mode)
        found.append(
            PodVolume(
                text(volume["name"]),
                kind,
                claim_name,
                source,
                uses if len(uses) <= MANY_USES else _hashed(uses),
            )
        )
    return tuple(found)


def _disk_keys(kind: str, source: JsonObject, mode: str) -> tuple[UsageKey, ...]:
    if kind == "rbd":
        pool = text_or_empty(source.get("pool"))
        image = text_or_empty(source.get("image"))
        monitors = dict.fromkeys(texts(source.get("monitors")))
        return tuple(("rbd", monitor, pool, image, mode) for monitor in monitors)
    field = _DISK_NAMES.get(kind)
    return ((kind, text_or_empty(source.get(field)), mode),) if field else ()


def _hashed(uses: tuple[UsageKey, ...]) -> frozenset[UsageKey]:
    """The set of them, which knows its hash from now on."""
    found = frozenset(uses)
    hash(found)
    return found
