"""Calls to an extender: bodies byte for byte as recorded, answers read as Go does, failures."""

import asyncio
import base64
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.client import extender_tls
from stellwerk.client.extender import (
    ExtenderReach,
    HttpExtender,
    OfferedNodes,
    OfferedVictims,
    _Credentials,
    go_json,
)
from stellwerk.client.extender_answers import MAX_EXTENDER_ANSWER_BYTES, AnsweredVictims
from stellwerk.client.extender_tls import (
    MAX_READING_SECONDS,
    MAX_TLS_FILE_BYTES,
    ExtenderFiles,
    TlsMaterial,
    UnusableFileError,
    tls_material,
)
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.config_model import Secret
from stellwerk.profiles.spec.extender_spec import Extender, ExtenderTLSConfig, SecretReference
from stellwerk.serving.exposition import exposition
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.destinations import EVERYWHERE, HOSTS_ANNOTATION, Destinations
from stellwerk_kube.errors import ExtenderError, Forbidden, NotFound, Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.fake_extender import FakeExtender, fake_extender
from tests.support.in_process import eventually
from tests.support.recordings import scenario, scenarios
from tests.support.repository import ROOT

SCENARIOS = (
    "extender-node-names",
    "extender-nodes",
    "extender-preempt",
    "extender-ignorable",
    "percentage-of-nodes",
)

VERBS = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 1,
    "bindVerb": "bind",
    "preemptVerb": "preempt",
}
POD = b'{"metadata":{"name":"p"}}'
NODES = OfferedNodes(["a", "b"])
WHOLE = OfferedNodes(["a", "b"], [b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"b"}}'])


async def no_secret(path: str) -> JsonObject:
    raise AssertionError(f"no call of {path} is expected")


@asynccontextmanager
async def extender(
    url: str,
    get_object: Callable[[str], Awaitable[JsonObject]] = no_secret,
    metrics: Metrics | None = None,
    files: Path | ExtenderFiles | None = Path("/"),
    destinations: Destinations = EVERYWHERE,
    **fields: Any,
) -> AsyncIterator[HttpExtender]:
    spec = Extender.model_validate({"urlPrefix": url, "nodeCacheCapable": True, **VERBS, **fields})
    if not isinstance(files, ExtenderFiles):
        files = ExtenderFiles(files)
    client = HttpExtender(
        spec,
        get_object,
        clock=SystemClock(),
        metrics=metrics or Metrics(),
        reach=ExtenderReach(files, destinations),
    )
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def server() -> AsyncIterator[FakeExtender]:
    async with fake_extender() as server:
        yield server


# --- what is sent ---------------------------------------------------------------------------------


def recorded_calls() -> Iterator[Any]:
    if not scenarios():
        yield pytest.param({}, marks=pytest.mark.skip(reason="no recordings beside this clone"))
        return
    for name in SCENARIOS:
        for number, call in enumerate(scenario(name)["extenderCalls"], start=1):
            yield pytest.param(call, id=f"{name} {number} {call['verb']}")


@pytest.mark.parametrize("call", list(recorded_calls()))
async def test_a_body_is_byte_for_byte_what_was_recorded(
    server: FakeExtender, call: JsonObject
) -> None:
    recorded, verb = call["request"], call["verb"]
    server.answers[verb] = call["response"] if call["status"] == 200 else call["status"]
    pod = go_json(recorded.get("Pod"))
    whole = recorded.get("Nodes")
    names = recorded.get("NodeNames") or [
        item["metadata"]["name"] for item in (whole or {}).get("items", [])
    ]
    nodes = OfferedNodes(names, [go_json(item) for item in whole["items"]] if whole else None)
    async with extender(server.url, nodeCacheCapable=whole is None) as client:
        try:
            if verb == "filter":
                await client.filter(pod, nodes)
            elif verb == "prioritize":
                await client.prioritize(pod, nodes)
            elif verb == "preempt":
                victims = {
                    name: OfferedVictims(
                        [victim["UID"] for victim in each["Pods"]], each["NumPDBViolations"]
                    )
                    for name, each in recorded["NodeNameToMetaVictims"].items()
                }
                await client.preempt(pod, victims)
            else:
                await client.bind(
                    recorded["PodNamespace"],
                    recorded["PodName"],
                    recorded["PodUID"],
                    recorded["Node"],
                )
        except ExtenderError:
            assert call["status"] != 200
    (sent,) = server.calls
    assert sent.body == json.dumps(recorded, separators=(",", ":"), ensure_ascii=False).encode()
    assert sent.headers["Content-Type"] == call["headers"]["Content-Type"]


