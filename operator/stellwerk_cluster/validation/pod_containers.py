"""Containers of a pod: regular ones, those that run first, and ephemeral ones.

Called by the validation of pods and templates. Invariant: names are unique among all three kinds;
an earlier kind is never refused because of a later one; mounts are looked up among the pod's
volumes that are valid themselves, and a probe or hook says what is done in exactly one way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    not_there,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    PROTOCOLS,
    descending_path,
    label,
    not_negative,
    one_of,
    port_name_errors,
    port_number_or_name,
)
from stellwerk_cluster.validation.checks import port_number as checked_port
from stellwerk_cluster.validation.pod_environment import (
    environment_errors,
    environment_source_errors,
)
from stellwerk_cluster.validation.pod_security import container_security_errors
from stellwerk_cluster.validation.resources import (
    container_resource_errors,
    resize_policy_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from stellwerk_kube.json_values import JsonObject

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_HEADER_NAME: Final = "[-A-Za-z0-9]+"
_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY_MODES: Final = ("Disabled", "Enabled", "IfPossible")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_SIDECARS_ONLY: Final = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL: Final = "cannot be set for an Ephemeral Container"
_FORBIDDEN_EPHEMERAL: Final = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    *PROBES,
    "lifecycle",
)


@dataclass(frozen=True, slots=True)
class PodContext:
    """The facts about its pod that the rules of a container need."""

    volumes: Mapping[str, JsonObject]
    """The valid ones, by name."""
    claims: AbstractSet[str]
    """The names of the pod's resource claims."""
    restart_policy: str
    grace_seconds: int | None
    own_users: bool
    """Whether the pod's users are not those of the host."""


def container_errors(spec: JsonObject, field: str, pod: PodContext) -> Iterator[FieldError]:
    """Errors of all containers of a pod."""
    regular = spec.get("containers") or ()
    if not regular:
        yield required(f"{field}.containers")
    yield from _regular_errors(regular, f"{field}.containers", pod)
    names = {each.get("name", "") for each in regular}
    initial = spec.get("initContainers") or ()
    if initial:
        yield from _initial_errors(initial, f"{field}.initContainers", pod, set(names))
    ephemeral = spec.get("ephemeralContainers") or ()
    if ephemeral:
        names.update(each.get("name", "") for each in initial)
        yield from _ephemeral_errors(ephemeral, f"{field}.ephemeralContainers", pod, names)


def _regular_errors(
    containers: Iterable[JsonObject], field: str, pod: PodContext
) -> Iterator[FieldError]:
    names = set()
    for position, container in enumerate(containers):
        where, name = f"{field}[{position}]", container.get("name", "")
        yield from _common_errors(container, where, pod)
        if name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
        yield from lifecycle_errors(container, where, pod.grace_seconds)
        yield from probe_errors(container, where, pod.grace_seconds)
        yield from _restart_errors(container, where)
    yield from host_port_errors(containers, field)


def _restart_errors(container: JsonObject, field: str) -> Iterator[FieldError]:
    """A container may have a restart policy of its own, with rules for exit codes."""
    policy = container.get("restartPolicy")
    if policy is not None and policy not in ("Always", "OnFailure", "Never"):
        yield unsupported(f"{field}.restartPolicy", policy, ("Always", "OnFailure", "Never"))
    if policy is None and container.get("restartPolicyRules"):
        text = "must specify restartPolicy when restart rules are used"
        yield required(f"{field}.restartPolicy", text)


def _initial_errors(
    containers: Iterable[JsonObject], field: str, pod: PodContext, names: set[str]
) -> Iterator[FieldError]:
    for position, container in enumerate(containers):
        where, name = f"{field}[{position}]", container.get("name", "")
        yield from _common_errors(container, where, pod)
        yield from _restart_errors(container, where)
        if name in names:
            yield duplicate(f"{where}.name", name)
        elif name:
            names.add(name)
        yield from host_port_errors((container,), field)
        if container.get("restartPolicy") == "Always":
            yield from lifecycle_errors(container, where, pod.grace_seconds)
            yield from probe_errors(container, where, pod.grace_seconds)
        else:
            for key in ("lifecycle", *PROBES):
                if container.get(key) is not None:
                    yield forbidden_field(f"{where}.{key}", _SIDECARS_ONLY)


def _ephemeral_errors(
    containers: Iterable[JsonObject], field: str, pod: PodContext, others: AbstractSet[str]
) -> Iterator[FieldError]:
    names = set(others)
    for position, container in enumerate(containers):
        where, name = f"{field}[{position}]", container.get("name", "")
        target = container.get("targetContainerName", "")
        yield from _common_errors(container, where, pod)
        yield from image_errors(container, where)
        if name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
        if target and target not in others:
            yield not_there(f"{where}.targetContainerName", target)
        for key in _FORBIDDEN_EPHEMERAL:
            if container.get(key):
                yield forbidden_field(f"{where}.{key}", _NOT_EPHEMERAL)
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            for key in ("subPath", "subPathExpr"):
                if mount.get(key):
                    yield forbidden_field(f"{where}.volumeMounts[{index}].{key}", _NOT_EPHEMERAL)


