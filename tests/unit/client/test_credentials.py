"""Kubeconfigs, tokens that rotate, plugins and certificates, with a scripted API server."""

import asyncio
import base64
import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.client import renewable_context
from stellwerk.client.access import Access, Kubeconfig
from stellwerk.client.connection import ConnectionPool
from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.renewable_context import fingerprint
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError, Unavailable
from tests.support.fake_api import Answer, Asked, FakeApi, fake_api, kubeconfig

PLUGIN = """
import json, pathlib, sys
counter = pathlib.Path(sys.argv[1])
runs = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(runs))
status = {"token": f"token-{runs}"}
if len(sys.argv) > 2:
    status["expirationTimestamp"] = sys.argv[2]
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": status}))
"""


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


def write(path: Path, document: dict[str, Any]) -> str:
    path.write_bytes(orjson.dumps(document))
    return str(path)


async def ask(credentials: Credentials) -> int:
    async with (
        credentials.new_session() as session,
        session.get(f"{credentials.server}/version") as response,
    ):
        return response.status


def tokens(api: FakeApi) -> list[str | None]:
    return [asked.headers.get("Authorization") for asked in api.asked]


async def test_token_is_sent(api: FakeApi, tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig(api.url, {"token": "secret"}))
    assert await ask(await load_credentials(path)) == 200
    assert tokens(api) == ["Bearer secret"]


async def test_sessions_that_share_use_one_connection_and_others_their_own(tmp_path: Path) -> None:
    peers: set[object] = set()

    async def answered(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text="{}")

    app = web.Application()
    app.router.add_get("/", answered)
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        path = write(tmp_path / "config", kubeconfig(url, {"token": "t"}))
        credentials = await load_credentials(path)

        async def ask_by(session: aiohttp.ClientSession) -> int:
            async with session.get(url) as response:
                await response.read()
            return len(peers)

        first = credentials.new_session()
        async with credentials.new_session(shares=True) as second:
            assert [await ask_by(first), await ask_by(second)] == [1, 1]
        async with credentials.new_session() as own:
            assert await ask_by(own) == 2
        assert await ask_by(first) == 2, "what shares closes nothing"
        await first.close()
        async with credentials.new_session(shares=True) as later:
            assert await ask_by(later) == 3, "there is nothing to share any more"


async def test_a_request_cancelled_while_newer_credentials_are_read_holds_no_connection() -> None:
    reading, read, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class SlowSource:
        async def load(self) -> Access:
            reading.set()
            await read.wait()
            raise ConfigurationError("there are none")

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 9\r\n\r\nhalf")
        await reader.read()
        ended.set()
        writer.close()

    async def asked_by(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url):
            raise AssertionError("it was refused")

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        credentials = Credentials(SlowSource(), Access(url, "Bearer old"), VirtualClock())
        async with credentials.new_session() as session:
            asking = asyncio.create_task(asked_by(session, url))
            await asyncio.wait_for(reading.wait(), 20)
            asking.cancel()
            await asyncio.wait({asking})
            await asyncio.wait_for(ended.wait(), 5)
            read.set()
            await asyncio.sleep(0.01)


async def test_token_file_is_read_again_when_a_minute_has_passed(
    api: FakeApi, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first\n")
    clock = VirtualClock()
    path = write(tmp_path / "config", kubeconfig(api.url, {"tokenFile": str(token_file)}))
    credentials = await load_credentials(path, clock=clock)
    await ask(credentials)
    token_file.write_text("second\n")
    await ask(credentials)
    clock.advance(61)
    await ask(credentials)
    assert tokens(api) == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_refused_token_is_replaced_and_the_request_sent_again(
    api: FakeApi, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("old")
    path = write(tmp_path / "config", kubeconfig(api.url, {"tokenFile": str(token_file)}))
    credentials = await load_credentials(path, clock=VirtualClock())
    token_file.write_text("new")

    def only_new(asked: Asked) -> Answer:
        return Answer(200 if asked.headers["Authorization"] == "Bearer new" else 401)

    api.decide = only_new
    assert await ask(credentials) == 200
    assert tokens(api) == ["Bearer old", "Bearer new"]


async def test_a_token_file_that_vanishes_leaves_the_last_token_in_use(
    api: FakeApi, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("good")
    clock = VirtualClock()
    path = write(tmp_path / "config", kubeconfig(api.url, {"tokenFile": str(token_file)}))
    credentials = await load_credentials(path, clock=clock)
    token_file.unlink()
    clock.advance(61)
    assert await ask(credentials) == 200
    assert tokens(api) == ["Bearer good"]


def plugin_user(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    script = tmp_path / "plugin.py"
    script.write_text(PLUGIN)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script), str(tmp_path / "runs"), *arguments],
        }
    }


