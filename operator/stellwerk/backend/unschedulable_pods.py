"""unschedulablePods: rejected and gated pods, found by the changes that are worth an attempt.

Part of the scheduling queue, which calls `ask_hints` for each change. Pods are filed by the plugins
that rejected them, then by spec and nomination, by the nodes they name, and by labels. So a change
costs one call of a hint function for each distinct spec whose plugins registered it, and nothing
for each pod: 10,000 pods of a Deployment cost one call. Invariant: an entry is found under what it
was when it was last added or updated, whatever is changed in the entry meanwhile.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from stellwerk.backend.queued_pod import QueuedPod, QueueingStrategy
from stellwerk.backend.queueing_hints import (
    HintEvaluation,
    HintsOfPlugins,
    MatchingHints,
    RejectorPlugins,
)
from stellwerk.backend.queueing_policy import QueueingPolicy, QueueObserver
from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    Resource,
)
from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec

HintsFor: TypeAlias = Callable[[str], Mapping[str, Sequence[ClusterEventWithHint]]]
"""Profile's name → plugin → its registrations; a plugin that is missing registered all events."""
WorthRequeuing: TypeAlias = list[tuple[QueuedPod, QueueingStrategy]]
"""Pods and the strategies by which they are to be requeued."""

MAX_REJECTOR_SETS: Final = 256
"""Sets of rejecting plugins that are kept, those without a pod included: they will probably reject
pods again. Beyond this number those without a pod are dropped, and their hints are selected again
when a pod comes."""
MAX_SPECS_PER_STEP: Final = 250
"""Specs whose hints are called before `ask_hints` yields, so that a slice of the event loop can end
there. 250 calls take at most 0.5 ms."""
MAX_MOVED_PODS_PER_STEP: Final = 25
"""Pods judged one by one before `ask_hints` yields; they cost as much as 250 specs."""
UNITS_PER_MOVED_POD: Final = 10
"""Cost of judging one pod by itself, in units (calls of a hint function): its place has to be
found, and each level of hints is called for it alone."""


class _Bucket:
    """Pods rejected alike, of one spec; a level below also of one set of names, or labels."""

    __slots__ = ("children", "pod")

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        """Any pod that is or was here: for hint functions of this level they are all alike."""
        self.children: dict[Hashable, _Bucket | QueuedPod] = {}
        """Buckets of the next level by their key; at the last level the entries by uid."""

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


_SpecKey: TypeAlias = tuple[SchedulingSpec, str]
"""The spec, and the node that the pod is nominated to (empty: none)."""


class _SameRejectors:
    """The pods that the same plugins rejected."""

    __slots__ = ("by_spec", "hints", "is_observed", "key")

    def __init__(self, key: RejectorPlugins, hints: HintsOfPlugins, *, is_observed: bool) -> None:
        self.key = key
        self.is_observed = is_observed
        """Another scheduler serves them: no metric counts what their hints cost."""
        self.hints = hints
        self.by_spec: dict[_SpecKey, _Bucket] = {}

    def entries(self) -> Iterator[QueuedPod]:
        for bucket in self.by_spec.values():
            yield from bucket.entries()


_Route: TypeAlias = list[tuple[_SameRejectors, MatchingHints]]
"""The pods that a kind of change concerns, with the hints to ask about them."""


class _Location(NamedTuple):
    alike: _SameRejectors
    spec_key: _SpecKey
    node_names: frozenset[str] | None
    label_set: LabelSet
    entry: QueuedPod


