"""An explanation as the page shows it: heat maps of nodes × plugins, and what stands beside them.

The pod's view and the what-if view use it. Invariant: nothing is shown that is not in the answer of
the operator.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.models.answers.pod import PodExplanation, RecomputedVerdicts, ScoreFields
from stellwerk.page.scales import step


@dataclass(frozen=True, slots=True)
class Cell:
    """One node and one plugin."""

    text: str
    step: int
    """Of the colour scale."""
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


def score_map(explanation: PodExplanation) -> HeatMap | None:
    """The scores of the best nodes; None: nothing was scored."""
    best = explanation.decision.best if explanation.decision is not None else ()
    if not best:
        return None
    plugins = list(best[0].scores)
    rows = [
        HeatRow(
            each.node,
            f"{each.rank}",
            f"{each.total}",
            each.node == explanation.node,
            [_score(plugin, each.scores[plugin]) for plugin in plugins],
        )
        for each in best
    ]
    return HeatMap(plugins, rows)


def _score(plugin: str, score: ScoreFields) -> Cell:
    numbers = f"raw {score.raw}, normalised {score.normalized}, weighted {score.weighted}"
    return Cell(f"{score.weighted}", step(score.normalized), f"{plugin}: {numbers}")


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
        return Cell("", 0, f"{plugin}: lets the pod in")
    return Cell("✕", 1, f"{plugin}: {', '.join(reasons)}")
