"""`stellwerk plan`: nodes for pods that wait, moves (`defrag_command`), a ready profile.

Called by the command line. Invariants: the nodes and moves that are printed were simulated, the
profile loads as a SchedulerProfile; planning changes nothing.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import yaml

from stellwerk.answers.words import controller_name
from stellwerk.answers.words import counted as number_of
from stellwerk.models.number_options import PositiveNumber
from stellwerk_cli.commands import plan_defrag as defrag_command
from stellwerk_cli.commands.plan_defrag import TABLES, AddOutput, CarryOut, ShowAnswer
from stellwerk_kube.admission import Admission
from stellwerk_kube.compatibility import decided_as
from stellwerk_kube.daemon_pods import DAEMON_SET
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import printable
from stellwerk_kube.yaml_file import read_objects
from stellwerk_simulation.manifest_reader import admitted, counted, settled

if TYPE_CHECKING:
    from stellwerk_simulation.answers import FitAnswer
    from stellwerk_simulation.node_fit import FitPlan
    from stellwerk_simulation.trace import TraceNode, TracePod


PENDING: Final = "pending"
_CLAIM: Final = "PersistentVolumeClaim"
_SECONDS: Final = 20
_NAMED: Final = 3
"""Lines of pods for which no node was found; -o wide has all."""
_DECIMALS: Final = 6
_PROFILE_KIND: Final = "SchedulerProfile"
_MAX_SECONDS: Final = 3600.0
"""The longest search for a fit: after an hour a better plan is no longer worth the wait."""
LiveObjects: TypeAlias = Callable[[str | None, str | None], Sequence[JsonObject]]


def add_arguments(parser: argparse.ArgumentParser, add_output: AddOutput) -> None:
    """The options of the command; `add_output` adds the form of the answer."""
    kinds = parser.add_subparsers(title="plans", required=True, metavar="PLAN", dest="plan")
    text = "say how many nodes of which shape the pending pods need"
    fit = kinds.add_parser("fit", help=text, description=f"{text[0].upper()}{text[1:]}.")
    fit.add_argument(
        "--for",
        dest="pods",
        metavar="pending|FILE",
        required=True,
        help="pending: the pods of a live cluster without a node; or a file of manifests or CSV",
    )
    fit.add_argument(
        "--shapes",
        metavar="FILE",
        type=Path,
        required=True,
        help="file with one Node manifest for each shape; its annotation "
        "simulation.stellwerk.dev/hourly-price is the price of one node",
    )
    fit.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig of the live cluster (default: as kubectl)"
    )
    fit.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    fit.add_argument(
        "--profile",
        metavar="NAME|FILE",
        default="default",
        help="profile that fills the nodes (default: the default profile)",
    )
    fit.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=PositiveNumber(_MAX_SECONDS),
        default=float(_SECONDS),
        help=f"time limit of the search, after which the best plan counts (default: {_SECONDS})",
    )
    fit.add_argument(
        "--exit-code", action="store_true", help="exit with status 1 if a pod gets no node"
    )
    add_output(fit)
    text = defrag_command.HELP
    defrag = kinds.add_parser(
        defrag_command.NAME, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    defrag_command.add_arguments(defrag, add_output)
    text = _PROFILE_HELP
    profile = kinds.add_parser(_PROFILE, help=text, description=f"{text[0].upper()}{text[1:]}.")
    _add_profile_arguments(profile)


def run(
    options: argparse.Namespace,
    live: LiveObjects,
    carry_out: CarryOut,
    show: ShowAnswer,
) -> int:
    """Plan, and print the plan; returns the exit status.

    `show` prints an answer for programs.

    Raises:
        ConfigurationError: a file cannot be used.
        SchedulerError: no plan was decided in time.
    """
    if options.plan == defrag_command.NAME:
        return defrag_command.run(options, live, carry_out, show)
    if options.plan == _PROFILE:
        return _run_profile(options, live)
    from stellwerk_simulation.arrivals import typical_pods  # noqa: PLC0415 NumPy and the scheduler
    from stellwerk_simulation.cluster_objects import ClusterObjects  # noqa: PLC0415 as above
    from stellwerk_simulation.node_fit import Surroundings, fit, nothing_to_do  # noqa: PLC0415
    from stellwerk_simulation.ready_profiles import profile_of, release_of  # noqa: PLC0415
    from stellwerk_simulation.sources import LiveCluster  # noqa: PLC0415 as above

    read = LiveCluster(live)
    objects, shapes = _objects(options, read), _shapes(options.shapes)
    pods, left_out = _pods(options, objects)
    profile = profile_of(options.profile, typical_pods(pods), pods, read.compatibility)
    is_live = options.pods == PENDING
    around = Surroundings(
        ClusterObjects.to_begin_with(objects, _source(options)),
        [obj for obj in objects if obj.get("kind") == DAEMON_SET],
        Admission(objects),
        claims_may_lack=not (is_live and any(obj.get("kind") == _CLAIM for obj in objects)),
    )
    plan = nothing_to_do(shapes)
    if pods:
        plan = fit(pods, shapes, profile, options.seconds, around)
    release = release_of(profile)
    if options.output in TABLES:
        left = {*plan.homeless, *plan.unplanned, *left_out}
        controllers = None if options.output == "wide" else _controllers(objects, pods, left)
        print(_as_text(plan, shapes, left_out, controllers), flush=True)
    else:
        answer = _answer(plan, shapes, left_out, release, pods)
        show(answer, options.output, answer.homeless)
    print(f"stellwerk: {decided_as([release])}", file=sys.stderr)
    is_no = bool(plan.homeless or plan.unplanned)
    return 1 if is_no and options.exit_code else 0


def _objects(options: argparse.Namespace, live: LiveObjects) -> Sequence[JsonObject]:
    """The objects among which the pods are; none of a CSV."""
    from stellwerk_simulation.cluster_objects import USED, not_read  # noqa: PLC0415 as above
    from stellwerk_simulation.manifests import is_manifest_file  # noqa: PLC0415 as above

    if options.pods == PENDING:
        return live(options.kubeconfig, options.context)
    path = Path(options.pods)
    if not is_manifest_file(path):
        return ()
    objects = settled(admitted(f"--for {path}", read_objects(path), USED), USED)
    if unread := not_read(objects):
        print(printable(f"stellwerk: planned without {unread}"), file=sys.stderr)
    return objects


def _source(options: argparse.Namespace) -> str:
    return "the cluster" if options.pods == PENDING else str(options.pods)


def _pods(
    options: argparse.Namespace, objects: Sequence[JsonObject]
) -> tuple[Sequence["TracePod"], Mapping[str, str]]:
    """The pods to be placed, and why others among those that wait are left out."""
    from stellwerk_simulation.manifests import (  # noqa: PLC0415 as above
        any_pod,
        is_manifest_file,
        pods_of,
    )
    from stellwerk_simulation.trace import read_pods  # noqa: PLC0415 as above

    if options.pods != PENDING and not is_manifest_file(Path(options.pods)):
        return read_pods(Path(options.pods)), {}
    # A DaemonSet's pods come with the new nodes.
    written = [obj for obj in objects if obj.get("kind") != DAEMON_SET]
    served = _served(objects) if options.pods == PENDING else None
    waiting, left_out = _without_the_untried(_waiting(written), served)
    if not any_pod(waiting) and (options.pods == PENDING or left_out):
        return [], left_out
    place = _source(options)
    return pods_of(
        waiting, place if options.pods == PENDING else f"{place}, pods without a node"
    ), left_out


def _served(objects: Sequence[JsonObject]) -> AbstractSet[str]:
    """The schedulerNames of the profiles of a cluster; empty: none is known."""
    return {
        str(name)
        for obj in objects
        if obj.get("kind") == _PROFILE_KIND
        and (name := (obj.get("spec") or {}).get("schedulerName"))
    }


def _without_the_untried(
    objects: Sequence[JsonObject], served: AbstractSet[str] | None
) -> tuple[list[JsonObject], Mapping[str, str]]:
    """The objects but for pods that would get no node whatever nodes there were, and why.

    `served`: the schedulerNames of this scheduler; None or empty: they are not looked at.
    """
    kept, left_out = [], {}
    for obj in objects:
        why = _why_untried(obj, served) if obj.get("kind") == "Pod" else ""
        if not why:
            kept.append(obj)
            continue
        left_out[_key(obj)] = why
    return kept, left_out


def _key(obj: JsonObject) -> str:
    """NAMESPACE/NAME of a manifest."""
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _why_untried(pod: JsonObject, served: AbstractSet[str] | None) -> str:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    gates = [str(each.get("name")) for each in spec.get("schedulingGates") or ()]
    name = spec.get("schedulerName") or "default-scheduler"
    if status.get("phase") in {"Succeeded", "Failed"}:
        return ""
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "it is being deleted"
    if gates:
        return f"scheduling gates hold it back: {', '.join(gates)}"
    if served and name not in served:
        return f"it waits for another scheduler: {name}"
    return ""


def _shapes(path: Path) -> Sequence["TraceNode"]:
    from stellwerk_simulation.sources import source_of  # noqa: PLC0415 as above

    source = source_of(path, "--shapes", frozenset({"Node"}))
    if unread := counted(source.others, frozenset({"Node"})):
        print(printable(f"stellwerk: {path}: shapes without {unread}"), file=sys.stderr)
    shapes = source.nodes()
    [(name, number)] = Counter(shape.name for shape in shapes).most_common(1)
    if number > 1:
        raise ConfigurationError(f"{path}: {number} shapes have the name {name}")
    free = [shape.name for shape in shapes if not shape.hourly_price]
    if free and len(free) < len(shapes):
        message = f"{path}, {free[0]}: no hourly price, where other shapes have one"
        raise ConfigurationError(message)
    return shapes


def _answer(
    plan: "FitPlan",
    shapes: Sequence["TraceNode"],
    left_out: Mapping[str, str],
    release: str,
    pods: Sequence["TracePod"],
) -> "FitAnswer":
    from stellwerk_simulation.answers import FitAnswer  # noqa: PLC0415 as above
    from stellwerk_simulation.by_template import (  # noqa: PLC0415 as above
        controllers_of_many,
        outcomes,
        without,
    )

    makers = controllers_of_many(pods)
    whys = {**plan.homeless, **plan.unplanned}
    kinds = {name: name.rpartition("-")[0] for name in plan.on_node.values()}
    counts = zip(shapes, plan.counts, strict=True)
    return FitAnswer(
        compatibility=release,
        nodes={shape.name: count for shape, count in counts if count},
        cost=round(plan.cost, _DECIMALS),
        bound=round(plan.bound, _DECIMALS),
        placed=plan.placed,
        homeless=without(plan.homeless, makers.keys()),
        unplanned=without(plan.unplanned, makers.keys()) or None,
        templates=outcomes(makers, plan.on_node, whys, kinds) or None,
        assumed=list(plan.assumed) or None,
        left_out=left_out or None,
    )


Controllers: TypeAlias = Mapping[str, str] | None
"""NAMESPACE/KIND/NAME of the controller of each pod that has one; None: each pod has a line."""


def _controllers(
    objects: Sequence[JsonObject], pods: Sequence["TracePod"], names: AbstractSet[str]
) -> Mapping[str, str]:
    """The controllers of the pods of these names, for lines that pods share."""
    from stellwerk.explain.lists.page import controller_key  # noqa: PLC0415 the scheduler
    from stellwerk.models.pod import parse_pod  # noqa: PLC0415 as above

    manifests = {pod.name: pod.manifest for pod in pods if pod.manifest is not None}
    for obj in objects:
        if obj.get("kind") == "Pod":
            manifests.setdefault(_key(obj), obj)
    return {
        name: controller_key(parse_pod(obj)) for name, obj in manifests.items() if name in names
    }


def _as_text(
    plan: "FitPlan",
    shapes: Sequence["TraceNode"],
    left_out: Mapping[str, str],
    controllers: Controllers = None,
) -> str:
    lines = [_fit_text(plan, shapes, controllers)]
    if left_out:
        lines += [f"not examined: {number_of(len(left_out), 'pod')}"]
        lines += _lines(left_out, controllers)
    return "\n".join(lines)


def _lines(whys: Mapping[str, str], controllers: Controllers) -> Iterator[str]:
    """A line for each pod; those of one controller for which the same holds share one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for pod, why in whys.items():
        shared = (controllers or {}).get(pod) or pod
        alike.setdefault((shared, why), []).append(pod)
    most = len(alike) if controllers is None else _NAMED
    shown = 0
    for (shared, why), pods in islice(alike.items(), most):
        namespace, _, controller = shared.partition("/")
        of = f"{number_of(len(pods), 'pod')} of {controller_name(namespace, controller)}"
        yield f"  {pods[0] if len(pods) == 1 else of}: {why}"
        shown += len(pods)
    if shown < len(whys):
        yield f"  … and {number_of(len(whys) - shown, 'more pod')}; -o wide lists each"


