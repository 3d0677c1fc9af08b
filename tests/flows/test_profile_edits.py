"""Profiles on a running operator: an edit in the middle of a crowd, and two profiles at once."""

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from stellwerk.profiles import default_profile
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, profile_status, until
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

NODES, ROOM = 40, 100
PODS = 2_000
SLACK = 6
"""Pods per node that may be decided between the look at the placements and the edit's arrival."""
UNTENDED = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)


def strategy(type_: str) -> JsonObject:
    """A spec that packs (MostAllocated) or spreads (LeastAllocated) by cpu alone."""
    resources = [{"name": "cpu", "weight": 1}]
    fit = {"scoringStrategy": {"type": type_, "resources": resources}}
    return {
        "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
        "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
    }


def nodes() -> list[JsonObject]:
    return [make_node(f"n{i:02}", cpu=str(ROOM), pods="500") for i in range(NODES)]


def create_pod(cluster: EmbeddedCluster, name: str, scheduler_name: str) -> None:
    pod = make_pod(name, cpu="1", scheduler_name=scheduler_name)
    del pod["metadata"]["uid"]
    cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)


def placements(cluster: EmbeddedCluster) -> dict[str, str]:
    """Node by pod, of those that are bound."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in cluster.api.all("pods", "default")
        if pod["spec"].get("nodeName")
    }


def is_there(cluster: EmbeddedCluster, name: str) -> bool:
    """Whether there is a profile of this name."""
    kind = cluster.api.kinds.resource(PLURAL, GROUP)
    return cluster.api.store.collection(kind.storage_name).get(("", name)) is not None


def test_an_edit_among_2000_pods_turns_spreading_into_packing() -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, nodes(), UNTENDED) as world:
            world.apply(make_profile("crowd", **strategy("LeastAllocated")))
            await edit_in_the_middle(world)

    run_skipping(flow)


async def edit_in_the_middle(world: VirtualCluster) -> None:
    """Have a crowd come, edit its profile when part of it is placed, and look at all nodes."""
    cluster = world.cluster
    for number in range(PODS):
        create_pod(cluster, f"p{number}", "crowd")
        if number % 50 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while len(placements(cluster)) < PODS // 4:
            for _ in range(20):
                await asyncio.sleep(0)
    before = placements(cluster)
    assert len(before) < PODS * 3 // 4, "the edit is to come in the middle"
    world.patch(PLURAL, "crowd", {"spec": strategy("MostAllocated")}, GROUP)
    await world.until(lambda: len(placements(cluster)) == PODS)
    await world.until(lambda: profile_status(cluster, "crowd").get("scheduledPods") == PODS)
    after = placements(cluster)
    assert before.items() <= after.items(), "no pod was moved"
    spread = Counter(before.values())
    assert len(spread) == NODES
    assert max(spread.values()) - min(spread.values()) <= 2
    filled = Counter(after.values())
    assert max(filled.values()) <= ROOM, "every assumption was counted"
    full = sum(count == ROOM for count in filled.values())
    # What came after the edit filled node after node, and at most one of them in part; the rest
    # has what was spread, and a few more that were decided before the edit was seen.
    level = max(spread.values()) + SLACK
    untouched = sum(count <= level for count in filled.values())
    assert full >= 5
    assert full + untouched >= NODES - 1
    scheduled = [name for name, _, reason, _ in world.notes.events if reason == "Scheduled"]
    assert len(scheduled) == len(set(scheduled)) == PODS
    status = profile_status(cluster, "crowd")
    assert status["pendingPods"]["total"] == 0
    assert status["lastGoodGeneration"] == status["observedGeneration"] == 2


def test_two_profiles_serve_at_once() -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, nodes(), UNTENDED) as world:
            world.apply(
                make_profile("spreading", **strategy("LeastAllocated")),
                make_profile("packing", **strategy("MostAllocated")),
            )
            for profile in ("spreading", "packing"):
                for number in range(NODES):
                    name = f"{profile}-{number}"
                    create_pod(world.cluster, name, profile)
                    await world.until(lambda name=name: world.node_of(name))  # type: ignore[misc]
            create_pod(world.cluster, "nobodys", "nobody")
            await asyncio.sleep(5)
            placed = placements(world.cluster)
            by_profile = {
                profile: {node for pod, node in placed.items() if pod.startswith(profile)}
                for profile in ("spreading", "packing")
            }
            assert len(placed) == 2 * NODES
            assert len(by_profile["spreading"]) == NODES
            assert len(by_profile["packing"]) == 1
            assert "nobodys" not in placed

    run_skipping(flow)


async def test_where_there_is_no_profile_the_default_one_is_made(tmp_path: Path) -> None:
    async with EmbeddedCluster(nodes(), options=ALONE) as cluster:
        install(cluster)
        async with operator_on(cluster, tmp_path):
            create_pod(cluster, "first", "stellwerk")
            await until(lambda: "first" in placements(cluster))
            await until(lambda: is_active(cluster, "default"))


async def test_without_the_definition_the_default_profile_serves_from_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        EmbeddedCluster(nodes(), options=ALONE) as cluster,
        operator_on(cluster, tmp_path),
    ):
        create_pod(cluster, "first", "stellwerk")
        await until(lambda: "first" in placements(cluster))
        install(cluster)  # and the profile is one that everybody sees
        await until(lambda: is_there(cluster, "default") and is_active(cluster, "default"))
    assert "serving stellwerk from memory" in caplog.text


async def test_the_default_profile_is_made_again_once_its_definition_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A definition that is deleted takes all profiles with it; said meanwhile, and mended after."""
    monkeypatch.setattr(default_profile, "EMPTY_SECONDS", 0.1)
    ports: list[int] = []

    async def asked(path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{ports[0]}{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def until_ready(*, ready: bool) -> str:
        async with asyncio.timeout(60):
            while (said := await asked("/readyz?verbose"))[0] != (200 if ready else 503):  # noqa: ASYNC110 over HTTP
                await asyncio.sleep(0.05)
        return said[1]

    async with EmbeddedCluster(nodes(), options=ALONE) as cluster:
        install(cluster, make_profile("packing", **strategy("MostAllocated")))
        async with operator_on(cluster, tmp_path, on_port=ports.append):
            create_pod(cluster, "first", "packing")
            await until(lambda: "first" in placements(cluster))
            api = cluster.api
            definitions = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
            delete(api, definitions, ("", f"{PLURAL}.{GROUP}"), DeleteOptions())
            text = await until_ready(ready=False)
            assert "[-]profiles failed: no profile serves: there is no SchedulerProfile" in text
            assert "stellwerk_served_profiles 0.0" in (await asked("/metrics"))[1]
            create_pod(cluster, "second", "stellwerk")
            create_pod(cluster, "third", "packing")
            install(cluster)
            await until(lambda: "second" in placements(cluster))
            await until(lambda: is_there(cluster, "default") and is_active(cluster, "default"))
            await until_ready(ready=True)
            assert "stellwerk_served_profiles 1.0" in (await asked("/metrics"))[1]
            assert "third" not in placements(cluster)
            kind = api.kinds.resource(PLURAL, GROUP)
            packing = make_profile("packing", **strategy("MostAllocated"))
            packing["metadata"].pop("uid", None)
            api.create(kind, "", packing)
            await until(lambda: "third" in placements(cluster))
    assert caplog.text.count("no SchedulerProfile is left") == 1
