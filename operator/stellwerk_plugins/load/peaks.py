"""Peaks: nodes whose power draw the pod raises least.

The power of a node is k0 + k1 · e^(k2 · utilisation), by a model that the arguments give.
"""

from collections.abc import Hashable, Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field, model_validator
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
    NormalizeScorePlugin,
    PluginFacts,
    PodInfo,
    Reuse,
    ScorePlugin,
    invalid,
)
from stellwerk_plugins.load.cpu_capacity import CpuCapacity
from stellwerk_plugins.load.node_usage import FULL_PERCENT, FloatColumn, UsageTable
from stellwerk_plugins.load.sources import UsageArgs, source_of

_SCALE: Final = 10.0**15
_LARGEST: Final = float(2**62)


class PowerModel(ConfigModel):
    """The power of a node: k0 + k1 · e^(k2 · utilisation in percent)."""

    k0: float = 0.0
    k1: float = 0.0
    k2: float = 0.0


_NO_MODEL: Final = PowerModel()
"""The model of nodes without one, on which a pod costs nothing."""


class PeaksArgs(ConfigModel):
    """As of the upstream plugin of that name, whose arguments begin with capitals."""

    args_of_the_original: ClassVar[Mapping[str, Any]] = {"maxAgeSeconds": 0}

    watcher_address: Annotated[str, Field(max_length=2048, alias="WatcherAddress")] = ""
    """A load-watcher service."""
    node_power_model: Annotated[dict[str, PowerModel], Field(alias="NodePowerModel")] = Field(
        default_factory=dict
    )
    """By node; others have no model, and the pod costs nothing there."""
    max_age_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Stellwerk's own field: older measurements count as missing; 0: any age counts, as
    upstream."""

    @model_validator(mode="after")
    def _is_complete(self) -> "PeaksArgs":
        if not self.watcher_address:
            raise invalid("WatcherAddress", "required: the address of a load-watcher")
        if not self.node_power_model:
            raise invalid("NodePowerModel", "required: k0, k1 and k2 of each node")
        UsageArgs(watcherAddress=self.watcher_address)  # type: ignore[call-arg]
        return self


class Peaks(ScorePlugin, NormalizeScorePlugin, ExplainPlugin):
    """Scores a node by the power that the pod adds to it."""

    name: ClassVar[str] = "Peaks"
    args_model: ClassVar[type[ConfigModel]] = PeaksArgs
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, handle: Handle, args: PeaksArgs) -> None:
        self._handle = handle
        self._models = args.node_power_model
        self._capacity = handle.snapshot.book(CpuCapacity)
        usage = UsageArgs(watcherAddress=args.watcher_address)  # type: ignore[call-arg]
        self._source = source_of(handle, usage)
        self._usage = UsageTable(handle, self._source.name, args.max_age_seconds)
        self._nodes = ChangeCursor(handle.snapshot.node_changes)
        self._version = -1
        self._k: FloatColumn = np.zeros((2, 0))
        """(2, N) float64, k1 and k2."""
        self._used: FloatColumn = np.zeros(0)
        """(N,) float64, measured millicores; NaN: not measured."""
        self._most: FloatColumn = np.zeros(0)
        """(N,) float64, the capacity in millicores; without any, endless: nothing is used then."""
        self._now: FloatColumn = np.zeros(0)
        """(N,) float64, e^(k2 · utilisation)."""
        handle.sources.follow(self._source)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """The request and what is measured."""
        return (pod.amounts.requests.get("cpu", 0), self._usage.refresh())

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, the added power in quadrillionths; 0 where it is not known."""
        self._look()
        predicted = self._used[nodes.rows] + float(pod.amounts.requests.get("cpu", 0))
        predicted *= FULL_PERCENT
        predicted /= self._most[nodes.rows]
        with np.errstate(invalid="ignore", over="ignore"):
            added = self._k[1][nodes.rows] * predicted
            np.exp(added, out=added)
            added -= self._now[nodes.rows]
            added *= self._k[0][nodes.rows]
            added *= _SCALE
        # Without measurement or room there is no number, and upstream takes it for the least cost.
        added[~(predicted <= FULL_PERCENT) | np.isnan(added)] = 0
        raw: IntColumn = np.clip(added, -_LARGEST, _LARGEST, out=added).astype(np.int64)
        return raw

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        """(n,) int64, 100 where the least power is added."""
        lowest, highest = int(scores.min(initial=2**62)), int(scores.max(initial=-(2**62)))
        if not lowest and not highest:
            return scores * 0
        if highest <= lowest:
            return scores * 0 + MAX_NODE_SCORE
        share = float(MAX_NODE_SCORE) * (scores - lowest).astype(np.float64) / (highest - lowest)
        normalized: IntColumn = MAX_NODE_SCORE - np.trunc(share).astype(np.int64)
        return normalized

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        self._usage.refresh()
        names = [node.name for node in nodes.nodes() if node is not None]
        lines = [self._usage.explained(names)]
        without = [name for name in names if name not in self._models]
        if without:
            lines.append(
                f"{len(without)} of {len(names)} nodes have no power model, and count as cheapest"
            )
        return PluginFacts(lines=tuple(lines))

    def _look(self) -> None:
        """Follow the measurements and the nodes."""
        snapshot = self._handle.snapshot
        self._usage.refresh()
        if self._usage.version == self._version:
            return
        self._version = self._usage.version
        rows = self._nodes.advance()
        if rows is None or self._k.shape[1] != snapshot.size:
            self._k = np.zeros((2, snapshot.size))
            rows = list(snapshot.row_of.values())
        models = [self._model_of(row) for row in rows]
        self._k[:, rows] = [[model.k1 for model in models], [model.k2 for model in models]]
        load = self._usage.column("cpuFirst")
        capacity = self._capacity.millis[: snapshot.size].astype(np.float64)
        self._used = (load / 100) * capacity
        self._most = np.where(capacity == 0, np.inf, capacity)
        with np.errstate(over="ignore", invalid="ignore"):
            self._now = np.exp(self._k[1] * load)

    def _model_of(self, row: int) -> PowerModel:
        node = self._handle.snapshot.nodes[row]
        return self._models.get(node.name, _NO_MODEL) if node is not None else _NO_MODEL
