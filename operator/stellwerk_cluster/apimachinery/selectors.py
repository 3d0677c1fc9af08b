"""The selection of list, watch and deletecollection requests: labels, fields, a namespace.

Parsed once per request, then asked for every object; what a requirement means is written in
`stellwerk_kube.selectors`. Invariant: the texts of the errors are those of the API server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from stellwerk_cluster.apimachinery.failures import StatusError, bad_request, bad_value
from stellwerk_cluster.apimachinery.names import label_value_errors, qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY, pick
from stellwerk_kube.label_selectors import (
    COMPARISONS,
    LabelSelectorError,
    RequirementCheck,
    parse_selector_text,
)
from stellwerk_kube.selectors import EVERYTHING, LabelSelector, parse_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stellwerk_cluster.apimachinery.failures import FieldError
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_kube.json_values import JsonObject, JsonValue

Trigger: TypeAlias = tuple[str, str]
"""A field and the value that everything selected has there."""

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
class FieldSelectorRequirement:
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
    fields: tuple[FieldSelectorRequirement, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether no selector was given (the namespace is not one)."""
        return not self.labels.requirements and not self.fields

    @property
    def trigger(self) -> Trigger | None:
        """The value that everything selected has in common, and few other objects have, or None."""
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
    """The label selector that a text is.

    Raises:
        StatusError: it is none (400).
    """
    try:
        return parse_selector_text(text, _CHECK)
    except LabelSelectorError as error:
        raise bad_request(str(error)) from None


def _key_errors(key: str) -> Iterator[str]:
    if errors := qualified_name_errors(key):
        yield _text(bad_value("<nil>", key, "; ".join(errors)))


def _value_errors(key: str, operator: str, values: Sequence[str]) -> Iterator[str]:
    if not values:
        text = "for 'in', 'notin' operators, values set can't be empty"
        yield _text(bad_value("values", values, text))
    for position, value in enumerate(values):
        if operator in COMPARISONS and parse_integer(value) is None:
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield _text(bad_value(f"values[{position}]", value, text))
    for position, value in enumerate(values):
        if errors := label_value_errors(value):
            yield _text(bad_value(f"values[{position}][{key}]", value, "; ".join(errors)))


def _text(error: FieldError) -> str:
    return f"{error.field}: {error.message}"


_CHECK: Final = RequirementCheck(_key_errors, _value_errors)


def parse_fields(
    text: str, kind: ResourceKind, prefix_of: Callable[[str], tuple[str, ...]]
) -> tuple[FieldSelectorRequirement, ...]:
    """The requirements of a field selector; `prefix_of` says where a field lies in an object.

    Raises:
        StatusError: the text is no selector, or the kind has no such field label (400).
    """
    found: list[FieldSelectorRequirement] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.match(r"([^=!]*)(!=|==|=)(.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = match[1], match[2], _unescaped(match[3])
        if name not in kind.fields:
            raise _unknown_field(kind, name)
        found.append(FieldSelectorRequirement(prefix_of(name), value, equal=operator != "!="))
    return tuple(found)


_OTHERWISE_KNOWN: Final = frozenset(
    (
        ("", "Pod"),
        ("", "Node"),
        ("", "ReplicationController"),
        ("", "Event"),
        ("", "Namespace"),
        ("", "Secret"),
        ("", "Service"),
        ("events.k8s.io", "Event"),
        ("resource.k8s.io", "ResourceSlice"),
    )
)
"""Kinds with a list of field labels of their own in the API server."""


def _unknown_field(kind: ResourceKind, name: str) -> StatusError:
    if kind.custom or (kind.group, kind.kind) in _OTHERWISE_KNOWN:
        return bad_request(f"field label not supported: {name}")
    if kind.group == "batch":
        return bad_request(f'field label "{name}" not supported for {kind.kind}')
    return bad_request(
        f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


def _unescaped(text: str) -> str:
    """A value without the backslashes before commas, equals signs and backslashes.

    Raises:
        StatusError: a backslash stands before something else, or an equals sign alone (400).
    """
    found = []
    parts = iter(text)
    for each in parts:
        following = next(parts, "") if each == "\\" else ""
        if each == "\\" and following not in ("\\", ",", "="):
            raise bad_request(f"invalid field selector: invalid escape sequence: \\{following}")
        if each == "=":
            message = "invalid field selector: unescaped character in value: ="
            raise bad_request(message)
        found.append(following or each)
    return "".join(found)


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