async def test_an_extender_without_a_node_cache_gets_whole_victims(server: FakeExtender) -> None:
    server.answers["preempt"] = {}
    async with extender(server.url, nodeCacheCapable=False) as client:
        await client.preempt(POD, {"n": OfferedVictims(["u"], 1, [b'{"metadata":{"uid":"u"}}'])})
    assert server.calls[0].body == (
        b'{"Pod":{"metadata":{"name":"p"}},"NodeNameToVictims":{"n":{"Pods":[{"metadata":'
        b'{"uid":"u"}}],"NumPDBViolations":1}},"NodeNameToMetaVictims":null}'
    )


def test_texts_are_escaped_as_go_escapes_them() -> None:
    assert go_json({"a": "<b> & \u2028 ü"}) == (
        b'{"a":"\\u003cb\\u003e \\u0026 \\u2028 ' + "ü".encode() + b'"}'
    )


# --- what is understood ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "answer", "remaining"),
    [
        pytest.param(NODES, {"nodenames": ["b"]}, ("b",), id="names"),
        pytest.param(NODES, {"NodeNames": ["b"]}, ("b",), id="keys in any case"),
        pytest.param(NODES, {"NODENAMES": ["b", "a"]}, ("b", "a"), id="in its order"),
        pytest.param(
            NODES,
            {"nodes": {"items": [{"metadata": {"name": "a"}}]}},
            ("a",),
            id="whole nodes although names would do",
        ),
        pytest.param(NODES, {}, (), id="nothing means no node"),
        pytest.param(NODES, None, (), id="null means no node"),
        pytest.param(
            WHOLE, {"nodes": {"Items": [{"Metadata": {"Name": "a"}}]}}, ("a",), id="whole nodes"
        ),
        pytest.param(WHOLE, {"nodenames": ["a"]}, (), id="names where whole nodes were sent"),
    ],
)
async def test_the_nodes_that_remain(
    server: FakeExtender, nodes: OfferedNodes, answer: object, remaining: tuple[str, ...]
) -> None:
    server.answers["filter"] = answer if answer is not None else b"null"
    async with extender(server.url) as client:
        assert (await client.filter(POD, nodes)).node_names == remaining


async def test_reasons_of_both_kinds(server: FakeExtender) -> None:
    server.answers["filter"] = {
        "nodeNames": [],
        "FailedNodes": {"a": "full"},
        "failedAndUnresolvableNodes": {"b": "broken"},
    }
    async with extender(server.url) as client:
        answer = await client.filter(POD, NODES)
    assert (answer.failed, answer.unresolvable) == ({"a": "full"}, {"b": "broken"})


async def test_scores(server: FakeExtender) -> None:
    server.answers["prioritize"] = [{"host": "a", "score": 3}, {"Host": "b", "Score": 10}, {}]
    async with extender(server.url) as client:
        assert await client.prioritize(POD, NODES) == [("a", 3), ("b", 10), ("", 0)]


