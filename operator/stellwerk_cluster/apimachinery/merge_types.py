"""The types by which values are merged: lists that are maps or sets, and what is atomic.

Forms are made from the tables for built-in kinds and from the schema of a definition for custom
ones; `typed_values` walks values along them. Invariant: a form is resolved on first use of a field
and then kept, since types refer to themselves; of two values of one shape, writing one or the other
into an empty object owns the same fields.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.schema.decoder import SCHEMA_ALTERNATIVES
from stellwerk_kube.schema.types import is_atomic, types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stellwerk_kube.json_values import JsonObject, JsonValue
    from stellwerk_kube.schema.types import Field


class MergeMap:
    """Objects with named fields, maps from names to one form, or both."""

    __slots__ = ("_element", "_makers", "_resolved", "atomic")

    def __init__(
        self,
        makers: Mapping[str, Callable[[], MergeType]],
        element: Callable[[], MergeType] | None = None,
        *,
        atomic: bool = False,
    ) -> None:
        """`makers` give the forms of named fields, `element` that of all others, if any."""
        self._makers = makers
        self._element = element
        self._resolved: dict[str, MergeType | None] = {}
        self.atomic = atomic

    def names(self, name: str) -> bool:
        """Whether the field stands in the schema by its name."""
        return name in self._makers

    def field(self, name: str) -> MergeType | None:
        """The form of a field; None if the schema does not have it."""
        found = self._resolved.get(name)
        if found is None:
            make = self._makers.get(name)
            if make is None:
                name, make = "", self._element  # one entry for all names of a map
                found = self._resolved.get(name)
            if found is None and make is not None:
                found = self._resolved[name] = make()
        return found


class MergeList:
    """Lists: taken whole, sets of scalars, or maps whose items some of their fields tell apart."""

    __slots__ = ("_element", "_make", "atomic", "defaults", "keys")

    def __init__(
        self,
        make: Callable[[], MergeType],
        *,
        atomic: bool = True,
        keys: tuple[str, ...] = (),
        defaults: JsonObject = EMPTY,
    ) -> None:
        """Without keys, a list that is not atomic is a set."""
        self._make = make
        self._element: MergeType | None = None
        self.atomic = atomic
        self.keys = tuple(sorted(keys))
        self.defaults = defaults

    @property
    def element(self) -> MergeType:
        """The form of one item."""
        if self._element is None:
            self._element = self._make()
        return self._element


class MergeType(NamedTuple):
    """The type of a value: map, scalar or list; most allow one of the three."""

    members: MergeMap | None = None
    scalar: str = ""
    """The kind of scalars: string, numeric, boolean or untyped; empty: none."""
    items: MergeList | None = None

    def part(self, value: JsonValue) -> MergeMap | MergeList | str:
        """The part of the form that goes with a value; for null, the first that there is."""
        if isinstance(value, dict) and self.members is not None:
            return self.members
        if isinstance(value, list) and self.items is not None:
            return self.items
        if value is not None and self.scalar and not isinstance(value, (dict, list)):
            return self.scalar
        return self.members or self.scalar or self.items or ""


def _deduced() -> MergeType:
    return DEDUCED


def _untyped() -> MergeType:
    return _WHOLE


_WHOLE: Final = MergeType(MergeMap({}, _untyped, atomic=True), "untyped", MergeList(_untyped))
DEDUCED: Final = MergeType(MergeMap({}, _deduced), "untyped", MergeList(_untyped))
"""Values without a schema: maps are merged field by field, lists are taken whole."""

_SCALARS: Final = {
    "string": "string",
    "bytes": "string",
    "int": "numeric",
    "float": "numeric",
    "bool": "boolean",
    "Quantity": "untyped",
    "IntOrString": "untyped",
    "Time": "untyped",
    "MicroTime": "untyped",
}


@cache
def built_in_merge_type(type_name: str) -> MergeType:
    """The form of a type of the tables, or of a list or map of one."""
    if type_name in _SCALARS:
        return MergeType(scalar=_SCALARS[type_name])
    if type_name in ("any", "JSON", *SCHEMA_ALTERNATIVES):
        return DEDUCED
    if type_name.startswith("["):
        return MergeType(items=MergeList(partial(built_in_merge_type, type_name[1:-1])))
    if type_name.startswith("{"):
        return MergeType(MergeMap({}, partial(built_in_merge_type, type_name[1:-1])))
    makers = {name: partial(_field_form, field) for name, field in types()[type_name].items()}
    return MergeType(MergeMap(makers, atomic=is_atomic(type_name)))


def _field_form(field: Field) -> MergeType:
    form = built_in_merge_type(field.type)
    if "atomic" in field.words and form.members is not None:
        return MergeType(MergeMap({}, partial(built_in_merge_type, field.element), atomic=True))
    if "granular" in field.words:
        makers = {
            name: partial(_field_form, inner) for name, inner in types()[field.element].items()
        }
        return MergeType(MergeMap(makers))
    if "set" in field.words or field.keys:
        fields = types().get(field.element, {})
        defaults = {
            key: fields[key].words["default"]
            for key in field.keys
            if "default" in fields[key].words
        }
        element = partial(built_in_merge_type, field.element)
        return MergeType(items=MergeList(element, atomic=False, keys=field.keys, defaults=defaults))
    return form


_SCHEMA_SCALARS: Final = {
    "string": "string",
    "boolean": "boolean",
    "integer": "numeric",
    "number": "numeric",
}


def custom_merge_type(schema: JsonObject) -> MergeType:
    """The form of the objects of a definition."""
    makers = _property_forms(schema)
    makers["metadata"] = partial(built_in_merge_type, "ObjectMeta")
    for name in ("apiVersion", "kind"):
        makers[name] = partial(built_in_merge_type, "string")
    return MergeType(MergeMap(makers, _rest_of(schema)))


def _property_forms(schema: JsonObject) -> dict[str, Callable[[], MergeType]]:
    properties: JsonObject = schema.get("properties") or EMPTY
    return {name: partial(_schema_form, part) for name, part in properties.items()}


def _rest_of(schema: JsonObject) -> Callable[[], MergeType] | None:
    """The form of the fields that the schema does not name."""
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return partial(_schema_form, additional)
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return _deduced
    return None


def _schema_form(schema: JsonObject) -> MergeType:
    if schema.get("x-kubernetes-int-or-string"):
        return MergeType(scalar="untyped")
    sort = schema.get("type")
    if sort == "object":
        return _object_form(schema)
    if sort == "array":
        return _array_form(schema)
    return MergeType(scalar=_SCHEMA_SCALARS[sort]) if sort in _SCHEMA_SCALARS else DEDUCED


def _object_form(schema: JsonObject) -> MergeType:
    makers = _property_forms(schema)
    if schema.get("x-kubernetes-embedded-resource"):
        makers.setdefault("metadata", partial(built_in_merge_type, "ObjectMeta"))
        for name in ("apiVersion", "kind"):
            makers.setdefault(name, partial(built_in_merge_type, "string"))
    rest = _rest_of(schema)
    if not makers and rest is None:
        return DEDUCED
    return MergeType(MergeMap(makers, rest, atomic=schema.get("x-kubernetes-map-type") == "atomic"))


def _array_form(schema: JsonObject) -> MergeType:
    items: JsonObject = schema.get("items") or EMPTY
    element = partial(_schema_form, items)
    sort = schema.get("x-kubernetes-list-type", "atomic")
    keys: tuple[str, ...] = ()
    defaults: JsonObject = {}
    if sort == "map":
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        properties: JsonObject = items.get("properties") or EMPTY
        defaults = {
            key: properties[key]["default"]
            for key in keys
            if "default" in (properties.get(key) or EMPTY)
        }
    return MergeType(
        items=MergeList(element, atomic=sort == "atomic", keys=keys, defaults=defaults)
    )


def same_shape(form: MergeType | None, one: JsonValue, other: JsonValue) -> bool:
    """Whether the two values have the same fields and items."""
    if one == other:
        return True
    part = form.part(one) if form is not None else ""
    if form is None or one is None or other is None or part is not form.part(other):
        return False
    if isinstance(part, str) or part.atomic:
        return bool(one) == bool(other)  # what is as empty as in no object was not written
    if isinstance(part, MergeList):
        return isinstance(one, list) and isinstance(other, list) and _same_items(part, one, other)
    return isinstance(one, dict) and isinstance(other, dict) and _same_fields(part, one, other)


def _same_fields(form: MergeMap, one: JsonObject, other: JsonObject) -> bool:
    if one.keys() != other.keys():
        return False
    for name, item in one.items():
        theirs = other[name]
        if type(item) is str and type(theirs) is str and item and theirs:
            continue  # most that differs between pods is a text
        if item != theirs and not same_shape(form.field(name), item, theirs):
            return False
    return True


def _same_items(form: MergeList, one: list[JsonValue], other: list[JsonValue]) -> bool:
    if not form.keys or len(one) != len(other):
        return False
    return all(
        isinstance(mine, dict)
        and isinstance(theirs, dict)
        and all(mine.get(key) == theirs.get(key) for key in form.keys)
        and same_shape(form.element, mine, theirs)
        for mine, theirs in zip(one, other, strict=True)
    )
