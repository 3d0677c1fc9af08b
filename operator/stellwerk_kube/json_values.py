"""Objects of the API as parsed JSON, and the types that parsers insist on in them.

The parsers of pods, nodes and selectors ask for every value that becomes a key, a name or a number
of ours. Invariant: a value that is not of the type the API promises is a TypeError while its object
is parsed, where it costs that object, and never later, where it would cost a scheduling cycle.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""Any JSON value: schemas check it when it comes in, not the type checker."""
JsonObject: TypeAlias = dict[str, Any]
"""An object as the API sends it; parsers do not change it."""


def text(value: object) -> str:
    """The value, which must be a string.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r:.80} is not a string")


def text_or_empty(value: object) -> str:
    """The value, which must be a string; null is empty.

    Raises:
        TypeError: it is neither.
    """
    return "" if value is None else text(value)


def texts(values: Iterable[object] | None) -> tuple[str, ...]:
    """A list of strings; null is empty.

    Raises:
        TypeError: it is none.
    """
    return tuple(map(text, values or ()))


def text_map(value: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Labels, annotations and the like; null is empty.

    Raises:
        TypeError: it is no object, or one of its values is no string.
    """
    if not value:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.80} is not an object")
    for item in value.values():
        text(item)
    return value


def whole_number(value: object) -> int:
    """The value, which must be an integer.

    Raises:
        TypeError: it is none.
    """
    # True and False are integers to Python.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r:.80} is not an integer")


def number_or_none(value: object) -> int | None:
    """The value, which must be an integer or null.

    Raises:
        TypeError: it is neither.
    """
    return None if value is None else whole_number(value)


def packed(text: bytes) -> bytes:
    """The text in no more memory than it needs, to be kept.

    What orjson gives holds on to the 4 KB of the buffer that it was written into.
    """
    return bytes(memoryview(text))


def without_nulls(value: Any) -> Any:  # noqa: ANN401 any JSON
    """JSON without null members, which a merge patch cannot write; models read null as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
