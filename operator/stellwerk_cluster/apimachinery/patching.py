"""The patches of the API: JSON merge patch and strategic merge patch; JSON patch is beside it.

Pure functions from (object, patch) to a new object, called by the verbs. Invariant: the original is
not changed; parts that a patch does not touch may be shared between original and result. A
strategic patch is merged only once `_check_directives` has found lists where lists are merged, and
objects with their merge key where objects are merged by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_request,
    internal,
    patch_rejected,
)
from stellwerk_cluster.apimachinery.json_patch import json_patch, pointer
from stellwerk_cluster.apimachinery.objects import go_text
from stellwerk_kube.schema.mismatches import json_name
from stellwerk_kube.schema.types import Field, types

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject, JsonValue

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_ORDER: Final = "$setElementOrder/"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"


def merge_patch(target: JsonValue, patch: JsonValue) -> JsonValue:
    """The target after an RFC 7386 merge."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def patched(
    document: JsonObject, patch: JsonValue, media_type: str, type_name: str
) -> JsonObject | None:
    """The document after a patch of any kind; None for one that this type does not know.

    The type is empty for custom kinds, which know no strategic merge.

    Raises:
        StatusError: the patch is malformed (400), or cannot be applied (422, 500).
    """
    if media_type == JSON_PATCH:
        return json_patch(document, patch)
    if media_type == STRATEGIC_PATCH and not type_name:
        return None
    if patch is not None and not isinstance(patch, dict):
        raise undecodable(
            media_type,
            f"json: cannot unmarshal {json_name(patch)} into Go value of type "
            "map[string]interface {}",
        )
    if media_type == STRATEGIC_PATCH:
        return strategic_patch(document, patch or {}, type_name)
    if patch is None:
        message = "Invalid JSON Patch"
        raise bad_request(message)
    merged: JsonObject = merge_patch(document, patch)
    return merged


def undecodable(media_type: str, why: str) -> StatusError:
    """The refusal of a patch that cannot be read."""
    return bad_request(why if media_type == STRATEGIC_PATCH else f"error decoding patch: {why}")


def as_patched(document: JsonObject, patch: JsonValue) -> JsonObject:
    """A patched document as errors quote it: keys in order wherever the patch looked."""
    looked: JsonObject = {}
    for operation in patch if isinstance(patch, list) else ():
        inner = looked
        for part in pointer(operation["path"])[:-1]:
            inner = inner.setdefault(part, {})
    shown: JsonObject = _sorted_where(document, patch if isinstance(patch, dict) else looked)
    return shown


def _sorted_where(document: JsonValue, looked: JsonObject) -> JsonValue:
    if not isinstance(document, dict):
        return document
    return {
        name: _sorted_where(item, looked[name]) if isinstance(looked.get(name), dict) else item
        for name, item in sorted(document.items())
    }


def strategic_patch(target: JsonObject, patch: JsonObject, type_name: str) -> JsonObject:
    """The target after a strategic merge, with the merge keys of a built-in type.

    Raises:
        StatusError: a directive makes no sense, or an element lacks its merge key (400).
    """
    _check_directives(patch, type_name)
    merged = _merge_struct(target, patch, type_name)
    return merged if merged is not None else {}


def _merge_struct(target: JsonValue, patch: JsonObject, type_name: str) -> JsonObject | None:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive not in (None, "merge"):
        raise internal(f"unknown patch type: {directive} in map: {go_text(patch)}")
    fields = types().get(type_name, {})
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        retained = _retained(patch)
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        merged = _merge_field(
            result.get(name), value, fields.get(name), patch.get(_ORDER + name), type_name
        )
        if merged is None:
            result.pop(name, None)
        else:
            result[name] = merged
    _apply_list_directives(result, patch, fields)
    return result


def _retained(patch: JsonObject) -> list[str]:
    """The fields that stay beside those of the patch, all of which must be among them."""
    retained: list[str] = patch["$retainKeys"]
    for name, value in patch.items():
        if not name.startswith("$") and value is not None and name not in retained:
            message = "patch content doesn't match retainKeys list"
            raise patch_rejected(message)
    return retained


def _apply_list_directives(result: JsonObject, patch: JsonObject, fields: dict[str, Field]) -> None:
    for name, value in patch.items():
        if name.startswith(_DELETE_PRIMITIVES):
            field = name.removeprefix(_DELETE_PRIMITIVES)
            result[field] = [each for each in result.get(field) or () if each not in value]
        elif name.startswith(_ORDER) and name.removeprefix(_ORDER) not in patch:
            _reorder(result, name.removeprefix(_ORDER), value, fields)


def _merge_field(
    old: JsonValue, new: JsonValue, field: Field | None, order: JsonValue, type_name: str
) -> JsonValue:
    if isinstance(new, dict):
        inner = type_name if field is None else field.element
        if field is not None and field.type.startswith("{"):
            inner = ""
        return _merge_struct(old, new, inner if field is not None else "")
    if isinstance(new, list) and field is not None and field.merges:
        old_list = old if isinstance(old, list) else []
        if field.merge_key:
            return _merge_list(old_list, new, field, order)
        present = _positions(old_list)
        merged = [*old_list, *(each for each in new if _hashable(each) not in present)]
        return _in_order(merged, order) if order else merged
    return new


