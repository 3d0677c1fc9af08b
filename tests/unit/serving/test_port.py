"""The port with TLS: probes for every caller, the rest for users of the cluster."""

import asyncio
import logging
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import override

from stellwerk.client.renewable_context import fingerprint
from stellwerk.serving.certificates import CertificateFiles, ServerCertificate
from stellwerk.serving.http import LOG_LEVEL_PATH, HttpServer, Probes
from stellwerk.serving.port import PortOptions, client_authority, guarded_port, log_level_routes
from stellwerk.serving.self_signed import self_signed
from stellwerk_kube.clock import Clock, SystemClock
from stellwerk_kube.errors import ConfigurationError
from tests.support.fake_api import Answer, Asked, FakeApi, client_of, fake_api, refusal
from tests.support.findings import hold

CLOCK = SystemClock()


def reviewed(asked: Asked) -> Answer:
    """A cluster with one user: prometheus, whose token is "good" and who may read /metrics."""
    spec = (asked.body or {}).get("spec", {})
    if asked.path.endswith("/tokenreviews"):
        user = {"username": "prometheus", "groups": ["system:authenticated"]}
        known = spec["token"] == "good"
        return Answer(201, {"status": {"authenticated": known} | ({"user": user} if known else {})})
    if asked.path.endswith("/subjectaccessreviews"):
        wanted = {"path": "/metrics", "verb": "get"}
        allowed = spec["user"] == "prometheus" and spec["nonResourceAttributes"] == wanted
        return Answer(201, {"status": {"allowed": allowed}})
    return Answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"})


@asynccontextmanager
async def port(
    tmp_path: Path, options: PortOptions, clock: Clock = CLOCK
) -> AsyncIterator[tuple[str, FakeApi]]:
    async with fake_api() as api, client_of(api, tmp_path) as client:
        api.decide = reviewed
        async with guarded_port(options, client, clock) as guard:
            server = HttpServer(Probes(), lambda: b"metrics\n", lambda: [b"pods\n"], guard=guard)
            number = await server.start("127.0.0.1:0")
            try:
                yield f"https://127.0.0.1:{number}", api
            finally:
                await server.close()


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def get(url: str, token: str = "", context: ssl.SSLContext | None = None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context or unverified()) as response,
    ):
        return response.status, await response.text()


async def test_probes_need_no_credentials(tmp_path: Path) -> None:
    async with port(tmp_path, PortOptions()) as (url, api):
        for path in ("/livez", "/readyz", "/healthz"):
            assert (await get(url + path))[0] == 200
        assert await get(f"{url}/livez/unknown") == (404, 'there is no check "unknown"\n')
        assert [each.path for each in api.asked if each.method == "POST"] == []


async def test_metrics_are_for_whom_the_cluster_lets(tmp_path: Path) -> None:
    async with port(tmp_path, PortOptions()) as (url, _):
        assert await get(f"{url}/metrics", "good") == (200, "metrics\n")
        assert (await get(f"{url}/metrics"))[0] == 403
        assert (await get(f"{url}/metrics", "bad"))[0] == 401
        assert (await get(f"{url}/metrics/resources", "good"))[0] == 403
        assert (await get(f"{url}/nothing", "good"))[0] == 403


async def test_plain_http_has_no_guard(tmp_path: Path) -> None:
    async with (
        fake_api() as api,
        client_of(api, tmp_path) as client,
        guarded_port(PortOptions(plain_http=True), client, CLOCK) as guard,
    ):
        assert (guard.access, guard.certificate) == (None, None)


def pair(directory: Path, host: str) -> CertificateFiles:
    """A certificate of this host, in files."""
    text = self_signed(host, CLOCK.now())
    for name in ("tls.crt", "tls.key"):
        (directory / name).write_bytes(text)
    return CertificateFiles(directory / "tls.crt", directory / "tls.key")


async def shown_name(url: str) -> str:
    host, number = url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(number), ssl=unverified())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    (name,) = x509.load_der_x509_certificate(shown).subject
    return str(name.value).split("@")[0]


def test_the_certificate_of_its_own_is_made_without_loading_the_library_for_it() -> None:
    program = """
import sys
from stellwerk_kube.clock import SystemClock
from stellwerk.serving.certificates import ServerCertificate
print(ServerCertificate(None, SystemClock()).public_key, "cryptography" in sys.modules)
"""
    path = os.pathsep.join(sys.path)
    said = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        check=True,
        text=True,
    )
    key, loaded = said.stdout.split()
    assert (key[:7], loaded) == ("sha256:", "False")


