"""The end of certificates and tokens, and what the operator's port says, become findings."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import orjson
import pytest

from stellwerk import __version__
from stellwerk.client.access import Access
from stellwerk.client.operator_port import OperatorPort
from stellwerk.client.pem_file import pem_file
from stellwerk.metrics import Metrics
from stellwerk.serving.exposition import exposition
from stellwerk.serving.http import HttpServer, Probes
from stellwerk.serving.self_signed import self_signed
from stellwerk_cli.commands.diagnosis.port_checks import (
    check_metrics,
    check_own_credentials,
    check_port_certificate,
    check_readiness,
)
from tests.support.explaining_port import explaining_port

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(valid_days: int) -> bytes:
    """A certificate with so many days left, of those that are made for a year."""
    return self_signed("host", NOW - timedelta(days=365 - valid_days))


@pytest.mark.parametrize(
    ("valid_days", "state", "words"),
    [
        (-2, "failed", "expired on 2025-12-30"),
        (7, "warning", "expires on 2026-01-08"),
        (100, "ok", "valid until 2026-04-11"),
    ],
)
def test_a_client_certificate_is_reported_before_it_ends(
    valid_days: int, state: str, words: str
) -> None:
    access = Access("https://127.0.0.1", certificate=certificate(valid_days))
    (finding,) = check_own_credentials(access, NOW)
    assert (finding.state, words in finding.what) == (state, True)


def test_a_file_without_a_certificate_is_unknown() -> None:
    (finding,) = check_own_credentials(Access("https://a", certificate=b"secret"), NOW)
    assert finding.state == "unknown"
    assert "secret" not in finding.what


@pytest.mark.parametrize(
    ("claims", "state"),
    [
        ({"exp": int(NOW.timestamp()) - 60}, "failed"),
        ({"exp": int(NOW.timestamp()) + 60}, "ok"),
        ({}, None),
        ({"exp": "soon"}, None),
        ({"exp": 1e300}, None),
    ],
)
def test_a_token_is_reported_by_its_own_end(claims: dict[str, object], state: str | None) -> None:
    middle = base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip("=")
    access = Access("https://a", authorization=f"Bearer head.{middle}.hunter2")
    findings = check_own_credentials(access, NOW)
    assert [each.state for each in findings] == ([state] if state else [])
    assert "hunter2" not in str(findings)


def test_an_opaque_token_says_nothing() -> None:
    for token in ("Bearer opaque", "Basic a.b.c", "Bearer a.%%%.c", ""):
        assert check_own_credentials(Access("https://a", authorization=token), NOW) == []


async def test_the_ports_certificate_is_read_from_the_port() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pem_file(certificate(3)) as path:
        context.load_cert_chain(path)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", ssl=context)
    number = server.sockets[0].getsockname()[1]
    async with server, aiohttp.ClientSession() as session:
        port = OperatorPort(session, f"https://127.0.0.1:{number}")
        (finding,) = await check_port_certificate(port, NOW)
        assert (finding.state, finding.what[-10:]) == ("warning", "2026-01-04")
    (finding,) = await check_port_certificate(OperatorPort(session, "https://127.0.0.1:9"), NOW)
    assert (finding.state, "ConnectionRefusedError" in finding.what) == ("unknown", True)
    (finding,) = await check_port_certificate(OperatorPort(session, "http://127.0.0.1:9"), NOW)
    assert finding.state == "ok"


async def test_a_failed_check_of_the_probe_is_named_and_its_reason_quoted() -> None:
    probes = Probes(ready={"watches": lambda: "nothing heard of pods for 60 s", "lists": none})
    async with port_of(HttpServer(probes, bytes, list)) as port:
        (finding,) = await check_readiness(port)
        assert finding.what == "the leader's check watches fails"
        assert finding.quoted == ["nothing heard of pods for 60 s"]


async def test_the_operators_version_is_compared_with_the_programs() -> None:
    metrics = Metrics()
    metrics.build_info.labels("9.9.9", "3.12").set(1)
    async with port_of(HttpServer(Probes(), lambda: exposition(metrics), list)) as port:
        findings, text = await check_metrics(port)
        assert [each.state for each in findings] == ["ok", "warning"]
        assert findings[1].what == f"the operator is v9.9.9, this program v{__version__}"
        assert "stellwerk_build_info" in text


async def test_metrics_that_may_not_be_read_are_unknown() -> None:
    async with explaining_port() as answers, aiohttp.ClientSession() as session:
        port = OperatorPort(session, f"{answers.url}/nowhere")
        (finding,), text = await check_metrics(port)
        assert (finding.state, text) == ("unknown", "")
        assert "stellwerk-metrics-reader" in finding.remedy


def none() -> None:
    """The answer of a check that passes."""


@asynccontextmanager
async def port_of(server: HttpServer) -> AsyncIterator[OperatorPort]:
    number = await server.start("127.0.0.1:0")
    try:
        async with aiohttp.ClientSession() as session:
            yield OperatorPort(session, f"http://127.0.0.1:{number}")
    finally:
        await server.close()
