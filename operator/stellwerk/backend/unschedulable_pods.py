"""unschedulablePods: rejected and gated pods, found by the changes that are worth an attempt.

Part of the scheduling queue, which asks for each change (`ask_hints`). Pods are grouped by the
plugins that rejected them, then by spec and nomination, by the nodes they name, and by labels, so
that a change costs one call of a hint function per distinct spec among those whose plugins
registered it, and nothing per pod. The hint functions are compiled for each set of plugins
(`HintsOfPlugins`); one that raises counts as Queue and is reported: a needless attempt is cheap, a
pod that stays unschedulable without reason is not. Invariant: an entry is found under what it was
when it was last added or updated, whatever is changed in the entry meanwhile.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

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
from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec

_log = logging.getLogger(__name__)

_PODS: Final = frozenset({Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD})
_QUEUE, _QUEUE_SKIP, _ERROR = QUEUE.value, QUEUE_SKIP.value, "Error"
"""Results, as the metric names them."""
_ALL_EVENTS: Final = (ClusterEventWithHint(Resource.WILDCARD, Action.ALL),)


# --- hints, compiled for the plugins that rejected a pod ------------------------------------------


class RegisteredEvent(NamedTuple):
    """One registration of one plugin."""

    plugin: str
    event: ClusterEventWithHint

    def matches(self, change: ClusterChange) -> bool:
        """Whether the change is among those registered (`MatchClusterEvents`)."""
        event = self.event
        if not event.action & change.action:
            return False
        if event.resource is change.resource or event.resource is Resource.WILDCARD:
            return True
        if isinstance(event.resource, str):
            return event.resource == change.resource
        return event.resource is Resource.POD and change.resource in _PODS


class RejectorPlugins(NamedTuple):
    """The plugins that rejected a pod: pods for which they are equal are requeued alike."""

    profile_name: str
    unschedulable: frozenset[str]
    pending: frozenset[str]
    gating: str

    @classmethod
    def of(cls, entry: QueuedPod) -> "RejectorPlugins":
        """The plugins that rejected an entry."""
        return cls(
            entry.profile_name,
            entry.unschedulable_plugins,
            entry.pending_plugins,
            entry.gating_plugin,
        )


@dataclass(frozen=True, slots=True, eq=False)
class QueueingHintFunction:
    """A plugin's hint function and what its Queue means for the pods that it rejected."""

    plugin: str
    function: QueueingHintFn | None
    """None: Queue for every pod."""
    strategy: QueueingStrategy
    """Immediately if the plugin answered Pending, else after backoff."""


@dataclass(frozen=True, slots=True, eq=False)
class MatchingHints:
    """The hint functions that one kind of change concerns."""

    levels: Sequence[Sequence[QueueingHintFunction]]
    """By what of a pod they read, those that hold for most pods first (as in HintScope); no level
    after the last one that has functions."""
    best: QueueingStrategy
    """No further function can give more than this."""


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
        """The hint functions to call about a change; None: none of the plugins registered it.

        With `gated`, a gated pod's are skipped unless the gating plugin itself registered the
        change (`GatingPluginEvents`).
        """
        if gated and self._gating is not None and not _any_matches(self._gating, change):
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
                QueueingHintFunction(plugin, event.queueing_hint_fn, self._strategy(plugin))
                for plugin, event in matching
                if event.scope is scope
            )
            for scope in HintScope
        ]
        while not by_scope[-1]:
            by_scope.pop()
        return MatchingHints(by_scope, self._best)

    def _strategy(self, plugin: str) -> QueueingStrategy:
        return (
            QueueingStrategy.IMMEDIATELY
            if plugin in self._pending
            else QueueingStrategy.AFTER_BACKOFF
        )


def registered(
    plugin: str, events: Mapping[str, Sequence[ClusterEventWithHint]]
) -> Sequence[RegisteredEvent]:
    """The registrations of a plugin; for one that is missing, every event."""
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


