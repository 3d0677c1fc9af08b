"""Environment variables of containers, and the fields of a pod that they and volumes may name.

Called by the validation of containers and of downward API volumes. Invariant: a source is named by
exactly one of its kinds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required, unsupported
from stellwerk_cluster.apimachinery.names import subdomain_errors, without_trailing_dash
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    config_key,
    environment_name,
    qualified_name,
    subdomain,
)
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

ENVIRONMENT_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_CONVERTIBLE: Final = frozenset(
    (
        *ENVIRONMENT_FIELDS,
        *VOLUME_FIELDS,
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    )
)
_SUBSCRIPTED: Final = re.compile(r"(.+?)\['(.*)'\]")
_RESOURCE_FIELDS: Final = tuple(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGE_FIELDS: Final = ("limits.hugepages-", "requests.hugepages-")
_DIVISORS: Final = (
    "1",
    *(f"1{suffix}" for suffix in "kMGTPE"),
    *(f"1{suffix}i" for suffix in "KMGTPE"),
)
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def environment_errors(variables: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    """Errors of the variables of a container."""
    for position, variable in enumerate(variables):
        where, name = f"{field}[{position}]", variable.get("name", "")
        if not name:
            yield required(f"{where}.name")
        else:
            yield from environment_name(name, f"{where}.name")
        if variable.get("valueFrom") is not None:
            yield from _value_source_errors(variable, f"{where}.valueFrom")


def _value_source_errors(variable: JsonObject, field: str) -> Iterator[FieldError]:
    source = variable["valueFrom"]
    named = [name for name in _SOURCES if source.get(name) is not None]
    for name in named:
        where, value = f"{field}.{name}", source[name]
        if name == "fieldRef":
            yield from field_reference_errors(value, ENVIRONMENT_FIELDS, where)
        elif name == "resourceFieldRef":
            yield from resource_reference_errors(value, where)
        elif name != "fileKeyRef":
            yield from _key_reference_errors(value, where)
    if not named:
        text = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
            "`secretKeyRef` or `fileKeyRef`"
        )
        yield bad_value(field, "", text)
    elif variable.get("value"):
        yield bad_value(field, "", "may not be specified when `value` is not empty")
    elif named[1:]:
        yield bad_value(field, "", "may not have more than one field specified at a time")


def _key_reference_errors(reference: JsonObject, field: str) -> Iterator[FieldError]:
    yield from subdomain(reference.get("name", ""), f"{field}.name")
    if not reference.get("key"):
        yield required(f"{field}.key")
    else:
        yield from config_key(reference["key"], f"{field}.key")


def field_reference_errors(
    reference: JsonObject, allowed: Sequence[str], field: str
) -> Iterator[FieldError]:
    """Errors of a reference to a field of the pod."""
    path = reference.get("fieldPath", "")
    if not reference.get("apiVersion"):
        yield required(f"{field}.apiVersion")
        return
    if not path:
        yield required(f"{field}.fieldPath")
        return
    subscripted = _SUBSCRIPTED.fullmatch(path)
    name = subscripted[1] if subscripted else path
    if name not in _CONVERTIBLE:
        text = f"error converting fieldPath: field label not supported: {path}"
        yield bad_value(f"{field}.fieldPath", path, text)
    elif subscripted:
        yield from _subscript_errors(name, subscripted[2], field)
    elif name not in allowed:
        yield unsupported(f"{field}.fieldPath", name, sorted(allowed))


def _subscript_errors(name: str, key: str, field: str) -> Iterator[FieldError]:
    if name == "metadata.annotations":
        yield from qualified_name(key.lower(), field)
    elif name == "metadata.labels":
        yield from qualified_name(key, field)
    else:
        yield bad_value(field, name, "does not support subscript")


def resource_reference_errors(
    reference: JsonObject, field: str, *, in_volume: bool = False
) -> Iterator[FieldError]:
    """Errors of a reference to a request or limit of a container."""
    resource = reference.get("resource", "")
    if in_volume and not reference.get("containerName"):
        yield required(f"{field}.containerName")
    elif not resource:
        yield required(f"{field}.resource")
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGE_FIELDS):
        yield unsupported(f"{field}.resource", resource, _RESOURCE_FIELDS)
    divisor = reference.get("divisor", "0")
    if parse_quantity(divisor) == 0:
        return
    name = resource.partition(".")[2]
    if name == "cpu" and divisor not in ("1m", "1"):
        text = "only divisor's values 1m and 1 are supported with the cpu resource"
        yield bad_value(f"{field}.divisor", resource, text)
    elif divisor not in _DIVISORS and (
        resource in _RESOURCE_FIELDS or resource.startswith(_HUGE_PAGE_FIELDS)
    ):
        shown = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
        text = (
            f"only divisor's values {', '.join(_DIVISORS)} are supported with the "
            f"{shown.get(name, 'hugepages')} resource"
        )
        if name != "cpu":
            yield bad_value(f"{field}.divisor", resource, text)


def environment_source_errors(sources: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    """Errors of the config maps and secrets that variables come from."""
    for position, source in enumerate(sources):
        where = f"{field}[{position}]"
        if source.get("prefix"):
            yield from environment_name(source["prefix"], f"{where}.prefix")
        named = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in named:
            yield from _source_name_errors(source[name] or EMPTY, f"{where}.{name}.name")
        if not named:
            yield bad_value(field, "", "must specify one of: `configMapRef` or `secretRef`")
        elif named[1:]:
            yield bad_value(field, "", "may not have more than one field specified at a time")


def _source_name_errors(reference: JsonObject, field: str) -> Iterator[FieldError]:
    name = reference.get("name", "")
    if not name:
        yield required(field)
        return
    # The name may be a prefix here: a dash at its end is no mistake.
    for error in subdomain_errors(without_trailing_dash(name)):
        yield bad_value(field, name, error)