async def test_victims(server: FakeExtender) -> None:
    server.answers["preempt"] = {
        "nodeNameToMetaVictims": {"n": {"pods": [{"uid": "u"}], "numPDBViolations": 2}}
    }
    async with extender(server.url) as client:
        answer = await client.preempt(POD, {})
    assert answer == {"n": AnsweredVictims(("u",), 2)}


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "answer", "message"),
    [
        pytest.param(
            "filter",
            500,
            "failed filter with extender at URL {url}/filter, code 500",
            id="a status other than 200, in kube-scheduler's words",
        ),
        pytest.param("filter", {"error": "not today"}, "not today", id="an error in the answer"),
        pytest.param("bind", {"Error": "taken"}, "taken", id="an error of bind"),
        pytest.param(
            "filter",
            {"nodenames": ["c"]},
            'extender "{url}" claims a filtered node "c" which is not found in the input node list',
            id="a node that was not offered",
        ),
        pytest.param(
            "filter",
            b"<html>",
            "{url}/filter did not answer with JSON: unexpected character",
            id="no JSON",
        ),
        pytest.param(
            "filter",
            {"nodenames": "a"},
            'extender "{url}" answered filter with an unexpected value in nodenames: "a"',
            id="another type",
        ),
        pytest.param(
            "prioritize",
            [{"host": "a", "score": 1.5}],
            'extender "{url}" answered prioritize with an unexpected value in score: 1.5',
            id="a score that is no whole number",
        ),
        pytest.param(
            "preempt",
            {"nodeNameToMetaVictims": {"n": {"pods": {}}}},
            'extender "{url}" answered preempt with an unexpected value in pods: {{}}',
            id="victims of another type",
        ),
        pytest.param(
            "filter",
            {"nodenames": ["a", "b", "a"]},
            'extender "{url}" answered filter with a duplicate node in nodenames: ["a","b","a"]',
            id="a duplicate node",
        ),
        pytest.param(
            "filter",
            {"nodenames": [], "failedNodes": {"a": 1}},
            'extender "{url}" answered filter with an unexpected value in failedNodes: 1',
            id="a reason that is no text",
        ),
        pytest.param(
            "filter",
            {"error": {"no": "text"}},
            'extender "{url}" answered filter with an unexpected value in error: {{"no":"text"}}',
            id="an error that is no text",
        ),
        pytest.param(
            "prioritize",
            [{"host": "a", "score": 1}, {"host": "a", "score": 1}],
            'extender "{url}" answered prioritize with a duplicate node in host: "a"',
            id="a score twice",
        ),
        pytest.param(
            "prioritize",
            [{"host": "a", "score": 2**40}],
            'extender "{url}" answered prioritize with a number out of range in score: '
            "1099511627776",
            id="an absurd score",
        ),
        pytest.param(
            "prioritize",
            [{"host": "a", "score": True}],
            'extender "{url}" answered prioritize with an unexpected value in score: true',
            id="a score that is a truth",
        ),
        pytest.param(
            "preempt",
            {"nodeNameToMetaVictims": {"n": {"pods": [{"uid": "u"}, {"uid": "u"}]}}},
            'extender "{url}" answered preempt with a duplicate pod in pods: ["u","u"]',
            id="a victim twice",
        ),
        pytest.param(
            "preempt",
            {"nodeNameToMetaVictims": {"n": {"numPDBViolations": -1}}},
            'extender "{url}" answered preempt with a number out of range in numPDBViolations: -1',
            id="less than no violation",
        ),
        pytest.param(
            "filter",
            {"error": "one\ntwo\x1b[31m\u202ethree"},
            "one two [31m three",
            id="control characters are left out",
        ),
    ],
)
async def test_a_failure_says_what_happened(
    server: FakeExtender, verb: str, answer: object, message: str
) -> None:
    server.answers[verb] = answer
    async with extender(server.url) as client:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "filter": lambda: client.filter(POD, NODES),
            "prioritize": lambda: client.prioritize(POD, NODES),
            "bind": lambda: client.bind("default", "p", "u", "a"),
            "preempt": lambda: client.preempt(POD, {}),
        }
        with pytest.raises(ExtenderError) as caught:
            await calls[verb]()
    assert str(caught.value).startswith(message.format(url=server.url))
    assert (caught.value.extender, caught.value.verb) == (server.url, verb)


async def test_a_long_text_is_cut_at_a_kibibyte_between_characters(server: FakeExtender) -> None:
    server.answers["filter"] = {"error": "ü" * 5_000, "failedNodes": {}}
    async with extender(server.url) as client:
        with pytest.raises(ExtenderError) as caught:
            await client.filter(POD, NODES)
    assert str(caught.value) == "ü" * 510 + " ..."


