"""Reads a journal: its parts one after the other, up to where it ends or is damaged.

`stellwerk simulate --replay` uses it. Invariant: every entry before the first damage is given, in
the order in which it happened, and `Journal.damage` says where and why the rest is missing.
"""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from stellwerk.journal.decoding import JournalError, decode
from stellwerk.journal.entries import Entry, Head, InitialState
from stellwerk_kube.file_limits import allowed, too_much

_CHUNK_BYTES: Final = 1 << 16
"""Bytes of a file that are read at once."""
_PIECE_BYTES: Final = 1 << 20
"""Bytes of text per step of the decoder: a chunk may hold gigabytes, compressed at its best."""
_MAX_ENTRY_BYTES: Final = 16 << 20
"""Bytes of an entry; objects of the API are at most a few MiB."""
_MAX_ENTRY_PARTS: Final = 1_000_000
"""Commas in an entry: each part between them may take 64 bytes once it is parsed."""
_MAX_EXPANSION: Final = 1000
"""Bytes of text for each byte of the file; a journal of pods that are all alike has 200."""
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""A frame of zstd begins with it."""
_HEAD: Final = b'["H",'
"""The first entry begins with it."""
_FREE_TEXT_BYTES: Final = 64 << 20
"""Bytes of text that any file may hold, however small it is."""


def part_before(file: Path) -> Path:
    """The path of the part that was written before the newest one of a journal."""
    return file.with_name(f"{file.name}.1")


def is_journal(start: bytes) -> bool:
    """Whether a file that begins so is a journal, be it one that was cut in its first block."""
    if not start.startswith(_MAGIC):
        return False
    from stellwerk.journal.zstandard import (  # noqa: PLC0415 for journals alone
        ZstdDecompressor,
        ZstdError,
    )

    try:
        text = ZstdDecompressor().decompress(start, len(_HEAD))
    except ZstdError:
        return False
    return _HEAD.startswith(text)


def open_journal(file: Path) -> "Journal":
    """The journal whose newest part is this file.

    Raises:
        JournalError: there is no such file.
    """
    if not file.is_file():
        raise JournalError(f"cannot read {file}: no such file")
    earlier = part_before(file)
    return Journal([earlier, file] if earlier.is_file() else [file])


class Journal:
    """The entries of consecutive parts, as an iterator to be run through once.

    A part after the first begins with a checkpoint: the objects of that moment and an
    InitialState. It is given where nothing before it was read.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        self._parts = parts
        self.head: Head | None = None
        """The head of the part that is being read."""
        self.damage = ""
        """The place and reason from which on the journal cannot be read; empty: it is whole so
        far."""
        self.entries_read = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield every entry.

        Raises:
            JournalError: a part cannot be opened, is of another format, or larger than any journal.
        """
        for number, part in enumerate(self._parts):
            in_checkpoint = False
            for entry in self._entries(part):
                if isinstance(entry, Head):
                    continued = number > 0 and self.head is not None
                    in_checkpoint = continued and entry.part > 1
                    self.head = entry
                elif in_checkpoint:
                    # What it repeats was read in the part before.
                    in_checkpoint = not isinstance(entry, InitialState)
                    continue
                self.entries_read += 1
                yield entry
            if self.damage:
                return

    def _entries(self, part: Path) -> Iterator[Entry]:
        lines = self._lines(part)
        for number, line in enumerate(lines, start=1):
            if line.count(b",") > allowed(_MAX_ENTRY_PARTS):
                most = f"{allowed(_MAX_ENTRY_PARTS):,} parts in line {number}"
                raise JournalError(f"{part}: {too_much(most)}")
            try:
                yield decode(line)
            except JournalError as error:
                raise JournalError(f"{part}: {error}") from error
            except ValueError as error:
                self.damage = f"{part}: line {number}: {error}"
                lines.close()
                return

    def _lines(self, part: Path) -> Generator[bytes]:
        try:
            with part.open("rb") as file:
                yield from self._split(self._bounded(self._inflated(file, part), part), part)
        except OSError as error:
            raise JournalError(f"cannot read {part}: {error.strerror}") from error

    def _split(self, blocks: Iterator[bytes], part: Path) -> Generator[bytes]:
        """The lines of blocks; `damage` is set where the last one does not end."""
        rest: list[bytes] = []
        for block in blocks:
            start = 0
            while (end := block.find(b"\n", start)) >= 0:
                rest.append(block[start:end])
                yield b"".join(rest)
                rest, start = [], end + 1
            rest.append(block[start:])
            if sum(map(len, rest)) > allowed(_MAX_ENTRY_BYTES):
                most = f"{allowed(_MAX_ENTRY_BYTES) >> 20} MiB in a line"
                raise JournalError(f"{part}: {too_much(most)}")
        if any(rest) and not self.damage:
            self.damage = f"{part}: ends in the middle of an entry"

    @staticmethod
    def _bounded(blocks: Iterator[bytes], part: Path) -> Iterator[bytes]:
        """The blocks of a part that expands no more than a journal does."""
        left = max(allowed(_FREE_TEXT_BYTES), allowed(_MAX_EXPANSION) * part.stat().st_size)
        for block in blocks:
            left -= len(block)
            if left < 0:
                most = f"{allowed(_MAX_EXPANSION)} times as much text as file"
                raise JournalError(f"{part}: {too_much(most)}")
            yield block

    def _inflated(self, file: IO[bytes], part: Path) -> Iterator[bytes]:
        """The text, block by block; `damage` is set where a block does not end or is not whole."""
        from stellwerk.journal.zstandard import (  # noqa: PLC0415 for journals alone
            ZstdDecompressor,
            ZstdError,
        )

        inflating = ZstdDecompressor()
        begun = has_text = False
        while chunk := file.read(_CHUNK_BYTES):
            # The decoder keeps what is left of a chunk, and asks for more when it has none.
            while chunk or not inflating.needs_input:
                try:
                    text = inflating.decompress(chunk, _PIECE_BYTES)
                except ZstdError as error:
                    if not self.entries_read:
                        raise JournalError(f"{part}: not a journal: {error}") from error
                    self.damage = f"{part}: {error}"
                    return
                yield text
                begun, chunk, has_text = not inflating.eof, b"", has_text or bool(text)
                if inflating.eof:
                    # The writer makes none. A block costs 100 µs, and an empty one has nine bytes.
                    if not has_text:
                        self.damage = f"{part}: a block without an entry"
                        return
                    has_text = False
                    chunk = inflating.unused_data
                    inflating = ZstdDecompressor()
        if begun:
            self.damage = f"{part}: ends in the middle of a block"
