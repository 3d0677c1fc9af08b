"""The TLS side of an extender: certificates to trust and to show, from files, data or a Secret.

`client/extender.py` reads material whenever it opens a session, and once a minute to compare.
Invariant: what a Secret or a folder of files does not allow for the extender's address is not used;
a file that is none, is too large or does not end to be read costs that extender alone.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stellwerk.client.pem_file import pem_file
from stellwerk.framework.secret_reading import decoded, read_secret
from stellwerk_kube.destinations import HOSTS_FILE, hosts_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stellwerk.profiles.spec.extender_spec import Extender, SecretReference

_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"
_ROOTS: Final = "ca.crt"
MAX_TLS_FILE_BYTES: Final = 1 << 20
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


@dataclass(frozen=True, slots=True, repr=False)
class TlsMaterial:
    """PEM texts; empty where there is none. No text of this shows them."""

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

    async def read(self, paths: Sequence[str], urls: Sequence[str]) -> list[bytes]:
        """The contents of files, for calls of these URLs; of none where there is no path.

        The file `hosts` in a file's folder has to name each of the addresses.

        Raises:
            UnusableFileError: one cannot be read, or is none that may be.
        """
        key = (*paths, *urls)
        named = " and ".join(filter(None, paths))
        if not named:
            return [b""] * len(paths)
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
                    return await self._in_thread(key, paths, urls, self._folder)
            except TimeoutError as error:
                message = (
                    f"{named}: not read within {MAX_READING_SECONDS:g} s (below the folder of "
                    f"{FILES_FLAG})"
                )
                raise UnusableFileError(message) from error

    def _in_thread(
        self, key: tuple[str, ...], paths: Sequence[str], urls: Sequence[str], folder: Path
    ) -> asyncio.Future[list[bytes]]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[bytes]] = loop.create_future()

        def read() -> None:
            found: list[bytes] | Exception
            try:
                found = [_file(folder, path) if path else b"" for path in paths]
                for path in filter(None, paths):
                    _check_hosts_of_file(folder, path, urls)
            except UnusableFileError as error:
                text = str(error)
                named = "" if FILES_FLAG in text else f" ({FILES_FLAG} names the folder of files)"
                found = UnusableFileError(text + named)
            self._under_way.discard(key)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, done, found)

        self._under_way.add(key)
        threading.Thread(target=read, name="extender files", daemon=True).start()
        return done


def _settle(done: asyncio.Future[list[bytes]], found: list[bytes] | Exception) -> None:
    if done.done():
        return
    if isinstance(found, Exception):
        done.set_exception(found)
    else:
        done.set_result(found)


def _check_hosts_of_file(folder: Path, path: str, urls: Sequence[str]) -> None:
    """Refuse a file whose folder does not allow it for these URLs, as `read_secret` does a Secret.

    Raises:
        UnusableFileError: the list of addresses in its folder lacks one, or cannot be read.
    """
    place = str(Path(path).parent / HOSTS_FILE)
    try:
        hosts = _file(folder, place).decode("utf-8", "replace")
    except UnusableFileError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        hosts = ""
    if reason := hosts_refusal(hosts, f"the file {place}", urls):
        raise UnusableFileError(f"{path} is not for this address: {reason}")


def _file(folder: Path, path: str) -> bytes:
    """A regular file of no more than MAX_TLS_FILE_BYTES, as long as its file system says it is.

    Raises:
        UnusableFileError: it is something else, or cannot be read.
    """
    try:
        opened = _opened_below(folder, path)
        try:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise UnusableFileError(f"{path} is not a regular file")
            if status.st_size > MAX_TLS_FILE_BYTES:
                raise UnusableFileError(f"{path} is larger than {MAX_TLS_FILE_BYTES >> 20} MiB")
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


async def extender_context(spec: Extender, material: TlsMaterial) -> ssl.SSLContext | None:
    """Return the context for connections to an extender; None if they are not encrypted.

    As in kube-scheduler, `enableHTTPS` without root certificates trusts any certificate.

    Raises:
        OSError, ValueError: a certificate is none (ssl.SSLError is an OSError).
    """
    if not spec.shown_url_prefix.startswith("https"):
        return None
    insecure = spec.tls_config is not None and spec.tls_config.insecure
    if spec.enable_https and not material.roots:
        insecure = True
    return await asyncio.to_thread(_context, material, insecure=insecure)


async def tls_material(
    spec: Extender,
    get_object: Callable[[str], Awaitable[Mapping[str, Any]]],
    files: ExtenderFiles,
) -> TlsMaterial:
    """PEM of a Secret, of data, or of files; data goes before files.

    Raises:
        OSError, ValueError: files cannot be read, or may not be used for this extender.
        SecretRefusedError: the Secret may not be used for this extender.
        ApiError: the Secret cannot be read.
    """
    config = spec.tls_config
    if config is None or not spec.shown_url_prefix.startswith("https"):
        return TlsMaterial()
    reference = config.secret_ref
    if reference is not None:
        content = await read_secret(
            get_object, reference.namespace, reference.name, spec.called_urls
        )
        return _from_secret(content, reference)
    sources = (
        (config.cert_data, config.cert_file),
        (config.key_data.reveal(), config.key_file),
        (config.ca_data, config.ca_file),
    )
    read = await files.read(config.named_files, spec.called_urls)
    return TlsMaterial(
        *(decoded(data) or content for (data, _), content in zip(sources, read, strict=True))
    )


def _from_secret(content: Mapping[str, bytes], reference: SecretReference) -> TlsMaterial:
    certificate, key, roots = (content.get(name, b"") for name in (_CERTIFICATE, _KEY, _ROOTS))
    if bool(certificate) != bool(key):
        present, missing = (_CERTIFICATE, _KEY) if certificate else (_KEY, _CERTIFICATE)
        name = f"{reference.namespace}/{reference.name}"
        raise ValueError(f"the Secret {name} has {present} but not {missing}")
    return TlsMaterial(certificate, key, roots)


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
        # The ssl module takes a client certificate from a file only.
        with pem_file(material.certificate + b"\n" + material.key) as path:
            context.load_cert_chain(path)
    return context
