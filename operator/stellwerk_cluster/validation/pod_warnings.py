"""The texts of `Warning:` headers about pods and templates.

Called through the strategies of pods and of what makes pods. Invariant: a warning refuses nothing,
and names the field that it is about.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import go_quoted
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.pods import MAX_KEPT_SPECS, memo_key
from stellwerk_cluster.validation.checks import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject

DEPRECATED_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
}
_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
}
_VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_SHOWN: Final = {"storageos": "storageOS"}
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_NO_SELECTOR: Final = "a null labelSelector results in matching no pod"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MAX_COMPARED_PORTS: Final = 8
"""Ports with one number that each further port is compared with: more would take time with the
square of them."""
_BYTES: Final = ("memory", "ephemeral-storage")


def pod_warnings(pod: JsonObject, _old: JsonObject | None) -> Iterable[str]:
    """Warnings about a pod."""
    content = None if pod["metadata"].get("annotations") else memo_key(pod["spec"])
    return _warnings(pod, "") if content is None else _spec_warnings(content)


@lru_cache(maxsize=MAX_KEPT_SPECS)
def _spec_warnings(content: bytes) -> tuple[str, ...]:
    """Warnings about a specification: pods of one template are looked at once."""
    return tuple(_warnings({"spec": orjson.loads(content)}, ""))


def template_warnings(template: JsonObject, field: str) -> Iterator[str]:
    """Warnings about a template, which stands in `field`."""
    return _warnings(template, f"{field}.")


def _warnings(pod: JsonObject, prefix: str) -> Iterator[str]:
    spec, metadata = pod.get("spec") or EMPTY, pod.get("metadata") or EMPTY
    annotations = metadata.get("annotations") or EMPTY
    yield from _label_warnings(spec, f"{prefix}spec")
    for key, text in _ANNOTATIONS.items() if annotations else ():
        if key in annotations:
            yield f"{prefix}metadata.annotations[{key}]: {text}"
    yield from _volume_warnings(spec.get("volumes") or (), f"{prefix}spec.volumes")
    yield from _name_warnings(spec, f"{prefix}spec")
    for name in _BYTES if spec.get("overhead") else ():
        yield from _byte_warning(spec["overhead"], name, f"{prefix}spec.overhead")
    profile = (spec.get("securityContext") or EMPTY).get("seccompProfile")
    if profile is None and _SECCOMP_POD in annotations:
        yield f"{prefix}metadata.annotations[{_SECCOMP_POD}]: {_SECCOMP}"
    for container, where in _containers(spec, f"{prefix}spec"):
        yield from _container_warnings(container, where, annotations, prefix)
    yield from _port_warnings(spec, f"{prefix}spec")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{prefix}spec.terminationGracePeriodSeconds: {text}"
    yield from _selector_warnings(spec.get("affinity") or EMPTY, f"{prefix}spec.affinity")


def _label_warnings(spec: JsonObject, field: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in DEPRECATED_LABELS:
            yield f"{field}.nodeSelector[{key}]: {DEPRECATED_LABELS[key]}"
    affinity = (spec.get("affinity") or EMPTY).get("nodeAffinity") or EMPTY
    where = f"{field}.affinity.nodeAffinity"
    for position, term in enumerate(
        (affinity.get(_REQUIRED) or EMPTY).get("nodeSelectorTerms") or ()
    ):
        yield from _term_warnings(term, f"{where}.{_REQUIRED}.nodeSelectorTerms[{position}]")
    for position, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        preference = weighted.get("preference") or EMPTY
        yield from _term_warnings(preference, f"{where}.{_PREFERRED}[{position}].preference")
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place, key = f"{field}.topologySpreadConstraints[{position}]", constraint.get("topologyKey")
        if key in DEPRECATED_LABELS:
            yield f"{place}.topologyKey: {key} is {DEPRECATED_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{place}.labelSelector: {_NO_SELECTOR}"


def _term_warnings(term: JsonObject, field: str) -> Iterator[str]:
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        key = expression.get("key")
        if key in DEPRECATED_LABELS:
            yield f"{field}.matchExpressions[{position}].key: {key} is {DEPRECATED_LABELS[key]}"


def _volume_warnings(volumes: Iterable[JsonObject], field: str) -> Iterator[str]:
    for position, volume in enumerate(volumes):
        for source in volume.keys() & _VOLUMES.keys():
            yield f"{field}[{position}].{_SHOWN.get(source, source)}: {_VOLUMES[source]}"
        template = (volume.get("ephemeral") or EMPTY).get("volumeClaimTemplate")
        if template:
            where = f"{field}[{position}].ephemeral.volumeClaimTemplate.spec"
            yield from claim_warnings(template.get("spec") or EMPTY, where)


def claim_warnings(spec: JsonObject, field: str) -> Iterator[str]:
    """Warnings about a claim: a size with a fraction of a byte."""
    for part in ("limits", "requests"):
        amounts = (spec.get("resources") or EMPTY).get(part) or EMPTY
        yield from _byte_warning(amounts, "storage", f"{field}.resources.{part}")


def _byte_warning(amounts: JsonObject, name: str, field: str) -> Iterator[str]:
    amount = amounts.get(name)
    if amount is not None and not is_whole(amount):
        yield (
            f"{field}[{name}]: fractional byte value {go_quoted(str(amount))} is invalid, "
            "must be an integer"
        )


def _name_warnings(spec: JsonObject, field: str) -> Iterator[str]:
    for group, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen = set()
        for position, item in enumerate(spec.get(group) or ()):
            value, where = item.get(key, ""), f"{field}.{group}[{position}].{key}"
            if value in seen:
                yield f"{where}: duplicate {key} {go_quoted(value)}"
            seen.add(value)
    for position, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{field}.imagePullSecrets[{position}].name: invalid empty name ""'


def _containers(spec: JsonObject, field: str) -> Iterator[tuple[JsonObject, str]]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for position, container in enumerate(spec.get(group) or ()):
            yield container, f"{field}.{group}[{position}]"


def _container_warnings(
    container: JsonObject, field: str, annotations: JsonObject, prefix: str
) -> Iterator[str]:
    if annotations:
        key = f"{_SECCOMP_CONTAINER}{container.get('name', '')}"
        profile = (container.get("securityContext") or EMPTY).get("seccompProfile")
        if profile is None and key in annotations:
            yield f"{prefix}metadata.annotations[{key}]: {_SECCOMP}"
    resources = container.get("resources") or EMPTY
    for name in _BYTES if resources else ():
        for part in ("limits", "requests"):
            yield from _byte_warning(
                resources.get(part) or EMPTY, name, f"{field}.resources.{part}"
            )
    seen = set()
    for position, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        hides = "valueFrom" in variable or value == reference or reference not in value
        if name in seen and hides:
            yield (
                f"{field}.env[{position}]: hides previous definition of {go_quoted(name)}, "
                "which may be dropped when using apply"
            )
        seen.add(name)


def _port_warnings(spec: JsonObject, field: str) -> Iterator[str]:
    others: dict[tuple[int, str], list[tuple[str, JsonObject]]] = {}
    for container, where in _containers(spec, field):
        for position, port in enumerate(container.get("ports") or ()):
            place, key = (
                f"{where}.ports[{position}]",
                (port.get("containerPort", 0), port.get("protocol", "")),
            )
            if port.get("hostIP") and not port.get("hostPort"):
                yield f"{place}: hostIP set without hostPort: {_shown_port(port)}"
            for other_place, other in others.get(key, ()):
                what = _overlap(port, other)
                if what:
                    yield f"{place}: {what} port definition with {other_place}"
            # A pod of thousands of equal ports gets one word about each, not one about each pair.
            others.setdefault(key, [])[:] = [
                *others.get(key, [])[:_MAX_COMPARED_PORTS],
                (place, port),
            ]


def _shown_port(port: JsonObject) -> str:
    return (
        f"{{Name:{port.get('name', '')} HostPort:{port.get('hostPort', 0)} "
        f"ContainerPort:{port.get('containerPort', 0)} Protocol:{port.get('protocol', '')} "
        f"HostIP:{port.get('hostIP', '')}}}"
    )


def _overlap(port: JsonObject, other: JsonObject) -> str:
    address, other_address = port.get("hostIP", ""), other.get("hostIP", "")
    host, other_host = port.get("hostPort", 0), other.get("hostPort", 0)
    if (address, host) == (other_address, other_host):
        return "duplicate"
    if not host or not other_host:
        return "overlapping"
    if host == other_host and bool(address) != bool(other_address):
        return "dangerously ambiguous"
    return ""


def _selector_warnings(affinity: JsonObject, field: str) -> Iterator[str]:
    for part in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(part) or EMPTY
        for position, term in enumerate(rules.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{field}.{part}.{_REQUIRED}[{position}].labelSelector: {_NO_SELECTOR}"
        for position, weighted in enumerate(rules.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or EMPTY).get("labelSelector") is None:
                where = f"{field}.{part}.{_PREFERRED}[{position}].podAffinityTerm.labelSelector"
                yield f"{where}: {_NO_SELECTOR}"
