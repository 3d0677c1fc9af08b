"""The TLS side of an extender: certificates to trust and to show, from files, data or a Secret.

`client/extender.py` asks for a context whenever it opens a session. Invariant: material is read
when the context is made and not before, so that a new session has the certificates of today; a file
that is none, is too large or does not end to be read costs that extender alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from stellwerk.client.pem_file import pem_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stellwerk.models.extender_spec import Extender, ExtenderTLSConfig, SecretReference

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_ROOTS: Final = "ca.crt"
LARGEST_FILE_BYTES: Final = 1 << 20
FILE_SECONDS: Final = 2.0
"""So long the files of an extender may take to be read."""
_MOST_READINGS: Final = 16


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """PEM texts; empty where there is none."""

    certificate: bytes = b""
    key: bytes = b""
    roots: bytes = b""


class ExtenderFiles:
    """Reads the files that extenders name, each extender's in a thread of its own.

    A file system that does not answer holds up neither other extenders nor the end of the process:
    these threads are not waited for. There are few of them, however often a profile is tried.
    """

    def __init__(self) -> None:
        self._under_way: set[tuple[str, ...]] = set()

    async def read(self, paths: Sequence[str]) -> list[bytes]:
        """The contents of files; of none where there is no path.

        Raises:
            OSError, ValueError: one cannot be read, or is none that may be.
        """
        key = tuple(paths)
        named = " and ".join(filter(None, paths))
        if not named:
            return [b""] * len(key)
        if key in self._under_way or len(self._under_way) >= _MOST_READINGS:
            raise ValueError(f"{named}: an earlier attempt to read files has not ended yet")
        self._under_way.add(key)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[bytes]] = loop.create_future()

        def read() -> None:
            try:
                found: list[bytes] | Exception = [_file(path) if path else b"" for path in paths]
            except (OSError, ValueError) as error:
                found = error
            self._under_way.discard(key)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, done, found)

        threading.Thread(target=read, name=f"extender files {named}", daemon=True).start()
        try:
            async with asyncio.timeout(FILE_SECONDS):
                return await done
        except TimeoutError as error:
            reason = f"not read within {FILE_SECONDS:g} s" if done.cancelled() else str(error)
            raise ValueError(f"{named}: {reason}") from error


def _settle(done: asyncio.Future[list[bytes]], found: list[bytes] | Exception) -> None:
    if done.done():
        return
    if isinstance(found, Exception):
        done.set_exception(found)
    else:
        done.set_result(found)


def _file(path: str) -> bytes:
    """A regular file of no more than LARGEST_FILE_BYTES."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is no regular file")
        content = b""
        if status.st_size <= LARGEST_FILE_BYTES:
            while len(content) <= LARGEST_FILE_BYTES and (part := os.read(opened, 1 << 16)):
                content += part
        if max(status.st_size, len(content)) > LARGEST_FILE_BYTES:
            raise ValueError(f"{path} is larger than {LARGEST_FILE_BYTES >> 20} MiB")
        return content
    finally:
        os.close(opened)


async def extender_context(
    spec: Extender,
    get_object: Callable[[str], Awaitable[dict[str, Any]]],
    files: ExtenderFiles | None = None,
) -> ssl.SSLContext | None:
    """Return the context for connections to an extender; None if they are not encrypted.

    As in kube-scheduler, `enableHTTPS` without root certificates trusts any certificate.

    Raises:
        OSError, ValueError: certificates cannot be read (ssl.SSLError is an OSError).
        ApiError: the Secret cannot be read.
    """
    if not spec.url_prefix.startswith("https"):
        return None
    config = spec.tls_config
    material = TlsMaterial()
    if config is not None:
        material = await _material(config, get_object, files or ExtenderFiles())
    insecure = config is not None and config.insecure
    if spec.enable_https and not material.roots:
        insecure = True
    return await asyncio.to_thread(_context, material, insecure=insecure)


async def _material(
    config: ExtenderTLSConfig,
    get_object: Callable[[str], Awaitable[dict[str, Any]]],
    files: ExtenderFiles,
) -> TlsMaterial:
    """PEM of a Secret, of data, or of files; data goes before files."""
    if config.secret_ref is not None:
        return _from_secret(await get_object(_secret_path(config.secret_ref)), config.secret_ref)
    sources = (
        (config.cert_data, config.cert_file),
        (config.key_data, config.key_file),
        (config.ca_data, config.ca_file),
    )
    read = await files.read(["" if data else file for data, file in sources])
    return TlsMaterial(
        *(_decoded(data) or content for (data, _), content in zip(sources, read, strict=True))
    )


def _secret_path(reference: SecretReference) -> str:
    namespace, name = quote(reference.namespace, safe=""), quote(reference.name, safe="")
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def _from_secret(secret: Mapping[str, Any], reference: SecretReference) -> TlsMaterial:
    data = secret.get("data") or {}
    certificate, key, roots = (_decoded(data.get(name)) for name in (_CERTIFICATE, _KEY, _ROOTS))
    if bool(certificate) != bool(key):
        present, missing = (_CERTIFICATE, _KEY) if certificate else (_KEY, _CERTIFICATE)
        name = f"{reference.namespace}/{reference.name}"
        raise ValueError(f"the Secret {name} has {present} but not {missing}")
    return TlsMaterial(certificate, key, roots)


def _decoded(data: str | None) -> bytes:
    try:
        return base64.b64decode(data or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _context(material: TlsMaterial, *, insecure: bool) -> ssl.SSLContext:
    roots = material.roots.decode() if material.roots else None
    context = ssl.create_default_context(cadata=roots)
    # Python 3.13 began to ask for extensions that many authorities lack; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.certificate:
        _load_pair(context, material)
    return context


def _load_pair(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """Load the client certificate; the ssl module takes it from a file only."""
    with pem_file(material.certificate + b"\n" + material.key) as path:
        context.load_cert_chain(path)
