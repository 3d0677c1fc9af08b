"""Preemption's dry run: the pods that would have to leave each of many nodes, found all at once.

DefaultPreemption calls it for the nodes that it considers. Invariant: for every node the answer is
that of kube-scheduler's `SelectVictimsOnNode` (v1.36), which looks at one node at a time: take off
all pods of lower priority, and if the pod then fits, put them back one after the other where it
still does. Here one such step is made on every node before the next; nodes do not influence each
other, because each row of a view with overlay is a hypothesis of its own. PodDisruptionBudgets
forbid no victim. They count twice: pods whose budget would be violated are put back first, and a
candidate carries the number of its violations, of which `best_candidates` wants the fewest. Results
are kept, for hundreds of pods that preempt at once mostly share a spec. With a VictimOrder pods of
equal priority are put back in its order; all else stays as it is.
"""

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from stellwerk.framework.interface import Candidate, PlacedPods
from stellwerk.framework.result_cache import VerdictCursor
from stellwerk.framework.services import Handle, ObjectStore
from stellwerk.framework.types import CycleState, Status, error, unresolvable
from stellwerk.framework.victim_order import KUBE_SCHEDULERS_ORDER, VictimOrder
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.disruption_budgets import POD_DISRUPTION_BUDGET, DisruptionBudgets
from stellwerk.plugins.shared.victims import by_importance, importance
from stellwerk.profiles.spec.plugin_args import DefaultPreemptionArgs, PodsOfLowerPriority
from stellwerk.snapshot.columns import ChangeCursor, Mask, RowColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.compatibility import ReleaseRule
from stellwerk_kube.json_values import text_map

if TYPE_CHECKING:
    from stellwerk_kube.selectors import LabelSelector

MAX_SPECS: Final = 4
"""Results for pods of so many specs are held at a time."""

DryRunOutcome: TypeAlias = Candidate | Status
DryRunOutcomes: TypeAlias = dict[int, DryRunOutcome]
"""The outcome of each row that was tried."""


class VictimRule:
    """The pods of lower priority that a profile lets be evicted, by their namespaces."""

    def __init__(self, args: DefaultPreemptionArgs, objects: ObjectStore) -> None:
        victims = args.victims
        self.limits: Final = victims is not None
        """Whether it leaves out any pod."""
        self._others: LabelSelector | None = None
        if isinstance(victims, PodsOfLowerPriority):
            self._others = victims.of.compiled()
        self._objects = objects

    def admits(self, namespace: str, victim: PodInfo) -> bool:
        """Whether a pod may be evicted for one of a namespace, as far as that matters."""
        if not self.limits or victim.namespace == namespace:
            return True
        if self._others is None:
            return False
        obj = self._objects.get("Namespace", "", victim.namespace)
        return obj is not None and self._others.matches(text_map(obj["metadata"].get("labels")))


