"""Zstandard, which compresses journals: Python's own module, or its backport before Python 3.14.

The writer and the reader import it when there is a journal. Invariant: both modules have the same
classes, so that nothing else asks for the version of Python.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ZstdDecompressor", "ZstdError", "framing"]


def framing(level: int = 3) -> Callable[[bytes], bytes]:
    """Return a function that compresses each text into a frame of its own, with a checksum."""
    options: dict[int, int] = {
        CompressionParameter.compression_level: level,
        CompressionParameter.checksum_flag: 1,
    }
    made = ZstdCompressor(options=options)
    return lambda text: made.compress(text, ZstdCompressor.FLUSH_FRAME)
