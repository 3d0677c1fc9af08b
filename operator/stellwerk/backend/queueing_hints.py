"""Queueing hints of the plugins that rejected a pod, selected by kind of change, and called.

`UnschedulablePods` makes a `HintsOfPlugins` for each set of plugins that rejects pods. It selects
the functions to call about a change, and a `HintEvaluation` calls them. The selection is made once
for each kind of change: clusters send hundreds of changes a second, and most concern no pod.
Invariant: a hint function that raises counts as Queue and is reported. A needless attempt is cheap;
a pod that stays unschedulable without reason is not.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stellwerk.backend.queued_pod import QueuedPod, QueueingStrategy
from stellwerk.backend.queueing_policy import QueueObserver
from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    QueueingHintFn,
    Resource,
)
from stellwerk.models.pod import PodInfo

_log = logging.getLogger(__name__)

_PODS: Final = frozenset({Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD})
_QUEUE, _QUEUE_SKIP, _ERROR = QUEUE.value, QUEUE_SKIP.value, "Error"
"""Results of hint functions, as the metric names them."""
_ALL_EVENTS: Final = (ClusterEventWithHint(Resource.WILDCARD, Action.ALL),)


class RegisteredEvent(NamedTuple):
    """One registration of one plugin."""

    plugin: str
    event: ClusterEventWithHint

    def matches(self, change: ClusterChange) -> bool:
        """Return whether the change is among those registered (`MatchClusterEvents`)."""
        event = self.event
        if not event.action & change.action:
            return False
        if event.resource is change.resource or event.resource is Resource.WILDCARD:
            return True
        if isinstance(event.resource, str):
            return event.resource == change.resource
        return event.resource is Resource.POD and change.resource in _PODS


class RejectorPlugins(NamedTuple):
    """The plugins that rejected a pod. Pods with equal plugins have the same hints."""

    profile_name: str
    unschedulable: frozenset[str]
    pending: frozenset[str]
    gating: str

    @classmethod
    def of(cls, entry: QueuedPod) -> "RejectorPlugins":
        """Read the plugins that rejected an entry."""
        return cls(
            entry.profile_name,
            entry.unschedulable_plugins,
            entry.pending_plugins,
            entry.gating_plugin,
        )


@dataclass(frozen=True, slots=True, eq=False)
class QueueingHintFunction:
    """A plugin's hint function, and the strategy for pods for which it answers Queue."""

    plugin: str
    function: QueueingHintFn | None
    """None: Queue for every pod."""
    strategy: QueueingStrategy
    """Immediately if the plugin answered Pending, else after backoff."""


@dataclass(frozen=True, slots=True, eq=False)
class MatchingHints:
    """The hint functions to call about one kind of change."""

    levels: Sequence[Sequence[QueueingHintFunction]]
    """Functions by what they read of a pod, in the order of HintScope: an answer of the first level
    holds for most pods. No level follows the last one that has functions."""
    best: QueueingStrategy
    """The strongest strategy that any of these functions can give."""


class HintsOfPlugins:
    """The hint functions of the plugins that rejected a pod, by the changes they registered."""

    def __init__(
        self, plugins: RejectorPlugins, events: Mapping[str, Sequence[ClusterEventWithHint]]
    ) -> None:
        self._pending = plugins.pending
        self._best = (
            QueueingStrategy.IMMEDIATELY if plugins.pending else QueueingStrategy.AFTER_BACKOFF
        )
        self._events = [
            event
            for plugin in sorted(plugins.unschedulable | plugins.pending)
            for event in registered(plugin, events)
        ]
        self._gating = registered(plugins.gating, events) if plugins.gating else None
        self._matching: dict[tuple[Resource | str, Action], MatchingHints | None] = {}

    def matching(self, change: ClusterChange, *, gated: bool) -> MatchingHints | None:
        """Select the hint functions to call about a change; None: no plugin registered it.

        With `gated`, a gated pod's are skipped unless the gating plugin itself registered the
        change (`GatingPluginEvents`).
        """
        gating = self._gating if gated else None
        if gating is not None and not any(event.matches(change) for event in gating):
            return None
        kind = (change.resource, change.action)
        if kind not in self._matching:
            self._matching[kind] = self._select(change)
        return self._matching[kind]

    def _select(self, change: ClusterChange) -> MatchingHints | None:
        matching = [event for event in self._events if event.matches(change)]
        if not matching:
            return None
        by_scope = [
            tuple(
                QueueingHintFunction(
                    plugin,
                    event.queueing_hint_fn,
                    # A plugin that answered Pending waits for this very change.
                    QueueingStrategy.IMMEDIATELY
                    if plugin in self._pending
                    else QueueingStrategy.AFTER_BACKOFF,
                )
                for plugin, event in matching
                if event.scope is scope
            )
            for scope in HintScope
        ]
        while not by_scope[-1]:
            by_scope.pop()
        return MatchingHints(by_scope, self._best)


