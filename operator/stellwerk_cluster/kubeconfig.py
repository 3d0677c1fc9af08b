"""The kubeconfig that leads to an embedded cluster.

Written by `cluster.EmbeddedCluster` once its port answers, and by commands as a `KubeconfigFile`.
Invariant: the file appears complete or not at all; in a user's kubeconfig a command adds and
removes the entries of its own cluster, and nothing else is another at any moment.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import socket
import stat
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from stellwerk_cluster.identity.assembly import ADMIN
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTEXT: Final = "stellwerk"
"""The name of the context, and of its cluster."""
_OWN: Final = {"clusters": CONTEXT, "users": ADMIN.name, "contexts": CONTEXT}
_MAX_KUBECONFIG_BYTES: Final = 16 << 20
"""Bytes of a kubeconfig, which is read and written as a whole."""
_LOCK_SECONDS: Final = 2.0
"""Longest wait for another process that writes the same kubeconfig."""
_PROBE_SECONDS: Final = 1.0
"""Longest wait for an answer of a port on this machine."""
_STRING: Final = "tag:yaml.org,2002:str"
_LIST: Final = "tag:yaml.org,2002:seq"


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
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": ADMIN.name, "user": {"token": token}}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": CONTEXT, "user": ADMIN.name, "namespace": "default"},
            }
        ],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


def write_kubeconfig(path: Path, content: bytes) -> None:
    """Write a kubeconfig for its owner's eyes only, over whatever is there.

    Raises:
        OSError: the file cannot be written.
    """
    _put(path, content, None, Path.replace)


class KubeconfigFile:
    """The kubeconfig of a command that serves a cluster: a file of its own, or a user's as well.

    The entries of the cluster are added to a user's, and taken away at the end; its other entries
    and its current context stay as they are written there.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """Look whether the path may be written; `force`: whatever regular file is there.

        Raises:
            ConfigurationError: there is a link, a file that is no kubeconfig, or one whose entries
                of these names are of other making or lead to a cluster that is running.
        """
        self.path = path
        self._found = _content(path)
        """As it was looked at; None: there was none."""
        self._kept = None if self._found is None else _kept(path, self._found, force=force)
        """The part that stays there at the end; None: nothing, the file is the command's own."""
        self._written = b""
        """Empty: nothing is, yet or any more."""
        self._token = ""

    @property
    def is_shared(self) -> bool:
        """Whether it is a user's kubeconfig as well, and keeps its current context."""
        return self._kept is not None

    def write(self, content: bytes) -> None:
        """Write a kubeconfig, or add its entries to the user's.

        Raises:
            ConfigurationError: the file cannot be written, or is another one than was looked at.
        """
        try:
            self._write(content)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self.path}: {error.strerror}; --kubeconfig names another file"
            ) from error

    def _write(self, content: bytes) -> None:
        own = _parsed(content)
        with _locked(self.path):
            if _content(self.path) != self._found:
                raise FileExistsError(errno.EEXIST, "another file is there now", str(self.path))
            whole = content
            if self._kept is not None:
                document = _parsed(self._kept)
                _remove_own(document)
                _add_own(document, own)
                whole = _text(document)
            before = None if self._found is None else self.path.stat()
            _put(self.path, whole, before, _link if before is None else Path.replace)
        self._written, self._token = whole, _token(own)

    def remove(self) -> None:
        """Remove the entries, and the file if it has no others; what is another's stays."""
        if not self._written:
            return
        with contextlib.suppress(OSError, ConfigurationError, ValueError), _locked(self.path):
            there = _content(self.path)
            if there is None:
                return
            left = self._kept
            if there != self._written:
                document = _parsed(there)
                if _token(document) != self._token:
                    return
                former = None if left is None else _scalar(_parsed(left), "current-context")
                _remove_own(document, former)
                left = _text(document) if _has_entries(document) else None
            if left is None:
                self.path.unlink()
            else:
                _put(self.path, left, self.path.stat(), Path.replace)
        self._written = b""

    def remove_left(self) -> None:
        """Remove the entries that a command which was killed has left behind, as `remove` does."""
        if self._found is None or self._kept == self._found:
            return
        with contextlib.suppress(OSError, ConfigurationError), _locked(self.path):
            if _content(self.path) != self._found:
                return
            if self._kept is None:
                self.path.unlink()
            else:
                _put(self.path, self._kept, self.path.stat(), Path.replace)


# --- what a file holds --------------------------------------------------------------------------


