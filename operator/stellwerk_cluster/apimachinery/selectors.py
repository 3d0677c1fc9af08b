"""Label and field selectors of list, watch and deletecollection requests.

Parsed once per request, then asked for every object; what a requirement means is written in
`models.selectors`. Invariant: the texts of the errors are those of the API server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.models.json_values import JsonObject
from stellwerk.models.selectors import EVERYTHING, LabelSelector, Requirement, parse_integer
from stellwerk_cluster.apimachinery.failures import StatusError, bad_request
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, pick

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

Predicate: TypeAlias = Callable[[JsonObject], bool]

_WORD: Final = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")
_END: Final = ""
_OPERATORS: Final = {
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    "in": "In",
    "notin": "NotIn",
    ">": "Gt",
    "<": "Lt",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a request is about: a namespace, a label selector, field requirements."""

    namespace: str | None = None
    """None: all namespaces."""
    labels: LabelSelector = EVERYTHING
    fields: tuple[Predicate, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether no selector was given (the namespace is not one)."""
        return not self.labels.requirements and not self.fields

    def matches(self, obj: JsonObject) -> bool:
        """Whether the object is selected."""
        if self.namespace is not None and obj["metadata"].get("namespace", "") != self.namespace:
            return False
        return self.labels.matches(labels_of(obj)) and all(holds(obj) for holds in self.fields)


def parse_labels(text: str) -> LabelSelector:
    """A label selector as requests write it.

    Raises:
        StatusError: the text is no selector (400).
    """
    words = _Words(text)
    found: list[Requirement] = []
    while words.peek() != _END:
        found.append(_requirement(words))
        separator = words.take()
        if separator not in (",", _END):
            raise _parse_error(f"found '{separator}', expected: ',' or 'end of string'")
        if separator == "," and words.peek() == _END:
            raise _parse_error("found '', expected: identifier after ','")
    return LabelSelector(tuple(found))


class _Words:
    """The words of a selector, with a look at the next one."""

    def __init__(self, text: str) -> None:
        self._words = self._split(text)
        self._next = next(self._words, _END)

    @staticmethod
    def _split(text: str) -> Iterator[str]:
        text = text.strip()
        position = 0
        while position < len(text) and (match := _WORD.match(text, position)):
            yield match[1]
            position = match.end()

    def peek(self) -> str:
        return self._next

    def take(self) -> str:
        word, self._next = self._next, next(self._words, _END)
        return word


def _parse_error(detail: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {detail}")


def _requirement(words: _Words) -> Requirement:
    negated = words.peek() == "!"
    if negated:
        words.take()
    key = words.take()
    if key in ("=", "==", "!=", ",", "(", ")", "<", ">"):
        raise _parse_error(f"found '{key}', expected: !, identifier, or 'end of string'")
    if negated:
        return Requirement(key, "DoesNotExist")
    operator = words.peek()
    if operator in (",", _END):
        return Requirement(key, "Exists")
    words.take()
    if operator in ("in", "notin"):
        return Requirement(key, _OPERATORS[operator], _set_of_values(words))
    if operator not in _OPERATORS:
        raise _parse_error(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    return Requirement(key, _OPERATORS[operator], frozenset({_value(operator, words)}))


def _set_of_values(words: _Words) -> frozenset[str]:
    if words.take() != "(":
        raise _parse_error("found '', expected: '('")
    values: set[str] = set()
    while True:
        word = words.take()
        if word == ")":
            break
        values.add("" if word == "," else word)
        separator = words.take() if word != "," else ","
        if separator == ")":
            break
        if separator != ",":
            raise _parse_error(f"found '{separator}', expected: ',' or ')'")
    return frozenset(values)


def _value(operator: str, words: _Words) -> str:
    value = "" if words.peek() in (",", _END) else words.take()
    if operator in ("<", ">") and parse_integer(value) is None:
        raise _parse_error(
            f"for 'Gt', 'Lt' operators, the value must be an integer, found '{value}'"
        )
    return value


def parse_fields(
    text: str, kind: ResourceKind, prefix_of: Callable[[str], tuple[str, ...]]
) -> tuple[Predicate, ...]:
    """The requirements of a field selector; `prefix_of` says where a field lies in an object.

    Raises:
        StatusError: the text is no selector, or the kind has no such field label (400).
    """
    found: list[Predicate] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.match(r"([^=!]*)(!=|==|=)(.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])
        if name not in kind.fields:
            raise bad_request(f"field label not supported: {name}")
        found.append(_field_requirement(prefix_of(name), value, equal=operator != "!="))
    return tuple(found)


def _field_requirement(path: tuple[str, ...], value: str, *, equal: bool) -> Predicate:
    def holds(obj: JsonObject) -> bool:
        found = pick(obj, path)
        if found is None:
            # A missing boolean reads as "false", every other missing field as the empty text.
            return (value in ("", "false")) == equal
        shown = str(found).lower() if isinstance(found, bool) else str(found)
        return (shown == value) == equal

    return holds


def selector_text(selector: JsonObject, *, plain: bool = False) -> str:
    """A label selector as kubectl shows it."""
    labels = selector if plain else selector.get("matchLabels") or EMPTY
    parts = [f"{key}={value}" for key, value in sorted(labels.items())]
    for each in () if plain else selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(each.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[each["operator"]]
        )
    return ",".join(parts)
