"""The types of a tree before it runs.

Called by `environment`. Gives the type of the result and the variables that are mentioned, or every
issue with its place, in cel-go's words. Invariant: what the checker passes fails at run time only
by its values, or where a type is dyn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel.compiler import TYPE_NAMES
from stellwerk_kube.cel.errors import CompileError, EvaluationError, Issue
from stellwerk_kube.cel.library.moments import parse_duration, parse_timestamp
from stellwerk_kube.cel.library.patterns import compiled_pattern
from stellwerk_kube.cel.macros import Fold, Loop, MacroError, Presence, expanded, qualified_name
from stellwerk_kube.cel.tree import (
    Bind,
    Call,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Name,
    Node,
    Select,
)
from stellwerk_kube.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    ObjectType,
    Type,
    Unifier,
    list_of,
    map_of,
    optional_of,
)
from stellwerk_kube.cel.values import Uint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stellwerk_kube.cel.signatures import Library

_LITERALS: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_STATIC_NAMES: Final = {
    "google.protobuf.Timestamp": Type("timestamp"),
    "google.protobuf.Duration": Type("duration"),
    "null_type": NULL,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "optional_type": optional_of(DYN),
}


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check."""

    result: Type
    variables: frozenset[str]


def check(source: str, tree: Node, variables: Mapping[str, Type], library: Library) -> Checked:
    """The type of an expression and the variables that it mentions.

    Raises:
        CompileError: its types do not fit, or it names what does not exist.
    """
    checker = _Checker(variables, library)
    result = checker.unifier.resolve(checker.type_of(tree, {}))
    if checker.issues:
        raise CompileError(source, checker.issues)
    return Checked(result, frozenset(checker.mentioned))


_Scope = dict[str, Type]