def image_errors(container: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of images in pods alone: spaces around them."""
    image = container.get("image", "")
    if image != image.strip():
        text = "must not have leading or trailing whitespace"
        yield bad_value(f"{field}.image", image, text)


def _common_errors(container: JsonObject, field: str, pod: PodContext) -> Iterator[FieldError]:
    """Errors of a container of whatever kind."""
    name = container.get("name", "")
    if not name:
        yield required(f"{field}.name")
    else:
        yield from label(name, f"{field}.name")
    if not container.get("image"):
        yield required(f"{field}.image")
    policy = container.get("terminationMessagePolicy", "")
    yield from one_of(policy, _MESSAGE_POLICIES, f"{field}.terminationMessagePolicy")
    yield from _use_errors(container, field, pod)
    pull_policy = container.get("imagePullPolicy", "")
    yield from one_of(pull_policy, _PULL_POLICIES, f"{field}.imagePullPolicy")
    if container.get("resources"):
        where = f"{field}.resources"
        yield from container_resource_errors(container["resources"], where, pod.claims)
    if container.get("resizePolicy"):
        where = f"{field}.resizePolicy"
        yield from resize_policy_errors(container["resizePolicy"], where, pod.restart_policy)
    if container.get("securityContext"):
        where = f"{field}.securityContext"
        context = container["securityContext"]
        yield from container_security_errors(context, where, own_users=pod.own_users)


def _use_errors(container: JsonObject, field: str, pod: PodContext) -> Iterator[FieldError]:
    """Ports, variables, mounts and devices."""
    if container.get("ports"):
        yield from _port_errors(container["ports"], f"{field}.ports")
    if container.get("env"):
        yield from environment_errors(container["env"], f"{field}.env")
    if container.get("envFrom"):
        yield from environment_source_errors(container["envFrom"], f"{field}.envFrom")
    if container.get("volumeMounts"):
        yield from mount_errors(container, f"{field}.volumeMounts", pod.volumes)
    if container.get("volumeDevices"):
        yield from device_errors(container, f"{field}.volumeDevices", pod.volumes)


def _port_errors(ports: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    names = set()
    for position, port in enumerate(ports):
        where, name = f"{field}[{position}]", port.get("name", "")
        errors = port_name_errors(name) if name else ()
        for error in errors:
            yield bad_value(f"{where}.name", name, error)
        if name and not errors:
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            yield required(f"{where}.containerPort")
        else:
            yield from checked_port(number, f"{where}.containerPort")
        if port.get("hostPort"):
            yield from checked_port(port["hostPort"], f"{where}.hostPort")
        yield from one_of(port.get("protocol", ""), PROTOCOLS, f"{where}.protocol")


def host_port_errors(containers: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    """Ports of the host that containers have twice."""
    taken = set()
    for position, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            address = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if address in taken:
                yield duplicate(f"{field}[{position}].ports[{index}].hostPort", address)
            taken.add(address)


def probe_errors(
    container: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    """Errors of the probes of a container."""
    for name in PROBES:
        probe, where = container.get(name), f"{field}.{name}"
        if probe is None:
            continue
        yield from _handler_errors(probe, where, grace_seconds)
        for number in _NUMBERS:
            yield from not_negative(probe.get(number, 0), f"{where}.{number}")
        own_grace = probe.get("terminationGracePeriodSeconds")
        if own_grace is not None and own_grace <= 0:
            where_grace = f"{where}.terminationGracePeriodSeconds"
            yield bad_value(where_grace, own_grace, "must be greater than 0")
        if name == "readinessProbe":
            if own_grace is not None:
                where_grace = f"{where}.terminationGracePeriodSeconds"
                yield bad_value(where_grace, own_grace, "must not be set for readinessProbes")
        elif probe.get("successThreshold", 0) != 1:
            threshold = probe.get("successThreshold", 0)
            yield bad_value(f"{where}.successThreshold", threshold, "must be 1")


def lifecycle_errors(
    container: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    """Errors of the hooks of a container."""
    lifecycle: JsonObject = container.get("lifecycle") or EMPTY
    for name in ("postStart", "preStop"):
        if lifecycle.get(name) is not None:
            where = f"{field}.lifecycle.{name}"
            yield from _handler_errors(lifecycle[name], where, grace_seconds)


def _handler_errors(
    handler: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    given = [name for name in _ACTIONS if handler.get(name) is not None]
    if not given:
        yield required(field, "must specify a handler type")
        return
    for name in given[1:]:
        yield forbidden_field(f"{field}.{name}", "may not specify more than 1 handler type")
    first = given[0]
    if first == "sleep":
        yield from _sleep_errors(handler[first], f"{field}.sleep", grace_seconds)
    else:
        yield from _ACTIONS[first](handler[first], f"{field}.{first}")


def _exec_errors(action: JsonObject, field: str) -> Iterator[FieldError]:
    if not action.get("command"):
        yield required(f"{field}.command")


def _http_errors(action: JsonObject, field: str) -> Iterator[FieldError]:
    if not action.get("path"):
        yield required(f"{field}.path")
    yield from port_number_or_name(action.get("port", 0), f"{field}.port")
    if action.get("scheme", "") not in ("HTTP", "HTTPS"):
        yield unsupported(f"{field}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS"))
    for header in action.get("httpHeaders") or ():
        if not re.fullmatch(_HEADER_NAME, header.get("name", "")):
            text = (
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
                f"'X-Header-Name', regex used for validation is '{_HEADER_NAME}')"
            )
            yield bad_value(f"{field}.httpHeaders", header.get("name", ""), text)


def _probe_port_errors(action: JsonObject, field: str) -> Iterator[FieldError]:
    yield from port_number_or_name(action.get("port", 0), f"{field}.port")


def _sleep_errors(
    action: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    seconds = action.get("seconds", 0)
    if grace_seconds is not None and not 0 <= seconds <= grace_seconds:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
        yield bad_value(field, seconds, text)


def _never(_action: JsonObject, _field: str) -> Iterator[FieldError]:
    return iter(())


_ACTIONS: Final[dict[str, Callable[[JsonObject, str], Iterator[FieldError]]]] = {
    "exec": _exec_errors,
    "httpGet": _http_errors,
    "tcpSocket": _probe_port_errors,
    "grpc": _probe_port_errors,
    "sleep": _never,
}
"""Acts of a handler, in the order in which the API looks; the first one counts."""


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
