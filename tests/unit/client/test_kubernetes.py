"""What the client makes of the API's answers, against a scripted server."""

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import aiohttp
import orjson
import pytest

from stellwerk.client import credentials
from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk_cluster.apimachinery import protobuf
from stellwerk_kube.clock import SystemClock, VirtualClock
from stellwerk_kube.errors import (
    AnswerTooLarge,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    Throttled,
    Unavailable,
    UnreachableError,
)
from stellwerk_kube.protobuf import read_status
from tests.support.fake_api import (
    FAST,
    Answer,
    Asked,
    FakeApi,
    client_of,
    credentials_for,
    fake_api,
    kubeconfig,
    refusal,
    scheduled_event,
)
from tests.support.in_process import eventually


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    async with client_of(api, tmp_path) as client:
        yield client


async def bind(client: KubernetesClient) -> None:
    await client.bind("default", "web", "uid-1", "node-7")


async def test_binding_is_one_post_as_kube_scheduler_sends_it(
    api: FakeApi, client: KubernetesClient
) -> None:
    await bind(client)
    (asked,) = api.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/default/pods/web/binding")
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "default", "name": "web", "uid": "uid-1"},
        "target": {"kind": "Node", "name": "node-7"},
    }


async def test_an_event_is_sent_in_protobuf(api: FakeApi, client: KubernetesClient) -> None:
    await client.write_event("default", scheduled_event())
    (asked,) = api.asked
    assert asked.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert asked.headers["Content-Type"] == "application/vnd.kubernetes.protobuf"
    assert asked.headers["Accept"] == "application/vnd.kubernetes.protobuf, application/json"
    assert asked.body == scheduled_event()


async def test_a_server_that_does_not_take_protobuf_is_sent_json_from_then_on(
    api: FakeApi, client: KubernetesClient
) -> None:
    def decide(asked: Asked) -> Answer | None:
        is_json = asked.headers["Content-Type"] == "application/json"
        return None if is_json else refusal(415, "the body of the request was in an unknown format")

    api.decide = decide
    await client.write_event("default", scheduled_event("first"))
    await client.write_event("default", scheduled_event("second"))
    refused, *written = api.asked
    assert refused.body == written[0].body, "the event that was refused is sent again"
    assert written[1].body == scheduled_event("second")
    assert [each.headers["Content-Type"] for each in written] == ["application/json"] * 2
    assert [each.headers["Accept"] for each in written] == ["application/json"] * 2


async def test_a_refusal_in_protobuf_is_read() -> None:
    status = {"apiVersion": "v1", "kind": "Status", "message": "wait a little", "code": 429}
    body = protobuf.write_body("Status", status | {"details": {"retryAfterSeconds": 7}})
    assert read_status(body) == {"message": "wait a little", "details": {"retryAfterSeconds": 7}}
    assert read_status(b'{"message": "wait a little"}') is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(404, NotFound, id="the pod is gone"),
        pytest.param(409, Conflict, id="the pod is bound already"),
        pytest.param(403, Forbidden, id="the role lacks the right"),
        pytest.param(422, ApiError, id="the object is invalid"),
    ],
)
async def test_refusals_are_answers_and_not_sent_again(
    api: FakeApi, client: KubernetesClient, status: int, expected: type[ApiError]
) -> None:
    api.answers.append(refusal(status, "pod web is already assigned", "Because"))
    with pytest.raises(expected) as caught:
        await bind(client)
    assert str(caught.value) == (
        f"cannot bind default/web to node-7: {status} pod web is already assigned"
    )
    assert caught.value.reason == "Because"
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(refusal(500, "etcd is away"), id="server error"),
        pytest.param(refusal(503, "starting"), id="unavailable"),
        pytest.param(refusal(429, "too many requests"), id="throttled"),
        pytest.param(Answer(0), id="connection cut"),
        pytest.param(Answer(502, "<html>bad gateway</html>"), id="proxy's page"),
    ],
)
async def test_passing_failures_are_sent_again(
    api: FakeApi, client: KubernetesClient, failure: Answer
) -> None:
    api.answers += [failure, failure]
    await client.patch_pod_status("default", "web", {"status": {}})
    assert len(api.asked) == 3


async def test_patience_is_bounded(api: FakeApi, client: KubernetesClient) -> None:
    api.answers += [refusal(503, "still starting")] * 10
    with pytest.raises(Unavailable, match="cannot delete default/web: 503 still starting"):
        await client.delete_pod("default", "web", "uid-1")
    assert len(api.asked) == FAST.attempts


