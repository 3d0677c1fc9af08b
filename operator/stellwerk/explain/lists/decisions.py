"""The pods that got a node, as a list.

The operator's port serves it (`stellwerk decisions`). Invariant: the page is made in steps.
"""

from collections.abc import Callable, Iterable
from heapq import nlargest

from stellwerk.answers.decisions import DecidedPod, DecisionsPage
from stellwerk.answers.observed import ObservedComparison, ObservedProfile
from stellwerk.explain.lists.page import (
    ALL_PODS,
    MAX_ENTRIES_PER_PAGE,
    MAX_ENTRIES_PER_STEP,
    MAX_MATCHES_PER_STEP,
    Page,
    PodsAsked,
)
from stellwerk.explain.queue_facts import at
from stellwerk.explain.records import DecisionRecords
from stellwerk.explain.steps import Steps
from stellwerk.world.world import World


def decisions_page(
    world: World,
    records: DecisionRecords,
    page: Page,
    asked: PodsAsked = ALL_PODS,
    observed: Callable[[int], Iterable[ObservedProfile]] = lambda _: (),
) -> Steps[DecisionsPage]:
    """Pods that got a node, the last decision first, as many as are kept.

    `observed` gives the observed profiles with up to this number of their comparisons.
    """
    yield
    total = len(records)
    if asked == ALL_PODS:
        shown = list(records.newest(page.offset, page.limit))
    else:
        found = []
        for number, record in enumerate(list(records.newest(0, total))):
            if number % MAX_MATCHES_PER_STEP == 0:
                yield
            if asked.got(record):
                found.append(record)
        total, shown = len(found), found[page.offset : page.offset + page.limit]
    items = []
    for number, record in enumerate(shown):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        items.append(
            DecidedPod(
                pod=record.key,
                node=record.node_name,
                scheduler_name=record.scheduler_name,
                decided_at=at(world.clock, record.decided_at_seconds),
                attempts=record.attempts,
                feasible=record.feasible,
                nodes=record.nodes,
                tied=record.tied,
                compatibility=str(record.release),
            )
        )
    compared: list[ObservedComparison] | None = None
    if page.offset == 0:
        for profile in observed(MAX_ENTRIES_PER_PAGE):
            yield
            found_here = (
                each for each in profile.comparisons if asked.is_bound(each.pod, each.node)
            )
            compared = [*(compared or ()), *found_here]
    if compared is not None:
        compared = nlargest(page.limit, compared, key=lambda each: each.at)
    return DecisionsPage(total=total, items=items, observed=compared)
