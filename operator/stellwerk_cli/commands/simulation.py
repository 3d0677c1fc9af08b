"""`stellwerk simulate`: a trace against one profile or several, in virtual time.

Called by the command line, which loads nothing else of this package until a simulation runs.
Invariant: a curve file is there whole or not at all, and nothing is run for a file that could not
be written.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.models.number_options import PositiveNumber, WholeNumber
from stellwerk_cli.commands.plan_defrag import TABLES, AddOutput, ShowAnswer
from stellwerk_kube.compatibility import decided_as
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject

if TYPE_CHECKING:
    from stellwerk_simulation.experiment import Experiment
    from stellwerk_simulation.run_metrics import RunResult
    from stellwerk_simulation.sweep import Sweep
    from stellwerk_simulation.sweep_results import SweepResults
    from stellwerk_simulation.trace import TracePod

_SHARE: Final = PositiveNumber(10, "1.3")
"""The type of `--inflate`: ten times all GPUs would queue for days."""
_SEED: Final = WholeNumber(1, 2**31 - 2)
"""The type of seeds: those that the published experiment's generator takes."""
_PLAN_TIME: Final = WholeNumber(1, 1024)
"""The type of `--plan-seconds`, in seconds of virtual time."""
_JOBS: Final = WholeNumber(1, 1024)
"""The type of `--jobs`: each is a process of its own."""
_DEFAULT_SEED: Final = 42
_PLAN_SECONDS: Final = 30
_CURVE_KINDS: Final = (".csv", ".json")
_PAGE_KINDS: Final = (".html",)
_IMAGE_KINDS: Final = (".svg",)

LiveObjects: TypeAlias = Callable[[str | None, str | None], Sequence[JsonObject]]


def add_arguments(parser: argparse.ArgumentParser, add_output: AddOutput) -> None:
    """The options of the command; `add_output` adds the form of the answer."""
    _add_input(parser)
    _add_conduct(parser)
    _add_output(parser)
    _add_sweep(parser)
    _add_replay(parser)
    add_output(parser)