class UnschedulablePods:
    """An index of entries by the plugins that rejected them and by what hint functions read."""

    def __init__(
        self,
        hints: HintsFor,
        observer: QueueObserver | None = None,
        nominated_node: Callable[[str], str] = lambda _: "",
        policy: QueueingPolicy | None = None,
    ) -> None:
        """`nominated_node`: a pod's node by uid. If it changes, the queue adds the entry again.

        `policy` says which profiles observe; None: none.
        """
        self._hints = hints
        self._policy = policy
        self._nominated_node = nominated_node
        self._observer = observer
        self._by_rejectors: dict[RejectorPlugins, _SameRejectors] = {}
        self._locations: dict[str, _Location] = {}
        """By uid, in the order of queued_at: an update keeps its place in the dict."""
        self._routes: dict[tuple[Resource | str, Action], _Route] = {}
        """By kind of change, looked up once for all changes of a kind. Most kinds concern few sets
        of rejecting plugins, and heartbeats concern none."""
        self._relocated: list[list[QueuedPod]] = []
        """One list for each `ask_hints` under way: the entries that were moved within the index
        since it began. It might miss them otherwise."""

    def add_or_update(self, entry: QueuedPod) -> None:
        """Put in an entry, or move it to where it belongs now."""
        pod = entry.pod
        known = self._locations.get(pod.uid)
        if known is not None:
            _take_out(known)
            for relocated in self._relocated:
                relocated.append(entry)
        alike = self._rejected_alike(entry)
        spec_key = pod.spec, self._nominated_node(pod.uid)
        of_spec = alike.by_spec.get(spec_key)
        if of_spec is None:
            of_spec = alike.by_spec[spec_key] = _Bucket(pod)
        of_labels = of_spec.child(pod.node_names, pod).child(pod.label_set, pod)
        of_labels.children[pod.uid] = entry
        self._locations[pod.uid] = _Location(alike, spec_key, pod.node_names, pod.label_set, entry)

    def delete(self, uid: str) -> None:
        """Remove a pod that is in the index."""
        _take_out(self._locations.pop(uid))

    def queued_before(self, seconds: float) -> list[QueuedPod]:
        """List the entries that have been here since before a time, gated ones included."""
        entries = (location.entry for location in self._locations.values())
        return list(takewhile(lambda entry: entry.queued_at < seconds, entries))

    def of_profile(self, profile_name: str) -> list[QueuedPod]:
        """List the entries of a profile."""
        return [
            entry
            for alike in self._by_rejectors.values()
            if alike.key.profile_name == profile_name
            for entry in alike.entries()
        ]

    def refresh_hints(self, profile_name: str) -> None:
        """Read a profile's registrations again, and file its pods by them."""
        entries = self.of_profile(profile_name)
        for key in [each for each in self._by_rejectors if each.profile_name == profile_name]:
            del self._by_rejectors[key]
        self._routes.clear()
        for entry in entries:
            self.add_or_update(entry)

    def ask_hints(
        self, change: ClusterChange, max_priority: int | None = None
    ) -> Iterator[tuple[int, WorthRequeuing]]:
        """Find the pods that a change makes worth another attempt, step by step.

        Each step yields its cost in units (calls of hint functions) and the pods it has found. With
        `max_priority`, only pods of at most that priority count. A change of everything (WILDCARD)
        calls no hints and leaves gated pods out. The index may change between two steps: an entry
        that is put in meanwhile is not judged, because its attempt has seen the change; an entry
        that is moved within the index is judged by itself at the end.
        """
        if change.resource is Resource.WILDCARD:
            found: WorthRequeuing = []
            for alike in self._by_rejectors.values():
                if not alike.key.gating:
                    found += [(entry, QueueingStrategy.AFTER_BACKOFF) for entry in alike.entries()]
            yield len(self._by_rejectors), _at_most(found, max_priority)
            return
        relocated: list[QueuedPod] = []
        self._relocated.append(relocated)
        try:
            yield from self._ask_by_rejectors(change, max_priority)
            until_now = relocated.copy()
            for start in range(0, len(until_now), MAX_MOVED_PODS_PER_STEP):
                asked = until_now[start : start + MAX_MOVED_PODS_PER_STEP]
                worth = [(entry, self.strategy_for(entry, change)) for entry in asked]
                yield (
                    UNITS_PER_MOVED_POD * len(asked),
                    [each for each in worth if each[1] is not QueueingStrategy.SKIP],
                )
        finally:
            self._relocated = [each for each in self._relocated if each is not relocated]

    def _ask_by_rejectors(
        self, change: ClusterChange, max_priority: int | None
    ) -> Iterator[tuple[int, WorthRequeuing]]:
        """Judge the buckets of the plugins that registered the change, in steps."""
        evaluation = HintEvaluation(change, self._observer)
        concerned = [
            (
                # No metric of kube-scheduler's counts a pod that is observed.
                HintEvaluation(change, None) if alike.is_observed else evaluation,
                hints,
                [
                    bucket
                    for (spec, _), bucket in alike.by_spec.items()
                    if max_priority is None or spec.priority <= max_priority
                ],
            )
            for alike, hints in self._route(change)
            if alike.by_spec
        ]
        for evaluating, hints, buckets in concerned:
            for start in range(0, len(buckets), MAX_SPECS_PER_STEP):
                asked = buckets[start : start + MAX_SPECS_PER_STEP]
                yield len(asked), _ask_buckets(evaluating, hints, asked)

    def strategy_for(self, entry: QueuedPod, change: ClusterChange) -> QueueingStrategy:
        """Judge a change for one pod, in the index or not (`isPodWorthRequeuing`)."""
        if change.resource is Resource.WILDCARD:
            return QueueingStrategy.AFTER_BACKOFF
        # The pod's own update may concern plugins that rejected it, not only the one that gates it.
        hints = self._rejected_alike(entry).hints.matching(change, gated=False)
        if hints is None:
            return QueueingStrategy.SKIP
        observer = None if entry.is_observed else self._observer
        return HintEvaluation(change, observer).strategy_for(hints, entry.pod)

    def _rejected_alike(self, entry: QueuedPod) -> _SameRejectors:
        key = RejectorPlugins.of(entry)
        alike = self._by_rejectors.get(key)
        if alike is None:
            if len(self._by_rejectors) > MAX_REJECTOR_SETS:
                self._by_rejectors = {
                    each: alike for each, alike in self._by_rejectors.items() if alike.by_spec
                }
            hints = HintsOfPlugins(key, self._hints(entry.profile_name))
            observing = self._policy.observing if self._policy is not None else ()
            is_observed = entry.profile_name in observing
            alike = _SameRejectors(key, hints, is_observed=is_observed)
            self._by_rejectors[key] = alike
            self._routes.clear()
        return alike

    def _route(self, change: ClusterChange) -> _Route:
        kind = (change.resource, change.action)
        route = self._routes.get(kind)
        if route is None:
            route = self._routes[kind] = [
                (alike, hints)
                for alike in self._by_rejectors.values()
                if (hints := alike.hints.matching(change, gated=True)) is not None
            ]
        return route


