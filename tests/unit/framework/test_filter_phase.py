"""The reasons of nodes that do not fit."""

import pytest

from stellwerk.framework.types import CycleState
from tests.support.builders import make_node, pod_info
from tests.support.preemption_cases import make_arena

TAINT = {"key": "dedicated", "value": "", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("check_all", "expected"),
    [
        pytest.param(False, ("node(s) were unschedulable",), id="the first filter's alone"),
        pytest.param(
            True,
            (
                "node(s) were unschedulable",
                "node(s) had untolerated taint(s)",
                "node(s) didn't match Pod's node affinity/selector",
                "Insufficient cpu",
            ),
            id="checkAllFilters: every filter's",
        ),
    ],
)
def test_reasons_of_a_node(*, check_all: bool, expected: tuple[str, ...]) -> None:
    node = make_node("hopeless", cpu="1", unschedulable=True, taints=[TAINT])
    arena = make_arena([node], [], profile={"checkAllFilters": check_all})
    pod, state = pod_info("p", cpu="2", nodeSelector={"disktype": "ssd"}), CycleState()
    found = arena.framework.filtering.find_feasible(pod, state)
    (status,) = arena.framework.filtering.diagnose(found, pod).statuses
    assert status.reasons == expected


def test_check_all_filters_changes_no_verdict() -> None:
    for check_all in (False, True):
        nodes = [*(make_node(name) for name in "abc"), make_node("small", cpu="1")]
        arena = make_arena(nodes, [], profile={"checkAllFilters": check_all})
        found = arena.framework.filtering.find_feasible(pod_info("p", cpu="2"))
        assert found.fits.tolist() == [True, True, True, False]
