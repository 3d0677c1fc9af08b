"""The rules of PersistentVolumeClaims, and of the claims inside pods and StatefulSets.

Called through their strategy and by the validation of volumes. Invariant: after creation a claim
may only grow, and only once it is bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_diff
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import subdomain
from stellwerk_cluster.validation.placement import label_selector_errors
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and "
    "volumeAttributesClassName for bound claims"
)


def validate_claim(claim: JsonObject) -> list[FieldError]:
    """Errors of a claim."""
    return list(claim_spec_errors(claim["spec"], "spec"))


def claim_spec_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the specification of a claim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{field}.accessModes", "at least 1 access mode is required")
    yield from label_selector_errors(spec.get("selector") or EMPTY, f"{field}.selector")
    yield from access_mode_errors(modes, f"{field}.accessModes")
    size = ((spec.get("resources") or EMPTY).get("requests") or EMPTY).get("storage")
    where = f"{field}.resources[storage]"
    if size is None:
        yield required(where)
    elif parse_quantity(size) <= 0:
        yield bad_value(where, size, "must be greater than zero")
    for key in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(key):
            yield from subdomain(spec[key], f"{field}.{key}")
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        yield unsupported(f"{field}.volumeMode", mode, VOLUME_MODES)
    yield from _source_errors(spec, field)


def access_mode_errors(modes: list[str] | tuple[()], field: str) -> Iterator[FieldError]:
    """Access modes that there are, and the exclusive one alone."""
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield unsupported(field, mode, ACCESS_MODES)
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and known != {"ReadWriteOncePod"}:
        yield forbidden_field(field, "may not use ReadWriteOncePod with other access modes")


def _source_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for key, value in (("dataSource", source), ("dataSourceRef", reference)):
        if value is not None:
            yield from _reference_errors(value, f"{field}.{key}")
    if reference is not None and reference.get("namespace"):
        yield from subdomain(reference["namespace"], f"{field}.dataSourceRef.namespace")
        if source is not None:
            text = "may not be specified when dataSourceRef.namespace is specified"
            yield bad_value(field, f"{field}.dataSource", text)
    elif source is not None and reference is not None and source != reference:
        yield bad_value(field, f"{field}.dataSource", "must match dataSourceRef")


def _reference_errors(reference: JsonObject, field: str) -> Iterator[FieldError]:
    for key in ("name", "kind"):
        if not reference.get(key):
            yield required(f"{field}.{key}")
    group, kind = reference.get("apiGroup", ""), reference.get("kind", "")
    if group:
        yield from subdomain(group, f"{field}.apiGroup")
    elif kind != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield bad_value(field, kind, text)


def validate_claim_update(new: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
    """Errors of a change of a claim."""
    if subresource:
        return []
    errors = [*validate_claim(new), *validate_claim(new)]
    errors += _annotation_errors(new, old)
    allowed, was = _with_free_fields(new, old)
    if allowed != was:
        difference = internal_diff("PersistentVolumeClaimSpec", was, allowed)
        errors.append(forbidden_field("spec", f"{_IMMUTABLE}\n{difference}"))
    errors += _shrinking_errors(new, old)
    if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
        errors.append(bad_value("volumeMode", new["spec"].get("volumeMode"), "field is immutable"))
    return [*errors, *_attributes_class_errors(new["spec"], old["spec"])]


def _annotation_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    has, had = (
        (each["metadata"].get("annotations") or EMPTY).get(_BETA_CLASS, "") for each in (new, old)
    )
    if has != had and not (had and new["spec"].get("storageClassName") == had):
        yield bad_value(f"metadata.annotations.{_BETA_CLASS}", has, "field is immutable")


def _with_free_fields(new: JsonObject, old: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Both specifications, alike in what may change now."""
    spec, was = dict(new["spec"]), dict(old["spec"])
    if not was.get("volumeName") and spec.get("volumeName"):
        was["volumeName"] = spec["volumeName"]
    if "storageClassName" in spec and "storageClassName" not in was:
        spec.pop("storageClassName")
    if new["status"].get("phase") == "Bound":
        requests = dict((spec.get("resources") or EMPTY).get("requests") or EMPTY)
        if requests:
            size = ((was.get("resources") or EMPTY).get("requests") or EMPTY).get("storage", "0")
            spec["resources"] = {**spec["resources"], "requests": {**requests, "storage": size}}
        if spec.get("volumeAttributesClassName") is not None:
            spec.pop("volumeAttributesClassName")
            if "volumeAttributesClassName" in was:
                spec["volumeAttributesClassName"] = was["volumeAttributesClassName"]
    return spec, was


def _shrinking_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    size, was = (
        parse_quantity(
            ((each["spec"].get("resources") or EMPTY).get("requests") or EMPTY).get("storage", "0")
        )
        for each in (new, old)
    )
    capacity = parse_quantity((old["status"].get("capacity") or EMPTY).get("storage", "0"))
    if size < was and size <= capacity:
        text = "field can not be less than status.capacity"
        yield forbidden_field("spec.resources.requests.storage", text)


def _attributes_class_errors(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    name, had = spec.get("volumeAttributesClassName"), was.get("volumeAttributesClassName")
    if had is None or name == had:
        return
    field = "spec.volumeAttributesClassName"
    if name is None:
        yield forbidden_field(field, "update from non-nil value to nil is forbidden")
    elif not name:
        yield forbidden_field(field, "update from non-nil value to an empty string is forbidden")