class DryRunResults:
    """Outcomes that still hold, by spec, of the specs that were asked for last.

    An outcome is handed out only while the node, every pod on it, the pods nominated to it and all
    budgets are the very objects that it was found with; its victims are therefore the newest
    records of these pods. Where time orders victims, it is handed out only until a pod on the node
    has run for long enough, and not after the clock was set back.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._budgets = ChangeCursor(handle.objects.changes(POD_DISRUPTION_BUDGET))
        self._of_key: OrderedDict[Hashable, SpecResults] = OrderedDict()

    def of(self, key: Hashable, pod: PodInfo, now_seconds: float = 0.0) -> "SpecResults":
        """The outcomes for pods of a key that hold for a pod; the caller adds to them.

        `now_seconds`: the moment of the attempt, where time orders victims.
        """
        if not self._budgets.current:
            self._budgets.catch_up()
            self._of_key.clear()
        results = self._of_key.get(key)
        if results is None:
            while len(self._of_key) >= MAX_SPECS:
                self._of_key.popitem(last=False)
            results = self._of_key[key] = SpecResults(self._handle)
        self._of_key.move_to_end(key)
        results.forget_changed(pod)
        results.forget_outdated(now_seconds)
        return results


class SpecResults:
    """Outcomes for pods of one key, and the changes up to which they hold."""

    def __init__(self, handle: Handle) -> None:
        self.outcomes: DryRunOutcomes = {}
        self._until: dict[int, float] = {}
        """By row, the moment at which time changes its outcome; rows without one are left out."""
        self._next_seconds = math.inf
        """No later than the first of these."""
        self._now_seconds = -math.inf
        """The moment of the last attempt."""
        self._verdicts = VerdictCursor(handle.snapshot, handle.nominations)
        self._records = ChangeCursor(handle.snapshot.record_changes)

    def forget_changed(self, pod: PodInfo) -> None:
        """Drop the outcomes of rows that changed since the last call."""
        rows, records = self._verdicts.changed(pod), self._records.advance()
        self._verdicts.catch_up(pod)
        if rows is None or records is None:
            self.outcomes.clear()
            return
        for row in rows.union(records):
            self.outcomes.pop(row, None)

    def holds_until(self, row: int, seconds: float) -> None:
        """Note until when the outcome of a row holds; infinite: until something changes."""
        if seconds == math.inf:
            self._until.pop(row, None)
        else:
            self._until[row] = seconds
            self._next_seconds = min(self._next_seconds, seconds)

    def forget_outdated(self, now_seconds: float) -> None:
        """Drop the outcomes that time has changed; all of them if it has gone back."""
        if now_seconds < self._now_seconds:
            self.outcomes.clear()
            self._until.clear()
        self._now_seconds = now_seconds
        if now_seconds >= self._next_seconds:
            for row in [row for row, until in self._until.items() if until <= now_seconds]:
                self.outcomes.pop(row, None)
                del self._until[row]
            self._next_seconds = min(self._until.values(), default=math.inf)


OFFER_WITHOUT_VICTIMS: Final = "DefaultPreemption/offer nodes without victims"
"""The key of a cycle's state under which extenders that preempt are asked about the candidates."""
NO_VICTIMS: Final = unresolvable("", "No preemption victims found for incoming pod")


@dataclass(slots=True)
class _VictimSelection:
    """The victims of one node, while they are looked for."""

    position: int
    reprieve: list[tuple[PodInfo, bool]]
    """The pods to put back, in this order, and whether taking each would violate a budget."""
    victims: list[PodInfo] = field(default_factory=list)
    pdb_violations: int = 0

    def outcome(self, node_name: str, without_victims: Candidate | Status) -> Candidate | Status:
        """The candidate, now that every pod has had a chance to stay.

        `without_victims`: the answer where the pod fits with every pod in place, since extenders
        alone refuse the node, or since the filters contradict themselves.
        """
        if not self.victims:
            return without_victims
        self.victims.sort(key=importance)
        return Candidate(node_name, tuple(self.victims), self.pdb_violations)


