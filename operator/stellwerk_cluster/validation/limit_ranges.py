"""The rules of LimitRanges: types, names, and amounts in their order.

Called through their strategy. Invariant: minimum, default request, default and maximum ascend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import parse_quantity
from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
)
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import qualified_name
from stellwerk_cluster.validation.resource_names import (
    container_resource_name,
    is_overcommitted,
    resource_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_PARTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def validate_limit_range(limit_range: JsonObject) -> Iterator[FieldError]:
    """Errors of a LimitRange."""
    seen = set()
    for position, limit in enumerate(limit_range["spec"].get("limits") or ()):
        field, kind = f"spec.limits[{position}]", limit.get("type", "")
        if qualified_name_errors(kind):
            yield from qualified_name(kind, f"{field}.type")
        elif "/" not in kind and kind not in _TYPES:
            text = "must be a standard limit type or fully qualified"
            yield bad_value(f"{field}.type", kind, text)
        if kind in seen:
            yield duplicate(f"{field}.type", kind)
        seen.add(kind)
        yield from _part_errors(limit, field, kind)
        for name in sorted({name for part in _PARTS for name in limit.get(part) or ()}):
            yield from _order_errors(limit, field, name)


def _part_errors(limit: JsonObject, field: str, kind: str) -> Iterator[FieldError]:
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    for part in _PARTS:
        amounts = limit.get(part) or EMPTY
        if kind == "Pod" and part in ("default", "defaultRequest"):
            if amounts:
                yield forbidden_field(
                    f"{field}.{part}", "may not be specified when `type` is 'Pod'"
                )
            continue
        for name in amounts:
            yield from check(name, f"{field}.{part}[{name}]")
    bounded = "storage" in {*(limit.get("min") or ()), *(limit.get("max") or ())}
    if kind == "PersistentVolumeClaim" and not bounded:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{field}.limits", text)


def _order_errors(limit: JsonObject, field: str, name: str) -> Iterator[FieldError]:
    """Amounts of one resource that are in the wrong order."""
    texts = {part: (limit.get(part) or EMPTY).get(name) for part in _PARTS}
    values = {part: parse_quantity(text) for part, text in texts.items() if text is not None}
    for low, high, shown_at, part, words in (
        ("min", "max", "min", "min", ("min", "max")),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest", ("min", "default request")),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest", ("default request", "max")),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            ("default request", "default limit"),
        ),
        ("min", "default", "default", "min", ("min", "default")),
        ("default", "max", "default", "max", ("default", "max")),
    ):
        if low in values and high in values and values[low] > values[high]:
            text = f"{words[0]} value {texts[low]} is greater than {words[1]} value {texts[high]}"
            yield bad_value(f"{field}.{shown_at}[{name}]", texts[part], text)
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None:
        where, shown = f"{field}.maxLimitRequestRatio[{name}]", texts["maxLimitRequestRatio"]
        if ratio < 1:
            yield bad_value(where, shown, f"ratio {shown} is less than 1")
        if values.get("min") and "max" in values and ratio > values["max"] / values["min"]:
            largest = float(values["max"] / values["min"])
            text = f"ratio {shown} is greater than max/min = {largest:f}"
            yield bad_value(where, shown, text)
    differ = values.get("default") != values.get("defaultRequest")
    if {"default", "defaultRequest"} <= values.keys() and differ and not is_overcommitted(name):
        text = (
            f"default value {texts['default']} must equal to defaultRequest value "
            f"{texts['defaultRequest']} in {name}"
        )
        yield bad_value(f"{field}.defaultRequest[{name}]", texts["defaultRequest"], text)