def _any_matches(events: Sequence[RegisteredEvent], change: ClusterChange) -> bool:
    return any(event.matches(change) for event in events)


class HintEvaluation:
    """The answers to one change, for many pods at a time: what is called often must cost little."""

    def __init__(self, change: ClusterChange, observer: QueueObserver | None) -> None:
        self._change = change
        self._observer = observer

    def strategy_for(self, hints: MatchingHints, pod: PodInfo) -> QueueingStrategy:
        """The strongest answer of all hint functions for one pod."""
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
        """The function's answer for each of the pods."""
        function, change, observer = hint.function, self._change, self._observer
        if function is None:
            return [QUEUE] * len(pods)
        started = time.perf_counter()
        try:
            answers = [function(pod, change) for pod in pods]
        except Exception:  # noqa: BLE001 whichever it was, it is found and reported below
            return self._answers_one_by_one(hint.plugin, function, pods)
        if observer is not None:
            # Measured together: a clock read before and after each would cost as much as the call.
            each = (time.perf_counter() - started) / max(len(pods), 1)
            skipped = answers.count(QUEUE_SKIP)
            for result, times in ((_QUEUE, len(answers) - skipped), (_QUEUE_SKIP, skipped)):
                if times:
                    observer.hints_evaluated(hint.plugin, change.name, result, times, times * each)
        return answers

    def _answers_one_by_one(
        self, plugin: str, function: QueueingHintFn, pods: Sequence[PodInfo]
    ) -> Sequence[QueueingHint]:
        """The answers where some calls raise: those count as Queue, the others stand."""
        answers = []
        for pod in pods:
            started = time.perf_counter()
            try:
                answer = function(pod, self._change)
                result = answer.value
            except Exception as failure:  # noqa: BLE001 it may cost an attempt, but no pod
                answer, result = QUEUE, _ERROR
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


# --- the pods -------------------------------------------------------------------------------------

HintsFor: TypeAlias = Callable[[str], Mapping[str, Sequence[ClusterEventWithHint]]]
"""Profile's name → plugin → its registrations; one that is missing registered all events."""
WorthRequeuing: TypeAlias = list[tuple[QueuedPod, QueueingStrategy]]

_MAX_IDLE_GROUPS: Final = 256
_SLICE: Final = 250
"""So many specs are asked about in a row."""
_RELOCATED: Final = 25
_RELOCATED_TIMES: Final = 10
"""So many pods by themselves, each of which takes about as long as so many specs."""


class _Bucket:
    """Pods of a group that are alike in spec, or also in named nodes, or also in labels."""

    __slots__ = ("children", "pod")

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        """Any pod that is or was here: hint functions of this level see no difference."""
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


_SpecKey: TypeAlias = tuple[SchedulingSpec, str]
"""The spec, and the node that the pod is nominated to; empty: none."""


class _Group:
    """The pods that the same plugins rejected."""

    __slots__ = ("by_spec", "hints", "key")

    def __init__(self, key: RejectorPlugins, hints: HintsOfPlugins) -> None:
        self.key = key
        self.hints = hints
        self.by_spec: dict[_SpecKey, _Bucket] = {}

    def entries(self) -> Iterator[QueuedPod]:
        for bucket in self.by_spec.values():
            yield from bucket.entries()


