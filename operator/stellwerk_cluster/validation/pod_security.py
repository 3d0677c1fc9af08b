"""Security contexts of pods and containers, and what a pod of one operating system may say.

Called by the validation of pods and templates. Invariant: what only the node can know (profiles
that exist, privileges that it grants) is not judged here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import descending_path, in_range, subdomain, user_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PATH_CHARACTERS: Final = 4095
"""Characters of the path of an AppArmor profile: PATH_MAX of Linux, less one."""
_MAX_ID: Final = 2**31 - 1
"""The highest id of a user or group."""
_SYSCTL_PART: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = rf"({_SYSCTL_PART}[\./])*{_SYSCTL_PART}"
_MAX_SYSCTL_CHARACTERS: Final = 253
"""Characters of a sysctl's name (`SysctlMaxLength`)."""
_POLICIES: Final = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}
_LINUX_ONLY: Final = "windows options cannot be set for a linux pod"
_WINDOWS_ONLY: Final = "cannot be set for a windows pod"
_OF_LINUX_PODS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_OF_LINUX_HOSTS: Final = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_OF_LINUX_CONTAINERS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def pod_security_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the security context of a pod."""
    context, where = spec.get("securityContext") or EMPTY, f"{field}.securityContext"
    if context:
        for key in ("fsGroup", "runAsUser", "runAsGroup"):
            yield from user_id(context, key, where)
        for position, group in enumerate(context.get("supplementalGroups") or ()):
            if not 0 <= group <= _MAX_ID:
                place = f"{where}.supplementalGroups[{position}]"
                yield bad_value(place, group, in_range(0, _MAX_ID))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield bad_value(f"{where}.shareProcessNamespace", True, text)  # noqa: FBT003  (a value)
    if context:
        yield from _sysctl_errors(context.get("sysctls") or (), spec, f"{where}.sysctls")
        yield from _profile_errors(context, where)
        for key, allowed in _POLICIES.items():
            if context.get(key) is not None and context[key] not in allowed:
                yield unsupported(f"{where}.{key}", context[key], allowed)


def _sysctl_errors(
    sysctls: list[JsonObject] | tuple[()], spec: JsonObject, field: str
) -> Iterator[FieldError]:
    seen = set()
    for position, sysctl in enumerate(sysctls):
        where, name = f"{field}[{position}].name", sysctl.get("name", "")
        if not name:
            yield required(where)
        elif len(name) > _MAX_SYSCTL_CHARACTERS or not re.fullmatch(_SYSCTL, name):
            text = (
                f"must have at most {_MAX_SYSCTL_CHARACTERS} characters and match regex ^{_SYSCTL}$"
            )
            yield bad_value(where, name, text)
        elif name in seen:
            yield duplicate(where, name)
        seen.add(name)
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            yield bad_value(where, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and dotted.startswith(
            ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
        ):
            yield bad_value(where, name, "may not be specified when 'hostIPC' is true")


def _profile_errors(context: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the profiles that pods and containers have alike."""
    seccomp = context.get("seccompProfile")
    if seccomp is not None:
        yield from _seccomp_errors(seccomp, f"{field}.seccompProfile")
    name = (context.get("windowsOptions") or EMPTY).get("gmsaCredentialSpecName")
    if name is not None:
        yield from subdomain(name, f"{field}.windowsOptions.gmsaCredentialSpecName")
    profile = context.get("appArmorProfile")
    if profile is not None:
        yield from _app_armor_errors(profile, f"{field}.appArmorProfile")


def _seccomp_errors(profile: JsonObject, field: str) -> Iterator[FieldError]:
    kind, path = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        yield required(f"{field}.type", "type is required when seccompProfile is set")
    elif kind not in _PROFILES:
        yield unsupported(f"{field}.type", kind, _PROFILES)
    where = f"{field}.localhostProfile"
    if kind == "Localhost":
        if path is None:
            yield required(where, "must be set when seccomp type is Localhost")
        else:
            yield from descending_path(path, where)
    elif path is not None:
        text = "can only be set when seccomp type is Localhost"
        yield bad_value(where, internal_form("SeccompProfile", profile), text)


