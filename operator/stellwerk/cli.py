"""The command line: parses arguments and calls the rest; no logic of its own.

Invariant: a mistake of the user is one clear line on standard error and exit status 2, never a
traceback.
"""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from stellwerk import __version__
from stellwerk.commands import (
    cluster,
    convert,
    decide,
    demo,
    explain,
    page,
    plan,
    profile,
    promote,
    record,
    run,
    shadow,
    simulate,
    up,
    what_if,
)
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.logs import LEVELS, configure

USAGE_ERROR: Final = 2

_COMMANDS: Final = {
    "run": run,
    "cluster": cluster,
    "demo": demo,
    "up": up,
    "explain": explain,
    "what-if": what_if,
    "page": page,
    "shadow": shadow,
    "promote": promote,
    "profile": profile,
    "decide": decide,
    "convert": convert,
    "record": record,
    "simulate": simulate,
    "plan": plan,
}
"""Each module has HELP, `add_arguments` and `run`, and imports what is heavy only when it runs."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""The errors of a disk that takes no more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = build_parser().parse_args(arguments)
    configure(options.log_level, options.log_format)
    try:
        status: int = options.command(options)
        sys.stdout.flush()
    except ConfigurationError as error:
        print(f"stellwerk: {error}", file=sys.stderr)
        return USAGE_ERROR
    except SchedulerError as error:
        print(f"stellwerk: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _end_output()
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _end_output()
        print(f"stellwerk: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1
    return status


def _end_output() -> None:
    """Let what is left in the buffer go nowhere: nothing can be written any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser that knows options by their whole names alone, and so do those of its commands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    parser = _Parser(
        prog="stellwerk", description="A Kubernetes scheduler that explains its decisions."
    )
    parser.add_argument("--version", action="version", version=f"stellwerk {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module in _COMMANDS.items():
        text = module.HELP
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument(
            "--log-level",
            choices=list(LEVELS),
            default="info",
            help="how much to log (default: info)",
        )
        command.add_argument(
            "--log-format",
            choices=["text", "json"],
            default="text",
            help="lines for people, or one JSON object a line (default: text)",
        )
        module.add_arguments(command)
        command.set_defaults(command=module.run)
    return parser
