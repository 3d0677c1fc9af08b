"""Label and field selectors of list, watch and deletecollection requests.

Parsed once per request, then asked for every object; what a requirement means is written in
`models.selectors`. Invariant: the texts of the errors are those of the API server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from stellwerk.models.selectors import EVERYTHING, LabelSelector, Requirement, parse_integer
from stellwerk_cluster.apimachinery.failures import StatusError, bad_request, go_quoted
from stellwerk_cluster.apimachinery.kinds import METADATA_FIELDS
from stellwerk_cluster.apimachinery.objects import EMPTY, pick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import JsonValue, Key

Trigger: TypeAlias = tuple[str, str]
"""A field and the value that everything selected has there."""

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


_NAME: Final = ("metadata", "name")
_NAMESPACE: Final = ("metadata", "namespace")
_NODE_NAME: Final = ("spec", "nodeName")


class Selectable(Protocol):
    """A stored object, with the facts by which most selectors select it at hand."""

    __slots__ = ()

    key: Key
    """Namespace and name."""
    labels: dict[str, str]
    node_name: str
    """The text under spec.nodeName, or empty."""

    @property
    def obj(self) -> JsonObject:
        """The whole object, which may have to be parsed for it."""
        ...


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A value that a field has, or has not."""

    path: tuple[str, ...]
    value: str
    equal: bool = True

    def __call__(self, obj: JsonObject) -> bool:
        """Whether an object meets it."""
        return self._meets(pick(obj, self.path))

    def selects(self, entry: Selectable) -> bool:
        """Whether a stored object meets it; only for other fields than these it is parsed."""
        if self.path == _NODE_NAME:
            return self._meets(entry.node_name)
        if self.path == _NAME:
            return self._meets(entry.key[1])
        if self.path == _NAMESPACE:
            return self._meets(entry.key[0])
        return self(entry.obj)

    def _meets(self, found: JsonValue) -> bool:
        if found is None:
            # A missing boolean reads as "false", every other missing field as the empty text.
            return (self.value in ("", "false")) == self.equal
        shown = str(found).lower() if isinstance(found, bool) else str(found)
        return (shown == self.value) == self.equal


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a request is about: a namespace, a label selector, field requirements."""

    namespace: str | None = None
    """None: all namespaces."""
    labels: LabelSelector = EVERYTHING
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether no selector was given (the namespace is not one)."""
        return not self.labels.requirements and not self.fields

    @property
    def trigger(self) -> Trigger | None:
        """What everything selected has in common, and few other objects have; None: nothing."""
        wanted = {field.path: field.value for field in self.fields if field.equal}
        if wanted.get(_NODE_NAME):
            return "spec.nodeName", wanted[_NODE_NAME]
        if _NAME in wanted:
            return "metadata.name", wanted[_NAME]
        return None if self.namespace is None else ("metadata.namespace", self.namespace)

    def selects(self, entry: Selectable) -> bool:
        """Whether a stored object is selected."""
        if self.namespace is not None and entry.key[0] != self.namespace:
            return False
        if self.labels.requirements and not self.labels.matches(entry.labels):
            return False
        return all(field.selects(entry) for field in self.fields)


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
) -> tuple[FieldRequirement, ...]:
    """The requirements of a field selector; `prefix_of` says where a field lies in an object.

    Raises:
        StatusError: the text is no selector, or the kind has no such field label (400).
    """
    found: list[FieldRequirement] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.match(r"([^=!]*)(!=|==|=)(.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])
        if name not in kind.fields:
            raise bad_request(_unknown_field(name, kind))
        found.append(FieldRequirement(prefix_of(name), value, equal=operator != "!="))
    return tuple(found)


def _unknown_field(name: str, kind: ResourceKind) -> str:
    """What the API says of a field; it has other words where a kind adds none of its own."""
    if kind.custom or kind.fields != METADATA_FIELDS:
        return f"field label not supported: {name}"
    known = ", ".join(go_quoted(each) for each in METADATA_FIELDS)
    return f"{go_quoted(name)} is not a known field selector: only {known}"


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
