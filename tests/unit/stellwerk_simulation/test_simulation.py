"""Time in a simulation: pods wait, leave, are evicted, and cost money."""

from typing import Any

import pytest
from typing_extensions import override

from stellwerk.models.pod import PodInfo
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.arrivals import as_listed, typical_pods
from stellwerk_simulation.cluster import ActivePods, make_world
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.manifests import nodes_of
from stellwerk_simulation.ready_profiles import profile_of
from stellwerk_simulation.run_metrics import RunResult
from stellwerk_simulation.simulation import Budgets, Simulation, SimulationOptions
from stellwerk_simulation.trace import TraceNode, TracePod
from tests.support.builders import make_node, make_pod, pod_info

NODE = TraceNode("n", 4000, 8192, 0, "", hourly_price=3.0)


def pod(name: str, arrives: float, runs: float | None, cpu_millis: int = 4000) -> TracePod:
    return TracePod(name, cpu_millis, 1024, 0, 0, (), arrives, runs)


def simulate(
    pods: list[TracePod], *, queues: bool, nodes: tuple[TraceNode, ...] = (NODE,)
) -> RunResult:
    typical = typical_pods(pods)
    run_options = SimulationOptions(timed=True, queues=queues)
    profile = profile_of("best-fit", typical)
    begun = Simulation(as_listed(nodes, pods), profile, typical, 1, run_options)
    return begun.run(pods, lambda _: None)


def test_a_pod_that_waits_is_bound_when_another_leaves() -> None:
    pods = [pod("first", 0, 100), pod("second", 40, 10), pod("third", 500, 1)]
    result = simulate(pods, queues=True)
    assert result.placed == 3
    assert result.waiting_seconds == pytest.approx((0, 60), abs=2)


def test_a_pod_that_is_dropped_does_not_wait() -> None:
    result = simulate([pod("first", 0, 100), pod("second", 40, 10)], queues=False)
    assert result.placed == 1
    assert result.waiting_seconds == (0, 0)


def test_pods_that_wait_after_the_last_arrival_are_bound_in_the_end() -> None:
    pods = [pod(f"p{number}", number, 50) for number in range(4)]
    assert simulate(pods, queues=True).placed == 4


def test_a_pod_that_fits_nowhere_does_not_keep_the_run_from_ending() -> None:
    pods = [pod("huge", 0, 10, cpu_millis=9000), pod("small", 1, 10)]
    assert simulate(pods, queues=True).placed == 1


def test_nodes_cost_money_while_they_are_in_use() -> None:
    pods = [pod("first", 0, 3600), pod("second", 36_000, 1800)]
    result = simulate(pods, queues=True)
    assert result.cost == pytest.approx(3.0 + 1.5, rel=0.01)
    assert result.nodes_in_use == 1
    assert result.allocated["cpu"] == 1


def test_a_pod_of_higher_priority_evicts() -> None:
    manifest = {
        "metadata": {"name": "urgent", "namespace": "default"},
        "spec": {
            "priority": 100,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}],
        },
    }
    urgent = TracePod("urgent", 4000, 0, 0, 0, (), 10, 5, manifest)
    pods = [pod("first", 0, None), urgent]
    profile = load_profile(
        {"metadata": {"name": "d"}, "spec": {"schedulerName": "d"}}, known_plugins()
    )
    typical = typical_pods(pods)
    run_options = SimulationOptions(timed=True, queues=True)
    result = Simulation(as_listed([NODE], pods), profile, typical, 1, run_options).run(
        pods, lambda _: None
    )
    assert (result.placed, result.preempted) == (2, 1)


def of_manifest(name: str, arrives: float, **fields: Any) -> TracePod:
    manifest = make_pod(name, **fields)
    return TracePod(f"default/{name}", 0, 0, 0, 0, (), arrives, None, manifest)


def in_order(pods: list[TracePod], nodes: list[JsonObject]) -> list[str]:
    """The pods under the default profile, by name, in the order in which they are bound."""
    bound: list[str] = []

    class Noting(Simulation):
        @override
        def bind(self, assumed: PodInfo) -> None:
            super().bind(assumed)
            bound.append(f"{assumed.name} on {assumed.node_name}")

    arrivals = as_listed(nodes_of(nodes, "nodes"), pods)
    run_options = SimulationOptions(timed=True, queues=True)
    Noting(arrivals, profile_of("default", []), [], 1, run_options).run(pods, lambda _: None)
    return bound


def required(app: str) -> dict[str, Any]:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_pod_that_wants_another_one_beside_it_is_bound_as_soon_as_that_is() -> None:
    follower = of_manifest("follower", 0, affinity=required("db"))
    pods = [follower, of_manifest("db", 2, labels={"app": "db"}), of_manifest("late", 100)]
    nodes = [{**make_node("n"), "kind": "Node"}]
    assert in_order(pods, nodes) == ["db on n", "follower on n", "late on n"]


def test_pods_that_come_together_are_decided_by_their_priority() -> None:
    pods = [of_manifest("low", 3, cpu="2"), of_manifest("high", 3, cpu="2", priority=9)]
    nodes = [{**make_node("n", cpu="2"), "kind": "Node"}]
    assert in_order(pods, nodes) == ["high on n"]


