"""`stellwerk plan`: nodes for pods that wait.

The command line calls it. Invariant: the simulation's package does the work.
"""

import argparse
from typing import Final

from stellwerk.models.json_values import JsonObject

HELP: Final = "say how many nodes of which shape would hold the pods that wait"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that the simulation's package knows."""
    from stellwerk_simulation.plan_command import add_arguments as of_plans  # noqa: PLC0415

    of_plans(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Plan, and print the plan."""
    from stellwerk_simulation.plan_command import run as plan  # noqa: PLC0415

    return plan(options, _live)


def _live(kubeconfig: str, context: str | None) -> list[JsonObject]:
    from stellwerk.commands.live_objects import read_live_objects  # noqa: PLC0415 as run

    return read_live_objects(kubeconfig, context)
