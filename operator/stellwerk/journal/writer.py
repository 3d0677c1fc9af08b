"""Writes a journal beside the event loop: lines are made, compressed and written in a thread.

`scheduler.observers.recording` puts entries in. Invariant: `put` never waits and never raises; when
the disk is full or too slow the recording ends, and scheduling goes on. Replaying the checkpoint
that a part begins with gives the objects that replaying all parts before it would have given.
"""

import errno
import logging
import os
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, TypeAlias

from stellwerk.journal.entries import (
    Decided,
    Entry,
    GroupDecided,
    Head,
    InitialState,
    PluginState,
    WatchEvent,
    encode,
)
from stellwerk.journal.hashing import Hashing
from stellwerk.journal.reader import Journal, is_journal, part_before
from stellwerk.journal.recorded_fields import kept
from stellwerk_kube.errors import SchedulerError

_Key: TypeAlias = tuple[str, str]
"""(kind, uid of a pod or name)."""


DEFAULT_MAX_BYTES: Final = 256 << 20
"""Bytes of both parts of a recording, if the user names no other limit."""
BLOCK_BYTES: Final = 1 << 18
"""Bytes of text in a block, which is compressed, checked and written as a whole."""
MAX_WAITING_ENTRIES: Final = 200_000
"""Entries that wait for the disk. A disk that is so far behind ends the recording."""
CLOSE_SECONDS: Final = 10.0
"""Time for which the end of the process waits for the disk."""
_COMPRESSION_LEVEL: Final = 3
"""Level of zstd: its default."""
_WRITE_SECONDS: Final = 0.05
"""Pause of the writer's thread between two looks for entries."""
_FLUSH_SECONDS: Final = 1.0
"""The time that a crash of the machine may cost."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The path of a journal, and its largest size."""

    file: Path
    most_bytes: int = DEFAULT_MAX_BYTES
    """Bytes of both parts together: the newest one, and the one before it."""
    hashed: bool = False
    force: bool = False
    """Whether a file that is no journal is overwritten, too."""