def registered(
    plugin: str, events: Mapping[str, Sequence[ClusterEventWithHint]]
) -> Sequence[RegisteredEvent]:
    """List the registrations of a plugin; a plugin that is missing has registered every event."""
    found = [RegisteredEvent(plugin, event) for event in events.get(plugin, _ALL_EVENTS)]
    nodes = [event for _, event in found if event.resource is Resource.NODE]
    if any(event.action & Action.ADD for event in nodes) and not any(
        event.action & Action.UPDATE_NODE_TAINT for event in nodes
    ):
        # A node is often added with taints that its controller removes later; a plugin that looks
        # at Node/Add alone would miss the usable node (`buildQueueingHintMap`, v1.36).
        event = ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE_TAINT)
        found.append(RegisteredEvent(plugin, event))
    return found


class HintEvaluation:
    """Calls hint functions about one change, for many pods at a time.

    Functions run over whole lists, with one reading of the clock for each list: a change may be
    judged for 10,000 pods, and a clock around each call would cost as much as the call.
    """

    def __init__(self, change: ClusterChange, observer: QueueObserver | None) -> None:
        self._change = change
        self._observer = observer

    def strategy_for(self, hints: MatchingHints, pod: PodInfo) -> QueueingStrategy:
        """Return the strongest answer of all hint functions for one pod."""
        found = QueueingStrategy.SKIP
        for level in hints.levels:
            for hint in level:
                if hint.strategy > found and self.answers(hint, [pod])[0] is QUEUE:
                    found = hint.strategy
            if found is hints.best:
                break
        return found

    def answers(
        self, hint: QueueingHintFunction, pods: Sequence[PodInfo]
    ) -> Sequence[QueueingHint]:
        """Return the function's answer for each of the pods."""
        function, change, observer = hint.function, self._change, self._observer
        if function is None:
            return [QUEUE] * len(pods)
        started = time.perf_counter()
        try:
            answers = [function(pod, change) for pod in pods]
        except Exception:  # noqa: BLE001 the pod is found and reported below
            return self._answers_one_by_one(hint.plugin, function, pods)
        if observer is not None:
            each = (time.perf_counter() - started) / max(len(pods), 1)
            skipped = answers.count(QUEUE_SKIP)
            for result, times in ((_QUEUE, len(answers) - skipped), (_QUEUE_SKIP, skipped)):
                if times:
                    observer.hints_evaluated(hint.plugin, change.name, result, times, times * each)
        return answers

    def _answers_one_by_one(
        self, plugin: str, function: QueueingHintFn, pods: Sequence[PodInfo]
    ) -> Sequence[QueueingHint]:
        """Answer pod by pod, because some call raises: it counts as Queue, the others stand."""
        answers = []
        for pod in pods:
            started = time.perf_counter()
            try:
                answer = function(pod, self._change)
                result = answer.value
            except Exception as failure:  # noqa: BLE001 an attempt is lost, but no pod
                answer, result, name = QUEUE, _ERROR, self._change.name
                if self._observer is not None:
                    self._observer.hint_failed(plugin, pod, self._change, failure)
                else:
                    text = "hint of %s on %s for pod %s"
                    _log.error(text, plugin, name, pod.key, exc_info=failure)
            answers.append(answer)
            if self._observer is not None:
                seconds = time.perf_counter() - started
                self._observer.hints_evaluated(plugin, self._change.name, result, 1, seconds)
        return answers
