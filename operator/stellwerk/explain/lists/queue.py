"""The pods that wait, as a list of pods, or by their controllers and the reasons.

The operator's port serves both (`stellwerk queue`, the page). Invariant: the answer is made in
steps; within a queue, pods stand in the order in which they are tried, unless another order is
asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from stellwerk.answers.queue import PendingGroup, PendingPod, QueuePage, UnservedPod
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.lists.page import (
    ALL_PODS,
    MAX_ENTRIES_PER_STEP,
    MAX_MATCHES_PER_STEP,
    Page,
    PodsAsked,
    controller_key,
    natural_order,
)
from stellwerk.explain.queue_facts import at, is_skipped, queue_name
from stellwerk.explain.steps import Steps
from stellwerk.models.pod import PodInfo
from stellwerk.world.pod_status import POD_SCHEDULED, SCHEDULER_ERROR
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError

_MAX_COMPARED_NAMES: Final = 100
"""Different schedulerNames that are compared with the served ones: comparing takes long."""
_MAX_MESSAGE_CHARACTERS: Final = 400
"""Characters of a message that a row shows. The pod's own page has the whole text."""
_Row = TypeVar("_Row")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """The order of a list of pods that wait, and whether their controllers are listed."""

    sort: str = ""
    """A key of QUEUE_COLUMNS, with - before it the other way round; empty: pods as each queue tries
    them, controllers by the number of their pods."""
    by_controller: bool = False

    def __post_init__(self) -> None:
        """Check the column.

        Raises:
            ConfigurationError: there is no such column.
        """
        if self.sort and self.column not in _SORTS:
            raise ConfigurationError(
                f'the queue is sorted by one of {", ".join(_SORTS)}, not "{self.column}"'
            )

    @property
    def column(self) -> str:
        """The column without the sign of its direction."""
        return self.sort.removeprefix("-")


def queue_page(
    world: World,
    page: Page,
    without_profile: Iterable[PodInfo] = (),
    asked: PodsAsked = ALL_PODS,
    is_unserved: Callable[[PodInfo], bool] = lambda _: True,
    order: QueueOrder | None = None,
) -> Steps[QueuePage]:
    """Pending pods, in the order in which they would be tried within each queue.

    Args:
        world: has the queue.
        page: the part that is wanted.
        without_profile: pods that no profile serves.
        asked: a filter of the pods.
        is_unserved: tells those of them that no scheduler serves.
        order: another order, or controllers in place of pods.
    """
    order = order or QueueOrder()
    entries = list(world.queue.entries.values())
    yield
    wanted = []
    for number, entry in enumerate(entries):
        if number % MAX_MATCHES_PER_STEP == MAX_MATCHES_PER_STEP - 1:
            yield
        if not is_skipped(world, entry) and (asked == ALL_PODS or asked.waits(entry)):
            wanted.append(entry)
    part = slice(page.offset, page.offset + page.limit)
    result = QueuePage(counts=dict(world.queue.pending()), total=len(wanted), items=())
    if order.by_controller:
        rows = yield from _by_controller(wanted)
        rows = yield from _sorted(rows, order)
        shown = yield from _written(rows[part], lambda row: _pending_group(world, row))
        result = replace(result, groups=shown, groups_total=len(rows))
    else:
        if order.sort:
            alone = yield from _alone(wanted)
            alone = yield from _sorted(alone, order)
            wanted = [row.longest for row in alone]
        else:
            wanted.sort(key=tried_order)
            yield
        items = yield from _written(wanted[part], lambda entry: _queued(world, entry))
        result = replace(result, items=items)
    unserved, count = yield from _unserved(world, page, without_profile, asked, is_unserved)
    if not count:
        return result
    served = sorted(world.profiles.served)
    return replace(result, unserved=unserved, unserved_total=count, served=served)


def _written(rows: Iterable[_Row], write: Callable[[_Row], _Item]) -> Steps[list[_Item]]:
    """The items of a list, one for each row."""
    items = []
    for number, row in enumerate(rows):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        items.append(write(row))
    return items


# --- by controller ------------------------------------------------------------------------------


@dataclass(slots=True)
class _PodRow:
    """One pod as a row, or what a row of several has in common with it."""

    longest: QueuedPod
    """The one that waits longest."""
    key: str = ""
    """NAMESPACE/KIND/NAME of the controller; empty: none made the one pod."""
    pods: int = 1
    priority: int = 0
    attempts: int = 0
    created: str = ""

    def __post_init__(self) -> None:
        self.priority, self.attempts = self.longest.newest.priority, self.longest.attempts
        self.created = self.longest.newest.created


@dataclass(slots=True)
class _Group(_PodRow):
    """Pods of one controller that are one row."""

    queues: Counter[str] = field(default_factory=Counter)
    profiles: set[str] = field(default_factory=set)


