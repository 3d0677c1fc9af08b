"""The picture of all nodes: a cell each, red where one is full, and small."""

import re

import pytest

from stellwerk_cli.page.node_grid import colour, node_grid


@pytest.mark.parametrize(
    ("share", "name"),
    [(-1, "none"), (0, "h0"), (59, "h5"), (95, "h9"), (96, "full"), (150, "full")],
)
def test_a_share_has_a_colour_and_more_than_95_percent_is_red(share: int, name: str) -> None:
    assert colour(share) == name


def test_5_000_nodes_are_5_000_cells_in_less_than_200_kb() -> None:
    grid = node_grid([number % 101 for number in range(5000)], 50)
    written = "".join(
        f'<a href="?page={each.page}&grid=cpu#nodes" aria-label="{each.label}">'
        f"<title>{each.label}</title>"
        + "".join(f'<path class="{name}" d="{path}"/>' for name, path in each.paths)
        for each in grid.stretches
    )
    cells = re.findall(r"M(\d+) (\d+)h10v10h-10z", written)
    assert (len(cells), len(set(cells))) == (5000, 5000)
    assert len(written) < 200_000
    assert all(int(x) < grid.width and int(y) < grid.height for x, y in cells)
    assert grid.width / grid.height == pytest.approx(2, rel=0.01), "it fits a screen"
    assert grid.stretches[-1].label.startswith("Nodes 4951 to 5000, up to ")


def test_a_few_nodes_are_one_row_and_none_are_no_cell() -> None:
    assert node_grid([1, 2, 3], 50).height == 10
    assert node_grid([], 50).stretches == []
