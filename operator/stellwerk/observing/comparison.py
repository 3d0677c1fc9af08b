"""A binding that another scheduler made, compared with what a profile decides on the same state.

The observer and replays of recordings call `compare`. Invariant: it decides on the World as it is,
which has to be the state without the pod, and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stellwerk.answers.observed import ComparisonClass
from stellwerk.framework.diagnosis import fit_error
from stellwerk.framework.node_sampling import nodes_to_find
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.decide import (
    Decision,
    Failure,
    Search,
    broken,
    choose,
    find_nodes,
    is_broken,
    score,
)
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

MAX_BEST_NODES: Final = 5
"""Best nodes that a comparison names. In an empty cluster all nodes are equal."""
_ADAPTIVE: Final = 0
"""kube-scheduler's percentageOfNodesToScore by default: the larger the cluster, the smaller."""


@dataclass(frozen=True, slots=True)
class PluginDifference:
    """The points that our node has more than the other scheduler's, by one plugin."""

    plugin: str
    points: int


@dataclass(frozen=True, slots=True)
class BindingComparison:
    """The other scheduler's node beside our decision."""

    decision: Decision
    """Ours, on the state without the pod; its snapshot changes afterwards."""
    result: ComparisonClass
    best_nodes: Sequence[str] = ()
    """The first MAX_BEST_NODES nodes that share our best total; empty: we found none."""
    best: int = 0
    """Number of nodes that share our best total."""
    fits: bool = False
    """Whether the other scheduler's node passes our filters."""
    total: int | None = None
    """Our total of the other scheduler's node; None: the node does not fit, or nothing scores."""
    best_total: int | None = None
    plugins: Sequence[PluginDifference] = ()
    """Plugins that make a difference between the two nodes, the largest first."""
    rejected_by: str = ""
    """The plugins that reject its node, or if we found no node, every node."""
    reason: str = ""
    """The reason why its node does not fit, or no node does."""


def compare(  # noqa: PLR0911 one answer after the other
    world: World, pod: PodInfo, profile: ServedProfile, node_name: str
) -> BindingComparison:
    """Decide on a pod and compare with the node that another scheduler bound it to.

    Every feasible node is scored, whatever the profile's `percentageOfNodesToScore` says: that
    field says how the other scheduler samples (`is_sampled`). Victims are not looked for.

    Raises:
        PluginFailure: a plugin raised.
    """
    decision = decide_thoroughly(world, pod, profile)
    search, failure = decision.search, decision.failure
    row, fits = search.snapshot.row_of.get(node_name), search.found.fits
    if failure is not None:
        rejected_by = ", ".join(sorted(failure.unschedulable_plugins | failure.pending_plugins))
        return BindingComparison(
            decision, "foundNone", rejected_by=rejected_by, reason=failure.message
        )
    found = BindingComparison(
        decision,
        "differs",
        *_best(decision),
        fits=row is not None and bool(fits[row]),
        best_total=None if decision.total is None else int(decision.total.max()),
    )
    if search.nominated:
        # `evaluateNominatedNode`: no other node is scored.
        return replace(found, result="equal") if decision.node_name == node_name else found
    if row is None:
        return replace(found, reason="the node is not known")
    if not found.fits:
        plugin, reason = _rejection(search, row)
        return replace(found, rejected_by=plugin, reason=reason)
    position = _position(decision, row)
    if decision.total is None or position is None:
        return replace(found, result="equal")  # it is the only feasible node, and nothing scores
    total = int(decision.total[position])
    if total == found.best_total:
        return replace(found, result="equal", total=total)
    result: ComparisonClass = "sampled" if is_sampled(profile.loaded, search) else "differs"
    plugins = _plugin_differences(decision, position)
    return replace(found, result=result, total=total, plugins=plugins)


def decide_thoroughly(
    world: World, pod: PodInfo, profile: ServedProfile, state: CycleState | None = None
) -> Decision:
    """The decision among all feasible nodes, all of them scored; no victims are looked for.

    Raises:
        PluginFailure: a plugin raised.
    """
    search = find_nodes(world, pod, profile, state or profile.new_state(pod), thorough=True)
    if is_broken(search):
        return broken(search)
    if not np.count_nonzero(search.found.fits):
        return rejected(search)
    return choose(search, score(search))


def rejected(search: Search) -> Decision:
    """The decision where no node takes the pod, without a search for victims."""
    diagnosis = search.profile.framework.filtering.diagnose(search.found, search.pod)
    failure = Failure(
        fit_error(diagnosis),
        diagnosis.unschedulable_plugins,
        diagnosis.pending_plugins,
        rejected=True,
    )
    return Decision(search, "", failure, diagnosis=diagnosis)


def is_sampled(profile: LoadedProfile, search: Search) -> bool:
    """Whether the other scheduler may have stopped its search before it saw every feasible node.

    It stops at `numFeasibleNodesToFind` feasible nodes (kube-scheduler v1.36). The profile's
    `percentageOfNodesToScore` says what the other scheduler has; unset, it has the default.
    """
    percentage = profile.percentage_of_nodes_to_score
    candidates = search.found.candidate_rows(search.snapshot)
    nodes = search.snapshot.node_count if candidates is None else int(candidates.sum())
    wanted = nodes_to_find(_ADAPTIVE if percentage is None else percentage, nodes)
    return int(np.count_nonzero(search.found.fits)) > wanted


def _best(decision: Decision) -> tuple[Sequence[str], int]:
    """(some of the nodes that share our best total, the number of all)."""
    scores, best = decision.scores, decision.best
    if scores is None or best is None or decision.search.nominated:
        return (decision.node_name,), 1
    rows = scores.nodes.row_numbers()[best[:MAX_BEST_NODES]]
    return decision.search.snapshot.names(rows.tolist()), len(best)


def _position(decision: Decision, row: int) -> int | None:
    """The place of a row among those that were scored; None: nothing was scored."""
    if decision.scores is None:
        return None
    view = decision.scores.nodes
    return row if view.whole else int(np.flatnonzero(view.row_numbers() == row)[0])


def _plugin_differences(decision: Decision, position: int) -> list[PluginDifference]:
    """The points by plugin that our node has more than the one at a position, weighted."""
    if decision.scores is None:
        return []
    found = (
        PluginDifference(
            each.plugin,
            (each.normalized_at(decision.position) - each.normalized_at(position)) * each.weight,
        )
        for each in decision.scores.by_plugin
    )
    return sorted((each for each in found if each.points), key=lambda each: -each.points)


def _rejection(search: Search, row: int) -> tuple[str, str]:
    """(plugin, reason) with which our filters turn a node away."""
    diagnosis = search.profile.framework.filtering.diagnose(search.found, search.pod)
    places = np.flatnonzero(diagnosis.row_numbers() == row)
    if not len(places):
        return "", diagnosis.pre_filter_message
    status = diagnosis.statuses[int(places[0])]
    return status.plugin, status.message
