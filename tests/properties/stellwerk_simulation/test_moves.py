"""Plans of moves on random clusters, checked by arithmetic of their own, move by move."""

from collections import Counter

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.current_placement import placement_of
from stellwerk_simulation.defragmentation import Defragmentation, DefragPlan, Goal, MoveRules
from stellwerk_simulation.ready_profiles import ready_manifest
from tests.support.builders import make_node
from tests.support.examples import examples
from tests.support.moving import budget, replica

GPU = "example.com/gpu"
NODE_CPU, NODE_GPUS, MOST_MOVES = 6, 4, 4
APPS = ("p", "q", "r")
PROFILE = load_profile(ready_manifest("default", ()), known_plugins())
POD = st.tuples(
    st.integers(0, 3),  # the node
    st.integers(1, 2),  # cpu
    st.integers(1, 3),  # GPUs
    st.sampled_from(APPS),
    st.sampled_from([0, 0, 0, 0, 0, 9]),  # priority
)
BUDGETS = st.dictionaries(st.sampled_from(APPS), st.integers(0, 4), max_size=1)
GOALS = st.sampled_from([Goal("nodes", 1), Goal("nodes", 2), Goal("gpus", 3, GPU)])
Wanted = tuple[int, int, int, str, int]


def placed(wanted: list[Wanted]) -> list[Wanted]:
    """Those that their nodes have room for."""
    cpu, gpus, kept = Counter[int](), Counter[int](), []
    for pod in wanted:
        node = pod[0]
        if cpu[node] + pod[1] <= NODE_CPU and gpus[node] + pod[2] <= NODE_GPUS:
            cpu[node] += pod[1]
            gpus[node] += pod[2]
            kept.append(pod)
    return kept


def manifests(pods: list[Wanted], budgets: dict[str, int]) -> list[JsonObject]:
    nodes = [
        make_node(f"n{number}", cpu=str(NODE_CPU), allocatable={GPU: str(NODE_GPUS)})
        for number in range(4)
    ]
    running = [
        {
            **replica(
                f"p{number}",
                f"n{node}",
                app=app,
                priority=priority,
                requests={"cpu": str(cpu)} | ({GPU: str(gpus)} if gpus else {}),
            ),
            "kind": "Pod",
        }
        for number, (node, cpu, gpus, app, priority) in enumerate(pods)
    ]
    return [*nodes, *running, *(budget(app, allowed) for app, allowed in budgets.items())]


def check(plan: DefragPlan, pods: list[Wanted], budgets: dict[str, int], goal: Goal) -> None:
    """Follow the moves: each has room, keeps budgets and priorities, and the goal is reached."""
    where = {f"default/p{number}": f"n{pod[0]}" for number, pod in enumerate(pods)}
    asks = {f"default/p{number}": pod for number, pod in enumerate(pods)}
    empty = {f"n{number}" for number in range(4)} - set(where.values())
    disrupted = Counter[str]()

    def used(node: str) -> tuple[int, int]:
        there = [asks[key] for key, on in where.items() if on == node]
        return sum(pod[1] for pod in there), sum(pod[2] for pod in there)

    for move in plan.moves:
        key = move.pod.key
        assert where[key] == move.pod.node_name != move.node_name
        assert asks[key][4] == 0
        disrupted[asks[key][3]] += 1
        where[key] = move.node_name
        cpu, gpus = used(move.node_name)
        assert cpu <= NODE_CPU
        assert gpus <= NODE_GPUS
    assert all(disrupted[app] <= allowed for app, allowed in budgets.items())
    assert len(plan.moves) <= MOST_MOVES
    names = [f"n{number}" for number in range(4)]
    if goal.kind == "nodes":
        left = set(names) - set(where.values())
        assert len(left) >= len(empty) + goal.number
        assert left.issuperset(plan.frees)
    else:
        assert NODE_GPUS - used(plan.frees[0])[1] >= goal.number


@settings(max_examples=examples(150), deadline=None)
@given(
    wanted=st.lists(POD, min_size=3, max_size=8),
    budgets=BUDGETS,
    goal=GOALS,
    cordon=st.sampled_from([True, True, False]),
)
def test_every_move_has_room_and_the_goal_is_reached(
    wanted: list[Wanted], budgets: dict[str, int], goal: Goal, *, cordon: bool
) -> None:
    pods = placed(wanted)
    placement = placement_of(manifests(pods, budgets), PROFILE, "random")
    search = Defragmentation(
        placement, goal, MoveRules(bare_pods=False, max_priority=5), MOST_MOVES, cordon=cordon
    )
    try:
        plan = search.plan()
    except ConfigurationError:
        event("no plan")
        return
    if plan.nothing_found:
        event("nothing found")
        assert [*plan.moves, *plan.frees] == []
        return
    event(f"{len(plan.moves)} moves")
    check(plan, pods, budgets, goal)
