"""Volumes in containers: mounts and block devices.

Called by the validation of containers. Invariant: names are looked up among the pod's volumes that
are valid themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    not_there,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import descending_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stellwerk.models.json_values import JsonObject

_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY_MODES: Final = ("Disabled", "Enabled", "IfPossible")


def mount_errors(
    container: JsonObject, field: str, volumes: Mapping[str, JsonObject]
) -> Iterator[FieldError]:
    """Errors of the mounts of a container."""
    devices = container.get("volumeDevices") or ()
    device_names = {each.get("name", "") for each in devices}
    device_paths = {each.get("devicePath", "") for each in devices}
    paths = set()
    for position, mount in enumerate(container.get("volumeMounts") or ()):
        where, name, path = f"{field}[{position}]", mount.get("name", ""), mount.get("mountPath")
        if not name:
            yield required(f"{where}.name")
        if name not in volumes:
            yield not_there(f"{where}.name", name)
        if not path:
            yield required(f"{where}.mountPath")
        if path in paths:
            yield bad_value(f"{where}.mountPath", path or "", "must be unique")
        paths.add(path)
        if name in device_names:
            yield bad_value(f"{where}.name", name, "must not already exist in volumeDevices")
        if (path or "") in device_paths:
            text = "must not already exist as a path in volumeDevices"
            yield bad_value(f"{where}.mountPath", path or "", text)
        yield from _sub_path_errors(mount, where, field)
        yield from _propagation_errors(mount, container, field)
        yield from _recursive_errors(mount, f"{field}.recursiveReadOnly")


def _sub_path_errors(mount: JsonObject, where: str, field: str) -> Iterator[FieldError]:
    path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if path:
        yield from descending_path(path, f"{field}.subPath")
    if expression:
        if path:
            text = "subPathExpr and subPath are mutually exclusive"
            yield bad_value(f"{where}.subPathExpr", expression, text)
        yield from descending_path(expression, f"{field}.subPathExpr")


def _propagation_errors(
    mount: JsonObject, container: JsonObject, field: str
) -> Iterator[FieldError]:
    mode = mount.get("mountPropagation")
    if mode is None:
        return
    if mode not in _PROPAGATIONS:
        yield unsupported(f"{field}.mountPropagation", mode, _PROPAGATIONS)
    if mode == "Bidirectional" and not (container.get("securityContext") or EMPTY).get(
        "privileged"
    ):
        text = "Bidirectional mount propagation is available only to privileged containers"
        yield forbidden_field(f"{field}.mountPropagation", text)


def _recursive_errors(mount: JsonObject, field: str) -> Iterator[FieldError]:
    mode = mount.get("recursiveReadOnly")
    if mode is None or mode == "Disabled":
        return
    if mode not in _READ_ONLY_MODES:
        yield unsupported(field, mode, _READ_ONLY_MODES)
        return
    if not mount.get("readOnly"):
        yield forbidden_field(field, "may only be specified when readOnly is true")
    if mount.get("mountPropagation", "None") != "None":
        text = "may only be specified when mountPropagation is None or not specified"
        yield forbidden_field(field, text)


def device_errors(
    container: JsonObject, field: str, volumes: Mapping[str, JsonObject]
) -> Iterator[FieldError]:
    """Errors of the block devices of a container."""
    mounts = container.get("volumeMounts") or ()
    mount_names = {each.get("name", "") for each in mounts}
    mount_paths = {each.get("mountPath", "") for each in mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for position, device in enumerate(container.get("volumeDevices") or ()):
        where, name, path = f"{field}[{position}]", device.get("name", ""), device.get("devicePath")
        yield from _device_name_errors(name, f"{where}.name", names, volumes)
        path = path or ""
        if not path:
            yield required(f"{where}.devicePath")
        if path in paths:
            yield bad_value(f"{where}.devicePath", path, "must be unique")
        if ".." in path.split("/"):
            yield bad_value(f"{where}.devicePath", path, "can not contain backsteps ('..')")
        else:
            paths.add(path)
        if name in mount_names:
            yield bad_value(f"{where}.name", name, "must not already exist in volumeMounts")
        if path in mount_paths:
            text = "must not already exist as a path in volumeMounts"
            yield bad_value(f"{where}.devicePath", path, text)
        names.update({name} if name else ())


def _device_name_errors(
    name: str, field: str, names: set[str], volumes: Mapping[str, JsonObject]
) -> Iterator[FieldError]:
    volume = volumes.get(name)
    if not name:
        yield required(field)
    if name in names:
        yield bad_value(field, name, "must be unique")
    if volume is None:
        yield not_there(field, name)
    elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
        text = (
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        )
        yield bad_value(field, name, text)