def _merge_list(
    old: list[JsonObject], new: list[JsonObject], field: Field, order: JsonValue
) -> JsonValue:
    key = field.merge_key
    for each in new:
        if each.get("$patch", "merge") not in ("delete", "merge", "replace"):
            raise internal(f"unknown patch type: {each['$patch']} in map: {go_text(each)}")
    if any(each.get("$patch") == "replace" for each in new):
        return [each for each in new if "$patch" not in each]
    merged: dict[JsonValue, JsonObject] = {}
    by_key = {each.get(key): each for each in old}
    deleted = set()
    for each in new:
        if key not in each:
            raise _missing_merge_key(each, key)
        if each.get("$patch") == "delete":
            deleted.add(each[key])
            continue
        result = _merge_struct(merged.get(each[key], by_key.get(each[key])), each, field.element)
        if result is not None:
            merged[each[key]] = result
    kept = [each for each in old if each.get(key) not in merged and each.get(key) not in deleted]
    patched = list(merged.values())
    if order:
        # What the order names is placed by it, whether the patch changes it or not.
        wanted = _positions([each.get(key) for each in order])
        named = [each for each in kept if _hashable(each.get(key)) in wanted]
        kept = [each for each in kept if _hashable(each.get(key)) not in wanted]
        patched = sorted(
            [*named, *patched], key=lambda each: wanted.get(_hashable(each[key]), len(wanted))
        )
    return _interleave(kept, patched, [each.get(key) for each in old], key)


def _positions(values: list[JsonValue]) -> dict[JsonValue, int]:
    """The first position of each value: lists of thousands are merged without being searched."""
    found: dict[JsonValue, int] = {}
    for position, value in enumerate(values):
        found.setdefault(_hashable(value), position)
    return found


def _hashable(value: JsonValue) -> JsonValue:
    return repr(value) if isinstance(value, list | dict) else value


def _missing_merge_key(element: JsonObject, key: str) -> StatusError:
    return internal(f"map: {go_text(element)} does not contain declared merge key: {key}")


def _interleave(
    kept: list[JsonObject], patched: list[JsonObject], server_order: list[JsonValue], key: str
) -> list[JsonObject]:
    """Both lists in one; an untouched element goes first only if the server had it first.

    Keeps the order of strategicpatch.mergeSortedSlice (v1.36), which users see in `kubectl edit`.
    """
    result: list[JsonObject] = []
    positions = _positions(server_order)
    left, right = 0, 0
    while left < len(kept) and right < len(patched):
        mine = positions[_hashable(kept[left].get(key))]
        theirs = positions.get(_hashable(patched[right].get(key)))
        if theirs is not None and mine < theirs:
            result.append(kept[left])
            left += 1
        else:
            result.append(patched[right])
            right += 1
    return [*result, *kept[left:], *patched[right:]]


def _reorder(
    result: JsonObject, name: str, order: list[JsonValue], fields: dict[str, Field]
) -> None:
    field, items = fields.get(name), result.get(name)
    if field is None or not isinstance(items, list):
        return
    if field.merge_key:
        wanted = _positions([each.get(field.merge_key) for each in order])
        keys = [_hashable(each.get(field.merge_key)) for each in items]
        named = [each for key, each in zip(keys, items, strict=True) if key in wanted]
        named.sort(key=lambda each: wanted[_hashable(each.get(field.merge_key))])
        kept = [each for key, each in zip(keys, items, strict=True) if key not in wanted]
        result[name] = _interleave(
            kept, named, [each.get(field.merge_key) for each in items], field.merge_key
        )
    else:
        result[name] = _in_order(items, order)


def _in_order(items: list[JsonValue], order: list[JsonValue]) -> list[JsonValue]:
    positions = _positions(order)
    return sorted(items, key=lambda each: positions.get(_hashable(each), len(positions)))


def _check_directives(patch: JsonObject, type_name: str) -> None:
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
            _check_directives(value, "" if field is None or plain else field.element)
        elif isinstance(value, list) and field is not None and field.merge_key:
            _check_elements(value, field)


def _check_lists(patch: JsonObject, fields: dict[str, Field]) -> None:
    retained = patch.get("$retainKeys", [])
    if not isinstance(retained, list):
        raise bad_request("invalid patch format of retainKeys")
    for name, value in patch.items():
        if name.startswith(_DELETE_PRIMITIVES):
            field = fields.get(name.removeprefix(_DELETE_PRIMITIVES))
            of_list = field is None or field.type.startswith("[")
            if not isinstance(value, list) or not of_list:
                raise bad_request("invalid patch format of primitive list")
        elif name.startswith(_ORDER):
            _check_order(value, fields.get(name.removeprefix(_ORDER)))


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
        _check_directives(each, field.element)


def _check_element(element: JsonValue, key: str) -> None:
    if not isinstance(element, dict):
        raise bad_request(
            f"expected a map[string]interface {{}}, but received a {json_name(element)}"
        )
    if isinstance(element.get(key), list | dict):
        raise bad_request(f"the merge key {key} is a {json_name(element[key])}, not a single value")
