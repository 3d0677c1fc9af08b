"""The question before a command writes to a cluster: its arguments, and the change as a diff.

`promote`, `profile rollback` and `plan defrag --apply` ask it. Invariant: a terminal is asked once;
without one a command goes on, so that scripts need no option.
"""

import argparse
import sys
from difflib import unified_diff

from stellwerk.models.json_values import JsonObject
from stellwerk.models.untrusted_text import printable


def add_write_arguments(parser: argparse.ArgumentParser) -> None:
    """`--dry-run` and `--yes`."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would change, once the API server has tried it, and change nothing",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask on a terminal")


def is_confirmed(options: argparse.Namespace, question: str) -> bool:
    """Whether to go on: asked of a terminal, unless `--yes` has said so."""
    if options.yes or not sys.stdin.isatty():
        return True
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
