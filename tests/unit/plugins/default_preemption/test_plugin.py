"""DefaultPreemption: which pods may preempt which, where, and what it says when they cannot."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from stellwerk.framework.handle import ProfileHandle, Services
from stellwerk.framework.interface import Candidate
from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.default_preemption.plugin import DefaultPreemption
from stellwerk.plugins.shared.victims import best_candidates, deciding_criteria
from stellwerk.profiles.spec.plugin_args import DefaultPreemptionArgs
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, pod_info
from tests.support.preemption_cases import (
    Arena,
    best_nodes,
    by_node,
    make_arena,
    make_budget,
    preemptor,
    victim,
)

NO_CLAIMS = "no new claims to deallocate, "


def going(pod: JsonObject, *, preempted: bool) -> JsonObject:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    if preempted:
        pod["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]
    return pod


# --- which pods may preempt ---------------------------------------------------------------------


def test_a_pod_that_never_preempts_says_so() -> None:
    arena = make_arena([make_node("n1", cpu="2")], [victim("low", "n1", cpu="2", priority=1)])
    result = arena.preempt(preemptor(preemptionPolicy="Never"))
    assert (
        result.status.message
        == f"{NO_CLAIMS}preemption: not eligible due to preemptionPolicy=Never."
    )
    assert not result.clear_nomination


@pytest.mark.parametrize(
    ("preempted", "priority", "eligible"),
    [
        pytest.param(True, 1, False, id="a victim is still terminating on the nominated node"),
        pytest.param(False, 1, True, id="the pod was deleted otherwise"),
        pytest.param(True, 2000, True, id="the terminating pod is no victim of ours"),
    ],
)
def test_a_nominated_pod_waits_for_its_victims(
    preempted: bool,  # noqa: FBT001 the case
    priority: int,
    eligible: bool,  # noqa: FBT001 the case
) -> None:
    leaving = going(victim("leaving", "n1", priority=priority), preempted=preempted)
    low = victim("low", "n1", cpu="3", priority=1)
    arena = make_arena([make_node("n1", cpu="4")], [leaving, low])
    result = arena.preempt(preemptor(nominated_node_name="n1"))
    assert result.status.ok is eligible
    if not eligible:
        assert result.status.message == (
            f"{NO_CLAIMS}preemption: not eligible due to a terminating pod on the nominated node."
        )
        assert not result.clear_nomination


def test_a_pod_whose_nominated_node_cannot_be_resolved_preempts_elsewhere() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    nodes = [make_node("n1", cpu="2", taints=[taint]), make_node("n2", cpu="2")]
    pods = [
        going(victim("leaving", "n1", cpu="2", priority=1), preempted=True),
        victim("low", "n2", cpu="2", priority=1),
    ]
    result = make_arena(nodes, pods).preempt(preemptor(nominated_node_name="n1"))
    assert by_node(result) == {"n2": (["low"], 0)}


# --- which pods, and where ----------------------------------------------------------------------


def test_as_many_as_possible_stay_and_the_most_important_first() -> None:
    pods = [
        victim("young", "n1", priority=5, start="20"),
        victim("old", "n1", priority=5, start="10"),
        victim("lowest", "n1", priority=1, start="01"),
        victim("higher", "n1", priority=9, start="30"),
    ]
    result = make_arena([make_node("n1", cpu="4")], pods).preempt(preemptor(cpu="2"))
    assert by_node(result) == {"n1": (["young", "lowest"], 0)}


def test_a_pod_that_has_not_started_counts_as_the_youngest() -> None:
    pods = [victim("new", "n1", priority=5), victim("old", "n1", priority=5, start="59")]
    result = make_arena([make_node("n1", cpu="2")], pods).preempt(preemptor(cpu="1"))
    assert by_node(result) == {"n1": (["new"], 0)}


def test_equal_priority_is_never_a_victim() -> None:
    arena = make_arena([make_node("n1", cpu="2")], [victim("equal", "n1", cpu="2", priority=1000)])
    result = arena.preempt(preemptor())
    assert result.status.message == (
        f"{NO_CLAIMS}preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    )
    assert result.clear_nomination


def test_nodes_that_cannot_be_cleared_are_counted_by_reason() -> None:
    nodes = [
        make_node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}]),
        make_node("small", cpu="1"),
        make_node("equals", cpu="2"),
        make_node("half", cpu="2"),
    ]
    pods = [
        victim("equal", "equals", cpu="2", priority=1000),
        victim("equal-2", "half", cpu="1", priority=1000),
        victim("low", "half", cpu="1", priority=1),
    ]
    result = make_arena(nodes, pods).preempt(preemptor())
    assert result.status.message == (
        f"{NO_CLAIMS}preemption: 0/4 nodes are available: 1 Insufficient cpu, "
        "1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_clearing_a_node_must_not_break_the_preemptors_own_affinity() -> None:
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "friend"}},
                }
            ]
        }
    }
    friend = victim("friend", "n1", cpu="2", priority=1, labels={"app": "friend"})
    arena = make_arena([make_node("n1", cpu="2")], [friend])
    assert not arena.preempt(preemptor(affinity=affinity)).status.ok


def test_nominated_pods_of_equal_priority_take_their_room() -> None:
    nodes = [make_node("n1", cpu="2"), make_node("n2", cpu="2")]
    pods = [victim("a", "n1", cpu="2", priority=1), victim("b", "n2", cpu="2", priority=1)]
    other = preemptor("other", nominated_node_name="n1")
    result = make_arena(nodes, pods, nominated=[other]).preempt(preemptor())
    assert by_node(result) == {"n2": (["b"], 0)}


def test_nominated_pods_of_lower_priority_do_not_count() -> None:
    other = preemptor("other", nominated_node_name="n1", priority=500)
    arena = make_arena(
        [make_node("n1", cpu="2")], [victim("a", "n1", cpu="2", priority=1)], nominated=[other]
    )
    assert by_node(arena.preempt(preemptor())) == {"n1": (["a"], 0)}


def test_a_host_port_is_free_when_one_of_two_users_goes() -> None:
    """Only pods that were bound by hand can share a port; kube-scheduler does not count them."""
    port = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    pods = [victim("low", "n1", priority=1), victim("high", "n1", priority=2000)]
    wanting: JsonObject = {"name": "c", "image": "i", "ports": port, "resources": {}}
    for pod in pods:
        pod["spec"]["containers"][0]["ports"] = port
    result = make_arena([make_node("n1")], pods).preempt(preemptor(containers=[wanting]))
    assert by_node(result) == {"n1": (["low"], 0)}


# --- disruption budgets -------------------------------------------------------------------------


def test_pods_whose_budget_is_used_up_are_spared_where_possible() -> None:
    pods = [
        victim("guarded", "n1", priority=1, labels={"app": "db"}),
        victim("free", "n1", priority=5),
    ]
    arena = make_arena([make_node("n1", cpu="2")], pods, budgets=[make_budget("b", {"app": "db"})])
    assert by_node(arena.preempt(preemptor(cpu="1"))) == {"n1": (["free"], 0)}


@pytest.mark.parametrize(
    ("budget", "violations"),
    [
        pytest.param(make_budget("b", {"app": "db"}, 1), 1, id="one disruption is allowed"),
        pytest.param(make_budget("b", {"app": "db"}, 2), 0, id="two are allowed"),
        pytest.param(
            make_budget("b", {"app": "db"}, 0, disrupted=["db-1"]),
            1,
            id="a granted eviction costs nothing more",
        ),
        pytest.param(
            make_budget("b", {"app": "db"}, 0, namespace="other"), 0, id="another namespace"
        ),
        pytest.param(make_budget("b", {}), 0, id="an empty selector guards no pod"),
        pytest.param(
            {
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "?"}]}},
            },
            0,
            id="a selector that cannot be read guards no pod",
        ),
    ],
)
def test_violations_are_counted_pod_by_pod(budget: JsonObject, violations: int) -> None:
    pods = [victim(f"db-{i}", "n1", priority=1, labels={"app": "db"}) for i in (1, 2)]
    arena = make_arena([make_node("n1", cpu="2")], pods, budgets=[budget])
    assert by_node(arena.preempt(preemptor()))["n1"][1] == violations


def test_budgets_follow_their_status() -> None:
    pods = [victim("db", "n1", cpu="2", priority=1, labels={"app": "db"})]
    budget = make_budget("b", {"app": "db"}, 0)
    arena = make_arena([make_node("n1", cpu="2")], pods, budgets=[budget])
    assert by_node(arena.preempt(preemptor())) == {"n1": (["db"], 1)}
    arena.objects.set("PodDisruptionBudget", make_budget("b", {"app": "db"}, 1))
    assert by_node(arena.preempt(preemptor())) == {"n1": (["db"], 0)}
    arena.objects.set("PodDisruptionBudget", make_budget("b", {"app": "web"}, 0))
    assert by_node(arena.preempt(preemptor())) == {"n1": (["db"], 0)}
    arena.objects.set("PodDisruptionBudget", make_budget("c", {"app": "db"}, 0))
    assert by_node(arena.preempt(preemptor())) == {"n1": (["db"], 1)}
    arena.objects.remove("PodDisruptionBudget", make_budget("c", {"app": "db"}))
    assert by_node(arena.preempt(preemptor())) == {"n1": (["db"], 0)}


# --- the choice ---------------------------------------------------------------------------------


def candidate(name: str, *victims: tuple[int, str], violations: int = 0) -> Candidate:
    pods = [
        parse_pod(victim(f"{name}-{index}", name, priority=priority, start=start))
        for index, (priority, start) in enumerate(victims)
    ]
    return Candidate(name, tuple(pods), violations)


@pytest.mark.parametrize(
    ("candidates", "best", "criterion"),
    [
        pytest.param(
            [candidate("a", (1, "01"), violations=1), candidate("b", (9, "01"), (9, "01"))],
            ["b"],
            "fewest PodDisruptionBudget violations",
            id="fewest budget violations come first",
        ),
        pytest.param(
            [candidate("a", (9, "01")), candidate("b", (8, "01"), (8, "01"), (8, "01"))],
            ["b"],
            "lowest highest victim priority",
            id="then the lowest highest priority",
        ),
        pytest.param(
            [candidate("a", (9, "01"), (5, "01")), candidate("b", (9, "01"), (4, "01"))],
            ["b"],
            "lowest sum of victim priorities",
            id="then the lowest sum",
        ),
        pytest.param(
            [candidate("a", (-5, "01"), (-5, "01")), candidate("b", (-5, "01"))],
            ["b"],
            "lowest sum of victim priorities",
            id="more victims of negative priority are no smaller sum",
        ),
        pytest.param(
            [candidate("a", (5, "01"), (-(1 << 31), "01")), candidate("b", (5, "01"))],
            ["b"],
            "fewest victims",
            id="then the fewest victims",
        ),
        pytest.param(
            [
                candidate("a", (5, "10"), (5, "50"), (1, "02")),
                candidate("b", (5, "20"), (5, "30"), (1, "01")),
            ],
            ["b"],
            "latest start of the highest-priority victims",
            id="then the latest start of those with the highest priority",
        ),
        pytest.param(
            [candidate("a", (5, "10")), candidate("b", (5, "10"))],
            ["a", "b"],
            "",
            id="what is left ties",
        ),
    ],
)
def test_the_smallest_loss_is_chosen(
    candidates: list[Candidate], best: list[str], criterion: str
) -> None:
    assert [each.node_name for each in best_candidates(candidates)] == best
    assert deciding_criteria(candidates)[-1:] == [criterion] * bool(criterion)


def test_the_recorded_choice_among_nodes() -> None:
    """Lowest highest victim priority over three nodes, ties kept."""
    nodes = [make_node(f"n{i}", cpu="2") for i in range(3)]
    pods = [victim(f"v{i}", f"n{i}", cpu="2", priority=p) for i, p in enumerate((7, 3, 3))]
    assert best_nodes(make_arena(nodes, pods).preempt(preemptor())) == {"n1", "n2"}


# --- how many candidates are enough -------------------------------------------------------------


def many_nodes(
    count: int, args: dict[str, int] | None = None, budgets: Sequence[JsonObject] = ()
) -> Arena:
    """Nodes that are each filled by one low pod with the label app=db."""
    config = [{"name": "DefaultPreemption", "args": args}] if args else []
    return make_arena(
        [make_node(f"n{i}", cpu="2") for i in range(count)],
        [victim(f"v{i}", f"n{i}", cpu="2", priority=1, labels={"app": "db"}) for i in range(count)],
        budgets=budgets,
        profile={"pluginConfig": config},
    )


@pytest.mark.parametrize(
    ("nodes", "args", "expected"),
    [
        pytest.param(150, {}, 100, id="a hundred by default"),
        pytest.param(40, {}, 40, id="all there are"),
        pytest.param(
            40,
            {"minCandidateNodesPercentage": 50, "minCandidateNodesAbsolute": 5},
            20,
            id="a share of the nodes",
        ),
        pytest.param(
            40,
            {"minCandidateNodesPercentage": 1, "minCandidateNodesAbsolute": 5},
            5,
            id="an absolute number",
        ),
    ],
)
def test_the_search_stops_at_enough(nodes: int, args: dict[str, int], expected: int) -> None:
    result = many_nodes(nodes, args).preempt(preemptor(), every=False)
    assert len(result.candidates) == expected


def test_the_search_goes_on_while_every_candidate_violates_a_budget() -> None:
    args = {"minCandidateNodesPercentage": 1, "minCandidateNodesAbsolute": 2}
    arena = many_nodes(20, args, [make_budget("b", {"app": "db"})])
    harmless = parse_pod(victim("harmless", "n13", cpu="2", priority=1))
    arena.cache.remove_pod("uid-default-v13")
    arena.cache.set_pod(harmless)
    arena.cache.update_snapshot()
    result = arena.preempt(preemptor(), every=False)
    assert best_nodes(result) == {"n13"}


def test_explanations_get_every_candidate_in_order() -> None:
    result = many_nodes(150).preempt(preemptor(), every=True)
    assert [each.node_name for each in result.candidates] == [f"n{i}" for i in range(150)]


# --- PreEnqueue ---------------------------------------------------------------------------------


def test_a_pod_is_gated_while_its_victims_are_deleted() -> None:
    arena = make_arena([], [])
    services = cast("Any", arena.framework.handle)._services  # noqa: SLF001
    fields = {name: getattr(services, name) for name in Services.__dataclass_fields__}
    handle = ProfileHandle(Services(**{**fields, "preempting": {"busy"}}), "p")
    plugin = DefaultPreemption(handle, DefaultPreemptionArgs())
    status = plugin.pre_enqueue(pod_info("a", uid="busy"))
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == "waiting for the preemption for this pod to be finished"
    assert plugin.pre_enqueue(pod_info("b", uid="idle")).ok


def test_no_change_in_the_cluster_makes_the_queue_ask_again() -> None:
    plugin = DefaultPreemption(make_arena([], []).framework.handle, DefaultPreemptionArgs())
    assert plugin.events_to_register() == ()


def test_a_filter_that_contradicts_itself_is_an_error() -> None:
    """It rejects the node and then, with every pod back in place, lets the pod pass."""
    arena = make_arena([make_node("n1", cpu="4")], [victim("low", "n1", priority=1)])
    state, pod = CycleState(), preemptor(cpu="4")
    found = arena.framework.filtering.find_feasible(pod, state, sample=False)
    diagnosis = arena.framework.filtering.diagnose(found, pod)
    small = preemptor(cpu="1")
    arena.framework.filtering.find_feasible(small, state, sample=False)
    plugin = DefaultPreemption(arena.framework.handle, DefaultPreemptionArgs())
    result = plugin.post_filter(state, small, diagnosis)
    assert result.status.code is Code.ERROR
    assert result.status.message == 'preemption: expected at least one victim pod on node "n1"'


def test_arrivals_take_no_more_victims_than_they_need() -> None:
    """While the victims of earlier ones are still there, each finds a place of its own."""
    arena = make_arena(
        [make_node(f"n{i}", cpu="4") for i in range(30)],
        [
            victim(f"v{i}-{each}", f"n{i}", cpu="1", priority=1)
            for i in range(30)
            for each in range(4)
        ],
    )
    preempted: set[str] = set()
    for index in range(30):
        pod = preemptor(f"p{index}", cpu="3")
        result = arena.preempt(pod)
        assert result.best is not None
        chosen = result.best(result.candidates)[0]
        arena.nominator.nominate(pod, chosen.node_name)
        preempted |= {each.uid for each in chosen.victims}
    assert len(preempted) == 30 * 3


# --- whose pods may be victims ------------------------------------------------------------------

NODES = ("own", "batch", "prod")


def preempted_with(victims: object, **arguments: Any) -> set[str]:
    """The nodes that a pod of the namespace own may have cleared; each holds pods of one."""
    config = {"pluginConfig": [{"name": "DefaultPreemption", "args": {"victims": victims}}]}
    arena = make_arena(
        [make_node(name, cpu="2") for name in NODES],
        [victim(f"low-{name}", name, cpu="2", priority=1, namespace=name) for name in NODES],
        profile=config if victims else None,
    )
    for name in NODES:
        labels = {"team": name, "tier": "low" if name == "batch" else "high"}
        arena.objects.set("Namespace", {"metadata": {"name": name, "labels": labels}})
    return set(by_node(arena.preempt(preemptor(namespace="own", **arguments))))


@pytest.mark.parametrize(
    ("victims", "cleared"),
    [
        pytest.param(None, {"own", "batch", "prod"}, id="everybody's, as kube-scheduler"),
        pytest.param("SameNamespace", {"own"}, id="those of its own namespace"),
        pytest.param(
            {"LowerPriorityClassOf": {"matchLabels": {"tier": "low"}}},
            {"own", "batch"},
            id="those of namespaces with a label, too",
        ),
        pytest.param({"LowerPriorityClassOf": {}}, {"own", "batch", "prod"}, id="all namespaces"),
    ],
)
def test_a_profile_says_whose_pods_may_be_evicted(victims: object, cleared: set[str]) -> None:
    assert preempted_with(victims) == cleared


def test_of_pods_on_one_node_the_others_stay() -> None:
    profile = {
        "pluginConfig": [{"name": "DefaultPreemption", "args": {"victims": "SameNamespace"}}]
    }
    arena = make_arena(
        [make_node("n", cpu="3")],
        [
            victim("foreign", "n", cpu="1", priority=1, namespace="other"),
            victim("own", "n", cpu="2", priority=2),
        ],
        profile=profile,
    )
    assert by_node(arena.preempt(preemptor(cpu="2"))) == {"n": (["own"], 0)}
    assert by_node(arena.preempt(preemptor(cpu="3"))) == {}
    # What was found for a pod of one namespace does not serve one of another.
    assert by_node(arena.preempt(preemptor(cpu="2", namespace="third"))) == {}