@asynccontextmanager
async def endless_server(headers: dict[str, str]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that answers without an end, and keeps how many bytes it got rid of."""
    written = [0]

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(65_536))
                written[0] += 65_536
        finally:
            written.append(-1)

    application = web.Application()
    application.router.add_post("/{verb}", handle)
    server = TestServer(application)
    await server.start_server()
    yield str(server.make_url("")).rstrip("/"), written
    await server.close()


async def test_an_answer_without_end_is_cut_off_and_its_connection_closed() -> None:
    async with endless_server({}) as (url, written), extender(url) as client:
        with pytest.raises(
            ExtenderError, match=f"answered more than {MAX_EXTENDER_ANSWER_BYTES}"[:-3]
        ):
            await client.filter(POD, NODES)
        async with asyncio.timeout(60):
            while written[-1] != -1:  # noqa: ASYNC110 until the server has noticed
                await asyncio.sleep(0.01)
    assert written[0] < 4 * MAX_EXTENDER_ANSWER_BYTES  # the rest is what sockets buffer


async def test_an_answer_that_is_packed_is_not_unpacked() -> None:
    async with endless_server({"Content-Encoding": "gzip"}) as (url, _), extender(url) as client:
        with pytest.raises(ExtenderError, match="an encoding that was not requested"):
            await client.filter(POD, NODES)


async def test_a_redirect_is_not_followed(server: FakeExtender) -> None:
    server.answers["elsewhere"] = {"nodenames": ["a"]}

    async def handle(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"{server.url}/elsewhere")

    application = web.Application()
    application.router.add_post("/{verb}", handle)
    redirecting = TestServer(application)
    await redirecting.start_server()
    async with extender(str(redirecting.make_url("")).rstrip("/")) as client:
        with pytest.raises(ExtenderError, match="code 307"):
            await client.filter(POD, NODES)
    assert server.calls == []
    await redirecting.close()


async def test_a_password_is_sent_and_never_shown(server: FakeExtender) -> None:
    metrics = Metrics()
    server.answers["filter"] = {"nodenames": ["c"]}
    address = server.url.removeprefix("http://")
    async with extender(f"http://me:s%40cret@{address}", metrics=metrics) as client:
        with pytest.raises(ExtenderError) as caught:
            await client.filter(POD, NODES)
    (call,) = server.calls
    assert call.headers["Authorization"] == "Basic " + base64.b64encode(b"me:s@cret").decode()
    shown = f"{caught.value!r} {client.name} {exposition(metrics).decode()}"
    assert "cret" not in shown
    assert f'extender="{server.url}"' in shown


async def test_a_password_is_not_shown_when_no_server_is_there() -> None:
    async with extender("http://me:secret@127.0.0.1:1/x") as client:
        with pytest.raises(ExtenderError) as caught:
            await client.filter(POD, NODES)
    assert "secret" not in repr(caught.value)


async def test_no_server_there() -> None:
    async with extender("http://127.0.0.1:1/x") as client:
        with pytest.raises(
            ExtenderError, match=r'^Post "http://127.0.0.1:1/x/filter": Cannot conn'
        ):
            await client.filter(POD, NODES)


async def test_a_slow_extender_costs_no_more_than_its_timeout(server: FakeExtender) -> None:
    metrics = Metrics()
    server.answers["filter"], server.delays_seconds["filter"] = {}, 60.0
    async with extender(server.url, metrics=metrics, httpTimeout="100ms") as client:
        started = time.perf_counter()
        with pytest.raises(ExtenderError, match=r"exceeded: no answer within 0\.1s"):
            await client.filter(POD, NODES)
        assert time.perf_counter() - started < 30
    exposed = exposition(metrics).decode()
    labels = f'extender="{server.url}",result="timeout",verb="filter"'
    assert f"stellwerk_extender_duration_seconds_count{{{labels}}} 1.0" in exposed


# --- connections ----------------------------------------------------------------------------------


async def test_a_connection_is_used_again(server: FakeExtender) -> None:
    server.answers["filter"] = server.answers["prioritize"] = None
    server.answers = {"filter": b"{}", "prioritize": b"[]"}
    async with extender(server.url) as client:
        await client.filter(POD, NODES)
        await client.prioritize(POD, NODES)
        await client.filter(POD, NODES)
    assert len({call.port for call in server.calls}) == 1


async def closing_server(answers: int) -> tuple[TestServer, list[str]]:
    """A server that answers some requests and then cuts every connection it is asked over."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.path)
        if len(seen) == answers + 1:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"nodenames": ["a"]})

    application = web.Application()
    application.router.add_post("/{verb}", handle)
    server = TestServer(application)
    await server.start_server()
    return server, seen


async def test_a_question_is_asked_again_when_the_connection_was_cut() -> None:
    server, seen = await closing_server(1)
    async with extender(str(server.make_url("")).rstrip("/")) as client:
        await client.filter(POD, NODES)
        assert (await client.filter(POD, NODES)).node_names == ("a",)
    assert seen == ["/filter"] * 3
    await server.close()


async def test_a_binding_is_never_sent_twice() -> None:
    server, seen = await closing_server(1)
    async with extender(str(server.make_url("")).rstrip("/")) as client:
        await client.filter(POD, NODES)
        with pytest.raises(ExtenderError, match="Server disconnected"):
            await client.bind("default", "p", "u", "a")
    assert seen == ["/filter", "/bind"]
    await server.close()


async def test_closing_waits_for_the_calls_under_way(server: FakeExtender) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}
    server.hold = asyncio.Event()
    async with extender(server.url) as client:
        call = asyncio.create_task(client.filter(POD, NODES))
        await eventually(lambda: server.calls)
        await client.close()
        server.hold.set()
        assert (await call).node_names == ("a",)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for extender.example, which is its own authority."""
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "cert.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=extender.example"),
        *("-addext", "subjectAltName=DNS:extender.example"),
        *("-keyout", str(key), "-out", str(certificate)),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return certificate, key


@pytest.fixture
async def tls_server(certificate: tuple[Path, Path]) -> AsyncIterator[FakeExtender]:
    """An extender that shows the certificate, and asks for it too."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # openssl's short certificates lack extensions
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with fake_extender({"filter": {"nodenames": ["a"]}}, context) as server:
        yield server


