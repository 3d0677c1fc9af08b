"""Parses the text of an expression into the nodes of `tree`, by a parser written by hand.

Called by `environment`. `tokens` cuts the text; the methods of `_Parser` follow in the order of
CEL's grammar, from the weakest operator down to constants. They take what cel-cpp takes and build
the tree that cel-cpp builds, with the same places; the words of syntax errors are cel-go's.
Invariant: macros stay calls, except that optMap and optFlatMap are expanded to `Bind`. Time and
memory are linear in the text, and the tree has at most `MAX_TREE_LEVELS` levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_kube.cel.errors import CompileError, Issue
from stellwerk_kube.cel.tokens import Token, tokens, value_of
from stellwerk_kube.cel.tree import (
    Bind,
    Call,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    Name,
    Select,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stellwerk_kube.cel.tree import Node


MAX_EXPRESSION_CHARACTERS: Final = 100_000
"""Characters of an expression; cel-go has the same limit."""

MAX_NESTING: Final = 32
"""Operations, calls, selections and literals that may lie inside each other, as in cel-cpp.

A chain of `&&` or of `||` counts once, however long it is, and parentheses count among themselves.
cel-go allows 250.
"""

MAX_TREE_LEVELS: Final = 50
"""Levels of nodes in a tree, because the checker and the compiler call themselves for each level.

`MAX_NESTING` alone does not limit them: a chain of `&&` is a balanced tree, and optMap is four
levels that hold its target twice. Twelve optMaps inside each other fit, 4,096 copies of the target.
"""

_RESERVED: Final = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()  # noqa: SIM905, E501  (reads as a line)
)
"""Names that no variable and no function may have; a field may."""


class _Operator(NamedTuple):
    strength: int
    """Operators of greater strength bind first; equal ones from left to right."""
    function: str


_OR, _AND, _RELATION, _SUM, _PRODUCT = range(1, 6)
_OPERATORS: Final = {
    "||": _Operator(_OR, "_||_"),
    "&&": _Operator(_AND, "_&&_"),
    "==": _Operator(_RELATION, "_==_"),
    "!=": _Operator(_RELATION, "_!=_"),
    "<": _Operator(_RELATION, "_<_"),
    "<=": _Operator(_RELATION, "_<=_"),
    ">": _Operator(_RELATION, "_>_"),
    ">=": _Operator(_RELATION, "_>=_"),
    "in": _Operator(_RELATION, "@in"),
    "+": _Operator(_SUM, "_+_"),
    "-": _Operator(_SUM, "_-_"),
    "*": _Operator(_PRODUCT, "_*_"),
    "/": _Operator(_PRODUCT, "_/_"),
    "%": _Operator(_PRODUCT, "_%_"),
}
"""The operators between two operands."""
_PREFIXES: Final = {"!": "!_", "-": "-_"}

_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', "
    "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
"""The tokens with which an operand begins, in the words of cel-go's messages."""
_OPERAND_KINDS: Final = frozenset({"float", "int", "uint", "string", "raw", "constant", "name"})
_OPERAND_SIGNS: Final = frozenset("[{(.-!")


class _Tree(NamedTuple):
    node: Node
    nesting: int = 1
    """Limited by `MAX_NESTING`."""
    levels: int = 1
    """Limited by `MAX_TREE_LEVELS`."""


def parse(source: str) -> Node:
    """The tree of an expression.

    Raises:
        CompileError: it is no CEL, or longer or deeper than can be parsed.
    """
    if len(source) > MAX_EXPRESSION_CHARACTERS:
        size = f"size: {len(source)}, limit {MAX_EXPRESSION_CHARACTERS}"
        raise CompileError("", [Issue(0, f"expression code point size exceeds limit: {size}")])
    try:
        source.encode()
    except UnicodeError:
        raise CompileError("", [Issue(0, "expression is not valid Unicode")]) from None
    return _Parser(source).whole()