@dataclass(slots=True)
class _Checker:
    variables: Mapping[str, Type]
    library: Library
    unifier: Unifier = field(default_factory=Unifier)
    issues: list[Issue] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)

    def type_of(self, node: Node, scope: _Scope) -> Type:  # noqa: PLR0911  (one way out for each node)
        """The type of a node, in which macros around it have bound `scope`."""
        match node:
            case Literal():
                return _LITERALS[type(node.value)]
            case Name():
                return self._name(node, scope)
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListLiteral():
                return self._list(node, scope)
            case MapLiteral():
                return self._map(node, scope)
            case Bind():
                value = self.type_of(node.value, scope)
                return self.type_of(node.result, {**scope, node.name: value})
            case MessageLiteral():
                return self._undeclared(node.at, node.name)

    def _fail(self, at: int, text: str) -> Type:
        self.issues.append(Issue(at, text))
        return ERROR

    def _undeclared(self, at: int, name: str) -> Type:
        return self._fail(at, f"undeclared reference to '{name}' (in container '')")

    def _name(self, node: Name, scope: _Scope) -> Type:
        name = node.name.removeprefix(".")
        if name in scope and name == node.name:
            return scope[name]
        if name in self.variables:
            self.mentioned.add(name)
            return self.variables[name]
        if name in TYPE_NAMES:
            return Type("type", (_static_type(name),))
        return self._undeclared(node.at, node.name)

    def _select(self, node: Select, scope: _Scope) -> Type:
        name = qualified_name(node)
        if name in TYPE_NAMES and name.partition(".")[0] not in {**scope, **self.variables}:
            return Type("type", (_static_type(name),))
        return self._field(node.at, self.type_of(node.operand, scope), node.field)

    def _field(self, at: int, operand: Type, name: str, *, optional: bool = False) -> Type:
        operand = self.unifier.resolve(operand)
        if operand.name == "optional_type":
            (operand,), optional = operand.parameters, True
        if isinstance(operand, ObjectType):
            found = operand.fields.get(name)
            result = found if found is not None else self._fail(at, f"undefined field '{name}'")
        elif operand.name == "map":
            result = operand.parameters[1]
        else:
            if operand.name not in ("dyn", "!error!"):
                self._fail(at, f"type '{operand}' does not support field selection")
            result = DYN
        return optional_of(result) if optional else result

    def _call(self, node: Call, scope: _Scope) -> Type:  # noqa: PLR0911  (one way out for each form)
        try:
            macro = expanded(node)
        except MacroError as error:
            self.issues.append(error.issue)
            return ERROR
        match macro:
            case Loop():
                return self._loop(macro, scope)
            case Presence():
                operand = self.type_of(macro.select.operand, scope)
                self._field(macro.select.at, operand, macro.select.field)
                return BOOL
            case Bind():
                return self.type_of(macro, scope)
            case None:
                pass
        match node.function:
            case "_&&_" | "_||_":
                for each in node.arguments:
                    self._expect_bool(each, scope)
                return BOOL
            case "_?._":
                return self._optional_select(node, scope)
            case _:
                return self._function(node, scope)

    def _expect_bool(self, node: Node, scope: _Scope) -> None:
        found = self.type_of(node, scope)
        if not self.unifier.assignable(found, BOOL):
            shown = self.unifier.resolve(found)
            self._fail(node.at, f"expected type 'bool' but found '{shown}'")

    def _optional_select(self, node: Call, scope: _Scope) -> Type:
        operand, name = node.arguments
        found = self.type_of(operand, scope)
        if not isinstance(name, Literal) or not isinstance(name.value, str):
            return self._fail(name.at, "unsupported optional field selection")
        return self._field(node.at, found, name.value, optional=True)

    def _function(self, node: Call, scope: _Scope) -> Type:
        name, operands, member = node.function, node.arguments, node.target is not None
        if node.target is not None:
            prefix = qualified_name(node.target)
            if prefix is not None and self.library.find(f"{prefix}.{name}", member=False):
                name, member = f"{prefix}.{name}", False
            else:
                operands = node.operands
        found = [self.type_of(each, scope) for each in operands]
        if name == "_?_:_":
            return self._conditional(node, found)
        if member and name in ("or", "orValue") and len(found) == 2:  # noqa: PLR2004
            return self._alternative(node, found)
        self._check_literal(name, operands)
        return self._resolved(node.at, name, found, member=member)

    def _resolved(self, at: int, name: str, operands: list[Type], *, member: bool) -> Type:
        """The type of the overloads that fit; different ones make it dyn."""
        overloads = self.library.find(name, member=member)
        if not overloads and not self.library.find(name, member=not member):
            return self._undeclared(at, name)
        result: Type | None = None
        for each in overloads:
            if len(each.parameters) != len(operands):
                continue
            mark = self.unifier.mark()
            *wanted, given = self.unifier.fresh((*each.parameters, each.result))
            if all(map(self.unifier.assignable, operands, wanted)):
                given = self._outcome(given)
                result = given if result is None or result == given else DYN
            else:
                self.unifier.restore(mark)
        return result if result is not None else self._no_overload(at, name, operands, member)

    def _outcome(self, given: Type) -> Type:
        resolved = self.unifier.resolve(given)
        # A list whose elements are still open stays open.
        return given if "dyn" in str(resolved) else resolved

    def _no_overload(self, at: int, name: str, operands: list[Type], member: bool) -> Type:  # noqa: FBT001
        shown = [str(self.unifier.resolve(each)) for each in operands]
        applied = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return self._fail(at, f"found no matching overload for '{name}' applied to '{applied}'")

    def _conditional(self, node: Call, found: list[Type]) -> Type:
        condition, yes, no = found
        if self.unifier.assignable(condition, BOOL):
            if self.unifier.assignable(yes, no):
                return self._general(yes, no)
            if self.unifier.assignable(no, yes):
                return yes
        return self._no_overload(node.at, "_?_:_", found, member=False)

    def _general(self, one: Type, other: Type) -> Type:
        return DYN if self.unifier.resolve(one) == DYN else other

    def _alternative(self, node: Call, found: list[Type]) -> Type:
        optional, other = found
        element = self.unifier.variable()
        if self.unifier.assignable(optional, optional_of(element)):
            wanted = element if node.function == "orValue" else optional_of(element)
            if self.unifier.assignable(other, wanted):
                return wanted
        return self._no_overload(node.at, node.function, found, member=True)

    def _list(self, node: ListLiteral, scope: _Scope) -> Type:
        joined: Type | None = None
        for place, each in enumerate(node.elements):
            found = self._element(each, scope, optional=place in node.optional)
            joined = self._joined(each.at, joined, found)
        return list_of(joined if joined is not None else self.unifier.variable())

    def _map(self, node: MapLiteral, scope: _Scope) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for each in node.entries:
            keys = self._joined(each.key.at, keys, self.type_of(each.key, scope))
            value = self._element(each.value, scope, optional=each.optional)
            values = self._joined(each.value.at, values, value)
        return map_of(
            keys if keys is not None else self.unifier.variable(),
            values if values is not None else self.unifier.variable(),
        )

    def _element(self, node: Node, scope: _Scope, *, optional: bool) -> Type:
        found = self.type_of(node, scope)
        if not optional:
            return found
        found = self.unifier.resolve(found)
        if found.name == "optional_type":
            return found.parameters[0]
        if found.name not in ("dyn", "!error!"):
            text = f"expected type '{optional_of(found)}' but found '{found}'"
            return self._fail(node.at, text)
        return found

    def _joined(self, at: int, joined: Type | None, found: Type) -> Type:
        if joined is None:
            return found
        if self.unifier.assignable(joined, found):
            return DYN if DYN in (joined, found) else joined
        shown = (self.unifier.resolve(joined), self.unifier.resolve(found))
        return self._fail(at, f"expected type '{shown[0]}' but found '{shown[1]}'")

    def _loop(self, loop: Loop, scope: _Scope) -> Type:
        source = self.unifier.resolve(self.type_of(loop.source, scope))
        key, element = self._elements(loop, source)
        bound = (element,) if len(loop.variables) == 1 else (key, element)
        inner = {**scope, **dict(zip(loop.variables, bound, strict=True))}
        if loop.condition is not None:
            self._expect_bool(loop.condition, inner)
        if loop.fold in (Fold.ALL, Fold.EXISTS, Fold.EXISTS_ONE, Fold.FILTER):
            self._expect_bool(loop.body, inner)
            return list_of(element) if loop.fold is Fold.FILTER else BOOL
        body = self.type_of(loop.body, inner)
        if loop.fold is Fold.MAP:
            return list_of(body)
        if loop.fold is Fold.TRANSFORM_MAP:
            return map_of(key, body)
        if loop.fold is Fold.TRANSFORM_ENTRIES:
            return body
        keyed = [list_of(element), list_of(body)]
        return self._resolved(loop.at, "@sortByAssociatedKeys", keyed, member=True)

    def _elements(self, loop: Loop, source: Type) -> tuple[Type, Type]:
        """The types of a position or key, and of what one variable stands for, or the second."""
        if source.name == "list":
            return INT, source.parameters[0]
        if source.name == "map":
            key, value = source.parameters
            return key, value if len(loop.variables) > 1 else key
        if source.name in ("dyn", "!error!"):
            return DYN, DYN
        text = (
            f"expression of type '{source}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )
        self._fail(loop.source.at, text)
        return ERROR, ERROR

    def _check_literal(self, name: str, operands: tuple[Node, ...]) -> None:
        """Patterns, durations and timestamps that are literals must be valid ones."""
        validate = _VALIDATED.get(name)
        if validate is None or not operands:
            return
        last = operands[-1]
        if not isinstance(last, Literal) or not isinstance(last.value, str):
            return
        try:
            valid = validate(last.value) is not None
        except EvaluationError:
            valid = False
        if not valid:
            self._fail(last.at, f"invalid {name} argument")


_VALIDATED: Final[dict[str, Callable[[str], object]]] = {
    "matches": compiled_pattern,
    "duration": parse_duration,
    "timestamp": parse_timestamp,
}


def _static_type(name: str) -> Type:
    return _STATIC_NAMES.get(name) or Type(name)
