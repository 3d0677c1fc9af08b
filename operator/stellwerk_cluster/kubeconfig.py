"""The kubeconfig that leads to an embedded cluster.

Written by `cluster.EmbeddedCluster` once its port answers, and by commands as a `KubeconfigFile`.
Invariant: the file appears complete or not at all; a command writes over no file but one that
another such command has left behind, and removes none but its own.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from stellwerk.errors import ConfigurationError
from stellwerk_cluster.identity.assembly import ADMIN

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = "stellwerk"
_LARGEST: Final = 1 << 18
"""Bytes; a kubeconfig of one cluster, its authority included, has a few thousand."""
_CONTEXT_FIELDS: Final = frozenset({"cluster", "user", "namespace"})


def kubeconfig(url: str, token: str, authority: bytes = b"") -> bytes:
    """A kubeconfig with one cluster, one user and one context.

    `authority` is the certificate, as PEM, that the server is checked by.
    """
    cluster = {"server": url}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": ADMIN.name, "user": {"token": token}}],
        "contexts": [
            {
                "name": _NAME,
                "context": {"cluster": _NAME, "user": ADMIN.name, "namespace": "default"},
            }
        ],
        "current-context": _NAME,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


def write_kubeconfig(path: Path, content: bytes) -> None:
    """Write a kubeconfig for its owner's eyes only, over whatever is there.

    Raises:
        OSError: the file cannot be written.
    """
    os.close(_written(path, content, Path.replace))


class KubeconfigFile:
    """The kubeconfig of a command that serves a cluster: one of its own, or none."""

    def __init__(self, path: Path) -> None:
        """Look whether the path may be written; a file there is held until it is replaced.

        Raises:
            ConfigurationError: there is another file, or that of a cluster that is running.
        """
        self._path = path
        self._content = b""
        """As written; empty: it is not yet."""
        self._held = self._left_behind()
        """A descriptor whose lock tells others that the process of this file runs."""

    def write(self, content: bytes) -> None:
        """Write it for its owner's eyes only.

        Raises:
            OSError: the file cannot be written, or another one has appeared there meanwhile.
        """
        before, self._held = self._held, None
        try:
            if before is not None and not _is_at(self._path, before):
                raise FileExistsError(errno.EEXIST, "it was replaced meanwhile", str(self._path))
            self._held = _written(self._path, content, _link if before is None else Path.replace)
        finally:
            if before is not None:
                os.close(before)
        self._content = content

    def remove(self) -> None:
        """Remove it, unless it is another one by now, or was changed."""
        if self._held is None:
            return
        with contextlib.suppress(OSError):
            is_own = self._content and _is_at(self._path, self._held)
            if is_own and self._path.read_bytes() == self._content:
                self._path.unlink()
        os.close(self._held)
        self._held = None

    def _left_behind(self) -> int | None:
        """A file that a command wrote which has ended without removing it, locked; None: none."""
        path = self._path
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            opened = os.open(path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            reason = "it is a symbolic link" if is_link else error.strerror
            raise ConfigurationError(f"cannot write {path}: {reason}") from error
        try:
            url = _own_url(opened, path)
            _lock(opened)
        except BlockingIOError as error:
            os.close(opened)
            raise ConfigurationError(
                f"{path} leads to a cluster that is running at {url}: --kubeconfig names another "
                "one to write"
            ) from error
        except BaseException:
            os.close(opened)
            raise
        return opened


def _own_url(opened: int, path: Path) -> str:
    """The URL that a kubeconfig of these commands leads to.

    Raises:
        ConfigurationError: it is another file, or says more than they write.
    """
    is_own, url = False, ""
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("no regular file")  # noqa: TRY301 as what a text is refused by
        content: Any = yaml.safe_load(os.pread(opened, _LARGEST, 0))
        [cluster], [user], [context] = content["clusters"], content["users"], content["contexts"]
        names = [cluster["name"], user["name"], context["name"], context["context"]["user"]]
        fields = {*context["context"]} <= _CONTEXT_FIELDS and list(user["user"]) == ["token"]
        is_own = fields and names == [_NAME, ADMIN.name, _NAME, ADMIN.name]
        url = str(cluster["cluster"]["server"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError, RecursionError):
        is_own = False
    if not is_own:
        raise ConfigurationError(
            f"{path} is there and is none of this command's files: --kubeconfig names another one "
            "to write"
        )
    return url


def _lock(opened: int) -> None:
    """Lock a file for as long as it is open.

    Raises:
        BlockingIOError: another process has done so.
    """
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return  # a file system without locks


def _is_at(path: Path, opened: int) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(opened))
    except OSError:
        return False


def _link(temporary: Path, path: Path) -> None:
    """Give a file its name, unless another one has it.

    Raises:
        FileExistsError: another one has.
    """
    try:
        path.hardlink_to(temporary)
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, "another file is there by now", str(path)) from error
    except OSError:
        # A file system without such links.
        if os.path.lexists(path):
            raise
        temporary.replace(path)
        return
    temporary.unlink()


def _written(path: Path, content: bytes, put: Callable[[Path, Path], object]) -> int:
    """Write a file beside the path and `put` it there; the answer is its descriptor, locked.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        _lock(handle)
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
        put(temporary, path)
    except BaseException:
        os.close(handle)
        temporary.unlink(missing_ok=True)
        raise
    return handle