async def test_no_attempt_is_begun_when_patience_has_run_out(api: FakeApi, tmp_path: Path) -> None:
    api.decide = lambda _: Answer(503, after_seconds=0.6)
    hasty = RetryPolicy(attempts=100, first_delay_seconds=0.001, patience_seconds=1.0)
    async with client_of(api, tmp_path, retry=hasty) as client:
        with pytest.raises(Unavailable):
            await client.get("/readyz")
    assert 1 < len(api.asked) < 5


@pytest.mark.parametrize(
    "throttled",
    [
        pytest.param(
            Answer(429, {"message": "slow down"}, {"Retry-After": "0.15"}), id="by the header"
        ),
        pytest.param(refusal(429, "slow down", retryAfterSeconds=0.15), id="by the details"),
        pytest.param(Answer(503, {"message": "wait"}, {"Retry-After": "0.15"}), id="also with 503"),
    ],
)
async def test_retry_after_is_waited_for(
    api: FakeApi, client: KubernetesClient, throttled: Answer
) -> None:
    api.answers.append(throttled)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await client.get("/api/v1/nodes/n1")
    assert loop.time() - started >= 0.15


async def test_a_retry_after_beyond_patience_is_left_to_the_caller(
    api: FakeApi, client: KubernetesClient
) -> None:
    api.answers.append(Answer(429, {"message": "come back"}, {"Retry-After": "60"}))
    with pytest.raises(Throttled) as caught:
        await client.get("/api/v1/nodes/n1")
    assert caught.value.retry_after_seconds == 60
    assert len(api.asked) == 1


async def test_a_server_that_never_answers_times_out(api: FakeApi, tmp_path: Path) -> None:
    api.answers.append(Answer(after_seconds=60))
    patience = RetryPolicy(attempts=1, timeout_seconds=0.1)
    async with client_of(api, tmp_path, retry=patience) as client:
        with pytest.raises(
            Unavailable, match=r"cannot GET /readyz: \w*Timeout\w* no answer in time"
        ):
            await client.get("/readyz")


async def test_a_lost_answer_of_a_binding_that_got_through_is_a_success(
    api: FakeApi, client: KubernetesClient
) -> None:
    bound = {"metadata": {"uid": "uid-1"}, "spec": {"nodeName": "node-7"}}
    api.answers += [Answer(0), refusal(409, "already assigned"), Answer(body=bound)]
    await bind(client)
    assert [asked.method for asked in api.asked] == ["POST", "POST", "GET"]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"metadata": {"uid": "uid-1"}, "spec": {"nodeName": "other"}}, id="elsewhere"),
        pytest.param(
            {"metadata": {"uid": "uid-2"}, "spec": {"nodeName": "node-7"}}, id="another pod"
        ),
    ],
)
async def test_a_lost_answer_before_another_schedulers_binding_is_a_conflict(
    api: FakeApi, client: KubernetesClient, pod: dict[str, Any]
) -> None:
    api.answers += [Answer(0), refusal(409, "already assigned"), Answer(body=pod)]
    with pytest.raises(Conflict):
        await bind(client)


async def test_status_patch_is_a_strategic_merge(api: FakeApi, client: KubernetesClient) -> None:
    await client.patch_pod_status("default", "web", {"status": {"nominatedNodeName": None}})
    (asked,) = api.asked
    assert (asked.method, asked.path) == ("PATCH", "/api/v1/namespaces/default/pods/web/status")
    assert asked.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert asked.body == {"status": {"nominatedNodeName": None}}


async def test_a_read_only_manifest_can_be_created(api: FakeApi, client: KubernetesClient) -> None:
    await client.create("/api/v1/namespaces", MappingProxyType({"kind": "Namespace"}))
    assert api.asked[0].body == {"kind": "Namespace"}


