"""Arguments of DefaultPreemption that order pods of equal priority: who goes, where, and why.

`framework.victim_order` has the order; both are tested here, by what is evicted.
"""

from datetime import UTC, datetime, timedelta

import pytest

from stellwerk.framework.interface import PostFilterResult
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.preemption_cases import (
    Arena,
    best_nodes,
    by_node,
    costing,
    make_arena,
    make_budget,
    of_daemon_set,
    preempting,
    preemptor,
    victim,
)

TEN_MINUTES = preempting(minRunSeconds=600)
DAEMONS = preempting(spareDaemonSetPods=True)
COSTS = preempting(orderByDeletionCost=True)
ALL = preempting(minRunSeconds=600, spareDaemonSetPods=True, orderByDeletionCost=True)


def at(minute: int) -> VirtualClock:
    """A clock that stands at a minute of the hour in which victims start."""
    return VirtualClock(datetime(2026, 1, 1, 0, minute, tzinfo=UTC))


def arena(
    pods: list[JsonObject], profile: JsonObject, *, cpu: str = "2", minute: int = 30
) -> Arena:
    nodes = [make_node(name, cpu=cpu) for name in sorted({pod["spec"]["nodeName"] for pod in pods})]
    return make_arena(nodes, pods, profile=profile, clock=at(minute))


def why(result: PostFilterResult, node_name: str) -> str:
    """What decided for a node, if it is the one that is taken."""
    assert result.decided_by is not None
    [chosen] = [each for each in result.candidates if each.node_name == node_name]
    return result.decided_by(chosen, result.candidates)


# --- on one node --------------------------------------------------------------------------------

OLD_AND_YOUNG = (("old", "05"), ("young", "25"))


def test_who_has_just_begun_stays_where_kube_scheduler_would_evict_it() -> None:
    pods = [victim(name, "n", start=start, priority=1) for name, start in OLD_AND_YOUNG]
    assert by_node(arena(pods, {}).preempt(preemptor(cpu="1"))) == {"n": (["young"], 0)}
    result = arena(pods, TEN_MINUTES).preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n": (["old"], 0)}
    assert why(result, "n") == "minRunSeconds spares 1 pod that has run for less than 600 s"


def test_priority_goes_before_all_of_it() -> None:
    pods = [
        of_daemon_set(costing(victim("low", "n", start="29", priority=1), "1000")),
        victim("higher", "n", start="01", priority=2),
    ]
    result = arena(pods, ALL).preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n": (["low"], 0)}
    assert why(result, "n") == ""


@pytest.mark.parametrize(
    ("start", "goes"),
    [
        pytest.param("20", "other", id="for exactly as long: it has run for long enough"),
        pytest.param("21", "older", id="for less"),
        pytest.param("59", "older", id="a start in the future is none yet"),
        pytest.param(None, "older", id="one that has not started has not run"),
    ],
)
def test_when_a_pod_counts_as_young(start: str | None, goes: str) -> None:
    """Where neither is spared, the one that started last goes, as in kube-scheduler."""
    pods = [victim("older", "n", start="01", priority=1)]
    pods.append(victim("other", "n", start=start, priority=1))
    result = arena(pods, TEN_MINUTES).preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n": ([goes], 0)}


def test_a_spared_pod_goes_at_once_where_there_is_no_other() -> None:
    pods = [of_daemon_set(victim("only", "n", start="29", cpu="2", priority=1))]
    result = arena(pods, ALL).preempt(preemptor(cpu="2"))
    assert by_node(result) == {"n": (["only"], 0)}
    assert why(result, "n") == ""


def test_a_pod_is_spared_only_where_others_make_enough_room() -> None:
    pods = [
        victim("old", "n", cpu="1", start="01", priority=1),
        victim("young", "n", cpu="2", start="29", priority=1),
    ]
    result = arena(pods, TEN_MINUTES, cpu="3").preempt(preemptor(cpu="2"))
    assert by_node(result) == {"n": (["young"], 0)}
    assert why(result, "n") == ""


