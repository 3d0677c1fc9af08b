"""Certificates and keys from memory, as the files that the ssl module asks for.

Credentials and extenders load their pairs with it. Invariant: a key is never written to a disk
where the system can help it, and no folder has to be writable then.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def pem_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which is gone when the block ends.

    On Linux it lies in memory; elsewhere it is a temporary file that only its owner may read.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem")
        path = Path(f"/proc/self/fd/{descriptor}")
        with open(descriptor, "wb", closefd=True) as file:  # noqa: PTH123 a descriptor, no path
            if path.exists():
                file.write(content)
                file.flush()
                yield str(path)
                return
    with tempfile.NamedTemporaryFile(suffix=".pem") as named:
        named.write(content)
        named.flush()
        yield named.name
