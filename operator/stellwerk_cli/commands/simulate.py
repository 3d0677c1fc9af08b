"""`stellwerk simulate`: profiles against a trace, in virtual time.

The command line calls it. Invariant: the simulation's own package does the work.
"""

import argparse
from typing import Final

from stellwerk_cli.commands.live_objects import read_objects_to_simulate
from stellwerk_cli.commands.port_arguments import add_output_arguments

HELP: Final = "run a trace with one or more profiles, in virtual time"
EXAMPLES: Final = ("simulate --replay day.journal --profile packing.yaml",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that the simulation's package knows."""
    from stellwerk_cli.commands.simulation import add_arguments as of_simulation  # noqa: PLC0415

    of_simulation(parser, add_output_arguments)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Simulate, and print the table."""
    from stellwerk_cli.commands.output import show_answer  # noqa: PLC0415 rich
    from stellwerk_cli.commands.simulation import run as simulate  # noqa: PLC0415

    return simulate(options, read_objects_to_simulate, _replay, show_answer)


def _replay(options: argparse.Namespace) -> int:
    from stellwerk_cli.commands.replay import replay  # noqa: PLC0415 the whole operator

    return replay(options)
