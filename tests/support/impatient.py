"""`python -m tests.support.impatient run …`: the operator with little time and memory for lists.

What takes minutes and a gigabyte in the product then takes seconds and a few hundred MiB. The
limits stand in the environment.
"""

import os
import sys
from typing import Final

from stellwerk import memory
from stellwerk.client import paging
from stellwerk.handlers import reflector
from stellwerk_cli.cli import main

LIST_SECONDS: Final = "IMPATIENT_LIST_SECONDS"
"""The variable with the seconds after which a list is given up."""
MEMORY_MIB: Final = "IMPATIENT_MEMORY_MIB"
"""The variable with the limit of the process's memory; one that has listed little takes 95."""


def install() -> None:
    """Let the whole process live within these limits."""
    seconds = float(os.environ[LIST_SECONDS])
    limit_bytes = int(os.environ[MEMORY_MIB]) << 20
    setattr(reflector, "MAX_STREAM_SECONDS", seconds)  # noqa: B010 mypy sees a constant
    setattr(paging, "MAX_PAGES_SECONDS", seconds)  # noqa: B010
    setattr(memory, "resident_limit_bytes", lambda: limit_bytes)  # noqa: B010


if __name__ == "__main__":
    install()
    sys.exit(main())
