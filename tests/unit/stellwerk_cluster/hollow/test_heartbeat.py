"""Renewals of leases: computed while nothing reads them, written when something does."""

import asyncio

import aiohttp
import orjson

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.registry.lease_cache import LEASE_NAMESPACE, LEASES
from stellwerk_cluster.registry.watchers import Watcher
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.node_driver import ClusterDriver
from tests.support.skipped_time import run_skipping_over_sockets

WEEK = 7 * 24 * 3600.0


def renew_time(cluster: ClusterDriver, name: str) -> str:
    return str(cluster.lease(name)["spec"]["renewTime"])


def test_healthy_nodes_cost_nothing_while_nothing_reads_their_leases() -> None:
    cluster = ClusterDriver()
    cluster.advance(60)
    before = cluster.api.store.revision
    cluster.advance(WEEK, step=3600)
    assert cluster.api.store.revision == before


def test_what_is_read_was_renewed_within_the_last_ten_seconds() -> None:
    cluster = ClusterDriver()
    cluster.advance(WEEK + 4, step=3600)
    # Three nodes, which are renewed 3⅓ s after each other.
    assert renew_time(cluster, "node-3") == "2026-01-08T00:00:00.000000Z"
    assert renew_time(cluster, "node-1") == "2026-01-08T00:00:03.333333Z"


def test_clients_read_and_watch_renewals_over_http() -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"

    async def flow(clock: VirtualClock) -> None:
        cluster = EmbeddedCluster(1, clock=clock)
        async with cluster, aiohttp.ClientSession(cluster.url) as session:
            await asyncio.sleep(63)
            async with session.get(f"{path}/node-1") as answer:
                lease = await answer.json()
            assert lease["spec"]["renewTime"] == "2026-01-01T00:01:00.000000Z"
            query = {"watch": "true", "resourceVersion": lease["metadata"]["resourceVersion"]}
            async with session.get(path, params=query) as stream:
                for minute_and_second in ("01:10", "01:20", "01:30", "01:40"):
                    line = orjson.loads(await stream.content.readline())
                    assert line["type"] == "MODIFIED"
                    assert line["object"]["spec"]["renewTime"][14:19] == minute_and_second

    run_skipping_over_sockets(flow)


def test_who_reads_a_node_sees_a_report_of_the_last_five_minutes() -> None:
    path = "/api/v1/nodes"

    def times(node: JsonObject) -> set[str]:
        return {each["lastHeartbeatTime"][11:19] for each in node["status"]["conditions"]}

    async def flow(clock: VirtualClock) -> None:
        cluster = EmbeddedCluster(2, clock=clock)
        async with cluster, aiohttp.ClientSession(cluster.url) as session:

            async def read(at: str) -> JsonObject:
                async with session.get(at) as answer:
                    found: JsonObject = await answer.json()
                    return found

            await asyncio.sleep(200)
            first = await read(f"{path}/node-1")
            assert times(first) == {"00:00:00"}
            await asyncio.sleep(500)
            second = await read(f"{path}/node-1")
            assert times(second) == {"00:10:00"}
            assert await read(f"{path}/node-1") == second, "once for one report"
            began = {each["lastTransitionTime"] for each in first["status"]["conditions"]}
            assert began == {each["lastTransitionTime"] for each in second["status"]["conditions"]}
            for node in (await read(path))["items"]:
                assert times(node) == {"00:10:00"}

    run_skipping_over_sockets(flow)


def test_reading_twice_between_two_renewals_writes_once() -> None:
    cluster = ClusterDriver()
    cluster.advance(25)
    cluster.lease("node-1")
    before = cluster.api.store.revision
    cluster.lease("node-1")
    assert cluster.api.store.revision == before
    cluster.advance(10)
    cluster.lease("node-1")
    assert cluster.api.store.revision == before + 1


def test_a_watch_sees_every_renewal_at_its_time_and_the_last_watch_ends_the_writing() -> None:
    cluster = ClusterDriver(2)
    cluster.advance(12)
    api, leases = cluster.api, cluster.api.store.collection(LEASES)
    kind = api.kinds.resource("leases", "coordination.k8s.io")
    watcher = Watcher(lambda: None, lambda: None, trigger=("metadata.namespace", LEASE_NAMESPACE))
    api.lease_cache.before_read(kind, LEASE_NAMESPACE, "", watch=True)
    leases.watchers.append(watcher)
    cluster.advance(60)
    seen = [(e.entry.key[1], e.entry.obj["spec"]["renewTime"][-10:-1]) for e in watcher.drain()]
    assert seen == [
        (name, f"{second:02d}.000000")
        for ten in (10, 20, 30, 40, 50, 0)
        for name, second in (("node-1", (ten + 5) % 60), ("node-2", (ten + 10) % 60))
    ]
    leases.watchers.remove(watcher)
    cluster.advance(30)
    before = api.store.revision
    cluster.advance(60)
    assert api.store.revision == before


def test_a_client_that_only_follows_the_leases_of_others_makes_no_renewals() -> None:
    cluster = ClusterDriver()
    kind = cluster.api.kinds.resource("leases", "coordination.k8s.io")
    cluster.api.lease_cache.before_read(kind, "kube-system", "stellwerk", watch=True)
    before = cluster.api.store.revision
    cluster.advance(60)
    assert cluster.api.store.revision == before


def test_a_lease_that_was_deleted_is_there_again_when_it_is_read() -> None:
    cluster = ClusterDriver()
    cluster.advance(25)
    entry = cluster.api.store.collection(LEASES).get((LEASE_NAMESPACE, "node-1"))
    assert entry is not None
    cluster.api.store.remove(LEASES, entry)
    assert cluster.lease("node-1")["metadata"]["ownerReferences"][0]["kind"] == "Node"
    cluster.advance(120)
    assert cluster.condition("node-1", "Ready") == "True"
