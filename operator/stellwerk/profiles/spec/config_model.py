"""The base of every model that a user writes: strict JSON types, camelCase, errors with a path.

SchedulerProfile, its plugin arguments and the arguments of out-of-tree plugins build on
`ConfigModel`; `profile_error` turns what pydantic finds into a ProfileError. Invariant: an error
names the field by its path in the object the user wrote.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema
from typing_extensions import override

from stellwerk_kube.destinations import without_user
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.names import is_qualified_name, parse_duration, suggestion

T = TypeVar("T")

Items = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list in the object, an immutable tuple in the model."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

MAX_SHOWN_ERRORS: Final = 5
"""Errors of one object that a message lists. Beyond it only their number is given."""
_STEP: Final = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")


class Secret(Generic[T]):
    """A credential that a user wrote; what is printed or dumped of it shows nothing of it."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """The credential itself, for the one who is to be shown it."""
        return self._value

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._value)

    @override
    def __repr__(self) -> str:
        return _HIDDEN

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    @override
    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Checked as what it wraps, and written as stars."""
        (inner,) = get_args(source)
        return core_schema.no_info_after_validator_function(
            cls,
            handler.generate_schema(inner),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda _: _HIDDEN),
        )


_HIDDEN: Final = "***"


class ConfigModel(BaseModel):
    """A piece of configuration as a user writes it."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        defer_build=True,  # most of them are of plugins that no profile names
    )

    @model_validator(mode="before")
    @classmethod
    def _only_known_fields(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the user wrote
        """Refuse a misspelt field by name, and read null as absent, as kube-scheduler does."""
        if not isinstance(value, Mapping):
            return value
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in value:
            if key not in known:
                hint = suggestion(str(key), known)
                raise invalid(str(key), f"unknown field{hint}")
        return {key: item for key, item in value.items() if item is not None}


def invalid(field: str, message: str) -> PydanticCustomError:
    """Return the error for a field below the model whose validator raises it."""
    return PydanticCustomError("invalid", "{message}", {"field": field, "message": message})


def _qualified_name(value: str) -> str:
    if not is_qualified_name(value):
        raise invalid("", f'"{value}" is not a qualified name such as "cpu" or "example.com/gpu"')
    return value


def _duration(value: str) -> str:
    try:
        parse_duration(value)
    except ValueError as error:
        raise invalid("", str(error)) from error
    return value


QualifiedName = Annotated[str, AfterValidator(_qualified_name)]
"""A label key or resource name."""

Duration = Annotated[
    str,
    AfterValidator(_duration),
    Field(
        max_length=64,
        json_schema_extra={"pattern": r"^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$"},
    ),
]
"""A duration in Go's notation, kept as the text the user wrote."""


def profile_error(error: ValidationError, path: str) -> ProfileError:
    """Return a ProfileError for what pydantic found under `path`: all of it, first field first."""
    found = problems(error)
    (first, message), *others = found[:MAX_SHOWN_ERRORS]
    texts = [message, *(f"{field_path(path, where)}: {other}" for where, other in others)]
    if len(found) > MAX_SHOWN_ERRORS:
        texts.append(f"and {len(found) - MAX_SHOWN_ERRORS} more")
    return ProfileError(field_path(path, first), "; ".join(texts))


def problems(error: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the place of each of pydantic's findings below the model, and what is wrong there."""
    found = []
    for detail in error.errors(include_url=False):
        context: Mapping[str, Any] = detail.get("ctx") or {}
        below = str(context.get("field", "")) if detail["type"] == "invalid" else ""
        found.append(((*detail["loc"], *_steps(below)), _message(detail, context)))
    return found


def field_path(path: str, location: Sequence[int | str]) -> str:
    """Return the path of a place below another."""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "[key]":
            path += f".{step}"
    return path


def _steps(field: str) -> tuple[int | str, ...]:
    """Return the steps of a path such as `resources[0].name`."""
    if "[" not in field:
        return (field,) if field else ()
    return tuple(int(number) if number else name for number, name in _STEP.findall(field))


_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "required",
    "int_type": "must be an integer",
    "int_parsing_size": "is too large",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "mapping_type": "must be an object",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_long": "must have at most {max_length} items",
    "too_short": "must have at least {min_length} items",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
}


def _message(detail: ErrorDetails, context: Mapping[str, Any]) -> str:
    """Return pydantic's finding in the words of this project, with the value where it is short."""
    text = _MESSAGES.get(detail["type"])
    if text is None:
        return detail["msg"]
    given = detail["input"]
    shown = f", not {given!r}" if isinstance(given, (int, float, str)) and given != "" else ""
    return text.format_map(context) + (shown if detail["type"] != "missing" else "")


WeightField = Annotated[int, Field(ge=0, le=INT32_MAX)]
"""A weight as kube-scheduler reads it: an int32, where 0 means unset."""


def inline_credentials(value: object, path: str) -> Iterator[str]:
    """The fields below a model in which credentials stand, as a user wrote them."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from inline_credentials(getattr(value, name), f"{path}.{field.alias or name}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from inline_credentials(each, f"{path}[{index}]")
    elif isinstance(value, Secret):
        text = value.reveal()
        if text and (not str(text).startswith(("http://", "https://")) or _has_user(text)):
            yield path
    elif isinstance(value, str) and _has_user(value):
        yield path


def _has_user(text: object) -> bool:
    return without_user(str(text)) != text
