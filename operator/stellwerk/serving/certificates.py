"""The certificate with which the operator's port answers, and the authority of its clients.

`app` makes one when it starts: from files, or signed by itself. Invariant: new connections get what
the files held a minute ago; a pair that cannot be read leaves the one before in use.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk.client.pem_file import pem_file
from stellwerk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from stellwerk.clock import Clock

logger = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS: Final = 60.0


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
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._files = files
        self._stamp = (0, 0)
        self._authority = b""
        self._complaint = ""
        if files is None:
            self._load_made(clock)
            return
        try:
            self._load(files)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"no certificate for the port in {files.certificate} and {files.key}: {error}"
            ) from error

    async def keep_fresh(self, authority: Callable[[], Awaitable[bytes | None]]) -> None:
        """Look every minute for new files, and for the authority of clients; never returns.

        Args:
            authority: returns its certificates in PEM, or None where there are none.
        """
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await self.refresh(await authority())

    async def refresh(self, authority: bytes | None) -> None:
        """Load what has changed; what cannot be loaded leaves what was there."""
        try:
            if self._files is not None:
                await asyncio.to_thread(self._reload, self._files)
            if authority is not None and authority != self._authority:
                self._trust(authority)
        except (OSError, ValueError) as error:
            if str(error) != self._complaint:
                logger.warning("the port keeps its certificates, the new ones are none: %s", error)
            self._complaint = str(error)
        else:
            self._complaint = ""

    def _trust(self, authority: bytes) -> None:
        """Ask clients for a certificate, and accept those of this authority, too."""
        self.context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self._authority = authority

    def _reload(self, files: CertificateFiles) -> None:
        if files.stamp() != self._stamp:
            self._load(files)
            logger.info("the port has a new certificate from %s", files.certificate)

    def _load(self, files: CertificateFiles) -> None:
        stamp = files.stamp()
        self.context.load_cert_chain(files.certificate, files.key)
        self._stamp = stamp

    def _load_made(self, clock: Clock) -> None:
        from stellwerk.serving.self_signed import self_signed  # noqa: PLC0415 for this case alone

        with pem_file(self_signed(socket.gethostname(), clock.now())) as path:
            self.context.load_cert_chain(path)