def _add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is simulated."""
    for name, text in (("--nodes", "the nodes"), ("--pods", "the pods, in order")):
        parser.add_argument(
            name,
            metavar="FILE",
            type=Path,
            help=f"{text}: CSV in the form of the openb GPU traces (also .xz), manifests as "
            "kubectl get prints them (.yaml or .json), or a recording (.journal)",
        )
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="manifests of nodes and pods, instead of --nodes and --pods; may be repeated, - "
        "reads standard input",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="without --nodes and --pods: kubeconfig of a live cluster, which is only read "
        "(default: as kubectl)",
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--profile",
        metavar="NAME|FILE",
        action="append",
        default=[],
        help="a ready profile (default, random, dot-product, gpu-clustering, gpu-packing, "
        "best-fit, fgd, pattern-plan) or a file with a SchedulerProfile; may be repeated (default: "
        "the default profile)",
    )
    parser.add_argument(
        "--typical-pods",
        metavar="FILE",
        type=Path,
        help="CSV or manifests of the pods that ready profiles expect (default: the pods that "
        "arrive)",
    )
    parser.add_argument(
        "--compare",
        metavar="NAME|FILE",
        nargs=2,
        help="compare two profiles, seed by seed: which is better, at what and by how much",
    )


def _add_conduct(parser: argparse.ArgumentParser) -> None:
    """Add the options of the run itself."""
    parser.add_argument(
        "--inflate",
        metavar="SHARE",
        type=_SHARE,
        help="shuffle the pods, and shorten or repeat the list until it requests this share of "
        "all GPUs; the published experiment has 1.3 (default: the list as it is)",
    )
    parser.add_argument(
        "--seed",
        metavar="NUMBER",
        type=_SEED,
        action="append",
        help=f"seed of all random choices; may be repeated (default: {_DEFAULT_SEED})",
    )
    parser.add_argument(
        "--arrivals",
        choices=("fast", "trace"),
        default="fast",
        help="fast: one pod after the other, and all stay (default); trace: pods arrive and "
        "leave at the times of the trace",
    )
    parser.add_argument(
        "--on-failure",
        choices=("drop", "queue"),
        default="drop",
        help="drop a pod that fits on no node (default), or let it wait in the queue",
    )
    parser.add_argument(
        "--plan-seconds",
        metavar="SECONDS",
        type=_PLAN_TIME,
        default=_PLAN_SECONDS,
        help="virtual time until a plan that a plugin requested is ready; pods arrive one "
        "second apart (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        metavar="NUMBER",
        type=_JOBS,
        default=os.cpu_count() or 1,
        help="number of parallel runs, each in its own process (default: one per core)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is written beside the tables."""
    parser.add_argument(
        "--curve",
        metavar="FILE",
        type=Path,
        help="file for allocation and fragmentation at every percent of arrived load (.csv or "
        ".json)",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="file for tables and plots, as a page that opens without a network",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=Path,
        help="file for a plot of allocation and fragmentation by load (.svg)",
    )


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options for many runs."""
    group = parser.add_argument_group("many runs")
    group.add_argument(
        "--sweep",
        metavar="GRID.yaml",
        type=Path,
        help="run every profile of a grid on each of its clusters with every seed, and compare; "
        "runs that are in the results file are not repeated",
    )
    group.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        help="results file, in SQLite (default: the grid's name with .sqlite)",
    )
    group.add_argument(
        "--executor",
        metavar="NAME",
        help="where runs execute: processes of this machine (processes, the default), a Dask "
        "cluster (dask:HOST:PORT), or the concurrent.futures executor that MODULE:NAME "
        "returns",
    )


def _add_replay(parser: argparse.ArgumentParser) -> None:
    """Add the options that concern a journal in place of a trace."""
    group = parser.add_argument_group("a recording instead of a trace")
    group.add_argument(
        "--replay",
        metavar="FILE",
        type=Path,
        help="replay a journal: exactly as recorded, or with --profile its pods with another "
        "profile",
    )
    group.add_argument(
        "--until",
        metavar="NAMESPACE/POD",
        default="",
        help="stop after the newest decision for this pod, and explain it",
    )


def run(
    options: argparse.Namespace,
    live: LiveObjects,
    replay: Callable[[argparse.Namespace], int],
    show: ShowAnswer,
) -> int:
    """Run every profile with every seed, or replay, print a table; returns the exit status.

    `live` reads the objects of the cluster that a kubeconfig names; `replay` decides a journal;
    `show` prints an answer for programs.

    Raises:
        ConfigurationError: a file or a profile cannot be used.
        SchedulerError: a run broke.
    """
    if options.replay is not None:
        _check_replay(options)
        return replay(options)
    if options.sweep is not None:
        _check_sweep(options)
        return _sweep(options, show)
    _check(options)
    experiment = _experiment(options, live)
    for option, value in (("--plot", options.plot), ("--curve", options.curve)):
        if value is not None and not experiment.until_pct:
            raise ConfigurationError(f"{option} shows loads of GPUs, and these pods ask for none")
    seeds = tuple(dict.fromkeys(options.seed or [_DEFAULT_SEED]))
    named = (*options.profile, *(options.compare or ()))
    profiles = tuple(dict.fromkeys(named)) or ("default",)
    for remark in (*experiment.check_profiles(profiles), *experiment.remarks(profiles)):
        print(f"stellwerk: {remark}", file=sys.stderr)
    _show(options, experiment, experiment.run(profiles, seeds, options.jobs), show)
    return 0


def _sweep(options: argparse.Namespace, show: ShowAnswer) -> int:
    """Make the runs of a grid that its file of results lacks, and print what all of them show."""
    from stellwerk_simulation.sweep import LOCAL, Sweep, read_grid  # noqa: PLC0415 as below
    from stellwerk_simulation.sweep_results import SweepResults  # noqa: PLC0415

    sweep = Sweep.of(read_grid(options.sweep))
    results = SweepResults(options.results or options.sweep.with_suffix(".sqlite"), sweep.digest)
    try:
        for remark in sweep.remarks:
            _say(remark)
        total, missing = len(sweep.runs), len(sweep.missing(results))
        if missing < total:
            _say(f"{total - missing} of {total} runs are in {results.file} already")
        try:
            sweep.run(results, options.executor or LOCAL, options.jobs)
        except KeyboardInterrupt:
            kept = total - len(sweep.missing(results))
            _say(f"stopped: {kept} of {total} runs are in {results.file}; the next sweep continues")
            raise
        _show_sweep(options, sweep, results, show)
    finally:
        results.close()
    return 0


def _show_sweep(
    options: argparse.Namespace, sweep: "Sweep", results: "SweepResults", show: ShowAnswer
) -> None:
    """Print tables or the answer, and write the page."""
    from stellwerk_simulation.html_report import page  # noqa: PLC0415 as below
    from stellwerk_simulation.report import aligned, write_whole  # noqa: PLC0415 as below
    from stellwerk_simulation.sweep import SweepReport  # noqa: PLC0415

    report = SweepReport(sweep, results)
    tables, concluded = report.tables(), report.conclusions()
    if options.output in TABLES:
        print("\n\n".join(f"{title}\n{aligned(lines)}" for title, lines in tables))
        print("\n".join(["", *concluded]) if concluded else "", end="\n" if concluded else "")
    else:
        show(report.answer(), options.output, list(report.by_cluster))
    followed = decided_as(run.compatibility for runs in report.by_cluster.values() for run in runs)
    _say(followed)
    if options.html is not None:
        shown = [
            replace(run, profile=f"{cluster}: {run.profile}")
            for cluster, runs in report.by_cluster.items()
            for run in runs
        ]
        about = [f"{len(shown):,} runs of {options.sweep}, {followed}", *concluded]
        write_whole(options.html, page(shown, tables, 0, about, facts_of([options.sweep])).encode())


def _say(line: str) -> None:
    """A remark on standard error."""
    print(f"stellwerk: {line}", file=sys.stderr)


def _check_sweep(options: argparse.Namespace) -> None:
    """Refuse options that a grid has in it, or that a sweep does not know."""
    said = ("nodes", "pods", "kubeconfig", "inflate", "compare", "typical_pods", "seed")
    for name in said:
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise ConfigurationError(f"--{option} cannot be used with --sweep: set it in the grid")
    if options.profile or options.filename:
        raise ConfigurationError(
            "--profile and -f cannot be used with --sweep: set them in the grid"
        )
    for name in ("curve", "plot"):
        if getattr(options, name) is not None:
            raise ConfigurationError(f"--{name} shows a single run and cannot be used with --sweep")
    if options.html is not None:
        check_writable("--html", options.html, _PAGE_KINDS, [options.sweep])


def _experiment(options: argparse.Namespace, live: LiveObjects) -> "Experiment":
    """The experiment that the options name."""
    from stellwerk_simulation.experiment import Experiment  # noqa: PLC0415 NumPy and the scheduler
    from stellwerk_simulation.simulation import SimulationOptions  # noqa: PLC0415 as what follows
    from stellwerk_simulation.sources import LiveCluster, Objects, objects_of  # noqa: PLC0415

    run_options = SimulationOptions(
        timed=options.arrivals == "trace",
        queues=options.on_failure == "queue",
        plan_seconds=float(options.plan_seconds),
    )
    if options.filename:
        cluster = objects_of(options.filename)
        experiment = Experiment.of(cluster, cluster, options.inflate, run_options)
    elif _is_live(options):
        read = LiveCluster(live)
        cluster = Objects(read(options.kubeconfig, options.context), "the cluster")
        experiment = Experiment.of(cluster, cluster, options.inflate, run_options)
        experiment = replace(experiment, auto=read.compatibility)
    else:
        experiment = Experiment.read(options.nodes, options.pods, options.inflate, run_options)
    if options.typical_pods is not None:
        experiment = replace(experiment, expected=_typical(options.typical_pods))
    return experiment


def _typical(file: Path) -> "Sequence[TracePod]":
    from stellwerk_simulation.sources import source_of  # noqa: PLC0415 as above

    return source_of(file, "--typical-pods").pods()


def _show(
    options: argparse.Namespace,
    experiment: "Experiment",
    results: "Sequence[RunResult]",
    show: ShowAnswer,
) -> None:
    """Print tables, and write the files that the options name."""
    from stellwerk_simulation.html_report import page, plot  # noqa: PLC0415 as above
    from stellwerk_simulation.report import (  # noqa: PLC0415
        aligned,
        answer_of,
        comparison_table,
        conclusions,
        left_out_lines,
        runs_table,
        write_curves,
        write_whole,
    )

    until_pct = experiment.until_pct
    tables = [("Runs", runs_table(results))]
    if options.compare:
        first, second = options.compare
        tables.append((f"{second} against {first}", comparison_table(results, first, second)))
    left_out, concluded = list(left_out_lines(results)), list(conclusions(results))
    if options.output in TABLES:
        print("\n\n".join(aligned(lines) for _, lines in tables))
        for lines in (left_out, concluded):
            print("\n".join(["", *lines]) if lines else "", end="\n" if lines else "")
    else:
        compared = [tuple(options.compare)] if options.compare else []
        names = dict.fromkeys(pod for run in results for pod in run.left_out)
        answer = answer_of(results, compared, experiment.pods, experiment.nodes)
        show(answer, options.output, names)
    sys.stdout.flush()  # an answer that cannot be written ends the command here
    followed = decided_as(run.compatibility for run in results)
    print(f"stellwerk: {followed}", file=sys.stderr)
    if options.html is not None:
        facts = _facts(options, experiment, results)
        about = [f"{experiment.described()}, {followed}", *concluded]
        document = page(results, tables, until_pct, about, facts, left_out)
        write_whole(options.html, document.encode())
    if options.plot is not None:
        write_whole(options.plot, plot(results, until_pct).encode())
    if options.curve is not None:
        write_curves(options.curve, results, until_pct)


def _facts(
    options: argparse.Namespace, experiment: "Experiment", results: "Sequence[RunResult]"
) -> "list[tuple[str, str]]":
    """Facts that a reader needs to run it again."""
    files = [options.nodes, options.pods, *options.filename, options.typical_pods]
    files += [Path(name) for name in dict.fromkeys(run.profile for run in results)]
    read = [path for path in dict.fromkeys(files) if path is not None and path.is_file()]
    seeds = dict.fromkeys(str(run.seed) for run in results)
    return [
        *facts_of(read),
        ("seeds", ", ".join(seeds)),
        ("nodes and pods", f"{len(experiment.nodes):,} and {len(experiment.pods):,}"),
    ]


def facts_of(files: "Sequence[Path]") -> "list[tuple[str, str]]":
    """Facts on every page: how it was made, and of what."""
    from stellwerk import __version__  # noqa: PLC0415
    from stellwerk_kube.clock import SystemClock  # noqa: PLC0415
    from stellwerk_simulation.sources import digest_of  # noqa: PLC0415 the whole simulation

    return [
        ("command", shlex.join(["stellwerk", *sys.argv[1:]])),
        ("version", __version__),
        ("made", SystemClock().now().isoformat(timespec="seconds")),
        *((str(path), f"sha256 {digest_of(path)}") for path in files),
    ]


def _check_replay(options: argparse.Namespace) -> None:
    """Refuse options that a replay does not know."""
    of_traces = ("nodes", "pods", "kubeconfig", "inflate", "curve", "html", "compare")
    for name in (*of_traces, "typical_pods", "plot", "sweep", "results", "executor"):
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise ConfigurationError(f"--{option} cannot be used with --replay: it is for traces")
    if options.until and options.profile:
        raise ConfigurationError(
            "--until explains a recorded decision and cannot be used with --profile"
        )


def _is_live(options: argparse.Namespace) -> bool:
    """Whether nodes and pods come from a cluster: its kubeconfig is named, or no file is."""
    files = (options.nodes, options.pods, *options.filename)
    return options.kubeconfig is not None or set(files) == {None}


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, before anything runs."""
    if options.until:
        raise ConfigurationError("--until needs --replay")
    for name in ("results", "executor"):
        if getattr(options, name) is not None:
            raise ConfigurationError(f"--{name} needs --sweep")
    if options.filename and (options.nodes or options.pods or options.kubeconfig):
        raise ConfigurationError(
            "-f gives nodes and pods: it cannot be used with --nodes, --pods or --kubeconfig"
        )
    if not _is_live(options) and not options.filename and None in {options.nodes, options.pods}:
        raise ConfigurationError("--nodes and --pods need each other: pass both, or --kubeconfig")
    if options.inflate is not None and options.arrivals == "trace":
        raise ConfigurationError(
            "--inflate makes a list without times: it cannot be used with --arrivals trace"
        )
    files = (options.nodes, options.pods, *options.filename)
    inputs = [path for path in files if path is not None]
    if options.curve is not None:
        check_writable("--curve", options.curve, _CURVE_KINDS, inputs)
    if options.html is not None:
        check_writable("--html", options.html, _PAGE_KINDS, inputs)
    if options.plot is not None:
        check_writable("--plot", options.plot, _IMAGE_KINDS, inputs)


def check_writable(option: str, path: Path, kinds: Sequence[str], inputs: Sequence[Path]) -> None:
    """Refuse a file that could not be written at the end, or was written by another program.

    Raises:
        ConfigurationError: it is such a one.
    """
    if path.suffix not in kinds:
        raise ConfigurationError(f"{option} {path}: the name must end in {' or '.join(kinds)}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(f"{option} {path}: cannot be written there")
    if path.resolve() in {each.resolve() for each in inputs}:
        raise ConfigurationError(f"{option} {path}: would overwrite what is read")
    if not _is_own(path):
        raise ConfigurationError(f"{option} {path}: exists and was not written by Stellwerk")


def _is_own(path: Path) -> bool:
    """Whether a file begins as those of its kind do that Stellwerk writes; an absent one may."""
    from stellwerk_simulation.report import BEGINNINGS  # noqa: PLC0415 as above

    beginning = BEGINNINGS[path.suffix]
    try:
        with path.open("rb") as file:
            begins = file.read(len(beginning))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return begins in {beginning, b""}
