"""Which nodes are looked at, in which order, and what is said of those that do not fit."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from stellwerk.framework.extension_points import BIND, RESERVE
from stellwerk.framework.interface import BindPlugin, ReservePlugin
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.runtime import PointRunner, nodes_to_find
from stellwerk.framework.types import (
    OK,
    Code,
    CycleState,
    PluginFailure,
    Status,
    error,
    unschedulable,
)
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, pod_info
from tests.support.preemption_cases import Arena, make_arena

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
TAINT = {"key": "dedicated", "value": "", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("percentage", "nodes", "expected"),
    [
        pytest.param(None, 5_000, 5_000, id="unset: all"),
        pytest.param(0, 100, 100, id="adaptive at 100: half, but at least 100"),
        pytest.param(0, 1_000, 420, id="adaptive at 1,000: 42 %"),
        pytest.param(0, 5_000, 500, id="adaptive at 5,000: 10 %"),
        pytest.param(0, 6_000, 300, id="adaptive at 6,000: never below 5 %"),
        pytest.param(50, 99, 99, id="below 100 nodes all"),
        pytest.param(1, 99, 99, id="below 100 nodes all, whatever is asked for"),
        pytest.param(50, 300, 150, id="half"),
        pytest.param(50, 150, 100, id="never fewer than 100"),
        pytest.param(1, 20_000, 200, id="an explicit percentage below 5 is honoured"),
        pytest.param(-1, 5_000, 500, id="negative is 0"),
        pytest.param(100, 5_000, 5_000, id="all"),
        pytest.param(101, 5_000, 5_000, id="above 100 is 100"),
    ],
)
def test_how_many_feasible_nodes_are_enough(
    percentage: int | None, nodes: int, expected: int
) -> None:
    assert nodes_to_find(percentage, nodes) == expected


def zoned(zones: Mapping[str, str], key: str = "topology.kubernetes.io/zone") -> list[JsonObject]:
    return [make_node(name, labels={key: zone}) for name, zone in zones.items()]


SIX = {"1": "one", "2": "one", "3": "one", "4": "one", "5": "two", "6": "two"}


def visiting_order(nodes: list[JsonObject]) -> list[str]:
    snapshot = make_arena(nodes, []).cache.snapshot
    return snapshot.names(snapshot.visit_order.tolist())


def test_zones_take_turns() -> None:
    assert visiting_order(zoned(SIX)) == ["1", "5", "2", "6", "3", "4"]


def test_the_beta_zone_label_goes_first() -> None:
    nodes = zoned(SIX, BETA_ZONE)
    for node in nodes:
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "all the same"
    assert visiting_order(nodes) == ["1", "5", "2", "6", "3", "4"]


def test_a_zone_is_one_only_together_with_its_region() -> None:
    labels = [{"topology.kubernetes.io/region": region} for region in ("r1", "r1", "r2")]
    nodes = [
        make_node(str(number), zone="same", labels=label)
        for number, label in enumerate(labels, start=1)
    ]
    assert visiting_order(nodes) == ["1", "3", "2"]


# --- where a search begins and ends -----------------------------------------------------------


def many(count: int = 200, **by_number: JsonObject) -> list[JsonObject]:
    return [
        make_node(f"n{number:03}", **by_number.get(f"n{number:03}", {})) for number in range(count)
    ]


def sampling(nodes: list[JsonObject], percentage: int = 50, **profile: Any) -> Arena:
    return make_arena(nodes, [], profile={"percentageOfNodesToScore": percentage, **profile})


def found_names(arena: Arena) -> list[str]:
    snapshot = arena.cache.snapshot
    found = arena.framework.filtering.find_feasible(pod_info("p", cpu="1"))
    return snapshot.names(found.view(NodeView(snapshot)).row_numbers().tolist())


def test_a_search_begins_after_the_last_node_looked_at_and_wraps_around() -> None:
    arena = sampling(many(150))
    names = [f"n{number:03}" for number in range(150)]
    assert found_names(arena) == names[:100]
    assert found_names(arena) == names[100:] + names[:50]
    assert found_names(arena) == names[50:]


def test_nodes_that_do_not_fit_are_looked_at_but_not_counted() -> None:
    full = {f"n{number:03}": {"cpu": "0"} for number in range(20)}
    arena = sampling(many(200, **full))
    found = arena.framework.filtering.find_feasible(pod_info("p", cpu="1"))
    assert found.evaluated == 120
    assert int(found.fits.sum()) == 100
    assert found_names(arena)[0] == "n120"


def test_where_too_few_fit_all_are_looked_at() -> None:
    full = {f"n{number:03}": {"cpu": "0"} for number in range(150)}
    arena = sampling(many(200, **full))
    found = arena.framework.filtering.find_feasible(pod_info("p", cpu="1"))
    assert found.evaluated == 200
    assert int(found.fits.sum()) == 50


def test_without_score_plugins_one_feasible_node_is_enough() -> None:
    arena = sampling(many(), plugins=NO_SCORES)
    assert found_names(arena) == ["n000"]
    assert found_names(arena) == ["n001"]


# --- totals -----------------------------------------------------------------------------------

USAGE_SCORES = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
NO_SCORES = {point: {"disabled": [{"name": "*"}]} for point in ("preScore", "score")}


def test_without_score_plugins_every_node_scores_1() -> None:
    arena = make_arena(many(3), [], profile={"plugins": NO_SCORES})
    pod, state = pod_info("p"), CycleState()
    arena.framework.filtering.find_feasible(pod, state)
    scores = arena.framework.scoring.prioritize(state, pod, NodeView(arena.cache.snapshot))
    assert scores.total.tolist() == [1, 1, 1]
    assert scores.by_plugin == ()
    assert scores.best_positions().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("TaintToleration", *USAGE_SCORES), id="first"),
        pytest.param((USAGE_SCORES[0], "TaintToleration", USAGE_SCORES[1]), id="between"),
        pytest.param((*USAGE_SCORES, "TaintToleration"), id="last"),
    ],
)
def test_a_score_that_all_nodes_share_counts_wherever_its_plugin_stands(
    order: tuple[str, ...],
) -> None:
    enabled = [{"name": name, "weight": 3} for name in order]
    profile = {"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": enabled}}}
    arena = make_arena([make_node("a", cpu="2"), make_node("b", cpu="4")], [], profile=profile)
    pod, state = pod_info("p", cpu="1"), CycleState()
    arena.framework.filtering.find_feasible(pod, state)
    scores = arena.framework.scoring.prioritize(state, pod, NodeView(arena.cache.snapshot))
    columns = [(score.normalized * score.weight).tolist() for score in scores.by_plugin]
    assert [score.plugin for score in scores.by_plugin] == list(order)
    assert scores.total.tolist() == [sum(row) for row in zip(*columns, strict=True)]


def test_what_all_nodes_share_is_seen_to_change_with_a_node_and_with_another_pod() -> None:
    avoided = [{"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}]
    tolerations = [{"key": "spot", "operator": "Exists"}]
    pods = [pod_info("t", cpu="1", tolerations=tolerations), pod_info("p", cpu="1")]
    nodes = {name: make_node(name, cpu="4") for name in ("a", "b")}
    arena = make_arena(nodes.values(), [])

    def normalized(arena: Arena, pod: PodInfo) -> dict[str, list[int]]:
        found = arena.framework.filtering.find_feasible(pod)
        view = NodeView(arena.cache.snapshot)
        scores = arena.framework.scoring.prioritize(found.state, pod, view).by_plugin
        return {each.plugin: each.normalized.tolist() for each in scores}

    for changed in (nodes["a"], make_node("b", cpu="4", taints=avoided), nodes["b"]):
        nodes[changed["metadata"]["name"]] = changed
        arena.cache.set_node(parse_node(changed))
        for number in range(4):
            arena.cache.set_pod(pod_info(f"{changed}-{number}", node_name="a"))
            arena.cache.update_snapshot()
            fresh = make_arena(nodes.values(), [])
            pods.reverse()  # so that the last before a change is the first after it, too
            for pod in pods:
                shared = "TaintToleration", "ImageLocality", "DynamicResources"
                known, anew = normalized(arena, pod), normalized(fresh, pod)
                assert [known[name] for name in shared] == [anew[name] for name in shared]


# --- what is said of nodes that do not fit ------------------------------------------------------


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
        nodes = [*many(3), make_node("small", cpu="1")]
        arena = make_arena(nodes, [], profile={"checkAllFilters": check_all})
        found = arena.framework.filtering.find_feasible(pod_info("p", cpu="2"))
        assert found.fits.tolist() == [True, True, True, False]


POD = pod_info("web")


class Measured(MetricsRecorder):
    """What was measured, in order; reads these times one after the other, then 7 each time."""

    def __init__(self, *times: float) -> None:
        self.plugins: list[tuple[str, str, Code, float]] = []
        self._times = iter(times)

    @override
    def started(self) -> float:
        return next(self._times, 7.0)

    @override
    def attempt(self, state: CycleState) -> None:
        raise AssertionError("an attempt is handed over by the scheduler")

    @override
    def point(self, label: str, code: Code, seconds: float) -> None:
        raise AssertionError("points are noted in the attempt")

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        self.plugins.append((plugin, label, code, started))


class Reserving(ReservePlugin):
    name: ClassVar[str] = "Reserving"

    def __init__(self, answer: Status | Exception) -> None:
        self.answer = answer
        self.asked = 0

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class Binding(BindPlugin):
    name: ClassVar[str] = "Binding"

    @override
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        raise ValueError("no such node")


def runner(
    *plugins: Reserving, metrics_recorder: MetricsRecorder | None = None
) -> PointRunner[ReservePlugin, Status]:
    return PointRunner(RESERVE, {ExtensionPoint.RESERVE: plugins}, metrics_recorder or Measured())


def ask_all(
    point: PointRunner[ReservePlugin, Status], state: CycleState
) -> list[tuple[ReservePlugin, Status]]:
    return [(plugin, point.ask(plugin, call, state, POD, "n1")) for plugin, call in point.calls]


def test_plugins_stand_in_calling_order() -> None:
    first, second = Reserving(OK), Reserving(unschedulable("", "full"))
    answers = ask_all(runner(first, second), CycleState())
    assert answers == [(first, OK), (second, unschedulable("", "full"))]
    assert (first.asked, second.asked) == (1, 1)


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ValueError("no"), 'running Reserve plugin "Reserving": ValueError: no'),
        (PluginFailure("Other", "Filter", "late"), 'running Filter plugin "Other": late'),
    ],
    ids=["anything is named", "a name that is there already stays"],
)
def test_what_a_plugin_raises_names_it(raised: Exception, message: str) -> None:
    with pytest.raises(PluginFailure, match=message):
        ask_all(runner(Reserving(raised)), CycleState())


async def test_so_does_what_it_raises_while_it_waits() -> None:
    binding = PointRunner(BIND, {ExtensionPoint.BIND: [Binding()]}, Measured())
    ((plugin, call),) = binding.calls
    with pytest.raises(PluginFailure, match='running Bind plugin "Binding": ValueError'):
        await binding.wait(plugin, call, CycleState(), POD, "n1")


@pytest.mark.parametrize("sampled", [True, False])
def test_plugins_are_measured_in_sampled_attempts(*, sampled: bool) -> None:
    measured, state = Measured(), CycleState(sampled=sampled)
    full = unschedulable("Reserving", "full")
    point = runner(Reserving(full), metrics_recorder=measured)
    ((_, reserve),) = point.measured_calls if sampled else point.calls
    assert reserve(state, POD, "n1") == full
    assert ask_all(point, state)[0][1] == full
    expected = [("Reserving", "Reserve", Code.UNSCHEDULABLE, 7.0)] * 2
    assert measured.plugins == (expected if sampled else [])


def test_a_run_is_noted_in_the_attempt_and_one_that_raises_as_an_error() -> None:
    point, state = runner(), CycleState()
    with point.timed(state) as timing:
        assert timing.noted(OK) is OK
        timing.skipped = {"Other"}
    with pytest.raises(ValueError, match="broken"), point.timed(state):
        raise ValueError("broken")
    assert state.point_runs == [
        ("Reserve", Code.SUCCESS, 0.0, {"Other"}),
        ("Reserve", Code.ERROR, 0.0, None),
    ]


def test_a_point_that_follows_another_begins_where_that_ended() -> None:
    point, state = runner(metrics_recorder=Measured(1.0, 3.0, 8.0)), CycleState()
    with point.timed(state) as timing:
        timing.code, timing.skipped = Code.SUCCESS, {"Other"}
        timing.go_on_with("Permit")
    assert state.point_runs == [
        ("Reserve", Code.SUCCESS, 2.0, {"Other"}),
        ("Permit", Code.ERROR, 5.0, None),
    ]


def test_a_rejection_keeps_its_plugin_and_an_error_gets_a_name() -> None:
    point, plugin = runner(), Reserving(OK)
    assert point.named(plugin, unschedulable("", "full")) == unschedulable("Reserving", "full")
    assert point.named(plugin, unschedulable("Other", "full")) == unschedulable("Other", "full")
    named = point.named(plugin, error("", "lost"))
    assert named == error("Reserving", 'running Reserve plugin "Reserving": lost')
