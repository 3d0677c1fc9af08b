"""The writes that a process which only observes may send; no other leaves it."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stellwerk.client.allowed_writes import AllowedWrites
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.lease import LeaseRecord
from stellwerk.metrics import Metrics
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import Forbidden
from tests.support.fake_api import credentials_for, fake_api

LEASES = "/apis/coordination.k8s.io/v1/namespaces/stellwerk/leases"
OWN = AllowedWrites(LEASES, "stellwerk")
PROFILE = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles/a"
REVIEWS = "/apis/authorization.k8s.io/v1"
POD = "/api/v1/namespaces/default/pods/a"
NAMED: dict[str, Any] = {"metadata": {"name": "stellwerk"}}

ALLOWED = [
    pytest.param("GET", "/api/v1/pods?watch=1", None, id="a watch"),
    pytest.param("POST", LEASES, NAMED, id="its lease"),
    pytest.param("PUT", f"{LEASES}/stellwerk", NAMED, id="a renewal"),
    pytest.param("PATCH", f"{PROFILE}/status", {}, id="the status of a profile"),
    pytest.param("POST", f"{REVIEWS}/subjectaccessreviews", {}, id="a caller's right"),
    pytest.param("POST", f"{REVIEWS}/selfsubjectaccessreviews", {}, id="its own right"),
    pytest.param(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {}, id="a caller's identity"
    ),
]
REFUSED = [
    pytest.param("POST", f"{POD}/binding", {}, id="a binding"),
    pytest.param("PATCH", f"{POD}/status", {}, id="the status of a pod"),
    pytest.param("DELETE", POD, {}, id="a deletion"),
    pytest.param("PATCH", PROFILE, {}, id="a profile"),
    pytest.param("PATCH", f"{PROFILE}/scale/status", {}, id="a longer path"),
    pytest.param("PUT", f"{PROFILE}/status", {}, id="a whole status"),
    pytest.param("POST", PROFILE.rpartition("/")[0], {}, id="a new profile"),
    pytest.param("POST", LEASES, {"metadata": {"name": "other"}}, id="another lease"),
    pytest.param("PUT", f"{LEASES}/other", {}, id="a renewal of another lease"),
    pytest.param("POST", LEASES, None, id="a lease without a name"),
    pytest.param(
        "POST", "/apis/apps/v1/namespaces/stellwerk/controllerrevisions", {}, id="history"
    ),
    pytest.param("POST", "/apis/events.k8s.io/v1/namespaces/default/events", {}, id="an event"),
]


@pytest.mark.parametrize(("method", "path", "body"), ALLOWED)
def test_reads_and_what_is_listed_pass(method: str, path: str, body: Any) -> None:
    OWN.check(method, path, body, "act")


@pytest.mark.parametrize(("method", "path", "body"), REFUSED)
def test_everything_else_is_refused(method: str, path: str, body: Any) -> None:
    with pytest.raises(Forbidden, match=r"cannot act: 403 .*--observe"):
        OWN.check(method, path, body, "act")


def test_without_an_election_no_lease_is_written() -> None:
    writes = AllowedWrites()
    for method, path in (("POST", LEASES), ("PUT", f"{LEASES}/stellwerk")):
        with pytest.raises(Forbidden):
            writes.check(method, path, NAMED, "act")


ACTS: list[Callable[[KubernetesClient], Awaitable[object]]] = [
    lambda client: client.bind("default", "a", "uid", "n"),
    lambda client: client.patch_pod_status("default", "a", {}),
    lambda client: client.delete_pod("default", "a", "uid"),
    lambda client: client.create("/api/v1/namespaces", {"metadata": {"name": "a"}}),
    lambda client: client.replace(POD, {}),
    lambda client: client.delete(POD, "uid"),
    lambda client: client.patch(POD, {}),
    lambda client: client.write_event("default", {}),
    lambda client: client.patch_event("default", "a", {}),
]


async def test_the_client_sends_none_of_its_other_writes(tmp_path: Path) -> None:
    async with fake_api() as api:
        credentials = await credentials_for(api, tmp_path)
        client = KubernetesClient(
            credentials,
            clock=SystemClock(),
            metrics=Metrics(),
            jitter=lambda: 0.0,
            allowed_writes=OWN,
        )
        async with client:
            for act in ACTS:
                with pytest.raises(Forbidden):
                    await act(client)
            lease = client.lease("stellwerk", "stellwerk")
            held = await lease.create(LeaseRecord("me", 15, "", "", 0))
            await lease.report(held, "became leader", datetime.now(UTC))
            await client.patch(f"{PROFILE}/status", {})
    assert [(each.method, each.path) for each in api.asked] == [
        ("POST", LEASES),
        ("PATCH", f"{PROFILE}/status"),
    ]
