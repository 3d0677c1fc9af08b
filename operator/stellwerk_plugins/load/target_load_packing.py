"""TargetLoadPacking: fill nodes up to a CPU utilisation, and spread beyond it.

The load of a node is what was measured, and what its pods that came since are expected to add.
"""

from collections.abc import Hashable, Mapping
from typing import Annotated, Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import AfterValidator, Field
from typing_extensions import override

from stellwerk.plugin_api import (
    MAX_NODE_SCORE,
    ChangeCursor,
    ConfigModel,
    CycleState,
    ExplainPlugin,
    Handle,
    IntColumn,
    NodeView,
    PluginFacts,
    PodInfo,
    Reuse,
    SchedulingSpec,
    ScorePlugin,
    exact_amount,
    invalid,
    millis,
)
from stellwerk_plugins.load.cpu_capacity import CpuCapacity
from stellwerk_plugins.load.node_usage import (
    FULL_PERCENT,
    FloatColumn,
    UsageTable,
    go_round,
    whole_scores,
)
from stellwerk_plugins.load.recent_pods import RecentPods
from stellwerk_plugins.load.sources import UsageArgs, source_of

_REPORTING_SECONDS: Final = 60
"""Time before the window's end in which a new pod may not have been measured yet."""
_MAX_LINES: Final = 10
"""Nodes that an explanation names, those with the highest scores first."""
_MAX_MILLIS: Final = float(1 << 62)
"""Largest request of a container in millicores; larger ones count as this, so that int64 holds."""


def _multiplier(text: str) -> str:
    try:
        value = float(text) if text == text.strip() and "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise invalid("", f'"{text}" is not a number such as "1.5"')
    return text


def _quantities(given: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in given.items():
        try:
            exact_amount(text)
        except ValueError as error:
            raise invalid(name, str(error)) from error
    return given


class TargetLoadPackingArgs(UsageArgs):
    """As of the upstream plugin of that name."""

    args_of_the_original: ClassVar[Mapping[str, Any]] = {"maxAgeSeconds": 0}

    target_utilization: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] = 40
    """Percent of CPU capacity; 0 and less is 40."""
    default_requests: Annotated[dict[str, str], AfterValidator(_quantities)] = Field(
        default_factory=lambda: {"cpu": "1000m"}
    )
    """Requests of containers that say nothing; only cpu is read."""
    default_requests_multiplier: Annotated[str, AfterValidator(_multiplier)] = "1.5"
    """The load that is expected of a container, for one of its request."""