class _Location(NamedTuple):
    group: _Group
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
    ) -> None:
        """`nominated_node`: of a pod by uid; when it changes, the entry is added again."""
        self._hints = hints
        self._nominated_node = nominated_node
        self._observer = observer
        self._groups: dict[RejectorPlugins, _Group] = {}
        self._locations: dict[str, _Location] = {}
        """By uid, in the order of queued_at: an update keeps its place in the dict."""
        self._routes: dict[tuple[Resource | str, Action], list[tuple[_Group, MatchingHints]]] = {}
        """Kind of change → the groups that it concerns, made when such a change first comes."""
        self._relocated: list[list[QueuedPod]] = []
        """For each evaluation under way, the entries that were moved in the index meanwhile."""

    def add_or_update(self, entry: QueuedPod) -> None:
        """Put in an entry, or move it to where it belongs now."""
        pod = entry.pod
        known = self._locations.get(pod.uid)
        if known is not None:
            _take_out(known)
            for relocated in self._relocated:
                relocated.append(entry)
        group = self._group(entry)
        spec_key = pod.spec, self._nominated_node(pod.uid)
        of_spec = group.by_spec.get(spec_key)
        if of_spec is None:
            of_spec = group.by_spec[spec_key] = _Bucket(pod)
        of_labels = of_spec.child(pod.node_names, pod).child(pod.label_set, pod)
        of_labels.children[pod.uid] = entry
        self._locations[pod.uid] = _Location(group, spec_key, pod.node_names, pod.label_set, entry)

    def delete(self, uid: str) -> None:
        """Remove a pod that is in the index."""
        _take_out(self._locations.pop(uid))

    def queued_before(self, seconds: float) -> list[QueuedPod]:
        """The entries that have been here since before a time, gated ones included."""
        entries = (location.entry for location in self._locations.values())
        return list(takewhile(lambda entry: entry.queued_at < seconds, entries))

    def of_profile(self, profile_name: str) -> list[QueuedPod]:
        """Every pod of a profile."""
        return [
            entry
            for group in self._groups.values()
            if group.key.profile_name == profile_name
            for entry in group.entries()
        ]

    def refresh_hints(self, profile_name: str) -> None:
        """Read a profile's registrations anew, and regroup its pods by them."""
        entries = self.of_profile(profile_name)
        for key in [each for each in self._groups if each.profile_name == profile_name]:
            del self._groups[key]
        self._routes.clear()
        for entry in entries:
            self.add_or_update(entry)

    def ask_hints(
        self, change: ClusterChange, max_priority: int | None = None
    ) -> Iterator[tuple[int, WorthRequeuing]]:
        """The pods that a change makes worth another attempt, found bit by bit.

        Each bit comes with how many buckets were looked at for it. With `max_priority`, only pods
        of at most that priority. A change of everything (WILDCARD) bypasses the hints, and gated
        pods. The index may change between two bits: what is put in meanwhile is not looked at, what
        is moved within is looked at by itself in the end.
        """
        if change.resource is Resource.WILDCARD:
            found: WorthRequeuing = []
            for group in self._groups.values():
                if not group.key.gating:
                    found += [(entry, QueueingStrategy.AFTER_BACKOFF) for entry in group.entries()]
            yield len(self._groups), _at_most(found, max_priority)
            return
        relocated: list[QueuedPod] = []
        self._relocated.append(relocated)
        try:
            yield from self._ask_groups(change, max_priority)
            until_now = relocated.copy()
            for start in range(0, len(until_now), _RELOCATED):
                asked = until_now[start : start + _RELOCATED]
                worth = [(entry, self.strategy_for(entry, change)) for entry in asked]
                yield (
                    _RELOCATED_TIMES * len(asked),
                    [each for each in worth if each[1] is not QueueingStrategy.SKIP],
                )
        finally:
            self._relocated = [each for each in self._relocated if each is not relocated]

    def _ask_groups(
        self, change: ClusterChange, max_priority: int | None
    ) -> Iterator[tuple[int, WorthRequeuing]]:
        """Ask about the groups whose plugins registered the change, so many buckets in a row."""
        evaluation = HintEvaluation(change, self._observer)
        concerned = [
            (
                hints,
                [
                    bucket
                    for (spec, _), bucket in group.by_spec.items()
                    if max_priority is None or spec.priority <= max_priority
                ],
            )
            for group, hints in self._route(change)
            if group.by_spec
        ]
        for hints, buckets in concerned:
            for start in range(0, len(buckets), _SLICE):
                asked = buckets[start : start + _SLICE]
                yield len(asked), _ask_buckets(evaluation, hints, asked)

    def strategy_for(self, entry: QueuedPod, change: ClusterChange) -> QueueingStrategy:
        """The consequence of a change for one pod, in the index or not (`isPodWorthRequeuing`)."""
        if change.resource is Resource.WILDCARD:
            return QueueingStrategy.AFTER_BACKOFF
        # The pod's own update may concern plugins that rejected it besides the one that gates it.
        hints = self._group(entry).hints.matching(change, gated=False)
        if hints is None:
            return QueueingStrategy.SKIP
        return HintEvaluation(change, self._observer).strategy_for(hints, entry.pod)

    def _group(self, entry: QueuedPod) -> _Group:
        key = RejectorPlugins.of(entry)
        group = self._groups.get(key)
        if group is None:
            self._drop_idle_groups()
            hints = HintsOfPlugins(key, self._hints(entry.profile_name))
            group = self._groups[key] = _Group(key, hints)
            self._routes.clear()
        return group

    def _drop_idle_groups(self) -> None:
        """Keep empty groups, whose plugins will reject pods again, but not without bound."""
        if len(self._groups) > _MAX_IDLE_GROUPS:
            self._groups = {key: group for key, group in self._groups.items() if group.by_spec}

    def _route(self, change: ClusterChange) -> list[tuple[_Group, MatchingHints]]:
        kind = (change.resource, change.action)
        route = self._routes.get(kind)
        if route is None:
            route = self._routes[kind] = [
                (group, hints)
                for group in self._groups.values()
                if (hints := group.hints.matching(change, gated=True)) is not None
            ]
        return route