@pytest.mark.parametrize("python", [None, "", "/nowhere/python", "/bin/false"])
def test_where_no_process_can_be_started_the_certificate_is_made_in_this_one(
    monkeypatch: pytest.MonkeyPatch, python: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    assert ServerCertificate(None, CLOCK).public_key.startswith("sha256:")


async def shown_key(url: str) -> str:
    """The fingerprint of the public key that the port shows."""
    host, number = url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(number), ssl=unverified())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return fingerprint(shown)


async def test_a_certificate_that_is_replaced_is_shown_from_then_on(tmp_path: Path) -> None:
    files = pair(tmp_path, "first")
    async with fake_api() as api, client_of(api, tmp_path) as client:
        api.decide = reviewed
        async with guarded_port(PortOptions(certificate=files), client, CLOCK) as guard:
            assert guard.certificate is not None
            server = HttpServer(Probes(), lambda: b"", list, guard=guard)
            url = f"https://127.0.0.1:{await server.start('127.0.0.1:0')}"
            try:
                assert await shown_name(url) == "first"
                assert guard.certificate.public_key == await shown_key(url)
                pair(tmp_path, "second")
                await guard.certificate.refresh(None)
                assert await shown_name(url) == "second"
                assert guard.certificate.public_key == await shown_key(url)
                files.key.write_text("no key")
                await guard.certificate.refresh(None)
                assert await shown_name(url) == "second"
            finally:
                await server.close()


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_files_that_are_no_pair_are_named(tmp_path: Path, missing: str) -> None:
    files = pair(tmp_path, "first")
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigurationError, match=r"no certificate for the port in .*tls\.crt"):
        ServerCertificate(files, CLOCK)


def client_certificate(authority: bytes, name: str, organization: str) -> bytes:
    """A key and a certificate that the authority has signed."""
    issuer = x509.load_pem_x509_certificate(authority)
    signer = serialization.load_pem_private_key(authority, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(pem)


async def test_a_certificate_of_the_clusters_authority_names_its_user(tmp_path: Path) -> None:
    authority = self_signed("authority", CLOCK.now())
    (tmp_path / "ca.crt").write_bytes(authority)
    (tmp_path / "user.pem").write_bytes(client_certificate(authority, "prometheus", "monitors"))
    context = unverified()
    context.load_cert_chain(tmp_path / "user.pem")
    options = PortOptions(client_ca_file=tmp_path / "ca.crt")
    async with port(tmp_path, options) as (url, api):
        assert await get(f"{url}/metrics", context=context) == (200, "metrics\n")
        (review,) = [each for each in api.asked if each.path.endswith("/subjectaccessreviews")]
        assert review.body["spec"]["groups"] == ["monitors", "system:authenticated"]


class AheadClock(SystemClock):
    """The machine's clock, so many seconds on."""

    ahead_seconds = 0.0

    @override
    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_seconds)


async def test_an_expired_certificate_is_refused_on_the_connection_that_it_opened(
    tmp_path: Path,
) -> None:
    authority = self_signed("authority", CLOCK.now())
    (tmp_path / "ca.crt").write_bytes(authority)
    (tmp_path / "user.pem").write_bytes(client_certificate(authority, "prometheus", "monitors"))
    context = unverified()
    context.load_cert_chain(tmp_path / "user.pem")
    until = x509.load_pem_x509_certificate(authority).not_valid_after_utc
    options = PortOptions(client_ca_file=tmp_path / "ca.crt")
    clock = AheadClock()
    async with port(tmp_path, options, clock) as (url, _):
        host, number = url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(number), ssl=context)

        async def status() -> bytes:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            return head[9:12]

        clock.ahead_seconds = (until - CLOCK.now()).total_seconds() - 60
        assert await status() == b"200"
        clock.ahead_seconds += 61
        answers = [await status(), await status()]
        hold("expired", answers.count(b"200"))
        assert answers == [b"401", b"401"]
        writer.close()


async def asked_once_more(connection: aiohttp.ClientSession, url: str) -> int:
    """The status of a request on an open connection, or on a new one where that was closed."""
    async with connection.get(f"{url}/metrics") as answer:
        return answer.status