def test_of_young_pods_the_youngest_goes_as_of_old_ones() -> None:
    pods = [
        victim("older", "n", start="25", priority=1),
        victim("young", "n", start="28", priority=1),
    ]
    assert by_node(arena(pods, TEN_MINUTES).preempt(preemptor(cpu="1"))) == {"n": (["young"], 0)}


def test_the_pod_of_a_daemon_set_stays() -> None:
    pods = [
        victim("web", "n", start="01", priority=1),
        of_daemon_set(victim("agent", "n", start="20", priority=1)),
    ]
    assert by_node(arena(pods, {}).preempt(preemptor(cpu="1"))) == {"n": (["agent"], 0)}
    result = arena(pods, DAEMONS).preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n": (["web"], 0)}
    assert why(result, "n") == "spareDaemonSetPods spares 1 pod of a DaemonSet"


def test_a_pod_that_can_go_elsewhere_is_no_daemon_whatever_it_says_of_its_owner() -> None:
    claims = of_daemon_set(victim("claims", "n", start="20", priority=1))
    del claims["spec"]["affinity"]
    pods = [victim("web", "n", start="01", priority=1), claims]
    assert by_node(arena(pods, DAEMONS).preempt(preemptor(cpu="1"))) == {"n": (["claims"], 0)}


def test_a_daemon_stays_before_a_young_pod() -> None:
    pods = [
        victim("young", "n", start="28", priority=1),
        of_daemon_set(victim("agent", "n", start="01", priority=1)),
    ]
    assert by_node(arena(pods, ALL).preempt(preemptor(cpu="1"))) == {"n": (["young"], 0)}


def test_the_lowest_cost_goes_first() -> None:
    pods = [
        costing(victim("dear", "n", start="20", priority=1), "5"),
        victim("plain", "n", start="10", priority=1),
        costing(victim("cheap", "n", start="01", priority=1), "-5"),
    ]
    result = arena(pods, COSTS, cpu="3").preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n": (["cheap"], 0)}
    assert why(result, "n") == "orderByDeletionCost spares 1 pod of a higher deletion cost"
    result = arena(pods, COSTS, cpu="3").preempt(preemptor(cpu="2"))
    assert by_node(result) == {"n": (["cheap", "plain"], 0)}


def test_a_cost_that_is_no_number_counts_as_0_and_is_said() -> None:
    pods = [
        costing(victim("wrong", "n", start="20", priority=1), "much"),
        costing(victim("dear", "n", start="01", priority=1), "1"),
    ]
    result = arena(pods, COSTS).preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n": (["wrong"], 0)}
    assert why(result, "n") == (
        "1 pod has an annotation controller.kubernetes.io/pod-deletion-cost that is no 32-bit "
        "integer: it counts as 0"
    )


def test_budgets_go_before_all_of_it() -> None:
    pods = [
        victim("guarded", "n", start="01", priority=1, labels={"app": "guarded"}),
        victim("young", "n", start="29", priority=1),
    ]
    cluster = make_arena(
        [make_node("n", cpu="2")],
        pods,
        budgets=[make_budget("b", {"app": "guarded"})],
        profile=TEN_MINUTES,
        clock=at(30),
    )
    assert by_node(cluster.preempt(preemptor(cpu="1"))) == {"n": (["young"], 0)}


# --- among nodes --------------------------------------------------------------------------------


def test_the_node_whose_victims_have_run_for_long_is_chosen() -> None:
    pods = [victim(name, name, cpu="2", start=start, priority=1) for name, start in OLD_AND_YOUNG]
    assert best_nodes(arena(pods, {}).preempt(preemptor())) == {"young"}
    result = arena(pods, TEN_MINUTES).preempt(preemptor())
    assert best_nodes(result) == {"old"}
    assert why(result, "old") == (
        "of the nodes, it has the fewest pods that have run for less than 600 s (minRunSeconds)"
    )


