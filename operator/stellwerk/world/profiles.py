"""The profiles that are served: which one a pod belongs to, and what it says about queueing.

`profiles/loader.py` loads the objects and serves them here, the scheduling queue asks them as its
QueueingPolicy, decisions take framework and extenders from them; `profile_selectors` finds the
profile of a pod. This is a part of the World, and not of the package `profiles`, because forks and
simulations have it and load no objects. Invariant: these never change; a new version is served as
another ServedProfile, and attempts under way keep the one they began with.
Whatever a plugin does, the queue gets an answer: one that raises in PreEnqueue gates the pod under
its own name until it is asked again, one that raises in QueueSort or when its events are registered
is replaced by what holds without it.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, TypeAlias

from typing_extensions import override

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.backend.queueing_policy import QueueingPolicy
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.extension_points import (
    ENQUEUE_EXTENSIONS,
    PRE_ENQUEUE,
    QUEUE_SORT,
    READS_TIME,
)
from stellwerk.framework.handle import RandomNumbers, RecordsMoments, milliseconds
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import OK, Code, CycleState, Status
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.extenders import Extenders
from stellwerk.world.profile_selectors import (
    NOT_ADMITTED,
    UNDECIDED,
    ProfileSelectors,
    SelectorOverlaps,
)
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion

logger = logging.getLogger(__name__)

Draw: TypeAlias = tuple[int, int]
"""(what was drawn, among how many)."""
OnPluginFailure: TypeAlias = Callable[[str, str, str], None]
"""(plugin, extension point, schedulerName): a plugin raised."""
_WITHOUT_LABELS: Final[JsonObject] = {"metadata": {}}
"""Every namespace, where none are known."""
MAX_NAMES_TO_SUGGEST: Final = 200
"""Names that are compared with a misspelt one; 200 take half a millisecond."""
POD_COMPLEXITY: Final = "PodComplexity"
"""Stands for the limit among the plugins that rejected a pod."""


MOMENT: Final = 0
"""Stands for the bound of a draw that is no random number, but the wall-clock time in milliseconds
since the epoch, which a decision read. No number can be drawn below it."""


class RecordedRandom(RandomNumbers):
    """A generator that keeps what was drawn since the decision in progress began."""

    def __init__(self, numbers: RandomNumbers) -> None:
        self._numbers = numbers
        self.draws: list[Draw] = []
        """A decision begins with a list of its own."""

    @override
    def randrange(self, stop: int, /) -> int:
        number = self._numbers.randrange(stop)
        self.draws.append((number, stop))
        return number

    def moment(self, now: Callable[[], datetime]) -> int:
        """The time that the decision reads, in milliseconds; kept as a draw below `MOMENT`."""
        numbers = self._numbers
        moment = numbers.moment(now) if isinstance(numbers, RecordsMoments) else milliseconds(now)
        self.draws.append((moment, MOMENT))
        return moment


@dataclass(slots=True)
class ProfileActivity:
    """The activity of a profile, over all its versions."""

    scheduled_pods: int = 0
    last_decision_seconds: float | None = None
    """Monotonic; None: no pod was decided yet."""


class ServedProfile:
    """One version of a profile that schedules pods."""

    def __init__(
        self,
        loaded: LoadedProfile,
        framework: Framework,
        *,
        random: RecordedRandom,
        extenders: Extenders | None = None,
        activity: ProfileActivity | None = None,
    ) -> None:
        """Look up the plugins for the queue once: asking them for their roles is slow."""
        self.loaded = loaded
        self.scheduler_name = loaded.scheduler_name
        self.observes = loaded.observes
        """Whether another scheduler serves its pods, and nothing may be written about them."""
        self.selected = loaded.selected
        """The pods that it schedules although they do not name it; None: there are none."""
        self.limit = loaded.namespaces
        """The namespaces whose pods it schedules; None: all."""
        self.framework = framework
        self.compatibility = framework.handle.compatibility
        """The release that it decides as."""
        self.random = random
        self.extenders = extenders
        """None: it has none."""
        self.activity = activity or ProfileActivity()
        self.queue_sorts = QUEUE_SORT.among(framework.plugins)
        self.pre_enqueues = PRE_ENQUEUE.among(framework.plugins)
        if self.observes:
            # The other scheduler says when a group may be tried: its members are compared one by
            # one.
            self.pre_enqueues = [each for each in self.pre_enqueues if each.name != GANG_SCHEDULING]
        self.places_groups = any(each.name == GANG_SCHEDULING for each in self.pre_enqueues)
        """Whether pods of one group are decided together."""
        everywhere = dict.fromkeys(each for at in framework.plugins.values() for each in at)
        self.reads_time = [each for each in READS_TIME.among(everywhere) if each.reads_time]
        """The plugins whose rejections may end by themselves."""

    def new_state(self, pod: PodInfo, *, sampled: bool = False) -> CycleState:
        """The state of an attempt for a pod by itself; its group counts where groups are placed."""
        state = CycleState(sampled=sampled)
        state.group = pod.group if self.places_groups else None
        return state


class _MadeWhenAsked(MutableMapping[str, ServedProfile]):
    """The profiles of a fork: to make one takes a millisecond, and most are never asked for."""

    def __init__(
        self,
        models: dict[str, ServedProfile],
        make: Callable[[ServedProfile], ServedProfile],
    ) -> None:
        """`make` makes the profile of a fork after the one that serves."""
        self.models = models
        self._make = make
        self.made: dict[str, ServedProfile] = {}

    @override
    def __getitem__(self, name: str) -> ServedProfile:
        """The profile of a schedulerName.

        Raises:
            ProfileError: a plugin that was made once refuses to be made again.
        """
        made = self.made.get(name)
        if made is None:
            made = self.made[name] = self._make(self.models[name])
        return made

    @override
    def __setitem__(self, name: str, profile: ServedProfile) -> None:
        self.models[name] = self.made[name] = profile

    @override
    def __delitem__(self, name: str) -> None:
        del self.models[name]
        self.made.pop(name, None)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self.models

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    @override
    def __len__(self) -> int:
        return len(self.models)


class Profiles(QueueingPolicy):
    """The served profiles by schedulerName, and whose pods are whose; empty until some serve."""

    def __init__(
        self,
        on_plugin_failure: OnPluginFailure = lambda *_: None,
        namespace: Callable[[str], JsonObject | None] = lambda _: _WITHOUT_LABELS,
        compatibility: Compatibility = AS_RECORDED,
    ) -> None:
        """`namespace`: the object of a namespace as last seen; None: it was not seen."""
        self.compatibility = compatibility
        """The meaning of `compatibility: auto`, and the release by which pods are read."""
        self.server_version = ""
        """As the API server says it, such as v1.37.0."""
        self._on_plugin_failure = on_plugin_failure
        self.selectors = ProfileSelectors(namespace)
        self.overlaps = SelectorOverlaps()
        self.served: MutableMapping[str, ServedProfile] = {}
        self.refusals: dict[str, str] = {}
        """Reasons why profiles that exist do not serve, by schedulerName."""
        self.once_served: set[str] = set()
        """Every schedulerName whose pods were scheduled here since the process started."""
        self.observing: set[str] = set()
        self.on_observing: Callable[[], None] = lambda: None
        """Called after a profile that observes has come, changed or gone."""
        self.on_handed_over: Callable[[], None] = lambda: None
        """Called after a profile that has scheduled pods observes them from here on."""
        self._unanswered: set[str] = set()
        """Uids of pods that are gated because a plugin raised."""

    def of(self, pod: PodInfo) -> ServedProfile | None:
        """The profile that schedules a pod.

        None: no selector matches it, no profile its name, or that takes no pods of its namespace.
        """
        return self.served.get(self.profile_name(pod))

    def is_observed(self, pod: PodInfo) -> bool:
        """Whether another scheduler serves a pod, so that nothing may be written about it."""
        return bool(self.observing) and self.profile_name(pod) in self.observing

    @override
    def profile_name(self, pod: PodInfo) -> str:
        name = pod.spec.scheduler_name
        if name in self.selectors.by_scheduler_name:
            name = self._selected(pod) or name
        selectors = self.selectors
        return selectors.admitted(name, pod.namespace) if selectors.limits else name

    def _selected(self, pod: PodInfo) -> str:
        return self.selectors.first(pod.spec.scheduler_name, pod.namespace, pod.labels)

    def serve(self, profiles: Iterable[ServedProfile], refusals: Mapping[str, str]) -> None:
        """From here on these profiles serve, and no others; why others do not, by schedulerName."""
        serving = {profile.scheduler_name: profile for profile in profiles}
        names = {*self.served, *self.refusals, *serving, *refusals}
        self.change(names, serving, refusals)

    def change(
        self,
        names: Iterable[str],
        profiles: Mapping[str, ServedProfile],
        refusals: Mapping[str, str],
    ) -> bool:
        """From here on these profiles serve of these schedulerNames; those of others stay.

        `refusals` says why profiles of these names do not serve. Returns whether the selectors of
        profiles, or the namespaces that they take pods of, are others.
        """
        is_new = is_observing = is_handed_over = False
        for name in names:
            before, after = self.served.get(name), profiles.get(name)
            if after is None:
                self.served.pop(name, None)
            elif after is not before:
                self.served[name] = after
                if not after.observes:
                    self.once_served.add(name)
            if name in refusals:
                self.refusals[name] = refusals[name]
            else:
                self.refusals.pop(name, None)
            if before is not after:
                is_new |= self._select(name, before, after)
                observes = after is not None and after.observes
                is_observing |= observes or name in self.observing
                is_handed_over |= observes and before is not None and not before.observes
                (self.observing.add if observes else self.observing.discard)(name)
        if is_new:
            self.overlaps.clear()
        if is_observing:
            self.on_observing()
        if is_handed_over:
            self.on_handed_over()
        return is_new

    def _select(self, name: str, before: ServedProfile | None, after: ServedProfile | None) -> bool:
        selected = None if before is None else before.selected
        if after is None:
            return self.selectors.change(name, selected, None, ("", ""), None)
        age = (after.loaded.created, after.loaded.name)
        return self.selectors.change(name, selected, after.selected, age, after.limit)

    def add(self, profile: ServedProfile) -> None:
        """Have one more profile that pods are decided with, beside those that serve."""
        self.served[profile.scheduler_name] = profile

    def fork(
        self,
        namespace: Callable[[str], JsonObject | None],
        made: Callable[[ServedProfile], ServedProfile],
    ) -> "Profiles":
        """Copy the profiles, each made anew when it is asked for; neither side sees changes."""
        fork = Profiles(namespace=namespace, compatibility=self.compatibility)
        served = self.served
        models = served.models if isinstance(served, _MadeWhenAsked) else served
        fork.served = _MadeWhenAsked(dict(models), made)
        fork.refusals, fork.once_served = dict(self.refusals), set(models)
        fork.observing = set(self.observing)
        fork.selectors = self.selectors.fork(namespace)
        return fork

    def count_overlap(self, pod: PodInfo) -> None:
        """A pod has come, or has come to another profile: count selectors that it has in common."""
        spec = pod.spec
        if len(self.selectors.by_scheduler_name.get(spec.scheduler_name, ())) > 1:
            matching = self.selectors.all(spec.scheduler_name, pod.namespace, pod.labels)
            self.overlaps.count(pod.namespace, matching)

    def awaits_namespace(self, pod: PodInfo) -> bool:
        """Whether a pod's profile depends on the labels of a namespace that was not seen yet."""
        return self.profile_name(pod) == UNDECIDED

    def selecting(self, pod: PodInfo) -> ServedProfile | None:
        """The profile whose selector has a pod; None: none has."""
        listed = pod.spec.scheduler_name in self.selectors.by_scheduler_name
        return self.served.get(self._selected(pod)) if listed else None

    def why_none(self, pod: PodInfo, *, hints: bool = True) -> str:
        """The reason why no profile serves a pod; `hints`: also the name that may be meant."""
        name = pod.spec.scheduler_name
        if self.awaits_namespace(pod):
            return f'waiting for the namespace "{pod.namespace}", whose labels select a profile'
        if name in self.refusals:
            return self.refusals[name]
        if name in self.served and self.profile_name(pod) == NOT_ADMITTED:
            profile = self.served[name].loaded.name
            return (
                f'SchedulerProfile "{profile}" takes no pods of the namespace "{pod.namespace}": '
                "its spec.namespaces does not match the namespace's labels"
            )
        ended = " any more" if name in self.once_served else ""
        if name in self.selectors.by_scheduler_name:
            ended += ", and no selector for that name matches the pod"
        near = self.suggested(name) if hints else ""
        return f'no SchedulerProfile serves schedulerName "{name}"{ended}{near}'

    def suggested(self, name: str) -> str:
        """The `suggestion` of a schedulerName that is served; beyond hundreds, of some of them.

        One that is only observed is no name to be served by.
        """
        served = (each for each in self.served if each not in self.observing)
        return suggestion(name, islice(served, MAX_NAMES_TO_SUGGEST))

    # --- the queue's policy ---------------------------------------------------------------------

    @override
    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """The place of a pod in activeQ; every profile has the same QueueSort.

        `queued_at_seconds` includes the delay of `backend.namespace_fairness`.
        """
        profile = self.of(pod)
        if profile is not None:
            for plugin in profile.queue_sorts:
                try:
                    return plugin.sort_key(pod, queued_at_seconds)
                except Exception:
                    logger.exception("%s cannot sort %s in", plugin.name, pod.key)
                    self._on_plugin_failure(plugin.name, "QueueSort", profile.scheduler_name)
        return (-pod.priority, queued_at_seconds)

    @override
    def pre_enqueue(self, pod: PodInfo, first_plugin: str) -> Status:
        profile = self.of(pod)
        if profile is None:
            return OK
        metrics_recorder = profile.framework.metrics_recorder
        started = metrics_recorder.started()
        status = self._pre_enqueue(profile, pod, first_plugin)
        metrics_recorder.point("PreEnqueue", status.code, metrics_recorder.started() - started)
        return status

    def _pre_enqueue(self, profile: ServedProfile, pod: PodInfo, first_plugin: str) -> Status:
        plugins = profile.pre_enqueues
        if first_plugin and len(plugins) > 1:
            plugins = sorted(plugins, key=lambda plugin: plugin.name != first_plugin)
        for plugin in plugins:
            try:
                status = plugin.pre_enqueue(pod)
            except Exception as failure:
                logger.exception("%s is gated: PreEnqueue of %s failed", pod.key, plugin.name)
                self._unanswered.add(pod.uid)
                self._on_plugin_failure(plugin.name, "PreEnqueue", profile.scheduler_name)
                status = Status(Code.ERROR, (f"{type(failure).__name__}: {failure}",))
            if status.code is not Code.SUCCESS:
                return Status(status.code, status.reasons, plugin.name)
        return OK

    @override
    def rejection_ends_at(
        self, profile_name: str, rejected_by: AbstractSet[str], pod: PodInfo
    ) -> float:
        profile = self.served.get(profile_name)
        earliest = math.inf
        if profile is None or not profile.reads_time:
            return earliest
        for plugin in profile.reads_time:
            if plugin.name not in rejected_by:
                continue
            try:
                ends_at = plugin.rejection_ends_at(pod)
            except Exception:
                # The pod is tried again at the next change, or after the longest wait.
                logger.exception("%s cannot tell when %s is due", plugin.name, pod.key)
                self._on_plugin_failure(plugin.name, "ReadsTime", profile.scheduler_name)
                continue
            earliest = min(earliest, math.inf if ends_at is None else ends_at)
        return earliest

    @property
    def made(self) -> Iterable[ServedProfile]:
        """Those of the profiles that exist as objects: of a fork, those that were asked for."""
        served = self.served
        return (served.made if isinstance(served, _MadeWhenAsked) else served).values()

    @property
    def has_unanswered(self) -> bool:
        """Whether there are pods to be asked about again."""
        return bool(self._unanswered)

    def take_unanswered(self) -> set[str]:
        """Uids of pods to be asked about again, as a plugin could not answer; named once each."""
        uids, self._unanswered = self._unanswered, set()
        return uids

    @override
    def hints(self, profile_name: str) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        profile = self.served.get(profile_name)
        if profile is None:
            return {}
        hints = {POD_COMPLEXITY: _COMPLEXITY_HINTS}
        for at_point in profile.framework.plugins.values():
            for plugin in at_point:
                if plugin.name not in hints and ENQUEUE_EXTENSIONS.implemented_by(plugin):
                    try:
                        hints[plugin.name] = plugin.events_to_register()
                    except Exception:
                        logger.exception("%s cannot register its events", plugin.name)
                        self._on_plugin_failure(
                            plugin.name, "EventsToRegister", profile.scheduler_name
                        )
        return hints

    @override
    def backoff(self, pod: PodInfo) -> Backoff:
        profile = self.of(pod)
        if profile is None:
            return Backoff()
        spec = profile.loaded.spec
        return Backoff(spec.pod_initial_backoff_seconds, spec.pod_max_backoff_seconds)

    @override
    def places_groups(self, profile_name: str) -> bool:
        profile = self.served.get(profile_name)
        return profile is not None and profile.places_groups


def _became_simple(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    new = change.new
    return queue_if(isinstance(new, PodInfo) and new.uid == pod.uid and not new.spec.too_complex)


_COMPLEXITY_HINTS: Final[Sequence[ClusterEventWithHint]] = (
    ClusterEventWithHint(
        Resource.UNSCHEDULED_POD, Action.UPDATE_POD, _became_simple, HintScope.POD
    ),
)
"""An update that makes the pod less complex ends a rejection for complexity."""
