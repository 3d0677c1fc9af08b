"""CrossNodePreemption: makes room on a node by taking pods of lower priority off several.

Off by default; a profile lists it after DefaultPreemption. It helps where no single node can be
cleared because the pods in the way run elsewhere in the topology domain: required anti-affinity,
theirs or the pod's own, or a hard spread constraint. Each set of victims is tried on the real
snapshot with the pods taken out for the moment (a `Trial`), by the same filters that the next
attempt will meet. Invariant: a set is proposed only if the pod fits somewhere without it, has at
most `maxVictims` pods, and violates no disruption budget unless the profile says so.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.interface import Candidate, PostFilterPlugin, PostFilterResult
from stellwerk.framework.services import Handle
from stellwerk.framework.types import Code, CycleState, Status, unresolvable, unschedulable
from stellwerk.models.plugin_args import CrossNodePreemptionArgs
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.plugins.preemption.blocking_pods import BlockingPods
from stellwerk.plugins.preemption.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.preemption.victim_order import by_importance
from stellwerk.plugins.preemption.victim_search import (
    Limits,
    Target,
    Victims,
    VictimSearch,
    VictimSet,
)
from stellwerk.plugins.shared.victims import is_leaving_as_victim
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.trial import Trial

_NAME: Final = "CrossNodePreemption"
_SEARCHES_PER_MILLISECOND: Final = 10
"""Sets that are tried at most, so that a search ends where no clock runs (`decide`), too."""
_PREFIX: Final = "cross-node preemption: "


class CrossNodePreemption(PostFilterPlugin):
    """Searches the pods in the way for the set whose deletion costs least."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[CrossNodePreemptionArgs]] = CrossNodePreemptionArgs

    def __init__(self, handle: Handle, args: CrossNodePreemptionArgs) -> None:
        self._handle = handle
        self._args = args
        self._budgets = DisruptionBudgets(handle.objects)

    @override
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        if pod.spec.preemption_policy == PREEMPT_NEVER:
            return _no("not eligible due to preemptionPolicy=Never.")
        blocking = BlockingPods(self._handle.snapshot, pod)
        if self._waits_for_victims(pod, blocking):
            # Ends the chain: the nomination that DefaultPreemption would clear still stands.
            reason = "not eligible due to terminating pods that are in the way of the nomination."
            return PostFilterResult(unresolvable(_NAME, _PREFIX + reason))
        if not blocking.anywhere:
            return _no("no pod of lower priority is in the way from another node.")
        search = self._search(pod, blocking, diagnosis)
        if search.best is None:
            return _no(self._why_nothing(search))
        return self._proposal(search.best, search.best_rows)

    def _waits_for_victims(self, pod: PodInfo, blocking: BlockingPods) -> bool:
        """Whether pods preempted for the node that the pod is nominated to are still going."""
        row = self._handle.snapshot.row_of.get(pod.nominated_node_name)
        return row is not None and any(
            is_leaving_as_victim(other) for other in blocking.for_row(row).values()
        )

    def _search(self, pod: PodInfo, blocking: BlockingPods, diagnosis: Diagnosis) -> VictimSearch:
        handle, args = self._handle, self._args
        deadline_seconds = handle.now_seconds() + args.timeout_milliseconds / 1000
        most = args.timeout_milliseconds * _SEARCHES_PER_MILLISECOND
        tried = 0

        def fits_without(victims: Victims) -> Mask:
            nonlocal tried
            tried += 1
            with Trial(handle.snapshot) as trial:
                trial.remove_pods(victims)
                return handle.feasible(pod)

        search = VictimSearch(
            fits_without,
            lambda victims: sum(self._budgets.violating(by_importance(victims))),
            Limits(
                args.max_victims,
                args.ignore_pod_disruption_budgets,
                lambda: tried >= most or handle.now_seconds() >= deadline_seconds,
            ),
        )
        search.run(_targets(blocking, diagnosis))
        return search

    def _proposal(self, best: VictimSet, rows: Sequence[int]) -> PostFilterResult:
        """One candidate per node that the victims make room on; they are equally good."""
        candidates = tuple(
            Candidate(name, best.victims, best.pdb_violations)
            for name in self._handle.snapshot.names(rows)
        )
        victims = ", ".join(f"{victim.key} on {victim.node_name}" for victim in best.victims)
        status = Status(Code.SUCCESS, (f"{_PREFIX}{victims} will leave.",), _NAME)
        return PostFilterResult(status, candidates, lambda remaining: remaining)

    def _why_nothing(self, search: VictimSearch) -> str:
        budgets = (
            "" if self._args.ignore_pod_disruption_budgets else " that disruption budgets allow"
        )
        text = f"found no set of at most {self._args.max_victims} victims{budgets}"
        if search.cut_short:
            return f"{text} within {self._args.timeout_milliseconds} ms."
        return f"{text}."


def _no(reason: str) -> PostFilterResult:
    return PostFilterResult(unschedulable(_NAME, _PREFIX + reason))


def _targets(blocking: BlockingPods, diagnosis: Diagnosis) -> list[Target]:
    """The nodes on which pods in the way are all that is wrong, by these pods."""
    rows_of: dict[frozenset[str], list[int]] = {}
    pods: dict[str, PodInfo] = {}
    for row, status in zip(diagnosis.rows, diagnosis.statuses, strict=True):
        if status.code is Code.UNSCHEDULABLE:
            pool = blocking.for_row(row)
            if pool:
                pods |= pool
                rows_of.setdefault(frozenset(pool), []).append(row)
    return [
        Target(np.array(rows, np.intp), by_importance(pods[uid] for uid in uids))
        for uids, rows in rows_of.items()
    ]
