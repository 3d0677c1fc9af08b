"""A directory that keeps the objects of a cluster over restarts.

It holds a snapshot of all objects and a log of the changes since. Every change is in the log before
it happens, so that the end of the process loses none; the log is forced to the disk once a second
and at the end, so that a power failure loses at most the last second. Invariant: at any moment the
latest snapshot and the logs from its number on hold the whole state, and one process at most has
the directory.

A line is a checksum of what follows, and a JSON object; `r` is the version, `c` the resource, `k`
the key and `o` the object, which a deletion lacks. One that was not written to its end differs from
one that was changed afterwards.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import internal
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.releases import RECORDED_RELEASE, RELEASES
from stellwerk_cluster.registry.entries import DELETED, Entry, StoreEvent
from stellwerk_cluster.registry.store import ChangeLog, Store
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_kube.json_values import JsonObject


_END: Final = "end"
_RELEASE_FILE: Final = "release"
_GROUPS_GROUP: Final = "scheduling.k8s.io"
"""The API group whose objects have other stored forms in some releases."""
_SYNC_SECONDS: Final = 1.0
"""Time between two writes to the disk: what a crash of the machine may lose."""
_MIN_LOG_BYTES: Final = 64 << 20
"""Bytes of the log below which no snapshot is written in its place."""
_MAX_LOG_PER_SNAPSHOT: Final = 2
"""Size of the log, as a multiple of the last snapshot, above which a new snapshot is written."""
_SKIPPED_VERSIONS: Final = 10_000
"""Versions that are left out after an end that was not in order: clients may have seen versions
that the disk does not have."""
_WRITE_BYTES: Final = 1 << 20
"""Bytes of a snapshot that are written to its file at once."""


class DataDirectory(ChangeLog):
    """The files that hold a store, open for one process."""

    def __init__(self, path: Path) -> None:
        """Take the directory, which is made if there is none.

        Raises:
            ConfigurationError: it cannot be used, or another process has it.
        """
        self.path = path
        self.notes: list[str] = []
        """Findings on reading that a user wants to know."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "lock").open("a+b")
        except OSError as error:
            raise ConfigurationError(f"--data-dir {path}: {error.strerror}") from error
        self._take()
        self._number = 0
        self._log: BinaryIO | None = None
        self._log_bytes = 0
        self._snapshot_bytes = 0
        self._synced_bytes = 0
        self._store: Store | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="data directory")

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            holder = self._lock.read().decode("ascii", "replace") or "another process"
            self._lock.close()
            raise ConfigurationError(
                f"--data-dir {self.path}: in use by {holder}; two clusters cannot share one"
            ) from None
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()}".encode())
        self._lock.flush()

    def restore(self, store: Store, release: str = RECORDED_RELEASE) -> None:
        """Fill an empty store with what is kept, and keep its changes from now on.

        Raises:
            ConfigurationError: a file is damaged, or cannot be read or written, or is of another
                release than this cluster.
        """
        try:
            self._check_release(release)
            found = self._read()
            self._check_forms(found, release)
            for (storage_name, _), (revision, obj) in found.objects.items():
                store.restore(storage_name, obj, revision)
            lost = 0 if found.in_order else _SKIPPED_VERSIONS
            store.begin_at(max(found.revision + lost, store.revision))
            self._write_snapshot(self._number + 1, _present(store), store.revision)
            self._begin_log(self._number + 1, store.revision)
        except OSError as error:
            raise ConfigurationError(f"--data-dir {self.path}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise
        store.journal = self
        self._store = store

    def _check_release(self, release: str) -> None:
        """Refuse a directory of another release, and note that of a new one."""
        file = self.path / _RELEASE_FILE
        before = file.read_text("ascii").strip() if file.exists() else ""
        if not before:
            # Directories from before there were releases are of the first one.
            before = RECORDED_RELEASE if self._numbered("snapshot") else release
        if before != release:
            # An unknown release is older than all that have groups.
            known = before in RELEASES and _stored_versions(before) == _stored_versions(release)
            clear = (
                ""
                if known
                else f"delete its PodGroups and Workloads with --kubernetes-version {before}, "
            )
            raise ConfigurationError(
                f"--data-dir {self.path}: holds a cluster of Kubernetes {before}, and this one is "
                f"{release}; to move it, {clear}stop it, and write {release} into {file}"
            )
        file.write_text(f"{release}\n", "ascii")

    def _check_forms(self, found: _Found, release: str) -> None:
        """Refuse objects in a form that the release does not have, after a directory was moved."""
        versions = _stored_versions(release)
        for (storage_name, key), (_revision, obj) in found.objects.items():
            version = obj.get("apiVersion", "")
            if version not in versions and version.partition("/")[0] == _GROUPS_GROUP:
                name = "/".join(filter(None, key))
                raise ConfigurationError(
                    f"--data-dir {self.path}: {storage_name} {name} is of {version}, which "
                    f"Kubernetes {release} does not have; delete it with the release before"
                )

    @override
    def record(self, storage_name: str, event: StoreEvent) -> None:
        line = drop_line if event.type == DELETED else put_line
        self._append(line(storage_name, event.entry))

    def _append(self, line: bytes) -> None:
        if self._log is None:
            raise internal(f"the data directory {self.path} is closed")
        try:
            whole, why = self._log.write(line) == len(line), "no space left on device"
        except OSError as error:
            whole, why = False, str(error.strerror)
        if not whole:
            self._log.truncate(self._log_bytes)
            self._log.seek(self._log_bytes)
            raise internal(f"the change cannot be written to {self.path}: {why}")
        self._log_bytes += len(line)

    async def keep(self) -> None:
        """Force the log to the disk every second, until cancelled; failures are tried again."""
        while True:
            await asyncio.sleep(_SYNC_SECONDS)
            try:
                await self.force()
            except OSError:
                self._synced_bytes = 0
                _log.exception("the data directory %s cannot be written", self.path)

    async def force(self) -> None:
        """Force the log to the disk, or put a snapshot in its place when it is long.

        Raises:
            OSError: the disk refuses.
        """
        if self._log_bytes > max(_MIN_LOG_BYTES, _MAX_LOG_PER_SNAPSHOT * self._snapshot_bytes):
            await self._replace()
        elif self._log is not None and self._log_bytes > self._synced_bytes:
            self._synced_bytes = self._log_bytes
            await self._in_thread(partial(os.fsync, self._log.fileno()))

    async def _replace(self) -> None:
        """Begin another log, and write the snapshot that it begins at in a thread."""
        store = self._store
        assert store is not None  # noqa: S101  (a log exists only once a store was restored)
        self._finish_log()
        number, present, revision = self._number + 1, _present(store), store.revision
        self._begin_log(number, revision)
        await self._in_thread(partial(self._write_snapshot, number, present, revision))

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Force everything to the disk and let the directory go; nothing can be stored any more.

        Raises:
            OSError: the disk refuses.
        """
        if self._lock.closed:
            return
        self._thread.shutdown()
        try:
            if self._log is not None and self._store is not None:
                self._append(mark_line(_END, self._store.revision))
                self._finish_log()
        finally:
            self._log = None
            self._lock.close()

    # Files.

    def _begin_log(self, number: int, revision: int) -> None:
        self._log = (self.path / f"log-{number:08}").open("wb", buffering=0)
        self._number = number
        self._log_bytes = self._synced_bytes = 0
        self._append(mark_line(FORMAT, revision))

    def _finish_log(self) -> None:
        if self._log is not None:
            os.fsync(self._log.fileno())
            self._log.close()

    def _write_snapshot(
        self, number: int, present: Iterable[tuple[str, list[Entry]]], revision: int
    ) -> None:
        """Write all objects to a file; with it in place, the files before it are removed."""
        unfinished = self.path / "snapshot-unfinished"
        with unfinished.open("wb", buffering=_WRITE_BYTES) as file:
            file.write(mark_line(FORMAT, revision))
            for storage_name, entries in present:
                for entry in entries:
                    file.write(put_line(storage_name, entry))
            file.write(mark_line(_END, revision))
            file.flush()
            os.fsync(file.fileno())
            self._snapshot_bytes = file.tell()
        unfinished.rename(self.path / f"snapshot-{number:08}")
        _sync_directory(self.path)
        for kind in ("snapshot", "log"):
            for found, file_path in self._numbered(kind).items():
                if found < number:
                    file_path.unlink()

    def _numbered(self, kind: str) -> dict[int, Path]:
        files = self.path.glob(f"{kind}-[0-9]*")
        return dict(sorted((int(file.name.rpartition("-")[2]), file) for file in files))

    def _read(self) -> _Found:
        found, snapshots, logs = _Found(), self._numbered("snapshot"), self._numbered("log")
        first = max(snapshots, default=0)
        self._number = max((first, *logs))
        if snapshots:
            torn = self._read_file(snapshots[first], found)
            if torn.offset is not None or not (found.revision and found.in_order):
                raise DamagedFileError(f"{snapshots[first]} is damaged: its end is missing")
        later = [number for number in logs if number >= first]
        for number in later:
            torn = self._read_file(logs[number], found)
            if torn.offset is not None:
                self._tell_torn(logs[number], torn.offset, last=number == later[-1])
        return found

    def _tell_torn(self, file: Path, offset: int, *, last: bool) -> None:
        if not last:
            raise DamagedFileError(f"{file} is damaged at byte {offset}: its end is missing")
        size = file.stat().st_size
        self.notes.append(
            f"{file}: the last {size - offset} bytes are of a change that was not written to "
            "its end, and are cut off"
        )

    def _read_file(self, file: Path, found: _Found) -> Torn:
        torn = Torn()
        for record in read_records(file, torn):
            found.take(record)
        return torn


class _Found:
    """The content of the files of a directory."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Key], tuple[int, JsonObject]] = {}
        self.revision = 0
        self.in_order = True
        """Whether the last record is the mark of an end, or there is none at all."""

    def take(self, record: JsonObject) -> None:
        self.revision = record["r"]
        self.in_order = record.get("mark") == _END
        if "mark" in record:
            return
        namespace, name = record["k"]
        place = (record["c"], (namespace, name))
        if "o" in record:
            self.objects[place] = (record["r"], record["o"])
        else:
            self.objects.pop(place, None)


def _stored_versions(release: str) -> set[str]:
    """The API versions in which a release stores objects."""
    return {kind.api_version for kind in kinds_of_release(release) if not kind.stored}


def _present(store: Store) -> list[tuple[str, list[Entry]]]:
    """All objects of a store as they are now: entries never change."""
    return [(name, store.collection(name).entries()) for name in store.names()]


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


FORMAT: Final = "stellwerk-cluster/1"


class DamagedFileError(ConfigurationError):
    """A file of a data directory that says something else than what was written into it."""


@dataclass(slots=True)
class Torn:
    """The end of a file that was being written when its process ended."""

    offset: int | None = None
    """The place where the damage begins; None: the file is whole."""


def put_line(storage_name: str, entry: Entry) -> bytes:
    """The record of an object as it is from now on."""
    head = _head(storage_name, entry)
    return _line(b'%b,"o":%b}' % (head, entry.data))


def drop_line(storage_name: str, entry: Entry) -> bytes:
    """The record of an object that is no more."""
    return _line(_head(storage_name, entry) + b"}")


def mark_line(mark: str, revision: int) -> bytes:
    """A record about the file itself: its format at the beginning, its end."""
    return _line(orjson.dumps({"r": revision, "mark": mark}))


def _head(storage_name: str, entry: Entry) -> bytes:
    return b'{"r":%d,"c":%b,"k":%b' % (
        entry.revision,
        orjson.dumps(storage_name),
        orjson.dumps(entry.key),
    )


def _line(content: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(content), content)


def read_records(file: Path, torn: Torn) -> Iterator[JsonObject]:
    """The records of a file; `torn` says afterwards whether its end is missing.

    Raises:
        DamagedFileError: the file is of another format, or damaged before its end.
        OSError: the file cannot be read.
    """
    offset, first = 0, True
    with file.open("rb") as lines:
        for line in lines:
            record = _record(line)
            if record is None:
                if any(_record(each) is not None for each in lines):
                    raise DamagedFileError(
                        f"{file} is damaged at byte {offset}: what is written there has another "
                        "checksum, and more follows. Put back a copy of the directory, or move "
                        "it away"
                    )
                torn.offset = offset
                return
            if first and record.get("mark") != FORMAT:
                raise DamagedFileError(f"{file} is not in the format {FORMAT}")
            first = False
            offset += len(line)
            yield record


def _record(line: bytes) -> JsonObject | None:
    """The record of a line, or None if the line is not as it was written."""
    checksum, _, content = line.partition(b" ")
    content = content.removesuffix(b"\n")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(content):
        return None
    record: JsonObject = orjson.loads(content)
    return record


_log = logging.getLogger(__name__)