async def test_an_authority_that_was_taken_away_is_trusted_no_more(tmp_path: Path) -> None:
    one, other = (self_signed(name, CLOCK.now()) for name in ("one", "other"))
    contexts = []
    for authority in (one, other):
        (tmp_path / "user.pem").write_bytes(client_certificate(authority, "prometheus", "m"))
        contexts.append(unverified())
        contexts[-1].load_cert_chain(tmp_path / "user.pem")
    async with fake_api() as api, client_of(api, tmp_path) as client:
        api.decide = reviewed
        async with guarded_port(PortOptions(), client, CLOCK) as guard:
            certificate = guard.certificate
            assert certificate is not None
            server = HttpServer(Probes(), lambda: b"metrics\n", list, guard=guard)
            url = f"https://127.0.0.1:{await server.start('127.0.0.1:0')}"
            sessions = [
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=each)) for each in contexts
            ]

            async def statuses() -> list[int]:
                return [await asked_once_more(each, url) for each in sessions]

            try:
                assert (await get(f"{url}/metrics", context=contexts[0]))[0] == 403
                await certificate.refresh(one + other)
                assert await statuses() == [200, 200]
                await certificate.refresh(None)  # not known just now
                assert await statuses() == [200, 200]
                await certificate.refresh(b"no PEM")
                assert await statuses() == [200, 200]
                await certificate.refresh(one)
                let_in = 0
                for _ in range(3):  # on the open connection, and on new ones
                    with suppress(aiohttp.ClientError, ConnectionError):
                        let_in += await asked_once_more(sessions[1], url) < 400
                hold("authority", let_in)
                assert await asked_once_more(sessions[0], url) == 200
                await certificate.refresh(b"")
                assert await get(f"{url}/metrics", context=contexts[0]) == (
                    403,
                    'User "system:anonymous" cannot get path "/metrics"\n',
                )
            finally:
                for each in sessions:
                    await each.close()
                await server.close()


async def test_an_authority_whose_file_goes_is_trusted_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = ServerCertificate(None, CLOCK)
    file = tmp_path / "ca.crt"
    file.write_bytes(self_signed("one", CLOCK.now()))
    changes: list[int] = []
    certificate.on_new_authority = lambda: changes.append(1)

    async def authority() -> bytes:
        return file.read_bytes()

    await certificate.refresh(await authority())
    fresh = asyncio.create_task(certificate.keep_fresh(authority, 0.01))
    file.unlink()
    async with asyncio.timeout(5):
        while len(changes) < 2:  # noqa: ASYNC110 a task that is looked at
            await asyncio.sleep(0.01)
    assert certificate.context.verify_mode == ssl.CERT_NONE
    assert "client certificates are no longer trusted" in caplog.text
    file.write_bytes(self_signed("one", CLOCK.now()))
    async with asyncio.timeout(5):
        while len(changes) < 3:  # noqa: ASYNC110 a task that is looked at
            await asyncio.sleep(0.01)
    assert not fresh.done()
    fresh.cancel()


async def test_the_authority_that_the_cluster_publishes_is_followed_within_a_period(
    tmp_path: Path,
) -> None:
    one, other = (self_signed(name, CLOCK.now()).decode() for name in ("one", "other"))
    published: list[str | None] = [""]

    def answered(_: Asked) -> Answer:
        if published[0] is None:
            return refusal(404, "not found")
        return Answer(200, {"data": {"client-ca-file": published[0]}})

    async with fake_api() as api, client_of(api, tmp_path) as client:
        api.decide = answered
        certificate = ServerCertificate(None, CLOCK)
        changed = asyncio.Event()
        certificate.on_new_authority = changed.set
        fresh = asyncio.create_task(
            certificate.keep_fresh(lambda: client_authority(None, client), 0.01)
        )
        # Added, another one beside it, one of the two taken away, emptied, back, gone altogether.
        for text, trusted in ((one, 1), (one + other, 2), (other, 1), ("", 0), (one, 1), (None, 0)):
            published[0] = text
            changed.clear()
            await asyncio.wait_for(changed.wait(), 5)
            assert len(certificate.context.get_ca_certs()) == trusted
        fresh.cancel()


@pytest.fixture
def root_level() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level
    yield root
    root.setLevel(before)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = HttpServer(Probes(), bytes, list, routes=log_level_routes())
    port = await server.start("127.0.0.1:0")
    yield f"http://127.0.0.1:{port}{LOG_LEVEL_PATH}"
    await server.close()


async def put(url: str, body: bytes) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.put(url, data=body) as answer:
        return answer.status, await answer.text()


async def test_a_level_holds_from_the_answer_on(url: str, root_level: logging.Logger) -> None:
    assert await put(url, b"debug") == (200, "the log level is now debug\n")
    assert root_level.level == logging.DEBUG
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert await answer.text() == "debug\n"


@pytest.mark.parametrize("body", [b"", b"loud", b"\xff\xfe", b"debug" * 1000], ids=len)
async def test_another_body_changes_nothing(
    url: str, root_level: logging.Logger, body: bytes
) -> None:
    root_level.setLevel(logging.WARNING)
    assert (await put(url, body))[0] == (413 if len(body) > 64 else 400)
    assert root_level.level == logging.WARNING
