"""Several runs over one trace: every profile with every seed, side by side in processes.

The command runs one. Invariant: what a run gives depends on trace, profile, share and seed, and
not on how many run at once.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from stellwerk.errors import ConfigurationError, ProfileError, SchedulerError
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.models.json_values import JsonObject
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
from stellwerk_simulation.manifests import (
    is_manifest_file,
    nodes_of,
    pods_of,
    read_objects,
)
from stellwerk_simulation.progress import Progress
from stellwerk_simulation.ready_profiles import profile_of
from stellwerk_simulation.simulation import Simulation
from stellwerk_simulation.surroundings import Surroundings, not_read
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_FULL_PCT: Final = 100
_LOOK_SECONDS: Final = 0.2
_NAMED: Final = 3
"""So many of the pods that fit nowhere are named."""

_arrived: "Synchronized[int] | None" = None
"""In a worker process: arrivals of all processes together."""


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
    not_read: str = ""
    """What else the input holds that no decision reads."""
    expected: Sequence[TracePod] | None = None
    """The pods that ready profiles expect; None: those that arrive."""

    @classmethod
    def read(
        cls, nodes: Path, pods: Path, share: float | None, conduct: Conduct | None = None
    ) -> Self:
        """An experiment over files: CSV as traces are published, or manifests.

        Raises:
            ConfigurationError: a file cannot be used.
        """
        files = dict.fromkeys(path for path in (nodes, pods) if is_manifest_file(path))
        objects = {path: read_objects(path) for path in files}
        everything = [obj for path in files for obj in objects[path]]
        experiment = cls(
            nodes_of(objects[nodes], str(nodes)) if nodes in files else read_nodes(nodes),
            pods_of(objects[pods], str(pods)) if pods in files else read_pods(pods),
            share,
            conduct or Conduct(),
            Surroundings.among(everything, " and ".join(map(str, files))),
            not_read(everything),
        )
        experiment.check(f"in {nodes}", f"in {pods}")
        return experiment

    @classmethod
    def of_objects(
        cls, objects: Sequence[JsonObject], share: float | None, conduct: Conduct
    ) -> Self:
        """An experiment over the nodes and pods of a cluster.

        Raises:
            ConfigurationError: there is no node, or no pod.
        """
        name = "the cluster"
        experiment = cls(
            nodes_of(objects, name),
            pods_of(objects, name),
            share,
            conduct,
            Surroundings.among(objects, name),
            not_read(objects),
        )
        experiment.check("there", "there")
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

    def remarks(self) -> list[str]:
        """What is odd about the trace, and what is done about it."""
        found = (
            [f"simulated without {self.not_read}: no decision reads them"] if self.not_read else []
        )
        shapes = {replace(node, name="", hourly_price=0.0) for node in self.nodes}
        hopeless = [pod for pod in self.pods if not any(_fits(pod, shape) for shape in shapes)]
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

    def run(self, profiles: Sequence[str], seeds: Sequence[int], jobs: int) -> list[RunResult]:
        """Every profile with every seed, in that order, with a progress bar on a terminal.

        Raises:
            ConfigurationError: a profile cannot be used; nothing has been run then.
            SchedulerError: a run broke.
        """
        for profile in profiles:
            self._profile(profile)
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
        arrived = context.Value("q", 0)
        executor = ProcessPoolExecutor(
            min(jobs, len(runs)), context, initializer=_start_worker, initargs=(arrived,)
        )
        try:
            futures = [executor.submit(_run_in_worker, self, *each) for each in runs]
            pending: set[Future[RunResult]] = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_LOOK_SECONDS)
                progress.show(arrived.value)
                for future in done:
                    future.result()  # a run that broke ends the others that have not begun
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            message = "cannot simulate: the process of a run was ended from outside"
            raise SchedulerError(message) from error
        finally:
            executor.shutdown(cancel_futures=True)


def _start_worker(arrived: "Synchronized[int]") -> None:
    global _arrived  # noqa: PLW0603 a worker process has one, handed over at its start
    _arrived = arrived


def _run_in_worker(experiment: Experiment, profile: str, seed: int) -> RunResult:
    counted = 0

    def tick(number: int) -> None:
        nonlocal counted
        if _arrived is not None:
            with _arrived.get_lock():
                _arrived.value += number - counted
        counted = number

    return experiment.run_one(profile, seed, tick)


def _fits(pod: TracePod, node: TraceNode) -> bool:
    """Whether an empty node takes the pod."""
    return (
        pod.cpu_millis <= node.cpu_millis
        and pod.memory_mib <= node.memory_mib
        and pod.devices <= node.devices
        and (not pod.models or node.model in pod.models)
    )
