"""The pods that wait, as a list.

The operator's port serves it (`stellwerk queue`). Invariant: the page is made in steps; within a
queue, pods stand in the order in which they are tried.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from stellwerk.answers.queue import PendingPod, QueuePage, UnservedPod
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.lists.page import (
    ALL_PODS,
    MAX_ENTRIES_PER_STEP,
    MAX_MATCHES_PER_STEP,
    Page,
    PodsAsked,
)
from stellwerk.explain.queue_facts import QUEUES, at, is_skipped
from stellwerk.explain.steps import Steps
from stellwerk.models.pod import PodInfo
from stellwerk.world.pod_status import POD_SCHEDULED, SCHEDULER_ERROR
from stellwerk.world.world import World

_MAX_COMPARED_NAMES: Final = 100
"""Different schedulerNames that are compared with the served ones: comparing takes long."""


def queue_page(
    world: World,
    page: Page,
    without_profile: Iterable[PodInfo] = (),
    asked: PodsAsked = ALL_PODS,
    is_unserved: Callable[[PodInfo], bool] = lambda _: True,
) -> Steps[QueuePage]:
    """Pending pods, in the order in which they would be tried within each queue.

    Args:
        world: has the queue.
        page: the part that is wanted.
        without_profile: pods that no profile serves.
        asked: a filter of the pods.
        is_unserved: tells those of them that no scheduler serves.
    """
    entries = list(world.queue.entries.values())
    yield
    wanted = []
    for number, entry in enumerate(entries):
        if number % MAX_MATCHES_PER_STEP == MAX_MATCHES_PER_STEP - 1:
            yield
        if not is_skipped(world, entry) and (asked == ALL_PODS or asked.waits(entry)):
            wanted.append(entry)
    entries = wanted
    entries.sort(key=tried_order)
    yield
    shown = entries[page.offset : page.offset + page.limit]
    items = []
    for number, entry in enumerate(shown):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        items.append(_queued(world, entry))
    result = QueuePage(counts=dict(world.queue.pending()), total=len(entries), items=items)
    unserved, count = yield from _unserved(world, page, without_profile, asked, is_unserved)
    if not count:
        return result
    served = sorted(world.profiles.served)
    return replace(result, unserved=unserved, unserved_total=count, served=served)


def _unserved(
    world: World,
    page: Page,
    without_profile: Iterable[PodInfo],
    asked: PodsAsked,
    is_unserved: Callable[[PodInfo], bool],
) -> Steps[tuple[list[UnservedPod], int]]:
    """The pods that no scheduler serves, on the first page alone, and how many there are."""
    found, count, reasons = list[UnservedPod](), 0, dict[str, str]()
    for number, pod in enumerate(list(without_profile)):
        if number % MAX_ENTRIES_PER_STEP == MAX_ENTRIES_PER_STEP - 1:
            yield
        if not asked.is_without_queue(pod) or not is_unserved(pod):
            continue
        count += 1
        if page.offset or len(found) >= page.limit:
            continue
        name = pod.spec.scheduler_name
        reason = reasons.get(name)
        if reason is None:
            # Comparing names takes long. Only of a served name reasons differ by pod.
            reason = world.profiles.why_none(pod, hints=len(reasons) < _MAX_COMPARED_NAMES)
            if name not in world.profiles.served:
                reasons[name] = reason
        found.append(
            UnservedPod(
                pod=pod.key,
                scheduler_name=name,
                priority=pod.priority,
                reason=reason,
                labels=dict(pod.labels) or None,
            )
        )
    return found, count


def tried_order(entry: QueuedPod) -> tuple[int, tuple[float, ...], float]:
    """The sort key of pending pods: their queue, and in it the order in which they are tried."""
    return (int(entry.place), entry.sort_key, entry.backoff_expiration or entry.queued_at)


def _queued(world: World, entry: QueuedPod) -> PendingPod:
    return PendingPod(
        pod=entry.newest.key,
        queue=QUEUES.get(entry.place, "none"),
        scheduler_name=entry.newest.spec.scheduler_name,
        priority=entry.newest.priority,
        since=at(world.clock, entry.queued_at),
        attempts=entry.attempts,
        rejected_by=sorted(entry.rejector_plugins) or None,
        error=_error(entry.newest) if entry.consecutive_errors else None,
        labels=dict(entry.newest.labels) or None,
    )


def _error(pod: PodInfo) -> str | None:
    """The message of the condition that an attempt left which ended in an error."""
    for each in pod.conditions:
        if each.get("type") == POD_SCHEDULED and each.get("reason") == SCHEDULER_ERROR:
            return str(each.get("message") or "") or None
    return None