async def test_plugin_runs_again_when_its_token_is_refused_but_not_for_every_refusal(
    api: FakeApi, tmp_path: Path
) -> None:
    clock = VirtualClock()
    path = write(tmp_path / "config", kubeconfig(api.url, plugin_user(tmp_path)))
    credentials = await load_credentials(path, clock=clock)
    clock.advance(3600)
    assert (tmp_path / "runs").read_text() == "1"
    api.decide = lambda _: Answer(401)
    assert [await ask(credentials) for _ in range(5)] == [401] * 5
    assert (tmp_path / "runs").read_text() == "2"


async def test_plugin_runs_again_before_its_token_ends(api: FakeApi, tmp_path: Path) -> None:
    clock = VirtualClock()
    user = plugin_user(tmp_path, "2026-01-01T01:00:00Z")  # an hour after the clock's start
    credentials = await load_credentials(
        write(tmp_path / "config", kubeconfig(api.url, user)), clock=clock
    )
    clock.advance(3470)
    await ask(credentials)
    clock.advance(20)
    while await credentials.authorization() == "Bearer token-1":  # noqa: ASYNC110 no event there
        await asyncio.sleep(0.01)
    await ask(credentials)
    assert tokens(api) == ["Bearer token-1", "Bearer token-2"]


HANGING = """
import pathlib, subprocess, sys, time
if pathlib.Path(sys.argv[1]).exists():
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(sys.argv[1] + ".child").write_text(str(child.pid))
    time.sleep(600)
"""


def hanging_user(tmp_path: Path) -> dict[str, Any]:
    """A plugin that answers a token of one hour at once, and never again."""
    user = plugin_user(tmp_path, "2026-01-01T01:00:00Z")
    script = tmp_path / "plugin.py"
    script.write_text(HANGING + PLUGIN)
    return user


async def test_requests_go_on_while_a_plugin_hangs(api: FakeApi, tmp_path: Path) -> None:
    clock = VirtualClock()
    path = write(tmp_path / "config", kubeconfig(api.url, hanging_user(tmp_path)))
    credentials = await load_credentials(path, clock=clock)
    clock.advance(3500)
    async with asyncio.timeout(60):
        assert [await ask(credentials) for _ in range(5)] == [200] * 5
    assert tokens(api) == ["Bearer token-1"] * 5


