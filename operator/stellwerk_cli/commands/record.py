"""`stellwerk record`: what happens in a cluster, into a file that `simulate --replay` reads.

The command line calls it. Invariant: the cluster is only read.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Final

from stellwerk.garbage import collect_seldom
from stellwerk_cli.commands.arguments import (
    add_force_argument,
    add_journal_arguments,
    journal_options,
    seconds_or_none,
)
from stellwerk_cli.commands.port_arguments import add_access_arguments

HELP: Final = "record the events of a cluster, whichever scheduler runs in it"
EXAMPLES: Final = (
    "record day.journal --for 24h",
    "record day.journal --hash-names",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster and the file."""
    text = "the journal to write; an existing journal is replaced, another file only with --force"
    parser.add_argument("file", metavar="FILE", type=Path, help=text)
    add_access_arguments(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        metavar="DURATION",
        type=seconds_or_none,
        default=0.0,
        help="how long to record; 0: until interrupted (default: 0)",
    )
    add_force_argument(parser)
    add_journal_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Record, and say what there is."""
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk_cli.record import RecordOptions, record  # noqa: PLC0415

    journal = replace(journal_options(options.file, options), force=options.force)
    counts = uvloop.run(
        record(RecordOptions(journal, options.kubeconfig, options.context, options.seconds))
    )
    said = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
    print(f"{options.file}: {said or 'nothing happened'}")
    return 0
