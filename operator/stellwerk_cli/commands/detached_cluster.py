"""A cluster of `stellwerk up` in the background: its start, its end, and the file that tells of it.

`up --detach` starts it and `down` ends it. Beside the kubeconfig FILE lie its state, FILE.up, and
its log, FILE.up.log: no home is needed, and one kubeconfig has one cluster. Invariant: a running
cluster holds a lock on its state until it ends. The kernel frees that lock, however the process
ends, so a process id that a crash has left is never sent a signal. Both files are the user's own
and private: the address of the page, which stands in them, holds its key.
"""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from stellwerk_cli.demo.addresses import Addresses
from stellwerk_kube.errors import AbsentError, ConfigurationError, SchedulerError

FLAG: Final = "--detach"
_DESCRIPTORS: Final = "STELLWERK_UP_DESCRIPTORS"
"""The variable by which the started process knows the descriptors that it was given."""
END_SECONDS: Final = 30.0
"""Longest wait of `down` for the process: it ends within a second, on a busy machine within ten."""
_LOCK_CHECK_SECONDS: Final = 0.05
"""Pause between two tries to take the lock of a process that ends."""
_PRIVATE_MODE: Final = 0o600
_MAX_STATE_BYTES: Final = 1 << 16
"""Bytes that are read of a state, which has a few hundred."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of the cluster of a kubeconfig."""

    kubeconfig: Path

    @property
    def state(self) -> Path:
        return self.kubeconfig.with_name(f"{self.kubeconfig.name}.up")

    @property
    def log(self) -> Path:
        return self.kubeconfig.with_name(f"{self.kubeconfig.name}.up.log")

    def remove(self) -> None:
        self.state.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)


def has_state(kubeconfig: Path) -> bool:
    """Whether a cluster in the background has this kubeconfig, or had it until a crash."""
    return os.path.lexists(_Files(kubeconfig).state)


