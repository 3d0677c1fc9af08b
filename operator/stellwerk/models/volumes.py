"""Volumes of a pod that a scheduler must look at: claims, and disks named in the pod itself.

Parsed with the pod; used by the volume plugins and counted per node by the snapshot. Invariant:
`usage_keys` of two volumes share a key only if both name the same claim or disk.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import orjson
from typing_extensions import override

from stellwerk_kube.json_values import JsonObject, text, text_or_empty, texts

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
MAX_COUNTED_USES: Final = 1000
"""Monitors of an image, or uses of a pod, that are counted one by one. Beyond it, the image or the
pod is counted as a whole."""
_RANK: Final = {kind: rank for rank, kind in enumerate(_WATCHED_KINDS)}
"""The order of volume sources: of two in one volume the first counts."""
DISK_NAMES: Final = {
    "gcePersistentDisk": "pdName",
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskURI",
    "cinder": "volumeID",
    "iscsi": "iqn",
    "portworxVolume": "volumeID",
}
"""Kind → the field of the source that names the disk."""

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""The annotation of a claim whose binding the controller of volumes has completed."""


class MonitoredImage(Collection[UsageKey]):
    """The uses of an RBD image with very many monitors, one for each; equal ones are identical."""

    __slots__ = ("__weakref__", "_image", "_mode", "_monitors", "_pool", "key")

    def __init__(
        self, key: str, pool: str, image: str, monitors: frozenset[str], mode: str
    ) -> None:
        self.key = key
        """A digest of what it is."""
        self._pool, self._image, self._mode = pool, image, mode
        self._monitors = monitors

    @classmethod
    def of(cls, source: JsonObject, mode: str) -> "MonitoredImage":
        """The one of an RBD source."""
        pool, image = text_or_empty(source.get("pool")), text_or_empty(source.get("image"))
        monitors = frozenset(texts(source.get("monitors")))
        key = sha256(orjson.dumps((pool, image, mode, sorted(monitors)))).hexdigest()
        found = _images.get(key)
        if found is None:
            found = _images[key] = cls(key, pool, image, monitors, mode)
        return found

    @override
    def __contains__(self, key: object) -> bool:
        if not isinstance(key, tuple) or key[::2] != ("rbd", self._pool, self._mode):
            return False
        return key[3] == self._image and key[1] in self._monitors

    @override
    def __iter__(self) -> Iterator[UsageKey]:
        for monitor in self._monitors:
            yield ("rbd", monitor, self._pool, self._image, self._mode)

    @override
    def __len__(self) -> int:
        return len(self._monitors)


_images: WeakValueDictionary[str, MonitoredImage] = WeakValueDictionary()


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
    disk_uses: Collection[UsageKey] = ()
    """The disk as it is mounted, for counting; empty for a claim."""

    @property
    def mode(self) -> str:
        """The mode in which a disk is mounted: READ_ONLY or READ_WRITE."""
        return READ_ONLY if self.source.get("readOnly") else READ_WRITE

    def disk_keys(self, mode: str) -> tuple[UsageKey, ...]:
        """The keys that a volume of this disk occupies when mounted so; none if it names no disk.

        An RBD image is one key per monitor: images are the same if any monitor is.
        """
        return _disk_keys(self.kind, self.source, mode)

    def usage_keys(self, namespace: str) -> Collection[UsageKey]:
        """Keys that it occupies on its node, for counting: a claim, or a disk and its mode."""
        if self.claim_name:
            return ((self.kind, namespace, self.claim_name),)
        return self.disk_uses

    def uses_any(self, namespace: str, keys: set[UsageKey]) -> bool:
        """Whether the volume occupies any of these."""
        uses = self.usage_keys(namespace)
        if isinstance(uses, MonitoredImage):
            return any(key in uses for key in keys)
        return not keys.isdisjoint(uses)


class PodUses:
    """The uses of a pod with very many volumes; those of pods that are alike are identical."""

    __slots__ = ("__weakref__", "counts", "images")

    def __init__(self, counts: Mapping[UsageKey, int], images: tuple[MonitoredImage, ...]) -> None:
        self.counts = counts
        """The number of the pod's volumes that use a claim or disk."""
        self.images = images

    @classmethod
    def of(cls, namespace: str, volumes: Sequence[PodVolume]) -> "PodUses | None":
        """Those of these volumes; None: they are few, and counted one by one."""
        if len(volumes) + sum([len(volume.disk_uses) for volume in volumes]) <= MAX_COUNTED_USES:
            return None
        keys: list[UsageKey] = []
        images = []
        for volume in volumes:
            uses = volume.usage_keys(namespace)
            if isinstance(uses, MonitoredImage):
                images.append(uses)
            else:
                keys += uses
        if len(keys) <= MAX_COUNTED_USES:
            return None
        digest = sha256(orjson.dumps((keys, [image.key for image in images]))).digest()
        found = _pod_uses.get(digest)
        if found is None:
            found = _pod_uses[digest] = cls(Counter(keys), tuple(images))
        return found


_pod_uses: WeakValueDictionary[bytes, PodUses] = WeakValueDictionary()


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
        uses: Collection[UsageKey] = ()
        if kind == "rbd" and len(source.get("monitors") or ()) > MAX_COUNTED_USES:
            uses = MonitoredImage.of(source, mode)
        elif not claim_name:
            uses = _disk_keys(kind, source, mode)
        found.append(
            PodVolume(
                text(volume["name"]),
                kind,
                claim_name,
                source,
                uses,
            )
        )
    return tuple(found)


def _disk_keys(kind: str, source: JsonObject, mode: str) -> tuple[UsageKey, ...]:
    if kind == "rbd":
        pool = text_or_empty(source.get("pool"))
        image = text_or_empty(source.get("image"))
        monitors = dict.fromkeys(texts(source.get("monitors")))
        return tuple(("rbd", monitor, pool, image, mode) for monitor in monitors)
    field = DISK_NAMES.get(kind)
    return ((kind, text_or_empty(source.get(field)), mode),) if field else ()