class JournalWriter:
    """A journal that is being written; `close` ends it."""

    def __init__(
        self,
        options: JournalOptions,
        head: Head,
        on_ended: Callable[[str], None] = lambda _: None,
        words: Collection[str] = (),
    ) -> None:
        """Open the file and start the thread.

        Args:
            options: where to, and how much.
            head: the first entry.
            words: of plugins, which hashing leaves as they are.
            on_ended: called in either thread when the recording ends early, with the reason.

        Raises:
            OSError: the file cannot be written, or holds something else.
        """
        self._options, self._head, self._on_ended = options, head, on_ended
        # Waking the thread at each entry would cost the loop more than the entry does.
        self._entries: deque[Entry] = deque()
        self._closing = threading.Event()
        self.events: Counter[str] = Counter()
        """Events by kind, as far as they are written."""
        self.failure = ""
        """The reason for which the recording ended early; empty: it has not."""
        self.wants_layout = False
        """Whether the newest part is full. `Recording.begin_part_where_full` puts an InitialState
        then, with which `_write` begins the next part."""
        earlier = part_before(options.file)
        check_replaceable(earlier)
        self._part = _Part(options.file, head, force=options.force)
        earlier.unlink(missing_ok=True)
        self._hashing = Hashing(words=words) if head.hashed else None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Have an entry written; nothing happens once the recording has ended."""
        if self.failure:
            return
        self._entries.append(entry)
        if len(self._entries) > MAX_WAITING_ENTRIES:
            # Not in the thread, which a disk that hangs keeps.
            self._end(f"the disk is more than {MAX_WAITING_ENTRIES} entries behind")

    def close(self) -> None:
        """Write what is left, and end; a disk that hangs is not waited for."""
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            logger.warning("%s is incomplete: the disk does not answer", self._options.file)

    # --- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            for entry in self._coming():
                self._write(entry)
                if self.failure:
                    break
            else:
                self._part.close()
        except OSError as error:
            self._end(error.strerror or str(error))
        except SchedulerError as error:
            self._end(str(error))
        except Exception as error:  # the top of the thread
            logger.exception("the journal failed")
            self._end(f"{type(error).__name__}: {error}")
        if self.failure:
            self._part.abandon()

    def _coming(self) -> Iterator[Entry]:
        """Entries as they come, until the journal is closed; blocks are flushed every second."""
        flushed_seconds = time.monotonic()
        while True:
            closing = self._closing.wait(_WRITE_SECONDS)
            while (entry := self._next()) is not None:
                yield entry
            if closing:
                return
            if time.monotonic() - flushed_seconds >= _FLUSH_SECONDS:
                self._part.flush()
                flushed_seconds = time.monotonic()

    def _next(self) -> Entry | None:
        try:
            return self._entries.popleft()
        except IndexError:
            return None  # also where the other thread has dropped what waits

    def _write(self, entry: Entry) -> None:
        if isinstance(entry, InitialState):
            held = [(kind, kept(kind, obj)) for kind, obj in entry.held]
            layout = replace(entry, held=held)
            self._begin_part(layout if self._hashing is None else self._hashing.layout(layout))
            return
        if isinstance(entry, WatchEvent):
            self.events[entry.kind] += 1
        if isinstance(entry, WatchEvent | PluginState):
            entry = replace(entry, obj=kept(entry.kind, entry.obj))
        self._part.write(encode(entry if self._hashing is None else self._hashing.entry(entry)))
        if self._part.bytes_written > self._options.most_bytes // 2:
            self.wants_layout = True

    def _begin_part(self, layout: InitialState) -> None:
        """Put the newest part aside, and begin another with what the objects are by now."""
        self._part.close()
        file, earlier = self._options.file, part_before(self._options.file)
        check_replaceable(earlier)
        file.replace(earlier)
        head = replace(self._head, part=self._part.head.part + 1)
        self._part = _Part(file, head)
        for line in checkpoint(earlier, layout):
            self._part.write(line)
        self._part.checkpointed()
        self.wants_layout = False

    def _end(self, reason: str) -> None:
        """Note why the recording ends, once; what waits is dropped."""
        if not self.failure:
            self.failure = reason
            self._entries.clear()
            logger.error("recording to %s ends: %s", self._options.file, reason)
            self._on_ended(reason)


def opened_anew(file: Path, *, force: bool = False) -> int:
    """A descriptor of an empty file for a journal, in the place of a journal or of none.

    `force`: in the place of any file of this user's.

    Raises:
        OSError: the file cannot be written, or is none that may be replaced.
    """
    opened = _opened(file, os.O_RDWR | os.O_CREAT)
    try:
        _check_journal(opened, file, force=force)
        # Objects may hold what only their readers should see.
        os.fchmod(opened, 0o600)
        os.ftruncate(opened, 0)
    except BaseException:
        os.close(opened)
        raise
    return opened


def check_replaceable(file: Path) -> None:
    """Look at a file that a part of a journal is to be put in the place of.

    Raises:
        OSError: it is there, and is no journal of this user's.
    """
    try:
        opened = _opened(file, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        _check_journal(opened, file)
    finally:
        os.close(opened)


def _opened(file: Path, flags: int) -> int:
    try:
        return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{file} is a symbolic link", str(file)) from error
        raise


def _check_journal(opened: int, file: Path, *, force: bool = False) -> None:
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"{file} is not a regular file", str(file))
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"{file} belongs to another user", str(file))
    if status.st_size and not force and not is_journal(os.pread(opened, BLOCK_BYTES, 0)):
        raise OSError(errno.EEXIST, f"{file} exists and is not a journal", str(file))


class _Part:
    """One file of a journal: blocks that stand for themselves, so that a cut costs the last one."""

    def __init__(self, file: Path, head: Head, *, force: bool = False) -> None:
        from stellwerk.journal.zstandard import framing  # noqa: PLC0415 for journals alone

        self.head = head
        self._file: IO[bytes] = os.fdopen(opened_anew(file, force=force), "wb", buffering=0)
        self._framed = framing(_COMPRESSION_LEVEL)
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self.bytes_written = 0
        """Since the part's checkpoint."""
        self.write(encode(head))

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            block = self._framed(b"".join(self._lines))
            self._lines, self._waiting_bytes = [], 0
            self.bytes_written += len(block)
            left = memoryview(block)
            while left:
                left = left[self._file.write(left) :]

    def checkpointed(self) -> None:
        """Count from here: a part holds as much after the checkpoint."""
        self.flush()
        self.bytes_written = 0

    def close(self) -> None:
        self.flush()
        self._file.close()

    def abandon(self) -> None:
        """Close without writing any more."""
        self._file.close()


def checkpoint(part: Path, layout: InitialState) -> Iterator[bytes]:
    """The lines with which the part after this one begins.

    The pods and nodes of the part and of its own checkpoint; its damage is left out.
    """
    living = _Living()
    for entry in Journal([part]):
        living.take(entry)
    for name in layout.nodes:
        line = living.lines.pop(("Node", name), None)
        if line is not None:
            yield line
    yield from living.lines.values()
    yield encode(layout)


class _Living:
    """The newest line of each object; pods in the order in which they came to count on nodes."""

    def __init__(self) -> None:
        self.lines: dict[_Key, bytes] = {}
        self._placed: set[_Key] = set()

    def take(self, entry: Entry) -> None:
        if isinstance(entry, Decided) and entry.node_name:
            self._place(("Pod", entry.uid))
        elif isinstance(entry, GroupDecided):
            for uid, _, _, node_name, _ in entry.members:
                if node_name:
                    self._place(("Pod", uid))
        elif isinstance(entry, WatchEvent):
            self._event(entry)

    def _event(self, event: WatchEvent) -> None:
        key = _key(event)
        if event.event_type == "DELETED":
            self.lines.pop(key, None)
            self._placed.discard(key)
            return
        if event.kind == "Pod" and key not in self._placed and event.obj["spec"].get("nodeName"):
            self._place(key)
        self.lines[key] = encode(WatchEvent(event.seconds, event.kind, None, event.obj))

    def _place(self, key: _Key) -> None:
        line = self.lines.pop(key, None)
        if line is not None:
            self.lines[key] = line
        self._placed.add(key)


def _key(event: WatchEvent) -> _Key:
    metadata = event.obj["metadata"]
    if event.kind == "Pod":
        return event.kind, str(metadata.get("uid") or "")
    namespace = metadata.get("namespace") or ""
    return event.kind, f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


logger = logging.getLogger(__name__)
