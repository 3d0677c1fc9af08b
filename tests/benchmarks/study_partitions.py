"""`python -m tests.benchmarks.study_partitions --traces DIR`: one scheduler, and 2, 4, 8 of them.

The nodes of the published GPU trace are parted into pools that are alike, each with a scheduler of
its own: the simulation's, which decides as the operator does. Pods stay in the pool that their name
gives them, or go on to the next one where theirs has no room; or all schedulers see all nodes and
find out at the binding that another one was faster. Prints the tables of docs/scaling.md and draws
its pictures. How many pods a second so many schedulers bind follows from what one was measured to
spend on a pod of its own, and on hearing of one of the others'.
"""

import argparse
import heapq
import statistics
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from stellwerk.plugins.gpu.fragmentation import TypicalPod
from stellwerk.world.decide import apply, decide
from stellwerk_simulation.arrivals import Arrivals, gpu_capacity, inflated, typical_pods
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world
from stellwerk_simulation.ready_profiles import profile_of
from stellwerk_simulation.simulation import Simulation, SimulationOptions
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods
from tests.benchmarks.chart import line_chart

if TYPE_CHECKING:
    from stellwerk.backend.queued_pod import QueuedPod

PARTS: Final = (1, 2, 4, 8)
SEEDS: Final = (42,)
PROFILE: Final = "best-fit"
SHARE: Final = 1.3
_DAY_SECONDS: Final = 86_400
_RUNS_SECONDS: Final = 9_200
_EVENT_MS: Final = 0.0279
"""CPU of one watch event into cache and queue (docs/performance-stages.md, events)."""
_EVENTS_A_POD: Final = 5
"""Created, bound, two of the kubelet's, and its end."""
_OWN_MS: Final = 1000 / 1905 + 0.136 + 3 * _EVENT_MS
"""CPU that a pod costs its scheduler at 130,000 nodes: decided and bound in process
(`bench_scale`), both requests, parsing and confirming (docs/performance-stages.md), and the other
events."""
_FROM_PCT: Final = 60
_API_TODAY: Final = 1_000
"""Bindings a second of today's API servers (docs/performance.md, beside kube-scheduler)."""


def pools_of(nodes: Sequence[TraceNode], parts: int) -> list[list[TraceNode]]:
    """The nodes in pools that are alike: each has its share of every model and size."""
    alike = sorted(nodes, key=lambda node: (node.model, node.devices, node.name))
    rank = {node.name: number for number, node in enumerate(nodes)}
    pools = [alike[part::parts] for part in range(parts)]
    return [sorted(pool, key=lambda node: rank[node.name]) for pool in pools]


def home_of(pod: TracePod, parts: int) -> int:
    """The pool that a pod's name gives it."""
    return zlib.crc32(pod.name.encode()) % parts


