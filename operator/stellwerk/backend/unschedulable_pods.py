"""Pods that wait for a change in the cluster, found by the changes that can wake them.

Part of the scheduling queue. Pods are grouped by who rejected them, then by spec, by the nodes they
name, and by labels, so that a change costs one hint call per distinct spec among those whose
rejectors registered it, and nothing per pod. Invariant: an entry is in the index from `add` to
`remove`, in the group that it had when it was added, whatever is changed in the entry meanwhile.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from stellwerk.backend.hint_evaluation import (
    ConcernedHints,
    HintEvaluation,
    RejectorHints,
    Rejectors,
    WeighedHint,
)
from stellwerk.backend.queued_pod import QueuedPod, QueueingStrategy
from stellwerk.backend.queueing_policy import QueueObserver
from stellwerk.framework.events import Action, ClusterChange, ClusterEventWithHint, Resource
from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec

HintsOfProfile: TypeAlias = Callable[[str], Mapping[str, Sequence[ClusterEventWithHint]]]
"""schedulerName → plugin → its registrations; a plugin that is missing waits for every event."""
Woken: TypeAlias = list[tuple[QueuedPod, QueueingStrategy]]

_MAX_IDLE_GROUPS: Final = 256


class _Bucket:
    """Pods of a group that are alike in spec, or also in named nodes, or also in labels."""

    __slots__ = ("children", "pod")

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        """Any pod that is or was here: hints of this level see no difference."""
        self.children: dict[Hashable, _Bucket | QueuedPod] = {}
        """Buckets by what they are alike in besides, at last the entries by uid."""

    def child(self, key: Hashable, pod: PodInfo) -> "_Bucket":
        found = self.children.get(key)
        if not isinstance(found, _Bucket):
            found = self.children[key] = _Bucket(pod)
        return found

    def entries(self) -> Iterator[QueuedPod]:
        for child in self.children.values():
            if isinstance(child, _Bucket):
                yield from child.entries()
            else:
                yield child


class _Group:
    """The pods with one set of rejectors."""

    __slots__ = ("by_spec", "hints", "rejectors")

    def __init__(self, rejectors: Rejectors, hints: RejectorHints) -> None:
        self.rejectors = rejectors
        self.hints = hints
        self.by_spec: dict[SchedulingSpec, _Bucket] = {}

    def entries(self) -> Iterator[QueuedPod]:
        for bucket in self.by_spec.values():
            yield from bucket.entries()


class _Location(NamedTuple):
    group: _Group
    spec: SchedulingSpec
    node_names: frozenset[str] | None
    label_set: LabelSet


class UnschedulablePods:
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
        of_spec = group.by_spec.get(pod.spec)
        if of_spec is None:
            of_spec = group.by_spec[pod.spec] = _Bucket(pod)
        of_labels = of_spec.child(pod.node_names, pod).child(pod.label_set, pod)
        of_labels.children[pod.uid] = entry
        self._locations[pod.uid] = _Location(group, pod.spec, pod.node_names, pod.label_set)

    def remove(self, uid: str) -> None:
        """Let a pod wait no longer."""
        group, spec, node_names, label_set = self._locations.pop(uid)
        of_spec = group.by_spec[spec]
        of_node_names = of_spec.child(node_names, of_spec.pod)
        of_labels = of_node_names.child(label_set, of_spec.pod)
        del of_labels.children[uid]
        if not of_labels.children:
            del of_node_names.children[label_set]
            if not of_node_names.children:
                del of_spec.children[node_names]
                if not of_spec.children:
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
        if not self._locations:
            return woken
        if change.resource is Resource.WILDCARD:
            for group in self._groups.values():
                if not group.rejectors.gating:
                    woken += [(entry, QueueingStrategy.AFTER_BACKOFF) for entry in group.entries()]
            return _at_most(woken, max_priority)
        evaluation = HintEvaluation(change, self._observer)
        for group, concerned in self._route(change):
            buckets = [
                bucket
                for spec, bucket in group.by_spec.items()
                if max_priority is None or spec.priority <= max_priority
            ]
            if buckets:
                woken += _woken_of(evaluation, concerned, buckets)
        return woken

    def strategy_for(self, entry: QueuedPod, change: ClusterChange) -> QueueingStrategy:
        """What a change means for one pod, which need not be in the index."""
        if change.resource is Resource.WILDCARD:
            return QueueingStrategy.AFTER_BACKOFF
        # The pod's own update may concern plugins that rejected it besides the one that gates it.
        concerned = self._group(Rejectors.of(entry)).hints.concerned(change, gated=False)
        if concerned is None:
            return QueueingStrategy.SKIP
        return HintEvaluation(change, self._observer).strategy_for(concerned, entry.pod)

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


def _woken_of(
    evaluation: HintEvaluation, concerned: ConcernedHints, buckets: Sequence[_Bucket]
) -> Woken:
    """Ask about ever smaller buckets, and go into those only that wider hints have not settled."""
    woken: Woken = []
    asked: list[_Bucket | QueuedPod] = list(buckets)
    found = [QueueingStrategy.SKIP] * len(asked)
    for level, hints in enumerate(concerned.levels, start=1):
        for hint in hints:
            _strengthen(found, hint, evaluation.ask(hint, [item.pod for item in asked]))
        if level == len(concerned.levels) and not any(found):
            # Most changes wake nobody.
            return woken
        narrower: list[_Bucket | QueuedPod] = []
        inherited: list[QueueingStrategy] = []
        for item, strategy in zip(asked, found, strict=True):
            if strategy is concerned.best or level == len(concerned.levels):
                if strategy is not QueueingStrategy.SKIP:
                    woken += [(entry, strategy) for entry in _entries(item)]
            elif isinstance(item, _Bucket):
                narrower += item.children.values()
                inherited += [strategy] * len(item.children)
        asked, found = narrower, inherited
    return woken


def _strengthen(found: list[QueueingStrategy], hint: WeighedHint, answers: Sequence[bool]) -> None:
    if not any(answers):
        return
    for position, answer in enumerate(answers):
        if answer and hint.strategy > found[position]:
            found[position] = hint.strategy


def _entries(item: _Bucket | QueuedPod) -> Iterator[QueuedPod]:
    return item.entries() if isinstance(item, _Bucket) else iter((item,))


def _at_most(woken: Woken, max_priority: int | None) -> Woken:
    if max_priority is None:
        return woken
    return [(entry, strategy) for entry, strategy in woken if entry.pod.priority <= max_priority]
