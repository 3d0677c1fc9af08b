"""Pods that wait for a change in the cluster, found by the changes that can wake them.

Part of the scheduling queue. Pods are grouped by who rejected them, then by spec, by the nodes they
name, and by labels, so that a change costs one hint call per distinct spec among those whose
rejectors registered it, and nothing per pod. Invariant: an entry is in the index from `add` to
`remove`, in the group that it had when it was added, whatever is changed in the entry meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from stellwerk.backend.hint_evaluation import (
    ConcernedHints,
    HintEvaluation,
    RejectorHints,
    Rejectors,
)
from stellwerk.backend.queued_pod import QueuedPod, Requeue
from stellwerk.backend.queueing_policy import QueueObserver
from stellwerk.framework.events import Action, ClusterChange, QueueingHint, Resource
from stellwerk.models.pod import LabelSet, SchedulingSpec

HintsOfProfile: TypeAlias = Callable[[str], Mapping[str, Sequence[QueueingHint]]]
"""schedulerName → plugin → its registrations; a plugin that is missing waits for every event."""
Woken: TypeAlias = list[tuple[QueuedPod, Requeue]]

_ByLabels: TypeAlias = dict[LabelSet, dict[str, QueuedPod]]
_ByNodeNames: TypeAlias = dict[frozenset[str] | None, _ByLabels]
_MAX_IDLE_GROUPS: Final = 256


class _Group:
    """The pods with one set of rejectors."""

    __slots__ = ("by_spec", "hints", "rejectors")

    def __init__(self, rejectors: Rejectors, hints: RejectorHints) -> None:
        self.rejectors = rejectors
        self.hints = hints
        self.by_spec: dict[SchedulingSpec, _ByNodeNames] = {}

    def entries(self) -> Iterator[QueuedPod]:
        for by_node_names in self.by_spec.values():
            yield from _entries(by_node_names)


class _Location(NamedTuple):
    group: _Group
    spec: SchedulingSpec
    node_names: frozenset[str] | None
    label_set: LabelSet


class WaitingIndex:
    """See the module docstring."""

    def __init__(self, hints: HintsOfProfile, observer: QueueObserver | None = None) -> None:
        self._hints = hints
        self._observer = observer
        self._groups: dict[Rejectors, _Group] = {}
        self._locations: dict[str, _Location] = {}
        self._routes: dict[tuple[Resource, Action], list[tuple[_Group, ConcernedHints]]] = {}
        """Kind of change → the groups to ask, made when such a change first comes."""

    def __len__(self) -> int:
        return len(self._locations)

    def add(self, entry: QueuedPod) -> None:
        """Let an entry wait."""
        pod = entry.pod
        group = self._group(Rejectors.of(entry))
        by_labels = group.by_spec.setdefault(pod.spec, {}).setdefault(pod.node_names, {})
        by_labels.setdefault(pod.label_set, {})[pod.uid] = entry
        self._locations[pod.uid] = _Location(group, pod.spec, pod.node_names, pod.label_set)

    def remove(self, uid: str) -> None:
        """Let a pod wait no longer."""
        group, spec, node_names, label_set = self._locations.pop(uid)
        by_node_names = group.by_spec[spec]
        by_labels = by_node_names[node_names]
        pods = by_labels[label_set]
        del pods[uid]
        if not pods:
            del by_labels[label_set]
            if not by_labels:
                del by_node_names[node_names]
                if not by_node_names:
                    del group.by_spec[spec]

    def of_profile(self, scheduler_name: str) -> list[QueuedPod]:
        """Every waiting pod of a profile."""
        return [
            entry
            for group in self._groups.values()
            if group.rejectors.scheduler_name == scheduler_name
            for entry in group.entries()
        ]

    def refresh_hints(self, scheduler_name: str) -> None:
        """Ask anew for a profile's hints; pods that go on waiting are regrouped."""
        entries = self.of_profile(scheduler_name)
        for rejectors in [key for key in self._groups if key.scheduler_name == scheduler_name]:
            del self._groups[rejectors]
        self._routes.clear()
        for entry in entries:
            self.add(entry)

    def woken_by(self, change: ClusterChange, max_priority: int | None = None) -> Woken:
        """The pods that a change makes worth another attempt.

        With `max_priority`, only pods of at most that priority are looked at. A change of
        everything (WILDCARD) asks no hints, and leaves gated pods alone.
        """
        woken: Woken = []
        if change.resource is Resource.WILDCARD:
            for group in self._groups.values():
                if not group.rejectors.gating:
                    woken += [(entry, Requeue.AFTER_BACKOFF) for entry in group.entries()]
            return _at_most(woken, max_priority)
        evaluation = HintEvaluation(change, self._observer)
        for group, concerned in self._route(change):
            for spec, by_node_names in group.by_spec.items():
                if max_priority is None or spec.priority <= max_priority:
                    _wake_of_spec(evaluation, concerned, by_node_names, woken)
        return woken

    def strategy_for(self, entry: QueuedPod, change: ClusterChange) -> Requeue:
        """What a change means for one pod, which need not be in the index."""
        if change.resource is Resource.WILDCARD:
            return Requeue.AFTER_BACKOFF
        # The pod's own update may concern plugins that rejected it besides the one that gates it.
        concerned = self._group(Rejectors.of(entry)).hints.concerned(change, gated=False)
        if concerned is None:
            return Requeue.SKIP
        return HintEvaluation(change, self._observer).of_everything(concerned, entry.pod)

    def _group(self, rejectors: Rejectors) -> _Group:
        group = self._groups.get(rejectors)
        if group is None:
            self._drop_idle_groups()
            hints = RejectorHints(rejectors, self._hints(rejectors.scheduler_name))
            group = self._groups[rejectors] = _Group(rejectors, hints)
            self._routes.clear()
        return group

    def _drop_idle_groups(self) -> None:
        """Keep empty groups, whose rejectors will come again, but not without bound."""
        if len(self._groups) > _MAX_IDLE_GROUPS:
            self._groups = {key: group for key, group in self._groups.items() if group.by_spec}

    def _route(self, change: ClusterChange) -> list[tuple[_Group, ConcernedHints]]:
        kind = (change.resource, change.action)
        route = self._routes.get(kind)
        if route is None:
            route = self._routes[kind] = [
                (group, concerned)
                for group in self._groups.values()
                if (concerned := group.hints.concerned(change, gated=True)) is not None
            ]
        return route


