"""Fields, keys and positions: `a.b`, `a[0]`, `a.?b`, `has(a.b)`.

Called by `compiler`. Invariant: a missing key is not the same as a key whose value is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel.comparison import contains, lookup_key
from stellwerk_kube.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from stellwerk_kube.cel.values import NONE, DefaultMap, Optional, Uint, type_name

if TYPE_CHECKING:
    from stellwerk_kube.cel.values import Value

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
    return index(container, field)


def has(container: Value, field: str) -> bool:
    """`has(container.field)`; what has no keys, such as a string, has no field.

    Raises:
        EvaluationError: the container is a list.
    """
    if type(container) is Optional:
        return container.present and has(container.value, field)
    if isinstance(container, list):
        raise EvaluationError(_wrong_position(field))
    return isinstance(container, DefaultMap) or (isinstance(container, dict) and field in container)


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
        if position is None:
            raise EvaluationError(_wrong_position(key))
        return container[position] if 0 <= position < len(container) else _MISSING
    return _MISSING


def _position(key: Value) -> int | None:
    if type(key) in (int, Uint):
        return int(key)
    if type(key) is float and key.is_integer():
        return int(key)
    return None


def _wrong_position(key: Value) -> str:
    if _position(key) is not None:
        return f"index out of bounds: {_shown(key)}"
    if type(key) is float:
        return f"unsupported index value {key} in list"
    return f"unsupported index type '{type_name(key)}' in list"


def _shown(key: Value) -> str:
    if type(key) is bool:
        return str(key).lower()
    if type(key) is float and key.is_integer():
        return str(int(key))
    return str(key)
