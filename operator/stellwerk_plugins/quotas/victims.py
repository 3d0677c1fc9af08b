"""The pods that would have to leave nodes so that a pod fits, quotas included, on many at once.

Who may be a victim depends on the quotas: a namespace beyond its guarantee takes from itself, one
within it takes back what others have borrowed, and pods without a quota take from each other.
Invariant: for every node the outcome is that of one node after the other; each row of a view with
overlay is a hypothesis of its own, and so is its state of the quotas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from stellwerk.plugin_api import (
    Candidate,
    CycleState,
    DisruptionBudgets,
    Handle,
    Mask,
    NodeView,
    PodInfo,
    RowColumn,
    Status,
    by_importance,
    error,
    importance,
    unresolvable,
    unschedulable,
)
from stellwerk_plugins.quotas.amounts import Amounts
from stellwerk_plugins.quotas.quota import QuotaState

Outcome: TypeAlias = Candidate | Status

_BATCH: Final = 256
_LONGEST_SECONDS: Final = 0.2
"""After so long, no more nodes are looked at once there is a candidate."""
_OVER_QUOTA: Final = unschedulable("", "global quota max exceeded")


@dataclass(frozen=True, slots=True)
class PodDemand:
    """The demand of one attempt on the quotas, as PreFilter has worked it out."""

    request: Amounts
    in_quota: Amounts
    """With the nominated pods of the same quota that are as important."""
    in_total: Amounts
    """With those of other quotas within their guarantee, too."""
    total_min: Amounts


@dataclass(slots=True)
class _NodeInQuestion:
    """One node while its victims are looked for."""

    row: int
    state: QuotaState
    potential: list[PodInfo]
    reprieve: list[tuple[PodInfo, bool]] = field(default_factory=list)
    """The pods to put back in this order, and whether taking each violates a budget."""
    victims: list[PodInfo] = field(default_factory=list)
    pdb_violations: int = 0


def _has_candidate(outcomes: Mapping[int, Outcome]) -> bool:
    return any(isinstance(outcome, Candidate) for outcome in outcomes.values())


class VictimFinder:
    """Victims for one pod."""

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        demand: PodDemand,
        quotas: QuotaState,
        budgets: DisruptionBudgets,
    ) -> None:
        self._handle = handle
        self._state = state
        self._pod = pod
        self._demand = demand
        self._quotas = quotas
        self._budgets = budgets
        self._own = own = quotas.quotas.get(pod.namespace)
        self._beyond = own is not None and own.over_min_with(
            quotas.used(pod.namespace), demand.in_quota
        )
        """Whether the pod's namespace is beyond its guarantee with it."""
        self._victim_namespaces = {pod.namespace} if self._beyond else self._borrowers()
        """The namespaces whose pods may be victims of a pod with a quota."""

    def find(self, rows: Sequence[int]) -> dict[int, Outcome]:
        """For each row the candidate, or why it is none; not for all, where time is up."""
        outcomes: dict[int, Outcome] = {}
        until_seconds = self._handle.now_seconds() + _LONGEST_SECONDS
        for first in range(0, len(rows), _BATCH):
            nodes = []
            for row in rows[first : first + _BATCH]:
                node = self._in_question(row)
                if node.potential:
                    nodes.append(node)
                else:
                    outcomes[row] = self._no_victims(row)
            outcomes.update(self._clear(nodes))
            if self._handle.now_seconds() > until_seconds and _has_candidate(outcomes):
                break
        return outcomes

    def _borrowers(self) -> set[str]:
        return {
            namespace
            for namespace, quota in self._quotas.quotas.items()
            if namespace != self._pod.namespace and quota.over_min(self._quotas.used(namespace))
        }

    def _no_victims(self, row: int) -> Status:
        name = self._handle.snapshot.node_at(row).name
        reason = f"No victims found on node {name} for preemptor pod {self._pod.name}"
        return unresolvable("", reason)

    def _in_question(self, row: int) -> _NodeInQuestion:
        """A node without the pods that may be victims, the least important taken first."""
        state = self._quotas.copy()
        pods = self._handle.snapshot.pods[row].values()
        potential = []
        if self._own is None:
            potential = [
                pod
                for pod in pods
                if pod.namespace not in state.quotas and pod.priority < self._pod.priority
            ]
            return _NodeInQuestion(row, state, potential)
        possible = [pod for pod in pods if pod.namespace in self._victim_namespaces]
        for pod in reversed(by_importance(possible)):
            if self._beyond:
                taken = pod.priority < self._pod.priority
            else:
                # As seen while others go: it stops once the borrower is within its guarantee.
                taken = state.quotas[pod.namespace].over_min(state.used(pod.namespace))
            if taken:
                potential.append(pod)
                state.change(pod, -1)
        return _NodeInQuestion(row, state, potential)

    def _clear(self, nodes: Sequence[_NodeInQuestion]) -> dict[int, Outcome]:
        if not nodes:
            return {}
        snapshot, filters = self._handle.snapshot, self._handle.filters
        rows: RowColumn = np.array([node.row for node in nodes], np.intp)
        view = NodeView(snapshot, rows).with_overlay()
        taken = [(index, pod) for index, node in enumerate(nodes) for pod in node.potential]
        filters.remove_pods(self._state, self._pod, view, taken)
        emptied = filters.run_with_nominated_pods(self._state, self._pod, view)
        outcomes: dict[int, Outcome] = {}
        for index, status in enumerate(emptied.statuses()):
            if not status.ok:
                outcomes[nodes[index].row] = status
            elif self._over(nodes[index], self._demand.request, self._demand.request):
                outcomes[nodes[index].row] = _OVER_QUOTA
        left = [index for index, node in enumerate(nodes) if node.row not in outcomes]
        if left:
            fitting = [nodes[index] for index in left]
            self._reprieve(view.narrowed(np.array(left, np.intp)), fitting)
            outcomes.update((node.row, self._outcome(node)) for node in fitting)
        return outcomes

    def _over(self, node: _NodeInQuestion, in_quota: Amounts, in_total: Amounts) -> bool:
        """Whether the quotas have no room for the pod on this node."""
        if self._own is None:
            return False
        used = node.state.used(self._pod.namespace)
        return self._own.over_max(used, in_quota) or node.state.over_total_min(
            in_total, self._demand.total_min
        )

    def _reprieve(self, view: NodeView, nodes: Sequence[_NodeInQuestion]) -> None:
        """Put back the pods that need not go: the first of every node, then the second, ..."""
        filters = self._handle.filters
        for node in nodes:
            ordered = by_importance(node.potential)
            marked = list(zip(ordered, self._budgets.violating(ordered), strict=True))
            node.reprieve = [each for each in marked if each[1]]
            node.reprieve += [each for each in marked if not each[1]]
        for rank in range(max(len(node.reprieve) for node in nodes)):
            trying = [
                (index, node) for index, node in enumerate(nodes) if rank < len(node.reprieve)
            ]
            back = [(index, node.reprieve[rank][0]) for index, node in trying]
            filters.add_pods(self._state, self._pod, view, back)
            fits: Mask = filters.run_with_nominated_pods(self._state, self._pod, view).fits
            leaving = []
            for index, node in trying:
                pod, violates = node.reprieve[rank]
                node.state.change(pod, 1)
                over = self._over(node, self._demand.in_quota, self._demand.in_total)
                if not fits[index] or over:
                    # Upstream takes it away twice where both hold, and loses the node.
                    node.state.change(pod, -1)
                    node.victims.append(pod)
                    # One that goes for the quota alone violates no budget, as upstream.
                    node.pdb_violations += violates and not fits[index]
                    leaving.append((index, pod))
            filters.remove_pods(self._state, self._pod, view, leaving)

    def _outcome(self, node: _NodeInQuestion) -> Outcome:
        name = self._handle.snapshot.node_at(node.row).name
        if not node.victims:
            return error("", f'expected at least one victim pod on node "{name}"')
        node.victims.sort(key=importance)
        return Candidate(name, tuple(node.victims), node.pdb_violations)
