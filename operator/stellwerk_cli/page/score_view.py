"""Scores and rejections of a pod as tables of nodes × plugins, and the reason in a sentence.

The pod's page shows them. Invariant: there is nothing in them that is not in the operator's answer;
colour shows differences between nodes, and a step of its scale is one of eleven, so that a style
sheet can name each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.answers.pod import (
    LastPreemption,
    PodExplanation,
    RankedNode,
    RecomputedVerdicts,
    ScoreFields,
)

STEPS: Final = 10
_HIGHEST_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class Cell:
    """One node and one plugin."""

    text: str
    step: int
    """The step of the colour scale."""
    title: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One node."""

    node: str
    label: str
    """Its rank, or how many plugins turn it away."""
    total: str
    chosen: bool
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Nodes in rows, plugins in columns."""

    plugins: Sequence[str]
    rows: Sequence[HeatRow]
    equal: Mapping[str, int] = field(default_factory=dict)
    """Plugins whose points are equal on all nodes that are shown, with the points."""


def score_map(explanation: PodExplanation) -> HeatMap | None:
    """The scores of the best nodes; None: nothing was scored.

    Of a pod that another scheduler bound they are those of now. Columns that are equal on all nodes
    decide nothing, and are no columns.
    """
    scored = explanation.decision or explanation.placement_now
    best = scored.best if scored is not None else ()
    if not best:
        return None
    columns = {name: [each.scores[name].weighted for each in best] for name in best[0].scores}
    differing = {name: points for name, points in columns.items() if len(set(points)) > 1}
    spread = max((max(points) - min(points) for points in differing.values()), default=0)
    rows = [
        HeatRow(
            each.node,
            f"{each.rank}",
            f"{each.total}",
            each.node == explanation.node,
            [
                _score(name, each.scores[name], each.scores[name].weighted - min(points), spread)
                for name, points in differing.items()
            ],
        )
        for each in best
    ]
    equal = {name: points[0] for name, points in columns.items() if name not in differing}
    return HeatMap(list(differing), rows, equal)


def _score(plugin: str, score: ScoreFields, above: int, spread: int) -> Cell:
    numbers = f"raw {score.raw}, normalised {score.normalized}, weighted {score.weighted}"
    return Cell(f"{score.weighted}", step(above, spread), f"{plugin}: {numbers}")


def why_there(explanation: PodExplanation) -> str:
    """The reason for the pod's node in a sentence; empty: no decision is known."""
    decision, node = explanation.decision, explanation.node or ""
    if decision is None:
        return ""
    if decision.nominated:
        return f"{node}: it was nominated there{_evicting(explanation.last_preemption)}."
    chosen = next((each for each in decision.best if each.node == node), None)
    if chosen is None:
        return f"{node}: the only one of {decision.nodes} nodes that took it."
    if decision.tied > 1:
        place = f"drawn from {decision.tied} equal best nodes"
    elif decision.feasible > 1:
        place = f"the best of {decision.feasible} nodes that took it"
    else:
        place = f"the only one of {decision.nodes} nodes that took it"
    remarks = "".join(f" {remark}." for remark in decision.remarks or ())
    return f"{node}: {place}{_above_the_next(chosen, decision.best)}.{remarks}"


def _above_the_next(chosen: RankedNode, best: Sequence[RankedNode]) -> str:
    """The points that part a node from the next lower one, and the plugin that gives most."""
    following = next((each for each in best if each.total < chosen.total), None)
    if following is None:
        return ""
    points = chosen.total - following.total
    gains = {
        name: score.weighted - following.scores[name].weighted
        for name, score in chosen.scores.items()
        if name in following.scores
    }
    by = max(gains, key=lambda name: gains[name], default="")
    reason = by if gains.get(by, 0) > 0 else "an extender"
    plural = "" if points == 1 else "s"
    return f", {points} point{plural} above the next ({following.node}), by {reason}"


def _evicting(last: LastPreemption | None) -> str:
    if last is None or not last.victims:
        return ""
    why = f" ({last.decided_by})" if last.decided_by else ""
    return f", where {', '.join(each.pod for each in last.victims)} had been evicted for it{why}"


def rejection_map(verdicts: RecomputedVerdicts | None) -> HeatMap | None:
    """The nodes nearest to taking the pod, with what turns them away; None: none was looked at."""
    if verdicts is None:
        return None
    nearest = verdicts.nearest or ()
    turning_away = {plugin for each in nearest for plugin in each.rejected_by}
    order = [each.plugin for each in verdicts.by_plugin or ()]
    plugins = [plugin for plugin in order if plugin in turning_away]
    if not plugins:
        return None
    rows = [
        HeatRow(
            each.node,
            f"{len(each.rejected_by)}",
            "",
            chosen=False,
            cells=[_rejection(plugin, each.rejected_by.get(plugin)) for plugin in plugins],
        )
        for each in nearest
    ]
    return HeatMap(plugins, rows)


def _rejection(plugin: str, reasons: Sequence[str] | None) -> Cell:
    if reasons is None:
        return Cell("✓", 0, f"{plugin}: accepts the pod")
    return Cell("✕", 1, f"{plugin}: {', '.join(reasons)}")


def step(value: float, highest: float = _HIGHEST_SCORE) -> int:
    """A share of the highest value, from 0 to STEPS."""
    if highest <= 0:
        return 0
    return max(0, min(STEPS, int(value * STEPS / highest)))
