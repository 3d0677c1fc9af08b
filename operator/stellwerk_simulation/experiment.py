"""Several runs over one trace: every profile with every seed, side by side in processes.

The command runs one. Invariant: what a run gives depends on trace, profile, share and seed, and
not on how many run at once.
"""

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from stellwerk.framework.types import PluginFailure
from stellwerk.models.gpu import DEVICES, MILLI, WHOLE
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.registry import known_plugins, watched_kinds
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.profile import LoadedProfile, load_profile
from stellwerk_kube.clock import Clock, SystemClock
from stellwerk_kube.compatibility import Compatibility
from stellwerk_kube.errors import ConfigurationError, ProfileError, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.resource_amounts import CPU, MEMORY
from stellwerk_kube.untrusted_text import terminal
from stellwerk_simulation.arrivals import (
    Arrivals,
    as_listed,
    gpu_capacity,
    inflated,
    typical_pods,
)
from stellwerk_simulation.cluster_objects import ClusterObjects, not_read
from stellwerk_simulation.ready_profiles import NEWEST, profile_of
from stellwerk_simulation.run_metrics import RunResult
from stellwerk_simulation.simulation import Simulation, SimulationOptions
from stellwerk_simulation.sources import Source, source_of
from stellwerk_simulation.trace import TraceNode, TracePod

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized


_BAR_CHARACTERS: Final = 30
"""Characters of the bar that shows progress."""
_MIN_WHOLE_RATE: Final = 10
"""Rates from here on are shown without decimals."""


class Progress:
    """One line that is written over and over."""

    def __init__(
        self,
        total: int,
        output: TextIO | None = None,
        clock: Clock | None = None,
        *,
        unit: str = "pods",
        done: int = 0,
    ) -> None:
        """`total`: arrivals of all runs, or other units; `output`: standard error, unless given.

        `done`: how many of them were there before.
        """
        self._total, self._unit, self._done = max(1, total), unit, done
        self._output = terminal(output or sys.stderr)
        self._clock = clock or SystemClock()
        self._started_seconds = self._clock.monotonic()
        self._shown = self._output.isatty()

    def show(self, before: int, arrived: int = 0) -> None:
        """Say how many pods have arrived, in runs before this one and in it."""
        if self._shown:
            self._output.write(f"\r{self.line(before + arrived)}\x1b[K")
            self._output.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            self._output.write("\r\x1b[K")
            self._output.flush()

    def line(self, arrived: int) -> str:
        """The bar with rate and time left."""
        share = min(1.0, arrived / self._total)
        bar = "#" * int(_BAR_CHARACTERS * share)
        elapsed = self._clock.monotonic() - self._started_seconds
        rate = (arrived - self._done) / elapsed if elapsed > 0 else 0.0
        left = f"{(self._total - arrived) / rate:.0f} s left" if rate else "…"
        shown = f"{rate:.0f}" if rate >= _MIN_WHOLE_RATE or not rate else f"{rate:.2f}"
        return f"[{bar:<{_BAR_CHARACTERS}}] {100 * share:3.0f} %  {shown} {self._unit}/s  {left}"


_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Shape:
    """The amounts and the GPU model of nodes that are alike."""

    amounts: frozenset[tuple[str, int]]
    model: str


def pods_that_never_fit(pods: Sequence[TracePod], nodes: Sequence[TraceNode]) -> list[TracePod]:
    """Those of the pods that are larger than every node, in their order."""
    shapes = {_Shape(frozenset(_offers(node).items()), node.model) for node in nodes}
    offers = [(dict(shape.amounts), shape.model) for shape in shapes]
    known: dict[tuple[frozenset[tuple[str, int]], tuple[str, ...]], bool] = {}
    found = []
    for pod in pods:
        wanted = _wants(pod)
        key = frozenset(wanted.items()), pod.models
        if key not in known:
            known[key] = any(_fits(wanted, pod.models, *offer) for offer in offers)
        if not known[key]:
            found.append(pod)
    return found


def _offers(node: TraceNode) -> Mapping[str, int]:
    if node.manifest is not None:
        return parse_node(node.manifest).allocatable
    return {
        CPU: node.cpu_millis,
        MEMORY: node.memory_mib * _MIB,
        DEVICES: node.devices,
        MILLI: node.devices * WHOLE,
    }


def _wants(pod: TracePod) -> Mapping[str, int]:
    if pod.manifest is not None:
        return parse_pod(pod.manifest).amounts.requests
    return {
        CPU: pod.cpu_millis,
        MEMORY: pod.memory_mib * _MIB,
        DEVICES: pod.devices,
        MILLI: pod.total_milli,
    }


def _fits(
    wanted: Mapping[str, int], models: Sequence[str], offered: Mapping[str, int], model: str
) -> bool:
    amounts = all(amount <= offered.get(resource, 0) for resource, amount in wanted.items())
    return amounts and (not models or model in models)


