"""Whether a strategic merge patch has a form that can be merged at all.

Called by `patching` before it merges. Invariant: what passes here has lists where lists are merged
and directives about lists stand, and objects with their merge key where objects are merged by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import bad_request
from stellwerk_cluster.apimachinery.mismatches import json_name
from stellwerk_cluster.schema.types import Field, types

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import JsonValue

ORDER: Final = "$setElementOrder/"
DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"


def check_directives(patch: JsonObject, type_name: str) -> None:
    """Refuse a patch that cannot be merged into an object of a type.

    Raises:
        StatusError: a directive or a merged list has another form than it must have (400).
    """
    fields = types().get(type_name, {})
    _check_lists(patch, fields)
    for name, value in patch.items():
        field = fields.get(name)
        if isinstance(value, dict):
            plain = field is None or field.type.startswith("{")
            check_directives(value, "" if field is None or plain else field.element)
        elif isinstance(value, list) and field is not None and field.merge_key:
            _check_elements(value, field)


def _check_lists(patch: JsonObject, fields: dict[str, Field]) -> None:
    retained = patch.get("$retainKeys", [])
    if not isinstance(retained, list):
        raise bad_request("invalid patch format of retainKeys")
    for name, value in patch.items():
        if name.startswith(DELETE_PRIMITIVES):
            field = fields.get(name.removeprefix(DELETE_PRIMITIVES))
            of_list = field is None or field.type.startswith("[")
            if not isinstance(value, list) or not of_list:
                raise bad_request("invalid patch format of primitive list")
        elif name.startswith(ORDER):
            _check_order(value, fields.get(name.removeprefix(ORDER)))


def _check_order(order: JsonValue, field: Field | None) -> None:
    if not isinstance(order, list):
        raise bad_request("invalid patch format of setElementOrder list")
    if field is not None and field.merge_key:
        for each in order:
            _check_element(each, field.merge_key)


def _check_elements(elements: list[JsonValue], field: Field) -> None:
    for each in elements:
        if not isinstance(each, dict) or each.get("$patch") != "replace":
            _check_element(each, field.merge_key)
        check_directives(each, field.element)


def _check_element(element: JsonValue, key: str) -> None:
    if not isinstance(element, dict):
        raise bad_request(
            f"expected a map[string]interface {{}}, but received a {json_name(element)}"
        )
    if isinstance(element.get(key), list | dict):
        raise bad_request(f"the merge key {key} is a {json_name(element[key])}, not a single value")
