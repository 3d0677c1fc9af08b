"""The form of values as ownership sees it: which lists are maps or sets, what is taken whole.

Forms are made from the tables for built-in kinds and from the schema of a definition for custom
ones; `typed_values` walks values along them. Invariant: a form is resolved on first use of a field
and then kept, since types refer to themselves.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.schema.types import is_atomic, types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import JsonValue
    from stellwerk_cluster.schema.types import Field


class MapForm:
    """Objects with named fields, maps from names to one form, or both."""

    __slots__ = ("_element", "_makers", "_resolved", "atomic")

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Form]],
        element: Callable[[], Form] | None = None,
        *,
        atomic: bool = False,
    ) -> None:
        """`makers` give the forms of named fields, `element` that of all others, if any."""
        self._makers = makers
        self._element = element
        self._resolved: dict[str, Form | None] = {}
        self.atomic = atomic

    def names(self, name: str) -> bool:
        """Whether the field stands in the schema by its name."""
        return name in self._makers

    def field(self, name: str) -> Form | None:
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


class ListForm:
    """Lists: taken whole, sets of scalars, or maps whose items some of their fields tell apart."""

    __slots__ = ("_element", "_make", "atomic", "defaults", "keys")

    def __init__(
        self,
        make: Callable[[], Form],
        *,
        atomic: bool = True,
        keys: tuple[str, ...] = (),
        defaults: JsonObject = EMPTY,
    ) -> None:
        """Without keys, a list that is not atomic is a set."""
        self._make = make
        self._element: Form | None = None
        self.atomic = atomic
        self.keys = tuple(sorted(keys))
        self.defaults = defaults

    @property
    def element(self) -> Form:
        """The form of one item."""
        if self._element is None:
            self._element = self._make()
        return self._element


class Form(NamedTuple):
    """What a value may be; most forms allow one of the three."""

    members: MapForm | None = None
    scalar: str = ""
    """Which scalars: string, numeric, boolean or untyped; empty: none."""
    items: ListForm | None = None

    def part(self, value: JsonValue) -> MapForm | ListForm | str:
        """The part of the form that goes with a value; for null, the first that there is."""
        if isinstance(value, dict) and self.members is not None:
            return self.members
        if isinstance(value, list) and self.items is not None:
            return self.items
        if value is not None and self.scalar and not isinstance(value, (dict, list)):
            return self.scalar
        return self.members or self.scalar or self.items or ""


def _deduced() -> Form:
    return DEDUCED


def _untyped() -> Form:
    return _WHOLE


_WHOLE: Final = Form(MapForm({}, _untyped, atomic=True), "untyped", ListForm(_untyped))
DEDUCED: Final = Form(MapForm({}, _deduced), "untyped", ListForm(_untyped))
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
def built_in_form(type_name: str) -> Form:
    """The form of a type of the tables, or of a list or map of one."""
    if type_name in _SCALARS:
        return Form(scalar=_SCALARS[type_name])
    if type_name == "any":
        return DEDUCED
    if type_name.startswith("["):
        return Form(items=ListForm(partial(built_in_form, type_name[1:-1])))
    if type_name.startswith("{"):
        return Form(MapForm({}, partial(built_in_form, type_name[1:-1])))
    makers = {name: partial(_field_form, field) for name, field in types()[type_name].items()}
    return Form(MapForm(makers, atomic=is_atomic(type_name)))


def _field_form(field: Field) -> Form:
    form = built_in_form(field.type)
    if "atomic" in field.words and form.members is not None:
        return Form(MapForm({}, partial(built_in_form, field.element), atomic=True))
    if "granular" in field.words:
        makers = {
            name: partial(_field_form, inner) for name, inner in types()[field.element].items()
        }
        return Form(MapForm(makers))
    if "set" in field.words or field.keys:
        fields = types().get(field.element, {})
        defaults = {
            key: fields[key].words["default"]
            for key in field.keys
            if "default" in fields[key].words
        }
        element = partial(built_in_form, field.element)
        return Form(items=ListForm(element, atomic=False, keys=field.keys, defaults=defaults))
    return form


_SCHEMA_SCALARS: Final = {
    "string": "string",
    "boolean": "boolean",
    "integer": "numeric",
    "number": "numeric",
}


def custom_form(schema: JsonObject) -> Form:
    """The form of the objects of a definition."""
    makers = _property_forms(schema)
    makers["metadata"] = partial(built_in_form, "ObjectMeta")
    for name in ("apiVersion", "kind"):
        makers[name] = partial(built_in_form, "string")
    return Form(MapForm(makers, _rest_of(schema)))


def _property_forms(schema: JsonObject) -> dict[str, Callable[[], Form]]:
    properties: JsonObject = schema.get("properties") or EMPTY
    return {name: partial(_schema_form, part) for name, part in properties.items()}


def _rest_of(schema: JsonObject) -> Callable[[], Form] | None:
    """The form of the fields that the schema does not name."""
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return partial(_schema_form, additional)
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return _deduced
    return None


def _schema_form(schema: JsonObject) -> Form:
    if schema.get("x-kubernetes-int-or-string"):
        return Form(scalar="untyped")
    sort = schema.get("type")
    if sort == "object":
        return _object_form(schema)
    if sort == "array":
        return _array_form(schema)
    return Form(scalar=_SCHEMA_SCALARS[sort]) if sort in _SCHEMA_SCALARS else DEDUCED


def _object_form(schema: JsonObject) -> Form:
    makers = _property_forms(schema)
    if schema.get("x-kubernetes-embedded-resource"):
        makers.setdefault("metadata", partial(built_in_form, "ObjectMeta"))
        for name in ("apiVersion", "kind"):
            makers.setdefault(name, partial(built_in_form, "string"))
    rest = _rest_of(schema)
    if not makers and rest is None:
        return DEDUCED
    return Form(MapForm(makers, rest, atomic=schema.get("x-kubernetes-map-type") == "atomic"))


def _array_form(schema: JsonObject) -> Form:
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
    return Form(items=ListForm(element, atomic=sort == "atomic", keys=keys, defaults=defaults))
