"""The sources that pods and PersistentVolumes share: the disks and file systems of providers.

Called by the validation of both. Invariant: most sources only have fields that must be there, and
those stand in a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required
from stellwerk_cluster.apimachinery.names import subdomain_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import descending_path, in_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk_kube.json_values import JsonObject

_MAX_PARTITION: Final = 255
"""The highest number of a partition or a unit."""
_MAX_DRIVER_CHARACTERS: Final = 63
"""Characters of a driver's name."""
_REQUIRED: Final = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "glusterfs": ("endpoints", "path"),
    "rbd": ("monitors", "image"),
    "cinder": ("volumeID",),
    "cephfs": ("monitors",),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "storageos": ("volumeName",),
    "scaleIO": ("gateway", "system", "volumeName"),
    "quobyte": ("registry", "volume"),
}
_PARTITIONED: Final = ("gcePersistentDisk", "awsElasticBlockStore")


def _plain(name: str) -> Callable[[JsonObject, str], Iterator[FieldError]]:
    def errors(source: JsonObject, field: str) -> Iterator[FieldError]:
        for key in _REQUIRED[name]:
            if not source.get(key):
                yield required(f"{field}.{key}")
        partition = source.get("partition", 0) if name in _PARTITIONED else 0
        if not 0 <= partition <= _MAX_PARTITION:
            yield bad_value(f"{field}.partition", partition, in_range(1, _MAX_PARTITION))

    return errors


def _git_repository(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("repository"):
        yield required(f"{field}.repository")
    yield from descending_path(source.get("directory", ""), f"{field}.directory")


def _nfs(source: JsonObject, field: str) -> Iterator[FieldError]:
    path = source.get("path", "")
    if not source.get("server"):
        yield required(f"{field}.server")
    if not path:
        yield required(f"{field}.path")
    if not path.startswith("/"):
        yield bad_value(f"{field}.path", path, "must be an absolute path")


def _iscsi(source: JsonObject, field: str) -> Iterator[FieldError]:
    name, unit = source.get("iqn", ""), source.get("lun", 0)
    if not source.get("targetPortal"):
        yield required(f"{field}.targetPortal")
    if not name:
        yield required(f"{field}.iqn")
    elif not name.startswith(("iqn", "eui", "naa")):
        text = "must be valid format starting with iqn, eui, or naa"
        yield bad_value(f"{field}.iqn", name, text)
    if not 0 <= unit <= _MAX_PARTITION:
        yield bad_value(f"{field}.lun", unit, in_range(0, _MAX_PARTITION))
    authenticated = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    if authenticated and source.get("secretRef") is None:
        yield required(f"{field}.secretRef")


def _fibre_channel(source: JsonObject, field: str) -> Iterator[FieldError]:
    names, world_wide = source.get("targetWWNs") or (), source.get("wwids") or ()
    if not names and not world_wide:
        text = "must specify either targetWWNs or wwids, but not both"
        yield required(f"{field}.targetWWNs", text)
    if names and world_wide:
        text = "targetWWNs and wwids can not be specified simultaneously"
        yield bad_value(f"{field}.targetWWNs", names, text)
    unit = source.get("lun")
    if names and unit is None:
        yield required(f"{field}.lun", "lun is required if targetWWNs is specified")
    elif names and unit is not None and not 0 <= unit <= _MAX_PARTITION:
        yield bad_value(f"{field}.lun", unit, in_range(0, _MAX_PARTITION))


def _flocker(source: JsonObject, field: str) -> Iterator[FieldError]:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        yield required(field, "one of datasetName and datasetUUID is required")
    if name and uuid:
        text = "datasetName and datasetUUID can not be specified simultaneously"
        yield bad_value(field, "resource", text)
    if "/" in name:
        yield bad_value(f"{field}.datasetName", name, "must not contain '/'")


def csi_driver_name(name: str, field: str) -> Iterator[FieldError]:
    """Errors of the name of a storage driver."""
    if not name:
        yield required(field)
        return
    if len(name) > _MAX_DRIVER_CHARACTERS:
        yield FieldError(
            field,
            "FieldValueTooLong",
            f"Too long: may not be more than {_MAX_DRIVER_CHARACTERS} bytes",
        )
    for error in subdomain_errors(name.lower()):
        yield bad_value(field, name, error)


def _csi(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from csi_driver_name(source.get("driver", ""), f"{field}.driver")
    reference = source.get("nodePublishSecretRef")
    if reference is not None:
        name = (reference or EMPTY).get("name", "")
        if not name:
            yield required(f"{field}.nodePublishSecretRef.name")
        for error in subdomain_errors(name) if name else ():
            yield bad_value(f"{field}.nodePublishSecretRef.name", name, error)


SHARED_SOURCES: Final[dict[str, Callable[[JsonObject, str], Iterator[FieldError]]]] = {
    **{name: _plain(name) for name in _REQUIRED},
    "gitRepo": _git_repository,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "fc": _fibre_channel,
    "flocker": _flocker,
    "csi": _csi,
}
"""The checks of a source by its name in a volume."""
