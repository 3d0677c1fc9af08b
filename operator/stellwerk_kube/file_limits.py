"""Limits on reading a file: bytes, growth by unpacking, documents and rows; and its encoding.

The readers of YAML and of traces apply them while they read. Files come from strangers, and a small
one can unpack to gigabytes. Invariant: a refusal costs at most about 256 MiB and 2 seconds, and
names the option of the command line that allows more.
"""

import codecs
import errno
import lzma
from pathlib import Path
from typing import BinaryIO, Final

from stellwerk_kube.errors import ConfigurationError

OPTION: Final = "--file-limits"
MAX_TRACE_BYTES: Final = 64 << 20
"""Bytes of a trace, unpacked. It is held twice, as bytes and as text, while it is checked."""
MAX_PIPED_BYTES: Final = 128 << 20
"""Bytes of standard input, whose size shows only by reading it."""
MAX_OBJECTS_FILE_BYTES: Final = 1 << 30
"""Bytes of a file of objects: a dump of a large cluster has hundreds of MiB. A larger one is
refused by its size, before it is read."""
MAX_GROWTH: Final = 100
"""Unpacked bytes for each packed one, beyond `FREE_BYTES`. Traces in CSV shrink to a tenth."""
FREE_BYTES: Final = 8 << 20
"""Unpacked bytes that are read whatever they were packed to."""
MAX_DOCUMENTS: Final = 20_000
"""Documents in a YAML file: each costs about 35 µs, however little is in it."""
MAX_TRACE_ROWS: Final = 100_000
"""Rows of a trace: each costs about 15 µs and 500 bytes. The openb traces have 8,152."""
MAX_LINE_CHARACTERS: Final = 1 << 20
"""Characters of a line of a trace: a line of commas costs eight bytes for each."""
MAX_TIMES: Final = 1000
"""The largest factor that the option takes: more than any machine has memory for."""
UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The first bytes of a text in UTF-16, which `>` of Windows PowerShell 5 writes."""
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"(\xb5/\xfd": "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
"""The first bytes of a compressed file, and the program that unpacks it."""
_CHUNK_BYTES: Final = 1 << 20
_factor = 1


def allow(factor: int) -> None:
    """Multiply all limits by a number from now on, as the user of this process said."""
    global _factor  # noqa: PLW0603 readers far below the command line ask for it
    _factor = factor


def allowed(limit: int) -> int:
    """One of the limits of this module, as many times as the user allowed."""
    return limit * _factor


def too_much(what: str) -> str:
    """The reason of a refusal, with the option that allows more."""
    return f"more than {what}; {OPTION} {min(4 * _factor, MAX_TIMES)} allows more"


def as_utf8(content: bytes) -> bytes:
    """The text of a file in UTF-8, if it begins with the mark of UTF-16; else as it is.

    kubectl reads such files, too.

    Raises:
        OSError: the file is compressed.
    """
    for first, program in _PACKED.items():
        if content.startswith(first):
            raise OSError(errno.EINVAL, f"it is compressed with {program}, unpack it first")
    if content.startswith(UTF16_MARKS):
        try:
            return content.decode("utf-16").encode()
        except UnicodeError:
            return content  # decoding it fails, with the words for what is no UTF-8
    return content


def not_utf8(error: UnicodeDecodeError) -> str:
    """Say which line of a file is not in UTF-8."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"line {line}: not UTF-8"


def read_trace(path: Path) -> bytes:
    """A whole trace, unpacked if its name ends in .xz.

    Raises:
        OSError: it cannot be read.
        ConfigurationError: it is larger than is read, or is not packed as its name says.
    """
    with path.open("rb") as file:
        if path.suffix != ".xz":
            return read_stream(str(path), file, MAX_TRACE_BYTES)
        packed_bytes = path.stat().st_size
        try:
            return _unpacked(path, lzma.open(file), packed_bytes)
        except (lzma.LZMAError, EOFError) as error:
            raise ConfigurationError(f"cannot read {path}: not an .xz file: {error}") from error


def read_stream(name: str, file: BinaryIO, max_bytes: int = MAX_PIPED_BYTES) -> bytes:
    """Read a file of text that is not packed, or that comes through a pipe, as UTF-8.

    Raises:
        OSError: it cannot be read, or is packed.
        ConfigurationError: there is more than is read.
    """
    most = allowed(max_bytes)
    reason = f"cannot read {name}: {too_much(f'{most >> 20} MiB')}"
    if file.seekable():
        size = file.seek(0, 2)
        file.seek(0)
        if size > most:
            raise ConfigurationError(reason)
    content = file.read(most + 1)
    if len(content) > most:
        raise ConfigurationError(reason)
    return as_utf8(content)


def _unpacked(path: Path, file: BinaryIO | lzma.LZMAFile, packed_bytes: int) -> bytes:
    most, chunks, read = allowed(MAX_TRACE_BYTES), list[bytes](), 0
    grown = max(allowed(FREE_BYTES), packed_bytes * allowed(MAX_GROWTH))
    while chunk := file.read(_CHUNK_BYTES):
        read += len(chunk)
        if read > most:
            raise ConfigurationError(
                f"cannot read {path}: unpacked, it is {too_much(f'{most >> 20} MiB')}"
            )
        if read > grown:
            what = f"{allowed(MAX_GROWTH)} times its size when it is unpacked"
            raise ConfigurationError(f"cannot read {path}: {too_much(what)}")
        chunks.append(chunk)
    return b"".join(chunks)
