"""The pods that got a node, as a list.

The operator's port serves it (`stellwerk decisions`). Invariant: the page is made in steps.
"""

from stellwerk.answers.decisions import DecidedPod, DecisionsPage
from stellwerk.explain.lists.page import (
    ALL_PODS,
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
    world: World, records: DecisionRecords, page: Page, asked: PodsAsked = ALL_PODS
) -> Steps[DecisionsPage]:
    """Pods that got a node, the last decision first, as many as are kept."""
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
    return DecisionsPage(total=total, items=items)
