"""Answers with something in every field: each text is the same hostile one.

Invariant: a field that is added to an answer is filled without a change here, and an answer that is
made here is one that its codec reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.alias_generators import to_camel

MARKUP: Final = "[link=https://evil.example]click[/link][conceal]hidden[/conceal][/bold]"
"""Markup of rich: a link, a hidden text, and a closing tag that was not opened, which raises."""
EMOJI: Final = ":skull::warning-emoji:"
MOVES: Final = "\x1b]0;title\x07\x1b]8;;https://evil.example\x1b\\\x1b[2J\x9b31m\r\x00\x08\x7f\u202e\u2066\u200e"
"""A title, a link, an empty screen, a colour, a return and directions: what a terminal obeys."""
FORGED: Final = "forged: all is well"
HOSTILE: Final = f"{MARKUP}{EMOJI}{MOVES}\n{FORGED}\u2028{FORGED}"


def filled(kind: Any, text: str = HOSTILE, depth: int = 0) -> Any:
    """JSON of an answer with every field filled; of several kinds of value, the first."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {
            to_camel(each.name): filled(hints[each.name], text, depth + 1)
            for each in fields(kind)
            # A kind that contains itself ends somewhere.
            if depth < 12 or each.default is MISSING
        }
    inside = [filled(each, text, depth) for each in _parts_of(kind)]
    if origin in {Literal, Union, UnionType}:
        return inside[0] if inside else arguments[0]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {inside[0]: inside[1]}
    if isinstance(origin, type) and issubclass(origin, (tuple, Sequence)):
        return inside if origin is tuple else inside * 2
    return {str: text, int: 3, float: 1.5, bool: True, object: text, Any: text}[kind]


def _parts_of(kind: Any) -> Sequence[Any]:
    """The kinds of which a kind is made, the first one of a union."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ()
    kept = [each for each in arguments if each not in {NoneType, Ellipsis}]
    return kept[:1] if origin in {Union, UnionType} else kept
