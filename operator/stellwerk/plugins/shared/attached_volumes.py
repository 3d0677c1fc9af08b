"""The number of volumes of each CSI driver that are attached to each node, row by row.

NodeVolumeLimits asks before every verdict; only rows whose pods, claims, volumes or attachments
changed since are counted again. Invariant: the columns equal a count of all rows from scratch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.in_tree_volumes import inline_handle, provisioning_driver, volume_handle
from stellwerk.models.volumes import CLAIM, EPHEMERAL, UsageKey, storage_class_name
from stellwerk.snapshot.columns import ChangeCursor, IntColumn, grown
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.json_values import JsonObject

VolumeId: TypeAlias = tuple[str, str]
"""(driver, volume handle): volumes with the same are one attachment."""

NO_VOLUME_LIMIT: Final = 1 << 62
_FOLLOWED_KINDS: Final = (
    "PersistentVolumeClaim",
    "PersistentVolume",
    "VolumeAttachment",
    "CSINode",
)
"""Kinds whose changes concern some rows; a change of a StorageClass may concern all of them."""


@dataclass(frozen=True, slots=True)
class RowVolumes:
    """The volumes that are attached to one node, or soon will be."""

    used: frozenset[VolumeId]
    """Volumes that pods on the node use."""
    counts: Mapping[str, int]
    """Attached volumes by driver: those in use, and those of VolumeAttachments beside them."""


_NOTHING: Final = RowVolumes(frozenset(), {})


def volume_id(objects: ObjectStore, key: UsageKey) -> VolumeId | None:
    """The attachment behind a use of a claim or disk; None if it is none of a known CSI driver."""
    if key[0] not in {CLAIM, EPHEMERAL}:
        return inline_handle(key[0], key[1])
    _, namespace, name = key
    claim = objects.get("PersistentVolumeClaim", namespace, name)
    return None if claim is None else _claimed_volume(objects, claim)


def _claimed_volume(objects: ObjectStore, claim: JsonObject) -> VolumeId | None:
    volume_name = claim["spec"].get("volumeName")
    volume = objects.get("PersistentVolume", "", volume_name) if volume_name else None
    if volume is not None:
        return volume_handle(volume)
    # Not bound yet: counted for the driver that will provide it, under a name no handle can have.
    storage_class = objects.get("StorageClass", "", storage_class_name(claim))
    if storage_class is None:
        return None
    driver = provisioning_driver(storage_class.get("provisioner") or "")
    metadata = claim["metadata"]
    return (driver, f"\0{metadata.get('namespace')}/{metadata['name']}") if driver else None


class AttachedVolumes:
    """Follows one snapshot and one object store; `refresh` before reading."""

    def __init__(self, snapshot: Snapshot, objects: ObjectStore) -> None:
        self.snapshot = snapshot
        self._objects = objects
        self._rows: dict[int, RowVolumes] = {}
        self._rows_of: dict[VolumeId, set[int]] = {}
        self._counts: dict[str, IntColumn] = {}
        self._limits: dict[str, IntColumn] = {}
        self._row_limits: dict[int, Mapping[str, int]] = {}
        self._attachment_nodes: dict[str, str] = {}
        """VolumeAttachment → its node, to find the row when it has been deleted."""
        self._seen: dict[int, tuple[str, int]] = {}
        """The node's name and the changes of its volumes when a row was counted."""
        self._usage = ChangeCursor(snapshot.usage_changes)
        self._classes = ChangeCursor(objects.changes("StorageClass"))
        self._followed = {kind: ChangeCursor(objects.changes(kind)) for kind in _FOLLOWED_KINDS}

    # --- reading --------------------------------------------------------------------------------

    def limit(self, driver: str) -> IntColumn | None:
        """(N,) int64, CSINode's allocatable count, or NO_VOLUME_LIMIT; None: no node has one."""
        column = self._limits.get(driver)
        return None if column is None else column[: self.snapshot.size]

    def limited_drivers(self) -> Iterable[str]:
        """Drivers with a limit on some node, now or before."""
        return self._limits.keys()

    def count(self, driver: str) -> IntColumn:
        """(N,) int64, attached volumes of the driver."""
        column = self._counts.get(driver)
        size = self.snapshot.size
        return np.zeros(size, np.int64) if column is None else column[:size]

    def rows_using(self, volume: VolumeId) -> Iterable[int]:
        """Rows with pods that use the volume."""
        return self._rows_of.get(volume, ())

    def with_changes(self, row: int, changes: Mapping[UsageKey, int]) -> RowVolumes:
        """The volumes attached to the row if its pods used this much more or less."""
        uses = Counter(self.snapshot.volume_users.on_row(row))
        uses.update(changes)
        return self._attached(row, [key for key, count in uses.items() if count > 0])

    # --- following ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Count again whatever rows changed since the last call."""
        changed = self._changed_rows()
        if changed is None:
            self._forget()
            changed = set(range(self.snapshot.size))
        for row in changed:
            self._write_limits(row)
            self._write(row)

    def _changed_rows(self) -> set[int] | None:
        """Rows to count again; None: all, because of a change that is not told apart."""
        rows, classes = self._usage.advance(), self._classes.advance()
        rows = None if rows is None else [row for row in rows if self._is_news(row)]
        of_kind = {kind: cursor.advance() for kind, cursor in self._followed.items()}
        if rows is None or classes is None or classes:
            return None
        changed = set(rows)
        for kind, keys in of_kind.items():
            if keys is None:
                return None
            for namespace, name in keys:
                changed.update(self._rows_of_object(kind, namespace, name))
        return changed

    def _is_news(self, row: int) -> bool:
        """Whether the row's node, or what its pods use, is not what was counted."""
        node = self.snapshot.nodes[row]
        seen = "" if node is None else node.name, self.snapshot.volume_users.changes(row)
        if self._seen.get(row) == seen:
            return False
        self._seen[row] = seen
        return True

    def _rows_of_object(self, kind: str, namespace: str, name: str) -> list[int]:
        objects, row_of = self._objects, self.snapshot.row_of
        match kind:
            case "PersistentVolumeClaim":
                return self._rows_of_claim(namespace, name)
            case "CSINode":
                nodes = [name]
            case "VolumeAttachment":
                nodes = [self._attachment_nodes.pop(name, "")]
                attachment = objects.get(kind, "", name)
                if attachment is not None:
                    nodes.append(attachment["spec"]["nodeName"])
            case _:
                return self._rows_of_volume(name)
        return [row_of[node] for node in nodes if node in row_of]

    def _rows_of_claim(self, namespace: str, name: str) -> list[int]:
        users = self.snapshot.volume_users
        return [row for kind in (CLAIM, EPHEMERAL) for row in users.rows((kind, namespace, name))]

    def _rows_of_volume(self, name: str) -> list[int]:
        rows: list[int] = []
        for claim in self._objects.list_by("PersistentVolumeClaim", "volumeName", name):
            metadata = claim["metadata"]
            rows += self._rows_of_claim(metadata.get("namespace") or "", metadata["name"])
        for attachment in self._objects.list_by("VolumeAttachment", "persistentVolumeName", name):
            row = self.snapshot.row_of.get(attachment["spec"]["nodeName"])
            if row is not None:
                rows.append(row)
        return rows

    def _forget(self) -> None:
        for columns in (self._counts, self._limits):
            columns.clear()
        self._rows.clear()
        self._seen.clear()
        self._rows_of.clear()
        self._row_limits.clear()

    # --- one row --------------------------------------------------------------------------------

    def _attached(self, row: int, keys: Iterable[UsageKey]) -> RowVolumes:
        found = (volume_id(self._objects, key) for key in keys)
        used = frozenset(volume for volume in found if volume is not None)
        attached = used | self._attachments(row)
        if not attached:
            return _NOTHING
        return RowVolumes(used, Counter(driver for driver, _ in attached))

    def _attachments(self, row: int) -> frozenset[VolumeId]:
        """Volumes that VolumeAttachments name for the row's node."""
        node = self.snapshot.nodes[row]
        if node is None:
            return frozenset()
        found = set()
        for attachment in self._objects.list_by("VolumeAttachment", "nodeName", node.name):
            self._attachment_nodes[attachment["metadata"]["name"]] = node.name
            driver = attachment["spec"].get("attacher")
            name = (attachment["spec"].get("source") or {}).get("persistentVolumeName")
            volume = self._objects.get("PersistentVolume", "", name) if name else None
            if driver and volume is not None and volume["spec"].get("csi"):
                found.add((driver, volume["spec"]["csi"].get("volumeHandle") or ""))
        return frozenset(found)

    def _write(self, row: int) -> None:
        before = self._rows.pop(row, _NOTHING)
        now = self._attached(row, self.snapshot.volume_users.on_row(row))
        if now is not _NOTHING:
            self._rows[row] = now
        for volume in before.used - now.used:
            self._rows_of[volume].discard(row)
            if not self._rows_of[volume]:
                del self._rows_of[volume]
        for volume in now.used - before.used:
            self._rows_of.setdefault(volume, set()).add(row)
        for driver in before.counts.keys() | now.counts.keys():
            self._column(self._counts, driver, 0)[row] = now.counts.get(driver, 0)

    def _write_limits(self, row: int) -> None:
        node = self.snapshot.nodes[row]
        csi_node = self._objects.get("CSINode", "", node.name) if node is not None else None
        limits = csi_node_limits(csi_node) if csi_node is not None else {}
        before = self._row_limits.pop(row, {})
        if limits:
            self._row_limits[row] = limits
        for driver in before.keys() | limits.keys():
            column = self._column(self._limits, driver, NO_VOLUME_LIMIT)
            column[row] = limits.get(driver, NO_VOLUME_LIMIT)

    def _column(self, columns: dict[str, IntColumn], driver: str, fill: int) -> IntColumn:
        """The driver's column, made or enlarged to hold every row."""
        size = self.snapshot.size
        column = columns.get(driver)
        if column is None:
            column = columns[driver] = np.full(2 * size, fill, np.int64)
        elif len(column) < size:
            column = columns[driver] = grown(column, 2 * size, fill)
        return column


def csi_node_limits(csi_node: JsonObject) -> dict[str, int]:
    """Driver → how many of its volumes the node takes; drivers without a count have no limit."""
    found = {}
    for driver in csi_node["spec"].get("drivers") or ():
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None:
            found[driver["name"]] = int(count)
    return found
