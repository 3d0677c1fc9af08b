"""Optional values; a module of its own, as each of CEL's libraries is."""

from __future__ import annotations

from typing import Final

from stellwerk_kube.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import NONE, Duration, Optional, Timestamp, Value

OPTIONALS: Final = Library()


@OPTIONALS.function("optional.of", "(A) -> optional_type(A)")
def _of(value: Value) -> Optional:
    return Optional(value)


@OPTIONALS.function("optional.none", "() -> optional_type(A)")
def _none() -> Optional:
    return NONE


@OPTIONALS.function("optional.ofNonZeroValue", "(A) -> optional_type(A)")
def _of_non_zero(value: Value) -> Optional:
    if isinstance(value, (Duration, Timestamp)):
        empty = isinstance(value, Duration) and not value.nanos
    elif isinstance(value, Optional):
        empty = not value.present
    else:
        empty = not value
    return NONE if empty else Optional(value)


@OPTIONALS.function("value", ".(optional_type(A)) -> A")
def _value(optional: Optional) -> Value:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


@OPTIONALS.function("hasValue", ".(optional_type(A)) -> bool")
def _has_value(optional: Optional) -> bool:
    return optional.present


@OPTIONALS.function("first", ".(list(A)) -> optional_type(A)")
def _first(values: list[Value]) -> Optional:
    return Optional(values[0]) if values else NONE


@OPTIONALS.function("last", ".(list(A)) -> optional_type(A)")
def _last(values: list[Value]) -> Optional:
    return Optional(values[-1]) if values else NONE


@OPTIONALS.function("optional.unwrap", "(list(optional_type(A))) -> list(A)")
@OPTIONALS.function("unwrapOpt", ".(list(optional_type(A))) -> list(A)")
def _unwrap(values: list[Value]) -> list[Value]:
    if not all(isinstance(each, Optional) for each in values):
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return [each.value for each in values if each.present]