class _Parser:
    """Goes through the tokens once; a method for each rule of the grammar returns its tree."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._place = 0
        self._next = self._tokens[0]
        self._open_expressions = 0

    def whole(self) -> Node:
        """The tree of the text."""
        tree = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("<EOF>", fits=self._following().kind == "end")
        return tree.node

    def _expression(self, *, is_item: bool = False) -> _Tree:
        """`condition ? yes : no`, or an operation; `is_item`: an argument, or element of a list."""
        self._open_expressions += 1
        if self._open_expressions > MAX_NESTING + 1:
            raise self._too_deep()
        tree = self._operation(_OR)
        if mark := self._take("?"):
            yes = self._operation(_OR)
            self._need(":")
            no = self._expression()
            node = Call(mark.at, "_?_:_", None, (tree.node, yes.node, no.node))
            # cel-cpp does not count a conditional that is an item.
            tree = self._above(node, (tree, yes, no), nesting=0 if is_item else 1)
        self._open_expressions -= 1
        return tree

    def _operation(self, weakest: int) -> _Tree:
        """Operands and the operators between them, of strength `weakest` or more."""
        left = self._unary()
        while (operator := _OPERATORS.get(self._next.text)) and operator.strength >= weakest:
            sign = self._advance()
            right = self._operation(operator.strength + 1)
            if operator.strength > _AND:
                left = self._call(sign.at, operator.function, left, right)
                continue
            terms, places = [left, right], [sign.at]
            while again := self._take(sign.text):
                terms.append(self._operation(operator.strength + 1))
                places.append(again.at)
            balanced = self._balanced(operator.function, terms, places)
            nesting = 1 + max(each.nesting for each in terms)
            left = self._limited(_Tree(balanced.node, nesting, balanced.levels))
        return left

    def _balanced(self, function: str, terms: list[_Tree], places: list[int]) -> _Tree:
        """A chain of `&&` or `||` as a tree of few levels, the shape that cel-go gives it."""
        if not places:
            return terms[0]
        middle = len(places) // 2
        left = self._balanced(function, terms[: middle + 1], places[:middle])
        right = self._balanced(function, terms[middle + 1 :], places[middle + 1 :])
        node = Call(places[middle], function, None, (left.node, right.node))
        return _Tree(node, levels=1 + max(left.levels, right.levels))

    def _unary(self) -> _Tree:
        """A member with any number of `!` or of `-` before it; two of a sign cancel out."""
        first = self._next
        function = _PREFIXES.get(first.text)
        if function is None or self._at_negative_number():
            return self._member()
        count = 0
        while self._take(first.text):
            count += 1
        operand = self._member()
        tree = self._call(first.at, function, operand)
        return tree if count % 2 else tree._replace(node=operand.node)

    def _member(self) -> _Tree:
        """An operand with fields, indexes and calls behind it."""
        start = self._next.at
        tree = self._primary()
        while True:
            if dot := self._take("."):
                tree = self._field(tree, dot, start)
            elif bracket := self._take("["):
                function = "_[?_]" if self._take("?") else "_[_]"
                tree = self._call(bracket.at, function, tree, self._expression())
                self._need("]")
            else:
                return tree

    def _field(self, operand: _Tree, dot: Token, start: int) -> _Tree:
        """An operand with the part behind a dot: `field`, `?field` or `function(arguments)`."""
        is_optional = self._take("?") is not None
        if self._next.kind not in ("name", "quoted"):
            raise self._no_name()
        token = self._advance()
        name = token.text.strip("`")
        if is_optional:
            return self._call(dot.at, "_?._", operand, _Tree(Literal(start, name)))
        if token.kind == "name" and (bracket := self._take("(")):
            arguments = self._arguments()
            if name in ("optMap", "optFlatMap") and len(arguments) == 2:  # noqa: PLR2004  (variable and body)
                return self._optional_map(bracket.at, name, operand, *arguments)
            return self._call(bracket.at, name, *arguments, target=operand)
        return self._above(Select(dot.at, operand.node, name), (operand,))

    def _arguments(self) -> list[_Tree]:
        """The arguments of a call, behind its opening bracket."""
        found: list[_Tree] = []
        if self._take(")"):
            return found
        found.append(self._expression(is_item=True))
        while self._take(","):
            found.append(self._expression(is_item=True))
        self._need(")")
        return found

    def _optional_map(
        self, at: int, function: str, target: _Tree, variable: _Tree, body: _Tree
    ) -> _Tree:
        """`target.optMap(variable, body)`, written out as cel-go does.

        It means `target.hasValue() ? optional.of(body) : optional.none()`, in which the variable
        stands for `target.value()`; optFlatMap leaves out `optional.of`.
        """
        name = variable.node
        if not isinstance(name, Name) or name.name.startswith("."):
            text = f"{function}() variable name must be a simple identifier"
            raise self._refused(name.at, text)
        bound: Node = Bind(at, name.name, Call(at, "value", target.node, ()), body.node)
        if function == "optMap":
            bound = Call(at, "optional.of", None, (bound,))
        present = Call(at, "hasValue", target.node, ())
        none = Call(at, "optional.none", None, ())
        choice = Call(at, "_?_:_", None, (present, bound, none))
        # The target lies below `value()`, one level deeper than the body.
        body = body._replace(levels=body.levels - 1)
        levels = 4 if function == "optMap" else 3
        return self._above(choice, (target, variable, body), levels=levels)

    # --- operands ---

    def _primary(self) -> _Tree:
        """A literal, a name, a call, or an expression in brackets."""
        match self._next:
            case Token(kind="name") | Token(text="."):
                return self._named()
            case Token(kind="int" | "uint" | "float" | "string" | "raw" | "constant"):
                return _Tree(self._literal())
            case Token(text="("):
                self._advance()
                tree = self._expression()
                self._need(")")
                return tree
            case Token(text="["):
                return self._list()
            case Token(text="{"):
                return self._map()
            case _ if self._at_negative_number():
                return _Tree(self._literal())
            case _:
                raise self._no_operand()

    def _named(self) -> _Tree:
        """`name`, `name(arguments)` or `qualified.name{field: value}`; a dot may stand before."""
        start = self._next.at
        dot = "." if self._take(".") else ""
        if self._next.kind != "name":
            raise self._no_name()
        if self._at_message():
            parts = [dot]
            while self._next.text != "{":
                parts.append(self._advance().text)
            return self._message(start, "".join(parts))
        token = self._advance()
        if token.text in _RESERVED:
            raise self._refused(start, f"reserved identifier: {token.text}")
        if bracket := self._take("("):
            return self._call(bracket.at, dot + token.text, *self._arguments())
        return _Tree(Name(token.at, dot + token.text))

    def _at_message(self) -> bool:
        """Look ahead: true if names and dots lead to `{`. Only there may a name be reserved."""
        ahead, end = self._tokens, self._place
        while ahead[end].kind == "name" and ahead[end + 1].text == ".":
            end += 2
        return ahead[end].kind == "name" and ahead[end + 1].text == "{"

    def _message(self, at: int, name: str) -> _Tree:
        """`{field: value, …}` of a message: checked, and dropped, because no message is known."""
        values: list[_Tree] = []

        def field() -> None:
            self._take("?")
            if self._next.kind not in ("name", "quoted"):
                raise self._unexpected("{'}', ',', '\\u003F', IDENTIFIER, ESC_IDENTIFIER}")
            self._advance()
            self._need(":")
            values.append(self._expression())

        self._items("}", field)
        return self._above(MessageLiteral(at, name), values)

    def _list(self) -> _Tree:
        """`[a, ?b]`."""
        elements: list[_Tree] = []
        optional: set[int] = set()
        at = self._next.at

        def element() -> None:
            if self._take("?"):
                optional.add(len(elements))
            elements.append(self._expression(is_item=True))

        self._items("]", element)
        nodes = tuple(each.node for each in elements)
        return self._above(ListLiteral(at, nodes, frozenset(optional)), elements)

    def _map(self) -> _Tree:
        """`{key: value, ?key: value}`."""
        entries: list[MapEntry] = []
        parts: list[_Tree] = []
        at = self._next.at

        def entry() -> None:
            is_optional = self._take("?") is not None
            key = self._expression()
            self._need(":")
            value = self._expression()
            entries.append(MapEntry(key.node, value.node, is_optional))
            parts.extend((key, value))

        self._items("}", entry)
        return self._above(MapLiteral(at, tuple(entries)), parts)

    def _items(self, closing: str, item: Callable[[], None]) -> None:
        """Items between brackets; a comma may follow the last one, or stand alone."""
        self._advance()
        if not self._take(","):
            while self._next.text not in (",", closing):
                item()
                if self._next.text not in (",", closing):
                    raise self._unexpected(f"{{'{closing}', ','}}")
                self._take(",")
        self._need(closing)

    def _literal(self) -> Literal:
        """A constant; a `-` before a number belongs to it."""
        at = self._next.at
        sign = "-" if self._take("-") else ""
        try:
            return Literal(at, value_of(self._advance(), sign))
        except ValueError as error:
            raise self._refused(at, str(error)) from None

    def _at_negative_number(self) -> bool:
        """Look ahead: true for a `-` and its number, one constant; `-1u` is an operation."""
        return self._next.text == "-" and self._following().kind in ("int", "float")

    # --- trees and their limits ---

    def _call(
        self, at: int, function: str, *arguments: _Tree, target: _Tree | None = None
    ) -> _Tree:
        nodes = tuple(each.node for each in arguments)
        if target is None:
            return self._above(Call(at, function, None, nodes), arguments)
        return self._above(Call(at, function, target.node, nodes), (target, *arguments))

    def _above(
        self, node: Node, parts: Sequence[_Tree], *, nesting: int = 1, levels: int = 1
    ) -> _Tree:
        """The tree of a node, which adds `nesting` and `levels` to those of its parts."""
        most_nesting = most_levels = 0
        for each in parts:
            most_nesting = max(most_nesting, each.nesting)
            most_levels = max(most_levels, each.levels)
        return self._limited(_Tree(node, most_nesting + nesting, most_levels + levels))

    def _limited(self, tree: _Tree) -> _Tree:
        if tree.nesting > MAX_NESTING or tree.levels > MAX_TREE_LEVELS:
            raise self._too_deep()
        return tree

    def _too_deep(self) -> CompileError:
        return self._refused(0, f"expression recursion limit exceeded: {MAX_NESTING}")

    # --- steps over tokens ---

    def _advance(self) -> Token:
        """Step over the next token, and return it."""
        token = self._next
        self._place += 1
        self._next = self._tokens[self._place]
        return token

    def _following(self) -> Token:
        """The token behind the next one."""
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)]

    def _take(self, text: str) -> Token | None:
        """Step over the next token if it is this sign."""
        return self._advance() if self._next.text == text else None

    def _need(self, text: str) -> None:
        """Step over this sign.

        Raises:
            CompileError: another token is there.
        """
        if self._take(text) is None:
            if self._next.kind == "end" and text in (")", "]"):
                raise self._fail(f"missing '{text}' at '<EOF>'")
            raise self._unexpected(f"'{text}'", fits=self._following().text == text)

    def _no_operand(self) -> CompileError:
        following = self._following()
        fits = following.kind in _OPERAND_KINDS or following.text in _OPERAND_SIGNS
        return self._unexpected(_OPERAND, fits=fits)

    def _no_name(self) -> CompileError:
        shown = "" if self._next.kind == "end" else self._shown()
        return self._fail(f"no viable alternative at input '.{shown}'")

    def _unexpected(self, expected: str, *, fits: bool = False) -> CompileError:
        """Refuse the next token; `fits`: without it, the text would go on rightly."""
        word = "extraneous" if fits else "mismatched"
        return self._fail(f"{word} input '{self._shown()}' expecting {expected}")

    def _fail(self, text: str) -> CompileError:
        if self._next.kind == "unknown":
            text = f"token recognition error at: '{self._shown()}'"
        return self._refused(self._next.at, f"Syntax error: {text}")

    def _refused(self, at: int, text: str) -> CompileError:
        return CompileError(self._source, [Issue(at, text)])

    def _shown(self) -> str:
        text = self._next.text
        return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