def test_more_victims_may_go_so_that_a_young_one_stays() -> None:
    pods = [
        victim("a", "two", start="01", priority=1),
        victim("b", "two", start="02", priority=1),
        victim("c", "one", cpu="2", start="29", priority=1),
    ]
    assert best_nodes(arena(pods, TEN_MINUTES).preempt(preemptor())) == {"two"}


def test_no_node_with_victims_of_a_higher_priority_is_chosen_to_spare_others() -> None:
    pods = [
        victim("a", "higher", cpu="2", start="01", priority=2),
        victim("b", "young", cpu="2", start="29", priority=1),
    ]
    assert best_nodes(arena(pods, ALL).preempt(preemptor())) == {"young"}


def test_a_daemon_counts_before_a_young_pod_among_nodes() -> None:
    pods = [
        of_daemon_set(victim("a", "daemon", cpu="2", start="01", priority=1)),
        victim("b", "young", cpu="2", start="29", priority=1),
    ]
    assert best_nodes(arena(pods, ALL).preempt(preemptor())) == {"young"}


def test_the_cost_of_the_highest_victims_decides_among_equals() -> None:
    pods = [
        costing(victim("a", "dear", start="20", priority=2), "7"),
        victim("b", "dear", start="20", priority=1),
        costing(victim("c", "cheap", start="01", priority=2), "3"),
        costing(victim("d", "cheap", start="01", priority=1), "1000"),
    ]
    assert best_nodes(arena(pods, {}).preempt(preemptor())) == {"dear"}
    result = arena(pods, COSTS).preempt(preemptor())
    assert best_nodes(result) == {"cheap"}
    assert "lowest deletion cost of the highest-priority victims" in why(result, "cheap")


def test_nodes_are_tried_until_one_has_no_victim_that_is_spared() -> None:
    """Two nodes are enough, but for the order."""
    pods = [victim(f"v{n}", f"n{n}", cpu="2", start="29", priority=1) for n in range(8)]
    pods[5]["status"]["startTime"] = "2026-01-01T00:01:00Z"
    few = preempting(minRunSeconds=600, minCandidateNodesPercentage=1, minCandidateNodesAbsolute=2)
    nodes = [make_node(f"n{n}", cpu="2") for n in range(8)]
    for seed in range(8):
        cluster = make_arena(nodes, pods, profile=few, clock=at(30), seed=seed)
        assert best_nodes(cluster.preempt(preemptor(), every=False)) == {"n5"}


# --- time goes on -------------------------------------------------------------------------------


def test_what_was_found_for_others_holds_until_a_pod_has_run_for_long_enough() -> None:
    clock = at(24)
    pods = [
        victim("older", "n", start="01", priority=1),
        victim("young", "n", start="15", priority=1),
    ]
    cluster = make_arena([make_node("n", cpu="2")], pods, profile=TEN_MINUTES, clock=clock)
    new = preemptor(cpu="1")
    assert by_node(cluster.preempt(new)) == {"n": (["older"], 0)}
    clock.advance(59.0)
    assert by_node(cluster.preempt(new)) == {"n": (["older"], 0)}
    clock.advance(1.0)
    assert by_node(cluster.preempt(new)) == {"n": (["young"], 0)}


class SettableClock(VirtualClock):
    """A clock whose wall-clock time is set, as by an administrator."""

    def set_back(self, seconds: float) -> None:
        self._start -= timedelta(seconds=seconds)


def test_a_clock_that_is_set_back_makes_pods_young_again() -> None:
    clock = SettableClock(datetime(2026, 1, 1, 0, 40, tzinfo=UTC))
    pods = [
        victim("older", "n", start="01", priority=1),
        victim("other", "n", start="15", priority=1),
    ]
    cluster = make_arena([make_node("n", cpu="2")], pods, profile=TEN_MINUTES, clock=clock)
    assert by_node(cluster.preempt(preemptor(cpu="1"))) == {"n": (["other"], 0)}
    clock.set_back(20 * 60)
    assert by_node(cluster.preempt(preemptor(cpu="1"))) == {"n": (["older"], 0)}
