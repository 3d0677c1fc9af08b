"""The values of expressions.

Python's own types stand for CEL's where they can: int, float (double), str, bytes, bool, None, list
and dict. The rest is here. Everything that evaluates uses it. Invariant: values are immutable by
convention; an int lies within 64 bits, signed, and a `Uint` within 64 bits, unsigned.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, TypeAlias

from typing_extensions import override

from stellwerk_kube.cel.errors import EvaluationError

Value: TypeAlias = Any
"""A CEL value."""

MIN_INT: Final = -(1 << 63)
"""The lowest `int` of CEL, which has 64 bits."""
MAX_INT: Final = (1 << 63) - 1
"""The highest `int` of CEL."""
MAX_UINT: Final = (1 << 64) - 1
"""The highest `uint` of CEL."""
NANOS_PER_SECOND: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_TIME_SECONDS: Final = -62135596800
"""The beginning of the year 1, in seconds since 1970: the first time that a timestamp may have."""
_MAX_TIME_SECONDS: Final = 253402300799
"""The last second of the year 9999: the last time that a timestamp may have."""


class Uint(int):
    """An unsigned integer: `1u`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment, in nanoseconds since 1970."""

    nanos: int

    def __post_init__(self) -> None:
        """Refuse what lies outside the years 1 to 9999."""
        if not _MIN_TIME_SECONDS <= self.nanos // NANOS_PER_SECOND <= _MAX_TIME_SECONDS:
            raise EvaluationError("timestamp overflow")

    def moment(self) -> datetime:
        """The whole seconds, in UTC."""
        return _EPOCH + timedelta(seconds=self.nanos // NANOS_PER_SECOND)

    @override
    def __str__(self) -> str:
        fraction = f".{self.nanos % NANOS_PER_SECOND:09d}".rstrip("0").rstrip(".")
        return f"{self.moment():%Y-%m-%dT%H:%M:%S}".zfill(19) + f"{fraction}Z"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time, in nanoseconds."""

    nanos: int

    def __post_init__(self) -> None:
        """Refuse what 64 bits of nanoseconds cannot hold."""
        if not MIN_INT <= self.nanos <= MAX_INT:
            raise EvaluationError("duration overflow")

    @override
    def __str__(self) -> str:
        seconds, rest = divmod(abs(self.nanos), NANOS_PER_SECOND)
        fraction = f".{rest:09d}".rstrip("0").rstrip(".")
        return f"{'-' if self.nanos < 0 else ''}{seconds}{fraction}s"


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent; `NONE` is the absent one."""

    value: Value
    present: bool = True


NONE: Final = Optional(None, present=False)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: what `type(1)` gives and `int` names."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


class OpaqueValue:
    """A value of a type that CEL itself does not have, such as a quantity.

    Classes derive from it, name their type, and say what equality means.
    """

    __slots__ = ()
    type_name: ClassVar[str]


class SetList(list[Value]):
    """A list with `x-kubernetes-list-type: set`: its order does not count."""

    __slots__ = ()


class MapList(list[Value]):
    """A list with `x-kubernetes-list-type: map`: elements have keys, their order does not count."""

    __slots__ = ("keys",)

    def __init__(self, elements: list[Value], keys: tuple[str, ...]) -> None:
        """Hold the elements, told apart by the fields `keys`."""
        super().__init__(elements)
        self.keys = keys

    def key(self, element: Value) -> tuple[Value, ...]:
        """The key that equal elements share."""
        return tuple(element.get(name) for name in self.keys)


class DefaultMap(dict[Value, Value]):
    """A map whose missing keys read as an empty map; `in`, size and macros do not see them."""

    __slots__ = ()


_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    tuple: "list",
    SetList: "list",
    MapList: "list",
    dict: "map",
    DefaultMap: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
}


def type_name(value: Value) -> str:
    """The name of the CEL type of a value."""
    name = _NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, OpaqueValue):
        return value.type_name
    raise EvaluationError(f"unsupported conversion to ref.Val: ({type(value).__name__}){value}")


def checked_int(value: int) -> int:
    """The value, if an int can hold it.

    Raises:
        EvaluationError: it cannot.
    """
    if MIN_INT <= value <= MAX_INT:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> Uint:
    """The value as a uint.

    Raises:
        EvaluationError: it is negative or too large.
    """
    if 0 <= value <= MAX_UINT:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def size_of(value: Value) -> int:
    """The size that costs are reckoned by: elements, characters or bytes; otherwise 1."""
    if isinstance(value, (str, bytes, list, dict, tuple)):
        return len(value)
    if isinstance(value, Optional) and value.present:
        return size_of(value.value)
    return 1
