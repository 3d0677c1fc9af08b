"""The base of answers, and their codec: to JSON, from JSON, and as a JSON schema.

`explain` makes answers, `serving` writes them, clients of the port read them. Invariant: a field
with a default is absent from the JSON where it has the default, and any other is always there; its
docstring is its description in the OpenAPI document.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from stellwerk.errors import SchedulerError

_PLACE: Final = "#/components/schemas/{model}"

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A moment as RFC 3339, in UTC."""


class PortAnswer:
    """The base of answers and of their parts, which are frozen dataclasses."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(
        alias_generator=to_camel, use_attribute_docstrings=True
    )


Kind = TypeVar("Kind", bound=PortAnswer)


class MalformedAnswer(SchedulerError):  # noqa: N818 - named as the thing that happened
    """JSON that is not the answer that was asked for."""


class Codec(Generic[Kind]):
    """JSON of one kind of answer."""

    def __init__(self, kind: type[Kind]) -> None:
        self._adapter = TypeAdapter(kind)

    def as_bytes(self, answer: Kind) -> bytes:
        """The answer as JSON."""
        return self._adapter.dump_json(answer, by_alias=True, exclude_defaults=True)

    def as_json(self, answer: Kind) -> dict[str, Any]:
        """The answer as an object of JSON."""
        written: dict[str, Any] = self._adapter.dump_python(
            answer, mode="json", by_alias=True, exclude_defaults=True
        )
        return written

    def read(self, written: Mapping[str, Any]) -> Kind:
        """An answer of an operator, which may be a newer one: unknown fields are passed over.

        Raises:
            MalformedAnswer: it is another kind of answer.
        """
        try:
            return self._adapter.validate_python(written)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            text = f"this is no answer of an operator that is known here: {where}: {first['msg']}"
            raise MalformedAnswer(text) from error


_codecs: Final[dict[object, Codec[Any]]] = {}


def codec(kind: type[Kind]) -> Codec[Kind]:
    """The codec of a kind, made when it is first asked for: making one takes milliseconds."""
    made: Codec[Kind] | None = _codecs.get(kind)
    if made is None:
        made = _codecs[kind] = Codec(kind)
    return made


def schemas(kinds: Iterable[type[PortAnswer]]) -> dict[str, Any]:
    """The JSON schemas of some kinds and of what they consist of, by the names of their classes."""
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (kind.__name__, "serialization", TypeAdapter(kind)) for kind in kinds
    ]
    _, found = TypeAdapter.json_schemas(
        inputs, by_alias=True, ref_template=_PLACE, schema_generator=_OpenApi
    )
    described: dict[str, Any] = found["$defs"]
    return described


class _OpenApi(GenerateJsonSchema):
    """Schemas in the dialect of OpenAPI 3.0, where what has a default is absent or not null."""

    @override
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        return inner if "$ref" in inner else {**inner, "nullable": True}

    @override
    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        if schema.get("default") is not None:
            return inner
        return {key: value for key, value in inner.items() if key != "nullable"}

    @override
    def get_title_from_name(self, name: str) -> str:
        return ""