async def test_a_plugin_that_hangs_is_killed_with_what_it_started(
    api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    path = write(tmp_path / "config", kubeconfig(api.url, hanging_user(tmp_path)))
    source = Kubeconfig(path, None, clock, plugin_seconds=5.0)
    credentials = Credentials(source, await source.load(), clock)
    clock.advance(
        4000
    )  # it has expired: the request waits, but not longer than the plugin may take
    async with asyncio.timeout(60):
        assert await ask(credentials) == 200
    assert "no answer within 5 s" in caplog.text
    child = Path("/proc") / (tmp_path / "runs.child").read_text()
    async with asyncio.timeout(60):
        while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_failing_plugin_is_not_run_for_each_request(api: FakeApi, tmp_path: Path) -> None:
    clock = VirtualClock()
    user = plugin_user(tmp_path, "2026-01-01T01:00:00Z")
    path = write(tmp_path / "config", kubeconfig(api.url, user))
    credentials = await load_credentials(path, clock=clock)
    script = tmp_path / "plugin.py"
    script.write_text(PLUGIN + "sys.exit(1)")
    clock.advance(4000)
    for _ in range(3):
        await ask(credentials)
    assert (tmp_path / "runs").read_text() == "2"
    clock.advance(11)
    await ask(credentials)
    assert (tmp_path / "runs").read_text() == "3"


async def test_concurrent_refusals_read_the_credentials_once(api: FakeApi, tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig(api.url, plugin_user(tmp_path)))
    credentials = await load_credentials(path, clock=VirtualClock())

    def only_second(asked: Asked) -> Answer:
        return Answer(200 if asked.headers["Authorization"] == "Bearer token-2" else 401)

    api.decide = only_second
    assert await asyncio.gather(*(ask(credentials) for _ in range(10))) == [200] * 10
    assert (tmp_path / "runs").read_text() == "2"


async def test_context_is_chosen_by_name(api: FakeApi, tmp_path: Path) -> None:
    document = kubeconfig("http://127.0.0.1:1")
    document["clusters"].append({"name": "other", "cluster": {"server": api.url}})
    document["contexts"].append({"name": "second", "context": {"cluster": "other", "user": "u"}})
    credentials = await load_credentials(write(tmp_path / "config", document), "second")
    assert credentials.server == api.url


async def test_the_path_of_a_kubeconfig_may_have_a_colon(api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    path = write(tmp_path / "a:b" / "config:1", kubeconfig(api.url))
    assert (await load_credentials(path)).server == api.url


async def test_environment_names_the_kubeconfig(api: FakeApi, tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig(api.url))
    credentials = await load_credentials(environ={"KUBECONFIG": path})
    assert credentials.server == api.url


@pytest.mark.parametrize(
    ("text", "context", "complaint"),
    [
        pytest.param("{", None, "cannot read kubeconfig", id="broken yaml"),
        pytest.param("- 1", None, "it is not a kubeconfig", id="a list"),
        pytest.param("{}", None, "names no current context", id="empty"),
        pytest.param(
            "{current-context: a, contexts: [{name: b}]}",
            None,
            'has no context "a": it has b',
            id="dangling context",
        ),
        pytest.param(
            "{contexts: [{name: b}]}", "c", 'has no context "c": it has b', id="unknown context"
        ),
        pytest.param(
            "{current-context: a, clusters: [], contexts: [{name: a, context: {cluster: c}}]}",
            None,
            "cannot use kubeconfig",
            id="missing cluster",
        ),
        pytest.param(
            "{current-context: a, clusters: [{name: c, cluster: {server: 'ftp://x'}}],"
            " contexts: [{name: a, context: {cluster: c}}]}",
            None,
            "not an http or https address",
            id="strange server",
        ),
    ],
)
async def test_unusable_kubeconfig_is_one_clear_line(
    tmp_path: Path, text: str, context: str | None, complaint: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        await load_credentials(str(path), context)
    assert "\n" not in str(caught.value)


async def test_missing_kubeconfig_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no kubeconfig at .*`stellwerk up`"):
        await load_credentials(str(tmp_path / "none"))


async def test_missing_service_account_is_a_configuration_error() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigurationError, match="service account"):
        await load_credentials(environ=environ)


@asynccontextmanager
async def tls_server(
    context: ssl.SSLContext, resumed: list[bool] | None = None
) -> AsyncIterator[str]:
    """The URL of a server that answers everything; `resumed` has an entry for each request."""

    async def answer(request: web.Request) -> web.Response:
        if resumed is not None and request.transport is not None:
            resumed.append(request.transport.get_extra_info("ssl_object").session_reused)
        return web.Response()

    app = web.Application()
    app.router.add_get("/version", answer)
    app.router.add_post("/{path:.*}", answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for the name api.example; no address in it."""
    return certificate_for("api.example", tmp_path_factory.mktemp("tls"))


def certificate_for(name: str, directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    subject = f"-subj /CN={name} -addext subjectAltName=DNS:{name}"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 {subject}".split()
    try:
        subprocess.run(
            [*command, "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return certificate, key


@pytest.mark.parametrize(
    ("cluster", "trusted"),
    [
        pytest.param({}, False, id="verified by default"),
        pytest.param({"insecure-skip-tls-verify": True}, True, id="not verified if so configured"),
        pytest.param({"ca": True}, False, id="the right authority, but another name"),
        pytest.param(
            {"ca": True, "tls-server-name": "api.example"}, True, id="verified for another name"
        ),
    ],
)
async def test_tls_is_verified_unless_the_kubeconfig_says_otherwise(
    tmp_path: Path, certificate: tuple[Path, Path], cluster: dict[str, Any], *, trusted: bool
) -> None:
    cluster = dict(cluster)
    if cluster.pop("ca", False):
        cluster["certificate-authority"] = str(certificate[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with tls_server(context) as url:
        path = write(tmp_path / "config", kubeconfig(url, {"token": "t"}, **cluster))
        credentials = await load_credentials(path)
        async with KubernetesClient(
            credentials,
            clock=VirtualClock(),
            metrics=Metrics(),
            jitter=lambda: 0.0,
            retry=RetryPolicy(attempts=1),
        ) as client:
            if trusted:
                assert await ask(credentials) == 200
                await client.bind("default", "web", "uid", "node")
            else:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await ask(credentials)
                with pytest.raises(Unavailable, match="certificate"):
                    await client.bind("default", "web", "uid", "node")


async def test_an_authority_that_changes_is_taken_up_and_the_old_one_not_trusted_any_more(
    tmp_path: Path, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = certificate_for("api.example", tmp_path_factory.mktemp("other"))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(certificate[0].read_bytes())
    contexts = []
    for pair in (certificate, other):
        contexts.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        contexts[-1].load_cert_chain(*pair)
    clock = VirtualClock()
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "api.example"}

    async def asked(session: aiohttp.ClientSession, url: str) -> str:
        try:
            async with session.get(f"{url}/version"):
                return "trusted"
        except aiohttp.ClientConnectorCertificateError:
            return "refused"

    async with tls_server(contexts[0]) as old, tls_server(contexts[1]) as new:
        path = write(tmp_path / "config", kubeconfig(old, {"token": "t"}, **cluster))
        credentials = await load_credentials(path, clock=clock)
        async with credentials.new_session() as session:
            assert [await asked(session, url) for url in (old, new)] == ["trusted", "refused"]
            authority.write_bytes(other[0].read_bytes())
            clock.advance(61)
        # What was connected stays so; a session that opens connections has today's certificates.
        async with credentials.new_session() as session:
            assert [await asked(session, url) for url in (old, new)] == ["refused", "trusted"]


async def test_a_client_certificate_that_rotates_is_shown_and_half_a_pair_is_not(
    tmp_path: Path, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = certificate_for("api.example", tmp_path_factory.mktemp("other"))
    contexts = []
    for pair in (certificate, other):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pair[0])
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*pair)
        contexts.append(context)
    shown, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    shown.write_bytes(certificate[0].read_bytes())
    key.write_bytes(certificate[1].read_bytes())
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    clock = VirtualClock()

    async def admitted(credentials: Credentials, *urls: str) -> list[bool]:
        found = []
        await credentials.authorization()
        async with credentials.new_session() as session:
            for url in urls:
                try:
                    async with session.get(f"{url}/version"):
                        found.append(True)
                except aiohttp.ClientError:
                    found.append(False)
        return found

    async with tls_server(contexts[0]) as old, tls_server(contexts[1]) as new:
        cluster = {"insecure-skip-tls-verify": True}
        path = write(tmp_path / "config", kubeconfig(old, user, **cluster))
        credentials = await load_credentials(path, clock=clock)
        assert await admitted(credentials, old, new) == [True, False]
        shown.write_bytes(other[0].read_bytes())
        clock.advance(61)
        assert await admitted(credentials, old, new) == [True, False], "no key of it is there yet"
        key.write_bytes(other[1].read_bytes())
        clock.advance(61)
        assert await admitted(credentials, old, new) == [False, True]


async def ask_anew(url: str, context: ssl.SSLContext | None) -> None:
    """Send a request on a connection of its own."""
    pool = ConnectionPool(
        url,
        ssl_context=context,
        tls_server_name="api.example",
        user_agent="test",
        connect_timeout_seconds=60,
    )
    try:
        answer = await pool.exchange(
            "POST",
            "/api/v1/pods",
            body=b"{}",
            content_type="application/json",
            accept="application/json",
            authorization=None,
            timeout_seconds=60,
        )
    finally:
        pool.close()
    assert answer.status == 200


async def test_new_connections_resume_a_session_until_it_is_old_or_its_authority_goes(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, resumed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[bool]()
    context.load_cert_chain(*certificate)
    authority, clock = tmp_path / "ca.crt", VirtualClock()
    authority.write_bytes(certificate[0].read_bytes())
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "api.example"}
    async with tls_server(context, resumed) as url:
        path = write(tmp_path / "config", kubeconfig(url, {"token": "t"}, **cluster))
        credentials = await load_credentials(path, clock=clock)
        for _ in range(3):
            await ask_anew(url, credentials.ssl_context)
        assert resumed == [False, True, True]
        authority.write_bytes(certificate[0].read_bytes() + b"\n")
        clock.advance(61)
        assert await ask(credentials) == 200, "the look at the authority"
        monkeypatch.setattr(renewable_context, "MAX_SESSION_SECONDS", -1.0)
        for _ in range(2):
            await ask_anew(url, credentials.ssl_context)
        assert resumed[3:] == [False, False, False], "of another authority, and too old at once"


async def test_a_server_with_another_key_is_refused_whatever_session_it_is_offered(
    certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = certificate_for("api.example", tmp_path_factory.mktemp("other"))
    resumed, contexts = list[bool](), []
    for pair in (certificate, other):
        contexts.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        contexts[-1].load_cert_chain(*pair)
    async with tls_server(contexts[0], resumed) as right, tls_server(contexts[1]) as wrong:
        shown = ssl.PEM_cert_to_DER_cert(certificate[0].read_text())
        tls = renewable_context.RenewableContext.of(
            Access(right, verify=False, public_key=fingerprint(shown))
        )
        for _ in range(2):
            await ask_anew(right, tls)
        assert resumed == [False, True]
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask_anew(wrong, tls)


@pytest.mark.parametrize(("skip", "warnings"), [(True, 1), (False, 0)])
async def test_a_server_that_is_not_verified_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, skip: bool, warnings: int
) -> None:
    cluster = {"insecure-skip-tls-verify": skip}
    path = write(tmp_path / "config", kubeconfig("https://127.0.0.1:1", {"token": "t"}, **cluster))
    credentials = await load_credentials(path)
    with contextlib.suppress(aiohttp.ClientError):
        await ask(credentials)
    assert caplog.text.count("insecure-skip-tls-verify") == warnings


@pytest.mark.parametrize("as_data", [False, True], ids=["files", "data"])
async def test_client_certificate_is_offered(
    tmp_path: Path,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    *,
    as_data: bool,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/no folder that one can write into")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*certificate)

    def pem(key: str, path: Path) -> dict[str, str]:
        if not as_data:
            return {key: str(path)}
        return {f"{key}-data": base64.b64encode(path.read_bytes()).decode()}

    user = pem("client-certificate", certificate[0]) | pem("client-key", certificate[1])
    cluster = {**pem("certificate-authority", certificate[0]), "tls-server-name": "api.example"}
    async with tls_server(context) as url:
        path = write(tmp_path / "config", kubeconfig(url, user, **cluster))
        assert await ask(await load_credentials(path)) == 200


@pytest.mark.parametrize(
    ("user", "cluster", "complaint"),
    [
        pytest.param(
            {"client-certificate": "none.crt", "client-key": "none.key"},
            {},
            r"cannot read the client certificate /.*none\.crt: .*No such file",
            id="no certificate",
        ),
        pytest.param(
            {},
            {"certificate-authority-data": "bm8="},
            "cannot read the certificate authority: ",
            id="no authority",
        ),
    ],
)
async def test_unreadable_certificates_are_one_clear_line(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], complaint: str
) -> None:
    path = write(tmp_path / "config", kubeconfig("https://127.0.0.1:1", user, **cluster))
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        await load_credentials(path)
    assert "\n" not in str(caught.value)


async def test_kubeconfigs_are_joined_the_first_wins(api: FakeApi, tmp_path: Path) -> None:
    first = write(tmp_path / "a", kubeconfig(api.url, {"token": "first"}))
    second = write(tmp_path / "b", kubeconfig("http://127.0.0.1:1", {"token": "second"}))
    await ask(await load_credentials(environ={"KUBECONFIG": os.pathsep.join((first, second))}))
    assert tokens(api) == ["Bearer first"]
