"""From a World and a pod to a Decision: a node, a nomination with victims, or a rejection.

`decide` is the scheduling cycle of a profile without extenders, and of `stellwerk decide`; with
extenders, `scheduler.extenders` takes the same steps and puts what they answered between them, so
that a recording which holds draws and answers can be replayed. Invariant: a decision is synchronous
and pure: it asks nothing of the cluster, measures nothing, and leaves the World as it was.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stellwerk.framework.diagnosis import Diagnosis, fit_error
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.runtime import Scores
from stellwerk.framework.types import OK, Code, CycleState, Feasibility, Status, StatusColumn
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.extenders import ExtenderFilterResult
from stellwerk.world.failure import Failure
from stellwerk.world.pod_status import CLEAR_NOMINATION, LEAVE_NOMINATION, NominatingInfo
from stellwerk.world.profiles import Draw, ServedProfile
from stellwerk.world.world import World

EXTENDER: Final = "Extender"
"""Stands for all extenders among the plugins that rejected a pod; any event may wake it."""
_NO_REASON_GIVEN: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


@dataclass(slots=True)
class Search:
    """The filter half of a decision: which nodes take the pod."""

    pod: PodInfo
    profile: ServedProfile
    snapshot: Snapshot
    found: Feasibility
    draws: list[Draw]
    """The draws so far; the random numbers of the whole decision in the end."""
    thorough: bool
    """Every node, score and candidate is looked at, where a cycle stops at enough."""
    nominated: bool
    """The node nominated to the pod takes it, and is chosen."""
    by_extenders: ExtenderFilterResult | None = None
    """The nodes that extenders left, if they took any away."""

    def node_names(self) -> list[str]:
        """The feasible nodes in visiting order, as extenders are offered them."""
        rows = self.found.rows
        if rows is None:
            order = self.snapshot.visit_order
            rows = order[self.found.fits[order]]
        return self.snapshot.names(rows.tolist())

    def narrow(self, result: ExtenderFilterResult, offered: int) -> None:
        """Let only the nodes that extenders left be feasible, of so many that were offered."""
        found, names = self.found, result.node_names
        left = np.array([self.snapshot.row_of[name] for name in names], dtype=np.intp)
        found.keep(left, evaluated=found.evaluated)
        if len(names) != offered:
            self.by_extenders = result

    def view(self) -> NodeView:
        """The feasible nodes."""
        return self.found.view(NodeView(self.snapshot))


@dataclass(slots=True)
class Decision:
    """The decision on a pod: a node for it, or the reason why there is none."""

    search: Search
    node_name: str = ""
    """Empty: see `failure`."""
    failure: Failure | None = None
    candidate: Candidate | None = None
    """The victims on the node that the failure nominates the pod to; None: no preemption."""
    feasible: int = 0
    """The number of nodes that there were to choose from."""
    scores: Scores | None = None
    """None: there was nothing to choose."""
    total: IntColumn | None = None
    """(n,) int64, the scores' total with what extenders added; None as `scores`."""
    best: RowColumn | None = None
    """Positions in `total` that share the best one, in their order; None as `scores`."""
    diagnosis: Diagnosis | None = None
    post_filter: PostFilterResult | None = None
    """The result of PostFilter; None: it was not run."""

    @property
    def draws(self) -> list[Draw]:
        """Every random number that went into it."""
        return self.search.draws


@dataclass(slots=True)
class NoNode:
    """No node takes the pod: why, and whose eviction would change that."""

    diagnosis: Diagnosis
    post_filter: PostFilterResult | None = None
    """None: nothing was looked for."""


def decide(
    world: World,
    pod: PodInfo,
    profile: ServedProfile,
    state: CycleState | None = None,
    *,
    thorough: bool = False,
) -> Decision:
    """The decision of a profile for a pod, extenders aside.

    Raises:
        PluginFailure: a plugin raised.
    """
    search = find_nodes(world, pod, profile, state, thorough=thorough)
    if is_broken(search):
        return broken(search)
    if not search.found.fits.any():
        return reject(search, find_candidates(search))
    return choose(search, score(search))


def find_nodes(
    world: World,
    pod: PodInfo,
    profile: ServedProfile,
    state: CycleState | None = None,
    *,
    thorough: bool = False,
) -> Search:
    """PreFilter and Filter on the snapshot as it is."""
    snapshot = world.cache.snapshot
    draws: list[Draw] = []
    profile.random.draws = draws
    found = profile.framework.filtering.find_feasible(pod, state, sample=not thorough)
    nominated = bool(pod.nominated_node_name) and found.nominated_row(pod, snapshot) is not None
    return Search(pod, profile, snapshot, found, draws, thorough, nominated)


def is_broken(search: Search) -> bool:
    """Whether PreFilter or a costly filter ended in an error."""
    found = search.found
    return found.pre_filter.code is Code.ERROR or found.state.broken_filter is not None