@dataclass(slots=True)
class Placed:
    """What became of a list of pods."""

    pods: int = 0
    placed: int = 0
    tries: int = 0
    conflicts: int = 0
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Load asked for and allocated GPUs, both in percent."""

    def note(self, asked: int, used: int, capacity: int) -> None:
        """One more pod is decided on."""
        self.curve.append((100 * asked / capacity, 100 * used / capacity))

    def at(self, load: float) -> float:
        """What is allocated when so much has been asked for."""
        return next((used for asked, used in self.curve if asked >= load), self.curve[-1][1])


def partitioned(
    arrivals: Arrivals,
    parts: int,
    *,
    overflows: bool,
    timed: bool = False,
    typical: Sequence[TypicalPod],
    since: float = 0.0,
) -> Placed:
    """Each pool with its own scheduler; `since`: of pods that came earlier nothing is counted."""
    profile, options = profile_of(PROFILE, typical), SimulationOptions(timed=timed)
    simulations = [
        Simulation(Arrivals([], pool), profile, typical, 1, options)
        for pool in pools_of(arrivals.nodes, parts)
    ]
    capacity, found = gpu_capacity(arrivals.nodes), Placed()
    asked = used = 0
    ends: list[tuple[float, int]] = []
    for pod in arrivals.pods:
        while timed and ends and ends[0][0] <= pod.arrives_seconds:
            used -= heapq.heappop(ends)[1]
        counts = pod.arrives_seconds >= since
        home = home_of(pod, parts)
        tried = range(parts) if overflows else range(1)
        node = ""
        for turn in tried:
            found.tries += counts
            node = simulations[(home + turn) % parts].arrive(pod)
            if node:
                break
        asked += pod.total_milli
        if node:
            used += pod.total_milli
            if timed and pod.runs_seconds is not None:
                heapq.heappush(ends, (pod.arrives_seconds + pod.runs_seconds, pod.total_milli))
        if counts:
            found.pods += 1
            found.placed += bool(node)
        found.note(asked, used, capacity)
    return found


def optimistic(arrivals: Arrivals, parts: int, typical: Sequence[TypicalPod]) -> Placed:
    """All schedulers see all nodes, and decide on so many pods at once without one another.

    The first to bind has the node; another one finds out as it binds, where the node does not take
    its pod any more, and decides anew.
    """
    profile = profile_of(PROFILE, typical)
    active = ActivePods()
    world = make_world(arrivals.nodes, profile, 1, active)
    (served,) = world.profiles.served.values()
    pods, capacity, found = PodMaker(profile.scheduler_name), gpu_capacity(arrivals.nodes), Placed()
    asked = used = 0
    for together in _chunks(arrivals.pods, parts):
        begun: list[tuple[TracePod, QueuedPod, str]] = []
        for pod in together:
            world.queue.add(pods.pod(pod), 0.0)
            queued = world.queue.pop(active.get_nowait())
            assert queued is not None
            begun.append((pod, queued, decide(world, queued.pod, served).node_name))
        for pod, queued, wanted in begun:
            world.cache.update_snapshot()
            decision = decide(world, queued.pod, served)
            found.tries += 1
            row = world.cache.snapshot.row_of.get(wanted)
            if wanted and row is not None and not decision.search.found.fits[row]:
                found.conflicts += 1
                found.tries += 1
            elif wanted:
                decision.node_name, decision.failure = wanted, None
            effects = apply(world, queued, decision)
            asked += pod.total_milli
            found.pods += 1
            if effects.bind is not None:
                bound = effects.bind.with_node(effects.bind.node_name)
                world.cache.set_pod(bound)
                used += pod.total_milli
                found.placed += 1
            world.queue.done(queued.pod.uid)
            world.queue.delete(queued.pod.uid)
            found.note(asked, used, capacity)
        world.cache.update_snapshot()
    return found


def _chunks(pods: Sequence[TracePod], size: int) -> Iterator[Sequence[TracePod]]:
    return (pods[start : start + size] for start in range(0, len(pods), size))


# --- how many pods a second ---------------------------------------------------------------------


def rate(parts: int, tries: float = 1.0, *, filtered: bool = False) -> float:
    """Pods a second that so many processes bind, each on a core of its own.

    `tries`: decisions a pod; `filtered`: a process would not hear of pods that are not its own.
    """
    foreign_ms = 0.0 if filtered else _EVENTS_A_POD * _EVENT_MS
    cpu_ms = tries * _OWN_MS / parts + foreign_ms * (1 - 1 / parts)
    return 1000 / cpu_ms


def needed(api_rate: float, tries: Callable[[int], float]) -> int | None:
    """The fewest processes that keep up with an API server; None: no number of them does."""
    return next((parts for parts in range(1, 65) if rate(parts, tries(parts)) >= api_rate), None)


# --- the study ----------------------------------------------------------------------------------


def loads(traces: Path, pictures: Path | None) -> dict[int, float]:
    """Lists inflated to 130 % of the GPUs; returns the decisions a pod where pods go on."""
    nodes, pods = _read(traces)
    typical = typical_pods(pods)
    lines: dict[str, list[tuple[float, float]]] = {}
    tries: dict[int, float] = {}
    print("| schedulers | pods | GPUs at 100 %, 130 % | decisions a pod | conflicts |")
    print("|---|---|---|---|---|")
    for parts in PARTS:
        kinds: list[tuple[str, Callable[[Arrivals], Placed]]] = [
            ("stay", partial(partitioned, parts=parts, overflows=False, typical=typical)),
            ("go on", partial(partitioned, parts=parts, overflows=True, typical=typical)),
            ("share all nodes", partial(optimistic, parts=parts, typical=typical)),
        ]
        for name, run in kinds[:1] if parts == 1 else kinds:
            results = [run(inflated(nodes, pods, SHARE, seed)) for seed in SEEDS]
            at = [statistics.mean(each.at(load) for each in results) for load in (100, 130)]
            each_pod = statistics.mean(each.tries / each.pods for each in results)
            share = statistics.mean(each.conflicts / each.pods for each in results)
            shown = "alone" if parts == 1 else name
            conflicts = f"{100 * share:.1f} %" if name == "share all nodes" else "none"
            print(
                f"| {parts} | {shown} | {at[0]:.2f}, {at[1]:.2f} | {each_pod:.2f} | {conflicts} |"
            )
            if name == "go on" or parts == 1:
                tries[parts] = each_pod
            if name != "share all nodes":
                label = "one scheduler" if parts == 1 else f"{parts}, pods {name}"
                lines[label] = _idle(results[0].curve)
    if pictures is not None:
        chart = line_chart(
            "GPUs asked for that stay idle, % of all, by load asked for (%)",
            "load",
            "idle",
            lines,
            linear=True,
        )
        (pictures / "allocation.svg").write_text(chart)
    return tries


def days(traces: Path) -> None:
    """The day of the trace on which most pods came, after all that ran before; and a full one.

    The trace leaves nearly all GPUs idle at any time. On the full day its pods come in random
    order, three times over, one a second, and run until more than all GPUs are asked for.
    """
    nodes, pods = _read(traces)
    in_time = sorted(pods, key=lambda pod: pod.arrives_seconds)
    typical = typical_pods(pods)
    came = Counter(int(pod.arrives_seconds // _DAY_SECONDS) for pod in in_time)
    ((busiest, number),) = came.most_common(1)
    since = float(busiest * _DAY_SECONDS)
    until = [pod for pod in in_time if pod.arrives_seconds < since + _DAY_SECONDS]
    _print_day(f"day {busiest}, {number} pods", Arrivals(until, nodes), typical, since)
    numbers = Random(SEEDS[0])
    drawn = [pod for _ in range(3) for pod in pods]
    numbers.shuffle(drawn)
    full = [
        replace(
            pod,
            name=f"{pod.name}-{second}",
            arrives_seconds=float(second),
            runs_seconds=numbers.expovariate(1 / _RUNS_SECONDS),
        )
        for second, pod in enumerate(drawn)
    ]
    _print_day(f"a full day, {len(full)} pods", Arrivals(full, nodes), typical, 0.0)


def _print_day(title: str, arrivals: Arrivals, typical: Sequence[TypicalPod], since: float) -> None:
    print(f"\n{title}")
    print("| schedulers | pods | placed | decisions a pod | GPUs in use at the most |")
    print("|---|---|---|---|---|")
    for parts in PARTS:
        for overflows in (False, True)[: 1 if parts == 1 else 2]:
            found = partitioned(
                arrivals, parts, overflows=overflows, timed=True, typical=typical, since=since
            )
            kind = "alone" if parts == 1 else "go on" if overflows else "stay"
            most = max(used for _, used in found.curve)
            placed = f"{found.placed:,} of {found.pods:,}"
            each_pod = found.tries / found.pods
            print(f"| {parts} | {kind} | {placed} | {each_pod:.2f} | {most:.1f} % |")


def rates(tries: dict[int, float], pictures: Path | None) -> None:
    """How many pods a second schedulers bind, and from which API server on more of them pay."""
    print("\n| schedulers | pods/s, pods stay | pods/s, pods go on | if each heard of its own |")
    print("|---|---|---|---|")
    for parts in PARTS:
        on = rate(parts, tries[parts])
        alone = rate(parts, filtered=True)
        print(f"| {parts} | {rate(parts):,.0f} | {on:,.0f} | {alone:,.0f} |")
    print("\n| an API server of | needs |")
    print("|---|---|")
    for times in (1, 2, 3, 5, 7, 10):
        found = needed(times * _API_TODAY, lambda _: 1.0)
        shown = "no number of them is enough" if found is None else f"{found} schedulers"
        print(f"| {times} times today's rate, {times * _API_TODAY:,}/s | {shown} |")
    if pictures is not None:
        several = [1, 2, 3, 4, 6, 8, 12, 16]
        lines = {
            "each hears of all": [(float(n), rate(n)) for n in several],
            "of its own alone": [(float(n), rate(n, filtered=True)) for n in several],
            "API today": [(float(n), float(_API_TODAY)) for n in several],
            "ten times": [(float(n), 10.0 * _API_TODAY) for n in several],
        }
        chart = line_chart("Pods bound a second by schedulers", "schedulers", "pods/s", lines)
        (pictures / "throughput.svg").write_text(chart)


def _read(traces: Path) -> tuple[list[TraceNode], list[TracePod]]:
    nodes = read_nodes(traces / "openb_node_list_gpu_node.csv.xz")
    return nodes, read_pods(traces / "openb_pod_list_default.csv.xz")


def _idle(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is asked for and idle, at every percent from the first that matters on."""
    kept: dict[int, tuple[float, float]] = {}
    for asked, used in curve:
        if asked >= _FROM_PCT:
            kept[int(asked)] = (asked, min(100.0, asked) - used)
    return list(kept.values())


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, help="draw into this folder")
    options = parser.parse_args()
    tries = loads(options.traces, options.pictures)
    days(options.traces)
    rates(tries, options.pictures)


if __name__ == "__main__":
    main()
