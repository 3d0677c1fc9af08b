"""One hostile tenant beside four others: what it does costs them next to nothing."""

import pytest

from tests.support.findings import hold
from tests.support.tenants import HOSTILE_NODES, waits

NODES = 50


@pytest.mark.parametrize(
    ("seconds", "pods"),
    [
        pytest.param(20, 5_000, marks=pytest.mark.long),
        pytest.param(60, 20_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_four_tenants_wait_little_longer_beside_a_hostile_one(seconds: float, pods: int) -> None:
    alone = waits(seconds, nodes=NODES, pods=0)
    beside = waits(seconds, nodes=NODES, pods=pods)
    figures = [
        [round(1000 * each.share(part), 1) for part in (0.5, 0.9, 0.99)] for each in (alone, beside)
    ]
    print(f"ms at 50, 90, 99 %: alone and beside {figures}, nodes kept {beside.kept_nodes}")  # noqa: T201 figures
    assert alone.unbound == beside.unbound == 0
    assert beside.share(0.5) <= 2 * alone.share(0.5)
    hold("tenants p99", beside.share(0.99) / alone.share(0.99))
    assert 0 < beside.kept_nodes <= HOSTILE_NODES * NODES
