"""What commands that record say about the journal.

`stellwerk run` and `stellwerk record` share it. Invariant: nothing of the journal is imported
before a command that records runs.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.commands.arguments import size

if TYPE_CHECKING:
    from stellwerk.journal.writer import JournalOptions

_MOST: Final = "256Mi"


def add_journal_arguments(parser: argparse._ActionsContainer, prefix: str = "--") -> None:
    """How large a journal may be, and whether names are hashed."""
    parser.add_argument(
        f"{prefix}max-size",
        dest="journal_bytes",
        metavar="SIZE",
        type=size,
        default=size(_MOST),
        help="of the journal; beyond it the older half is dropped (default: 256Mi)",
    )
    parser.add_argument(
        f"{prefix}hash-names",
        dest="hash_names",
        action="store_true",
        help="write hashes in place of names, namespaces and label values",
    )


def journal_options(file: Path, options: argparse.Namespace) -> "JournalOptions":
    """The file, and what `add_journal_arguments` added."""
    from stellwerk.journal.writer import JournalOptions  # noqa: PLC0415

    return JournalOptions(file, options.journal_bytes, hashed=options.hash_names)
