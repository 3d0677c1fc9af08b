"""Answers of simulations, plans, replays and benchmarks, as programs read them.

The command line prints them with `-o json|yaml`; docs/answers.json has their schemas. Invariant: a
field that is not known is absent, and an amount of something is a number with its unit in its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.what_if import TemplateOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPod(PortAnswer):
    """A pod of a simulation: where it went, or why it went nowhere."""

    pod: str
    node: str | None = None
    reason: str | None = None
    """The reason for having no node at the end, as the last attempt said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun(PortAnswer):
    """One profile with one seed."""

    profile: str
    seed: int
    compatibility: str
    """The Kubernetes release that the decisions followed."""
    placed: int
    left_out: int
    """Pods that got no node, or lost it to others."""
    figures: Mapping[str, float]
    """By their names in the table."""
    pods: Sequence[SimulatedPod]
    """The pods, but for those of `templates`."""
    templates: Sequence[TemplateOutcome] | None = None
    """Controllers with more than 1,000 pods, whose pods are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure(PortAnswer):
    """By how much the second of two profiles differs in one figure, over the seeds in pairs."""

    first: str
    second: str
    """The profiles."""
    figure: str
    first_mean: float
    second_mean: float
    half_width: float | None = None
    """Half the width of the 95 % interval of the difference; absent: one seed gives none."""
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationAnswer(PortAnswer):
    """Everything that came of `stellwerk simulate`."""

    runs: Sequence[SimulatedRun]
    comparisons: Sequence[ComparedFigure] = ()
    conclusions: Sequence[str]
    """Conclusions from the runs, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptProfile(PortAnswer):
    """One profile on one cluster, over the seeds."""

    profile: str
    seeds: int
    compatibility: str
    """The Kubernetes release that the decisions followed."""
    means: Mapping[str, float]
    """The mean of each figure, by its name in the table."""
    half_widths: Mapping[str, float]
    """Half the widths of the 95 % intervals of the means; one seed gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptCluster(PortAnswer):
    """The profiles of a sweep on one of its clusters."""

    cluster: str
    profiles: Sequence[SweptProfile]
    comparisons: Sequence[ComparedFigure]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer(PortAnswer):
    """Everything that came of `stellwerk simulate --sweep`."""

    results: str
    """The file that holds them."""
    runs: int
    missing: int
    """Those of them that are not in the file."""
    clusters: Sequence[SweptCluster]
    conclusions: Sequence[str]
    """Conclusions from the runs, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer(PortAnswer):
    """The nodes that would hold pods, `stellwerk plan fit`."""

    compatibility: str
    """The Kubernetes release that the simulations followed."""
    nodes: Mapping[str, int]
    """Nodes of each shape, without the cluster's nodes: their free room does not count."""
    cost: float
    bound: float
    """No set of these shapes costs less."""
    placed: int
    homeless: Mapping[str, str]
    """Pods that no shape holds even if it is empty, with the reason."""
    unplanned: Mapping[str, str] | None = None
    """Pods that found no node in addition to the others, with the reason."""
    templates: Sequence[TemplateOutcome] | None = None
    """Controllers with more than 1,000 pods, whose pods are counted, and not in the two above. A
    kind of node is a shape."""
    assumed: Sequence[str] | None = None
    """Assumptions of the plan, and things that it leaves aside, a sentence each."""
    left_out: Mapping[str, str] | None = None
    """Pods for which no node was looked for, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove(PortAnswer):
    """A pod that is evicted, and where it is expected."""

    pod: str
    from_node: Annotated[str, Field(alias="from")]
    to: str
    ties: Sequence[str]
    """Nodes that score the same."""
    held: bool
    """Its node is cordoned meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragAnswer(PortAnswer):
    """The moves that free nodes or GPUs, `stellwerk plan defrag`."""

    compatibility: str
    """The Kubernetes release that the simulations followed."""
    goal: str
    frees: Sequence[str]
    cordons: Sequence[str]
    moves: Sequence[PlannedMove]
    simulations: int
    waiting: int
    """Pods that wait for a node and may take what becomes free."""
    stay: Mapping[str, int]
    """The number of pods that stay, by reason."""
    nothing_found: str | None = None
    """The things that hold the pods, where no moves were found that reach the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDifference(PortAnswer):
    """A decision that differs from the recorded one."""

    pod: str
    attempt: int
    after_seconds: float
    recorded: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer(PortAnswer):
    """A journal that was decided again, `stellwerk simulate --replay`."""

    compatibility: Sequence[str] = ()
    """The Kubernetes releases that the decisions followed, as the journal or a profile says."""
    decisions: int
    equal: int
    groups: int
    """Decisions on groups, among them."""
    unknown: int
    """Decisions for pods that the journal does not hold."""
    differences: Sequence[ReplayDifference]
    bound_by_others: int | None = None
    """Bindings of another scheduler."""
    among_best: int | None = None
    """Those of them on one of the best nodes by the profile."""
    feasible: int | None = None
    """Those of them on a node that takes the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedProfile(PortAnswer):
    """Figures of a journal's pods under one profile, or as recorded."""

    profile: str
    compatibility: Sequence[str] = ()
    """The Kubernetes releases that its decisions followed."""
    placed: int
    arrived: int
    waited_p50_seconds: float
    waited_p99_seconds: float
    nodes_in_use: float
    most_nodes_in_use: int
    preempted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayComparison(PortAnswer):
    """`stellwerk simulate --replay --profile`: the pods of a journal under other profiles."""

    profiles: Sequence[ReplayedProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun(PortAnswer):
    """One workload with one scheduler."""

    workload: str
    scheduler: str
    pods: int
    bound: int
    """Pods that had a node in time; without any, there are no figures."""
    seconds: float | None = None
    """From the first pod's creation to the last binding."""
    pods_per_second: float | None = None
    p50_milliseconds: float | None = None
    """From a pod's creation to its binding, as a watch told of it."""
    p90_milliseconds: float | None = None
    p99_milliseconds: float | None = None
    cpu_milliseconds_per_pod: float | None = None
    """CPU time of the scheduler, on the embedded cluster alone."""
    peak_mib: float | None = None
    """The scheduler's largest size up to then, likewise."""
    api_server_cpu_milliseconds_per_pod: float | None = None
    """CPU time of the API server, the creation of the pods included; absent where its /metrics
    cannot be read."""
    etcd_cpu_milliseconds_per_pod: float | None = None
    """CPU time of etcd, where `--etcd-metrics` names its address."""
    requests_per_pod: Mapping[str, float] | None = None
    """Requests to the API server by verb, resource and status, such as "POST pods/binding 201"."""
    request_bytes_per_pod: int | None = None
    """Bytes of the bodies of these requests."""
    watch_bytes_per_pod: int | None = None
    """Bytes of the events that all watches were sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchAnswer(PortAnswer):
    """Measurements of `stellwerk bench`."""

    server_version: str
    embedded: bool
    """Whether the cluster was the embedded one."""
    nodes: int
    rate: int | None = None
    """Pods a second; absent: they were created at once."""
    runs: Sequence[BenchRun]