def _by_controller(entries: Iterable[QueuedPod]) -> Steps[list[_Group]]:
    """The pods by controller, and by the plugins that turned them away."""
    groups: dict[object, _Group] = {}
    for number, entry in enumerate(entries):
        if number % MAX_MATCHES_PER_STEP == MAX_MATCHES_PER_STEP - 1:
            yield
        pod, error = entry.newest, entry.consecutive_errors > 0
        key = controller_key(pod)
        same = (key, entry.rejector_plugins, error) if key else pod.uid
        group = groups.get(same)
        if group is None:
            group = groups[same] = _Group(entry, key)
        else:
            group.pods += 1
            if _waits_since(entry) < _waits_since(group.longest):
                group.longest = entry
            group.priority = max(group.priority, pod.priority)
            group.attempts = max(group.attempts, entry.attempts)
            group.created = min(filter(None, (group.created, pod.created)), default="")
        group.queues[queue_name(entry)] += 1
        group.profiles.add(pod.spec.scheduler_name)
    return list(groups.values())


def _alone(entries: Iterable[QueuedPod]) -> Steps[list[_PodRow]]:
    """Each pod as a row of its own."""
    rows = []
    for number, entry in enumerate(entries):
        if number % MAX_ENTRIES_PER_STEP == MAX_ENTRIES_PER_STEP - 1:
            yield
        rows.append(_PodRow(entry))
    return rows


_Sortable = TypeVar("_Sortable", bound=_PodRow)
_Value: TypeAlias = Any
"""A number or a text: what a column is sorted by."""
_SORTS: Final[Mapping[str, Callable[[_PodRow], _Value]]] = {
    "name": lambda row: natural_order(row.key.partition("/")[2] or row.longest.newest.name),
    "reason": lambda row: ",".join(sorted(row.longest.rejector_plugins)),
    "pods": lambda row: -row.pods,
    "namespace": lambda row: row.longest.newest.namespace,
    "profile": lambda row: row.longest.newest.spec.scheduler_name,
    "queue": lambda row: int(row.longest.place),
    "priority": lambda row: -row.priority,
    "attempts": lambda row: -row.attempts,
    "waits": lambda row: _waits_since(row.longest),
    "age": lambda row: row.created or "9",  # behind every time, which begins with its year
}
"""The sort key of each column: the largest numbers, the longest times and the first names come
first."""


def _sorted(rows: list[_Sortable], order: QueueOrder) -> Steps[list[_Sortable]]:
    """The rows in the order of a column; rows that are equal there by name."""
    value = _SORTS[order.column or "pods"]
    keyed: list[tuple[_Value, str, int]] = []
    for number, row in enumerate(rows):
        if number % MAX_MATCHES_PER_STEP == MAX_MATCHES_PER_STEP - 1:
            yield
        keyed.append((value(row), natural_order(row.longest.newest.key), number))
    yield
    keyed.sort(reverse=order.sort.startswith("-"))
    return [rows[number] for _, _, number in keyed]


def _waits_since(entry: QueuedPod) -> float:
    """The monotonic time from which a pod waits: attempts do not change it."""
    first = entry.initial_attempt_at
    return entry.queued_at if first is None else min(first, entry.queued_at)


def _pending_group(world: World, group: _Group) -> PendingGroup:
    longest = group.longest
    pod = longest.newest
    return PendingGroup(
        namespace=pod.namespace,
        controller=group.key.partition("/")[2] or None,
        pods=group.pods,
        longest_waiting=pod.key,
        queues=dict(group.queues),
        rejected_by=sorted(longest.rejector_plugins) or None,
        error=_error(pod) if longest.consecutive_errors else None,
        message=scheduled_message(pod)[:_MAX_MESSAGE_CHARACTERS] or None,
        profiles=sorted(group.profiles),
        priority=group.priority,
        attempts=group.attempts,
        waits_since=at(world.clock, _waits_since(longest)),
        created=group.created or None,
    )


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
        queue=queue_name(entry),
        scheduler_name=entry.newest.spec.scheduler_name,
        priority=entry.newest.priority,
        since=at(world.clock, entry.queued_at),
        waits_since=at(world.clock, _waits_since(entry)),
        created=entry.newest.created or None,
        attempts=entry.attempts,
        rejected_by=sorted(entry.rejector_plugins) or None,
        error=_error(entry.newest) if entry.consecutive_errors else None,
        controller=controller_key(entry.newest).partition("/")[2] or None,
        labels=dict(entry.newest.labels) or None,
    )


def _error(pod: PodInfo) -> str | None:
    """The message of the condition that an attempt left which ended in an error."""
    for each in pod.conditions:
        if each.get("type") == POD_SCHEDULED and each.get("reason") == SCHEDULER_ERROR:
            return str(each.get("message") or "") or None
    return None


def scheduled_message(pod: PodInfo) -> str:
    """The message of the PodScheduled condition; empty: none."""
    for condition in pod.conditions:
        if condition.get("type") == POD_SCHEDULED and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""
