"""Queueing hints of the plugins that rejected a pod, compiled for one set of rejectors.

The waiting index asks which of them a change concerns and what they say of a pod. Invariant: a
hint that raises counts as Queue and is reported: a needless attempt is cheap, a pod that sleeps on
is not.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stellwerk.backend.queued_pod import QueuedPod, QueueingStrategy
from stellwerk.backend.queueing_policy import QueueObserver
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintFunction,
    HintScope,
    Resource,
)
from stellwerk.models.pod import PodInfo

_log = logging.getLogger(__name__)

_PODS: Final = frozenset({Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD})
_QUEUE, _QUEUE_SKIP, _ERROR = "Queue", "QueueSkip", "Error"
"""Answers, as the metric names them."""
_EVERY_EVENT: Final = (ClusterEventWithHint(Resource.WILDCARD, Action.ALL),)


class RegisteredHint(NamedTuple):
    """One registration of one plugin."""

    plugin: str
    resource: Resource
    action: Action
    hint: HintFunction | None
    scope: HintScope

    def matches(self, change: ClusterChange) -> bool:
        """Whether the change is among those registered."""
        if not self.action & change.action:
            return False
        if self.resource is change.resource or self.resource is Resource.WILDCARD:
            return True
        return self.resource is Resource.POD and change.resource in _PODS


class Rejectors(NamedTuple):
    """Who keeps a pod from being scheduled: pods with equal rejectors wait for the same changes."""

    scheduler_name: str
    unschedulable: frozenset[str]
    pending: frozenset[str]
    gating: str

    @classmethod
    def of(cls, entry: QueuedPod) -> "Rejectors":
        """The rejectors of an entry."""
        return cls(
            entry.pod.spec.scheduler_name,
            entry.unschedulable_plugins,
            entry.pending_plugins,
            entry.gating_plugin,
        )


@dataclass(frozen=True, slots=True, eq=False)
class WeighedHint:
    """A hint and what its Queue means: immediately from a Pending plugin, else after backoff."""

    hint: HintFunction | None
    plugin: str
    strategy: QueueingStrategy


@dataclass(frozen=True, slots=True, eq=False)
class ConcernedHints:
    """The hints that one kind of change concerns."""

    levels: Sequence[Sequence[WeighedHint]]
    """By what of a pod they read, the hints that hold for most pods first (as in HintScope); no
    level after the last one that has hints."""
    best: QueueingStrategy
    """No further hint can say more than this."""


class RejectorHints:
    """The hints of one set of rejectors."""

    def __init__(
        self, rejectors: Rejectors, hints: Mapping[str, Sequence[ClusterEventWithHint]]
    ) -> None:
        self._pending = rejectors.pending
        self._best = (
            QueueingStrategy.IMMEDIATELY if rejectors.pending else QueueingStrategy.AFTER_BACKOFF
        )
        self._hints = [
            hint
            for plugin in sorted(rejectors.unschedulable | rejectors.pending)
            for hint in registered(plugin, hints)
        ]
        self._gating = registered(rejectors.gating, hints) if rejectors.gating else None
        self._concerned: dict[tuple[Resource, Action], ConcernedHints | None] = {}

    def concerned(self, change: ClusterChange, *, gated: bool) -> ConcernedHints | None:
        """The hints to ask about a change; None: nobody cares.

        A gated pod is let alone by changes that its gating plugin did not register (`gated`).
        """
        if gated and self._gating is not None and not _any_matches(self._gating, change):
            return None
        kind = (change.resource, change.action)
        if kind not in self._concerned:
            self._concerned[kind] = self._select(change)
        return self._concerned[kind]

    def _select(self, change: ClusterChange) -> ConcernedHints | None:
        matching = [hint for hint in self._hints if hint.matches(change)]
        if not matching:
            return None
        by_scope = [
            tuple(
                WeighedHint(hint.hint, hint.plugin, self._strategy(hint.plugin))
                for hint in matching
                if hint.scope is scope
            )
            for scope in HintScope
        ]
        while not by_scope[-1]:
            by_scope.pop()
        return ConcernedHints(by_scope, self._best)

    def _strategy(self, plugin: str) -> QueueingStrategy:
        return (
            QueueingStrategy.IMMEDIATELY
            if plugin in self._pending
            else QueueingStrategy.AFTER_BACKOFF
        )


def registered(
    plugin: str, hints: Mapping[str, Sequence[ClusterEventWithHint]]
) -> Sequence[RegisteredHint]:
    """The registrations of a plugin; one that has none to ask for waits for every event."""
    found = [RegisteredHint(plugin, *_fields(hint)) for hint in hints.get(plugin, _EVERY_EVENT)]
    nodes = [hint for hint in found if hint.resource is Resource.NODE]
    if any(hint.action & Action.ADD for hint in nodes) and not any(
        hint.action & Action.UPDATE_NODE_TAINT for hint in nodes
    ):
        # A node is often added with taints that its controller removes later; a plugin that looks
        # at Node/Add alone would miss the usable node (`buildQueueingHintMap`, v1.36).
        found.append(
            RegisteredHint(plugin, Resource.NODE, Action.UPDATE_NODE_TAINT, None, HintScope.SPEC)
        )
    return found


def _any_matches(hints: Sequence[RegisteredHint], change: ClusterChange) -> bool:
    return any(hint.matches(change) for hint in hints)


def _fields(hint: ClusterEventWithHint) -> tuple[Resource, Action, HintFunction | None, HintScope]:
    return hint.resource, hint.action, hint.hint, hint.scope


class HintEvaluation:
    """The answers to one change, for many pods at a time: what is asked often must cost little."""

    def __init__(self, change: ClusterChange, observer: QueueObserver | None) -> None:
        self._change = change
        self._observer = observer

    def strategy_for(self, concerned: ConcernedHints, pod: PodInfo) -> QueueingStrategy:
        """What all hints together say of one pod."""
        found = QueueingStrategy.SKIP
        for hints in concerned.levels:
            for hint in hints:
                if hint.strategy > found and self.ask(hint, [pod])[0]:
                    found = hint.strategy
            if found is concerned.best:
                break
        return found

    def ask(self, hint: WeighedHint, pods: Sequence[PodInfo]) -> Sequence[bool]:
        """Whether the hint says Queue, for each of the pods."""
        function, change, observer = hint.hint, self._change, self._observer
        if function is None:
            return [True] * len(pods)
        started = time.perf_counter()
        try:
            answers = [bool(function(pod, change)) for pod in pods]
        except Exception:  # noqa: BLE001 whichever it was, it is found and reported below
            return self._ask_one_by_one(hint.plugin, function, pods)
        if observer is not None:
            # Measured together: a clock read before and after each would cost as much as the hint.
            each = (time.perf_counter() - started) / max(len(pods), 1)
            queue = sum(answers)
            for result, times in ((_QUEUE, queue), (_QUEUE_SKIP, len(answers) - queue)):
                if times:
                    observer.hints_evaluated(hint.plugin, change.name, result, times, times * each)
        return answers

    def _ask_one_by_one(
        self, plugin: str, function: HintFunction, pods: Sequence[PodInfo]
    ) -> Sequence[bool]:
        """The answers where some raise: those count as Queue, the others stand."""
        answers = []
        for pod in pods:
            started = time.perf_counter()
            try:
                answer = bool(function(pod, self._change))
                result = _QUEUE if answer else _QUEUE_SKIP
            except Exception as failure:  # noqa: BLE001 it may cost an attempt, but no pod
                answer, result = True, _ERROR
                self._report_failure(plugin, pod, failure)
            answers.append(answer)
            if self._observer is not None:
                seconds = time.perf_counter() - started
                self._observer.hints_evaluated(plugin, self._change.name, result, 1, seconds)
        return answers

    def _report_failure(self, plugin: str, pod: PodInfo, failure: Exception) -> None:
        if self._observer is not None:
            self._observer.hint_failed(plugin, pod, self._change, failure)
            return
        _log.error(
            "hint of %s on %s for pod %s", plugin, self._change.name, pod.key, exc_info=failure
        )
