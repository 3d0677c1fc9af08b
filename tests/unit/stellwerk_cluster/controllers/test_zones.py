"""Zone states and the rates at which nodes are tainted NoExecute."""

import pytest

from stellwerk_cluster.controllers.zones import Zones, ZoneState


def zones(ready: int, unready: int) -> Zones:
    counted = Zones()
    for number in range(ready + unready):
        counted.put(f"n{number}", "a", ready=number < ready)
    counted.put("elsewhere", "b", ready=True)
    return counted


@pytest.mark.parametrize(
    ("ready", "unready", "state", "rate"),
    [
        pytest.param(3, 0, ZoneState.NORMAL, 0.1, id="all ready"),
        pytest.param(1, 2, ZoneState.NORMAL, 0.1, id="two are too few for a disruption"),
        pytest.param(5, 5, ZoneState.NORMAL, 0.1, id="half is below the threshold"),
        pytest.param(4, 6, ZoneState.PARTIAL_DISRUPTION, 0.0, id="a small zone stops"),
        pytest.param(20, 31, ZoneState.PARTIAL_DISRUPTION, 0.01, id="a large zone slows down"),
        pytest.param(0, 1, ZoneState.FULL_DISRUPTION, 0.1, id="none ready, others elsewhere are"),
    ],
)
def test_state_and_rate_of_a_zone(ready: int, unready: int, state: ZoneState, rate: float) -> None:
    zone = zones(ready, unready)["a"]
    assert zone.state is state
    assert zone.rate == rate


def test_nodes_come_one_after_the_other_at_the_rate_of_their_zone() -> None:
    counted = zones(3, 2)
    zone = counted["a"]
    zone.waiting.update(dict.fromkeys(("n3", "n4")))
    assert counted.next_node("a", 100.0) == ("n3", 10.0)
    assert counted.next_node("a", 104.0) == (None, 6.0)
    assert counted.next_node("a", 110.0) == ("n4", 10.0)
    assert counted.next_node("a", 120.0) == (None, None)


def test_while_no_node_at_all_is_ready_none_is_named() -> None:
    counted = zones(0, 2)
    counted["a"].waiting["n0"] = None
    counted.put("elsewhere", "b", ready=False)
    assert counted.all_disrupted
    assert counted.next_node("a", 100.0) == (None, None)


def test_a_node_that_moves_or_goes_is_counted_where_it_is() -> None:
    counted = zones(1, 0)
    counted.put("n0", "b", ready=True)
    assert counted.names() == ["b"]
    counted.drop("n0")
    counted.drop("elsewhere")
    assert counted.names() == []
    assert not counted.all_disrupted
