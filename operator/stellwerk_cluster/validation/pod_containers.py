"""Containers of a pod: regular ones, those that run first, and ephemeral ones.

Called by the validation of pods and templates. Invariant: names are unique among all three kinds;
an earlier kind is never refused because of a later one.
"""

from __future__ import annotations

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
from stellwerk_cluster.validation.checks import PROTOCOLS, label, one_of, port_name_errors
from stellwerk_cluster.validation.checks import port_number as checked_port
from stellwerk_cluster.validation.container_resources import (
    container_resource_errors,
    resize_policy_errors,
)
from stellwerk_cluster.validation.pod_environment import (
    environment_errors,
    environment_source_errors,
)
from stellwerk_cluster.validation.pod_mounts import device_errors, mount_errors
from stellwerk_cluster.validation.pod_probes import PROBES, lifecycle_errors, probe_errors
from stellwerk_cluster.validation.pod_security import container_security_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from stellwerk.models.json_values import JsonObject

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