def placed_at(
    pods: list[TracePod], nodes: list[JsonObject], plugin: str, **args: Any
) -> dict[str, tuple[str, float]]:
    """Node of each pod that is bound, and when, under a plugin's arguments; evicted ones last."""
    profile = load_profile(
        {
            "metadata": {"name": "d"},
            "spec": {
                "schedulerName": "default-scheduler",
                "pluginConfig": [{"name": plugin, "args": args}],
            },
        },
        known_plugins(),
    )
    bound: dict[str, tuple[str, float]] = {}

    class Noting(Simulation):
        @override
        def bind(self, assumed: PodInfo) -> None:
            super().bind(assumed)
            bound[assumed.name] = (assumed.node_name, self._clock.monotonic())

        @override
        def delete(self, victim: PodInfo) -> None:
            super().delete(victim)
            bound[victim.name] = ("evicted", self._clock.monotonic())

    arrivals = as_listed(nodes_of(nodes, "nodes"), pods)
    run_options = SimulationOptions(timed=True, queues=True)
    Noting(arrivals, profile, [], 1, run_options).run(pods, lambda _: None)
    return bound


def test_in_virtual_time_a_constraint_gives_way_after_its_seconds() -> None:
    """Nothing else happens until then, nor any more: the run goes on until the pod is due."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    fields = {"cpu": "2", "labels": {"app": "web"}, "topologySpreadConstraints": [spread]}
    pods = [of_manifest(f"web-{number}", number, **fields) for number in range(2)]
    nodes = [
        {**make_node("a", cpu="8", labels={"zone": "a"}), "kind": "Node"},
        {**make_node("b", cpu="1", labels={"zone": "b"}), "kind": "Node"},
    ]
    bound = placed_at(pods, nodes, "PodTopologySpread", giveWayAfterSeconds=600)
    node_name, at_seconds = bound["web-1"]
    assert node_name == "a"
    assert 600 <= at_seconds <= 610
    assert "web-1" not in placed_at(pods, nodes, "PodTopologySpread", giveWayAfterSeconds=0)


@pytest.mark.parametrize(("min_run_seconds", "evicted"), [(0, "young"), (600, "old")])
def test_in_virtual_time_pods_become_old(min_run_seconds: int, evicted: str) -> None:
    pods = [
        of_manifest("old", 0, cpu="1"),
        of_manifest("young", 900, cpu="1"),
        of_manifest("urgent", 1000, cpu="1", priority=9),
    ]
    nodes = [{**make_node("n", cpu="2"), "kind": "Node"}]
    bound = placed_at(pods, nodes, "DefaultPreemption", minRunSeconds=min_run_seconds)
    assert {name for name, (node_name, _) in bound.items() if node_name == "evicted"} == {evicted}


def test_a_preemptor_is_not_tried_before_its_last_victim_is_gone() -> None:
    """With one of two gone another node takes it, which would have made the other one needless."""
    alone = {"requiredDuringSchedulingIgnoredDuringExecution": [in_zone("db")]}
    here = {"nodeSelector": {"kubernetes.io/hostname": "n"}, "cpu": "2"}
    pods = [
        of_manifest("db", 0, labels={"app": "db"}, priority=2, **here),
        of_manifest("web", 1, priority=1, **here),
        of_manifest("urgent", 2, cpu="4", priority=9, affinity={"podAntiAffinity": alone}),
    ]
    nodes = [{**make_node(name, cpu="4", zone="a"), "kind": "Node"} for name in ("n", "m")]
    assert in_order(pods, nodes) == ["db on n", "web on n", "urgent on n"]


def in_zone(app: str) -> JsonObject:
    selector = {"matchLabels": {"app": app}}
    return {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector}


def budget(**spec: Any) -> JsonObject:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"disruptionsAllowed": 99},
    }


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        pytest.param({"minAvailable": 2}, 1, id="a number that must be there"),
        pytest.param({"minAvailable": "60%"}, 0, id="a share of the expected, rounded up"),
        pytest.param({"maxUnavailable": 2}, 1, id="one is missing anyway"),
        pytest.param({"maxUnavailable": "25%"}, 0, id="a share that may be away, rounded up"),
        pytest.param({}, 2, id="one must be there if nothing is said"),
    ],
)
def test_what_is_allowed_with_three_of_four_pods_on_nodes(
    spec: dict[str, Any], allowed: int
) -> None:
    cluster_objects = ClusterObjects((budget(**spec),), "x")
    world = make_world([], profile_of("default", []), 0, ActivePods(), cluster_objects)
    budgets = Budgets(world, "x")
    others = (
        pod_info("other", labels={"app": "db"}),
        pod_info("w", namespace="b", labels={"app": "web"}),
    )
    for pod in others:
        budgets.arrived(pod)
        budgets.bound(pod)
    pods = [pod_info(f"p{number}", labels={"app": "web"}) for number in range(5)]
    for pod in pods:
        budgets.arrived(pod)
    for pod in pods[:4]:
        budgets.bound(pod)
    budgets.gone(pods[0].with_node("n"))
    [shown] = world.objects.list("PodDisruptionBudget")
    assert shown["status"]["disruptionsAllowed"] == allowed


def test_a_budget_that_is_wrong_is_named() -> None:
    cluster_objects = ClusterObjects((budget(minAvailable="some"),), "x.yaml")
    world = make_world([], profile_of("default", []), 0, ActivePods(), cluster_objects)
    message = r"x\.yaml, PodDisruptionBudget web: 'some' is neither a number of pods nor a perc"
    with pytest.raises(ConfigurationError, match=message):
        Budgets(world, "x.yaml")
