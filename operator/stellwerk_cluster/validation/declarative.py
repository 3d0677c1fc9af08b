"""The rules that stand in the tables, in the words of Kubernetes' declarative validation.

Called through the strategies of kinds, before their own functions. Invariant: the order of the
lines is the order of the errors, and on a line that of the words below; what a change may not
change is looked at after the object itself.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.validation.checks import (
    immutable,
    label,
    path_segment,
    qualified_name,
    subdomain,
    too_many,
)
from stellwerk_kube.schema.types import leads_to, type_block, types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject
    from stellwerk_kube.schema.types import Field

    Check: TypeAlias = Callable[[Any, str, JsonObject], Iterable[FieldError]]
    """(value, its field, the object that has it) → what is wrong with the value."""

_FORMATS: Final[dict[str, Callable[[str, str], Iterable[FieldError]]]] = {
    "k8s-label-key": qualified_name,
    "k8s-long-name": subdomain,
    "k8s-path-segment-name": path_segment,
    "k8s-short-name": label,
}


class FieldRules(NamedTuple):
    """The rules of one field."""

    name: str
    required: bool
    checks: tuple[Check, ...]
    part: str
    """The type of its parts, if that has rules."""
    is_list: bool
    is_struct: bool
    most: int
    """Items that it may have; 0: any number."""
    unique: str
    """The field by which its items differ; empty: they may be alike."""
    immutable: bool


class TypeRules(NamedTuple):
    """The rules of one type."""

    fields: tuple[FieldRules, ...]
    members: tuple[str, ...]
    """Fields of which exactly one is set."""


@cache
def has_rules(type_name: str) -> bool:
    """Whether any field of a type, or of the types that it leads to, has a rule."""
    return type_name in types() and any(
        _WORDS & field.words.keys()
        for each in leads_to(type_name)
        for field in types()[each].values()
    )


def declared_errors(type_name: str, obj: JsonObject, at: str = "") -> Iterator[FieldError]:
    """Errors of an object of a type, as far as the tables say."""
    rules = declared_rules(type_name)
    for field in rules.fields:
        value = obj.get(field.name)
        where = f"{at}.{field.name}" if at else field.name
        if field.name == next(iter(rules.members), None):
            yield from _union_errors(obj, rules.members, at)
        if field.required and (value is None or (not value and not field.is_struct)):
            yield required(where)
            continue
        if value is None:
            continue
        for check in field.checks:
            yield from check(value, where, obj)
        if field.is_list:
            yield from _item_errors(field, value, where)
        elif field.part:
            yield from declared_errors(field.part, value, where)


def _item_errors(field: FieldRules, items: list[JsonObject], at: str) -> Iterator[FieldError]:
    if field.most and len(items) > field.most:
        yield too_many(at, len(items), field.most)
        return
    seen: set[str] = set()
    for position, item in enumerate(items):
        where = f"{at}[{position}]"
        if field.unique:
            if item[field.unique] in seen:
                yield duplicate(where, internal_form(field.part, item))
            seen.add(item[field.unique])
        if field.part:
            yield from declared_errors(field.part, item, where)


def change_errors(
    type_name: str, new: JsonObject, old: JsonObject, at: str = ""
) -> Iterator[FieldError]:
    """Fields that differ and may not change, as far as the tables say."""
    for field in declared_rules(type_name).fields:
        has, had = new.get(field.name), old.get(field.name)
        where = f"{at}.{field.name}" if at else field.name
        if field.immutable:
            yield from immutable(has, had, where)
        elif field.is_list and field.unique and field.part:
            yield from _item_changes(field, has or (), had or (), where)
        elif field.part and not field.is_list and has is not None and had is not None:
            yield from change_errors(field.part, has, had, where)


def _item_changes(
    field: FieldRules, new: Sequence[JsonObject], old: Sequence[JsonObject], at: str
) -> Iterator[FieldError]:
    """Errors of items that are there before and after a change."""
    had = {each[field.unique]: each for each in old}
    for position, each in enumerate(new):
        if each[field.unique] in had:
            before = had[each[field.unique]]
            yield from change_errors(field.part, each, before, f"{at}[{position}]")


@cache
def declared_rules(type_name: str) -> TypeRules:
    """The rules of one type, its functions imported."""
    lines = [line for line in type_block(type_name).lines if line.name[0] != "~"]
    return TypeRules(
        tuple(_field_rules(line) for line in lines if _WORDS & line.words.keys() or _part(line)),
        tuple(line.name for line in lines if "unionMember" in line.words),
    )


def _field_rules(line: Field) -> FieldRules:
    words = line.words
    made = (make(words[word]) for word, make in _CHECKS.items() if word in words)
    return FieldRules(
        line.name,
        "required" in words,
        tuple(made),
        _part(line),
        line.type[0] == "[",
        line.type in types(),
        int(words.get("maxItems", 0)),
        words.get("unique", ""),
        "immutable" in words,
    )


def _part(line: Field) -> str:
    return line.element if line.type[0] != "{" and has_rules(line.element) else ""


def _minimum(text: str) -> Check:
    least = int(text)

    def check(value: int, field: str, _owner: JsonObject) -> Iterator[FieldError]:
        if value < least:
            yield bad_value(field, value, f"must be greater than or equal to {least}")

    return check


def _maximum(text: str) -> Check:
    most = int(text)

    def check(value: int, field: str, _owner: JsonObject) -> Iterator[FieldError]:
        if value > most:
            yield bad_value(field, value, f"must be less than or equal to {most}")

    return check


def _enum(text: str) -> Check:
    allowed = text.split(",")

    def check(value: str, field: str, _owner: JsonObject) -> Iterator[FieldError]:
        if value not in allowed:
            yield unsupported(field, value, allowed)

    return check


def _format(text: str) -> Check:
    errors = _FORMATS[text]
    return lambda value, field, _owner: errors(value, field)


def _check(text: str) -> Check:
    """A function of this package by its name; what stands behind a colon is its last argument."""
    path, colon, argument = text.partition(":")
    module, _, name = path.rpartition(".")
    function = getattr(import_module(f"stellwerk_cluster.validation.{module}"), name)
    if colon:
        return lambda value, field, owner: function(value, field, owner, argument)
    made: Check = function
    return made


_CHECKS: Final[dict[str, Callable[[str], Check]]] = {
    "minimum": _minimum,
    "maximum": _maximum,
    "enum": _enum,
    "format": _format,
    "check": _check,
}
_WORDS: Final = frozenset((*_CHECKS, "required", "maxItems", "unique", "immutable", "unionMember"))


def _union_errors(value: JsonObject, members: tuple[str, ...], field: str) -> Iterator[FieldError]:
    """Exactly one of the members may be set."""
    listed = ", ".join(f"`{each}`" for each in members)
    given = [each for each in members if value.get(each) is not None]
    if not given:
        yield bad_value(field, "", f"must specify one of: {listed}")
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield bad_value(field, shown, f"must specify exactly one of: {listed}")
