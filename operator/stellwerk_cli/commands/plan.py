"""`stellwerk plan`: nodes for pods that wait, and moves of pods that run.

The command line calls it. Invariant: the simulation's package does the planning; what is done to a
cluster is done here and in `moving`.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from stellwerk_cli.commands.live_objects import read_live_objects, read_objects_to_plan
from stellwerk_cli.commands.port_arguments import add_output_arguments
from stellwerk_kube.clock import SystemClock, rfc3339_milliseconds

if TYPE_CHECKING:
    from stellwerk_cli.commands.live_objects import ObjectsOfServer
    from stellwerk_simulation.defragmentation import DefragPlan

HELP: Final = "plan nodes for pending pods, or moves that free nodes; or print a ready profile"
EXAMPLES: Final = (
    "plan fit --for pending --shapes shapes.yaml",
    "plan defrag cluster.yaml --free nodes=1 --cordon",
    "plan profile best-fit --for pods.yaml",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that the simulation's package knows."""
    from stellwerk_cli.commands.plan_fit import add_arguments as of_plans  # noqa: PLC0415

    of_plans(parser, add_output_arguments)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Plan, print the plan, and carry it out where that is asked for."""
    from stellwerk.answers.reading import read_text  # noqa: PLC0415 pydantic
    from stellwerk_cli.commands.output import show_answer  # noqa: PLC0415 rich, as what follows
    from stellwerk_cli.commands.plan_fit import run as plan  # noqa: PLC0415

    read = read_objects_to_plan if options.plan == "fit" else read_live_objects

    def live(kubeconfig: str | None, context: str | None) -> "ObjectsOfServer":
        objects = read(kubeconfig, context)
        kinds = [each.get("kind") for each in objects]
        at = rfc3339_milliseconds(SystemClock().now())
        what = read_text(kinds.count("Node"), kinds.count("Pod"), at)
        print(f"stellwerk: {what}", file=sys.stderr)
        return objects

    return plan(options, live, _carry_out, show_answer)


def _carry_out(options: argparse.Namespace, plan: "DefragPlan") -> int:
    from stellwerk_cli.commands.confirmation import is_confirmed  # noqa: PLC0415 as run
    from stellwerk_cli.commands.moving import carry_out  # noqa: PLC0415 as run

    pods = "1 pod" if len(plan.moves) == 1 else f"{len(plan.moves)} pods, one after the other"
    cordon = f"Cordon {', '.join(plan.cordons)} and evict" if plan.cordons else "Evict"
    if not (options.dry_run or is_confirmed(options, f"{cordon} {pods}?")):
        return 1
    return carry_out(
        options.kubeconfig,
        options.context,
        plan,
        options.wait_seconds,
        dry_run=options.dry_run,
    )
