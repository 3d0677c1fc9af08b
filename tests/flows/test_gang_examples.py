"""The examples of docs/gangs.md, each in its own cluster, in virtual time."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stellwerk.models.pod_group import parse_pod_group
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.releases import DEFAULT_RELEASE, RELEASES
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.gang_examples import EXAMPLES, VERSIONS, WRITTEN, directory, examples
from tests.support.in_process import make_profile
from tests.support.repository import ROOT
from tests.support.running_operator import install, operator_on, until
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster, read_manifests

ZONE = "topology.kubernetes.io/zone"
Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(nodes: Iterable[JsonObject], story: Story, release: str = DEFAULT_RELEASE) -> None:
    """Tell a story on a new cluster whose profile places groups."""

    async def flow(clock: VirtualClock) -> None:
        gates = feature_gates("AllAlpha=true,AllBeta=true", release)
        options = ClusterOptions(seed=1, heartbeats=False, release=release, feature_gates=gates)
        async with open_virtual_cluster(clock, nodes, options) as world:
            patch = {"spec": {"gangScheduling": True}}
            world.patch(PLURAL, "default-scheduler", patch, GROUP)
            await story(world)

    run_skipping(flow)


def placed(world: VirtualCluster, owner: str) -> list[str]:
    """The nodes of the pods of one owner that have one."""
    return sorted(
        pod["spec"]["nodeName"]
        for name, pod in world.pods.items()
        if name.startswith(f"{owner}-") and pod["spec"].get("nodeName")
    )


def condition(world: VirtualCluster, group: str) -> JsonObject:
    found = world.api.find("podgroups.scheduling.k8s.io", "default", group)
    assert found is not None
    conditions: list[JsonObject] = found["status"].get("conditions") or []
    return next((each for each in conditions if each["type"] == "PodGroupInitiallyScheduled"), {})


def are_placed(world: VirtualCluster, owner: str, at_least: int) -> Callable[[], bool]:
    return lambda: len(placed(world, owner)) >= at_least


def is_placed(world: VirtualCluster, group: str, *, placed: bool = True) -> Callable[[], bool]:
    return lambda: condition(world, group).get("status") == str(placed)


def test_a_gang_of_four_waits_gets_room_and_runs() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gang-other-pod.yaml")
        await world.settle()
        world.apply_file(EXAMPLES / "gang-of-four.yaml")
        await world.until(is_placed(world, "training", placed=False))
        assert condition(world, "training")["reason"] == "Unschedulable"
        await world.settle()
        assert placed(world, "training") == []
        world.delete("pods", "other")
        await world.until(is_placed(world, "training"))
        assert placed(world, "training") == ["n"] * 4
        await world.settle()
        assert {world.phase_of(name) for name in world.pods} == {"Running"}

    play([make_node("n", cpu="4")], story)


@pytest.mark.parametrize("release", RELEASES)
def test_there_are_examples_for_each_release(release: str) -> None:
    examples_of_release = directory(release)

    async def story(world: VirtualCluster) -> None:
        for name, group in (("gang-of-four", "training"), ("gang-preempts", "urgent")):
            world.apply_file(examples_of_release / f"{name}.yaml")
            await world.until(are_placed(world, group, at_least=3))

    play([make_node("n", cpu="4"), make_node("m", cpu="4")], story, release)


@pytest.mark.parametrize("release", VERSIONS)
def test_the_examples_of_a_release_are_made_from_those_of_1_37(release: str) -> None:
    expected = dict(examples(release))
    assert set(directory(release).iterdir()) == set(expected)
    for path, text in expected.items():
        assert path.read_text() == text, "run make gang-examples"
        for own, source in zip(
            read_manifests(path), read_manifests(EXAMPLES / path.name), strict=True
        ):
            if source["kind"] == "PodGroup":
                assert own["apiVersion"] == f"scheduling.k8s.io/{VERSIONS[release]}"
                read = parse_pod_group(own)
                assert replace(read, version=WRITTEN) == parse_pod_group(source)
            else:
                assert own == source


def test_of_two_gangs_and_one_room_one_runs_and_the_other_follows() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gang-two.yaml")
        await world.until(lambda: len(placed(world, "red") + placed(world, "blue")) == 3)
        first, second = sorted(("red", "blue"), key=lambda name: -len(placed(world, name)))
        assert (len(placed(world, first)), len(placed(world, second))) == (3, 0)
        await world.until(is_placed(world, second, placed=False))
        world.delete("jobs", first, "batch")
        await world.until(is_placed(world, second))
        assert (len(placed(world, first)), len(placed(world, second))) == (0, 3)

    play([make_node("n", cpu="4")], story)


def test_pods_that_must_be_close_share_a_zone() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gang-one-zone.yaml")
        await world.until(is_placed(world, "close"))
        assert set(placed(world, "close")) == {"b1", "b2"}

    nodes = [
        make_node(name, cpu=cpu, labels={ZONE: f"zone-{name[0]}"})
        for name, cpu in (("a1", "2"), ("a2", "2"), ("b1", "4"), ("b2", "2"))
    ]
    play(nodes, story)


@pytest.mark.parametrize(("cpu", "bound"), [("2", 0), ("3", 3), ("8", 5)])
def test_a_launcher_is_not_left_out_for_workers(cpu: str, bound: int) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gang-roles.yaml")
        await world.until(is_placed(world, "mpi", placed=bound > 0))
        await world.settle()
        assert len(placed(world, "mpi")) == bound
        assert bool(world.node_of("mpi-launcher")) == (bound > 0)

    play([make_node("n", cpu=cpu)], story)


@pytest.mark.parametrize("others", [1, 3])
def test_a_gang_takes_the_place_of_as_few_as_it_must(others: int) -> None:
    async def story(world: VirtualCluster) -> None:
        names = [f"low{number}" for number in range(others)]
        world.apply(*(make_pod(name, cpu="1") for name in names))
        await world.settle()
        world.apply_file(EXAMPLES / "gang-preempts.yaml")
        await world.until(is_placed(world, "urgent"))
        assert len(placed(world, "urgent")) == 3
        assert len(set(names) - set(world.pods)) == others - 1

    play([make_node("n", cpu="4")], story)


async def test_groups_of_the_coscheduling_plugin_are_placed_by_their_label(tmp_path: Path) -> None:
    options = ClusterOptions(identity=IdentityOptions("rbac"))
    async with EmbeddedCluster([make_node("n", cpu="3")], options=options) as cluster:
        definitions = cluster.api.kinds.resource(
            "customresourcedefinitions", "apiextensions.k8s.io"
        )
        (definition,) = read_manifests(ROOT / "manifests" / "coscheduling" / "podgroups.yaml")
        cluster.api.create(definitions, "", definition)
        install(cluster, make_profile("default-scheduler", gangScheduling=True))
        for obj in read_manifests(EXAMPLES / "gang-coscheduling.yaml"):
            kind = cluster.api.kinds.named(obj["apiVersion"].rpartition("/")[0], obj["kind"])
            assert kind is not None
            cluster.api.create(kind, "default", obj)

        def phase() -> str:
            group = cluster.api.find("podgroups.scheduling.x-k8s.io", "default", "mpi")
            assert group is not None
            return str((group.get("status") or {}).get("phase"))

        async with operator_on(cluster, tmp_path):
            await until(lambda: phase() == "Running")
        nodes = [pod["spec"].get("nodeName") for pod in cluster.api.all("pods", "default")]
        assert nodes == ["n"] * 3
