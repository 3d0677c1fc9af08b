"""Server-side apply by several managers equals a model that knows only leaves and their owners.

Managers apply (with and without force), others update; after each step the object, who owns which
leaf and the conflicts are what the model says, and what is owned is there.
"""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.apimachinery.comparison import compare
from stellwerk_cluster.apimachinery.field_sets import (
    FieldSet,
    contains,
    difference,
    intersection,
    paths,
    union,
    without_trees,
)
from stellwerk_cluster.apimachinery.merge_types import custom_merge_type
from stellwerk_cluster.apimachinery.typed_values import field_set
from stellwerk_cluster.registry.managed_fields import (
    APPLY,
    UPDATE,
    ApplyConflictError,
    Owner,
    Ownership,
    Writing,
    applied,
    parse,
    rendered,
    updated,
)

Leaf = tuple[str, ...]
Leaves = dict[Leaf, Any]

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "whole": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tags": {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": {"type": "string"},
        },
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "properties": {
                    "k": {"type": "string"},
                    "v": {"type": "integer"},
                    "w": {"type": "integer"},
                },
            },
        },
    },
}
FORM = custom_merge_type(SCHEMA)
VERSION = "lab.example/v1"

SMALL = st.integers(0, 2)
KEYS = st.sampled_from("xyz")


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    obj: dict[str, Any] = {}
    if draw(st.booleans()):
        obj["a"] = draw(SMALL)
    if draw(st.booleans()):
        obj["whole"] = draw(st.lists(SMALL, min_size=1, max_size=2))
    if entries := draw(st.dictionaries(KEYS, SMALL, max_size=3)):
        obj["map"] = entries
    if tags := draw(st.lists(KEYS, unique=True, max_size=3)):
        obj["tags"] = tags
    if names := draw(st.lists(KEYS, unique=True, max_size=3)):
        obj["items"] = [
            {"k": name, **draw(st.dictionaries(st.sampled_from("vw"), SMALL))} for name in names
        ]
    return obj


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "cyd", "update", "other-update"]), objects(), st.booleans()
    ),
    max_size=12,
)


def leaves(obj: dict[str, Any]) -> Leaves:
    found: Leaves = {}
    for name in ("a", "whole"):
        if obj.get(name) is not None:
            found[(f"f:{name}",)] = obj[name]
    for name, value in (obj.get("map") or {}).items():
        found["f:map", f"f:{name}"] = value
    for tag in obj.get("tags") or ():
        found["f:tags", f'v:"{tag}"'] = tag
    for item in obj.get("items") or ():
        for name, value in item.items():
            found["f:items", f'k:{{"k":"{item["k"]}"}}', f"f:{name}"] = value
    return found


class Model:
    """Every leaf with its value and its owners."""

    def __init__(self) -> None:
        self.values: Leaves = {}
        self.owners: dict[Leaf, set[str]] = {}

    def conflicts(self, manager: str, config: Leaves) -> set[tuple[str, Leaf]]:
        return {
            (owner, leaf)
            for leaf, value in config.items()
            if leaf in self.values and self.values[leaf] != value
            for owner in self.owners.get(leaf, ())
            if owner != manager
        }

    def apply(self, manager: str, config: Leaves) -> None:
        before = {leaf for leaf, owners in self.owners.items() if manager in owners}
        for leaf, value in config.items():
            if self.values.get(leaf, value) != value:
                self.owners[leaf] = set()
            self.values[leaf] = value
            self.owners.setdefault(leaf, set()).add(manager)
        for leaf in before - config.keys():
            owners = self.owners.get(leaf)  # None: its item went with its key
            if owners is not None:
                owners.discard(manager)
                if not owners:
                    self._lose(leaf)

    def update(self, manager: str, new: Leaves) -> None:
        for leaf in self.values.keys() - new.keys():
            self._lose(leaf)
        for leaf, value in new.items():
            if leaf not in self.values or self.values[leaf] != value:
                self.values[leaf], self.owners[leaf] = value, {manager}

    def _lose(self, leaf: Leaf) -> None:
        """An item goes whole with its key, whatever else of it has owners."""
        gone = (
            [each for each in self.values if each[:2] == leaf[:2]]
            if leaf[0] == "f:items" and leaf[2] == "f:k"
            else [leaf]
        )
        for each in gone:
            self.values.pop(each, None)
            self.owners.pop(each, None)


def writing(manager: str, operation: str, time: str) -> Writing:
    version = VERSION if operation == UPDATE else ""
    return Writing(FORM, Owner(manager, operation, version, ""), VERSION, time, {})


def owned_leaves(ownership: Ownership, known: Leaves) -> dict[Leaf, set[str]]:
    return {
        leaf: {owner.name for owner, owned in ownership.items() if contains(owned.fields, leaf)}
        for leaf in known
    }


@given(STEPS)
def test_apply_and_update_equal_a_model_of_leaves(
    steps: list[tuple[str, dict[str, Any], bool]],
) -> None:
    obj: dict[str, Any] = {}
    ownership: Ownership = {}
    model = Model()
    for number, (manager, body, force) in enumerate(steps):
        time = f"{number:03}"
        if manager.endswith("update"):
            ownership = updated(writing(manager, UPDATE, time), obj, body, ownership)
            obj = body
            model.update(manager, leaves(body))
        else:
            expected = set() if force else model.conflicts(manager, leaves(body))
            write = writing(manager, APPLY, time)
            assert conflicts(write, obj, body, ownership, force=force) == expected
            if expected:
                continue
            obj, ownership = applied(write, obj, body, ownership, force=force)
            model.apply(manager, leaves(body))
            assert leaves(body).items() <= leaves(obj).items()
            again = applied(write._replace(time="999"), obj, body, ownership, force=False)
            assert again == (obj, ownership)
        assert leaves(obj) == model.values
        assert owned_leaves(ownership, model.values) == {
            leaf: model.owners.get(leaf, set()) for leaf in model.values
        }
        assert set(all_paths(ownership)) <= set(paths(whole_set(obj)))
        assert parse(rendered(ownership)) == ownership


def conflicts(
    write: Writing, obj: dict[str, Any], body: dict[str, Any], ownership: Ownership, *, force: bool
) -> set[tuple[str, Leaf]]:
    try:
        applied(write, obj, body, ownership, force=force)
    except ApplyConflictError as error:
        return {(owner.name, path) for owner, path in error.conflicts}
    return set()


def all_paths(ownership: Ownership) -> Iterator[tuple[str, ...]]:
    for owned in ownership.values():
        assert owned.fields
        yield from paths(owned.fields)


def whole_set(obj: dict[str, Any]) -> FieldSet:
    """All that can be owned of an object: what is there, and what is above it."""
    return union(field_set(FORM, obj), compare(FORM, {}, obj).added)


# The algebra, against sets of paths.

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"n":1}'])
PATHS = st.frozensets(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple))


def tree(members: frozenset[tuple[str, ...]]) -> FieldSet:
    found: FieldSet = {}
    for path in members:
        one: FieldSet = {}
        for element in reversed(path):
            one = {element: one}
        found = union(found, one)
    return found


@given(PATHS, PATHS)
def test_sets_of_fields_are_sets_of_paths(
    one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]
) -> None:
    mine, theirs = tree(one), tree(other)
    assert set(paths(mine)) == one
    assert set(paths(union(mine, theirs))) == one | other
    assert set(paths(difference(mine, theirs))) == one - other
    assert set(paths(intersection(mine, theirs))) == one & other
    assert set(paths(without_trees(mine, theirs))) == {
        path for path in one if not any(path[: len(root)] == root for root in other)
    }
