"""`stellwerk simulate --sweep`: many runs over clusters, profiles and seeds, on any executor.

The command runs one. A grid is read strictly, each run is known by the hash of what goes into it,
and what came of it is in a file before the next one is waited for. Invariant: a run that is in the
file is never run again, and nothing that is in the file is lost, however a sweep ends.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final, Self

from stellwerk import __version__
from stellwerk_kube.errors import ConfigurationError, SchedulerError, UnreachableError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion
from stellwerk_kube.yaml_file import read_one_yaml
from stellwerk_simulation.answers import ComparedFigure, SweepAnswer, SweptCluster, SweptProfile
from stellwerk_simulation.comparison import comparison, differences, half_width_95
from stellwerk_simulation.experiment import Experiment, Progress, interrupts_left_to_parent
from stellwerk_simulation.figures import FIGURES, Figure
from stellwerk_simulation.ready_profiles import READY, check_names_a_file, manifest_in
from stellwerk_simulation.report import Lines, conclusions
from stellwerk_simulation.run_metrics import RunResult
from stellwerk_simulation.simulation import SimulationOptions
from stellwerk_simulation.sources import digest_of, source_of
from stellwerk_simulation.sweep_results import SweepResults, SweepRun

LOCAL: Final = "processes"
_DASK: Final = "dask:"
_MAX_SEEDS: Final = 100_000
"""Seeds of one sweep: each makes a run of every combination."""
_MAX_SEED: Final = 2**31 - 2
"""The highest seed that stands for itself: Go's generator takes seeds modulo 2**31 - 1."""
CONNECT_SECONDS: Final = 10
"""Longest time to reach the scheduler of Dask: it answers at once or is not there."""
_FULL_PCT: Final = 100
_IN_FLIGHT_PER_WORKER: Final = 4
"""Runs that are handed to an executor at once for each that goes on at a time."""

# --- the grid -----------------------------------------------------------------------------------

_GRID_KEYS: Final = ("clusters", "profiles", "seeds", "compare")
_CLUSTER_KEYS: Final = (
    "name",
    "nodes",
    "pods",
    "inflate",
    "arrivals",
    "onFailure",
    "planSeconds",
    "typicalPods",
)
_RANGE_KEYS: Final = ("from", "to")
_ARRIVALS: Final = ("fast", "trace")
_FAILURES: Final = ("drop", "queue")


@dataclass(frozen=True, slots=True)
class GridCluster:
    """A cluster of a grid: files of nodes and pods, and how pods arrive."""

    name: str
    nodes: Path
    pods: Path
    share: float | None
    typical_pods: Path | None
    run_options: SimulationOptions

    def identity(self, digest: Callable[[Path], str]) -> JsonObject:
        """Everything that goes into its runs, whatever it and its files are called."""
        typical = self.typical_pods
        return {
            "nodes": digest(self.nodes),
            "pods": digest(self.pods),
            "typicalPods": None if typical is None else digest(typical),
            "inflate": self.share,
            "timed": self.run_options.timed,
            "queues": self.run_options.queues,
            "planSeconds": self.run_options.plan_seconds,
        }


@dataclass(frozen=True, slots=True)
class Grid:
    """The runs of a sweep: every profile on every cluster with every seed."""

    clusters: Sequence[GridCluster]
    profiles: Mapping[str, Mapping[str, Any] | None]
    """By the name or the file that the grid has; None: it is a ready one."""
    seeds: Sequence[int]
    compared: Sequence[tuple[str, str]]
    """Pairs of profiles; each but the first with the first, unless the grid says others."""


def read_grid(file: Path) -> Grid:
    """The grid of a file; paths in it are relative to its folder.

    Raises:
        ConfigurationError: it cannot be read, or a key or a value in it is wrong.
    """
    document = read_one_yaml(file)
    grid = _object(str(file), document, _GRID_KEYS, required=("clusters", "profiles"))
    where = f"{file}: clusters"
    clusters = [
        _cluster(f"{where}[{number}]", each, file.parent)
        for number, each in enumerate(_list(where, grid["clusters"]))
    ]
    _each_once(where, [each.name for each in clusters])
    where = f"{file}: profiles"
    names = [_text(where, each) for each in _list(where, grid["profiles"])]
    _each_once(where, names)
    profiles = {name: _manifest(where, name, file.parent) for name in names}
    seeds = _seeds(f"{file}: seeds", grid.get("seeds", [42]))
    compared = [(names[0], name) for name in names[1:]]
    if "compare" in grid:
        where = f"{file}: compare"
        compared = [_pair(where, each, names) for each in _list(where, grid["compare"])]
    return Grid(clusters, profiles, seeds, compared)