def _content(path: Path) -> bytes | None:
    """The content of a regular file; None: there is none.

    Raises:
        ConfigurationError: it is something else, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise ConfigurationError(f"cannot write {path}: {reason}") from error
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_KUBECONFIG_BYTES:
            raise ConfigurationError(f"cannot write {path}: it is not a regular file, or too large")
        return b"".join(iter(lambda: os.read(opened, _MAX_KUBECONFIG_BYTES), b""))
    finally:
        os.close(opened)


def _kept(path: Path, found: bytes, *, force: bool) -> bytes | None:
    """The contents of a file that stay; None: none, such a command has left it behind.

    Raises:
        ConfigurationError: it may not be written.
    """
    other = "--kubeconfig names another file to write, --force overwrites"
    try:
        document = _parsed(found)
    except ValueError:
        if force:
            return None
        raise ConfigurationError(f"{path} exists and is not a kubeconfig: {other} it") from None
    entries = [_entry(document, section, name) for section, name in _OWN.items()]
    if force:
        return found
    if not any(entries):
        return found
    cluster, user, context = entries
    server = "" if cluster is None else _scalar(_child(cluster, "cluster"), "server")
    at = urlsplit(server)
    is_own = (
        (cluster is None or at.hostname == "127.0.0.1")
        and (user is None or _keys(_child(user, "user")) == ["token"])
        and (context is None or _scalar(_child(context, "context"), "cluster") == CONTEXT)
    )
    if not is_own:
        message = f"{path} has entries named {CONTEXT} that this command did not write"
        raise ConfigurationError(f"{message}: {other} them")
    if at.port is not None and _answers(at.port):
        message = f"{path} leads to a cluster that is running at {server}"
        raise ConfigurationError(f"{message}: --kubeconfig names another file to write")
    _remove_own(document)
    return _text(document) if _has_entries(document) else None


def _answers(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), _PROBE_SECONDS):
            return True
    except OSError:
        return False


# --- the nodes of a document: all others stay as they are written ----------------


def _parsed(content: bytes) -> MappingNode:
    """A kubeconfig as YAML's nodes.

    Raises:
        ValueError: it is none.
    """
    try:
        document = yaml.compose(content, yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError("no YAML") from error
    if not isinstance(document, MappingNode):
        raise ValueError("no object")  # noqa: TRY004 a file that cannot be used, as above
    if _scalar(document, "kind") not in {"", "Config"} or not {*_keys(document)} & {*_OWN}:
        raise ValueError("no kubeconfig")
    for section in _OWN:
        items = _child(document, section)
        is_absent = items is None or (isinstance(items, ScalarNode) and items.value in _NULLS)
        if not is_absent and not isinstance(items, SequenceNode):
            raise ValueError(f"{section} is not a list")
    return document


_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def _text(document: MappingNode) -> bytes:
    text = yaml.serialize(
        document, Dumper=yaml.SafeDumper, allow_unicode=True, width=_MAX_KUBECONFIG_BYTES
    )
    return str(text).encode()


def _keys(node: Node | None) -> list[str]:
    return [str(key.value) for key, _ in node.value] if isinstance(node, MappingNode) else []


def _child(node: Node | None, name: str) -> Node | None:
    """The value of a field; None: there is none."""
    found: Node | None = None
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if key.value == name:
            found = value
    return found


def _scalar(node: Node | None, name: str) -> str:
    value = _child(node, name)
    return str(value.value) if isinstance(value, ScalarNode) else ""


def _items(document: MappingNode, section: str) -> list[Node]:
    items = _child(document, section)
    return items.value if isinstance(items, SequenceNode) else []


def _entry(document: MappingNode, section: str, name: str) -> Node | None:
    found = (each for each in _items(document, section) if _scalar(each, "name") == name)
    return next(found, None)


def _token(document: MappingNode) -> str:
    """The token of the cluster's own user."""
    user = _entry(document, "users", ADMIN.name)
    return _scalar(_child(user, "user"), "token")


def _has_entries(document: MappingNode) -> bool:
    return any(_items(document, section) for section in _OWN)


def _add_own(document: MappingNode, own: MappingNode) -> None:
    for section, name in _OWN.items():
        entry = _entry(own, section, name)
        if isinstance(items := _child(document, section), SequenceNode):
            items.value.append(entry)
            continue
        document.value = [pair for pair in document.value if pair[0].value != section]
        listed = SequenceNode(_LIST, [entry], flow_style=False)
        document.value.append((ScalarNode(_STRING, section), listed))


def _remove_own(document: MappingNode, current_context: str | None = None) -> None:
    """Remove the own entries; where theirs is the current context, this one is instead."""
    for section, name in _OWN.items():
        items = _items(document, section)
        items[:] = [each for each in items if _scalar(each, "name") != name]
    current = _child(document, "current-context")
    if current_context is not None and isinstance(current, ScalarNode):
        current.value = current_context if current.value == CONTEXT else current.value


# --- writing ------------------------------------------------------------------------------------


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other programs from writing a kubeconfig, as kubectl and kind do.

    Raises:
        OSError: another one is writing, or the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
            break
        except FileExistsError as error:
            if time.monotonic() > until:
                reason = f"another program is writing it; if none is, remove {lock}"
                raise FileExistsError(errno.EEXIST, reason, str(path)) from error
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    """Give a file its name, unless another one has it.

    Raises:
        FileExistsError: another one has.
    """
    try:
        path.hardlink_to(temporary)
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, "another file is there now", str(path)) from error
    except OSError:
        # A file system without such links.
        if os.path.lexists(path):
            raise
        temporary.replace(path)
        return
    temporary.unlink()


def _put(
    path: Path,
    content: bytes,
    before: os.stat_result | None,
    put: Callable[[Path, Path], object],
) -> None:
    """Write a file beside the path and `put` it there, with the mode and owner of the one before.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if before is not None:
                with contextlib.suppress(OSError):
                    os.fchown(handle, before.st_uid, before.st_gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode))
        put(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
