"""Prefers nodes with many blinking lights; the same plugin written in both ways.

A node says in a label how many lights it has. Stellwerk finds the classes by the entry points in
pyproject.toml, and a SchedulerProfile enables one of them by its name.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from stellwerk.plugin_api import (
    ConfigModel,
    CycleState,
    Handle,
    IntColumn,
    Node,
    NodeScorePlugin,
    NodeView,
    NormalizeScorePlugin,
    PodInfo,
    Reuse,
    ScorePlugin,
)


class BlinkingLightScorerArgs(ConfigModel):
    """What `pluginConfig[].args` may say; names are written in camelCase there."""

    label: str = Field(default="example.com/blinking-lights", min_length=1)
    """The node label that holds the number of lights."""
    broken_lights: int = Field(default=0, ge=0)
    """How many lights of every node do not count."""


class _Normalized(NormalizeScorePlugin):
    """Turns numbers of lights into scores from 0 to 100."""

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        """Give the node with the most lights 100, and the others their share."""
        highest = int(scores.max(initial=0))
        if highest == 0:
            return scores  # no lights anywhere: all nodes are alike
        return scores * 100 // highest


class BlinkingLightScorer(_Normalized, ScorePlugin):
    """Over arrays: the label is read once for each distinct value, not once for each node."""

    name: ClassVar[str] = "BlinkingLightScorer"
    args_model = BlinkingLightScorerArgs
    score_reuse: ClassVar[Reuse] = Reuse.NODE
    """A score changes only with its node, so Stellwerk asks again only for nodes that changed."""

    def __init__(self, _: Handle, args: BlinkingLightScorerArgs) -> None:
        self._args = args

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """The number of lights of each node, (n,) int64."""
        value_ids, column = nodes.label(self._args.label)
        lights = [_lights(value, self._args) for value in column.values]
        # A node without the label has value id −1, which picks the 0 at the end.
        return np.array([*lights, 0], dtype=np.int64)[value_ids]


class BlinkingLightScorerPerNode(_Normalized, NodeScorePlugin):
    """One node at a time: shorter, and fast enough for some hundred nodes."""

    name: ClassVar[str] = "BlinkingLightScorerPerNode"
    args_model = BlinkingLightScorerArgs
    score_reuse: ClassVar[Reuse] = Reuse.NODE
    args: BlinkingLightScorerArgs

    @override
    def score_node(self, pod: PodInfo, node: Node) -> int:
        """The number of lights of the node."""
        return _lights(node.labels.get(self.args.label, ""), self.args)


def _lights(value: str, args: BlinkingLightScorerArgs) -> int:
    """What a label says; nonsense counts as no light."""
    return max(0, int(value) - args.broken_lights) if value.isdecimal() else 0