def _wake_of_spec(
    evaluation: HintEvaluation,
    concerned: ConcernedHints,
    by_node_names: _ByNodeNames,
    woken: Woken,
) -> None:
    """Ask the hints that hold for most pods first, and the narrower ones only if they matter."""
    strategy = Requeue.SKIP
    if concerned.by_spec:
        strategy = evaluation.of_spec(concerned, next(_entries(by_node_names)).pod)
    if strategy is concerned.best or concerned.spec_is_enough:
        if strategy is not Requeue.SKIP:
            woken += [(entry, strategy) for entry in _entries(by_node_names)]
        return
    for by_labels in by_node_names.values():
        found = strategy
        if concerned.by_node_names:
            pod = next(iter(next(iter(by_labels.values())).values())).pod
            found = max(found, evaluation.of_node_names(concerned, pod))
        if found is Requeue.SKIP and not (concerned.by_labels or concerned.by_pod):
            continue
        for pods in by_labels.values():
            _wake_of_labels(evaluation, concerned, pods.values(), found, woken)


def _wake_of_labels(
    evaluation: HintEvaluation,
    concerned: ConcernedHints,
    entries: Iterable[QueuedPod],
    strategy: Requeue,
    woken: Woken,
) -> None:
    if concerned.by_labels and strategy is not concerned.best:
        pod = next(iter(entries)).pod
        strategy = max(strategy, evaluation.of_labels(concerned, pod))
    for entry in entries:
        found = strategy
        if found is not concerned.best and concerned.by_pod:
            found = max(found, evaluation.of_pod(concerned, entry.pod))
        if found is not Requeue.SKIP:
            woken.append((entry, found))


def _entries(by_node_names: _ByNodeNames) -> Iterator[QueuedPod]:
    for by_labels in by_node_names.values():
        for pods in by_labels.values():
            yield from pods.values()


def _at_most(woken: Woken, max_priority: int | None) -> Woken:
    if max_priority is None:
        return woken
    return [(entry, strategy) for entry, strategy in woken if entry.pod.priority <= max_priority]