_FULL_PCT: Final = 100
_PROGRESS_SECONDS: Final = 0.2
"""Time between two updates of the line that shows progress."""
_MAX_NAMED_PODS: Final = 3
"""Pods that are named of those that fit nowhere."""

_shared: "_Shared | None" = None
"""In a worker process: what it has in common with the others."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A trace, and how pods arrive."""

    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]
    share: float | None
    """The share of the GPUs that arriving pods ask for together; None: the list as it is."""
    run_options: SimulationOptions = field(default_factory=SimulationOptions)
    cluster_objects: ClusterObjects = field(default_factory=ClusterObjects)
    """Other objects in the cluster."""
    notes: Sequence[str] = ()
    """Oddities of the input."""
    others: Sequence[JsonObject] = ()
    """Every object of the sources."""
    expected: Sequence[TracePod] | None = None
    """The pods that ready profiles expect; None: those that arrive."""
    manifests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Profiles by name that are not looked for in files."""
    auto: Compatibility = NEWEST
    """The meaning of `compatibility: auto`."""

    @classmethod
    def read(
        cls,
        nodes: Path,
        pods: Path,
        share: float | None,
        run_options: SimulationOptions | None = None,
    ) -> Self:
        """An experiment over files: CSV as traces are published, manifests, or recordings.

        Raises:
            ConfigurationError, JournalError: a file cannot be used.
        """
        source = source_of(nodes, "--nodes")
        other = source if pods == nodes else source_of(pods, "--pods")
        return cls.of(source, other, share, run_options)

    @classmethod
    def of(
        cls,
        nodes: Source,
        pods: Source,
        share: float | None,
        run_options: SimulationOptions | None = None,
    ) -> Self:
        """An experiment over the nodes of one source and the pods of another.

        Raises:
            ConfigurationError: there is no node, or no pod, or one is wrong.
        """
        sources = [nodes] if nodes is pods else [nodes, pods]
        others = [obj for source in sources for obj in source.others]
        notes = [source.note for source in sources if source.note]
        places = " and ".join(source.place for source in sources)
        cluster_objects = ClusterObjects.to_begin_with(others, places)
        run_options = run_options or SimulationOptions()
        of_nodes = nodes.nodes()
        arriving = pods.pods(of_nodes, [] if nodes is pods else nodes.others)
        experiment = cls(
            of_nodes, arriving, share, run_options, cluster_objects, notes, tuple(others)
        )
        experiment.check(f"in {nodes.place}", f"in {pods.place}")
        return experiment

    def check(self, of_nodes: str, of_pods: str) -> None:
        """Raise what keeps the list from being inflated; `of_nodes`, `of_pods`: where they stand.

        Raises:
            ConfigurationError: there is no GPU, or no request for one.
        """
        if self.share is None:
            return
        if not gpu_capacity(self.nodes):
            raise ConfigurationError(f"--inflate: no node {of_nodes} has a GPU")
        if not any(pod.total_milli for pod in self.pods):
            raise ConfigurationError(f"--inflate: no pod {of_pods} asks for a GPU")

    @property
    def until_pct(self) -> int:
        """Up to which load curves go."""
        if self.share is not None:
            return round(_FULL_PCT * self.share)
        demand = sum(pod.total_milli for pod in self.pods)
        return round(_FULL_PCT * demand / max(1, gpu_capacity(self.nodes)))

    def described(self) -> str:
        """The experiment in a sentence."""
        asked = "as listed" if self.share is None else f"inflated to {self.share:.0%} of all GPUs"
        come = "by the times of the trace" if self.run_options.timed else "one a second, and stay"
        fate = "wait in the queue" if self.run_options.queues else "are dropped"
        return (
            f"{len(self.nodes):,} nodes and {len(self.pods):,} pods, {asked}. Pods come {come}; "
            f"those that fit on no node {fate}."
        )

    def remarks(self, profiles: Sequence[str] = ()) -> list[str]:
        """Remarks on what is odd about the trace, and what these profiles do about it."""
        found = [*self.notes]
        read = frozenset[str]().union(*(watched_kinds(self._profile(each)) for each in profiles))
        if unread := not_read(self.others, read):
            found.append(f"simulated without {unread}")
        groups = any(GANG_SCHEDULING in self._profile(each).plugins.names for each in profiles)
        lacking = {
            pod.name: what
            for pod in self.pods
            if pod.manifest is not None
            if (what := self.cluster_objects.lacking(pod.manifest, groups=groups))
        }
        if lacking:
            name, what = next(iter(lacking.items()))
            named = f"name objects that do not exist and wait for them, such as {name} for {what}"
            found.append(f"{len(lacking)} of {len(self.pods)} pods {named}")
        never_fit = pods_that_never_fit(self.pods, self.nodes)
        if never_fit:
            names = ", ".join(pod.name for pod in never_fit[:_MAX_NAMED_PODS])
            fate = "wait to the end" if self.run_options.queues else "are dropped"
            fate = f"fit on no node, not even an empty one, and {fate}"
            found.append(f"{len(never_fit)} of {len(self.pods)} pods {fate}, {names} among them")
        return found

    def arrivals(self, seed: int) -> Arrivals:
        """The pods and the ranked nodes of a seed."""
        if self.share is None:
            arrivals = as_listed(self.nodes, self.pods)
        else:
            arrivals = inflated(self.nodes, self.pods, self.share, seed)
        return replace(arrivals, cluster_objects=self.cluster_objects)

    def _profile(self, name: str) -> LoadedProfile:
        if name in self.manifests:
            try:
                return load_profile(self.manifests[name], known_plugins(), self.auto)
            except ProfileError as error:
                raise ConfigurationError(f"{name}: {error}") from error
        expected = self.pods if self.expected is None else self.expected
        return profile_of(name, typical_pods(expected), expected, self.auto)

    def run_one(self, profile: str, seed: int, tick: Callable[[int], None]) -> RunResult:
        """One run; `tick` is called with the arrivals so far now and then.

        Raises:
            ConfigurationError: the profile cannot be used.
            SchedulerError: a plugin raised.
        """
        typical, arrivals = typical_pods(self.pods), self.arrivals(seed)
        try:
            loaded = self._profile(profile)
            simulation = Simulation(arrivals, loaded, typical, seed, self.run_options)
        except ProfileError as error:
            raise ConfigurationError(f"--profile {profile}: {error}") from error
        try:
            result = simulation.run(arrivals.pods, tick)
        except PluginFailure as failure:
            raise SchedulerError(f"--profile {profile}: {failure}") from failure
        return replace(result, profile=profile)

    def check_profiles(self, profiles: Sequence[str]) -> list[str]:
        """Remarks on what is odd about profiles, and what is done about it.

        Raises:
            ConfigurationError: a profile cannot be used.
        """
        loaded = {profile: self._profile(profile) for profile in profiles}
        return [
            f"--profile {name}: its extenders are not asked"
            for name, profile in loaded.items()
            if profile.spec.extenders
        ]

    def run(self, profiles: Sequence[str], seeds: Sequence[int], jobs: int) -> list[RunResult]:
        """Every profile with every seed, in that order, with a progress bar on a terminal.

        Raises:
            ConfigurationError: a profile cannot be used; nothing has been run then.
            SchedulerError: a run broke.
        """
        self.check_profiles(profiles)
        runs = [(profile, seed) for profile in profiles for seed in seeds]
        lengths = {seed: len(self.arrivals(seed).pods) for seed in seeds}
        progress = Progress(sum(lengths[seed] for _, seed in runs))
        try:
            if min(jobs, len(runs)) > 1:
                return self._run_in_processes(runs, jobs, progress)
            results: list[RunResult] = []
            arrived = 0
            for profile, seed in runs:
                results.append(self.run_one(profile, seed, partial(progress.show, arrived)))
                arrived += lengths[seed]
            return results
        finally:
            progress.end()

    def _run_in_processes(
        self, runs: Sequence[tuple[str, int]], jobs: int, progress: Progress
    ) -> list[RunResult]:
        context = multiprocessing.get_context("spawn")
        shared = _Shared(context.Value("q", 0), context.Value("b", 0))
        executor = ProcessPoolExecutor(
            min(jobs, len(runs)), context, initializer=_start_worker, initargs=(shared,)
        )
        try:
            with interrupts_left_to_parent():
                futures = [executor.submit(_run_in_worker, self, *each) for each in runs]
            pending: set[Future[RunResult]] = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_PROGRESS_SECONDS)
                progress.show(shared.arrived.value)
                for future in done:
                    future.result()  # a run that broke ends the others that have not begun
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            message = "cannot simulate: the process of a run was ended from outside"
            raise SchedulerError(message) from error
        finally:
            shared.over.value = 1
            executor.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Shared:
    """Data that the processes of an experiment have in common."""

    arrived: "Synchronized[int]"
    """Arrivals of all runs together."""
    over: "Synchronized[int]"
    """1 as soon as no result is wanted any more."""


class _NotWantedError(Exception):
    """The experiment has ended before this run."""


@contextmanager
def interrupts_left_to_parent() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C; this one ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_worker(shared: _Shared) -> None:
    global _shared  # noqa: PLW0603 a worker process has one, handed over at its start
    _shared = shared


def _run_in_worker(experiment: Experiment, profile: str, seed: int) -> RunResult:
    counted = 0

    def tick(number: int) -> None:
        nonlocal counted
        if _shared is not None:
            if _shared.over.value:
                raise _NotWantedError
            with _shared.arrived.get_lock():
                _shared.arrived.value += number - counted
        counted = number

    return experiment.run_one(profile, seed, tick)