def _app_armor_errors(profile: JsonObject, field: str) -> Iterator[FieldError]:
    kind, path = profile.get("type", ""), profile.get("localhostProfile")
    where = f"{field}.localhostProfile"
    if kind == "Localhost":
        if path is None or not path.strip():
            yield required(where, "must be set when AppArmor type is Localhost")
        elif path != path.strip():
            yield bad_value(where, path, "must not be padded with whitespace")
        if path is not None and len(path) > _MAX_PATH_CHARACTERS:
            yield too_long(where, _MAX_PATH_CHARACTERS)
    elif not kind:
        yield required(f"{field}.type", "type is required when appArmorProfile is set")
    elif kind not in _PROFILES:
        yield unsupported(f"{field}.type", kind, _PROFILES)
    elif path is not None:
        yield bad_value(where, path, "can only be set when AppArmor type is Localhost")


def container_security_errors(
    context: JsonObject, field: str, *, own_users: bool
) -> Iterator[FieldError]:
    """Errors of the security context of a container; `own_users`: hostUsers is false."""
    for key in ("runAsUser", "runAsGroup"):
        yield from user_id(context, key, field)
    mount = context.get("procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        yield unsupported(f"{field}.procMount", mount, ("Default", "Unmasked"))
    if mount == "Unmasked" and not own_users:
        text = "`hostUsers` must be false to use `Unmasked`"
        yield bad_value(f"{field}.procMount", mount, text)
    if context.get("allowPrivilegeEscalation") is False:
        shown = internal_form("SecurityContext", context)
        if context.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield bad_value(field, shown, text)
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or EMPTY).get("add") or ()):
            text = (
                "cannot set `allowPrivilegeEscalation` to false and "
                "`capabilities.Add` CAP_SYS_ADMIN"
            )
            yield bad_value(field, shown, text)
    yield from _profile_errors(context, field)


def host_users_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """A pod with users of its own has its own namespaces throughout."""
    if spec.get("hostUsers") is not False:
        return
    for key, shown in (
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ):
        if spec.get(key):
            yield forbidden_field(f"{field}.{shown}", "when `pod.Spec.HostUsers` is false")


def operating_system_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of fields that the operating system of a pod does not have."""
    system = spec.get("os")
    if system is None:
        return
    name = system.get("name", "")
    if not name:
        yield required(f"{field}.os.name", "cannot be empty")
    elif name not in ("linux", "windows"):
        yield unsupported(f"{field}.os", name, ("linux", "windows"))
    elif name == "linux":
        yield from _linux_errors(spec, field)
    else:
        yield from _windows_errors(spec, field)


def _linux_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    for context, where in _contexts(spec, field):
        if context.get("windowsOptions") is not None:
            yield forbidden_field(f"{where}.windowsOptions", _LINUX_ONLY)


def _windows_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    for key in _OF_LINUX_HOSTS:
        if spec.get(key) is not None:
            yield forbidden_field(f"{field}.{key}", _WINDOWS_ONLY)
    names: tuple[str, ...] = _OF_LINUX_PODS
    for context, where in _contexts(spec, field):
        for key in names:
            if context.get(key) is not None:
                yield forbidden_field(f"{where}.{key}", _WINDOWS_ONLY)
        names = _OF_LINUX_CONTAINERS


def _contexts(spec: JsonObject, field: str) -> Iterator[tuple[JsonObject, str]]:
    """The security context of the pod, then those of its containers, with their fields."""
    yield spec.get("securityContext") or EMPTY, f"{field}.securityContext"
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for position, container in enumerate(spec.get(group) or ()):
            where = f"{field}.{group}[{position}].securityContext"
            yield container.get("securityContext") or EMPTY, where