@pytest.mark.parametrize(
    ("metadata", "gone"),
    [
        ({"deletionGracePeriodSeconds": 0}, True),
        ({"deletionGracePeriodSeconds": 30}, False),
        ({"deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]}, False),
    ],
)
async def test_the_answer_to_a_deletion_tells_whether_the_pod_takes_its_time(
    api: FakeApi,
    client: KubernetesClient,
    metadata: dict[str, Any],
    gone: bool,  # noqa: FBT001 the case
) -> None:
    api.answers.append(Answer(body={"kind": "Pod", "metadata": metadata}))
    assert await client.delete_pod("default", "web", "uid-1") is gone


async def test_delete_names_the_uid_and_no_grace_period(
    api: FakeApi, client: KubernetesClient
) -> None:
    await client.delete_pod("default", "web", "uid-1")
    assert api.asked[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "uid-1"},
    }


def paged(asked: Asked) -> Answer:
    start = int(asked.query.get("continue", "0"))
    limit = int(asked.query.get("limit", "7"))
    metadata = {"resourceVersion": "42"}
    if start + limit < 7:
        metadata["continue"] = str(start + limit)
    return Answer(
        body={
            "metadata": metadata,
            "items": [{"n": n} for n in range(start, min(7, start + limit))],
        }
    )


async def test_list_reads_all_pages(api: FakeApi, client: KubernetesClient) -> None:
    api.decide = paged
    items, version = await client.list("/api/v1/pods?fieldSelector=a%3Db", limit=3)
    assert [item["n"] for item in items] == list(range(7))
    assert version == "42"
    assert [asked.query.get("continue") for asked in api.asked] == [None, "3", "6"]
    assert {asked.query["fieldSelector"] for asked in api.asked} == {"a=b"}


async def test_a_list_whose_pages_expire_is_read_anew_without_doubles(
    api: FakeApi, client: KubernetesClient
) -> None:
    def expiring(asked: Asked) -> Answer:
        return refusal(410, "too old") if "continue" in asked.query else paged(asked)

    api.decide = expiring
    items, _ = await client.list("/api/v1/pods", limit=3)
    assert [item["n"] for item in items] == list(range(7))
    assert "limit" not in api.asked[-1].query


async def test_an_answer_that_is_not_json_is_an_api_error(
    api: FakeApi, client: KubernetesClient
) -> None:
    api.answers.append(Answer(200, "<html>"))
    with pytest.raises(ApiError, match="cannot GET /x: 200 the answer is not JSON"):
        await client.get("/x")


async def test_an_answer_that_is_packed_is_not_unpacked(
    api: FakeApi, client: KubernetesClient
) -> None:
    packed = gzip.compress(b'{"kind": "PodList"}')
    api.answers.append(Answer(200, packed, {"Content-Encoding": "gzip"}))
    with pytest.raises(ApiError, match="cannot GET /x: 200 the answer is not JSON"):
        await client.get("/x")
    assert api.asked[0].headers["Accept-Encoding"] == "identity"


async def test_an_answer_without_end_is_cut_off_and_not_asked_for_again(
    api: FakeApi, client: KubernetesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "MAX_READ_ANSWER_BYTES", 1 << 20)
    api.answers.extend([Answer(200, "x" * (2 << 20)), Answer(200, {"a": "y" * (1 << 19)})])
    with pytest.raises(AnswerTooLarge, match="cannot GET /x: 200 the answer has more than 1 MiB"):
        await client.get("/x")
    assert len(await client.get("/x")) == 1, "a connection of its own serves the next one"
    assert len(api.asked) == 2


async def test_plain_text_refusals_keep_their_words(api: FakeApi, client: KubernetesClient) -> None:
    api.answers.append(Answer(404, "404 page not found\n"))
    with pytest.raises(NotFound, match="cannot GET /apis/none: 404 404 page not found"):
        await client.get("/apis/none")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(420, ""), id="a status that no standard knows, without a word"),
        pytest.param(Answer(400, '{"details": "none", "reason": 5}'), id="no API's status"),
        pytest.param(Answer(400, '{"details": {"retryAfterSeconds": []}}'), id="an odd delay"),
    ],
)
async def test_an_odd_refusal_is_an_api_error(
    api: FakeApi, client: KubernetesClient, answer: Answer
) -> None:
    api.answers.append(answer)
    with pytest.raises(ApiError, match="cannot GET /x: 4"):
        await client.get("/x")


async def test_a_server_that_does_not_listen_is_unreachable(tmp_path: Path) -> None:
    async with fake_api() as api:
        pass
    async with client_of(api, tmp_path) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.check_reachable()
    assert api.url in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_away_leaves_no_cycles_behind(tmp_path: Path) -> None:
    away = FakeApi()
    away.url = "http://127.0.0.1:1"
    failures = 0
    async with client_of(away, tmp_path) as client:
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                try:
                    await client.list("/api/v1/nodes")
                except Unavailable:
                    failures += 1
            found = gc.collect()
        finally:
            gc.enable()
    assert failures == 10
    assert found < failures, "each was some hundred objects"