class TargetLoadPacking(ScorePlugin, ExplainPlugin):
    """Scores a node by its CPU utilisation once the pod runs there."""

    name: ClassVar[str] = "TargetLoadPacking"
    args_model: ClassVar[type[ConfigModel]] = TargetLoadPackingArgs
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: TargetLoadPackingArgs) -> None:
        self._handle = handle
        self._target = float(args.target_utilization if args.target_utilization > 0 else 40)
        self._multiplier = float(args.default_requests_multiplier)
        self._default_millis = millis(exact_amount(args.default_requests.get("cpu", "0")))
        self._capacity = handle.snapshot.book(CpuCapacity)
        self._recent = handle.snapshot.book(RecentPods)
        self._source = source_of(handle, args)
        self._usage = UsageTable(handle, self._source.name, args.max_age_seconds)
        self._changed_rows = ChangeCursor(handle.snapshot.usage_changes)
        self._missing: FloatColumn = np.zeros(0)
        """(N,) float64, millicores that recent pods are expected to add."""
        self._used: FloatColumn = np.zeros(0)
        """(N,) float64, measured millicores; NaN: not measured."""
        self._most: FloatColumn = np.zeros(0)
        """(N,) float64, the capacity in millicores; without any, endless: nothing is used then."""
        self._version = -1
        self._window_end_seconds = 0
        self._predictions: WeakKeyDictionary[SchedulingSpec, int] = WeakKeyDictionary()
        handle.sources.follow(self._source)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """Expected usage of the pod and the measurement; pods are followed row by row."""
        self._look()
        return (self._prediction(pod), self._usage.revision)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, 0 to 100."""
        self._look()
        predicted, target = self._predicted(pod, nodes), self._target
        scores = predicted * (MAX_NODE_SCORE - target)
        scores /= target
        scores += target
        if target < FULL_PERCENT:
            beyond = predicted > target
            spread = np.subtract(FULL_PERCENT, predicted, out=predicted)
            spread *= target
            spread /= FULL_PERCENT - target
            np.copyto(scores, spread, where=beyond)
        else:
            scores[predicted > FULL_PERCENT] = 0
            np.minimum(scores, MAX_NODE_SCORE, out=scores)
        return whole_scores(scores)

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        self._look()
        names = [node.name if node is not None else "" for node in nodes.nodes()]
        load = self._usage.column("cpuLast")[nodes.rows]
        predicted, scores = self._predicted(pod, nodes), self.score(state, pod, nodes)
        missing = self._missing[nodes.rows]
        lines = [self._usage.explained([name for name in names if name])]
        for position in np.argsort(-scores, kind="stable")[:_MAX_LINES].tolist():
            if not names[position]:
                continue
            lines.append(
                f"{names[position]}: no measurement, so 0"
                if np.isnan(load[position])
                else f"{names[position]}: {load[position]:.1f}% measured, {missing[position]:.0f}m "
                f"of pods that came since, {predicted[position]:.1f}% with this pod (target "
                f"{self._target:g}%): {scores[position]}"
            )
        return PluginFacts(lines=tuple(lines))

    def _predicted(self, pod: PodInfo, nodes: NodeView) -> FloatColumn:
        """(n,) float64, percent of CPU capacity once the pod runs there; NaN: not measured."""
        predicted: FloatColumn = self._used[nodes.rows] + float(self._prediction(pod))
        predicted += self._missing[nodes.rows]
        predicted *= FULL_PERCENT
        predicted /= self._most[nodes.rows]
        return predicted

    def _prediction(self, pod: PodInfo) -> int:
        """The load that is expected of a pod, in millicores (`PredictUtilisation`)."""
        found = self._predictions.get(pod.spec)
        if found is not None:
            return found
        resources = pod.spec.resources
        total = millis(resources.overhead.get("cpu", 0))
        for container in resources.containers:
            if "cpu" in container.limits:
                total += millis(container.limits["cpu"])
            elif "cpu" in container.requests:
                expected = float(millis(container.requests["cpu"])) * self._multiplier
                total += int(go_round(np.clip([expected], -_MAX_MILLIS, _MAX_MILLIS))[0])
            else:
                total += self._default_millis
        self._predictions[pod.spec] = total
        return total

    def _look(self) -> None:
        """Follow the time, the measurements and the pods that came."""
        snapshot = self._handle.snapshot
        self._usage.refresh()
        if self._usage.version != self._version:
            self._version = self._usage.version
            capacity = self._capacity.millis[: snapshot.size].astype(np.float64)
            self._used = (self._usage.column("cpuLast") / 100) * capacity
            self._most = np.where(capacity == 0, np.inf, capacity)
        if not snapshot.open_trials:
            now_seconds = self._handle.now().timestamp()
            since_seconds = self._usage.end_seconds - _REPORTING_SECONDS
            self._recent.look(self._handle.profile_name, now_seconds, since_seconds)
        rows = self._changed_rows.advance()
        if self._usage.end_seconds != self._window_end_seconds:
            self._window_end_seconds, rows = self._usage.end_seconds, None
        if rows is None or len(self._missing) != snapshot.size:
            self._missing = np.zeros(snapshot.size)
            rows = list(self._recent.by_row)
        for row in rows:
            self._missing[row] = self._missing_on(row)

    def _missing_on(self, row: int) -> int:
        since_seconds = self._window_end_seconds - _REPORTING_SECONDS
        return sum(
            self._prediction(arrival.pod)
            for arrival in self._recent.by_row.get(row, {}).values()
            if arrival.at_seconds > since_seconds
        )
