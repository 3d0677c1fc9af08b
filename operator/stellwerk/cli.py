"""The command line: parses arguments and calls the rest; no logic of its own.

Invariant: a mistake of the user is one clear line on standard error and exit status 2, never a
traceback.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from stellwerk import __version__
from stellwerk.commands import (
    cluster,
    convert,
    decide,
    demo,
    explain,
    run,
    simulate,
    up,
    what_if,
)
from stellwerk.errors import ConfigurationError, SchedulerError

USAGE_ERROR: Final = 2
_LEVELS: Final = ("trace", "debug", "info", "warning", "error")
TRACE: Final = 5
"""Below debug: plugin scores of every attempt."""

_COMMANDS: Final = {
    "run": run,
    "cluster": cluster,
    "demo": demo,
    "up": up,
    "explain": explain,
    "what-if": what_if,
    "decide": decide,
    "convert": convert,
    "simulate": simulate,
}
"""Each module has HELP, `add_arguments` and `run`, and imports what is heavy only when it runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = build_parser().parse_args(arguments)
    _configure_logging(options.log_level)
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    parser = argparse.ArgumentParser(
        prog="stellwerk", description="A Kubernetes scheduler that explains its decisions."
    )
    parser.add_argument("--version", action="version", version=f"stellwerk {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module in _COMMANDS.items():
        text = module.HELP
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument(
            "--log-level", choices=_LEVELS, default="info", help="how much to log (default: info)"
        )
        module.add_arguments(command)
        command.set_defaults(command=module.run)
    return parser


def _configure_logging(level: str) -> None:
    logging.addLevelName(TRACE, "TRACE")
    logging.basicConfig(
        level=TRACE if level == "trace" else level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
