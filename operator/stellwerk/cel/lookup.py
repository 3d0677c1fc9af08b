"""Fields, keys and positions: `a.b`, `a[0]`, `a.?b`, `has(a.b)`.

Called by `compiler`. Invariant: a missing key is told from a key whose value is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.cel.comparison import contains, lookup_key
from stellwerk.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from stellwerk.cel.values import NONE, DefaultMap, Optional, Uint

if TYPE_CHECKING:
    from stellwerk.cel.values import Value

_MISSING: Final = object()


def select(container: Value, field: str) -> Value:
    """`container.field`.

    Raises:
        EvaluationError: there is no such key.
    """
    if type(container) is dict:
        try:
            return container[field]
        except KeyError:
            raise EvaluationError(f"no such key: {field}") from None
    if type(container) is Optional:
        return optional_index(container, field)
    found = _find(container, field)
    if found is _MISSING:
        raise EvaluationError(f"no such key: {field}")
    return found


def has(container: Value, field: str) -> bool:
    """`has(container.field)`.

    Raises:
        EvaluationError: the container has no keys.
    """
    if type(container) is Optional:
        return container.present and has(container.value, field)
    if not isinstance(container, dict):
        raise EvaluationError(f"no such key: {field}")
    return field in container or isinstance(container, DefaultMap)


def index(container: Value, key: Value) -> Value:
    """`container[key]`.

    Raises:
        EvaluationError: there is no such key or position.
    """
    if type(container) is Optional:
        return optional_index(container, key)
    found = _find(container, key)
    if found is not _MISSING:
        return found
    if isinstance(container, list):
        raise EvaluationError(_wrong_position(key))
    raise EvaluationError(f"no such key: {_shown(key)}")


def optional_index(container: Value, key: Value) -> Optional:
    """`container.?key` and `container[?key]`: the value, or none."""
    if type(container) is Optional:
        if not container.present:
            return NONE
        container = container.value
    if not isinstance(container, (dict, list)):
        raise EvaluationError(NO_SUCH_OVERLOAD)
    found = _find(container, key)
    return NONE if found is _MISSING else Optional(found)


def contained(element: Value, container: Value) -> bool:
    """`element in container`."""
    if isinstance(container, list):
        return contains(container, element)
    if isinstance(container, dict):
        return lookup_key(container, element) is not None
    raise EvaluationError(NO_SUCH_OVERLOAD)


def _find(container: Value, key: Value) -> Value:
    if isinstance(container, dict):
        found = lookup_key(container, key)
        if found is not None:
            return container[found[0]]
        return {} if isinstance(container, DefaultMap) else _MISSING
    if isinstance(container, list):
        position = _position(key)
        return container[position] if 0 <= position < len(container) else _MISSING
    return _MISSING


def _position(key: Value) -> int:
    if type(key) in (int, Uint):
        return int(key)
    if type(key) is float and key.is_integer():
        return int(key)
    return -1


def _wrong_position(key: Value) -> str:
    if type(key) in (int, Uint, float):
        return f"index out of bounds: {_shown(key)}"
    return f"unsupported index value {_shown(key)} in list"


def _shown(key: Value) -> str:
    if type(key) is bool:
        return str(key).lower()
    if type(key) is float and key.is_integer():
        return str(int(key))
    return str(key)