async def test_an_error_that_is_its_own_cause_is_reported_as_any_other(
    client: KubernetesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        first, second = OSError("first"), OSError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    monkeypatch.setattr(aiohttp.ClientSession, "request", fail)
    with pytest.raises(Unavailable, match="first"):
        await client.list("/api/v1/nodes")


async def test_reachable_server_tells_its_version(api: FakeApi, client: KubernetesClient) -> None:
    api.answers.append(Answer(body={"gitVersion": "v1.36.2"}))
    assert await client.check_reachable() == "v1.36.2"


async def test_bindings_in_flight_are_bounded(api: FakeApi, client: KubernetesClient) -> None:
    held = asyncio.Event()
    api.decide = lambda _: Answer(201, hold=held)
    binding = asyncio.gather(*(bind(client) for _ in range(200)))
    await eventually(lambda: api.concurrent > 8)
    held.set()
    await binding
    assert api.most_concurrent <= 64


async def test_requests_are_counted_by_code_and_method(api: FakeApi, tmp_path: Path) -> None:
    metrics = Metrics()
    api.answers += [refusal(503, "no"), Answer(201)]
    async with client_of(api, tmp_path, metrics=metrics) as client:
        await bind(client)
    counted = {labels[:2]: series.value for labels, series in metrics.rest_client_requests.items()}
    assert counted == {("503", "POST"): 1, ("201", "POST"): 1}


async def test_a_binding_refused_for_its_token_is_sent_again_with_the_newest(
    api: FakeApi, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    path = tmp_path / "kubeconfig"
    path.write_bytes(orjson.dumps(kubeconfig(api.url, {"tokenFile": str(token)})))
    credentials = await load_credentials(str(path))
    token.write_text("new")

    def only_new(asked: Asked) -> Answer:
        return Answer(201 if asked.headers["Authorization"] == "Bearer new" else 401)

    api.decide = only_new
    async with KubernetesClient(
        credentials, clock=SystemClock(), metrics=Metrics(), jitter=lambda: 0.0
    ) as client:
        await bind(client)
    assert len(api.asked) == 2


async def test_bindings_carry_the_token_file_of_the_last_minute(
    api: FakeApi, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    path = tmp_path / "kubeconfig"
    path.write_bytes(orjson.dumps(kubeconfig(api.url, {"tokenFile": str(token)})))
    clock = VirtualClock()
    api.decide = lambda _: Answer(201)
    async with KubernetesClient(
        await load_credentials(str(path), clock=clock),
        clock=clock,
        metrics=Metrics(),
        jitter=lambda: 0.0,
    ) as client:
        token.write_text("second")
        await bind(client)
        clock.advance(61)
        await bind(client)
        await bind(client)
    sent = [asked.headers["Authorization"] for asked in api.asked]
    assert sent == ["Bearer first", "Bearer second", "Bearer second"]


async def test_a_refused_token_without_a_newer_one_is_told(api: FakeApi, tmp_path: Path) -> None:
    api.decide = lambda _: refusal(401, "Unauthorized")
    async with client_of(api, tmp_path) as client:
        with pytest.raises(ApiError, match="cannot bind default/web to node-7: 401 Unauthorized"):
            await bind(client)


async def test_events_and_conditions_of_a_flood_leave_the_line_to_bindings(
    api: FakeApi, tmp_path: Path
) -> None:
    clock, ahead = VirtualClock(), list[int]()

    def decide(asked: Asked) -> None:
        clock.advance(0.002)  # one line for all: each in it makes the others wait
        if asked.path.endswith("/binding"):
            ahead.append(api.concurrent)

    api.decide = decide
    credentials = await credentials_for(api, tmp_path)
    async with (
        KubernetesClient(
            credentials, clock=clock, metrics=Metrics(), jitter=lambda: 0.0, retry=FAST
        ) as client,
        asyncio.TaskGroup() as flood,
    ):
        await bind(client)
        for number in range(300):
            flood.create_task(client.write_event("flood", scheduled_event(str(number))))
            flood.create_task(client.patch_pod_status("flood", "p", {}, urgent=False))
        while len(api.asked) < 500:
            await bind(client)
    assert max(ahead[-10:]) <= 5