def for_hosts(*urls: str) -> JsonObject:
    """A Secret whose owner lets it go to these addresses."""
    return {"metadata": {"annotations": {HOSTS_ANNOTATION: " ".join(urls)}}}


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("source", ["files", "data", "secret"])
async def test_certificates_come_from(
    tls_server: FakeExtender,
    certificate: tuple[Path, Path],
    source: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/no folder that one can write into")
    cert, key = certificate
    config: JsonObject = {"serverName": "extender.example"}
    asked: list[str] = []

    async def get_object(path: str) -> JsonObject:
        asked.append(path)
        return for_hosts(tls_server.url) | {
            "data": {"tls.crt": encoded(cert), "tls.key": encoded(key), "ca.crt": encoded(cert)}
        }

    if source == "files":
        (cert.parent / "hosts").write_text(f"{tls_server.url}\n")
        config |= {"certFile": str(cert), "keyFile": str(key), "caFile": str(cert)}
    elif source == "data":
        config |= {"certData": encoded(cert), "keyData": encoded(key), "caData": encoded(cert)}
    else:
        config |= {"secretRef": {"namespace": "stellwerk", "name": "extender"}}
    async with extender(tls_server.url, get_object, enableHTTPS=True, tlsConfig=config) as client:
        for _ in range(2):
            assert (await client.filter(POD, NODES)).node_names == ("a",)
    assert asked == (
        ["/api/v1/namespaces/stellwerk/secrets/extender"] if source == "secret" else []
    )


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 8 << 30)


def too_long(path: Path) -> None:
    path.write_bytes(b"x" * (MAX_TLS_FILE_BYTES + 1))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(
            lambda path: path.symlink_to("/dev/zero"), "is not below", id="a link to a device"
        ),
        pytest.param(
            lambda path: path.symlink_to("/proc/self/environ"),
            "is not below",
            id="a link to /proc",
        ),
        pytest.param(
            lambda path: path.symlink_to("../other/ca.crt"), "is not below", id="a link beside it"
        ),
        pytest.param(os.mkfifo, "not a regular file", id="a pipe"),
        pytest.param(Path.mkdir, "not a regular file", id="a directory"),
        pytest.param(too_long, "larger than 1 MiB", id="a byte too long"),
        pytest.param(sparse, "larger than 1 MiB", id="sparse"),
        pytest.param(lambda _: None, "No such file or directory", id="none"),
    ],
)
async def test_a_file_that_is_no_certificate_costs_nothing(
    make: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    folder, other = tmp_path / "files", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
    (other / "ca.crt").write_text("content of another folder")
    path = folder / "ca.crt"
    make(path)
    config = {"caFile": str(path)}
    async with extender("https://127.0.0.1:1", files=folder, tlsConfig=config) as client:
        started = time.monotonic()
        with pytest.raises(ExtenderError, match=reason) as said:
            await client.filter(POD, NODES)
        assert str(path) in str(said.value)
        assert str(path) in client.unusable_files
        assert "content" not in str(said.value)
        assert time.monotonic() - started < MAX_READING_SECONDS


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("/dev/zero", "not a regular file", id="a device"),
        pytest.param("/proc/self/environ", "has no known size", id="the environment"),
        pytest.param("/proc/self/fd/1", "/proc/self/fd/1", id="standard output"),
        pytest.param("/etc/../etc/hosts", "is not below", id="up and down"),
        pytest.param("/etc/ho\0sts", "is not below", id="no path at all"),
    ],
)
async def test_a_file_of_the_system_is_none_even_where_all_files_are_granted(
    path: str, reason: str
) -> None:
    started = time.monotonic()
    with pytest.raises(UnusableFileError, match=reason):
        await ExtenderFiles(Path("/")).read([path], ())
    assert time.monotonic() - started < MAX_READING_SECONDS


async def test_a_mounted_secret_is_read_through_the_links_that_kubelet_makes(
    tmp_path: Path,
) -> None:
    (tmp_path / "..2026_11_23").mkdir()
    (tmp_path / "..2026_11_23/ca.crt").write_text("PEM")
    (tmp_path / "..data").symlink_to("..2026_11_23")
    (tmp_path / "ca.crt").symlink_to("..data/ca.crt")
    (tmp_path / "here").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "here"):
        files = ExtenderFiles(folder)
        assert await files.read([str(tmp_path / "ca.crt"), ""], ()) == [b"PEM", b""]
        assert await files.read(["ca.crt"], ()) == [b"PEM"]


async def test_without_a_folder_no_file_is_read_and_the_flag_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_text("PEM")
    async with extender(
        "https://127.0.0.1:1", files=None, tlsConfig={"caFile": str(path)}
    ) as client:
        await client.check()
        assert (
            "below the folder that --extender-files-dir of stellwerk run"
        ) in client.unusable_files
        with pytest.raises(ExtenderError, match=r"--extender-files-dir"):
            await client.filter(POD, NODES)


