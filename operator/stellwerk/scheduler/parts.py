"""What the parts of the scheduler share: one object that `app` fills in and everybody is handed.

Plain state with the few operations that touch several parts at once. Invariant: every unbound pod
that a profile serves has an entry in `queue`, also while it is being scheduled or bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stellwerk.backend.cache import Cache
from stellwerk.backend.object_store import ObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.clock import Clock
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.framework.services import ClusterClient, Recorder
from stellwerk.metrics import Metrics, attempts_label
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.extenders.raw_objects import RawObjects
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.scheduler.waiting_pods import WaitingPodsMap

if TYPE_CHECKING:
    from stellwerk.scheduler.preemption import PreemptionExecutor
    from stellwerk.scheduler.profiles.profiles import Profiles
    from stellwerk.scheduler.profiles.queueing import ProfileQueueing
    from stellwerk.scheduler.profiles.unserved import UnservedPods


@dataclass(slots=True)
class Parts:
    """See the module docstring."""

    clock: Clock
    client: ClusterClient
    recorder: Recorder
    metrics: Metrics
    cache: Cache
    objects: ObjectStore
    priority_classes: PriorityClasses
    waiting: WaitingPodsMap
    bindings: BindingTasks
    raw: RawObjects
    reports: StatusReports
    queue: SchedulingQueue = field(init=False)
    profiles: "Profiles" = field(init=False)
    queueing: "ProfileQueueing" = field(init=False)
    preemptor: "PreemptionExecutor" = field(init=False)
    unserved: "UnservedPods" = field(init=False)
    unconfirmed: dict[str, float] = field(default_factory=dict)
    """Pods that were bound (at that monotonic time) and that the watch has not shown bound yet."""
    deciding: str = ""
    """The uid of the pod that the scheduling coroutine is at."""
    listeners: list[Callable[[], None]] = field(default_factory=list)
    """Called after watch events: predicates that plugins wait for are looked at again."""

    def changed(self, change: ClusterChange) -> None:
        """Tell the queue what may wake pods."""
        self.queue.move_all_to_active_or_backoff(change, self.clock.monotonic())

    def notify(self) -> None:
        """Something was seen in the cluster."""
        for listener in self.listeners:
            listener()

    def room_freed(self, assumed: PodInfo, *, except_itself: bool = False) -> None:
        """An assumption was taken back: who waits for room may try, the pod itself perhaps not."""
        self.preemptor.on_leaving(assumed.uid)
        self.queue.move_all_to_active_or_backoff(
            ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, assumed, None),
            self.clock.monotonic(),
            except_uid=assumed.uid if except_itself else "",
        )

    def observe_scheduled(self, queued: QueuedPod, now: float, started_seconds: float) -> None:
        """Count a pod that got its node."""
        metrics = self.metrics
        self.profiles.scheduled(queued.pod.spec.scheduler_name)
        metrics.profile(queued.pod.spec.scheduler_name).attempt("scheduled", now - started_seconds)
        metrics.pod_scheduling_attempts.labels().observe(queued.attempts)
        if queued.was_flushed:
            metrics.pod_scheduled_after_flush.labels().inc()
        metrics.pod_scheduling_sli_duration.labels(attempts_label(queued.attempts)).observe(
            now - (queued.initial_attempt_at or now)
        )
