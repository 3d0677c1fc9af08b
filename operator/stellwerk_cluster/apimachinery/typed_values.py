"""Values of merge types: the fields they own, their merge into others, removal of fields.

Pure functions on values with a merge type of `forms`. Field ownership calls them; `comparison`
finds the differences of two values. The rules are those of structured-merge-diff (v6), as the API
server of 1.36 uses it. Invariant: arguments are not changed; results may share parts with them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson

from stellwerk_cluster.apimachinery.field_sets import (
    SELF,
    FieldSet,
    closed,
    element_text,
    is_member,
    opened,
)
from stellwerk_cluster.apimachinery.merge_types import MergeList, MergeMap, MergeType

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject, JsonValue

ABSENT: Final = object()
"""In place of a value that is not there, other than null."""


class MergeTypeError(Exception):
    """A value that does not have its form; the text is what the API says about it."""


Problem: TypeAlias = tuple[str, str]
"""A mistake: its place, as a path, and what is wrong."""


# Items of lists.


def item_element(form: MergeList, item: JsonValue) -> str:
    """The path element that tells an item of a list from the others.

    Raises:
        MergeTypeError: the item has none of the keys, or is no scalar in a set.
    """
    if form.keys:
        return _keyed_element(form, item)
    if isinstance(item, dict):
        message = "associative list without keys has an element that's a map type"
        raise MergeTypeError(message)
    if isinstance(item, list):
        message = "not supported: associative list with lists as elements"
        raise MergeTypeError(message)
    if item is None:
        message = "associative list without keys has an element that's an explicit null"
        raise MergeTypeError(message)
    return f"v:{orjson.dumps(item).decode()}"


def _keyed_element(form: MergeList, item: JsonValue) -> str:
    if item is None:
        message = "associative list with keys may not have a null element"
        raise MergeTypeError(message)
    if not isinstance(item, dict):
        message = "associative list with keys may not have non-map elements"
        raise MergeTypeError(message)
    found = {}
    for key in form.keys:
        if key in item:
            found[key] = item[key]
        elif key in form.defaults:
            found[key] = form.defaults[key]
    if not found:
        shown = " ".join(f'"{key}"' for key in form.keys)
        message = (
            f"associative list with keys has an element that omits all key fields [{shown}] "
            "(and doesn't have default values for any key fields)"
        )
        raise MergeTypeError(message)
    return f"k:{orjson.dumps(found).decode()}"


def indexed(form: MergeList, items: list[JsonValue]) -> dict[str, list[JsonValue]]:
    """The items by their path elements; more than one under an element are duplicates."""
    found: dict[str, list[JsonValue]] = {}
    for position, item in enumerate(items):
        try:
            element = item_element(form, item)
        except MergeTypeError as error:
            message = f"element {position}: {error}"
            raise MergeTypeError(message) from None
        found.setdefault(element, []).append(item)
    return found


# Validation.


def problems(form: MergeType, value: JsonValue, path: str = "") -> list[Problem]:
    """The parts of an applied value that do not have its type."""
    part = form.part(value)
    if isinstance(part, MergeMap):
        return _map_problems(part, value, path)
    if isinstance(part, MergeList):
        return _list_problems(part, value, path)
    text = _scalar_problem(part, value)
    return [(path, text)] if text else []


def _map_problems(form: MergeMap, value: JsonValue, path: str) -> list[Problem]:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [(path, f"expected map, got {_shown(value)}")]
    found: list[Problem] = []
    for name, item in value.items():
        inner = form.field(name)
        if inner is None:
            return [*found, (f"{path}.{name}", "field not declared in schema")]
        found += problems(inner, item, f"{path}.{name}")
    return found


def _list_problems(form: MergeList, value: JsonValue, path: str) -> list[Problem]:
    if value is None:
        return []
    if not isinstance(value, list):
        return [(path, f"expected list, got {_shown(value)}")]
    found: list[Problem] = []
    seen = set()
    for position, item in enumerate(value):
        element = f"i:{position}"
        if not form.atomic:
            try:
                element = item_element(form, item)
            except MergeTypeError as error:
                return [*found, (path, f"element {position}: {error}")]
            if element in seen:
                found.append((path, f"duplicate entries for key {element_text(element)}"))
            seen.add(element)
        found += problems(form.element, item, path + element_text(element))
    return found


def _scalar_problem(wanted: str, value: JsonValue) -> str:
    if value is None:
        return ""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match wanted:
        case "numeric" if not is_number:
            return f"expected numeric (int or float), got {_go_type(value)}"
        case "string" if not isinstance(value, str):
            return f"expected string, got {_shown(value, quoted=True)}"
        case "boolean" if not isinstance(value, bool):
            return f"expected boolean, got {_shown(value)}"
        case "untyped" if isinstance(value, (dict, list)):
            return f"expected any scalar, got {_shown(value)}"
    return ""


def _go_type(value: JsonValue) -> str:
    names = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(type(value), "<nil>")


def _shown(value: JsonValue, *, quoted: bool = False) -> str:
    """A value as messages of the merge library write it."""
    if quoted and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"&value.valueUnstructured{{Value:{value}}}"
    if quoted and isinstance(value, bool):
        return f"&value.valueUnstructured{{Value:{str(value).lower()}}}"
    if isinstance(value, dict):
        inner = ";".join(f"{name}={_shown(item)}" for name, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(_shown(item) for item in value)}]"
    return orjson.dumps(value).decode()


def problems_text(found: list[Problem]) -> str:
    """The problems as one message."""
    texts = [f"{path}: {text}" if path else text for path, text in found]
    return texts[0] if len(texts) == 1 else "\n".join(["errors:", *(f"  {each}" for each in texts)])


# Ownership of a value.


def field_set(form: MergeType, value: JsonValue) -> FieldSet:
    """The fields of an applied value: its scalars, what is atomic, and the items of lists."""
    found = _owned(form, value)
    found.pop(SELF, None)
    return found


def _owned(form: MergeType, value: JsonValue) -> FieldSet:
    """The node of a value, opened; empty if it owns nothing."""
    part = form.part(value)
    if isinstance(part, MergeMap):
        if part.atomic or not isinstance(value, dict):
            return {SELF: {}}
        return _owned_fields(part, value)
    if isinstance(part, MergeList):
        if part.atomic or not isinstance(value, list):
            return {SELF: {}}
        return _owned_items(part, value)
    return {SELF: {}}


def _owned_fields(form: MergeMap, value: JsonObject) -> FieldSet:
    found: FieldSet = {}
    for name, item in value.items():
        inner = form.field(name)
        node = _owned(inner, item) if inner is not None else {SELF: {}}
        if item is None or item == {} or not form.names(name):
            node[SELF] = {}
        if node:
            found[f"f:{name}"] = closed(node)
    return found


def _owned_items(form: MergeList, value: list[JsonValue]) -> FieldSet:
    found: FieldSet = {}
    for element, items in indexed(form, value).items():
        node = _owned(form.element, items[0]) if len(items) == 1 else {}
        node[SELF] = {}
        found[element] = closed(node)
    return found


def whole(form: MergeType, value: JsonValue) -> FieldSet:
    """The node of a value that was added or removed as a whole: every part of it is a member."""
    part = form.part(value)
    node: FieldSet = {}
    # What has not its form is refused by the rules of its kind, after this.
    if isinstance(part, MergeMap) and not part.atomic and isinstance(value, dict):
        for name, item in value.items():
            inner = part.field(name)
            node[f"f:{name}"] = whole(inner, item) if inner is not None else {}
    elif isinstance(part, MergeList) and not part.atomic and isinstance(value, list):
        for element, items in indexed(part, value).items():
            node[element] = whole(part.element, items[0]) if len(items) == 1 else {}
    if node:
        node[SELF] = {}
    return node


def with_named_parents(form: MergeType, owned: FieldSet) -> FieldSet:
    """The set and the named fields above its members.

    So a struct goes with the last of its fields, and an entry of a map does not take the map along.
    """
    node: FieldSet = {}
    for element, below in owned.items():
        if element == SELF:
            node[SELF] = {}
            continue
        inner: MergeType | None = None
        is_field = element[0] == "f" and form.members is not None
        if is_field and form.members is not None:
            inner = form.members.field(element[2:])
        elif element[0] == "k" and form.items is not None:
            inner = form.items.element
        result = with_named_parents(inner, below) if inner is not None else below
        if is_field and form.members is not None and form.members.names(element[2:]) and below:
            result = {**result, SELF: {}}
        node[element] = result
    return node


# Merging and removing.


def merged(form: MergeType, live: JsonValue, config: JsonValue) -> JsonValue:
    """The live value after an applied one was merged into it.

    Raises:
        MergeTypeError: an item of a list lacks its keys.
    """
    if config is ABSENT:
        return live
    if live is ABSENT:
        return config
    part = form.part(config)
    if isinstance(part, MergeMap) and not part.atomic and (live or config):
        return _merged_maps(part, live, config)
    if isinstance(part, MergeList) and not part.atomic and (live or config):
        return _merged_lists(part, live or [], config or [])
    return config


def _merged_maps(form: MergeMap, live: JsonValue, config: JsonValue) -> JsonValue:
    if not isinstance(live, dict):
        return config
    result = dict(live)
    for name, item in (config or {}).items():
        inner = form.field(name)
        result[name] = item if inner is None else merged(inner, live.get(name, ABSENT), item)
    return result


def _merged_lists(form: MergeList, live: JsonValue, config: JsonValue) -> JsonValue:
    """Items of both lists: the applied ones in their order, the others where they stood."""
    mine, theirs = indexed(form, live), indexed(form, config)
    order: list[str] = []
    waiting = deque(theirs)
    shared = deque(element for element in theirs if element in mine)
    for element in mine:
        if element not in theirs:
            order.append(element)
        elif shared and element == shared[0]:
            shared.popleft()
            # All that the applied list has up to here comes first.
            while waiting[0] != element:
                order.append(waiting.popleft())
            order.append(waiting.popleft())
    order += waiting
    result: list[JsonValue] = []
    for element in order:
        if element not in theirs:
            result += mine[element]
            continue
        old = mine.get(element, [ABSENT])
        result.append(merged(form.element, old[0] if len(old) == 1 else ABSENT, theirs[element][0]))
    return result


def without(form: MergeType, value: JsonValue, removed: FieldSet) -> JsonValue:
    """The value without the fields and items of a set; what becomes empty by that is null."""
    part = form.part(value)
    if isinstance(part, MergeMap) and isinstance(value, dict):
        return _map_without(part, value, removed) if value and not part.atomic else None
    if isinstance(part, MergeList) and isinstance(value, list):
        return _list_without(part, value, removed) if value and not part.atomic else None
    return value


def _map_without(form: MergeMap, value: JsonObject, removed: FieldSet) -> JsonValue:
    kept: JsonObject = {}
    for name, item in value.items():
        node = removed.get(f"f:{name}")
        if node is None:
            kept[name] = item
        elif not is_member(node):
            inner = form.field(name)
            kept[name] = item if inner is None else without(inner, item, node)
    return kept or None


def _list_without(form: MergeList, value: list[JsonValue], removed: FieldSet) -> JsonValue:
    kept: list[JsonValue] = []
    for item in value:
        node = removed.get(item_element(form, item))
        if node is None:
            kept.append(item)
        elif not is_member(node):
            kept.append(without(form.element, item, opened(node)))
    return kept or None
