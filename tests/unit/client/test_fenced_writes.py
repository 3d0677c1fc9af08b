"""What the client sends, and what it drops, when the lease is not held (any more)."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from stellwerk.client.connection import ConnectionPool, Fence
from stellwerk.client.credentials import load_credentials
from stellwerk.client.event_recorder import EventRecorder
from stellwerk.client.extender import HttpExtender
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.lease import LeaseRecord
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import ObjectReference
from stellwerk.profiles.spec.extender_spec import Extender
from stellwerk_kube.clock import SystemClock, VirtualClock
from stellwerk_kube.errors import ExtenderError, NotLeader, Unavailable
from tests.support.fake_api import (
    Answer,
    FakeApi,
    credentials_for,
    fake_api,
    kubeconfig,
    refusal,
    scheduled_event,
)
from tests.support.in_process import eventually

pytestmark = pytest.mark.skips_time

LEASE_SECONDS, MARGIN_SECONDS = 10.0, 5.0
BINDINGS_IN_FLIGHT = 32  # what the limiter of bindings begins with
FAST = RetryPolicy(attempts=4, first_delay_seconds=0.001, timeout_seconds=60.0)


@pytest.fixture
def clock() -> VirtualClock:
    """The fence's; requests take real time."""
    return VirtualClock()


@pytest.fixture
def fence(clock: VirtualClock) -> Fence:
    return Fence(clock.monotonic, guarding=True, margin_seconds=MARGIN_SECONDS)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.fixture
async def client(api: FakeApi, fence: Fence, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    credentials = await credentials_for(api, tmp_path)
    async with KubernetesClient(
        credentials,
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=lambda: 0.0,
        retry=FAST,
        fence=fence,
    ) as client:
        yield client


async def bind(client: KubernetesClient, number: int = 0) -> None:
    await client.bind("default", f"web-{number}", f"uid-{number}", "node-7")


Write = Callable[[KubernetesClient], Awaitable[object]]

WRITES: list[Write] = [
    bind,
    lambda client: client.delete_pod("default", "web", "uid"),
    lambda client: client.patch_pod_status("default", "web", {"status": {}}),
    lambda client: client.patch_pod_status("default", "web", {"status": {}}, urgent=False),
    lambda client: client.patch("/apis/scheduling.stellwerk.dev/v1/x/status", {}),
    lambda client: client.replace("/api/v1/persistentvolumes/pv", {}),
    lambda client: client.create("/apis/scheduling.stellwerk.dev/v1/x", {}),
]
NAMES = ["bind", "delete", "urgent patch", "report", "profile status", "volume", "profile"]


@pytest.mark.parametrize("write", WRITES, ids=NAMES)
async def test_no_write_is_sent_without_the_lease(
    api: FakeApi, client: KubernetesClient, write: Write
) -> None:
    with pytest.raises(NotLeader):
        await write(client)
    assert api.asked == []


@pytest.mark.parametrize("write", WRITES, ids=NAMES)
async def test_a_write_is_not_repeated_once_the_lease_is_over(
    api: FakeApi, client: KubernetesClient, fence: Fence, clock: VirtualClock, write: Write
) -> None:
    def answer(_: object) -> Answer:
        clock.advance(LEASE_SECONDS)
        return refusal(429, "later")

    api.decide = answer
    fence.extend(LEASE_SECONDS)
    with pytest.raises(NotLeader):
        await write(client)
    assert len(api.asked) == 1


async def test_reads_reviews_events_and_the_lease_itself_need_no_lease(
    api: FakeApi, client: KubernetesClient
) -> None:
    await client.get("/api/v1/nodes/n1")
    await client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {})
    await client.write_event("default", scheduled_event())
    await client.lease("kube-system", "x").create(LeaseRecord("me", 1, "", "", 0))
    assert len(api.asked) == 4


def hold_answers(api: FakeApi) -> asyncio.Event:
    """Every request is answered when the event is set, and not before."""
    answered = asyncio.Event()
    api.decide = lambda _: Answer(201, hold=answered)
    return answered


async def full_limiter(api: FakeApi) -> int:
    """How many requests have been sent once the others wait for the limiter."""
    await eventually(lambda: len(api.asked) == BINDINGS_IN_FLIGHT)
    return BINDINGS_IN_FLIGHT


async def test_bindings_queued_when_a_paused_process_wakes_are_not_sent(
    api: FakeApi, client: KubernetesClient, fence: Fence, clock: VirtualClock
) -> None:
    fence.extend(LEASE_SECONDS)
    answered = hold_answers(api)
    bindings = [asyncio.create_task(bind(client, number)) for number in range(500)]
    sent = await full_limiter(api)
    clock.advance(60)  # SIGSTOP and SIGCONT: nothing has run, nothing has been told
    answered.set()
    outcomes = await asyncio.gather(*bindings, return_exceptions=True)
    assert len(api.asked) == sent
    assert sum(isinstance(each, NotLeader) for each in outcomes) == 500 - sent


async def test_what_is_queued_is_dropped_when_the_fence_is_closed(
    api: FakeApi, client: KubernetesClient, fence: Fence
) -> None:
    fence.extend(LEASE_SECONDS)
    answered = hold_answers(api)
    bindings = [asyncio.create_task(bind(client, number)) for number in range(300)]
    sent = await full_limiter(api)
    fence.close()
    await eventually(lambda: sum(each.done() for each in bindings) == 300 - sent)
    answered.set()  # and not as answers come
    outcomes = await asyncio.gather(*bindings, return_exceptions=True)
    assert sum(each is None for each in outcomes) == sent, "what was sent in time is answered"


