"""What the profiles in use say about queueing; the queue's QueueingPolicy.

Invariant: whatever a plugin does, the queue gets an answer. A plugin that raises in PreEnqueue
gates the pod under its own name until it is asked again; one that raises in QueueSort or when its
events are registered is replaced by what holds without it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.framework.events import ClusterEventWithHint
from stellwerk.framework.extension_points import ENQUEUE_EXTENSIONS, PRE_ENQUEUE, QUEUE_SORT
from stellwerk.framework.interface import (
    Plugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
)
from stellwerk.framework.runtime import Framework
from stellwerk.framework.status import OK, Code, Status
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.profiles.profiles import Profiles

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Queueing:
    """A framework's plugins for the queue, found once: asking them for their roles is slow."""

    framework: Framework
    sorts: Sequence[QueueSortPlugin]
    gates: Sequence[PreEnqueuePlugin]

    @classmethod
    def of(cls, framework: Framework) -> "_Queueing":
        """Look them up."""
        plugins = framework.plugins
        return cls(framework, QUEUE_SORT.among(plugins), PRE_ENQUEUE.among(plugins))


class ProfileQueueing:
    """See the module docstring."""

    def __init__(self, profiles: Profiles, metrics: Metrics) -> None:
        self._profiles = profiles
        self._metrics = metrics
        self._unanswered: set[str] = set()
        """Uids of pods that are gated because a plugin raised."""
        self._known: dict[str, _Queueing] = {}
        """By schedulerName."""

    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """The place of a pod in activeQ; every profile has the same QueueSort."""
        scheduler_name = pod.spec.scheduler_name
        framework = self._profiles.framework(scheduler_name)
        for plugin in self._queueing(framework, scheduler_name).sorts if framework else ():
            try:
                return plugin.sort_key(pod, queued_at_seconds)
            except Exception:
                logger.exception("%s cannot sort %s in", plugin.name, pod.key)
                self._count(plugin, "QueueSort", scheduler_name)
        return (-pod.priority, queued_at_seconds)

    def pre_enqueue(self, pod: PodInfo, first_plugin: str) -> Status:
        """Run PreEnqueue; the plugin that gated the pod last time is asked first."""
        scheduler_name = pod.spec.scheduler_name
        framework = self._profiles.framework(scheduler_name)
        if framework is None:
            return OK
        started = framework.stopwatch.started()
        status = self._gate(self._queueing(framework, scheduler_name).gates, pod, first_plugin)
        framework.stopwatch.point("PreEnqueue", status.code, started)
        return status

    def _gate(self, plugins: Sequence[PreEnqueuePlugin], pod: PodInfo, first_plugin: str) -> Status:
        if first_plugin and len(plugins) > 1:
            plugins = sorted(plugins, key=lambda plugin: plugin.name != first_plugin)
        for plugin in plugins:
            status = self._ask(plugin, pod)
            if not status.ok:
                return Status(status.code, status.reasons, plugin.name)
        return OK

    def hints(self, scheduler_name: str) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """What each plugin of a profile registered; one that is missing waits for every event."""
        framework = self._profiles.framework(scheduler_name)
        if framework is None:
            return {}
        hints = {}
        for at_point in framework.plugins.values():
            for plugin in at_point:
                if plugin.name not in hints and ENQUEUE_EXTENSIONS.implemented_by(plugin):
                    try:
                        hints[plugin.name] = plugin.events_to_register()
                    except Exception:
                        logger.exception("%s cannot register its events", plugin.name)
                        self._count(plugin, "EventsToRegister", scheduler_name)
        return hints

    def backoff(self, scheduler_name: str) -> Backoff:
        """How long failed pods of a profile are left alone."""
        profile = self._profiles.profile(scheduler_name)
        if profile is None:
            return Backoff()
        spec = profile.spec
        return Backoff(spec.pod_initial_backoff_seconds, spec.pod_max_backoff_seconds)

    def take_unanswered(self) -> set[str]:
        """Pods to be asked about again, because a plugin could not answer; each is named once."""
        uids, self._unanswered = self._unanswered, set()
        return uids

    def _ask(self, plugin: PreEnqueuePlugin, pod: PodInfo) -> Status:
        try:
            return plugin.pre_enqueue(pod)
        except Exception as failure:
            logger.exception("%s is gated: PreEnqueue of %s failed", pod.key, plugin.name)
            self._unanswered.add(pod.uid)
            self._count(plugin, "PreEnqueue", pod.spec.scheduler_name)
            return Status(Code.ERROR, (f"{type(failure).__name__}: {failure}",))

    def _count(self, plugin: Plugin, point: str, scheduler_name: str) -> None:
        self._metrics.plugin_failures.labels(plugin.name, point, scheduler_name).inc()

    def _queueing(self, framework: Framework, scheduler_name: str) -> _Queueing:
        known = self._known.get(scheduler_name)
        if known is None or known.framework is not framework:
            known = self._known[scheduler_name] = _Queueing.of(framework)
        return known