def _fit_text(plan: "FitPlan", shapes: Sequence["TraceNode"], controllers: Controllers) -> str:
    from stellwerk_simulation.report import aligned  # noqa: PLC0415 as above

    if not (plan.placed or plan.homeless or plan.unplanned):
        return "no pod waits for a node"
    lines = [("shape", "nodes", "price of one", "of all")]
    for shape, count in zip(shapes, plan.counts, strict=True):
        price = shape.hourly_price
        if count:
            lines.append((shape.name, str(count), f"{price:.2f}", f"{price * count:.2f}"))
    unit = "cost" if any(shape.hourly_price for shape in shapes) else "nodes"
    placed = "1 pod was" if plan.placed == 1 else f"{plan.placed} pods were"
    shown = f"{placed} placed on them in a simulation, which ignores free room on existing nodes"
    least = f"{unit}: {plan.cost:.2f}, at least {plan.bound:.2f}"
    text = [aligned(lines), f"{shown}; {least}"] if plan.placed else []
    empty, beside = "no shape even if it is empty", "found no node in addition to the others"
    for pods_left, one_fate, fate in (
        (plan.homeless, f"fits {empty}", f"fit {empty}"),
        (plan.unplanned, beside, beside),
    ):
        if pods_left:
            one = len(pods_left) == 1
            which = f"{'1 pod' if one else f'{len(pods_left)} pods'}, which"
            text.append(f"left out: {which} {one_fate if one else fate}:")
            text += _lines(pods_left, controllers)
    text += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in plan.assumed]
    return "\n".join(text)


