"""Other orders of a group's members, for when the first one leaves too few of them placed.

Group decisions try them one after the other within a budget. Invariant: the same members and the
same attempts give the same orders, and no order is given twice.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk.world.gangs.group_attempt import (
    GroupAttempt,
    GroupContext,
    Steps,
    all_alike,
    could_hold,
    place,
    undo_attempt,
)
from stellwerk.world.gangs.group_request import GroupRequest

MAX_ORDERS: Final = 24


def try_other_orders(
    context: GroupContext, request: GroupRequest, last: GroupAttempt, budget_seconds: float
) -> Steps[tuple[GroupAttempt | None, int]]:
    """Try other orders where the last one failed: (what meets the request, how many were tried).

    What was tried in vain is undone; None: all of it.
    """
    orders, tried = MemberOrders(context, request, budget_seconds), 0
    if not orders.is_worth_it(request.needed):
        return None, tried
    while (order := orders.next(last)) is not None:
        last = yield from place(context, order, last.placement)
        tried += 1
        if request.is_met_by(last):
            return last, tried
        undo_attempt(context, last)
    return None, tried


class MemberOrders:
    """Orders by size, by affinity, and by what was refused in the last one."""

    def __init__(self, context: GroupContext, request: GroupRequest, budget_seconds: float) -> None:
        self._context = context
        self._now = context.world.clock.monotonic
        self._ends = self._now() + budget_seconds
        self._goes_on = request.goes_on
        self._snapshot = context.world.cache.snapshot
        self._members = members = request.members
        self._given = {_identity(members)}

    def is_worth_it(self, needed: int) -> bool:
        """Whether an order can matter: the members differ, and so many could be held at all."""
        # What the last attempt assumed has been undone in the cache alone.
        self._context.world.cache.update_snapshot()
        return not all_alike(self._members) and could_hold(self._context, self._members, needed)

    def next(self, last: GroupAttempt) -> Sequence[PodInfo] | None:
        """The order to be tried after an attempt; None: there is none, or the time is over."""
        if not self._goes_on(self._now() < self._ends) or len(self._given) > MAX_ORDERS:
            return None
        for order in self._orders(last):
            identity = _identity(order)
            if identity not in self._given:
                self._given.add(identity)
                return order
        return None

    def _orders(self, last: GroupAttempt) -> Iterator[list[PodInfo]]:
        largest = sorted(self._members, key=self._size, reverse=True)
        yield sorted(largest, key=_needs_partner)
        yield sorted(self._members, key=_needs_partner)
        tried = [result.pod for result in last.results]
        refused = [result.pod for result in last.results if result.assumed is None]
        uids, seen = {pod.uid for pod in refused}, {pod.uid for pod in tried}
        # Of an attempt that was ended, some members have no result.
        untried = [pod for pod in self._members if pod.uid not in seen]
        others = [*(pod for pod in tried if pod.uid not in uids), *untried]
        yield [*refused, *others]
        yield [*others, *refused]

    def _size(self, pod: PodInfo) -> float:
        """The largest share of the cluster that a pod asks for, of any resource."""
        share = 0.0
        for resource, amount in pod.amounts.requests.items():
            index = self._snapshot.resource_index(resource)
            if index is not None:
                share = max(share, amount / max(1, int(self._snapshot.allocatable[index].sum())))
        return share


def _needs_partner(pod: PodInfo) -> bool:
    """Whether the pod can only be placed after another, as its affinity says."""
    return bool(pod.spec.pod_affinity.required)


def _identity(order: Sequence[PodInfo]) -> tuple[str, ...]:
    return tuple(pod.uid for pod in order)
