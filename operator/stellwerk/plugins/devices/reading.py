"""Which parts of a device an expression reads, as far as its text shows.

`selectors` keeps answers by them. Invariant: an expression's value depends on nothing of a device
beside these paths; where that is not plain to see, the answer is: everything.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from stellwerk.cel.tree import (
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

Path: TypeAlias = tuple[str, ...]
"""`("driver",)`, `("attributes", domain, name)`, …"""

_VARIABLE: Final = "device"
_LOOKUPS: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_WHOLE_FIELDS: Final = frozenset({"driver", "allowMultipleAllocations"})
_MAPS: Final = frozenset({"attributes", "capacity"})
_IN_MAPS: Final = 3


def paths_read(tree: Node) -> Sequence[Path] | None:
    """The paths of a device that are read; None: any."""
    found: dict[Path, None] = {}
    for path in _paths(tree):
        if path[:1] and path[0] in _WHOLE_FIELDS:
            found[path[:1]] = None
        elif len(path) >= _IN_MAPS and path[0] in _MAPS:
            found[path[:_IN_MAPS]] = None
        else:
            return None
    return tuple(found)


def _paths(node: Node) -> Iterator[Path]:
    """The chain of names from each mention of the variable on."""
    chain = _chain(node)
    if chain is not None:
        yield chain
        return
    for part in _parts(node):
        yield from _paths(part)


def _chain(node: Node) -> Path | None:
    """The names that lead from the variable to a node; None: it is something else."""
    match node:
        case Name():
            return () if node.name.removeprefix(".") == _VARIABLE else None
        case Select():
            before = _chain(node.operand)
            return None if before is None else (*before, node.field)
        case Call() if node.function in _LOOKUPS and node.target is None:
            container, key = node.arguments
            before = _chain(container)
            if before is None or not isinstance(key, Literal) or not isinstance(key.value, str):
                return None
            return (*before, key.value)
        case _:
            return None


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.operands
        case ListLiteral():
            return node.elements
        case MapLiteral():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case Bind():
            return (node.value, node.result)
        case Literal() | Name() | MessageLiteral():
            return ()
