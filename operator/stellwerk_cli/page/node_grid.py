"""Every node as a cell of one picture, coloured by the share of a resource that pods request.

The page of nodes draws it above its list. Invariant: the picture of 5,000 nodes is smaller than
200 KB, and each stretch of it that is a page of the list leads there, so that it needs no script.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk_cli.page.score_view import step

FULL_PERCENT: Final = 95
"""Percent above which a node counts as full, which is shown in red."""
_CELL: Final = 10
"""Width and height of a cell."""
_PITCH: Final = 12
"""Distance from one cell to the next."""
_COLUMNS: Final = 50
"""Cells of a row. A wide picture has twice as many."""
_MANY_NODES: Final = 500
"""Nodes above which the picture is wide: it fits a screen then."""
_MAX_SCALE: Final = 2
"""Pixels of a unit at most: cells of a few nodes are not drawn larger."""
_NOT_OFFERED: Final = -1


@dataclass(frozen=True, slots=True)
class GridStretch:
    """The cells of one page of the list."""

    page: int
    label: str
    paths: Sequence[tuple[str, str]]
    """(class of the colour, path of the cells that have it)."""


@dataclass(frozen=True, slots=True)
class NodeGrid:
    """The picture."""

    width: int
    height: int
    shown_width: int
    """Its width in pixels, where there is room."""
    stretches: Sequence[GridStretch]


def node_grid(shares: Sequence[int], per_page: int) -> NodeGrid:
    """Draw nodes in their order; a share is in percent, or -1 where a node lacks the resource."""
    columns = 2 * _COLUMNS if len(shares) > _MANY_NODES else min(_COLUMNS, max(1, len(shares)))
    stretches = []
    for begin in range(0, len(shares), per_page):
        part = shares[begin : begin + per_page]
        cells: dict[str, list[str]] = {}
        for number, share in enumerate(part, begin):
            x, y = number % columns * _PITCH, number // columns * _PITCH
            cells.setdefault(colour(share), []).append(f"M{x} {y}h{_CELL}v{_CELL}h-{_CELL}z")
        offering = [share for share in part if share != _NOT_OFFERED]
        use = f", up to {max(offering)}% requested" if offering else ""
        label = f"Nodes {begin + 1} to {begin + len(part)}{use}"
        paths = [(name, "".join(path)) for name, path in sorted(cells.items())]
        stretches.append(GridStretch(begin // per_page + 1, label, paths))
    rows = -(-len(shares) // columns)
    width, height = columns * _PITCH - 2, max(1, rows) * _PITCH - 2
    return NodeGrid(width, height, width * _MAX_SCALE, stretches)


def colour(share: int) -> str:
    """The class of the colour of a share in percent."""
    if share == _NOT_OFFERED:
        return "none"
    return "full" if share > FULL_PERCENT else f"h{step(share)}"