def _object(
    where: str, value: object, known: Sequence[str], required: Sequence[str] = ()
) -> JsonObject:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: an object is expected, with {', '.join(known)}")
    for key in value:
        if key not in known:
            hint = suggestion(str(key), known)
            raise ConfigurationError(f"{where}: {str(key)[:80]!r} is not known{hint}")
    for key in required:
        if key not in value:
            raise ConfigurationError(f"{where}: {key} is missing")
    return value


def _list(where: str, value: object) -> Sequence[object]:
    if not isinstance(value, list) or not value:
        raise ConfigurationError(f"{where}: expected a list with at least one item")
    return value


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where}: expected a string, not {str(value)[:80]!r}")
    return value


def _one_of(where: str, value: object, known: Sequence[str]) -> str:
    text = _text(where, value)
    if text not in known:
        hint = suggestion(text, known)
        raise ConfigurationError(f"{where}: {text[:80]!r} is none of {', '.join(known)}{hint}")
    return text


def _number(where: str, value: object, least: float, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]  # it is a number
        shown = str(value)[:40]
        raise ConfigurationError(f"{where}: {shown!r} is not a number from {least:g} to {most:g}")
    return float(value)  # type: ignore[arg-type]  # as above


def _each_once(where: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(f"{where}: {name!r} occurs twice")
        seen.add(name)


def _cluster(where: str, value: object, folder: Path) -> GridCluster:
    fields = _object(where, value, _CLUSTER_KEYS, required=("name", "nodes", "pods"))

    def path(key: str) -> Path:
        return folder / _text(f"{where}.{key}", fields[key])

    arrivals = _one_of(f"{where}.arrivals", fields.get("arrivals", "fast"), _ARRIVALS)
    on_failure = _one_of(f"{where}.onFailure", fields.get("onFailure", "drop"), _FAILURES)
    plan_seconds = _number(f"{where}.planSeconds", fields.get("planSeconds", 30), 1, 1024)
    share = None
    if "inflate" in fields:
        share = _number(f"{where}.inflate", fields["inflate"], 0.01, 10)
        if arrivals == "trace":
            raise ConfigurationError(
                f"{where}: inflate makes a list without times: it cannot "
                "be used with arrivals trace"
            )
    return GridCluster(
        _text(f"{where}.name", fields["name"]),
        path("nodes"),
        path("pods"),
        share,
        path("typicalPods") if "typicalPods" in fields else None,
        SimulationOptions(arrivals == "trace", on_failure == "queue", plan_seconds),
    )


def _manifest(where: str, name: str, folder: Path) -> Mapping[str, Any] | None:
    if name in READY:
        return None
    check_names_a_file(name, f"{where}: there is no profile {name!r}")
    return manifest_in(folder / name)


def _seeds(where: str, value: object) -> Sequence[int]:
    """A list of numbers, or all from one to another."""
    if isinstance(value, dict):
        fields = _object(where, value, _RANGE_KEYS, required=_RANGE_KEYS)
        first, last = (
            round(_number(f"{where}.{key}", fields[key], 1, _MAX_SEED)) for key in _RANGE_KEYS
        )
        seeds = list(range(first, min(last, first + _MAX_SEEDS) + 1))
        if not seeds or last - first >= _MAX_SEEDS:
            raise ConfigurationError(f"{where}: {first} to {last} is empty, or has too many seeds")
        return seeds
    seeds = [round(_number(where, each, 1, _MAX_SEED)) for each in _list(where, value)]
    _each_once(where, [str(seed) for seed in seeds])
    return seeds


def _pair(where: str, value: object, names: Sequence[str]) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != len(_RANGE_KEYS):
        raise ConfigurationError(
            f"{where}: pairs of profiles are expected, such as [best-fit, fgd]"
        )
    first, second = (_one_of(where, each, names) for each in value)
    return first, second


# --- runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A run, as an executor is handed it."""

    run: SweepRun
    experiment: Experiment
    version: str = __version__


def run_task(task: SweepTask) -> RunResult:
    """Make a run, wherever this is called.

    Raises:
        ConfigurationError: the profile cannot be used, or this is another version of Stellwerk.
        SchedulerError: the run broke.
    """
    if task.version != __version__:
        message = (
            f"a worker has Stellwerk {__version__}, but the sweep was started with {task.version}"
        )
        raise ConfigurationError(message)
    run = task.run
    result = task.experiment.run_one(run.profile, run.seed, lambda _: None)
    return _judged_by(result)


def _judged_by(result: RunResult) -> RunResult:
    """The result with all that figures are made of, and without what every pod did."""
    one_percent = result.capacity / _FULL_PCT or 1.0
    loads = ((each, round(each.arrived / one_percent)) for each in result.events)
    kept = [each for each, load in loads if abs(load - _FULL_PCT) <= 1]
    last = result.events[-1:] if result.events else []
    events = kept if kept and last and kept[-1] == last[0] else [*kept, *last]
    return replace(result, events=events, nodes={}, left_out={})


@dataclass(slots=True)
class Sweep:
    """A grid, read with all its files."""

    grid: Grid
    experiments: Mapping[str, Experiment]
    """By the name of the cluster."""
    runs: Sequence[SweepRun]
    digest: str
    """The digest of the grid's clusters and profiles: a file of results belongs to them, with any
    seeds."""
    remarks: Sequence[str] = field(default_factory=list)

    @classmethod
    def of(cls, grid: Grid) -> "Sweep":
        """Read the files of a grid.

        Raises:
            ConfigurationError, JournalError: one of them cannot be used.
        """
        digests: dict[Path, str] = {}

        def digest(path: Path) -> str:
            if path not in digests:
                digests[path] = digest_of(path)
            return digests[path]

        manifests = {name: each for name, each in grid.profiles.items() if each is not None}
        experiments: dict[str, Experiment] = {}
        remarks: list[str] = []
        runs: list[SweepRun] = []
        for cluster in grid.clusters:
            read = Experiment.read(cluster.nodes, cluster.pods, cluster.share, cluster.run_options)
            expected = None
            if cluster.typical_pods is not None:
                expected = source_of(cluster.typical_pods, "typicalPods").pods()
            experiment = replace(read, expected=expected, manifests=manifests)
            found = [*experiment.check_profiles(list(grid.profiles)), *experiment.remarks()]
            remarks += [f"{cluster.name}: {each}" for each in found]
            experiments[cluster.name] = replace(experiment, others=())
            identity = cluster.identity(digest)
            runs += [
                SweepRun(_run_id(identity, name, manifest, seed), cluster.name, name, seed)
                for name, manifest in grid.profiles.items()
                for seed in grid.seeds
            ]
        identities = [[each.name, each.identity(digest)] for each in grid.clusters]
        whole = _digest([identities, [[name, grid.profiles[name]] for name in grid.profiles]])
        return cls(grid, experiments, runs, whole, remarks)

    def missing(self, results: SweepResults) -> list[SweepRun]:
        """The runs that are not in the file."""
        known = results.ids()
        return [run for run in self.runs if run.id not in known]

    def run(self, results: SweepResults, spec: str, jobs: int) -> None:
        """Make the runs that the file lacks, and put each into it as soon as it is there.

        Raises:
            ConfigurationError: a worker cannot make them.
            SchedulerError: a run broke; the others that were under way are in the file.
            UnreachableError: the executor cannot be reached.
        """
        missing = self.missing(results)
        if not missing:
            return
        progress = Progress(len(self.runs), unit="runs", done=len(self.runs) - len(missing))
        with _Workers(spec, min(jobs, len(missing))) as workers:
            try:
                progress.show(len(self.runs) - len(missing))
                for done, (run, result) in enumerate(self._made(workers, missing), 1):
                    results.put(run, result, __version__)
                    progress.show(len(self.runs) - len(missing) + done)
            finally:
                progress.end()

    def _made(
        self, workers: "_Workers", missing: Sequence[SweepRun]
    ) -> Iterator[tuple[SweepRun, RunResult]]:
        """Each run with its result, as they end."""
        left, broken = list(reversed(missing)), None
        under_way: dict[Future[RunResult], SweepRun] = {}
        while left or under_way:
            while left and broken is None and len(under_way) < workers.at_once:
                run = left.pop()
                task = SweepTask(run, self.experiments[run.cluster])
                under_way[workers.executor.submit(run_task, task)] = run
            if not under_way:
                break
            future = next(as_completed(under_way))
            run = under_way.pop(future)
            try:
                yield run, future.result()
            except SchedulerError as error:
                broken = broken or _of_run(run, error)
            except BrokenProcessPool as error:
                message = "the process of a run was ended from outside"
                raise SchedulerError(f"{_shown(run)}: {message}") from error
            except Exception as error:
                # Whatever an executor of others raises, or what a worker without Stellwerk says.
                raise ConfigurationError(
                    f"--executor {workers.spec}: a worker cannot run it: "
                    f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                ) from error
        if broken is not None:
            raise broken


def _shown(run: SweepRun) -> str:
    return f"{run.cluster}, {run.profile}, seed {run.seed}"


def _of_run(run: SweepRun, error: SchedulerError) -> SchedulerError:
    kind = ConfigurationError if isinstance(error, ConfigurationError) else SchedulerError
    return kind(f"{_shown(run)}: {error}")


def _run_id(
    cluster: JsonObject, profile: str, manifest: Mapping[str, Any] | None, seed: int
) -> str:
    return _digest([__version__, cluster, profile if manifest is None else manifest, seed])


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


# --- executors ----------------------------------------------------------------------------------


class _Workers:
    """An executor for the time of a sweep."""

    def __init__(self, spec: str, jobs: int) -> None:
        """`spec`: `processes`, `dask:ADDRESS`, or `MODULE:NAME` of what makes an executor."""
        self.spec = spec
        self.executor, self._close, workers = _opened(spec, jobs)
        self.at_once = max(1, workers) * _IN_FLIGHT_PER_WORKER

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it; runs that have not begun are dropped, those under way are not waited for."""
        self._close()


def _opened(spec: str, jobs: int) -> tuple[Executor, Callable[[], None], int]:
    if spec == LOCAL:
        context = get_context("spawn")
        with interrupts_left_to_parent():
            pool = ProcessPoolExecutor(jobs, context)
            # Workers start as runs are handed over, and are not to hear of Ctrl-C, either.
            futures = [pool.submit(_nothing) for _ in range(jobs)]
            for future in futures:
                future.result()
        return pool, lambda: _end(pool), jobs
    if spec.startswith(_DASK):
        return _dask(spec)
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise ConfigurationError(
            f"--executor {spec}: is neither {LOCAL}, nor dask:ADDRESS, nor the MODULE:NAME of a "
            "function that returns an executor"
        )
    try:
        executor = getattr(import_module(module), name)()
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ConfigurationError(f"--executor {spec}: {reason}") from error
    if not hasattr(executor, "submit"):
        raise ConfigurationError(f"--executor {spec}: what it returns has no submit")
    return executor, lambda: executor.shutdown(wait=False, cancel_futures=True), jobs


def _nothing() -> None:
    """Begin a worker process, and no more."""


def _end(pool: ProcessPoolExecutor) -> None:
    """Drop what has not begun, and end the processes: nothing of them is wanted any more."""
    processes = list((pool._processes or {}).values())  # noqa: SLF001 it has no other way
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _dask(spec: str) -> tuple[Executor, Callable[[], None], int]:
    """An executor of a Dask cluster.

    Raises:
        ConfigurationError: Dask is not installed.
        UnreachableError: there is no scheduler of Dask at the address.
    """
    address = spec.removeprefix(_DASK).removeprefix("//")
    try:
        make_client = import_module("distributed").Client
    except ImportError as error:
        message = f"--executor {spec} needs Dask: pip install 'stellwerk[sweeps]'"
        raise ConfigurationError(message) from error
    try:
        client = make_client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreachableError(f"--executor {spec}: cannot be reached: {reason}") from error
    return client.get_executor(pure=False), client.close, len(client.nthreads())


# --- the report ---------------------------------------------------------------------------------


def _interval(figure: Figure, runs: Sequence[RunResult]) -> tuple[float, float | None] | None:
    """Mean and half width of its 95 % interval over the seeds; None: no run has the figure."""
    known = [value for run in runs if (value := figure.of(run)) is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0], None
    return mean(known), half_width_95(stdev(known), len(known))


class SweepReport:
    """The results of a sweep, as far as they are in the file."""

    def __init__(self, sweep: Sweep, results: SweepResults) -> None:
        stored = results.of({run.id for run in sweep.runs})
        self._compared = sweep.grid.compared
        self.missing = len(sweep.runs) - len(stored)
        self.total = len(sweep.runs)
        self.file = str(results.file)
        self.by_cluster: dict[str, list[RunResult]] = {name: [] for name in sweep.experiments}
        for run in sweep.runs:
            if run.id in stored:
                result = replace(stored[run.id], profile=run.profile, seed=run.seed)
                self.by_cluster[run.cluster].append(result)

    def tables(self) -> list[tuple[str, Lines]]:
        """Tables with their titles: each cluster's profiles, and the comparisons."""
        found: list[tuple[str, Lines]] = []
        for cluster, runs in self.by_cluster.items():
            if runs:
                found.append((cluster, _profiles_table(runs)))
            found += [
                (
                    f"{cluster}: {second} against {first}",
                    comparison(first, second, differences(*pair)),
                )
                for first, second, pair in self._pairs(runs)
            ]
        return found

    def conclusions(self) -> list[str]:
        """Conclusions from the runs, in sentences."""
        several = len(self.by_cluster) > 1
        return [
            f"{cluster}: {each}" if several else each
            for cluster, runs in self.by_cluster.items()
            if runs
            for each in conclusions(_in_pairs(runs))
        ]

    def _pairs(
        self, runs: Sequence[RunResult]
    ) -> Iterator[tuple[str, str, tuple[list[RunResult], list[RunResult]]]]:
        """Two profiles each, with their runs of the seeds that both have."""
        for first, second in self._compared:
            pair = _paired(runs, first, second)
            if pair[0]:
                yield first, second, pair

    def answer(self) -> SweepAnswer:
        """The results for programs."""
        return SweepAnswer(
            results=self.file,
            runs=self.total,
            missing=self.missing,
            clusters=[
                SweptCluster(
                    cluster=cluster,
                    profiles=[
                        _swept(profile, [run for run in runs if run.profile == profile])
                        for profile in dict.fromkeys(run.profile for run in runs)
                    ],
                    comparisons=[
                        ComparedFigure(
                            first=first,
                            second=second,
                            figure=each.figure.name,
                            first_mean=each.first,
                            second_mean=each.second,
                            half_width=each.half_width,
                            verdict=each.verdict,
                        )
                        for first, second, pair in self._pairs(runs)
                        for each in differences(*pair)
                    ],
                )
                for cluster, runs in self.by_cluster.items()
            ],
            conclusions=self.conclusions(),
        )


def _paired(
    runs: Sequence[RunResult], first: str, second: str
) -> tuple[list[RunResult], list[RunResult]]:
    by_seed = [{run.seed: run for run in runs if run.profile == name} for name in (first, second)]
    seeds = [seed for seed in by_seed[0] if seed in by_seed[1]]
    return [by_seed[0][seed] for seed in seeds], [by_seed[1][seed] for seed in seeds]


def _in_pairs(runs: Sequence[RunResult]) -> list[RunResult]:
    """The runs of those seeds that every profile has."""
    profiles = list(dict.fromkeys(run.profile for run in runs))
    seeds = [{run.seed for run in runs if run.profile == name} for name in profiles]
    common = set.intersection(*seeds)
    return [run for run in runs if run.seed in common]


def _swept(profile: str, runs: Sequence[RunResult]) -> SweptProfile:
    found = {figure.name: interval for figure in FIGURES if (interval := _interval(figure, runs))}
    return SweptProfile(
        profile=profile,
        seeds=len(runs),
        compatibility=runs[0].compatibility,
        means={name: value for name, (value, _) in found.items()},
        half_widths={name: half for name, (_, half) in found.items() if half is not None},
    )


def _profiles_table(runs: Sequence[RunResult]) -> Lines:
    shown = [figure for figure in FIGURES if any(figure.of(run) is not None for run in runs)]
    lines: list[tuple[str, ...]] = [("profile", "seeds", *(figure.name for figure in shown))]
    for profile in dict.fromkeys(run.profile for run in runs):
        own = [run for run in runs if run.profile == profile]
        lines.append((profile, str(len(own)), *(_cell(figure, own) for figure in shown)))
    return lines


def _cell(figure: Figure, runs: Sequence[RunResult]) -> str:
    found = _interval(figure, runs)
    if found is None:
        return "-"
    value, half = found
    return figure.text(value) if half is None else f"{figure.text(value)} ± {half:.2f}"