async def test_a_connection_that_opens_too_late_sends_nothing(
    api: FakeApi, fence: Fence, clock: VirtualClock
) -> None:
    pool = ConnectionPool(
        api.url,
        ssl_context=None,
        tls_server_name=None,
        user_agent="test",
        connect_timeout_seconds=60,
        fence=fence,
    )
    fence.extend(LEASE_SECONDS)
    exchange = asyncio.create_task(
        pool.exchange(
            "POST",
            "/x",
            body=b"{}",
            content_type="application/json",
            accept="application/json",
            authorization=None,
            timeout_seconds=60,
            fenced_act="bind",
        )
    )
    await asyncio.sleep(0)  # it is connecting
    clock.advance(LEASE_SECONDS)
    with pytest.raises(NotLeader):
        await exchange
    pool.close()
    assert api.asked == []


async def test_a_connection_to_a_proxy_that_opens_too_late_sends_nothing(
    api: FakeApi, fence: Fence, clock: VirtualClock, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    proxy: dict[str, Any] = {"proxy-url": api.url}
    path.write_bytes(orjson.dumps(kubeconfig("http://api.example", **proxy)))
    credentials = await load_credentials(str(path))
    assert credentials.needs_session
    async with KubernetesClient(
        credentials,
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=lambda: 0.0,
        retry=FAST,
        fence=fence,
    ) as client:
        fence.extend(LEASE_SECONDS)
        binding = asyncio.create_task(bind(client))
        await asyncio.sleep(0)  # it is connecting
        clock.advance(LEASE_SECONDS)
        with pytest.raises(NotLeader):
            await binding
        assert api.asked == []
        await client.get("/x")
        assert len(api.asked) == 1, "what needs no lease passes"


async def test_a_writes_time_out_ends_with_the_lease(
    api: FakeApi, client: KubernetesClient, fence: Fence, clock: VirtualClock
) -> None:
    held = asyncio.Event()

    def answer(_: object) -> Answer:
        clock.advance(0.001)  # the lease ends while the answer is under way
        return Answer(201, hold=held)

    api.decide = answer
    fence.extend(LEASE_SECONDS)
    clock.advance(LEASE_SECONDS - 0.001)
    fence.margin_seconds = 1.0
    fence.extend(LEASE_SECONDS)
    started = asyncio.get_running_loop().time()
    with pytest.raises(NotLeader) as refused:
        await bind(client)
    assert asyncio.get_running_loop().time() - started < FAST.timeout_seconds / 2
    held.set()
    assert isinstance(refused.value.earlier, Unavailable)
    assert len(api.asked) == 1
    assert not fence.is_settled, "the one that was sent may still be applied"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
async def test_the_kernel_gives_up_what_it_cannot_deliver_before_the_lease_ends(
    fence: Fence,
) -> None:
    options: list[tuple[int, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        (connection,) = pool._open  # noqa: SLF001 the socket is what it is about
        assert connection._transport is not None  # noqa: SLF001
        sock = connection._transport.get_extra_info("socket")  # noqa: SLF001
        options.append(
            (
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8),
            )
        )
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = ConnectionPool(
        f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
        ssl_context=None,
        tls_server_name=None,
        user_agent="test",
        connect_timeout_seconds=60,
        fence=fence,
    )
    fence.extend(LEASE_SECONDS)
    await pool.exchange(
        "POST",
        "/x",
        body=b"{}",
        content_type="application/json",
        accept="application/json",
        authorization=None,
        timeout_seconds=60,
        fenced_act="bind",
    )
    pool.close()
    server.close()
    assert options == [(5000, b"\x01\x00\x00\x00\x00\x00\x00\x00")]


async def test_an_extender_is_asked_to_bind_under_the_lease_only(
    api: FakeApi, fence: Fence, clock: VirtualClock
) -> None:
    spec = Extender.model_validate({"urlPrefix": api.url, "bindVerb": "bind"})

    async def no_secret(_: str) -> dict[str, object]:
        raise OSError(errno.ENOENT, "there is none")

    extender = HttpExtender(spec, no_secret, clock=SystemClock(), metrics=Metrics(), fence=fence)
    api.decide = lambda _: Answer(200, {})
    with pytest.raises(NotLeader):
        await extender.bind("default", "web", "uid", "n1")
    fence.extend(LEASE_SECONDS)
    await extender.bind("default", "web", "uid", "n1")
    await extender.close()
    binding = asyncio.create_task(extender.bind("default", "web", "uid", "n1"))
    await asyncio.sleep(0)  # it is connecting
    clock.advance(LEASE_SECONDS)
    with pytest.raises(ExtenderError, match="NotLeader"):
        await binding
    await extender.close()
    assert len(api.asked) == 1


async def test_a_process_that_stands_by_tells_of_nothing(
    api: FakeApi, client: KubernetesClient, fence: Fence
) -> None:
    metrics = Metrics()
    recorder = EventRecorder(
        client, clock=SystemClock(), metrics=metrics, jitter=lambda: 0.0, fence=fence
    )
    recorder.start()
    pod = ObjectReference("Pod", "v1", "default", "web", "uid", "1")

    def tell(type_: str) -> None:
        recorder.event(pod, type_, "Reason", "Action", "note", reporting_controller="stellwerk")

    tell("Warning")
    fence.extend(LEASE_SECONDS)
    tell("Normal")
    fence.close()
    tell("Warning")
    await recorder.close()
    assert len(api.asked) == 1
    assert metrics.events_dropped.labels("not_leader").value == 2
