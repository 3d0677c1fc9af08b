"""What `kubectl top` and `kubectl logs` are answered, over HTTP and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.node_driver import hollow_pod
from tests.support.skipped_time import run_skipping_over_sockets

METRICS = "/apis/metrics.k8s.io/v1beta1"
LOG = "/api/v1/namespaces/default/pods/p/log"


def play(
    story: Callable[[EmbeddedCluster, aiohttp.ClientSession], Awaitable[None]], **options: Any
) -> None:
    async def flow(clock: VirtualClock) -> None:
        cluster = EmbeddedCluster(2, clock=clock, options=ClusterOptions(**options))
        timeout = aiohttp.ClientTimeout(total=None)
        async with cluster, aiohttp.ClientSession(cluster.url, timeout=timeout) as session:
            await story(cluster, session)

    run_skipping_over_sockets(flow)


def create(cluster: EmbeddedCluster, pod: JsonObject) -> None:
    cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)


def annotate(cluster: EmbeddedCluster, plural: str, name: str, key: str, text: str | None) -> None:
    kind = cluster.api.kinds.resource(plural)
    patch = {"metadata": {"annotations": {f"stellwerk.dev/{key}": text}}}
    cluster.api.patch(kind, ("default" if kind.namespaced else "", name), patch)


async def get(session: aiohttp.ClientSession, path: str, **query: str) -> tuple[int, JsonObject]:
    async with session.get(path, params=query) as answer:
        return answer.status, await answer.json()


async def text_of(session: aiohttp.ClientSession, **query: str) -> str:
    async with session.get(LOG, params=query) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


# --- metrics ------------------------------------------------------------------------------------


def test_usage_of_pods_and_nodes_is_what_the_annotations_say() -> None:
    async def story(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        busy = hollow_pod("busy", annotations={"usage": "cpu=250m,memory=64Mi"})
        busy["metadata"]["labels"] = {"app": "web"}
        busy["spec"]["containers"].append({"name": "d", "image": "i:1"})
        create(cluster, busy)
        create(cluster, hollow_pod("idle"))
        annotate(cluster, "nodes", "node-1", "usage", "cpu=100m,memory=1Gi")
        await asyncio.sleep(5)
        _, listed = await get(session, f"{METRICS}/namespaces/default/pods")
        assert listed["kind"] == "PodMetricsList"
        by_name = {each["metadata"]["name"]: each["containers"] for each in listed["items"]}
        assert by_name["busy"] == [
            {"name": "c", "usage": {"cpu": "125m", "memory": "32768Ki"}},
            {"name": "d", "usage": {"cpu": "125m", "memory": "32768Ki"}},
        ]
        assert by_name["idle"] == [{"name": "c", "usage": {"cpu": "0m", "memory": "0Ki"}}]
        _, chosen = await get(session, f"{METRICS}/pods", labelSelector="app=web")
        assert [each["metadata"]["name"] for each in chosen["items"]] == ["busy"]
        _, node = await get(session, f"{METRICS}/nodes/node-1")
        assert node["usage"] == {"cpu": "350m", "memory": f"{(1024 + 64) * 1024}Ki"}
        assert node["timestamp"] == "2026-01-01T00:00:05Z"

    play(story)


def test_what_is_not_heard_of_or_does_not_run_has_no_metrics() -> None:
    async def story(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        create(
            cluster, hollow_pod("ended", annotations={"run-seconds": "1"}, restartPolicy="Never")
        )
        create(cluster, hollow_pod("away", "node-2"))
        await asyncio.sleep(5)
        annotate(cluster, "nodes", "node-2", "machine", "cut-off")
        _, nodes = await get(session, f"{METRICS}/nodes")
        assert [each["metadata"]["name"] for each in nodes["items"]] == ["node-1"]
        _, pods = await get(session, f"{METRICS}/pods")
        assert pods["items"] == []
        for path in ("nodes/node-2", "namespaces/default/pods/away", "nodes/none"):
            assert (await get(session, f"{METRICS}/{path}"))[0] == 404
        assert (await get(session, f"{METRICS}/nodes", watch="true"))[0] == 405
        async with session.post(f"{METRICS}/nodes", json={}) as answer:
            assert answer.status == 405

    play(story)


def test_a_load_profile_says_how_much_of_the_usage_it_is_at_which_time() -> None:
    async def story(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        load = {"usage": "cpu=1,memory=1Gi,logs=1Gi", "load": "08:00=100%,20:30=30%"}
        create(cluster, hollow_pod("p", annotations=load))
        await asyncio.sleep(60)

        async def cpu() -> str:
            _, found = await get(session, f"{METRICS}/namespaces/default/pods/p")
            return str(found["containers"][0]["usage"]["cpu"])

        assert await cpu() == "300m"
        await asyncio.sleep(8 * 3600)
        assert await cpu() == "1000m"
        await asyncio.sleep(12.5 * 3600)
        assert await cpu() == "300m"

    play(story, heartbeats=False)


def test_without_kubelets_there_is_no_metrics_api() -> None:
    async def story(_: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        async with session.get(METRICS) as answer:
            assert answer.status == 404

    play(story, kubelet=None)


# --- logs ---------------------------------------------------------------------------------------


def test_options_choose_among_the_lines_of_a_log() -> None:
    async def story(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        create(cluster, hollow_pod("p"))
        await asyncio.sleep(100)
        annotate(cluster, "pods", "p", "end-now", "137")
        await asyncio.sleep(20)
        whole = (await text_of(session)).splitlines()
        assert whole[-1].endswith("container c started, restart 1")
        assert (await text_of(session, tailLines="1")).splitlines() == whole[-1:]
        assert await text_of(session, tailLines="0") == ""
        assert (await text_of(session, sinceSeconds="30")).splitlines() == whole[-2:]
        since = {"sinceTime": "2026-01-01T00:01:30Z"}
        assert (await text_of(session, **since)).splitlines() == whole[-2:]
        assert await text_of(session, limitBytes="9") == "scheduled"
        stamped = await text_of(session, timestamps="true", tailLines="1")
        assert stamped == f"2026-01-01T00:01:40Z {whole[-1]}\n"
        assert "exit code 137" in (await text_of(session, previous="true")).splitlines()[-1]
        for query in ({"tailLines": "x"}, {"sinceTime": "soon"}, {"container": "none"}):
            assert (await get(session, LOG, **query))[0] == 400

    play(story)


def test_a_log_that_is_followed_shows_each_line_as_it_comes_and_ends_with_the_pod() -> None:
    async def story(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        create(cluster, hollow_pod("p"))
        await asyncio.sleep(2)
        async with session.get(LOG, params={"follow": "true", "tailLines": "1"}) as stream:
            first = await stream.content.readline()
            assert first == b"image registry.example/c:1 is present, container c started\n"
            annotate(cluster, "pods", "p", "end-now", "3")
            assert b"ended: Error, exit code 3" in await stream.content.readline()
            assert b"restart 1" in await stream.content.readline()
            async with session.delete("/api/v1/namespaces/default/pods/p") as deleted:
                assert deleted.status == 200
            rest = (await stream.content.read()).decode().splitlines()
        assert rest[0].startswith("deleted with a grace period of 30 s")
        assert rest[-1] == "pod p is gone"

    play(story)


@pytest.mark.parametrize("stop", [False, True], ids=["the pod ends", "the cluster stops"])
def test_a_followed_log_ends_when_there_is_nothing_more_to_come(*, stop: bool) -> None:
    async def story(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        create(cluster, hollow_pod("p", annotations={"run-seconds": "50"}, restartPolicy="Never"))
        async with session.get(LOG, params={"follow": "true"}) as stream:
            await stream.content.readline()
            if stop:
                await cluster.stop()
                await stream.content.read()
            else:
                rest = (await stream.content.read()).decode().splitlines()
                assert rest[-1] == "container c ended: Completed, exit code 0"

    play(story)
