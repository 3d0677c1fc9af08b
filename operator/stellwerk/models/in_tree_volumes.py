"""In-tree volumes as their CSI drivers know them: driver, volume handle and topology key.

NodeVolumeLimits counts by driver and handle, VolumeBinding checks topology; neither looks at
anything else of the translation. Invariant: a kind without an entry here is never migrated. Source:
csi-translation-lib of Kubernetes v1.36.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL

ZONE_SEPARATOR: Final = "__"
"""Between the zones in the label of a regional volume."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The CSI driver that serves the volumes of an in-tree kind today."""

    plugin_name: str
    driver: str
    id_field: str
    """The field of the in-tree source that names the disk."""
    topology_key: str
    """The node label of the driver's zones; empty if the translation keeps the topology."""


MIGRATIONS: Final[Mapping[str, Migration]] = {
    "awsElasticBlockStore": Migration(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID", "topology.ebs.csi.aws.com/zone"
    ),
    "gcePersistentDisk": Migration(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName", "topology.gke.io/zone"
    ),
    "azureDisk": Migration("kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI", ""),
    "cinder": Migration(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "volumeID",
        "topology.cinder.csi.openstack.org/zone",
    ),
    "portworxVolume": Migration(
        "kubernetes.io/portworx-volume", "pxd.portworx.com", "volumeID", ""
    ),
}
"""Kind of the volume source → its migration, for kinds whose migration is always on."""

MIGRATABLE_DRIVERS: Final[Mapping[str, str]] = {
    **{kind: migration.driver for kind, migration in MIGRATIONS.items()},
    "azureFile": "file.csi.azure.com",
    "vsphereVolume": "csi.vsphere.vmware.com",
}
"""Kind → driver, also of kinds with a translation that the scheduler's plugins never apply."""

_DRIVER_OF_PROVISIONER: Final[Mapping[str, str]] = {
    **{migration.plugin_name: migration.driver for migration in MIGRATIONS.values()},
    "kubernetes.io/azure-file": "",
    "kubernetes.io/vsphere-volume": "",
}


def provisioning_driver(provisioner: str) -> str:
    """The CSI driver behind a StorageClass's provisioner; empty if its volumes are not counted."""
    return _DRIVER_OF_PROVISIONER.get(provisioner, provisioner)


def inline_handle(kind: str, source_id: str) -> tuple[str, str] | None:
    """(driver, volume handle) of a disk named in a pod, by its kind and the name of the disk."""
    migration = MIGRATIONS.get(kind)
    if migration is None:
        return None
    if kind == "gcePersistentDisk":
        return migration.driver, _gce_handle(source_id, [])
    handle = _ebs_volume_id(source_id) if kind == "awsElasticBlockStore" else source_id
    return None if handle is None else (migration.driver, handle)


def volume_handle(volume: JsonObject) -> tuple[str, str] | None:
    """(driver, volume handle) of a v1.PersistentVolume, in-tree ones translated; None: not CSI."""
    spec = volume["spec"]
    if spec.get("csi"):
        driver, handle = spec["csi"].get("driver") or "", spec["csi"].get("volumeHandle") or ""
        return (driver, handle) if driver and handle else None
    for kind, migration in MIGRATIONS.items():
        source = spec.get(kind)
        if source is None:
            continue
        if kind == "gcePersistentDisk":
            labels = volume["metadata"].get("labels") or {}
            zones = labels.get(BETA_ZONE_LABEL) or labels.get(ZONE_LABEL) or ""
            return migration.driver, _gce_handle(source["pdName"], zones.split(ZONE_SEPARATOR))
        return inline_handle(kind, source.get(migration.id_field) or "")
    return None


def migration_of(volume: JsonObject) -> Migration | None:
    """The migration of a v1.PersistentVolume; None if it is not an in-tree one."""
    spec = volume["spec"]
    return next((MIGRATIONS[kind] for kind in MIGRATIONS if spec.get(kind) is not None), None)


def migrated_node_selector(volume: JsonObject, topology_key: str) -> JsonObject | None:
    """spec.nodeAffinity.required as the CSI driver has it (translateTopologyFromInTreeToCSI).

    The zone's label becomes the driver's, if any requirement names a zone; zones that stand in the
    volume's labels alone are added.
    """
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    labels = volume["metadata"].get("labels") or {}
    terms = list((required or {}).get("nodeSelectorTerms") or ())
    keys = {item["key"] for term in terms for item in term.get("matchExpressions") or ()}
    beta = ZONE_LABEL not in keys and (
        BETA_ZONE_LABEL in keys or (ZONE_LABEL not in labels and BETA_ZONE_LABEL in labels)
    )
    zone_label = BETA_ZONE_LABEL if beta else ZONE_LABEL
    valued = {
        item["key"]
        for term in terms
        for item in term.get("matchExpressions") or ()
        if item.get("values")
    }
    renamed = {BETA_REGION_LABEL: REGION_LABEL} if beta and BETA_REGION_LABEL in valued else {}
    if zone_label in valued:
        return {"nodeSelectorTerms": _renamed(terms, renamed | {zone_label: topology_key})}
    zones = sorted({zone.strip() for zone in labels.get(zone_label, "").split(ZONE_SEPARATOR)})
    terms = _renamed(terms, renamed)
    if not any(zones):
        return required if required is None else {"nodeSelectorTerms": terms}
    added = {"key": topology_key, "operator": "In", "values": [zone for zone in zones if zone]}
    return {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), added]}
            for term in terms or [{}]
        ]
    }


def _renamed(terms: Iterable[JsonObject], names: Mapping[str, str]) -> list[JsonObject]:
    return [
        {
            **term,
            "matchExpressions": [
                {**item, "key": names.get(item["key"], item["key"])}
                for item in term.get("matchExpressions") or ()
            ],
        }
        for term in terms
    ]


def _gce_handle(disk: str, zones: list[str]) -> str:
    zones = [zone for zone in zones if zone]
    if len(zones) > 1:
        region = zones[0].rpartition("-")[0]
        return f"projects/UNSPECIFIED/regions/{region}/disks/{disk}"
    return f"projects/UNSPECIFIED/zones/{zones[0] if zones else 'UNSPECIFIED'}/disks/{disk}"


def _ebs_volume_id(source_id: str) -> str | None:
    """A bare volume id, or the last part of aws://zone/vol-…; None if that is malformed."""
    if not source_id.startswith("aws://"):
        return source_id
    volume_id = source_id.removeprefix("aws://").partition("/")[2].strip("/")
    return volume_id if re.match(r"vol-[^/]*$", volume_id) else None
