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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from stellwerk.client.pem_file import pem_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stellwerk.profiles.spec.extender_spec import Extender, ExtenderTLSConfig, SecretReference

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_ROOTS: Final = "ca.crt"
MAX_FILE_BYTES: Final = 1 << 20
"""Bytes of a certificate, a key or roots; a larger file is refused unread."""
MAX_READING_SECONDS: Final = 2.0
"""Longest time to read the files of an extender; a pipe or a network file system may never end."""
_MAX_THREADS: Final = 2
"""Threads that read files at once, of the few that the process has."""
_MAX_READINGS: Final = 16
"""Readings that wait or have not ended; further ones are refused."""
FILES_FLAG: Final = "--extender-files-dir"
_STEP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnusableFileError(ValueError):
    """A file that an extender names cannot be read, or may not be."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """PEM texts; empty where there is none."""

    certificate: bytes = b""
    key: bytes = b""
    roots: bytes = b""


class ExtenderFiles:
    """Reads the files that extenders name, two at a time, in threads of their own.

    They lie below one folder, which the operator's owner names. A file system that does not answer
    holds up neither other extenders nor the end of the process: who is late is waited for no
    longer, and another thread takes the place. There are few of them, however often one tries.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: files may lie below it; None: none may be read."""
        self._folder = folder
        self._under_way: set[tuple[str, ...]] = set()
        self._places = asyncio.Semaphore(_MAX_THREADS)

    async def read(self, paths: Sequence[str]) -> list[bytes]:
        """The contents of files; of none where there is no path.

        Raises:
            UnusableFileError: one cannot be read, or is none that may be.
        """
        key = tuple(paths)
        named = " and ".join(filter(None, paths))
        if not named:
            return [b""] * len(key)
        if self._folder is None:
            raise UnusableFileError(
                f"{named}: files are read only below the folder that {FILES_FLAG} of stellwerk "
                "run names"
            )
        if key in self._under_way or len(self._under_way) >= _MAX_READINGS:
            raise UnusableFileError(f"{named}: an earlier attempt to read files is still running")
        async with self._places:
            try:
                async with asyncio.timeout(MAX_READING_SECONDS):
                    return await self._in_thread(key, self._folder)
            except TimeoutError as error:
                message = (
                    f"{named}: not read within {MAX_READING_SECONDS:g} s (below the folder of "
                    f"{FILES_FLAG})"
                )
                raise UnusableFileError(message) from error

    def _in_thread(self, paths: tuple[str, ...], folder: Path) -> asyncio.Future[list[bytes]]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[bytes]] = loop.create_future()

        def read() -> None:
            found: list[bytes] | Exception
            try:
                found = [_file(folder, path) if path else b"" for path in paths]
            except UnusableFileError as error:
                text = str(error)
                named = "" if FILES_FLAG in text else f" ({FILES_FLAG} names the folder of files)"
                found = UnusableFileError(text + named)
            self._under_way.discard(paths)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, done, found)

        self._under_way.add(paths)
        threading.Thread(target=read, name="extender files", daemon=True).start()
        return done


def _settle(done: asyncio.Future[list[bytes]], found: list[bytes] | Exception) -> None:
    if done.done():
        return
    if isinstance(found, Exception):
        done.set_exception(found)
    else:
        done.set_result(found)


def _file(folder: Path, path: str) -> bytes:
    """A regular file of no more than MAX_FILE_BYTES, as long as its file system says it is.

    Raises:
        UnusableFileError: it is something else, or cannot be read.
    """
    try:
        opened = _opened_below(folder, path)
        try:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise UnusableFileError(f"{path} is not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                raise UnusableFileError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
            content = b""
            while len(content) <= status.st_size and (part := os.read(opened, 1 << 16)):
                content += part
            if len(content) > status.st_size:
                # What the kernel makes up as it is read, /proc/self/environ for one, has no size.
                raise UnusableFileError(f"{path} has no known size")
            return content
        finally:
            os.close(opened)
    except OSError as error:
        raise UnusableFileError(f"{path}: {error.strerror}") from error


def _opened_below(folder: Path, path: str) -> int:
    """A file descriptor of what a path below the folder names.

    Links may lead from one place below the folder to another, as those of mounted Secrets do, and
    nowhere else. Each step is opened by itself, so that none can be replaced by a link meanwhile.

    Raises:
        UnusableFileError: it does not lie below the folder.
        OSError: it cannot be opened.
    """
    outside = UnusableFileError(f"{path} is not below {folder}, the folder that {FILES_FLAG} names")
    if "\0" in path or ".." in Path(path).parts:
        raise outside
    root = Path(os.path.realpath(folder))
    named = folder / path
    if not (named.is_relative_to(folder) or named.is_relative_to(root)):
        raise outside
    place = Path(os.path.realpath(named))
    if place == root or not place.is_relative_to(root):
        raise outside
    *steps, last = place.relative_to(root).parts
    at = os.open(root, _STEP)
    try:
        for step in steps:
            below = os.open(step, _STEP, dir_fd=at)
            os.close(at)
            at = below
        return os.open(last, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


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
    if not spec.shown_url_prefix.startswith("https"):
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
        return _from_secret(await get_object(secret_path(config.secret_ref)), config.secret_ref)
    sources = (
        (config.cert_data, config.cert_file),
        (config.key_data.reveal(), config.key_file),
        (config.ca_data, config.ca_file),
    )
    read = await files.read(named_files(config))
    return TlsMaterial(
        *(decoded(data) or content for (data, _), content in zip(sources, read, strict=True))
    )


def named_files(config: ExtenderTLSConfig) -> tuple[str, str, str]:
    """The files that are read of an extender: certificate, key, roots; empty: none."""
    return (
        "" if config.cert_data else config.cert_file,
        "" if config.key_data else config.key_file,
        "" if config.ca_data else config.ca_file,
    )


def secret_path(reference: SecretReference) -> str:
    """The path of a Secret in the API."""
    namespace, name = quote(reference.namespace, safe=""), quote(reference.name, safe="")
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def _from_secret(secret: Mapping[str, Any], reference: SecretReference) -> TlsMaterial:
    data = secret.get("data") or {}
    certificate, key, roots = (decoded(data.get(name)) for name in (_CERTIFICATE, _KEY, _ROOTS))
    if bool(certificate) != bool(key):
        present, missing = (_CERTIFICATE, _KEY) if certificate else (_KEY, _CERTIFICATE)
        name = f"{reference.namespace}/{reference.name}"
        raise ValueError(f"the Secret {name} has {present} but not {missing}")
    return TlsMaterial(certificate, key, roots)


def decoded(data: str | None) -> bytes:
    """The bytes of base64; none of none.

    Raises:
        ValueError: it is none.
    """
    try:
        return base64.b64decode(data or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _context(material: TlsMaterial, *, insecure: bool) -> ssl.SSLContext:
    # Bundles have comments in any language; what stands between the lines of PEM does not count.
    roots = material.roots.decode("ascii", "ignore") if material.roots else None
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
