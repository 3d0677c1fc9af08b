"""Sets of fields in the form in which `managedFields` shows them (FieldsV1), and their algebra.

A set is a tree of dictionaries whose keys are path elements: `f:` a field, `k:` the keys of a list
item as JSON, `v:` an item of a set, `.` the node itself. A leaf is in the set; a node with children
is in it if it has a `.`. Trees are shared between objects, and so between all pods of one template.
Invariant: no function changes its arguments, and none returns a node that is neither in the set nor
has children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonValue

FieldSet: TypeAlias = dict[str, Any]
"""Path element → what is below it."""

Path: TypeAlias = tuple[str, ...]

SELF: Final = "."
_ORDER: Final = {".": -1, "f": 0, "k": 1, "v": 2, "i": 3}


def opened(node: FieldSet) -> FieldSet:
    """The node with its own membership written out, which a leaf leaves unsaid."""
    return node or {SELF: {}}


def closed(node: FieldSet) -> FieldSet:
    """The node as it is shown: a leaf does not say that it is in the set."""
    return {} if SELF in node and len(node) == 1 else node


def shared(one: FieldSet) -> FieldSet:
    """The set as it is kept: in order, and the same tree for equal sets that are in use."""
    form = orjson.dumps(one)
    known = _in_use.get(form)
    if known is None:
        if len(_in_use) >= _MAX_SHARED_SETS:
            _in_use.clear()
        known = _in_use[form] = _ordered(one)
    return known


_MAX_SHARED_SETS: Final = 2048
"""Sets of fields that objects share. Above it, all are forgotten, and shared anew."""
_in_use: Final[dict[bytes, FieldSet]] = {}
"""By their JSON as it came; sets are never changed, so that any object may hold them."""


def _ordered(one: FieldSet) -> FieldSet:
    """The set with its elements in the order in which the API writes them."""
    elements = sorted(one, key=_rank) if len(one) > 1 else one
    return {element: _ordered(one[element]) if one[element] else {} for element in elements}


def is_member(node: FieldSet) -> bool:
    """Whether the node itself is in the set."""
    return not node or SELF in node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The union of the sets."""
    if one is other or not other:
        return one
    merged = dict(one)
    for element, node in other.items():
        mine = merged.get(element)
        if mine is None:
            merged[element] = node
        elif mine is not node and mine != node:
            merged[element] = closed(union(opened(mine), opened(node)))
    return merged


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The first set without the second; the first itself if that is all of it."""
    if one is other:
        return {}
    kept: FieldSet = {}
    changed = False
    for element, node in one.items():
        if element not in other:
            kept[element] = node
            continue
        if element != SELF:
            whole = opened(node)
            rest = difference(whole, opened(other[element]))
            if rest is whole:
                kept[element] = node
                continue
            if rest:
                kept[element] = closed(rest)
        changed = True
    return kept if changed else one


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The intersection of the sets."""
    kept: FieldSet = {}
    for element in one.keys() & other.keys():
        both = (
            {SELF: {}}
            if element == SELF
            else intersection(opened(one[element]), opened(other[element]))
        )
        if both:
            kept[element] = closed(both)
    return kept


def without_trees(one: FieldSet, roots: FieldSet) -> FieldSet:
    """The members of the first set neither at nor below a member of the second."""
    kept: FieldSet = {}
    for element, node in one.items():
        root = roots.get(element)
        if root is None:
            kept[element] = node
        elif not is_member(root):
            rest = without_trees(opened(node), root)
            if rest:
                kept[element] = closed(rest)
    return kept


def contains(one: FieldSet, path: Path) -> bool:
    """Whether the path is a member."""
    for element in path:
        found = one.get(element)
        if found is None:
            return False
        one = found
    return is_member(one)


def paths(one: FieldSet, above: Path = ()) -> Iterator[Path]:
    """All members: those at one level in order, then what is below each."""
    elements = sorted((element for element in one if element != SELF), key=_rank)
    for element in elements:
        if is_member(one[element]):
            yield (*above, element)
    for element in elements:
        yield from paths(one[element], (*above, element))


def _rank(element: str) -> tuple[int, str]:
    return _ORDER[element[0]], element


def path_text(path: Path) -> str:
    """A path as conflicts name it: `.spec.containers[name="c"].image`."""
    return "".join(element_text(element) for element in path)


def element_text(element: str) -> str:
    """One element as messages write it."""
    sort, content = element[0], element[2:]
    if sort == "f":
        return f".{content}"
    if sort == "i":
        return f"[{content}]"
    value = orjson.loads(content)
    if sort == "v":
        return f"[={_scalar_text(value)}]"
    return f"[{','.join(f'{name}={_scalar_text(item)}' for name, item in value.items())}]"


def _scalar_text(value: JsonValue) -> str:
    return orjson.dumps(value).decode()


def malformed(one: JsonValue) -> bool:
    """Whether a value that a client sent is no set."""
    if not isinstance(one, dict):
        return True
    return any(
        (element != SELF and not _well_formed(element)) or malformed(node)
        for element, node in one.items()
    )


def _well_formed(element: str) -> bool:
    sort, content = element[:2], element[2:]
    if sort == "f:":
        return True
    if sort == "i:":
        return content.lstrip("-").isdigit()
    if sort not in ("k:", "v:"):
        return False
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) == (sort == "k:")
