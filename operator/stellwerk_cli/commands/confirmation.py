"""The question before a command writes to a cluster: its arguments, and the change as a diff.

The commands of CHANGING ask it. Invariant: nothing is changed unless `--yes` or the user at a
terminal has said so; a script says `--yes`.
"""

import argparse
import sys
from difflib import unified_diff
from typing import Final

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import printable

CHANGING: Final = (
    "bench --kubeconfig FILE",
    "leave",
    "plan defrag --free nodes=1 --apply",
    "profile rollback NAME",
    "promote NAME",
)
"""The commands that change a cluster, each with what it needs to be one that does."""


def add_write_arguments(parser: argparse.ArgumentParser) -> None:
    """`--dry-run` and `--yes`."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would change, tried by the API server, and change nothing",
    )
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )


def is_confirmed(options: argparse.Namespace, question: str) -> bool:
    """Whether to go on: asked of a terminal, unless `--yes` has said so.

    Raises:
        ConfigurationError: there is neither `--yes` nor a terminal.
    """
    if options.yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} There is no terminal to ask on: confirm with --yes")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    sys.stderr.write("stellwerk: nothing was changed\n")
    return False


def spec_difference(
    before: JsonObject, after: JsonObject, before_name: str, after_name: str
) -> str:
    """A unified diff of two specs as YAML; empty: they are the same."""
    import yaml  # noqa: PLC0415 for a command that writes alone

    was, will_be = (
        yaml.safe_dump(each, allow_unicode=True).splitlines(keepends=True)
        for each in (before, after)
    )
    return "".join(unified_diff(was, will_be, before_name, after_name))