def broken(search: Search) -> Decision:
    """The decision where PreFilter or a costly filter ended in an error."""
    status = search.found.state.broken_filter
    message = search.found.pre_filter.message if status is None else _filter_error(status)
    return Decision(search, failure=Failure.error(message))


def _filter_error(status: Status) -> str:
    return f'running "{status.plugin}" filter plugin: {status.message}'


# --- a node is chosen ---------------------------------------------------------------------------


def score(search: Search) -> Scores | None:
    """The feasible nodes' scores; None: there is nothing to choose."""
    if search.nominated and not search.thorough:
        return None
    view = search.view()
    if view.size == 1 and not search.thorough:
        return None
    return search.profile.framework.scoring.prioritize(search.found.state, search.pod, view)


def choose(
    search: Search, scores: Scores | None, by_extenders: IntColumn | None = None
) -> Decision:
    """The nominated node, the only one, or one of the best (`selectHost`) by tieBreak.

    `by_extenders` is added to the totals.
    """
    if search.nominated:
        return Decision(search, search.pod.nominated_node_name, feasible=1, scores=scores)
    snapshot = search.snapshot
    if scores is None:
        row = int(search.found.fits.argmax())
        return Decision(search, snapshot.node_at(row).name, feasible=1)
    total = scores.total if by_extenders is None else scores.total + by_extenders
    best: RowColumn = (total == total.max()).nonzero()[0]
    view = scores.nodes
    position = int(best[_broken_tie(search, view, best) if len(best) > 1 else 0])
    row = position if view.whole else int(view.row_numbers()[position])
    name = snapshot.node_at(row).name
    return Decision(search, name, None, None, view.size, scores, total, best)


def _broken_tie(search: Search, view: NodeView, best: RowColumn) -> int:
    """The one chosen of several positions with the highest total."""
    if search.profile.loaded.spec.tie_break == "Random":
        return search.profile.framework.handle.random(len(best))
    snapshot = search.snapshot
    rank = np.empty(snapshot.size, np.intp)
    rank[snapshot.visit_order] = np.arange(len(snapshot.visit_order))
    return int(rank[view.row_numbers()[best]].argmin())


# --- no node takes the pod ----------------------------------------------------------------------


def find_candidates(search: Search) -> NoNode:
    """The reason why no node takes the pod, and the proposal of PostFilter."""
    found, pod = search.found, search.pod
    framework = search.profile.framework
    diagnosis = framework.filtering.diagnose(found, pod)
    if search.by_extenders is not None:
        diagnosis = _with_extenders(diagnosis, search.by_extenders, search.snapshot)
    if not diagnosis.rows or _broken_filter(diagnosis) is not None:
        return NoNode(diagnosis)
    return NoNode(diagnosis, framework.run_post_filters(found.state, pod, diagnosis))


def reject(search: Search, no_node: NoNode) -> Decision:
    """A rejection, with a nomination if a candidate is left to preempt on."""
    diagnosis, post = no_node.diagnosis, no_node.post_filter
    error = _broken_filter(diagnosis)
    if error is not None:
        failure = Failure.error(_filter_error(error))
        return Decision(search, failure=failure, diagnosis=diagnosis)
    # Not run where there is no node at all: then none can be nominated, either.
    found = post or PostFilterResult(OK, clear_nomination=True)
    failure = Failure(
        fit_error(diagnosis, found.status.message),
        diagnosis.unschedulable_plugins,
        diagnosis.pending_plugins,
        CLEAR_NOMINATION if found.clear_nomination else LEAVE_NOMINATION,
        rejected=True,
    )
    candidate = _chosen(search, found) if found.status.ok else None
    if candidate is not None:
        failure.nomination = NominatingInfo(candidate.node_name)
    return Decision(search, "", failure, candidate, diagnosis=diagnosis, post_filter=post)


def _chosen(search: Search, found: PostFilterResult) -> Candidate | None:
    """One of the best candidates at random (`SelectCandidate`)."""
    best = found.best(found.candidates) if found.best and found.candidates else ()
    if not best:
        return None
    return best[search.profile.framework.handle.random(len(best))] if len(best) > 1 else best[0]


def _broken_filter(diagnosis: Diagnosis) -> Status | None:
    """A node's status that is an error: then it is not known whether the pod fits."""
    for status in diagnosis.statuses.counts():
        if not status.ok and not status.rejected:
            return status
    return None


def _with_extenders(
    diagnosis: Diagnosis, result: ExtenderFilterResult, snapshot: Snapshot
) -> Diagnosis:
    """The diagnosis with the extenders' word for every node they took away."""
    names = [snapshot.node_at(row).name for row in diagnosis.rows]
    statuses = StatusColumn.of(
        # A node that passed the filters and is not feasible went without a word.
        result.statuses.get(name, _NO_REASON_GIVEN if status.ok else status)
        for name, status in zip(names, diagnosis.statuses, strict=True)
    )
    plugins = diagnosis.unschedulable_plugins | {EXTENDER}
    return replace(diagnosis, statuses=statuses, unschedulable_plugins=plugins)
