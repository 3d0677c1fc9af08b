"""Values of the wrong type in a body, in the words of the API server's two decoders.

Raised by the decoders of `schema` and quoted by the verbs. Invariant: the text of a mismatch names
the innermost struct, the field's path and the type that the API server's program has there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonValue

_JSON_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
_GO_KINDS: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "slice",
    dict: "map",
}
_CONVERTIBLE: Final = {
    "int": ("int", "float", "string"),
    "float": ("int", "float"),
    "str": ("string",),
    "bool": ("bool",),
}
"""Kinds to which Go's reflection converts values, whether or not JSON may."""
_POSITION: Final = re.compile(r"\[\d+\]")


def json_name(value: JsonValue) -> str:
    """The API's name for the JSON type of a value."""
    return _JSON_NAMES.get(type(value), "null")


class DecodeError(Exception):
    """A body that does not have the form of its kind; the text is what the API says about it."""

    @property
    def in_a_map(self) -> str:
        """The error of the decoder that reads maps, as a strategic merge leaves them, for JSON."""
        return str(self)


class MismatchError(DecodeError):
    """A value of the wrong type; the struct around it is filled in on the way out."""

    def __init__(self, value: JsonValue, path: str, go_type: str, kind: str) -> None:
        """`kind` is the sort of the Go type: string, int, float, bool, slice, map, struct, text.

        The last one is of types that read themselves, for which `go_type` is what they read.
        """
        super().__init__(path)
        self._value = value
        self._path = _POSITION.sub("", path)
        self._go_type = go_type
        self._kind = kind
        self.owner = ""

    def leave_out(self, entry: str, above: str) -> None:
        """Name the map in place of one of its entries, as Go does."""
        self._path = above + self._path.removeprefix(_POSITION.sub("", entry))

    @override
    def __str__(self) -> str:
        return (
            f"json: cannot unmarshal {self._found} into Go struct field {self.owner}.{self._path} "
            f"of type {self._go_type}"
        )

    @property
    def _found(self) -> str:
        name = json_name(self._value)
        into_number = self._kind in ("int", "float") or self._go_type == "int32"
        if name == "number" and into_number:
            return f"number {json.dumps(self._value)}"  # any size, where orjson ends at 64 bits
        return name

    @property
    @override
    def in_a_map(self) -> str:
        found = _GO_KINDS.get(type(self._value), "interface")
        if self._kind in ("slice", "map"):
            return f"cannot restore {self._kind} from {found}"
        if self._kind == "struct":
            return f"cannot restore struct from: {found}"
        if self._kind == "text":
            return f"json: cannot unmarshal {self._found} into Go value of type {self._go_type}"
        if self._kind in _CONVERTIBLE.get(type(self._value).__name__, ()):
            return f"cannot convert {found} to {self._go_type}"
        go_kind = {"int": self._go_type, "float": "float64"}.get(self._kind, self._kind)
        return f"unrecognized type: {go_kind}"