def _take_out(location: _Location) -> None:
    """Take an entry out of its buckets, and buckets that are then empty out of theirs."""
    alike, spec_key, node_names, label_set, entry = location
    of_spec = alike.by_spec[spec_key]
    of_node_names = of_spec.child(node_names, of_spec.pod)
    of_labels = of_node_names.child(label_set, of_spec.pod)
    del of_labels.children[entry.pod.uid]
    if not of_labels.children:
        del of_node_names.children[label_set]
        if not of_node_names.children:
            del of_spec.children[node_names]
            if not of_spec.children:
                del alike.by_spec[spec_key]


def _ask_buckets(
    evaluation: HintEvaluation, hints: MatchingHints, buckets: Sequence[_Bucket]
) -> WorthRequeuing:
    """Judge buckets level by level, and go into those that the wider hints have not settled.

    A bucket is settled when a hint has given it the best strategy there is. Where no hint of the
    last level says Queue, nothing below has to be listed: most changes move no pod.
    """
    found: WorthRequeuing = []
    items: list[_Bucket | QueuedPod] = list(buckets)
    strategies = [QueueingStrategy.SKIP] * len(items)
    for level, functions in enumerate(hints.levels, start=1):
        for hint in functions:
            answers = evaluation.answers(hint, [item.pod for item in items])
            if answers.count(QUEUE_SKIP) < len(answers):  # most hints say Skip to most changes
                strategies = [
                    max(hint.strategy, before) if answer is QUEUE else before
                    for answer, before in zip(answers, strategies, strict=True)
                ]
        if level == len(hints.levels) and not any(strategies):
            return found
        narrower: list[_Bucket | QueuedPod] = []
        inherited: list[QueueingStrategy] = []
        for item, strategy in zip(items, strategies, strict=True):
            if strategy is hints.best or level == len(hints.levels):
                if strategy is not QueueingStrategy.SKIP:
                    entries = item.entries() if isinstance(item, _Bucket) else (item,)
                    found += [(entry, strategy) for entry in entries]
            elif isinstance(item, _Bucket):
                narrower += item.children.values()
                inherited += [strategy] * len(item.children)
        items, strategies = narrower, inherited
    return found


def _at_most(found: WorthRequeuing, max_priority: int | None) -> WorthRequeuing:
    if max_priority is None:
        return found
    return [(entry, strategy) for entry, strategy in found if entry.pod.priority <= max_priority]
