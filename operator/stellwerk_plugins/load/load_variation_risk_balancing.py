"""LoadVariationRiskBalancing: nodes of low load that varies little.

The risk of a resource is the mean of its load, the pod's request included, and of its deviation.
"""

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from stellwerk.plugin_api import (
    MAX_NODE_SCORE,
    ConfigModel,
    CycleState,
    ExplainPlugin,
    Handle,
    IntColumn,
    NodeView,
    PluginFacts,
    PodInfo,
    Reuse,
    ScorePlugin,
)
from stellwerk_plugins.load.node_usage import FloatColumn, UsageTable, go_round
from stellwerk_plugins.load.pod_sums import requests_and_limits
from stellwerk_plugins.load.sources import UsageArgs, source_of
from stellwerk_plugins.load.utilisation import capacity_of


class LoadVariationRiskBalancingArgs(UsageArgs):
    """As of the upstream plugin of that name."""

    args_of_the_original: ClassVar[Mapping[str, Any]] = {"maxAgeSeconds": 0}

    safe_variance_margin: float = 1.0
    """The factor of the deviation; below 0 it is 1."""
    safe_variance_sensitivity: float = 1.0
    """The root of the deviation; below 0 it is 1."""


class LoadVariationRiskBalancing(ScorePlugin, ExplainPlugin):
    """Scores a node by the resource with the higher risk."""

    name: ClassVar[str] = "LoadVariationRiskBalancing"
    args_model: ClassVar[type[ConfigModel]] = LoadVariationRiskBalancingArgs
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, handle: Handle, args: LoadVariationRiskBalancingArgs) -> None:
        margin, sensitivity = args.safe_variance_margin, args.safe_variance_sensitivity
        self._margin = margin if margin >= 0 else 1.0
        sensitivity = sensitivity if sensitivity >= 0 else 1.0
        self._exponent = 1 / sensitivity if sensitivity else np.inf
        self._source = source_of(handle, args)
        self._usage = UsageTable(handle, self._source.name, args.max_age_seconds)
        handle.sources.follow(self._source)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """The spec and what is measured."""
        return (pod.spec, self._usage.refresh())

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, 0 to 100."""
        self._usage.refresh()
        cpu, memory = self._of_resources(pod, nodes)
        # Of one that is not measured the other decides; of neither, the worst is assumed.
        both = ~np.isnan(cpu) & ~np.isnan(memory)
        one = np.fmax(np.fmax(cpu, memory), 0.0)
        total = np.where(both, np.fmin(cpu, memory), np.where(np.isnan(one), 0.0, one))
        return np.clip(go_round(total), 0, MAX_NODE_SCORE).astype(np.int64)

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        self._usage.refresh()
        names = [node.name for node in nodes.nodes() if node is not None]
        return PluginFacts(lines=(self._usage.explained(names),))

    def _of_resources(self, pod: PodInfo, nodes: NodeView) -> tuple[FloatColumn, FloatColumn]:
        requests = requests_and_limits(pod).requests
        cpu = self._score_of(nodes, "cpu", float(requests.cpu_millis))
        return cpu, self._score_of(nodes, "memory", float(requests.memory_bytes) / 1024 / 1024)

    def _score_of(self, nodes: NodeView, resource: str, request: float) -> FloatColumn:
        """(n,) float64, 0 to 100; NaN where the resource is not measured."""
        capacity = capacity_of(nodes, resource)
        mean = self._usage.column(f"{resource}Mean")[nodes.rows]
        deviation = self._usage.column(f"{resource}Deviation")[nodes.rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            used = np.maximum(np.minimum(mean * capacity / 100, capacity), 0)
            varying = np.maximum(np.minimum(deviation * capacity / 100, capacity), 0)
            mu = np.clip((used + max(request, 0.0)) / capacity, 0, 1)
            sigma = np.clip(varying / capacity, 0, 1)
            sigma = np.clip(np.power(sigma, self._exponent) * self._margin, 0, 1)
            score = (1.0 - (mu + sigma) / 2) * MAX_NODE_SCORE
        score[(capacity <= 0) & ~np.isnan(mean)] = 0
        result: FloatColumn = score
        return result
