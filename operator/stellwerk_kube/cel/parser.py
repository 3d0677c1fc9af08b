"""From text to tree, by the grammar of the `cel-expr-python` package (cel-cpp).

Called by `environment`. The package gives its syntax tree only serialized, as the message
`cel.expr.ParsedExpr`, which protobuf reads here over a table of its fields; its own evaluator is
not used. Invariant: macros arrive as calls; only optMap and optFlatMap come expanded, as `Bind`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stellwerk_kube.cel.errors import CompileError, Issue, SyntaxIssues
from stellwerk_kube.cel.tree import (
    Bind,
    Call,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    Name,
    Node,
    Select,
)
from stellwerk_kube.cel.values import Uint

if TYPE_CHECKING:
    from collections.abc import Mapping


_Untyped: TypeAlias = Any
"""A message, or a thing of the parser: neither has types."""

LONGEST_TEXT: Final = 100_000
"""Characters of an expression; cel-go's limit."""

_PACKAGE: Final = "stellwerk_kube.cel.syntax"
_FIELDS: Final = {
    "ParsedExpr": "expr:2:Expr source_info:3:SourceInfo",
    "SourceInfo": "positions:4:Position*",
    "Position": "key:1:INT64 value:2:INT32",
    "Expr": (
        "id:2:INT64 const_expr:3:Constant ident_expr:4:Ident select_expr:5:Select "
        "call_expr:6:Call list_expr:7:CreateList struct_expr:8:CreateStruct "
        "comprehension_expr:9:Comprehension"
    ),
    "Constant": (
        "null_value:1:INT32 bool_value:2:BOOL int64_value:3:INT64 uint64_value:4:UINT64 "
        "double_value:5:DOUBLE string_value:6:STRING bytes_value:7:BYTES"
    ),
    "Ident": "name:1:STRING",
    "Select": "operand:1:Expr field:2:STRING",
    "Call": "target:1:Expr function:2:STRING args:3:Expr*",
    "CreateList": "elements:1:Expr* optional_indices:2:INT32*",
    "CreateStruct": "message_name:1:STRING entries:2:StructEntry*",
    "StructEntry": "map_key:3:Expr value:4:Expr optional_entry:5:BOOL",
    "Comprehension": "accu_var:3:STRING accu_init:4:Expr result:7:Expr",
}
"""The fields of cel/expr/syntax.proto that are read here: `name:number:type`, `*` if repeated."""

_ENVIRONMENT: Final = "name: parse\nstdlib:\n  disable_macros: true\n"


def parse(source: str) -> Node:
    """The tree of an expression.

    Raises:
        CompileError: it is no CEL, or longer or deeper than can be parsed.
    """
    if len(source) > LONGEST_TEXT:
        text = (
            f"expression code point size exceeds limit: size: {len(source)}, limit {LONGEST_TEXT}"
        )
        raise CompileError("", [Issue(0, text)])
    try:
        serialized = _grammar().compile(source, disable_check=True).serialize()
    except RuntimeError as error:
        raise _refused(source, str(error)) from None
    except UnicodeError:
        raise CompileError("", [Issue(0, "expression is not valid Unicode")]) from None
    any_message, parsed = _messages()
    any_message.Clear()
    any_message.ParseFromString(serialized)
    tree = parsed()
    tree.ParseFromString(any_message.value)
    return _Reader({each.key: each.value for each in tree.source_info.positions}).node(tree.expr)


def _refused(source: str, text: str) -> CompileError:
    _, _, text = text.partition(": ")
    text = text.rpartition(" [")[0]
    if "recursion" in text:
        return CompileError(source, [Issue(0, "expression recursion limit exceeded: 32")])
    return (
        SyntaxIssues(text) if text.startswith("ERROR") else CompileError(source, [Issue(0, text)])
    )


@cache
def _grammar() -> _Untyped:
    # The package is 14 MiB of machine code; only those who meet an expression load it.
    from cel_expr_python import cel  # noqa: PLC0415
    from cel_expr_python.ext.ext_optional import ExtOptional  # noqa: PLC0415

    config = cel.NewEnvConfigFromYaml(_ENVIRONMENT)
    return cel.NewEnv(config=config, extensions=[ExtOptional()])


@cache
def _messages() -> tuple[Any, _Untyped]:
    """A message that holds any other, and the class of ParsedExpr."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415
    from google.protobuf.any_pb2 import Any as AnyMessage  # noqa: PLC0415

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="stellwerk_kube/cel/syntax.proto", package=_PACKAGE, syntax="proto2"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for each in fields.split():
            name, number, kind = each.split(":")
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            field = described.field.add(name=name, number=int(number))
            field.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in _FIELDS:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = field_type.Type.Value(f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    parsed = pool.FindMessageTypeByName(f"{_PACKAGE}.ParsedExpr")
    return AnyMessage(), message_factory.GetMessageClass(parsed)


class _Reader:
    """Builds nodes from messages."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self._positions = positions

    def node(self, expr: _Untyped) -> Node:  # noqa: PLR0911  (one way out for each node)
        at = self._positions.get(expr.id, 0)
        if expr.HasField("const_expr"):
            return Literal(at, _constant(expr.const_expr))
        if expr.HasField("ident_expr"):
            return Name(at, expr.ident_expr.name)
        if expr.HasField("select_expr"):
            return Select(at, self.node(expr.select_expr.operand), expr.select_expr.field)
        if expr.HasField("call_expr"):
            return self._call(at, expr.call_expr)
        if expr.HasField("list_expr"):
            elements = tuple(self.node(each) for each in expr.list_expr.elements)
            return ListLiteral(at, elements, frozenset(expr.list_expr.optional_indices))
        if expr.HasField("struct_expr"):
            return self._map(at, expr.struct_expr)
        fold = expr.comprehension_expr
        return Bind(at, fold.accu_var, self.node(fold.accu_init), self.node(fold.result))

    def _call(self, at: int, call: _Untyped) -> Call:
        target = self.node(call.target) if call.HasField("target") else None
        return Call(at, call.function, target, tuple(self.node(each) for each in call.args))

    def _map(self, at: int, struct: _Untyped) -> Node:
        if struct.message_name:
            return MessageLiteral(at, struct.message_name)
        return MapLiteral(
            at,
            tuple(
                MapEntry(self.node(each.map_key), self.node(each.value), each.optional_entry)
                for each in struct.entries
            ),
        )


def _constant(constant: _Untyped) -> object:
    match constant.ListFields():
        case [(field, value)]:
            if field.name == "null_value":
                return None
            return Uint(value) if field.name == "uint64_value" else value
        case _:
            return None