class DryRun:
    """The dry run for one pod."""

    def __init__(
        self,
        handle: Handle,
        state: CycleState,
        pod: PodInfo,
        budgets: DisruptionBudgets,
        results: DryRunResults | None = None,
        rule: VictimRule | None = None,
        order: VictimOrder = KUBE_SCHEDULERS_ORDER,
    ) -> None:
        """With `results`, what is found serves later pods of the same spec, too.

        `rule` says which pods may be victims; without one all of lower priority may. `order` says
        which of equal priority are put back first; results are kept for one order each.
        """
        self._order = order
        self._rule = rule if rule is not None and rule.limits else None
        self._snapshot = handle.snapshot
        self._offers_empty = ReleaseRule.OFFER_WITHOUT_VICTIMS in handle.compatibility
        self._filters = handle.filters
        self._state = state
        self._pod = pod
        self._budgets = budgets
        self._known: SpecResults | None = None
        # What a rule admits depends on the namespace of the pod, and on labels of namespaces.
        if results is not None and self._rule is None and self._filters.is_row_local(state, pod):
            key = (
                pod.spec,
                state.group,
                frozenset(state.skipped_filters),
                bool(state.get(OFFER_WITHOUT_VICTIMS, bool)),
            )
            self._known = results.of(key, pod, order.now_seconds)

    def run(self, rows: RowColumn) -> list[DryRunOutcome]:
        """For each row, the candidate, or the status that says why the node is none."""
        known = self._known
        if known is None:
            return self._run_all(rows)
        outcomes, numbers = known.outcomes, rows.tolist()
        untried = [row for row in numbers if row not in outcomes]
        outcomes.update(zip(untried, self._run_all(np.array(untried, np.intp)), strict=True))
        if self._order.min_run_seconds:
            for row in untried:
                known.holds_until(row, self._order.holds_until(self._lower(row)))
        return [outcomes[row] for row in numbers]

    def _run_all(self, rows: RowColumn) -> list[DryRunOutcome]:
        """`run` without looking at what was found before."""
        lower = [self._lower(row) for row in rows.tolist()]
        # Nodes without victims are answered without looking at them.
        inhabited = [index for index, pods in enumerate(lower) if pods]
        outcomes: list[DryRunOutcome] = [NO_VICTIMS] * len(rows)
        found = self._clear(rows[inhabited], [lower[index] for index in inhabited])
        for index, outcome in zip(inhabited, found, strict=True):
            outcomes[index] = outcome
        return outcomes

    def may_be_cleared(self, row: int) -> bool:
        """Whether a node is a candidate, as far as is known without a look at it."""
        outcome = self._known.outcomes.get(row) if self._known is not None else None
        return bool(self._lower(row)) if outcome is None else isinstance(outcome, Candidate)

    def _lower(self, row: int) -> list[PodInfo]:
        """The pods on a node that this one may preempt; none of the group it is decided with."""
        priority, group = self._pod.spec.priority, self._state.group
        pods = self._snapshot.pods[row].values()
        lower = [pod for pod in pods if pod.spec.priority < priority]
        if self._rule is not None:
            lower = [pod for pod in lower if self._rule.admits(self._pod.namespace, pod)]
        return lower if group is None else [pod for pod in lower if pod.group != group]

    def _clear(self, rows: RowColumn, lower: list[list[PodInfo]]) -> list[DryRunOutcome]:
        """`run` for nodes that hold pods of lower priority, which are given."""
        if not len(rows):
            return []
        view = NodeView(self._snapshot, rows).with_overlay()
        self._remove(view, [(position, pod) for position, pods in enumerate(lower) for pod in pods])
        emptied = self._filters.run_with_nominated_pods(self._state, self._pod, view)
        outcomes: list[DryRunOutcome] = list(emptied.statuses())
        fitting = np.flatnonzero(emptied.fits)
        selections = [
            _VictimSelection(position, self._in_order_of_reprieve(lower[cleared]))
            for position, cleared in enumerate(fitting.tolist())
        ]
        if len(fitting) < len(rows):
            # Nodes that cannot be cleared, for one because others are nominated to them, cost no
            # further look.
            view = view.narrowed(fitting)
        self._reprieve(view, selections)
        names = self._snapshot.names(rows[fitting].tolist())
        for cleared, selection, name in zip(fitting.tolist(), selections, names, strict=True):
            outcomes[cleared] = selection.outcome(name, self._without_victims(name))
        return outcomes

    def _without_victims(self, node_name: str) -> DryRunOutcome:
        """The outcome for a node that the pod fits on with every pod in place."""
        if not self._offers_empty:
            return error("", f'expected at least one victim pod on node "{node_name}"')
        if self._state.get(OFFER_WITHOUT_VICTIMS, bool):
            return Candidate(node_name, (), 0)
        return NO_VICTIMS

    def _in_order_of_reprieve(self, pods: list[PodInfo]) -> list[tuple[PodInfo, bool]]:
        """Pods whose budget would be violated, then the others; the most important first."""
        ordered = by_importance(pods, self._order)
        marked = list(zip(ordered, self._budgets.violating(ordered), strict=True))
        return [each for each in marked if each[1]] + [each for each in marked if not each[1]]

    def _reprieve(self, view: NodeView, selections: Sequence[_VictimSelection]) -> None:
        """Put back the pods that need not go: the first of every node, then the second, ..."""
        longest = max((len(selection.reprieve) for selection in selections), default=0)
        for rank in range(longest):
            trying = [selection for selection in selections if rank < len(selection.reprieve)]
            self._add(view, [(each.position, each.reprieve[rank][0]) for each in trying])
            fits = self._fits(view)
            victims: list[tuple[int, PodInfo]] = []
            for selection in trying:
                pod, violates = selection.reprieve[rank]
                if not fits[selection.position]:
                    selection.victims.append(pod)
                    selection.pdb_violations += violates
                    victims.append((selection.position, pod))
            self._remove(view, victims)

    def _fits(self, view: NodeView) -> Mask:
        return self._filters.run_with_nominated_pods(self._state, self._pod, view).fits

    def _add(self, view: NodeView, pods: PlacedPods) -> None:
        if pods:
            self._filters.add_pods(self._state, self._pod, view, pods)

    def _remove(self, view: NodeView, pods: PlacedPods) -> None:
        if pods:
            self._filters.remove_pods(self._state, self._pod, view, pods)