def _waiting(objects: Sequence[JsonObject]) -> list[JsonObject]:
    """The objects but for pods that have a node."""
    for obj in objects:
        if not isinstance(obj.get("spec", {}), dict):
            raise ConfigurationError(f"the spec of a {obj.get('kind', 'object')} is not an object")
    return [obj for obj in objects if not (obj.get("spec") or {}).get("nodeName")]


_PROFILE: Final = "profile"
_PROFILE_HELP: Final = "print a ready profile as a manifest, fitted to the given pods"


def _add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("name", metavar="PROFILE", help="a ready profile of `stellwerk simulate`")
    parser.add_argument(
        "--for",
        dest="pods",
        metavar="FILE",
        type=Path,
        help="the pods: CSV in the form of the openb GPU traces, or manifests",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="without --for: kubeconfig of the live cluster (default: as kubectl)",
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")


def _run_profile(options: argparse.Namespace, live: LiveObjects) -> int:
    """Print the manifest; returns the exit status.

    Raises:
        ConfigurationError: there is no such profile, or a file cannot be used.
    """
    from stellwerk.profiles.spec.profile import API_VERSION, KIND  # noqa: PLC0415 the scheduler
    from stellwerk_kube.names import suggestion  # noqa: PLC0415 as what follows
    from stellwerk_simulation.arrivals import typical_pods  # noqa: PLC0415 NumPy, too
    from stellwerk_simulation.manifests import pods_of  # noqa: PLC0415 as above
    from stellwerk_simulation.ready_profiles import (  # noqa: PLC0415 as above
        READY,
        profile_of,
        ready_manifest,
    )
    from stellwerk_simulation.sources import source_of  # noqa: PLC0415 as above

    if options.pods is not None and options.kubeconfig:
        raise ConfigurationError("name the pods either with --for FILE or with --kubeconfig")
    if options.name not in READY:
        near = suggestion(options.name, READY) or f"; ready profiles are {', '.join(READY)}"
        raise ConfigurationError(f"there is no ready profile {options.name}{near}")
    if options.pods is not None:
        pods = source_of(options.pods, "--for").pods()
    else:
        pods = pods_of(live(options.kubeconfig, options.context), "the cluster")
    typical = typical_pods(pods)
    profile_of(options.name, typical, pods)
    manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **ready_manifest(options.name, typical, pods),
    }
    print(yaml.safe_dump(manifest, sort_keys=False, width=100, default_flow_style=None), end="")
    return 0
