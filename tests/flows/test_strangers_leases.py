"""Who may create Leases may write the operator's before it starts: it is taken all the same.

The embedded API checks what the operator writes, as an API server does.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.lease import HOLDER_ANNOTATION, PUBLIC_KEY_ANNOTATION, ApiLease, Lease
from stellwerk.metrics import Metrics
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.json_values import JsonObject

ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
NOW = "2026-01-01T00:00:00.000000Z"
SPEC = {"holderIdentity": "stranger", "leaseDurationSeconds": 1}


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param({"spec": {**SPEC, "leaseTransitions": (1 << 31) - 1}}, id="no number beyond"),
        pytest.param({"spec": {**SPEC, "holderIdentity": "x" * 1_000_000}}, id="a long name"),
        pytest.param({"spec": {**SPEC, "renewTime": "9999-12-31T23:59:59.999999Z"}}, id="9999"),
        pytest.param({"spec": {}}, id="nothing"),
        pytest.param(
            {"metadata": {"annotations": {"a": "x" * 262_143}}, "spec": SPEC},
            id="as many annotations as there may be",
        ),
        pytest.param(
            {
                "metadata": {
                    "finalizers": ["example.com/never"],
                    "labels": {f"l{number}": "x" * 63 for number in range(5000)},
                },
                "spec": SPEC,
            },
            id="finalizers and thousands of labels",
        ),
    ],
)
async def test_a_lease_of_a_stranger_is_taken(
    client: ApiLease, cluster: EmbeddedCluster, stranger: JsonObject
) -> None:
    api, leases = cluster.api, cluster.api.kinds.resource("leases", "coordination.k8s.io")
    metadata: dict[str, Any] = {"name": "stellwerk", **stranger.get("metadata", {})}
    api.create(leases, "default", {"metadata": metadata, "spec": stranger["spec"]})
    found = await client.get()
    assert found is not None
    taken = await client.update(found, found.record.taken("me", 15, NOW))
    assert taken.record.holder_identity == "me"
    stored = Lease.of(api.get(leases, "default", "stellwerk").obj)
    assert stored.record == taken.record
    assert stored.obj["metadata"]["annotations"][HOLDER_ANNOTATION] == "me"
    renewed = await client.update(taken, taken.record.taken("me", 15, NOW))
    assert renewed.record.lease_transitions == taken.record.lease_transitions


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster([], options=ALONE) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[ApiLease]:
    path = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(path)
    async with KubernetesClient(
        await load_credentials(str(path)),
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=lambda: 0.0,
    ) as client:
        yield client.lease("default", "stellwerk", lambda: {PUBLIC_KEY_ANNOTATION: "sha256:1"})
