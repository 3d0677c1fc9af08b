"""A binding that another scheduler made, compared with what a profile decides on the same state.

The observer and replays of recordings call `compare`. Invariant: it decides on the World as it is,
which has to be the state without the pod, and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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

_ADAPTIVE: int = 0
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
    best_nodes: Sequence[str]
    """All nodes that share our best total, in the order of the snapshot; empty: we found none."""
    feasible: int
    fits: bool = False
    """Whether the other scheduler's node passes our filters."""
    total: int | None = None
    """Our total of the other scheduler's node; None: the node does not fit, or nothing scores."""
    best_total: int | None = None
    plugins: Sequence[PluginDifference] = ()
    """Plugins that make a difference between the two nodes, the largest first."""
    rejected_by: str = ""
    """The plugins that turn its node away, or if we found no node, every node."""
    reason: str = ""
    """Why its node does not fit, or why no node does."""


def compare(
    world: World, pod: PodInfo, profile: ServedProfile, node_name: str
) -> BindingComparison:
    """Decide on a pod and compare with the node that another scheduler bound it to.

    Every feasible node is scored, whatever the profile's `percentageOfNodesToScore` says: that
    field says how the other scheduler samples (`is_sampled`). Victims are not looked for.

    Raises:
        PluginFailure: a plugin raised.
    """
    decision = decide_thoroughly(world, pod, profile)
    search, found = decision.search, decision.search.found
    row = search.snapshot.row_of.get(node_name)
    if decision.failure is not None:
        failure = decision.failure
        names = ", ".join(sorted(failure.unschedulable_plugins | failure.pending_plugins))
        return BindingComparison(
            decision, "foundNone", (), 0, rejected_by=names, reason=failure.message
        )
    best = _best_nodes(decision)
    if search.nominated:
        # `evaluateNominatedNode`: no other node is scored.
        result: ComparisonClass = "equal" if decision.node_name == node_name else "differs"
        fits = row is not None and bool(found.fits[row])
        return BindingComparison(decision, result, best, decision.feasible, fits=fits)
    if row is None or not found.fits[row]:
        plugin, reason = ("", "the node is not known") if row is None else _rejection(search, row)
        _, best_total = _totals(decision, None)
        return BindingComparison(
            decision,
            "differs",
            best,
            decision.feasible,
            best_total=best_total,
            rejected_by=plugin,
            reason=reason,
        )
    position = _position(decision, row)
    total, best_total = _totals(decision, position)
    if node_name in best or total == best_total:
        return BindingComparison(
            decision,
            "equal",
            best,
            decision.feasible,
            fits=True,
            total=total,
            best_total=best_total,
        )
    result = "sampled" if is_sampled(profile.loaded, search) else "differs"
    plugins = _plugin_differences(decision, position)
    return BindingComparison(
        decision,
        result,
        best,
        decision.feasible,
        fits=True,
        total=total,
        best_total=best_total,
        plugins=plugins,
    )


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
    """The decision where no node takes the pod, without a look at whom to evict."""
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


def _best_nodes(decision: Decision) -> list[str]:
    """The nodes that share our best total."""
    scores, best = decision.scores, decision.best
    if scores is None or best is None or decision.search.nominated:
        return [decision.node_name]
    return decision.search.snapshot.names(scores.nodes.row_numbers()[best].tolist())


def _position(decision: Decision, row: int) -> int | None:
    """The place of a row among those that were scored; None: nothing was scored."""
    if decision.scores is None:
        return None
    view = decision.scores.nodes
    return row if view.whole else int(np.flatnonzero(view.row_numbers() == row)[0])


def _totals(decision: Decision, position: int | None) -> tuple[int | None, int | None]:
    """(the total at a position, the best total); None: nothing was scored."""
    if decision.total is None:
        return None, None
    here = None if position is None else int(decision.total[position])
    return here, int(decision.total.max())


def _plugin_differences(decision: Decision, position: int | None) -> list[PluginDifference]:
    """What each plugin gives our node more than the one at a position, weighted."""
    if decision.scores is None or position is None:
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
