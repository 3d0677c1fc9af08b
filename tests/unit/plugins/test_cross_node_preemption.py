"""CrossNodePreemption: the documents' example, its limits, and what it says."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from stellwerk.plugins.cross_node_preemption import (
    PreemptionTarget,
    Victims,
    VictimSearch,
    VictimSearchLimits,
)
from stellwerk.snapshot.columns import Mask
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, pod_info
from tests.support.preemption_cases import (
    CROSS_NODE,
    by_node,
    costing,
    make_arena,
    make_budget,
    names,
    of_daemon_set,
    preempting,
    preemptor,
    victim,
)

NOT_HELPFUL = "no new claims to deallocate, preemption: 0/2 nodes are available: "


def away_from(app: str, key: str = "topology.kubernetes.io/zone") -> JsonObject:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


ZONE = [make_node("n1", zone="a"), make_node("n2", zone="a", cpu="1")]
POD_Q = victim("q", "n2", priority=1, labels={"app": "q"})


def with_args(**args: Any) -> JsonObject:
    return {**CROSS_NODE, "pluginConfig": [{"name": "CrossNodePreemption", "args": args}]}


def test_pod_p_stays_pending_by_default() -> None:
    """Pod P is considered for n1; pod Q on n2 keeps it out of the whole zone."""
    result = make_arena(ZONE, [POD_Q]).preempt(preemptor("p", affinity=away_from("q")))
    assert not result.candidates
    assert result.status.message == (
        f"{NOT_HELPFUL}1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


def test_pod_q_leaves_for_pod_p_where_the_profile_allows_it() -> None:
    arena = make_arena(ZONE, [POD_Q], profile=CROSS_NODE)
    result = arena.preempt(preemptor("p", affinity=away_from("q")))
    assert by_node(result) == {"n1": (["q"], 0)}
    assert result.status.message == "cross-node preemption: default/q on n2 will leave."


def test_the_other_pods_repulsion_counts_as_well() -> None:
    loner = victim("loner", "n2", priority=1, affinity=away_from("p"))
    arena = make_arena(ZONE, [loner], profile=CROSS_NODE)
    assert by_node(arena.preempt(preemptor("p", labels={"app": "p"}))) == {"n1": (["loner"], 0)}


def test_a_hard_spread_over_zones_is_evened_out() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    nodes = [
        make_node("a1", zone="a"),
        make_node("a2", zone="a", cpu="1"),
        make_node("b", zone="b", cpu="1"),
    ]
    pods = [
        victim("web", "a2", priority=1, labels={"app": "web"}),
        victim("big", "b", cpu="1", priority=2000),
    ]
    new = preemptor(labels={"app": "web"}, topologySpreadConstraints=[constraint])
    assert by_node(make_arena(nodes, pods, profile=CROSS_NODE).preempt(new)) == {"a1": (["web"], 0)}


def test_pods_on_several_nodes_leave_together() -> None:
    pods = [
        victim("q1", "n2", cpu="500m", priority=1, labels={"app": "q"}),
        victim("q2", "n3", priority=3, labels={"app": "q"}),
        victim("bystander", "n3", priority=1),
    ]
    nodes = [*ZONE, make_node("n3", zone="a", cpu="2")]
    result = make_arena(nodes, pods, profile=CROSS_NODE).preempt(
        preemptor("p", cpu="3", affinity=away_from("q"))
    )
    assert by_node(result) == {"n1": (["q2", "q1"], 0)}


def test_the_zone_that_costs_less_is_cleared() -> None:
    nodes = [make_node("a1", zone="a"), make_node("a2", zone="a", cpu="1")]
    nodes += [make_node("b1", zone="b"), make_node("b2", zone="b", cpu="1")]
    pods = [
        victim("dear", "a2", priority=50, labels={"app": "q"}),
        victim("cheap", "b2", priority=5, labels={"app": "q"}),
        victim("cheap-too", "b1", priority=4, labels={"app": "q"}),
    ]
    result = make_arena(nodes, pods, profile=CROSS_NODE).preempt(
        preemptor("p", affinity=away_from("q"))
    )
    assert by_node(result) == {"b1": (["cheap", "cheap-too"], 0)}


@pytest.mark.parametrize(
    ("args", "found"),
    [
        pytest.param({}, False, id="budgets are kept"),
        pytest.param({"ignorePodDisruptionBudgets": True}, True, id="unless told otherwise"),
    ],
)
def test_disruption_budgets(args: JsonObject, found: bool) -> None:  # noqa: FBT001 the case
    arena = make_arena(
        ZONE, [POD_Q], budgets=[make_budget("b", {"app": "q"})], profile=with_args(**args)
    )
    result = arena.preempt(preemptor("p", affinity=away_from("q")))
    assert by_node(result) == ({"n1": (["q"], 1)} if found else {})
    if not found:
        assert result.status.message.endswith(
            "found no set of at most 8 victims that disruption budgets allow."
        )


def test_no_more_victims_than_allowed() -> None:
    pods = [victim(f"q{i}", "n2", cpu="100m", labels={"app": "q"}, priority=1) for i in range(3)]
    arena = make_arena(ZONE, pods, profile=with_args(maxVictims=2))
    result = arena.preempt(preemptor("p", affinity=away_from("q")))
    assert not result.candidates
    assert "found no set of at most 2 victims" in result.status.message
    assert result.clear_nomination


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param(
            {"preemptionPolicy": "Never"}, "not eligible due to preemptionPolicy=Never.", id="never"
        ),
        pytest.param(
            {}, "no pod of lower priority on another node is in the way.", id="no pod in the way"
        ),
    ],
)
def test_it_says_why_it_does_nothing(fields: JsonObject, text: str) -> None:
    high = victim("high", "n1", cpu="4", priority=2000)
    high_2 = victim("high-2", "n2", cpu="1", priority=2000)
    result = make_arena(ZONE, [high, high_2], profile=CROSS_NODE).preempt(preemptor(**fields))
    assert result.status.message.endswith(f"cross-node preemption: {text}")


def test_while_its_victims_end_the_nomination_stands() -> None:
    leaving = {
        **POD_Q,
        "metadata": {**POD_Q["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    leaving["status"] = {
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]
    }
    arena = make_arena(ZONE, [leaving], profile=CROSS_NODE)
    result = arena.preempt(preemptor("p", affinity=away_from("q"), nominated_node_name="n1"))
    assert not result.candidates
    assert not result.clear_nomination
    assert "terminating pods that are in the way" in result.status.message


# --- the search itself --------------------------------------------------------------------------


def searching(must_go: set[str], limits: VictimSearchLimits) -> tuple[VictimSearch, list[Victims]]:
    asked: list[Victims] = []

    def fits_without(victims: Victims) -> Mask:
        asked.append(victims)
        fits: Mask = np.array([must_go <= {pod.name for pod in victims}])
        return fits

    return VictimSearch(fits_without, lambda _: 0, limits), asked


ROW = np.array([0], np.intp)


def test_a_large_pool_is_searched_without_trying_every_set() -> None:
    pool = [pod_info(f"p{i:02}", priority=20 - i) for i in range(20)]
    search, asked = searching({"p03", "p17"}, VictimSearchLimits(8, False, lambda: False))  # noqa: FBT003 positional by design
    search.run([PreemptionTarget(ROW, pool)])
    assert search.best is not None
    assert names(search.best.victims) == ["p03", "p17"]
    assert len(asked) < 100
    assert not search.cut_short


def test_when_time_is_up_the_best_so_far_counts() -> None:
    pool = [pod_info(f"p{i}", priority=i) for i in range(8)]
    turns = iter([False] * 4 + [True] * 100)
    search, asked = searching({"p7", "p6", "p5"}, VictimSearchLimits(8, False, lambda: next(turns)))  # noqa: FBT003 positional by design
    search.run([PreemptionTarget(ROW, pool)])
    assert search.cut_short
    assert search.best is None
    assert len(asked) <= 4


# --- DefaultPreemption's arguments are followed --------------------------------------------------


def following(**args: Any) -> JsonObject:
    return {**CROSS_NODE, **preempting(**args)}


CLOCK = VirtualClock(datetime(2026, 1, 1, 0, 30, tzinfo=UTC))


def in_the_way(name: str, node_name: str, start: str) -> JsonObject:
    return victim(name, node_name, start=start, priority=1, labels={"app": "q"})


@pytest.mark.parametrize(
    ("args", "goes"),
    [
        pytest.param({"minRunSeconds": 600}, "old", id="a young pod stays"),
        pytest.param({"spareDaemonSetPods": True}, "young", id="the pod of a DaemonSet stays"),
        pytest.param({"orderByDeletionCost": True}, "young", id="the dearer pod stays"),
    ],
)
def test_of_equal_pods_on_several_nodes_the_one_that_is_spared_stays(
    args: JsonObject, goes: str
) -> None:
    """Each zone has room for the pod, and on another node a pod in the way.

    That of zone a is older, dearer and a DaemonSet's.
    """
    nodes = [
        make_node(f"{zone}{cpu}", zone=zone, cpu=str(cpu)) for zone in ("a", "b") for cpu in (1, 2)
    ]
    pods = [
        of_daemon_set(costing(in_the_way("old", "a1", "01"), "9")),
        in_the_way("young", "b1", "29"),
    ]
    result = make_arena(nodes, pods, profile=following(**args), clock=CLOCK).preempt(
        preemptor("p", affinity=away_from("q"))
    )
    assert {tuple(names(each.victims)) for each in result.candidates} == {(goes,)}


def test_it_says_which_argument_put_whom_behind() -> None:
    """The pod in the way has to go, and one of two others that fill the node with room."""
    nodes = [make_node("n1", zone="a", cpu="1"), make_node("n2", zone="a", cpu="4")]
    pods = [
        in_the_way("q", "n1", "01"),
        victim("older", "n2", cpu="2", start="02", priority=1),
        victim("young", "n2", cpu="2", start="29", priority=1),
    ]
    result = make_arena(nodes, pods, profile=following(minRunSeconds=600), clock=CLOCK).preempt(
        preemptor("p", affinity=away_from("q"))
    )
    [candidate] = result.candidates
    assert names(candidate.victims) == ["q", "older"]
    assert result.decided_by is not None
    assert result.decided_by(candidate, result.candidates) == (
        "minRunSeconds puts 1 pod that has run for less than 600 s behind others"
    )


def test_it_evicts_only_those_whom_the_profile_lets_be_evicted() -> None:
    pods = [victim("foreign", "n2", priority=1, namespace="other", labels={"app": "q"})]
    term = away_from("q")
    terms = term["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms[0]["namespaceSelector"] = {}
    new = preemptor("p", affinity=term)
    assert by_node(make_arena(ZONE, pods, profile=following()).preempt(new))
    arena = make_arena(ZONE, pods, profile=following(victims="SameNamespace"))
    assert not arena.preempt(new).candidates
