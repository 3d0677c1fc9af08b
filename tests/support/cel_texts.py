"""Random expressions of CEL's grammar, each with the tree that the parser has to make of it.

The writer goes through the grammar from the weakest operator down, as the parser does, and notes
the place of every token that it writes. It knows nothing of the parser.
"""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

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

NAMES: Final = ("a", "b", "self", "_x", "in_", "nullable", "r", "b1", "trueish", "has", "optMap")
FIELDS: Final = (*NAMES, "for", "if", "namespace", "e5", "map", "all", "optFlatMap")
QUOTED: Final = ("a-b", "a.b/c", "in", "with space", "1")
SPACES: Final = ("", "", "", "", " ", " ", "\n", "\t", "\r\n", "\f", " // é 'x'\n")
LEVELS: Final = (
    {"==": "_==_", "!=": "_!=_", "<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "in": "@in"},
    {"+": "_+_", "-": "_-_"},
    {"*": "_*_", "/": "_/_", "%": "_%_"},
)
ESCAPES: Final = {
    **{f"\\{each}": each for each in "\"'`?\\"},
    r"\a": "\a",
    r"\b": "\b",
    r"\f": "\f",
    r"\n": "\n",
    r"\r": "\r",
    r"\t": "\t",
    r"\v": "\v",
    r"\x41": "A",
    r"\XfF": "\xff",
    r"\101": "A",
    r"\377": "\xff",
    r"\000": "\0",
}
TEXT_ESCAPES: Final = {r"\u00e9": "é", r"\uFFFF": "\uffff", r"\U0001f600": "😀"}
PLAIN: Final = ("a", "Z", "0", " ", "é", "😀", "//", "\t", "\u2028", "{", "r'", "?", "")


class Written(NamedTuple):
    text: str
    tree: Node
    tokens: list[str]
    """The parts of the text, the space before a token with it."""


def written(chance: random.Random, size: int = 12) -> Written:
    """An expression of about `size` operands."""
    writer = _Writer(chance, size)
    tree = writer.expression()
    return Written("".join(writer.parts), tree, writer.parts)


def spoilt(chance: random.Random, expression: Written) -> str:
    """The text of an expression in which one token is lost, doubled, moved or wrong."""
    parts = list(expression.tokens)
    place = chance.randrange(len(parts))
    match chance.randrange(5):
        case 0:
            del parts[place]
        case 1:
            parts.insert(place, parts[place])
        case 2:
            parts.insert(place, parts.pop(chance.randrange(len(parts))))
        case 3:
            parts[place] = chance.choice(WRONG)
        case _:
            parts.insert(place, chance.choice(WRONG))
    return "".join(parts)


WRONG: Final = (
    *("(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "-", "+", "&&", "||", "==", " in "),
    *(
        "=",
        "&",
        "|",
        "#",
        "@",
        "$",
        ";",
        "`",
        "`a b`",
        "\\",
        "'",
        '"',
        "'''",
        "é",
        "\x00",
        "\u2028",
    ),
    *(" for ", " true ", " null ", " x ", "1", "0x", "1.", ".5", "1e", "5u", "u", "0X1"),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616u",
        "0x10000000000000000",
    ),
    *(r"'\q'", r"'\x4'", r"'\400'", r"b'\u0041'", r"'\ud800'", r"'\U00110000'", r"r'\'", "rb'a'"),
)


class _Writer:
    def __init__(self, chance: random.Random, size: int) -> None:
        self.parts: list[str] = []
        self._chance = chance
        self._left = size
        self._length = 0
        self._last = " "

    def put(self, token: str) -> int:
        """Write a token after a random space; its place."""
        space = self._chance.choice(SPACES)
        if not space and self._last in WORD and token[0] in WORD:
            space = " "
        self.parts.append(space + token)
        at = self._length + len(space)
        self._length = at + len(token)
        self._last = token[-1]
        return at

    def often(self, share: float) -> bool:
        """Whether to go on; never when the size is reached."""
        return self._left > 0 and self._chance.random() < share

    def expression(self) -> Node:
        condition = self.logic("||", "_||_", self.conjunction)
        if not self.often(0.1):
            return condition
        at = self.put("?")
        yes = self.logic("||", "_||_", self.conjunction)
        self.put(":")
        return Call(at, "_?_:_", None, (condition, yes, self.expression()))

    def conjunction(self) -> Node:
        return self.logic("&&", "_&&_", self.chain)

    def logic(self, sign: str, function: str, term: Callable[[], Node]) -> Node:
        terms, places = [term()], []
        while self.often(0.15):
            places.append(self.put(sign))
            terms.append(term())

        def balanced(low: int, high: int) -> Node:
            """As cel-go's logicManager builds it."""
            middle = (low + high + 1) // 2
            left = terms[middle] if middle == low else balanced(low, middle - 1)
            right = terms[middle + 1] if middle == high else balanced(middle + 1, high)
            return Call(places[middle], function, None, (left, right))

        return balanced(0, len(places) - 1) if places else terms[0]

    def chain(self, level: int = 0) -> Node:
        if level == len(LEVELS):
            return self.unary()
        found = self.chain(level + 1)
        while self.often(0.15):
            sign = self._chance.choice(list(LEVELS[level]))
            at = self.put(sign)
            found = Call(at, LEVELS[level][sign], None, (found, self.chain(level + 1)))
        return found

    def unary(self) -> Node:
        if not self.often(0.15):
            return self.member()
        sign = self._chance.choice("!-")
        count = self._chance.choice((1, 1, 2, 3))
        first, *_ = [self.put(sign) for _ in range(count)]
        # One `-` before a number would belong to the number.
        operand = self.member(can_be_number=sign == "!" or count > 1, can_be_negative=sign == "!")
        return (
            Call(first, "!_" if sign == "!" else "-_", None, (operand,)) if count % 2 else operand
        )

    def member(self, *, can_be_number: bool = True, can_be_negative: bool = True) -> Node:
        mark = len(self.parts)
        found = self.primary(can_be_number=can_be_number, can_be_negative=can_be_negative)
        first = self.parts[mark]
        start = sum(map(len, self.parts[:mark])) + self._space(first)
        while self.often(0.3):
            found = self.suffix(found, start)
        return found

    def _space(self, part: str) -> int:
        return next(
            len(each) for each in sorted(SPACES, key=len, reverse=True) if part.startswith(each)
        )

    def suffix(self, operand: Node, start: int) -> Node:
        kind = self._chance.choice(("select", "select", "call", "index", "optional", "mapped"))
        if kind == "index":
            at = self.put("[")
            is_optional = self._chance.random() < 0.3
            if is_optional:
                self.put("?")
            index = self.expression()
            self.put("]")
            return Call(at, "_[?_]" if is_optional else "_[_]", None, (operand, index))
        dot = self.put(".")
        if kind == "optional":
            self.put("?")
            return Call(dot, "_?._", None, (operand, Literal(start, self.field())))
        if kind == "select":
            return Select(dot, operand, self.field())
        name = self._chance.choice(("optMap", "optFlatMap") if kind == "mapped" else FIELDS[:-1])
        self.put(name)
        at = self.put("(")
        if kind == "mapped":
            return self.mapped(name, at, operand)
        arguments = self.arguments()
        if name == "optMap" and len(arguments) == 2:
            arguments = (*arguments, self.one_more())
        self.put(")")
        return Call(at, name, operand, arguments)

    def one_more(self) -> Node:
        self.put(",")
        return self.expression()

    def mapped(self, function: str, at: int, target: Node) -> Node:
        name = self._chance.choice(NAMES)
        self.put(name)
        self.put(",")
        body = self.expression()
        self.put(")")
        bound: Node = Bind(at, name, Call(at, "value", target, ()), body)
        if function == "optMap":
            bound = Call(at, "optional.of", None, (bound,))
        present, none = Call(at, "hasValue", target, ()), Call(at, "optional.none", None, ())
        return Call(at, "_?_:_", None, (present, bound, none))

    def field(self) -> str:
        if self._chance.random() < 0.2:
            name = self._chance.choice(QUOTED)
            self.put(f"`{name}`")
            return name
        name = self._chance.choice(FIELDS)
        self.put(name)
        return name

    def arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while self.often(0.6):
            if found:
                self.put(",")
            found.append(self.expression())
        return tuple(found)

    def primary(self, *, can_be_number: bool, can_be_negative: bool) -> Node:
        self._left -= 1
        kind = self._chance.random()
        if self._left > 0 and kind < 0.4:
            return self._chance.choice(
                (self.nested, self.call, self.list, self.map, self.message)
            )()
        if can_be_number and kind < 0.6:
            return self.number(can_be_negative=can_be_negative)
        if kind < 0.75:
            return self.string()
        if kind < 0.8:
            name = self._chance.choice(("true", "false", "null"))
            return Literal(self.put(name), {"true": True, "false": False, "null": None}[name])
        dot = self.dot()
        name = self._chance.choice(NAMES)
        return Name(self.put(name), dot + name)

    def dot(self) -> str:
        if self._chance.random() < 0.9 or self._last in "0123456789":
            return ""
        self.put(".")
        return "."

    def nested(self) -> Node:
        self.put("(")
        found = self.expression()
        self.put(")")
        return found

    def call(self) -> Node:
        dot = self.dot()
        name = self._chance.choice(NAMES)
        self.put(name)
        at = self.put("(")
        arguments = self.arguments()
        self.put(")")
        return Call(at, dot + name, None, arguments)

    def items(self, closing: str, item: Callable[[], None]) -> None:
        count = 0
        while self.often(0.6):
            if count:
                self.put(",")
            item()
            count += 1
        if self._chance.random() < 0.2:
            self.put(",")
        self.put(closing)

    def question(self) -> bool:
        if self._chance.random() < 0.8:
            return False
        self.put("?")
        return True

    def list(self) -> Node:
        at = self.put("[")
        elements: list[Node] = []
        optional: set[int] = set()

        def element() -> None:
            if self.question():
                optional.add(len(elements))
            elements.append(self.expression())

        self.items("]", element)
        return ListLiteral(at, tuple(elements), frozenset(optional))

    def map(self) -> Node:
        at = self.put("{")
        entries: list[MapEntry] = []

        def entry() -> None:
            is_optional = self.question()
            key = self.expression()
            self.put(":")
            entries.append(MapEntry(key, self.expression(), is_optional))

        self.items("}", entry)
        return MapLiteral(at, tuple(entries))

    def message(self) -> Node:
        names = self._chance.choices(FIELDS, k=self._chance.choice((1, 1, 2, 3)))
        dot = self.dot()
        places = [self._length - 1] if dot else []
        for place, name in enumerate(names):
            if place:
                self.put(".")
            places.append(self.put(name))
        self.put("{")

        def field() -> None:
            self.question()
            self.field()
            self.put(":")
            self.expression()

        self.items("}", field)
        return MessageLiteral(places[0], dot + ".".join(names))

    def number(self, *, can_be_negative: bool) -> Node:
        at = self.put("-") if can_be_negative and self._chance.random() < 0.2 else None
        sign = 1 if at is None else -1
        if self._chance.random() < 0.3:
            text = self._chance.choice(
                ("0.0", "1.5", ".5", "1e5", "2E-3", "1.25e+2", "1e400", "00.10")
            )
            place = self.put(text)
            return Literal(place if at is None else at, sign * float(text))
        most = 1 << self._chance.choice((1, 4, 32, 63))
        value = self._chance.randrange(most) if sign == 1 else self._chance.randint(0, most)
        text = self._chance.choice(("{0}", "{0}", "0x{0:x}", "0x{0:X}", "0{0}", "0x0{0:x}")).format(
            value
        )
        if at is None and self._chance.random() < 0.2:
            return Literal(self.put(text + self._chance.choice("uU")), Uint(value))
        place = self.put(text)
        return Literal(place if at is None else at, sign * value)

    def string(self) -> Node:
        quote = self._chance.choice(("'", '"', "'''", '"""'))
        is_bytes, is_raw = self._chance.random() < 0.2, self._chance.random() < 0.2
        text, value = "", b""
        for _ in range(self._chance.choice((0, 1, 3, 8))):
            one, means = self._piece(quote, is_bytes=is_bytes, is_raw=is_raw)
            text, value = text + one, value + means
        if is_raw and text.endswith("\\"):
            text, value = text + ".", value + b"."
        prefix = (self._chance.choice("bB") if is_bytes else "") + (
            self._chance.choice("rR") if is_raw else ""
        )
        at = self.put(f"{prefix}{quote}{text}{quote}")
        return Literal(at, value if is_bytes else value.decode("utf-8", "surrogatepass"))

    def _piece(self, quote: str, *, is_bytes: bool, is_raw: bool) -> tuple[str, bytes]:
        """A part of a string, and the bytes that it stands for."""
        if is_raw:
            plain = self._chance.choice((*PLAIN, r"\q", r"\n", "\\\\"))
            plain = plain.replace(quote[0], "")
            return plain, plain.encode()
        if self._chance.random() < 0.5:
            escapes = ESCAPES if is_bytes else {**ESCAPES, **TEXT_ESCAPES}
            escape = self._chance.choice(list(escapes))
            return escape, escapes[escape].encode("latin-1" if is_bytes else "utf-8")
        if len(quote) > 1 and self._chance.random() < 0.4:
            line_end = self._chance.choice(("\n", "\r\n.", "\r."))
            return line_end, line_end.replace("\r\n", "\n").replace("\r", "\n").encode()
        other = {"'": '"', '"': "'"}[quote[0]]
        plain = self._chance.choice((*PLAIN, other)).replace(quote[0], "")
        return plain, plain.encode()


WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_'\"`")