async def test_two_files_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, answer = os.open, threading.Event()
    waiting: list[str] = []

    def stale(path: str, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("stale"):
            waiting.append(str(path))
            answer.wait(60)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", stale)
    monkeypatch.setattr(extender_tls, "MAX_READING_SECONDS", 0.2)
    files = ExtenderFiles(tmp_path)
    (tmp_path / "good").write_text("PEM")
    try:
        late = [asyncio.create_task(files.read([f"stale{number}"], ())) for number in range(3)]
        await asyncio.sleep(0.1)
        assert len(waiting) == 2
        # Those that are late have no place any more: the third is tried, and good ones are read.
        assert await asyncio.wait_for(files.read(["good"], ()), 5) == [b"PEM"]
        for each in await asyncio.gather(*late, return_exceptions=True):
            assert "not read within 0.2 s" in str(each)
        assert len(waiting) == 3
    finally:
        answer.set()


async def test_a_file_that_does_not_end_to_be_read_holds_up_no_other(
    tls_server: FakeExtender, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, answer = os.open, threading.Event()

    def stale(path: str, *arguments: Any, **options: Any) -> int:
        if path == "stale":
            answer.wait(60)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", stale)
    files, (cert, key) = ExtenderFiles(Path("/")), certificate
    good = {"certFile": str(cert), "keyFile": str(key), "caFile": str(cert)}
    good["serverName"] = "extender.example"
    (cert.parent / "hosts").write_text(tls_server.url)
    stale_file: JsonObject = {"httpTimeout": "5s", "tlsConfig": {"caFile": "/stale"}}
    try:
        async with (
            extender("https://127.0.0.1:1", files=files, **stale_file) as bad,
            extender(tls_server.url, files=files, enableHTTPS=True, tlsConfig=good) as client,
        ):
            trying = asyncio.create_task(bad.filter(POD, NODES))
            await asyncio.sleep(0.1)
            assert (await client.filter(POD, NODES)).node_names == ("a",)
            with pytest.raises(ExtenderError, match=r"/stale: not read within 2 s"):
                await trying
            with pytest.raises(ExtenderError, match=r"/stale: an earlier attempt to read files"):
                await bad.filter(POD, NODES)
            answer.set()
            await asyncio.sleep(0.2)
            with pytest.raises(ExtenderError, match=r"/stale: No such file or directory"):
                await bad.filter(POD, NODES)
    finally:
        answer.set()


def test_the_end_of_the_process_waits_for_no_file() -> None:
    program = """
import asyncio, os, pathlib, threading
from stellwerk.client.extender_tls import ExtenderFiles
os.open = lambda *_, **__: threading.Event().wait()
async def main():
    try:
        await ExtenderFiles(pathlib.Path("/")).read(["/stale"], ())
    except ValueError as error:
        print(error)
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
        env=environment,
    )
    assert (ended.stdout, ended.returncode) == (
        "/stale: not read within 2 s (below the folder of --extender-files-dir)\n",
        0,
    ), ended.stderr


async def test_the_names_of_a_secret_lead_nowhere_else() -> None:
    asked: list[str] = []

    url = "https://extender.example"

    async def get_object(path: str) -> JsonObject:
        asked.append(path)
        return for_hosts(url)

    # The definition refuses such names; what is stored may be older than it.
    reference = SecretReference.model_construct(namespace="a/b?c", name="../x")
    config = ExtenderTLSConfig.model_construct(secret_ref=reference)
    spec = Extender.model_construct(url_prefix=Secret(url), tls_config=config)
    assert await tls_material(spec, get_object, ExtenderFiles()) == TlsMaterial()
    assert asked == ["/api/v1/namespaces/a%2Fb%3Fc/secrets/..%2Fx"]


async def test_a_certificate_of_another_authority_is_refused(
    tls_server: FakeExtender, certificate: tuple[Path, Path]
) -> None:
    config = {"caFile": str(certificate[0])}
    (certificate[0].parent / "hosts").write_text(tls_server.url)
    async with extender(tls_server.url, tlsConfig=config) as client:
        with pytest.raises(ExtenderError, match=r"CERTIFICATE_VERIFY_FAILED"):
            await client.filter(POD, NODES)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"tlsConfig": {"insecure": True}}, id="insecure"),
        pytest.param({"enableHTTPS": True}, id="enableHTTPS without root certificates"),
    ],
)
async def test_any_certificate_is_trusted_where_the_user_says_so(
    certificate: tuple[Path, Path], fields: JsonObject
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with (
        fake_extender({"filter": {"nodenames": ["a"]}}, context) as server,
        extender(server.url, **fields) as client,
    ):
        assert (await client.filter(POD, NODES)).node_names == ("a",)


async def test_a_renewed_secret_is_read_after_a_failure(
    tls_server: FakeExtender, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    secret: JsonObject = {**for_hosts(tls_server.url), "data": {"ca.crt": encoded(cert)}}

    async def get_object(_: str) -> JsonObject:
        return secret

    config = {"serverName": "extender.example", "secretRef": {"namespace": "s", "name": "n"}}
    async with extender(tls_server.url, get_object, tlsConfig=config) as client:
        with pytest.raises(ExtenderError):
            await client.filter(POD, NODES)
        secret["data"] |= {"tls.crt": encoded(cert), "tls.key": encoded(key)}
        assert (await client.filter(POD, NODES)).node_names == ("a",)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        pytest.param(
            Forbidden("get the Secret", 403, "Forbidden", "no"), "cannot get", id="denied"
        ),
        pytest.param({"data": {"tls.crt": "AA=="}}, "tls.crt but not tls.key", id="half a pair"),
        pytest.param({"data": {"ca.crt": "%"}}, "not base64", id="no base64"),
    ],
)
async def test_a_secret_that_cannot_be_used_is_a_failure_of_the_extender(
    secret: JsonObject | Exception, message: str
) -> None:
    async def get_object(_: str) -> JsonObject:
        if isinstance(secret, Exception):
            raise secret
        return for_hosts("https://127.0.0.1:1") | secret

    config = {"secretRef": {"namespace": "s", "name": "n"}}
    async with extender("https://127.0.0.1:1/x", get_object, tlsConfig=config) as client:
        with pytest.raises(ExtenderError, match=message):
            await client.filter(POD, NODES)


async def test_user_and_password_of_a_secret_are_sent_and_shown_nowhere(
    server: FakeExtender,
) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}

    async def get_object(_: str) -> JsonObject:
        return for_hosts(server.url) | {
            "data": {
                "username": base64.b64encode(b"stellwerk").decode(),
                "password": base64.b64encode(b"pass:word").decode(),
            }
        }

    reference = {"namespace": "stellwerk", "name": "gpu"}
    async with extender(server.url, get_object, secretRef=reference) as client:
        await client.filter(POD, NODES)
    sent = server.calls[0].headers["Authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"stellwerk:pass:word"


SECRET_REFERENCE = {"namespace": "stellwerk", "name": "gpu"}


class OwnedSecret:
    """A Secret with a user and a password, whose owner changes what it allows."""

    def __init__(self, *urls: str) -> None:
        self.obj: JsonObject = for_hosts(*urls)
        self.failure: Exception | None = None
        self.write("first")

    def write(self, password: str) -> None:
        texts = {"username": "stellwerk", "password": password}
        self.obj["data"] = {key: base64.b64encode(text.encode()) for key, text in texts.items()}

    async def get(self, _: str) -> JsonObject:
        if self.failure is not None:
            raise self.failure
        return dict(self.obj)


def origin(server: FakeExtender) -> str:
    """The address of a server without a path."""
    return server.url.removesuffix("/x")


def passwords(server: FakeExtender) -> list[str]:
    """The password of each call; empty: none was sent."""
    sent = (call.headers.get("Authorization", "") for call in server.calls)
    decoded = (base64.b64decode(each.removeprefix("Basic ")).decode() for each in sent)
    return [each.partition(":")[2] for each in decoded]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"secretRef": SECRET_REFERENCE}, id="a password"),
        pytest.param({"tlsConfig": {"secretRef": SECRET_REFERENCE}}, id="a client certificate"),
    ],
)
@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param((), id="a Secret that says nothing"),
        pytest.param(("https://extender.example:8443",), id="a Secret for another address"),
    ],
)
async def test_a_secret_goes_to_no_address_that_it_does_not_name(
    tls_server: FakeExtender, fields: JsonObject, hosts: tuple[str, ...]
) -> None:
    secret = OwnedSecret(*hosts)
    async with extender(tls_server.url, secret.get, enableHTTPS=True, **fields) as client:
        needed = (
            "the Secret stellwerk/gpu is not for this address: its annotation "
            f"scheduling.stellwerk.dev/hosts has to name {origin(tls_server)}"
        )
        with pytest.raises(ExtenderError, match=re.escape(needed)):
            await client.filter(POD, NODES)
        await client.check()
        assert client.is_checked
        assert client.unusable_secret == needed
    assert not tls_server.calls


async def test_a_secret_may_name_a_path_and_then_every_verb_has_to_lie_below_it(
    server: FakeExtender,
) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}
    secret = OwnedSecret(f"{server.url}/gpu")
    for path, is_allowed in (("/gpu", True), ("/gpu2", False), ("", False)):
        async with extender(f"{server.url}{path}", secret.get, secretRef=SECRET_REFERENCE) as each:
            await each.check()
            assert (each.unusable_secret == "") == is_allowed, path
    up: JsonObject = {"secretRef": SECRET_REFERENCE, "filterVerb": "../../admin"}
    async with extender(f"{server.url}/gpu", secret.get, **up) as client:
        with pytest.raises(ExtenderError, match="is not for this address"):
            await client.filter(POD, NODES)
    assert not server.calls


async def test_what_the_owner_of_a_secret_changes_counts_on_open_connections(
    server: FakeExtender,
) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}
    secret = OwnedSecret(server.url)
    async with extender(server.url, secret.get, secretRef=SECRET_REFERENCE) as client:
        await client.filter(POD, NODES)
        await client.check()
        await client.filter(POD, NODES)
        assert len({call.port for call in server.calls}) == 1, "the connection is kept"
        secret.write("second")
        await client.check()
        await client.filter(POD, NODES)
        secret.failure = Unavailable("get the Secret", 503, "ServiceUnavailable", "away")
        await client.check()
        await client.filter(POD, NODES)
        assert passwords(server) == ["first", "first", "second", "second"]
        secret.failure = None
        secret.obj |= for_hosts("http://other.example")
        await client.check()
        with pytest.raises(ExtenderError, match="is not for this address"):
            await client.filter(POD, NODES)
        secret.failure = NotFound("get the Secret", 404, "NotFound", "gone")
        await client.check()
        assert "gone" in client.unusable_secret
        secret.failure = None
        secret.obj |= for_hosts(server.url)
        await client.check()
        assert client.unusable_secret == ""
        await client.filter(POD, NODES)
    assert passwords(server) == ["first", "first", "second", "second", "second"]


async def test_a_call_under_way_does_not_keep_withdrawn_credentials_in_use(
    server: FakeExtender,
) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}
    server.hold = asyncio.Event()
    secret = OwnedSecret(server.url)
    async with extender(server.url, secret.get, secretRef=SECRET_REFERENCE) as client:
        first = asyncio.create_task(client.filter(POD, NODES))
        while not server.calls:  # noqa: ASYNC110 the server is in this loop
            await asyncio.sleep(0)
        secret.obj |= for_hosts()
        await client.check()
        with pytest.raises(ExtenderError, match="is not for this address"):
            await client.filter(POD, NODES)
        server.hold.set()
        assert (await first).node_names == ("a",)
    assert passwords(server) == ["first"]


async def test_files_go_to_no_address_that_their_folder_does_not_name(
    tls_server: FakeExtender, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    hosts = cert.parent / "hosts"
    config = {
        "certFile": str(cert),
        "keyFile": str(key),
        "caFile": str(cert),
        "serverName": "extender.example",
    }
    for text in (None, "https://127.0.0.1:1\n", "https://\n", "x" * 5000):
        hosts.unlink(missing_ok=True)
        if text is not None:
            hosts.write_text(text)
        async with extender(tls_server.url, tlsConfig=config) as client:
            with pytest.raises(ExtenderError, match=f"the file {hosts} has to name"):
                await client.filter(POD, NODES)
            assert f"has to name {origin(tls_server)}" in client.unusable_files
    assert not tls_server.calls
    hosts.write_text(f"https://127.0.0.1:1\n{tls_server.url}\n")
    async with extender(tls_server.url, tlsConfig=config) as client:
        assert (await client.filter(POD, NODES)).node_names == ("a",)
        hosts.unlink()
        await client.check()
        with pytest.raises(ExtenderError, match="has to name"):
            await client.filter(POD, NODES)


def test_no_text_shows_what_an_extender_is_shown() -> None:
    found = (TlsMaterial(b"hunter2", b"hunter2"), _Credentials({"Authorization": "hunter2"}))
    assert "hunter2" not in repr(found)


async def test_no_password_of_the_user_s_own_files_goes_to_an_extender(
    server: FakeExtender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}
    (tmp_path / ".netrc").write_text("default login user password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with extender(server.url) as client:
        await client.filter(POD, NODES)
    assert "Authorization" not in server.calls[0].headers


async def test_the_proxy_of_the_environment_is_asked_with_its_own_password(
    server: FakeExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["filter"] = {"nodenames": ["a"]}
    host = origin(server).removeprefix("http://")
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://proxy:word@{host}")
    async with extender("http://extender.example/x") as client:
        assert (await client.filter(POD, NODES)).node_names == ("a",)
    (call,) = server.calls
    assert call.headers["Host"] == "extender.example"
    sent = call.headers["Proxy-Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"proxy:word"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with extender(server.url) as client:
        await client.filter(POD, NODES)
    assert len(server.calls) == 2
