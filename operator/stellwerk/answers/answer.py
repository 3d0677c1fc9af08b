"""The base of answers, and their codec: to JSON, from JSON, and as a JSON schema.

`explain` makes answers, `serving` writes them, clients of the port read them. Invariant: a field
with a default is absent from the JSON where it has the default, and any other is always there; its
docstring is its description in the OpenAPI document.
"""

import ast
import inspect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from stellwerk_kube.errors import SchedulerError

_MAX_ITEMS_PER_STEP: Final = 200
"""Items of a list that are written before other work goes on: a few milliseconds."""
_PLACE: Final = "#/components/schemas/{model}"

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A moment as RFC 3339, in UTC."""


class PortAnswer:
    """The base of answers and of their parts, which are frozen dataclasses."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)


Kind = TypeVar("Kind", bound=PortAnswer)


class MalformedAnswer(SchedulerError):  # noqa: N818 - named as the thing that happened
    """JSON that is not the answer that was asked for."""


class Codec(Generic[Kind]):
    """JSON of one kind of answer."""

    def __init__(self, kind: type[Kind]) -> None:
        self._adapter = TypeAdapter(kind)
        self._items: TypeAdapter[Any] | None = None
        """The adapter for a list's items, once a long one is written."""

    def as_bytes(self, answer: Kind) -> bytes:
        """The answer as JSON."""
        return self._adapter.dump_json(answer, by_alias=True, exclude_defaults=True)

    def in_steps(self, answer: Kind) -> Generator[None, None, bytes]:
        """The answer as JSON, a long list a few items at a time."""
        items: Sequence[Any] = getattr(answer, "items", ())
        if len(items) <= _MAX_ITEMS_PER_STEP:
            return self.as_bytes(answer)
        if self._items is None:
            kind_of_item: Any = type(items[0])
            self._items = TypeAdapter(Sequence[kind_of_item])
        pieces = []
        for begin in range(0, len(items), _MAX_ITEMS_PER_STEP):
            some = self._items.dump_json(
                items[begin : begin + _MAX_ITEMS_PER_STEP], by_alias=True, exclude_defaults=True
            )
            pieces.append(some[1:-1])
            yield
        rest: Any = replace(answer, items=())  # type: ignore[type-var]
        before, _, behind = self.as_bytes(rest).rpartition(b'"items":[')
        return before + b'"items":[' + b",".join(pieces) + behind

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
            text = (
                f"unexpected answer, perhaps of an operator of another version: {where}: "
                f"{first['msg']}"
            )
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
    for kind in _below(PortAnswer):
        fields = described.get(kind.__name__, {}).get("properties", {})
        for base in kind.__mro__[: kind.__mro__.index(PortAnswer)]:
            for name, text in _descriptions(base).items():
                fields.get(to_camel(name), {}).setdefault("description", text)
    return described


def _below(kind: type[PortAnswer]) -> Iterator[type[PortAnswer]]:
    """The classes that are made of a class, at whatever distance."""
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _descriptions(kind: type) -> dict[str, str]:
    """The docstring of each field that has one; read from the source, which takes a while."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 what else
    found = {}
    for field, text in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(description))):
                    found[field.target.id] = inspect.cleandoc(description)
                case _:
                    pass
    return found


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
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
