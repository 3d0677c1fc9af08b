"""Consumable capacity: what a request takes by the policy of a device, and whether it may."""

from fractions import Fraction
from typing import Any

import pytest

from stellwerk_kube.device_capacity import (
    consumption,
    fits,
    parse_amounts,
    parse_capacities,
)

RANGE = {"default": "1", "validRange": {"min": "2", "max": "9", "step": "3"}}
VALUES = {"default": "1", "validValues": ["2", "4", "8"]}


@pytest.mark.parametrize(
    ("policy", "requested", "taken"),
    [
        pytest.param(None, None, "10", id="nothing requested: all of it"),
        pytest.param(None, "3", "3", id="no policy: as it is"),
        pytest.param(RANGE, None, "1", id="nothing requested: the default"),
        pytest.param(RANGE, "1", "2", id="raised to the least"),
        pytest.param(RANGE, "3", "5", id="rounded up to a step from the least"),
        pytest.param(RANGE, "9", None, id="rounded up beyond the most"),
        pytest.param(VALUES, "3", "4", id="the next value"),
        pytest.param(VALUES, "9", None, id="larger than all values"),
        pytest.param(
            {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi"}},
            "1100Mi",
            "1536Mi",
            id="a step in binary units",
        ),
    ],
)
def test_what_a_request_takes(
    policy: dict[str, Any] | None, requested: str | None, taken: str | None
) -> None:
    capacity: dict[str, Any] = {"value": "10"}
    if policy is not None:
        capacity["requestPolicy"] = policy
    asked = parse_amounts({} if requested is None else {"memory": requested})
    found = consumption(parse_capacities({"memory": capacity}), asked)
    assert (None if found is None else found["memory"].text) == taken


def test_a_capacity_that_the_device_lacks_rules_it_out() -> None:
    capacities = parse_capacities({"memory": {"value": "10"}})
    assert consumption(capacities, parse_amounts({"cores": "1"})) is None


@pytest.mark.parametrize(("used", "room"), [(7, True), (8, False)])
def test_what_is_in_use_leaves_less(used: int, room: bool) -> None:  # noqa: FBT001 a row's verdict
    capacities = parse_capacities({"memory": {"value": "10"}})
    taken = consumption(capacities, parse_amounts({"memory": "3"})) or {}
    assert fits(capacities, taken, [{"memory": Fraction(used)}, {}]) is room
