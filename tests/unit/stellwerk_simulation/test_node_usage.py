"""Usage in simulations: read as from a cluster, and shown in the figures of a run."""

from typing import Any

import pytest

from stellwerk.plugins.registry import add_installed, installed_points, known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_simulation.arrivals import Arrivals
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.simulation import Simulation, SimulationOptions
from stellwerk_simulation.trace import TraceNode, TracePod

NODES = [TraceNode(name, 10_000, 10_240, 0, "") for name in ("a", "b")]


def pod(name: str, at_seconds: float, **annotations: str) -> TracePod:
    amounts = {"cpu": "100m", "memory": "1Mi"}
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {f"stellwerk.dev/{key}": value for key, value in annotations.items()},
    }
    spec = {"containers": [{"name": "main", "resources": {"requests": amounts}}]}
    manifest: dict[str, Any] = {"metadata": metadata, "spec": spec}
    return TracePod(name, 100, 1, 0, 0, (), at_seconds, 3600.0, manifest)


def by_load(**args: Any) -> Any:
    add_installed(installed_points())
    plugin = "LoadVariationRiskBalancing"
    scores = {"enabled": [{"name": plugin}], "disabled": [{"name": "*"}]}
    spec = {"schedulerName": "s", "plugins": {"score": scores}}
    config = [{"name": plugin, "args": args}]
    return load_profile(
        {"metadata": {"name": "s"}, "spec": {**spec, "pluginConfig": config}}, known_plugins()
    )


def placed(profile: Any, pods: list[TracePod]) -> tuple[dict[str, str], Any]:
    simulation = Simulation(Arrivals(pods, NODES), profile, [], 1, SimulationOptions(timed=True))
    nodes = {each.name: simulation.arrive(each) for each in pods}
    return nodes, simulation.run([], lambda _: None)


def test_plugins_read_what_pods_use_every_half_minute() -> None:
    hot = pod("hot", 0, usage="cpu=9,memory=1Mi")
    nodes, result = placed(by_load(), [hot, *(pod(f"p{each}", 40) for each in range(6))])
    assert {nodes[f"p{each}"] for each in range(6)} == {"a", "b"} - {nodes["hot"]}
    assert result.hottest_pct == 90.0
    assert result.hot_share_pct == pytest.approx(50, abs=1)


def test_between_two_readings_plugins_see_the_last_one() -> None:
    numbers = [pod(f"p{each}", 40, usage="cpu=9") for each in range(8)]
    hot = pod("hot", 0, usage="cpu=9")
    nodes, _ = placed(by_load(), [hot, *numbers])
    # Nobody measured what came within the half minute: all of it goes to one node.
    assert {nodes[each.name] for each in numbers} == {"a", "b"} - {nodes["hot"]}


def test_a_load_profile_is_followed_in_virtual_time() -> None:
    night = pod("night", 0, usage="cpu=9", load="00:00=100%,00:01=0%")
    nodes, result = placed(by_load(), [night, pod("later", 120), pod("last", 121)])
    assert len(nodes) == 3
    assert result.hottest_pct == 90.0
    assert 0 < (result.hot_share_pct or 0) < 5


def test_without_usage_there_is_no_figure() -> None:
    _, result = placed(by_load(), [pod("p", 0, load="nonsense")])
    assert result.hottest_pct is None
    assert result.hot_share_pct is None


def test_other_addresses_are_not_called() -> None:
    profile = by_load(watcherAddress="http://watcher:2020")
    nodes, _ = placed(profile, [pod("hot", 0, usage="cpu=9"), pod("p", 40)])
    assert all(nodes.values())


def test_kinds_that_the_plugins_of_a_profile_read_are_loaded() -> None:
    add_installed(installed_points())
    plugins = {"multiPoint": {"enabled": [{"name": "CapacityScheduling"}]}}
    quota = {
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": "default"},
        "spec": {"min": {"cpu": "150m", "memory": "1Gi"}},
    }
    pods = [pod(f"p{each}", each) for each in range(3)]
    bound = []
    for spec in ({"plugins": plugins}, {}):
        obj = {"metadata": {"name": "s"}, "spec": {"schedulerName": "s", **spec}}
        arrivals = Arrivals(pods, NODES, ClusterObjects.among([quota], "here"))
        simulation = Simulation(arrivals, load_profile(obj, known_plugins()), [], 1)
        bound.append(sum(bool(simulation.arrive(each)) for each in pods))
    assert bound == [1, 3]
