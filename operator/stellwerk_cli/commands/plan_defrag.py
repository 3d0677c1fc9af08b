"""`stellwerk plan defrag`: which few pods to move so that nodes or GPUs become free.

`plan_command` calls it. Invariant: only a verified plan is printed, and only with --apply is
something evicted.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.answers.words import controller_name, counted
from stellwerk.models.gpu import DEVICES
from stellwerk.models.number_options import PositiveNumber, WholeNumber, shortened
from stellwerk_kube.compatibility import decided_as
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import printable

if TYPE_CHECKING:
    from stellwerk.answers.answer import PortAnswer
    from stellwerk_simulation.answers import DefragAnswer
    from stellwerk_simulation.defragmentation import DefragPlan, Goal

NAME: Final = "defrag"
HELP: Final = "find the few pods to move so that whole nodes or GPUs become free"
_DEFAULT_MAX_MOVES: Final = 10
"""Pods that a plan moves at most where no option says so."""
_HIGHEST_OF_USERS: Final = 1_000_000_000
_WAIT_SECONDS: Final = 300
_MAX_NUMBER: Final = 10_000
"""The largest number of nodes or GPUs to free, and of moves: a plan of more is never found."""
_MAX_WAIT_SECONDS: Final = 86_400.0
"""The longest wait for the new node of an evicted pod, a day."""
_PRIORITY: Final = WholeNumber(-(2**31), 2**31 - 1)
"""The type of priorities: the API server's int32."""
_GOAL: Final = re.compile(r"(nodes|gpus)=([0-9]{1,5})")
CarryOut: TypeAlias = Callable[[argparse.Namespace, "DefragPlan"], int]
"""Carries a plan out on the cluster of the options and says what happens; the exit status."""
LiveObjects: TypeAlias = Callable[[str | None, str | None], Sequence[JsonObject]]


AddOutput: TypeAlias = Callable[[argparse.ArgumentParser], None]
"""Adds the option for the form of the answer."""
ShowAnswer: TypeAlias = Callable[["PortAnswer", str, Iterable[str]], None]
"""Prints an answer in a form for programs, or the names in it."""
TABLES: Final = frozenset({"table", "wide"})
"""The forms for people."""


