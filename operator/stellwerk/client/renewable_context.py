"""TLS with the certificates of today: those to trust, and the one to show.

`credentials` keeps one for all sessions with the cluster and renews it with each look at the
configuration. New connections resume the session of an earlier one: the server then signs nothing,
and no certificate is sent and checked, which saves both sides most of a handshake. Invariant: a
connection is opened with the newest certificates that could be read, an authority that is no longer
there is no longer trusted, and a session is resumed for MAX_SESSION_SECONDS at most after its
server has shown its certificate.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk.client.access import one_line
from stellwerk.client.pem_file import pem_file
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from stellwerk.client.access import Access, Pem

MAX_SESSION_SECONDS: Final = 600.0
"""Time for which a session is resumed before a server has to show its certificate again."""


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of the public key (SubjectPublicKeyInfo) of a certificate in DER.

    Raises:
        ValueError: it is no certificate.
    """
    _, start, end = _element(certificate, 0)
    _, start, end = _element(certificate[:end], start)
    # TBSCertificate: version [0] where it is not 1, serialNumber, signature, issuer, validity,
    # subject, subjectPublicKeyInfo.
    tag, _, after = _element(certificate[:end], start)
    for _ in range(6 if tag == _VERSION else 5):
        start, (_, _, after) = after, _element(certificate[:end], after)
    return f"sha256:{hashlib.sha256(certificate[start:after]).hexdigest()}"


_VERSION: Final = 0xA0


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of an element of DER, where its content starts, and where it ends."""
    header = der[at : at + 2]
    if len(header) < 2:  # noqa: PLR2004 tag and length
        raise ValueError("not a certificate")
    start, length = at + 2, header[1]
    if length >= 0x80:  # noqa: PLR2004 the length is in the bytes that follow
        start += length - 0x80
        length = int.from_bytes(der[at + 2 : start], "big")
    if start + length > len(der):
        raise ValueError("not a certificate")
    return header[0], start, start + length


class RenewableContext(ssl.SSLContext):
    """Hands every new connection to the newest context; connectors hold on to this one."""

    _newest: ssl.SSLContext
    _made_of: tuple[object, ...]
    """The certificates of the newest context; it is made again only for others."""
    _session: ssl.SSLSession | None = None
    """The session that new connections to `_session_server` resume until `_session_ends_seconds`;
    it is of the newest context."""
    _session_server: str | bytes | None = None
    _session_ends_seconds = 0.0

    @classmethod
    def of(cls, access: Access) -> RenewableContext | None:
        """A context for connections to the server; None if it speaks plain HTTP.

        Raises:
            ConfigurationError: certificates cannot be read.
        """
        if not access.server.startswith("https"):
            return None
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._made_of = ()
        context.renew(access)
        return context

    def renew(self, access: Access) -> None:
        """Use other certificates, if these are others, for connections opened from now on.

        Raises:
            ConfigurationError: they cannot be read; the present ones stay.
        """
        trusted = access.authority if access.verify else None
        authority = _read("certificate authority", trusted)
        certificate = _read("client certificate", access.certificate)
        key = _read("client certificate", access.key)
        made_of = (authority, certificate, key, access.verify, access.public_key)
        if made_of == self._made_of:
            return
        newest = _verifying(authority, access.authority) if access.verify else _trusting()
        if access.public_key:
            newest.sslobject_class = _expecting(access.public_key)
        if certificate is not None:
            _show(newest, certificate, key, access.certificate)
        self._newest, self._made_of, self._session = newest, made_of, None

    def resume_later(self, opened: ssl.SSLObject) -> None:
        """Have new connections resume the session of one that has got its first answer.

        Only if its server showed its certificate, and has sent a ticket by now, as in TLS 1.3.
        """
        session = opened.session
        if session is None or not session.has_ticket or opened.session_reused:
            return
        # A session can be resumed by its own context alone.
        if opened.context is self._newest:
            self._session, self._session_server = session, opened.server_hostname
            self._session_ends_seconds = time.monotonic() + MAX_SESSION_SECONDS

    @override
    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        if session is None and self._session_server == server_hostname:
            is_over = time.monotonic() >= self._session_ends_seconds
            session = None if is_over else self._session
        return self._newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def _read(what: str, pem: Pem | None) -> bytes | None:
    if not isinstance(pem, Path):
        return pem
    try:
        return pem.read_bytes()
    except OSError as error:
        raise _unreadable(what, pem, error) from error


def _verifying(authority: bytes | None, source: Pem | None) -> ssl.SSLContext:
    try:
        with pem_file(authority) if authority is not None else nullcontext() as path:
            context = ssl.create_default_context(cafile=path)
    except OSError as error:
        raise _unreadable("certificate authority", source, error) from error
    # Python 3.13 began to ask for extensions that many clusters' authorities lack; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _expecting(public_key: str) -> type[ssl.SSLObject]:
    """TLS that ends in the handshake, before anything is sent, where the server has another key."""

    class Expecting(ssl.SSLObject):
        @override
        def do_handshake(self) -> None:
            super().do_handshake()
            shown = self.getpeercert(binary_form=True)
            if shown is None or fingerprint(shown) != public_key:
                raise ssl.SSLCertVerificationError(
                    "the certificate does not have the expected public key"
                )

    return Expecting


def _show(
    context: ssl.SSLContext, certificate: bytes, key: bytes | None, source: Pem | None
) -> None:
    try:
        with ExitStack() as files:
            key_file = None if key is None else files.enter_context(pem_file(key))
            context.load_cert_chain(files.enter_context(pem_file(certificate)), key_file)
    except OSError as error:
        raise _unreadable("client certificate", source, error) from error


def _unreadable(what: str, pem: Pem | None, error: Exception) -> ConfigurationError:
    name = f" {pem}" if isinstance(pem, Path) else ""
    return ConfigurationError(f"cannot read the {what}{name}: {one_line(error)}")
