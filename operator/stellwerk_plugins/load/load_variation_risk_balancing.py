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
from stellwerk_plugins.load.node_usage import FloatColumn, UsageTable, whole_scores
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
        self._handle = handle
        self._version = -1
        self._used: FloatColumn = np.zeros((2, 0))
        """(2, N) float64, of cpu and memory: what is used; NaN: not measured."""
        self._most: FloatColumn = np.zeros((2, 0))
        """(2, N) float64, what the node offers; without any, endless."""
        self._sigma: FloatColumn = np.zeros((2, 0))
        """(2, N) float64, the part of the deviation, 0 to 1; 2 where the node offers nothing."""
        handle.sources.follow(self._source)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """The requests and what is measured."""
        return (requests_and_limits(pod).requests, self._usage.refresh())

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, 0 to 100."""
        self._look()
        requests = requests_and_limits(pod).requests
        mebibytes = float(requests.memory_bytes) / 1024 / 1024
        cpu = self._risk(0, nodes, float(requests.cpu_millis))
        # Of one that is not measured the other decides; of neither, the worst is assumed.
        scores = np.fmax(cpu, self._risk(1, nodes, mebibytes), out=cpu)
        scores /= 2
        np.subtract(1.0, scores, out=scores)
        scores *= MAX_NODE_SCORE
        return whole_scores(scores)

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        self._usage.refresh()
        names = [node.name for node in nodes.nodes() if node is not None]
        return PluginFacts(lines=(self._usage.explained(names),))

    def _risk(self, index: int, nodes: NodeView, request: float) -> FloatColumn:
        """(n,) float64, 0 to 2: mean and deviation of a resource; NaN where it is not measured."""
        risk: FloatColumn = self._used[index][nodes.rows] + max(request, 0.0)
        risk /= self._most[index][nodes.rows]
        np.minimum(risk, 1.0, out=risk)
        risk += self._sigma[index][nodes.rows]
        return risk

    def _look(self) -> None:
        """Follow the measurements and the nodes."""
        self._usage.refresh()
        if self._usage.version == self._version:
            return
        self._version = self._usage.version
        everything = NodeView(self._handle.snapshot)
        shape = (2, len(everything))
        self._used, self._most, self._sigma = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for index, resource in enumerate(("cpu", "memory")):
            capacity = capacity_of(everything, resource)
            mean = self._usage.column(f"{resource}Mean")
            deviation = self._usage.column(f"{resource}Deviation")
            with np.errstate(divide="ignore", invalid="ignore"):
                self._used[index] = np.maximum(np.minimum(mean * capacity / 100, capacity), 0)
                varying = np.maximum(np.minimum(deviation * capacity / 100, capacity), 0)
                sigma = np.clip(varying / capacity, 0, 1)
                sigma = np.clip(np.power(sigma, self._exponent) * self._margin, 0, 1)
            self._most[index] = np.where(capacity > 0, capacity, np.inf)
            self._sigma[index] = np.where(capacity > 0, sigma, 2.0)
