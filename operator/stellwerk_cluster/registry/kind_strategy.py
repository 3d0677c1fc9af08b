"""The strategy of a built-in kind, as the block of the kind and the words of its fields say.

Asked by the verbs. Invariant: what the words say comes first, the functions that the block names
after it; a kind whose block has no rules has neither.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from stellwerk_cluster.apimachinery.names import address_errors, label_errors, path_segment_errors
from stellwerk_cluster.apimachinery.strategy import KindStrategy
from stellwerk_cluster.validation.declarative import change_errors, declared_errors, has_rules
from stellwerk_kube.schema.defaults import filling, function_of, has_defaults
from stellwerk_kube.schema.tables import stored_block, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk_cluster.apimachinery.failures import FieldError
    from stellwerk_kube.json_values import JsonObject

_NEUTRAL: Final = KindStrategy()
_NAMES: Final = {
    "address": address_errors,
    "label": label_errors,
    "path_segment": path_segment_errors,
}
"""The rules of names, by the words of the tables; without one a name is a subdomain."""


@cache
def strategy_of(type_name: str) -> KindStrategy:
    """The rules of a built-in kind; kinds without rules of their own share the neutral ones."""
    for block in tables().kinds:
        if block.words.get("schema", block.kind) != type_name:
            continue
        stored = stored_block(block, tables().kinds)
        if stored is not None and stored.words.get("schema", stored.kind) != type_name:
            # Rules are for objects as they are stored.
            return strategy_of(stored.words.get("schema", stored.kind))
        if block.rules:
            return parse_rules(type_name, block.rules)
    return _NEUTRAL


def parse_rules(type_name: str, rules: dict[str, str]) -> KindStrategy:
    """The strategy that a block of a kind describes.

    Without `validate_update` a change is valid if the object is, if no field changes that may not,
    and if `change` has no objection; what is written to a subresource is free then.

    Raises:
        TypeError: there is no such word.
        ImportError, AttributeError: there is no such function.
    """
    facts: dict[str, Any] = {}
    for word, value in rules.items():
        match word:
            case "declared":
                pass
            case "metadata_layers":
                facts[word] = tuple(map(int, value.split(",")))
            case "kept_by_status":
                facts[word] = tuple(filter(None, value.split(",")))
            case "status_in_create":
                facts[word] = True
            case "name_errors":
                facts[word] = _NAMES[value]
            case "default" if "." not in value:
                facts[word] = function_of(value)
            case _:
                facts[word] = _function(value)
    change = facts.pop("change", None)
    if has_defaults(type_name):
        facts["default"] = filling(type_name, facts.get("default"))
    if has_rules(type_name) or "validate" in facts:
        facts["validate"] = _validating(type_name, facts.get("validate"))
        facts.setdefault("validate_update", _updating(type_name, facts["validate"], change))
    return KindStrategy(**facts)


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"stellwerk_cluster.{module}"), function)
    return found


def _validating(
    type_name: str, validate: Callable[[JsonObject], Iterable[FieldError]] | None
) -> Callable[[JsonObject], Iterable[FieldError]]:
    if not has_rules(type_name):
        return validate or (lambda _obj: ())
    if validate is None:
        return partial(declared_errors, type_name)
    return lambda obj: chain(declared_errors(type_name, obj), validate(obj))


def _updating(
    type_name: str,
    validate: Callable[[JsonObject], Iterable[FieldError]],
    change: Callable[[JsonObject, JsonObject], Iterable[FieldError]] | None,
) -> Callable[[JsonObject, JsonObject, str], Iterator[FieldError]]:
    def validate_update(new: JsonObject, old: JsonObject, subresource: str) -> Iterator[FieldError]:
        if subresource:
            return
        yield from validate(new)
        yield from change_errors(type_name, new, old)
        if change is not None:
            yield from change(new, old)

    return validate_update
