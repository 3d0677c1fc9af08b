"""`stellwerk decide`: cases, lists of objects or a live cluster in, the whole decision out.

The command line calls it. Invariant: nothing is written to a cluster that is read.
"""

import argparse
from typing import Final

HELP: Final = "decide recorded cases without a cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to decide, and how to show it."""
    parser.add_argument("file", help="cases, one JSON object per line; - reads standard input")
    parser.add_argument(
        "--human", action="store_true", help="print a table instead of JSON objects"
    )


def run(options: argparse.Namespace) -> int:
    """Decide, and print a result for each case."""
    from stellwerk.explain.command import decide_lines  # noqa: PLC0415

    return decide_lines(options.file, human=options.human)
