"""Queueing hints of the plugins that rejected a pod, compiled for one set of rejectors.

The waiting index asks which of them a change concerns and what they say of a pod. Invariant: a
hint that raises counts as Queue and is reported: a needless attempt is cheap, a pod that sleeps on
is not.
"""

import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stellwerk.backend.queued_pod import QueuedPod, Requeue
from stellwerk.backend.queueing_policy import QueueObserver
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    HintFunction,
    HintScope,
    QueueingHint,
    Resource,
)
from stellwerk.models.pod import PodInfo, SchedulingSpec

_log = logging.getLogger(__name__)

_PODS: Final = frozenset({Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD})
_EVERY_EVENT: Final = (QueueingHint(Resource.WILDCARD, Action.ALL),)


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
    strategy: Requeue


@dataclass(frozen=True, slots=True, eq=False)
class ConcernedHints:
    """The hints that one kind of change concerns, by what of a pod they read."""

    by_spec: Sequence[WeighedHint]
    by_node_names: Sequence[WeighedHint]
    by_labels: Sequence[WeighedHint]
    by_pod: Sequence[WeighedHint]
    best: Requeue
    """No further hint can say more than this."""

    @property
    def spec_is_enough(self) -> bool:
        """Whether every hint holds for all pods of a spec."""
        return not (self.by_node_names or self.by_labels or self.by_pod)


class RejectorHints:
    """The hints of one set of rejectors."""

    def __init__(self, rejectors: Rejectors, hints: Mapping[str, Sequence[QueueingHint]]) -> None:
        self._pending = rejectors.pending
        self._best = Requeue.IMMEDIATELY if rejectors.pending else Requeue.AFTER_BACKOFF
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

        def of_scope(scope: HintScope) -> Sequence[WeighedHint]:
            return tuple(
                WeighedHint(hint.hint, hint.plugin, self._strategy(hint.plugin))
                for hint in matching
                if hint.scope is scope
            )

        return ConcernedHints(
            of_scope(HintScope.SPEC),
            of_scope(HintScope.SPEC_AND_NODE_NAMES),
            of_scope(HintScope.SPEC_AND_LABELS),
            of_scope(HintScope.POD),
            self._best,
        )

    def _strategy(self, plugin: str) -> Requeue:
        return Requeue.IMMEDIATELY if plugin in self._pending else Requeue.AFTER_BACKOFF


def registered(
    plugin: str, hints: Mapping[str, Sequence[QueueingHint]]
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


def _fields(hint: QueueingHint) -> tuple[Resource, Action, HintFunction | None, HintScope]:
    return hint.resource, hint.action, hint.hint, hint.scope


class HintEvaluation:
    """The answers to one change; no hint is asked twice about the same part of a pod."""

    def __init__(self, change: ClusterChange, observer: QueueObserver | None) -> None:
        self._change = change
        self._observer = observer
        self._known: dict[tuple[HintFunction, SchedulingSpec, Hashable], bool] = {}

    def of_spec(self, concerned: ConcernedHints, pod: PodInfo) -> Requeue:
        """What holds for every pod with the spec of this one."""
        return self._strongest(concerned.by_spec, pod, concerned.best, None)

    def of_node_names(self, concerned: ConcernedHints, pod: PodInfo) -> Requeue:
        """What holds for every pod with the spec and node names of this one."""
        return self._strongest(concerned.by_node_names, pod, concerned.best, pod.node_names)

    def of_labels(self, concerned: ConcernedHints, pod: PodInfo) -> Requeue:
        """What holds for every pod with the spec and labels of this one."""
        return self._strongest(concerned.by_labels, pod, concerned.best, pod.label_set)

    def of_pod(self, concerned: ConcernedHints, pod: PodInfo) -> Requeue:
        """What the hints say that look at more than spec and labels."""
        return self._strongest(concerned.by_pod, pod, concerned.best, pod.uid)

    def of_everything(self, concerned: ConcernedHints, pod: PodInfo) -> Requeue:
        """What all hints together say of one pod."""
        found = Requeue.SKIP
        for ask in (self.of_spec, self.of_node_names, self.of_labels, self.of_pod):
            found = max(found, ask(concerned, pod))
            if found is concerned.best:
                break
        return found

    def _strongest(
        self, hints: Sequence[WeighedHint], pod: PodInfo, best: Requeue, beside_spec: Hashable
    ) -> Requeue:
        found = Requeue.SKIP
        for hint in hints:
            if hint.strategy > found and self._says_queue(hint, pod, beside_spec):
                found = hint.strategy
                if found is best:
                    break
        return found

    def _says_queue(self, hint: WeighedHint, pod: PodInfo, beside_spec: Hashable) -> bool:
        if hint.hint is None:
            return True
        question = (hint.hint, pod.spec, beside_spec)
        answer = self._known.get(question)
        if answer is None:
            answer = self._known[question] = self._ask(hint, hint.hint, pod)
        return answer

    def _ask(self, hint: WeighedHint, function: HintFunction, pod: PodInfo) -> bool:
        observer, change = self._observer, self._change
        started = time.perf_counter() if observer is not None else 0.0
        result = "Error"
        try:
            answer = bool(function(pod, change))
            result = "Queue" if answer else "QueueSkip"
        except Exception as failure:  # noqa: BLE001 a plugin's mistake may cost an attempt, not a pod
            answer = True
            if observer is not None:
                observer.hint_failed(hint.plugin, pod, change, failure)
            else:
                _log.exception("hint of %s on %s for pod %s", hint.plugin, change.name, pod.key)
        if observer is not None:
            observer.hint_evaluated(hint.plugin, change.name, result, time.perf_counter() - started)
        return answer
