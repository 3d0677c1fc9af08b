"""`stellwerk what-if`: what would happen with other nodes, pods or profiles, or after an act.

The command line calls it. Invariant: the operator decides on a copy of what it knows, and nothing
in the cluster changes.
"""

import argparse
from pathlib import Path
from typing import Any, Final

from stellwerk.models.act_syntax import MAX_REPLICAS
from stellwerk.models.number_options import WholeNumber
from stellwerk_cli.commands.door import DoorAddress, add_door_arguments, door_address
from stellwerk_cli.commands.port_arguments import (
    add_exit_code_argument,
    add_namespace_argument,
    add_output_arguments,
)
from stellwerk_kube.errors import ConfigurationError

ACTS: Final = ("relabel", "taint", "delete", "scale")
"""Options, and fields of the question, that are written as for kubectl."""
MAX_COUNT: Final = 1000
"""The largest number of each added node: the operator takes no more nodes in one question."""
MAX_COUNTED_PODS: Final = 15_000
"""The largest COUNT of a pod: the operator takes no more pods of templates in one question."""
_MAX_LAST: Final = 1_000_000_000
"""The largest number of recorded decisions: more than a recording holds."""
HELP: Final = "predict what changes with other nodes, another pod or another profile"
EXAMPLES: Final = (
    "what-if --drain node-1",
    "what-if --pod pod.yaml --set spec.priority=1000",
    "what-if --pod job.yaml=10000",
    "what-if --add-nodes node.yaml --count 3",
    "what-if --taint node-1 maintenance=yes:NoExecute",
    "what-if --scale deployment/web=5 -n shop",
    "what-if --delete node/node-1",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for what is supposed."""
    parser.add_argument(
        "--pod",
        "-f",
        "--filename",
        dest="pod",
        metavar="FILE|NAME[=COUNT]",
        action="append",
        default=[],
        help="decide for these pods: manifests of pods or of their controllers (- reads standard "
        "input), or a live pod; =COUNT asks for so many of each, up to "
        f"{MAX_COUNTED_PODS:,} in all; may be repeated",
    )
    add_namespace_argument(parser)
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="set a field of the pod, such as spec.containers[0].image=nginx; may be repeated",
    )
    parser.add_argument(
        "--add-nodes",
        metavar="FILE",
        action="append",
        default=[],
        help="add the nodes of these manifests (- reads standard input); may be repeated",
    )
    parser.add_argument(
        "--count",
        type=WholeNumber(1, MAX_COUNT),
        default=1,
        help="number of copies of each added node (default: 1)",
    )
    parser.add_argument(
        "--drain",
        metavar="NODE",
        action="append",
        default=[],
        help="drain this node; may be repeated to drain several nodes at once",
    )
    _add_acts(parser)
    parser.add_argument(
        "--profile", metavar="FILE", type=Path, help="decide with this SchedulerProfile"
    )
    parser.add_argument(
        "--recording",
        metavar="FILE",
        type=Path,
        help="with --profile: list the newest recorded decisions that it would have made "
        "differently",
    )
    parser.add_argument(
        "--last",
        metavar="NUMBER",
        type=WholeNumber(1, _MAX_LAST),
        help="how many recorded decisions to compare (default: 1000)",
    )
    add_output_arguments(parser)
    add_exit_code_argument(parser, "a pod gets no node, is lost, or cannot be evicted")
    add_door_arguments(parser)
    parser.set_defaults(log_level="warning")


def _add_acts(parser: argparse.ArgumentParser) -> None:
    """Acts that are written as for kubectl."""
    for option, metavar, more in (
        ("--relabel", "KEY=VALUE", "change labels of a node; KEY- removes one"),
        ("--taint", "KEY=VALUE:EFFECT", "change taints of a node; KEY- removes them"),
    ):
        parser.add_argument(
            option,
            metavar=("NODE", metavar),
            nargs="+",
            action="append",
            default=[],
            help=f"{more}; may be repeated",
        )
    parser.add_argument(
        "--delete",
        metavar="node/NAME|pod/NAME",
        action="append",
        default=[],
        help="delete a node or a pod; may be repeated",
    )
    parser.add_argument(
        "--scale",
        metavar="KIND/NAME=REPLICAS",
        action="append",
        default=[],
        help="scale a Deployment, ReplicaSet, StatefulSet, ReplicationController or Job (its "
        f"parallelism) to 0 to {MAX_REPLICAS:,} pods; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    import asyncio  # noqa: PLC0415

    if options.recording is not None:
        return _of_recording(options)
    if options.last is not None:
        raise ConfigurationError("--last needs --recording")
    from stellwerk_cli.commands.what_if_request import what_if_request  # noqa: PLC0415

    address, request = door_address(options), what_if_request(options)
    is_no = asyncio.run(_ask(address, request, options.output))
    return 1 if is_no and options.exit_code else 0


async def _ask(address: DoorAddress, body: dict[str, Any], form: str) -> bool:
    """Print the answer; whether a pod gets no node, or does not leave the one that is drained."""
    from stellwerk_cli.commands.door import open_door  # noqa: PLC0415
    from stellwerk_cli.commands.output import show  # noqa: PLC0415
    from stellwerk_cli.commands.what_if_table import WHAT_IF  # noqa: PLC0415

    async with open_door(address) as door:
        answer = await show(lambda: door.ask_json("/what-if", body), form, WHAT_IF, door=door)
    counted = answer.get("templates") or ()
    return bool(
        answer["unplaced"]
        or answer.get("staying")
        or answer.get("lost")
        or any(each["placed"] < each["pods"] for each in counted)
    )


def _of_recording(options: argparse.Namespace) -> int:
    for name in ("pod", "set", "add_nodes", "drain", *ACTS, "url", "kubeconfig", "context"):
        if getattr(options, name, None):
            option = name.replace("_", "-")
            raise ConfigurationError(
                f"--{option} asks the operator, but --recording reads a file: pass only one of them"
            )
    if options.profile is None:
        raise ConfigurationError("--recording needs a --profile to compare with")
    from stellwerk_cli.commands.what_if_recorded import what_if_recorded  # noqa: PLC0415 the whole operator

    return what_if_recorded(options)