def _take_out(location: _Location) -> None:
    """Take an entry out of its buckets, and buckets that are then empty out of theirs."""
    group, spec_key, node_names, label_set, entry = location
    of_spec = group.by_spec[spec_key]
    of_node_names = of_spec.child(node_names, of_spec.pod)
    of_labels = of_node_names.child(label_set, of_spec.pod)
    del of_labels.children[entry.pod.uid]
    if not of_labels.children:
        del of_node_names.children[label_set]
        if not of_node_names.children:
            del of_spec.children[node_names]
            if not of_spec.children:
                del group.by_spec[spec_key]


def _ask_buckets(
    evaluation: HintEvaluation, hints: MatchingHints, buckets: Sequence[_Bucket]
) -> WorthRequeuing:
    """Evaluate ever smaller buckets, and go into those only that wider hints have not settled."""
    found: WorthRequeuing = []
    items: list[_Bucket | QueuedPod] = list(buckets)
    strategies = [QueueingStrategy.SKIP] * len(items)
    for level, functions in enumerate(hints.levels, start=1):
        for hint in functions:
            _strengthen(strategies, hint, evaluation.answers(hint, [item.pod for item in items]))
        if level == len(hints.levels) and not any(strategies):
            # Most changes move no pod.
            return found
        narrower: list[_Bucket | QueuedPod] = []
        inherited: list[QueueingStrategy] = []
        for item, strategy in zip(items, strategies, strict=True):
            if strategy is hints.best or level == len(hints.levels):
                if strategy is not QueueingStrategy.SKIP:
                    found += [(entry, strategy) for entry in _entries(item)]
            elif isinstance(item, _Bucket):
                narrower += item.children.values()
                inherited += [strategy] * len(item.children)
        items, strategies = narrower, inherited
    return found


def _strengthen(
    strategies: list[QueueingStrategy],
    hint: QueueingHintFunction,
    answers: Sequence[QueueingHint],
) -> None:
    if answers.count(QUEUE_SKIP) == len(answers):
        return
    for position, answer in enumerate(answers):
        if answer is QUEUE and hint.strategy > strategies[position]:
            strategies[position] = hint.strategy


def _entries(item: _Bucket | QueuedPod) -> Iterator[QueuedPod]:
    return item.entries() if isinstance(item, _Bucket) else iter((item,))


def _at_most(found: WorthRequeuing, max_priority: int | None) -> WorthRequeuing:
    if max_priority is None:
        return found
    return [(entry, strategy) for entry, strategy in found if entry.pod.priority <= max_priority]
