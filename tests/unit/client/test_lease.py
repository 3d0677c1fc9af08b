"""The Lease and its event, as kube-scheduler was recorded to write them."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.lease import (
    HOLDER_ANNOTATION,
    POD_ANNOTATION,
    PUBLIC_KEY_ANNOTATION,
    URL_ANNOTATION,
    Lease,
    LeaseRecord,
    is_of_stellwerk,
    local_url,
    own_pod,
    pod_of,
    public_key,
)
from stellwerk_kube.clock import rfc3339_microseconds
from stellwerk_kube.errors import Conflict
from tests.support.fake_api import Answer, Asked, FakeApi, client_of, fake_api, refusal
from tests.support.recordings import TRANSCRIPTS

RECORDING = TRANSCRIPTS / "scheduler" / "leader-election.json"
NOW = datetime(2026, 11, 20, 15, 51, 45, 897972, tzinfo=UTC)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        api.decide = lambda asked: Answer(200, asked.body)
        yield api


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    async with client_of(api, tmp_path) as client:
        yield client


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    if not RECORDING.exists():
        pytest.skip("the recorded transcripts are not beside this repository")
    requests: list[dict[str, Any]] = json.loads(RECORDING.read_text())["schedulerRequests"]
    return requests


def of(requests: list[dict[str, Any]], verb: str, plural: str) -> Iterator[dict[str, Any]]:
    for each in requests:
        if each["verb"] == verb and f"/{plural}" in each["uri"].partition("?")[0]:
            yield each["requestObject"]


def lease_record(spec: dict[str, Any]) -> LeaseRecord:
    return Lease.of({"spec": spec}).record


async def test_a_lease_is_created_as_recorded(
    api: FakeApi, client: KubernetesClient, recorded: list[dict[str, Any]]
) -> None:
    wanted = next(of(recorded, "create", "leases"))
    await client.lease("kube-system", "kube-scheduler").create(lease_record(wanted["spec"]))
    (asked,) = api.asked
    assert (asked.method, asked.path) == (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    )
    assert asked.body == wanted
    assert list(asked.body["spec"]) == list(wanted["spec"])


async def test_updates_and_releases_are_as_recorded(
    api: FakeApi, client: KubernetesClient, recorded: list[dict[str, Any]]
) -> None:
    updates = list(of(recorded, "update", "leases"))
    assert any(each["spec"]["holderIdentity"] == "" for each in updates)
    lease = client.lease("kube-system", "kube-scheduler")
    for wanted in updates:
        await lease.update(Lease.of({**wanted, "spec": {}}), lease_record(wanted["spec"]))
        assert api.asked[-1].body == wanted
        assert api.asked[-1].path.endswith("/leases/kube-scheduler")


async def test_the_event_is_as_recorded(
    api: FakeApi, client: KubernetesClient, recorded: list[dict[str, Any]]
) -> None:
    wanted = next(of(recorded, "create", "events"))
    involved = wanted["involvedObject"]
    lease = Lease.of(
        {"metadata": {key: involved[key] for key in ("uid", "resourceVersion")}, "spec": {}}
    )
    await client.lease("kube-system", "kube-scheduler").report(lease, wanted["message"], NOW)
    (asked,) = api.asked
    assert asked.path == "/api/v1/namespaces/kube-system/events"
    name = asked.body["metadata"].pop("name")
    assert name.startswith("kube-scheduler.18e9cbb5")
    del wanted["metadata"]["name"]
    ours = {"source": {"component": "stellwerk"}, "reportingComponent": "stellwerk"}
    assert asked.body == wanted | ours


def test_times_are_in_utc_with_six_digits() -> None:
    assert rfc3339_microseconds(NOW.replace(microsecond=0)) == "2026-11-20T15:51:45.000000Z"


async def test_a_lease_that_does_not_exist_is_none(api: FakeApi, client: KubernetesClient) -> None:
    api.decide = lambda _: refusal(404, "not found")
    assert await client.lease("kube-system", "x").get() is None


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_nothing_is_sent_twice(api: FakeApi, client: KubernetesClient, status: int) -> None:
    api.decide = lambda _: refusal(status, "no")
    with pytest.raises(Exception, match=f"cannot update lease kube-system/x: {status} no"):
        await client.lease("kube-system", "x").update(Lease.of({}), lease_record({}))
    assert len(api.asked) == 1


async def test_a_conflict_is_one(api: FakeApi, client: KubernetesClient) -> None:
    api.decide = lambda _: refusal(409, "modified")
    with pytest.raises(Conflict):
        await client.lease("kube-system", "x").update(Lease.of({}), lease_record({}))


def watched(*lines: Any) -> Answer:
    return Answer(200, "".join(f"{json.dumps(each)}\n" for each in lines))


async def test_a_watch_gives_the_lease_and_its_deletion(
    api: FakeApi, client: KubernetesClient
) -> None:
    obj = {"spec": {"holderIdentity": "me"}}
    asked: list[Asked] = []

    def answer(request: Asked) -> Answer:
        asked.append(request)
        return watched(
            {"type": "ADDED", "object": obj},
            {"type": "DELETED", "object": obj},
            {"type": "ERROR", "object": {"code": 410}},
            {"type": "ADDED", "object": obj},
        )

    api.decide = answer
    seen = [each async for each in client.lease("kube-system", "x").watch()]
    assert [None if each is None else each.record.holder_identity for each in seen] == ["me", None]
    assert asked[0].query["fieldSelector"] == "metadata.name=x"


@pytest.mark.parametrize("line", [["no", "event"], {"type": "ADDED"}, {"object": 7, "type": "X"}])
async def test_a_watch_that_says_something_else_ends(
    api: FakeApi, client: KubernetesClient, line: Any
) -> None:
    api.decide = lambda _: watched(line)
    assert [each async for each in client.lease("kube-system", "x").watch()] == []


@pytest.mark.parametrize(
    "spec", [None, {}, {"leaseDurationSeconds": "soon", "holderIdentity": None}]
)
def test_a_malformed_lease_has_no_holder(spec: Any) -> None:
    found = Lease.of({"spec": spec}).record
    assert (found.holder_identity, found.lease_duration_seconds) == ("", 0)


@pytest.mark.parametrize(
    ("url", "holder", "server", "expected"),
    [
        pytest.param(
            "http://127.0.0.1:1234", "127.0.0.1:1234", "https://127.0.0.1:9", True, id="beside it"
        ),
        pytest.param("http://[::1]:1234", "[::1]:1234", "http://[::1]:9", True, id="IPv6"),
        pytest.param(
            "http://127.0.0.1:1234", "web-0_5", "http://127.0.0.1:9", False, id="another holder"
        ),
        pytest.param(
            "http://127.0.0.1:1234", "127.0.0.1:1234", "https://10.0.0.1", False, id="far server"
        ),
        pytest.param(
            "http://10.0.0.2:1234", "10.0.0.2:1234", "http://127.0.0.1:9", False, id="far URL"
        ),
        pytest.param("http://localhost:1", "localhost:1", "http://127.0.0.1:9", False, id="a name"),
        pytest.param(
            "https://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1:9", False, id="with TLS"
        ),
        pytest.param(
            "http://a@127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1:9", False, id="with a user"
        ),
        pytest.param("http://127.0.0.1:1]", "x", "http://127.0.0.1:9", False, id="no URL"),
        pytest.param("", "", "http://127.0.0.1:9", False, id="none"),
    ],
)
def test_a_url_of_a_lease_is_followed_within_this_machine_alone(
    url: str, holder: str, server: str, *, expected: bool
) -> None:
    metadata = {"name": "stellwerk", "annotations": {URL_ANNOTATION: url}}
    lease = Lease.of({"metadata": metadata, "spec": {"holderIdentity": holder}})
    assert local_url(lease, server) == (url if expected else None)


async def test_the_holder_says_its_key_and_takes_over_no_other(client: KubernetesClient) -> None:
    said = {PUBLIC_KEY_ANNOTATION: "sha256:1"}
    record = lease_record({"holderIdentity": "a_1"})
    lease = client.lease("stellwerk", "stellwerk", lambda: said)
    created = await lease.create(record)
    assert public_key(created) == "sha256:1"
    said[PUBLIC_KEY_ANNOTATION] = "sha256:2"
    renewed = await lease.update(created, record)
    assert public_key(renewed) == "sha256:2"
    # kube-scheduler, which may take the lease next, keeps what others have written on it.
    released = await lease.update(renewed, lease_record({"holderIdentity": ""}))
    assert "annotations" not in released.obj["metadata"]
    others = Lease.of(
        {"metadata": {"annotations": {"kept": "yes", PUBLIC_KEY_ANNOTATION: "sha256:2"}}}
    )
    # A holder that serves without TLS does not answer for the key of the one before it.
    plain = await client.lease("stellwerk", "stellwerk").update(others, record)
    assert plain.obj["metadata"] == {"annotations": {"kept": "yes"}}
    assert public_key(plain) == ""


ENVIRONMENT = {"POD_NAMESPACE": "stellwerk", "POD_NAME": "stellwerk-1"}


async def test_the_holder_says_where_its_pod_is_and_the_next_one_does_not_inherit_it(
    client: KubernetesClient,
) -> None:
    held, released = lease_record({"holderIdentity": "a_1"}), lease_record({"holderIdentity": ""})
    lease = client.lease("kube-system", "kube-scheduler", lambda: own_pod(ENVIRONMENT))
    created = await lease.create(held)
    assert (is_of_stellwerk(created), pod_of(created)) == (True, ("stellwerk", "stellwerk-1"))
    # kube-scheduler takes the lease and leaves the annotations.
    taken = Lease.of({**created.obj, "spec": {"holderIdentity": "control-plane_1"}})
    assert (is_of_stellwerk(taken), pod_of(taken)) == (False, None)
    given = await lease.update(created, released)
    assert (is_of_stellwerk(given), given.obj["metadata"].get("annotations")) == (False, None)


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="outside of a cluster"),
        pytest.param({"POD_NAME": "stellwerk-1"}, id="half of it"),
        pytest.param({**ENVIRONMENT, "POD_NAME": "a/b"}, id="two names"),
        pytest.param({**ENVIRONMENT, "POD_NAMESPACE": "--as=admin"}, id="an option of kubectl"),
    ],
)
def test_what_is_no_pod_is_neither_said_nor_read(environment: dict[str, str]) -> None:
    assert own_pod(environment) == {}
    said = f"{environment.get('POD_NAMESPACE', '')}/{environment.get('POD_NAME', '')}"
    annotations = {HOLDER_ANNOTATION: "a_1", POD_ANNOTATION: said}
    lease = Lease.of({"metadata": {"annotations": annotations}, "spec": {"holderIdentity": "a_1"}})
    assert pod_of(lease) is None