def add_arguments(parser: argparse.ArgumentParser, add_output: AddOutput) -> None:
    """The options of the plan; `add_output` adds the form of the answer."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="manifests, as `kubectl get nodes,pods,pdb -A -o json` prints them; - reads standard "
        "input, several files are one cluster",
    )
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="one of these files, as in kubectl; may be repeated",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig of the live cluster (default: as kubectl)"
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--free",
        metavar="nodes=N|gpus=N",
        required=True,
        help="what to free: N more empty nodes than now, or N whole GPUs on one node",
    )
    parser.add_argument(
        "--gpu-resource",
        metavar="NAME",
        default=DEVICES,
        help=f"resource that counts whole GPUs (default: {DEVICES})",
    )
    parser.add_argument(
        "--most-moves",
        metavar="N",
        type=WholeNumber(1, _MAX_NUMBER),
        default=_DEFAULT_MAX_MOVES,
        help=f"maximum number of pods to move (default: {_DEFAULT_MAX_MOVES})",
    )
    parser.add_argument(
        "--max-priority",
        metavar="N",
        type=_PRIORITY,
        default=_HIGHEST_OF_USERS,
        help="do not move pods with a higher priority (default: the highest that users can give)",
    )
    parser.add_argument(
        "--bare-pods",
        action="store_true",
        help="also move pods without a controller, which nothing recreates",
    )
    parser.add_argument(
        "--cordon",
        action="store_true",
        help="cordon the nodes to be emptied, and others while a moved pod is placed",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        default="default",
        help="profile that places the evicted pods (default: the default profile)",
    )
    _add_carrying_out(parser)
    add_output(parser)


def _add_carrying_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--apply",
        action="store_true",
        help="evict the pods, one after the other; stop if something is not as planned",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="with --apply: let the API server try each cordon and eviction, and change nothing",
    )
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with status 1 if no plan is found; --apply always does",
    )
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    parser.add_argument(
        "--wait-seconds",
        metavar="SECONDS",
        type=PositiveNumber(_MAX_WAIT_SECONDS),
        default=float(_WAIT_SECONDS),
        help=f"how long to wait until an evicted pod has a node again (default: {_WAIT_SECONDS})",
    )


def run(
    options: argparse.Namespace,
    live: LiveObjects,
    carry_out: CarryOut,
    show: ShowAnswer,
) -> int:
    """Plan, print the plan, and carry it out if that is asked for; returns the exit status.

    Raises:
        ConfigurationError: a file or an option cannot be used.
    """
    from stellwerk_simulation.arrivals import typical_pods  # noqa: PLC0415 NumPy and the scheduler
    from stellwerk_simulation.current_placement import placement_of  # noqa: PLC0415 as above
    from stellwerk_simulation.defragmentation import (  # noqa: PLC0415 as above
        Defragmentation,
        MoveRules,
    )
    from stellwerk_simulation.manifests import pods_of  # noqa: PLC0415 as above
    from stellwerk_simulation.ready_profiles import profile_of, release_of  # noqa: PLC0415
    from stellwerk_simulation.sources import LiveCluster  # noqa: PLC0415 as above

    if options.dry_run and not options.apply:
        raise ConfigurationError("--dry-run needs --apply")
    goal = _goal(options)
    read = LiveCluster(live)
    objects, source = _objects(options, read)
    pods = pods_of(objects, source)
    profile = profile_of(options.profile, typical_pods(pods), pods, read.compatibility)
    placement = placement_of(objects, profile, source)
    rules = MoveRules(options.bare_pods, options.max_priority)
    search = Defragmentation(placement, goal, rules, options.most_moves, cordon=options.cordon)
    plan, release = search.plan(), release_of(profile)
    if options.output in TABLES:
        print(_as_text(plan, goal, apart=options.output == "wide"), flush=True)
    else:
        show(_answer(plan, goal, release), options.output, [move.pod.key for move in plan.moves])
    print(f"stellwerk: {decided_as([release])}", file=sys.stderr, flush=True)
    if plan.nothing_found:
        return 1 if options.exit_code or options.apply else 0
    return carry_out(options, plan) if options.apply and plan.moves else 0


def _goal(options: argparse.Namespace) -> "Goal":
    from stellwerk_simulation.defragmentation import Goal  # noqa: PLC0415 as run

    matched = _GOAL.fullmatch(options.free)
    number = int(matched[2]) if matched else 0
    if matched is None or not 0 < number <= _MAX_NUMBER:
        expected = f"expected nodes=N or gpus=N, N from 1 to {_MAX_NUMBER}"
        raise ConfigurationError(f"--free {shortened(options.free)}: {expected}")
    return Goal(matched[1], number, options.gpu_resource)


def _objects(options: argparse.Namespace, live: LiveObjects) -> tuple[Sequence[JsonObject], str]:
    from stellwerk_simulation.cluster_objects import not_read  # noqa: PLC0415 as run
    from stellwerk_simulation.sources import objects_of  # noqa: PLC0415 as run

    files = [*options.files, *options.filename]
    if files and options.kubeconfig:
        raise ConfigurationError("name either a file, or a cluster with --kubeconfig")
    if not files:
        return live(options.kubeconfig, options.context), options.kubeconfig or "the cluster"
    if options.apply:
        raise ConfigurationError("--apply needs a live cluster, not a file")
    found = objects_of(files)
    if unread := not_read(found.others):
        print(printable(f"stellwerk: planned without {unread}"), file=sys.stderr)
    return found.others, found.place


def _answer(plan: "DefragPlan", goal: "Goal", release: str) -> "DefragAnswer":
    from stellwerk_simulation.answers import DefragAnswer, PlannedMove  # noqa: PLC0415 as run
    from stellwerk_simulation.defragmentation import SEEDS  # noqa: PLC0415 as run

    return DefragAnswer(
        compatibility=release,
        goal=str(goal),
        frees=list(plan.frees),
        cordons=list(plan.cordons),
        moves=[
            PlannedMove(
                pod=move.pod.key,
                from_node=move.pod.node_name,
                to=move.node_name,
                ties=list(move.ties),
                held=move.held,
            )
            for move in plan.moves
        ],
        simulations=SEEDS if plan.moves else 0,
        waiting=plan.waiting,
        stay=dict(sorted(plan.stays.items())),
        nothing_found=plan.nothing_found or None,
    )


def _as_text(plan: "DefragPlan", goal: "Goal", *, apart: bool = False) -> str:
    """The plan; pods of a controller that go the same way are one line, unless `apart`."""
    from stellwerk.explain.lists.page import controller_key  # noqa: PLC0415 as run
    from stellwerk_simulation.defragmentation import SEEDS  # noqa: PLC0415 as run
    from stellwerk_simulation.report import aligned  # noqa: PLC0415 as run

    if plan.nothing_found:
        return plan.nothing_found
    if not plan.moves:
        return f"no pod has to move: {plan.frees[0]} has {_whole_gpus(goal)} idle"
    alike: dict[tuple[str, str, str], list[str]] = {}
    for move in plan.moves:
        pod = move.pod.key
        ties = f" or {len(move.ties)} that score the same" if move.ties else ""
        held = " (cordoned meanwhile)" if move.held else ""
        way = f"{move.pod.node_name}{held}", f"{move.node_name}{ties}"
        of = pod if apart else controller_key(move.pod) or pod
        alike.setdefault((of, *way), []).append(pod)
    lines = [("pod", "from", "expected on")]
    for (of, come_from, goes_to), pods in alike.items():
        namespace, _, name = of.partition("/")
        several = f"{counted(len(pods), 'pod')} of {controller_name(namespace, name)}"
        lines.append((several if len(pods) > 1 else pods[0], come_from, goes_to))
    text = []
    if plan.cordons:
        text.append(f"cordon first: {', '.join(plan.cordons)}")
    freed = "empty" if goal.kind == "nodes" else f"with {_whole_gpus(goal)} idle"
    text += [
        aligned(lines),
        f"then {freed}: {', '.join(plan.frees)}. So it was in {SEEDS} simulations,",
        "with ties broken differently. The scheduler places the pods, so other changes in the",
        "cluster may still change where they go.",
    ]
    if plan.waiting:
        wait = "1 pod waits" if plan.waiting == 1 else f"{plan.waiting} pods wait"
        text.append(f"{wait} for a node and may take what becomes free")
    bare = sum(move.pod.owner is None for move in plan.moves)
    if bare:
        text.append(f"{bare} of the pods have no controller: nothing recreates them")
    return "\n".join(text)


def _whole_gpus(goal: "Goal") -> str:
    return "1 whole GPU" if goal.number == 1 else f"{goal.number} whole GPUs"
