"""The client and the recorder on the shipped cluster: what a whole API makes of their requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stellwerk.client.credentials import load_credentials
from stellwerk.client.event_recorder import EventRecorder
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import ObjectReference
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import Conflict, NotFound
from tests.support.recordings import WIRE_RELEASE

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, release=WIRE_RELEASE
    )
    async with EmbeddedCluster(2, options=options) as cluster:
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        async with KubernetesClient(
            await load_credentials(str(path)),
            clock=SystemClock(),
            metrics=Metrics(),
            jitter=lambda: 0.0,
        ) as client:
            yield client


async def create_pod(client: KubernetesClient, name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "registry.example/app:1"}]}
    return await client.create(PODS, {"metadata": {"name": name}, "spec": spec})


async def test_a_pod_is_bound_once(client: KubernetesClient) -> None:
    uid = (await create_pod(client, "web"))["metadata"]["uid"]
    await client.bind("default", "web", uid, "node-1")
    assert (await client.get(f"{PODS}/web"))["spec"]["nodeName"] == "node-1"
    with pytest.raises(
        Conflict, match=r"cannot bind default/web to node-2: 409 .*already assigned"
    ):
        await client.bind("default", "web", uid, "node-2")


async def test_a_pod_of_another_uid_is_not_bound(client: KubernetesClient) -> None:
    await create_pod(client, "web")
    with pytest.raises(Conflict):
        await client.bind("default", "web", "another", "node-1")


async def test_a_pod_that_is_gone_is_not_found(client: KubernetesClient) -> None:
    with pytest.raises(NotFound, match="cannot bind default/none to node-1: 404"):
        await client.bind("default", "none", "uid", "node-1")


async def test_a_condition_is_patched_in(client: KubernetesClient) -> None:
    await create_pod(client, "web")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    await client.patch_pod_status("default", "web", {"status": {"conditions": [condition]}})
    (stored,) = (await client.get(f"{PODS}/web"))["status"]["conditions"]
    assert stored["reason"] == "Unschedulable"


async def test_only_the_pod_of_that_uid_is_deleted(client: KubernetesClient) -> None:
    uid = (await create_pod(client, "web"))["metadata"]["uid"]
    with pytest.raises(Conflict):
        await client.delete_pod("default", "web", "another")
    await client.delete_pod("default", "web", uid)
    with pytest.raises(NotFound):
        await client.get(f"{PODS}/web")


async def test_lists_are_read_in_pages(client: KubernetesClient) -> None:
    await asyncio.gather(*(create_pod(client, f"pod-{number}") for number in range(23)))
    items, version = await client.list(PODS, limit=5)
    assert {item["metadata"]["name"] for item in items} == {f"pod-{n}" for n in range(23)}
    assert int(version) > 0


async def test_events_are_stored_and_become_series(client: KubernetesClient) -> None:
    recorder = EventRecorder(client, clock=SystemClock(), metrics=Metrics(), jitter=lambda: 0.0)
    recorder.start()
    pod = await create_pod(client, "web")
    metadata = pod["metadata"]
    regarding = ObjectReference(
        "Pod", "v1", "default", "web", metadata["uid"], metadata["resourceVersion"]
    )
    for _ in range(3):
        recorder.event(
            regarding,
            "Warning",
            "FailedScheduling",
            "Scheduling",
            "0/2 nodes are available",
            reporting_controller="stellwerk",
        )
        assert await recorder.flush(5)
    await recorder.close()
    (event,), _ = await client.list(EVENTS)
    assert event["series"]["count"] == 2
    assert event["note"] == "0/2 nodes are available"
    assert event["regarding"]["name"] == "web"
