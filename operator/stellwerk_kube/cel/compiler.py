"""From tree to closures: what an expression computes.

Called by `environment` with a tree that the checker has passed. A closure takes a `Frame` and
returns a value. Invariant: the values of variables are never changed, and each step charges its
cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk_kube.cel import cost, lookup
from stellwerk_kube.cel.errors import (
    NO_SUCH_OVERLOAD,
    CompileError,
    EvaluationError,
    Issue,
)
from stellwerk_kube.cel.loops import decided, loop_closure
from stellwerk_kube.cel.macros import Loop, MacroError, Presence, expanded, qualified_name
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
from stellwerk_kube.cel.values import Optional, TypeValue, Uint, Value, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.cel.cost import Frame
    from stellwerk_kube.cel.signatures import Library, Overload

Closure: TypeAlias = "Callable[[Frame], Value]"

TYPE_NAMES: Final = {
    **{
        name: TypeValue(name)
        for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "type")
    },
    "null_type": TypeValue("null_type"),
    "optional_type": TypeValue("optional_type"),
    "google.protobuf.Timestamp": TypeValue("google.protobuf.Timestamp"),
    "google.protobuf.Duration": TypeValue("google.protobuf.Duration"),
    "net.IP": TypeValue("net.IP"),
    "net.CIDR": TypeValue("net.CIDR"),
    "kubernetes.Quantity": TypeValue("kubernetes.Quantity"),
    "kubernetes.Semver": TypeValue("kubernetes.Semver"),
    "kubernetes.URL": TypeValue("kubernetes.URL"),
    "kubernetes.NamedFormat": TypeValue("kubernetes.NamedFormat"),
}
"""Types as values, by the names that expressions give them."""

_RUNTIME_NAMES: Final = {
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "null": "null_type",
}
_MISSING: Final = object()


def compiled(tree: Node, library: Library) -> Closure:
    """The function that computes a tree.

    Raises:
        CompileError: a macro is used in a form that it does not have.
    """
    return _Compiler(library).closure(tree, frozenset())


class _Compiler:
    def __init__(self, library: Library) -> None:
        self._library = library

    def closure(self, node: Node, local: frozenset[str]) -> Closure:  # noqa: PLR0911  (one way out for each node)
        """The function that computes a node; `local`: the variables that macros around it bind."""
        match node:
            case Literal():
                value = node.value
                return lambda _frame: value
            case Name():
                return _variable(node.name)
            case Select():
                return self._select(node, local)
            case Call():
                return self._call(node, local)
            case ListLiteral():
                return self._list(node, local)
            case MapLiteral():
                return self._map(node, local)
            case Bind():
                return self._bind(node, local)
            case MessageLiteral():
                issue = Issue(node.at, f"undeclared reference to '{node.name}' (in container '')")
                raise CompileError("", [issue])

    def _select(self, node: Select, local: frozenset[str]) -> Closure:
        name = qualified_name(node)
        if name in TYPE_NAMES and name.partition(".")[0] not in local:
            value = TYPE_NAMES[name]
            return lambda _frame: value
        operand, field, select = self.closure(node.operand, local), node.field, lookup.select

        def selected(frame: Frame) -> Value:
            container = operand(frame)
            frame.charge(1)
            return select(container, field)

        return selected

    def _presence(self, node: Select, local: frozenset[str]) -> Closure:
        operand, field, has = self.closure(node.operand, local), node.field, lookup.has
        return lambda frame: has(operand(frame), field)

    def _call(self, node: Call, local: frozenset[str]) -> Closure:  # noqa: PLR0911  (one way out for each form)
        try:
            macro = expanded(node)
        except MacroError as error:
            raise CompileError("", [error.issue]) from None
        match macro:
            case Loop():
                return loop_closure(macro, self._library, self.closure, local)
            case Presence():
                return self._presence(macro.select, local)
            case Bind():
                return self._bind(macro, local)
            case None:
                pass
        match node.function:
            case "_&&_" | "_||_":
                return self._logic(node, local, decisive=node.function == "_||_")
            case "_?_:_":
                return self._conditional(node, local)
            case "_?._":
                return self._optional_select(node, local)
            case "or" | "orValue" if node.target is not None and len(node.arguments) == 1:
                return self._alternative(node, local)
            case _:
                return self._function(node, local)

    def _function(self, node: Call, local: frozenset[str]) -> Closure:
        prefix = qualified_name(node.target) if node.target is not None else None
        if prefix is not None and prefix.partition(".")[0] not in local:
            name = f"{prefix}.{node.function}"
            overloads = self._library.find(name, member=False)
            if overloads:
                return _dispatched(name, overloads, self._closures(node.arguments, local))
        overloads = self._library.find(node.function, member=node.target is not None)
        if not overloads:
            return _failing(f"no such overload: {node.function}")
        return _dispatched(node.function, overloads, self._closures(node.operands, local))

    def _closures(self, nodes: tuple[Node, ...], local: frozenset[str]) -> list[Closure]:
        return [self.closure(each, local) for each in nodes]

    def _logic(self, node: Call, local: frozenset[str], *, decisive: bool) -> Closure:
        """`&&` and `||`: the decisive value decides, even if the other side fails."""
        sides = self._closures(node.arguments, local)
        return lambda frame: decided(frame, sides, decisive)

    def _conditional(self, node: Call, local: frozenset[str]) -> Closure:
        condition, yes, no = self._closures(node.arguments, local)

        def conditional(frame: Frame) -> Value:
            verdict = condition(frame)
            if verdict is True:
                return yes(frame)
            if verdict is False:
                return no(frame)
            raise EvaluationError(NO_SUCH_OVERLOAD)

        return conditional

    def _optional_select(self, node: Call, local: frozenset[str]) -> Closure:
        operand, field = self._closures(node.arguments, local)

        def selected(frame: Frame) -> Value:
            frame.charge(1)
            return lookup.optional_index(operand(frame), field(frame))

        return selected

    def _alternative(self, node: Call, local: frozenset[str]) -> Closure:
        """`a.or(b)` and `a.orValue(b)`: the other side is computed only when it is needed."""
        first, other = self._closures(node.operands, local)
        unwraps = node.function == "orValue"

        def alternative(frame: Frame) -> Value:
            value = first(frame)
            if type(value) is not Optional:
                raise EvaluationError(NO_SUCH_OVERLOAD)
            frame.charge(1)
            if value.present:
                return value.value if unwraps else value
            return other(frame)

        return alternative

    def _list(self, node: ListLiteral, local: frozenset[str]) -> Closure:
        elements = [
            (self.closure(each, local), place in node.optional)
            for place, each in enumerate(node.elements)
        ]

        def listed(frame: Frame) -> Value:
            result: list[Value] = []
            for element, optional in elements:
                value = element(frame)
                if not optional:
                    result.append(value)
                elif type(value) is not Optional:
                    text = "cannot initialize optional list element from non-optional value "
                    raise EvaluationError(f"{text}{value}")
                elif value.present:
                    result.append(value.value)
            frame.charge(cost.LIST_COST)
            return result

        return listed

    def _map(self, node: MapLiteral, local: frozenset[str]) -> Closure:
        entries = [
            (self.closure(each.key, local), self.closure(each.value, local), each.optional)
            for each in node.entries
        ]

        def mapped(frame: Frame) -> Value:
            result: dict[Value, Value] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(frame), value_of(frame)
                if type(key) not in (str, int, Uint, bool):
                    raise EvaluationError(f"unsupported key type: {type_name(key)}")
                if not optional:
                    result[key] = value
                elif type(value) is not Optional:
                    text = f"cannot initialize optional entry '{key}' from non-optional value "
                    raise EvaluationError(f"{text}{value}")
                elif value.present:
                    result[key] = value.value
            frame.charge(cost.MAP_COST)
            return result

        return mapped

    def _bind(self, node: Bind, local: frozenset[str]) -> Closure:
        name, value = node.name, self.closure(node.value, local)
        result = self.closure(node.result, local | {node.name})

        def bound(frame: Frame) -> Value:
            variables = frame.variables
            bound_value = value(frame)
            hidden = variables.get(name, _MISSING)
            variables[name] = bound_value
            try:
                return result(frame)
            finally:
                if hidden is _MISSING:
                    del variables[name]
                else:
                    variables[name] = hidden

        return bound


def _variable(name: str) -> Closure:
    plain = name.removeprefix(".")
    named_type = TYPE_NAMES.get(plain)

    def variable(frame: Frame) -> Value:
        frame.charge(1)
        try:
            return frame.variables[plain]
        except KeyError:
            if named_type is not None:
                return named_type
            raise EvaluationError(f"no such attribute(s): {plain}") from None

    return variable


def _failing(text: str) -> Closure:
    def fail(_frame: Frame) -> Value:
        raise EvaluationError(text)

    return fail


def _dispatched(name: str, overloads: list[Overload], operands: list[Closure]) -> Closure:
    """A call of the overload that the types of the operands choose."""
    fitting = [each for each in overloads if len(each.parameters) == len(operands)]
    if fitting and all(each.implementation is fitting[0].implementation for each in fitting):
        operator = name.startswith(("_", "@", "-", "!")) and not name.startswith("@sort")
        if operator:
            return _operator(fitting[0], operands)
    choose = _Chooser(name, fitting)

    def call(frame: Frame) -> Value:
        values = [each(frame) for each in operands]
        overload = choose(values)
        frame.charge(overload.cost(*values))
        return overload.implementation(*values)

    return call


def _operator(overload: Overload, operands: list[Closure]) -> Closure:
    """A call of a function that looks at the types of its operands itself."""
    implementation, cost_of = overload.implementation, overload.cost
    if len(operands) == 1:
        (only,) = operands

        def unary(frame: Frame) -> Value:
            value = only(frame)
            frame.charge(1)
            return implementation(value)

        return unary
    left, right = operands

    def binary(frame: Frame) -> Value:
        one, other = left(frame), right(frame)
        frame.charge(cost_of(one, other))
        return implementation(one, other)

    return binary


class _Chooser:
    """Finds the overload for the operands of one call, and remembers it by their Python types."""

    def __init__(self, name: str, overloads: list[Overload]) -> None:
        self._name = name
        self._overloads = overloads
        self._chosen: dict[tuple[type, ...], Overload] = {}

    def __call__(self, values: list[Value]) -> Overload:
        kinds = tuple(map(type, values))
        found = self._chosen.get(kinds)
        if found is None:
            found = self._chosen[kinds] = self._choose([type_name(each) for each in values])
        return found

    def _choose(self, names: list[str]) -> Overload:
        for each in self._overloads:
            wanted = [_RUNTIME_NAMES.get(kind.name, kind.name) for kind in each.parameters]
            if all(
                one in (other, "dyn") or (len(one) == 1 and one.isupper())
                for one, other in zip(wanted, names, strict=True)
            ):
                return each
        raise EvaluationError(f"no such overload: {self._name}({', '.join(names)})")