def start(kubeconfig: Path, words: Sequence[str]) -> Addresses | int:
    """Start `stellwerk WORDS` in the background, and wait until it serves.

    Returns its addresses, or its exit status if it ended before: then its errors are printed.

    Raises:
        ConfigurationError: a cluster of this kubeconfig runs, or the files cannot be written.
    """
    files = _Files(kubeconfig)
    state = _locked_state(files)
    reader, writer = os.pipe()
    try:
        log = _private(files.log, os.O_CREAT)
        os.ftruncate(log, 0)
        process = subprocess.Popen(  # noqa: S603 this program, with the user's own words
            [sys.executable, "-P", "-m", "stellwerk_cli", *words],
            env={**os.environ, _DESCRIPTORS: f"{state},{writer}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(state, writer),
            start_new_session=True,  # Ctrl-C and the end of this terminal do not reach it
        )
        os.close(log)
        os.close(writer)
        try:
            # The end of the pipe tells of the process's end: the process alone holds it open.
            is_ready = os.read(reader, 1) != b""
        except BaseException:  # Ctrl-C
            process.terminate()
            process.wait()
            files.remove()
            raise
        if is_ready:
            # It is not waited for: it lives on. Popen warns of a process without a status.
            process.returncode = 0
            return Addresses(**_read(state, files)["addresses"])
        status = process.wait()
        sys.stderr.write(files.log.read_text(encoding="utf-8", errors="replace"))
        files.remove()
        return status if status > 0 else 1
    finally:
        os.close(reader)
        os.close(state)


@contextmanager
def told(
    kubeconfig: Path, say: Callable[[Addresses], None]
) -> Iterator[Callable[[Addresses], None]]:
    """Yield the function that takes the addresses of a cluster that serves.

    In a terminal that is `say`. In a process that `start` has started, it tells the starting one
    and the state. The files of such a process go with it when it ends as asked; after an error
    they stay, for people to read.
    """
    given = os.environ.pop(_DESCRIPTORS, "")
    if not given:
        yield say
        return
    state, ready = map(int, given.split(","))
    for each in (state, ready):
        os.set_inheritable(each, False)  # noqa: FBT003 a function of Python
    _write(state, {"pid": os.getpid()})

    def tell(addresses: Addresses) -> None:
        _write(state, {"pid": os.getpid(), "addresses": asdict(addresses)})
        # A broken pipe ends this process: the one that started it was killed before it could say
        # that there is a cluster.
        os.write(ready, b"\n")
        os.close(ready)

    yield tell
    _Files(kubeconfig).remove()


def stop(kubeconfig: Path) -> str:
    """End the cluster of a kubeconfig, and remove what it left; returns what was done, in words.

    Raises:
        AbsentError: there is none.
        ConfigurationError: the state is not the user's own, or was changed.
        SchedulerError: the process does not end.
    """
    files = _Files(kubeconfig)
    try:
        state = _private(files.state)
    except FileNotFoundError:
        raise AbsentError(
            f"no cluster of `stellwerk up {FLAG}` has the kubeconfig {kubeconfig}; one that runs "
            "in a terminal ends with Ctrl-C there"
        ) from None
    try:
        if _lock(state):
            return _cleared(files)
        pid, until = 0, time.monotonic() + END_SECONDS
        while not _lock(state):
            if not pid and (pid := int(_read(state, files).get("pid", 0))):
                _terminate(pid)
            if time.monotonic() > until:
                raise SchedulerError(
                    f"process {pid} has not ended after {END_SECONDS:.0f} s; its log is {files.log}"
                )
            time.sleep(_LOCK_CHECK_SECONDS)
        if has_state(kubeconfig):
            return _cleared(files)
        return f"The cluster of {kubeconfig} has ended."
    finally:
        os.close(state)


def _terminate(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has ended just now; one of another container keeps the lock, which is reported
    except OSError as error:
        raise SchedulerError(f"cannot end process {pid}: {error.strerror}") from error


def _cleared(files: _Files) -> str:
    """Remove what a process that ended by itself has left, but for its log."""
    from stellwerk_cluster.kubeconfig import KubeconfigFile  # noqa: PLC0415 nothing else needs it

    with suppress(ConfigurationError):  # the kubeconfig is another cluster's by now
        KubeconfigFile(files.kubeconfig).remove_left()
    files.state.unlink(missing_ok=True)
    return (
        f"The cluster of {files.kubeconfig} had ended by itself; its log is {files.log}. What it "
        "left is removed."
    )


def _locked_state(files: _Files) -> int:
    """The descriptor of the state, empty and locked.

    Raises:
        ConfigurationError: a cluster that runs holds it, or it cannot be written.
    """
    try:
        files.state.parent.mkdir(parents=True, exist_ok=True)
        while True:
            state = _private(files.state, os.O_CREAT)
            if not _lock(state):
                pid = _read(state, files).get("pid")
                os.close(state)
                raise ConfigurationError(
                    f"a cluster of {files.kubeconfig} is up (process {pid}): `stellwerk down` ends "
                    "it, --kubeconfig names another file"
                )
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(state), files.state.stat(follow_symlinks=False)):
                    os.ftruncate(state, 0)
                    return state
            os.close(state)  # a cluster that ended meanwhile has removed this file
    except OSError as error:
        raise ConfigurationError(f"cannot write {files.state}: {error.strerror}") from error


def _private(path: Path, flags: int = 0) -> int:
    """Open a file that is the user's own, and that no other user reads or writes.

    Raises:
        FileNotFoundError: there is none.
        ConfigurationError: it is not so.
    """
    flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(path, flags, _PRIVATE_MODE)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"cannot use {path}: {error.strerror}") from error
    status = os.fstat(opened)
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    if is_own and not stat.S_IMODE(status.st_mode) & 0o077:
        return opened
    os.close(opened)
    raise ConfigurationError(f"cannot use {path}: it is not a private file of yours (mode 600)")


def _lock(opened: int) -> bool:
    """Take the lock of a file; returns whether it was free."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(state: int, content: dict[str, Any]) -> None:
    text = orjson.dumps(content)
    os.pwrite(state, text.ljust(os.fstat(state).st_size), 0)


def _read(state: int, files: _Files) -> dict[str, Any]:
    """The content of a state; empty: the process has not begun yet.

    Raises:
        ConfigurationError: it is none.
    """
    text = os.pread(state, _MAX_STATE_BYTES, 0)
    try:
        content = orjson.loads(text) if text.strip() else {}
    except ValueError:
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("pid", 0), int):
        raise ConfigurationError(f"{files.state} was changed: it is no state of a cluster")
    return content
