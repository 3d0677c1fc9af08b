"""The certificate with which the operator's port answers, and the authority of its clients.

`app` makes one when it starts: from files, or signed by itself. Invariant: new connections get what
the files held a minute ago; a pair that cannot be read leaves the one before in use; an authority
that was taken away is trusted no more, on open connections neither.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.client.pem_file import pem_file
from stellwerk.client.renewable_context import fingerprint
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

AUTHORITY_CHECK_SECONDS: Final = 60.0
"""Pause between two reads of the authority and of the certificate's files, which others renew."""
SOON_SECONDS: Final = 1.0
"""The first pause where the API server was away at the start; each is twice the one before."""
_MAKING_SECONDS: Final = 10.0
"""It takes a fifth of a second."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a pair in PEM, which an external tool renews in place."""

    certificate: Path
    key: Path

    def stamp(self) -> tuple[int, int]:
        """A value that differs when either file has been replaced.

        Raises:
            OSError: one of them is not there.
        """
        return self.certificate.stat().st_mtime_ns, self.key.stat().st_mtime_ns


class ServerCertificate:
    """A TLS context for the port, and the task that keeps it up to date."""

    def __init__(self, files: CertificateFiles | None, clock: Clock) -> None:
        """Load the pair, or make one that is signed by itself.

        Raises:
            ConfigurationError: the files hold no pair.
        """
        self.on_new_authority: Callable[[], None] = lambda: None
        """Closes connections whose peers showed certificates of another one; set by the port."""
        self._files = files
        self._made = b""
        self._stamp = (0, 0)
        self._authority = b""
        self._complaint = ""
        self.public_key = ""
        """The fingerprint of the key of `context`, by which clients know this port."""
        if files is None:
            self._made = _signed_by_itself(socket.gethostname(), clock.now())
        try:
            self.context = self._made_anew(b"")
            """For the next handshake."""
        except (OSError, ValueError) as error:
            if files is None:
                raise
            raise ConfigurationError(
                f"no certificate for the port in {files.certificate} and {files.key}: {error}"
            ) from error

    async def keep_fresh(
        self,
        authority: Callable[[], Awaitable[bytes | None]],
        period_seconds: float = AUTHORITY_CHECK_SECONDS,
        *,
        is_known: bool = True,
    ) -> None:
        """Look every minute for new files, and for the authority of clients; never returns.

        Args:
            authority: returns its certificates in PEM, empty where there are none, None where that
                is not known; it raises OSError where its file is gone.
            period_seconds: between two looks.
            is_known: False has it look soon, as long as the authority was never known.
        """
        soon_seconds = SOON_SECONDS
        while True:
            if is_known:
                await asyncio.sleep(period_seconds)
            else:
                await asyncio.sleep(min(soon_seconds, period_seconds))
                soon_seconds *= 2
            try:
                found = await authority()
                is_known = is_known or found is not None
            except OSError as error:
                if self._authority:
                    logger.warning("client certificates are no longer trusted: %s", error)
                found = b""
            await self.refresh(found)

    async def refresh(self, authority: bytes | None) -> None:
        """Load what has changed; what cannot be loaded leaves what was there.

        Args:
            authority: of clients, as PEM; empty: none is trusted; None: the one before is.
        """
        wanted = self._authority if authority is None else authority
        try:
            stamp = self._files.stamp() if self._files is not None else self._stamp
            if stamp != self._stamp or wanted != self._authority:
                self.context = await asyncio.to_thread(self._made_anew, wanted)
                if stamp != self._stamp and self._files is not None:
                    logger.info("the port has a new certificate from %s", self._files.certificate)
                self._stamp = stamp
                if wanted != self._authority:
                    self._authority = wanted
                    self.on_new_authority()
        except (OSError, ValueError) as error:
            if str(error) != self._complaint:
                logger.warning(
                    "the port keeps its certificate, because the new one is invalid: %s", error
                )
            self._complaint = str(error)
        else:
            self._complaint = ""

    def _made_anew(self, authority: bytes) -> ssl.SSLContext:
        """A context with the pair of today that trusts this authority for clients, and no other.

        Raises:
            OSError, ValueError: the pair or the authority cannot be loaded.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Python 3.13 began to ask for extensions that many authorities lack; Go does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._files is not None:
            context.load_cert_chain(self._files.certificate, self._files.key)
            shown = self._files.certificate.read_bytes()
        else:
            with pem_file(self._made) as path:
                context.load_cert_chain(path)
            shown = self._made
        self.public_key = _fingerprint(shown)
        if authority:
            context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _signed_by_itself(host: str, now: datetime) -> bytes:
    """A key and a certificate in PEM, made by a process of its own, or by this one without it."""
    script = Path(__file__).with_name("self_signed.py")
    # -P: the directory of the script has modules with names of the standard library.
    command = [sys.executable or "", "-P", str(script), host, str(now.timestamp())]
    try:
        ended = subprocess.run(  # noqa: S603 no shell, and nothing of it comes from outside
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_MAKING_SECONDS,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.debug("the certificate is made in this process, no other could: %s", error)
        from stellwerk.serving.self_signed import self_signed  # noqa: PLC0415 for this case alone

        return self_signed(host, now)
    return ended.stdout


def _fingerprint(pem: bytes) -> str:
    """The fingerprint of the first certificate, which is the port's own; those after it sign it."""
    text = pem[pem.index(_BEGIN) :]
    first = text[: text.index(_END) + len(_END)].decode("ascii")
    return fingerprint(ssl.PEM_cert_to_DER_cert(first))


_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
