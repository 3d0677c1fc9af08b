"""The checks of `stellwerk doctor` that ask the operator's port: probes, metrics, certificates.

`commands.doctor` runs them with a port that is open, or says why none is. Invariant: as in
`checks`, a finding's own words hold names, reasons and numbers alone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from stellwerk import __version__
from stellwerk.answers.diagnosis import Finding
from stellwerk.client.operator_port import PortRefusal
from stellwerk_cli.commands.diagnosis.allowed_text import named, version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.client.access import Access, Pem
    from stellwerk.client.operator_port import OperatorPort
    from stellwerk_kube.errors import SchedulerError

_WARNING_DAYS: Final = 14
"""Days before its end from which on a certificate is reported. That is time to renew it."""
_HANDSHAKE_SECONDS: Final = 5.0
_CHECK: Final = re.compile(r"\[([-+])\]([A-Za-z]{1,64}) (?:ok|failed: (.*))")
_BUILD: Final = re.compile(r'^stellwerk_build_info\{[^}]*\bversion="([^"]{1,64})"', re.MULTILINE)
_BEARER: Final = "bearer "


async def check_readiness(port: OperatorPort) -> list[Finding]:
    """Ask the leader's probe, which needs no right, which of its checks fail."""
    text = await port.text("/readyz?verbose")
    checks = [match.groups() for match in map(_CHECK.fullmatch, text.splitlines()) if match]
    failed = [(name, reason) for sign, name, reason in checks if sign == "-"]
    if not checks:
        what = "the port answers, but its probe has an unknown form"
        return [Finding(check="port", state="unknown", what=what)]
    if not failed:
        what = f"the leader is ready: {', '.join(name for _, name, _ in checks)}"
        return [Finding(check="port", state="ok", what=what)]
    return [
        Finding(
            check="port",
            state="failed",
            what=f"the leader's check {name} fails",
            remedy="read its log, and docs/operations.md, Signs",
            quoted=[reason],
        )
        for name, reason in failed
    ]


async def check_metrics(port: OperatorPort) -> tuple[list[Finding], str]:
    """Read the metrics: whether they can be read, and which version writes them; and their text."""
    try:
        text = await port.text("/metrics")
    except PortRefusal as refused:
        what = f"cannot be seen: needs the right to get /metrics ({refused.status})"
        remedy = "bind the ClusterRole stellwerk-metrics-reader to the account that scrapes"
        return [Finding(check="metrics", state="unknown", what=what, remedy=remedy)], ""
    count = sum(line.startswith("# TYPE ") for line in text.splitlines())
    findings = [Finding(check="metrics", state="ok", what=f"{count} families can be read")]
    found = _BUILD.search(text)
    if found is not None and found[1] != __version__:
        what = f"the operator is v{version(found[1])}, this program v{__version__}"
        remedy = "use the program of the release that is installed, or upgrade (docs/operations.md)"
        findings.append(Finding(check="versions", state="warning", what=what, remedy=remedy))
    elif found is not None:
        what = f"the operator is v{version(found[1])}, like this program"
        findings.append(Finding(check="versions", state="ok", what=what))
    return findings, text


async def check_port_certificate(port: OperatorPort, now: datetime) -> list[Finding]:
    """Say until when the certificate of the port is valid."""
    if not port.url.startswith("https"):
        what = "the operator's port speaks plain HTTP, on this machine alone"
        return [Finding(check="certificates", state="ok", what=what)]
    parts = urlsplit(port.url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only its dates are read, and nothing is sent: who answers has shown its key to `open_port`.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=context
            )
    except (OSError, TimeoutError) as error:
        what = f"the certificate of the port cannot be seen: {type(error).__name__}"
        return [Finding(check="certificates", state="unknown", what=what)]
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    remedy = (
        "without --tls-cert-file the port makes a new one when the pod starts: kubectl rollout "
        "restart. A changed file of --tls-cert-file is read again"
    )
    return [_expiry("the certificate of the operator's port", shown, now, remedy)]


def check_own_credentials(access: Access, now: datetime) -> list[Finding]:
    """Say until when the caller's own certificate or token is valid; nothing of it is shown."""
    findings = []
    if access.certificate is not None:
        try:
            shown = ssl.PEM_cert_to_DER_cert(_first_certificate(access.certificate))
        except (OSError, ValueError) as error:
            what = f"your client certificate cannot be read: {type(error).__name__}"
            findings.append(Finding(check="certificates", state="unknown", what=what))
        else:
            remedy = "renew it: kubeadm certs renew, or ask its issuer"
            findings.append(_expiry("your client certificate", shown, now, remedy))
    until = _end_of_token(access.authorization or "")
    if until is not None:
        remedy = "get a new one from its issuer"
        findings.append(_until("your token", until, now, remedy, timedelta()))
    return findings


def _first_certificate(pem: Pem) -> str:
    text = (pem.read_bytes() if isinstance(pem, Path) else pem).decode("ascii", "ignore")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return text[text.index(begin) : text.index(end) + len(end)]


def _end_of_token(authorization: str) -> datetime | None:
    """The end of a JSON web token, as it says itself; None: it is none, or does not end."""
    parts = authorization[len(_BEARER) :].split(".")
    if not authorization.lower().startswith(_BEARER) or len(parts) != 3:  # noqa: PLR2004 a JWT
        return None
    try:
        claims: Mapping[str, Any] = orjson.loads(base64.urlsafe_b64decode(f"{parts[1]}==="))
        return datetime.fromtimestamp(claims["exp"]).astimezone()
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


def _expiry(whose: str, certificate: bytes, now: datetime, remedy: str) -> Finding:
    from cryptography import x509  # noqa: PLC0415 11 MiB

    try:
        until = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return Finding(check="certificates", state="unknown", what=f"{whose} cannot be read")
    return _until(whose, until, now, remedy, timedelta(days=_WARNING_DAYS))


def _until(whose: str, until: datetime, now: datetime, remedy: str, soon: timedelta) -> Finding:
    day = until.strftime("%Y-%m-%d")
    if until <= now:
        what = f"{whose} expired on {day}"
        return Finding(check="certificates", state="failed", what=what, remedy=remedy)
    if until - now < soon:
        what = f"{whose} expires on {day}"
        return Finding(check="certificates", state="warning", what=what, remedy=remedy)
    return Finding(check="certificates", state="ok", what=f"{whose} is valid until {day}")


def unreachable(reason: SchedulerError) -> Finding:
    """The finding for a port that cannot be asked."""
    status = reason.status if isinstance(reason, PortRefusal) else None
    what = (
        "the operator's port cannot be reached, so its probes, metrics and certificate are unknown"
    )
    if status is not None:
        what += f" ({status})"
    remedy = "check the lease and your rights; kubectl must be on the PATH, or pass --url"
    return Finding(check="port", state="unknown", what=what, remedy=remedy, quoted=[str(reason)])


def refused(check: str, error: SchedulerError) -> Finding:
    """The finding for one question that the port did not answer."""
    status = f" ({error.status})" if isinstance(error, PortRefusal) else ""
    what = f"cannot be seen: the operator's port did not answer{status}"
    return Finding(check=named(check), state="unknown", what=what, quoted=[str(error)])
