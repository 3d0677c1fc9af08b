"""Several runs over one trace: every profile with every seed, side by side in processes.

The command runs one. Invariant: what a run gives depends on trace, profile, share and seed, and
not on how many run at once.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from stellwerk.errors import ConfigurationError, ProfileError, SchedulerError
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.models.profile import LoadedProfile
from stellwerk_simulation.account import RunResult
from stellwerk_simulation.arrivals import (
    Arrivals,
    as_listed,
    gpu_capacity,
    inflated,
    typical_pods,
)
from stellwerk_simulation.conduct import Conduct
from stellwerk_simulation.hopeless import pods_that_fit_nowhere
from stellwerk_simulation.progress import Progress
from stellwerk_simulation.ready_profiles import profile_of
from stellwerk_simulation.simulation import Simulation
from stellwerk_simulation.sources import Source, source_of
from stellwerk_simulation.surroundings import Surroundings, not_read
from stellwerk_simulation.trace import TraceNode, TracePod

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_FULL_PCT: Final = 100
_LOOK_SECONDS: Final = 0.2
_NAMED: Final = 3
"""So many of the pods that fit nowhere are named."""

_shared: "_Shared | None" = None
"""In a worker process: what it has in common with the others."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A trace, and how pods arrive."""

    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]
    share: float | None
    """Of the GPUs that arriving pods ask for together; None: the list as it is."""
    conduct: Conduct = field(default_factory=Conduct)
    surroundings: Surroundings = field(default_factory=Surroundings)
    """What else there is in the cluster."""
    notes: Sequence[str] = ()
    """What is odd about the input."""
    expected: Sequence[TracePod] | None = None
    """The pods that ready profiles expect; None: those that arrive."""

    @classmethod
    def read(
        cls, nodes: Path, pods: Path, share: float | None, conduct: Conduct | None = None
    ) -> Self:
        """An experiment over files: CSV as traces are published, manifests, or recordings.

        Raises:
            ConfigurationError, JournalError: a file cannot be used.
        """
        source = source_of(nodes)
        return cls.of(source, source if pods == nodes else source_of(pods), share, conduct)

    @classmethod
    def of(
        cls, nodes: Source, pods: Source, share: float | None, conduct: Conduct | None = None
    ) -> Self:
        """An experiment over the nodes of one source and the pods of another.

        Raises:
            ConfigurationError: there is no node, or no pod, or one is wrong.
        """
        sources = [nodes] if nodes is pods else [nodes, pods]
        others = [obj for source in sources for obj in source.others]
        unread = not_read(others)
        notes = [source.note for source in sources if source.note]
        if unread:
            notes.append(f"simulated without {unread}")
        places = " and ".join(source.place for source in sources)
        surroundings = Surroundings.to_begin_with(others, places)
        conduct = conduct or Conduct()
        experiment = cls(nodes.nodes(), pods.pods(), share, conduct, surroundings, notes)
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
        """What is simulated, as a sentence."""
        asked = "as listed" if self.share is None else f"inflated to {self.share:.0%} of all GPUs"
        come = "by the times of the trace" if self.conduct.timed else "one a second, and stay"
        fate = "wait in the queue" if self.conduct.queues else "are dropped"
        return (
            f"{len(self.nodes):,} nodes and {len(self.pods):,} pods, {asked}. Pods come {come}; "
            f"those that no node takes {fate}."
        )

    def remarks(self) -> list[str]:
        """What is odd about the trace, and what is done about it."""
        found = [*self.notes]
        hopeless = pods_that_fit_nowhere(self.pods, self.nodes)
        if hopeless:
            names = ", ".join(pod.name for pod in hopeless[:_NAMED])
            fate = "wait to the end" if self.conduct.queues else "are dropped"
            fate = f"fit no node even if it is empty and {fate}"
            found.append(f"{len(hopeless)} of {len(self.pods)} pods {fate}, {names} among them")
        return found

    def arrivals(self, seed: int) -> Arrivals:
        """The pods and the ranked nodes of a seed."""
        if self.share is None:
            arrivals = as_listed(self.nodes, self.pods)
        else:
            arrivals = inflated(self.nodes, self.pods, self.share, seed)
        return replace(arrivals, surroundings=self.surroundings)

    def _profile(self, name: str) -> LoadedProfile:
        expected = self.pods if self.expected is None else self.expected
        return profile_of(name, typical_pods(expected), expected)

    def run_one(self, profile: str, seed: int, tick: Callable[[int], None]) -> RunResult:
        """One run; `tick` is called with the arrivals so far now and then.

        Raises:
            ConfigurationError: the profile cannot be used.
            SchedulerError: a plugin raised.
        """
        typical, arrivals = typical_pods(self.pods), self.arrivals(seed)
        try:
            loaded = self._profile(profile)
            simulation = Simulation(arrivals, loaded, typical, seed, self.conduct)
        except ProfileError as error:
            raise ConfigurationError(f"--profile {profile}: {error}") from error
        try:
            result = simulation.run(arrivals.pods, tick)
        except PluginFailure as failure:
            raise SchedulerError(f"--profile {profile}: {failure}") from failure
        return replace(result, profile=profile)

    def check_profiles(self, profiles: Sequence[str]) -> list[str]:
        """What is odd about profiles, and what is done about it.

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
            with _interrupts_left_to_parent():
                futures = [executor.submit(_run_in_worker, self, *each) for each in runs]
            pending: set[Future[RunResult]] = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_LOOK_SECONDS)
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
    """What the processes of an experiment have in common."""

    arrived: "Synchronized[int]"
    """Arrivals of all runs together."""
    over: "Synchronized[int]"
    """1 as soon as no result is wanted any more."""


class _NotWantedError(Exception):
    """The experiment has ended before this run."""


@contextmanager
def _interrupts_left_to_parent() -> Iterator[None]:
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
