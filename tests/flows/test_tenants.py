"""One hostile tenant beside four others: what it does costs them next to nothing."""

import gc
from collections.abc import Iterator

import pytest

from tests.support.findings import hold
from tests.support.tenants import HOSTILE_NODES, waits

NODES = 50
LEAST_SECONDS = 0.01
"""What a wait may be without anybody's fault, as collections of garbage in a test are."""


@pytest.fixture(autouse=True)
def _collected_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 250, 50)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize(
    ("seconds", "pods"),
    [
        pytest.param(20, 5_000, marks=pytest.mark.long),
        pytest.param(60, 20_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_four_tenants_wait_at_most_twice_as_long_beside_a_hostile_one(
    seconds: float, pods: int
) -> None:
    alone = waits(seconds, nodes=NODES, pods=0)
    beside = waits(seconds, nodes=NODES, pods=pods)
    figures = [
        [round(1000 * each.share(part), 1) for part in (0.5, 0.9, 0.99)] for each in (alone, beside)
    ]
    print(f"ms at 50, 90, 99 %: alone and beside {figures}, nodes kept {beside.kept_nodes}")  # noqa: T201 figures
    assert alone.unbound == beside.unbound == 0
    assert beside.share(0.5) <= 2 * max(alone.share(0.5), LEAST_SECONDS)
    hold("tenants p99", beside.share(0.99) / max(alone.share(0.99), LEAST_SECONDS))
    assert 0 < beside.kept_nodes <= HOSTILE_NODES * NODES
