"""Numbers as the page shows them."""

import pytest

from stellwerk.models.answers.listings import NodeFields
from stellwerk.page.scales import amount, local_time, resources_of, share, step


@pytest.mark.parametrize(
    ("resource", "value", "shown"),
    [
        pytest.param("cpu", 300, "300m", id="less than a core"),
        pytest.param("cpu", 2500, "2.5", id="cores"),
        pytest.param("cpu", 0, "0", id="no core"),
        pytest.param("memory", 6 << 30, "6 Gi", id="memory"),
        pytest.param("memory", 1000, "1000", id="bytes"),
        pytest.param("hugepages-2Mi", 4 << 20, "4 Mi", id="huge pages"),
        pytest.param("example.com/gpu", 8, "8", id="anything else"),
    ],
)
def test_amounts_have_kubectl_s_units(resource: str, value: int, shown: str) -> None:
    assert amount(resource, value) == shown


@pytest.mark.parametrize(
    ("value", "highest", "expected"),
    [
        pytest.param(0, 100, 0, id="nothing"),
        pytest.param(100, 100, 10, id="all"),
        pytest.param(59, 100, 5, id="in between"),
        pytest.param(10**18, 100, 10, id="beyond the highest"),
        pytest.param(-5, 100, 0, id="below nothing"),
        pytest.param(5, 0, 0, id="of nothing"),
    ],
)
def test_a_step_is_one_of_eleven(value: int, highest: int, expected: int) -> None:
    assert step(value, highest) == expected


def test_shares_of_nothing_are_all_or_nothing() -> None:
    assert [share(0, 0), share(1, 0), share(1, 3), share(3, 2)] == [0, 100, 33, 150]


def offering(allocatable: dict[str, int]) -> NodeFields:
    return NodeFields(
        name="n", allocatable=allocatable, requested={}, labels={}, taints=(), unschedulable=False
    )


def test_native_resources_come_first_and_a_row_is_bounded() -> None:
    nodes = [
        offering({"a.b/c": 1, "memory": 5, "cpu": 4}),
        offering({"pods": 3, "z": 0}),
    ]
    assert resources_of(nodes, 10) == ["cpu", "memory", "pods", "a.b/c"]
    assert resources_of([offering({f"r{n}": 1 for n in range(999)})], 10)[0] == "r0"
    assert len(resources_of([offering({f"r{n}": 1 for n in range(999)})], 10)) == 10


def test_what_is_no_time_is_shown_as_it_is() -> None:
    assert local_time("soon") == "soon"
    assert local_time("2026-11-22T10:00:59.000Z").endswith(":59")
