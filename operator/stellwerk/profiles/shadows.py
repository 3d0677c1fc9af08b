"""Profiles that decide beside another one and never act: what would they have done?

`ProfileLoader` says which there are, `ScheduleOne` has them look at decisions, the status of a
profile and `/shadow/NAME` tell what came of it. Invariant: a shadow reads the snapshot of the
decision beside which it decides (of a decision on a group, a fork of the World before it), and
binds, reserves and writes nothing; whatever it raises harms nothing but its own counts.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import numpy as np

from stellwerk.answers.shadow import DecisionDifference, ShadowDiff
from stellwerk.framework.handle import RandomNumbers, Services
from stellwerk.framework.offline import offline_services
from stellwerk.framework.types import CycleState
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.assembly import Assembly
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.decide import Decision, Failure, decide
from stellwerk.world.gangs.group_attempt import (
    GroupContext,
    GroupRequest,
    MemberRequest,
    answered,
    decided_at_once,
    nodes_of,
    undo_attempt,
)
from stellwerk.world.gangs.group_decision import DecidedGroup, GroupDecision, decide_group
from stellwerk.world.gangs.placements import EVERYWHERE
from stellwerk.world.profiles import RecordedRandom, ServedProfile
from stellwerk.world.world import World, profile_on
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

MAX_DIFFERENCES: Final = 1000
"""Differences of one shadow that are kept; the oldest ones are dropped."""
SAMPLE_ONE_IN: Final = 10
"""A shadow compares one decision in 10, unless its spec says otherwise: each costs as much as the
decision itself."""
MAX_WAIT_SECONDS: Final = 1.0
"""A shadow skips a decision on a pod that has waited longer, unless its spec says otherwise: then
the scheduler is behind, and has no time for comparisons."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that a shadow would have made otherwise."""

    at: datetime
    pod: str
    node_name: str
    """The node that the active profile chose; empty: none."""
    shadow_node_name: str
    total: int | None
    """The shadow's total of the active profile's node; None: the node does not fit, or no node."""
    shadow_total: int | None
    """Its total of its own node; None: there was nothing to choose."""
    plugin: str
    """The plugin that made the largest difference, or turned the node away."""
    reason: str = ""
    """The reason why the active profile's node does not fit, or why no node does."""
    group: str = ""
    """The group in whose decision the pod got its node, as namespace/name; empty: none."""


class Shadow:
    """One version of a profile that decides beside another."""

    def __init__(self, profile: ServedProfile) -> None:
        self.profile = profile
        self.decisions = 0
        """Decisions of the active profile since this version decides beside it."""
        self.compared = 0
        self.differing = 0
        self.skipped = 0
        """Decisions left out because pods waited."""
        self.failed = 0
        self.groups = 0
        """Decisions on groups among those that were compared."""
        self._gain = 0.0
        """Sum of the differences between the shadow's totals for its own nodes and for those of the
        active profile."""
        self.differences: deque[Difference] = deque(maxlen=MAX_DIFFERENCES)
        spec = profile.loaded.spec
        self._sample_one_in = spec.sample_one_in or SAMPLE_ONE_IN
        self._compared_place = 0
        """The index of the decision to compare among the next SAMPLE_ONE_IN. It is another one each
        time: pods that come in a rhythm would otherwise never be compared, or always."""
        seconds = spec.skip_if_waited_seconds
        self._max_wait_seconds = MAX_WAIT_SECONDS if seconds is None else float(seconds)

    @property
    def mean_gain(self) -> float:
        """The mean of what the shadow's totals gain, over all that was compared."""
        return self._gain / self.compared if self.compared else 0.0

    def look(
        self,
        world: World,
        pod: PodInfo,
        decision: Decision,
        waited_seconds: float,
        assumptions: int,
        profile: ServedProfile | None = None,
    ) -> str:
        """Decide beside a decision, if it is sampled; what came of it, as the metric calls it.

        `assumptions`: how many objects had been assumed when the decision was made; `profile`:
        this version with plugin instances on that World; None: its own, on the live one.
        """
        passed_over = self.passes_over(waited_seconds)
        if passed_over is not None:
            return passed_over
        try:
            with world.objects.before(assumptions):
                own = decide(world, pod, profile or self.profile, CycleState())
            key, now = decision.search.pod.key, world.clock.now()
            difference = self._weighed(now, key, decision.node_name, decision.failure, own)
        except Exception:
            self.failed += 1
            if self.failed == 1:
                logger.exception("%s cannot decide for %s", self.profile.scheduler_name, pod.key)
            return "failed"
        self.compared += 1
        if difference is None:
            return "same"
        self.differing += 1
        self._gain += _gain(difference)
        self.differences.append(difference)
        return "differing"

    def passes_over(self, waited_seconds: float) -> str | None:
        """The reason to pass over the next decision ("": not sampled); None: there is none."""
        place = self.decisions % self._sample_one_in
        self.decisions += 1
        if place == 0:
            self._compared_place = self.profile.random.randrange(self._sample_one_in)
        if place != self._compared_place:
            return ""
        if waited_seconds > self._max_wait_seconds:
            self.skipped += 1
            return "skipped"
        return None

    def look_at_group(
        self, before: World, request: GroupRequest, decided: DecidedGroup
    ) -> Generator[None, None, str]:
        """Decide on a group beside a decision, in steps; returns what came of it.

        `before`: a fork of the World before the decision, which is changed.
        """
        differences: list[Difference] = []
        try:
            served = self._served_in(before)
            own = yield from answered(decide_group(before, served, request))
            if own.placed:
                undo_attempt(GroupContext(before, served), own.attempt)
            for found in self._members_compared(before, served, request, decided, own):
                if found is not None:
                    differences.append(replace(found, group=decided.key))
                yield
        except Exception:
            self.failed += 1
            if self.failed == 1:
                logger.exception(
                    "%s cannot decide for %s", self.profile.scheduler_name, decided.key
                )
            return "failed"
        self.compared += 1
        self.groups += 1
        self._gain += sum(map(_gain, differences)) / max(1, len(request.members))
        if not differences:
            return "same"
        self.differing += 1
        self.differences.extend(differences)
        return "differing"

    def _served_in(self, world: World) -> ServedProfile:
        """The profile with plugins of its own on a fork, which looks for victims on another one."""
        served = profile_on(world, self.profile.loaded)
        world.profiles.add(served)
        return served

    def _members_compared(
        self,
        world: World,
        served: ServedProfile,
        request: GroupRequest,
        decided: DecidedGroup,
        own: GroupDecision,
    ) -> Iterator[Difference | None]:
        """Each member's difference, with the members before it where the active profile has them.

        So that nodes that score the same make no difference for the members that follow.
        """
        now, nodes = world.clock.now(), decided.nodes
        wanted = nodes_of(own.attempt) if own.placed else {}
        placement = own.attempt.placement if own.placed else EVERYWHERE
        snapshot = world.cache.update_snapshot()
        rows = placement.rows(snapshot)
        here = None if rows is None else set(snapshot.names(np.flatnonzero(rows).tolist()))
        is_elsewhere = here is not None and not here.issuperset(nodes.values())
        place = {uid: number for number, uid in enumerate(nodes)}
        for pod in sorted(request.members, key=lambda pod: place.get(pod.uid, len(place))):
            chosen = nodes.get(pod.uid, "")
            if not nodes or not wanted or is_elsewhere:
                node_name = wanted.get(pod.uid, "")
                why = own.message if nodes else decided.message
                is_same = chosen == node_name
                yield (
                    None
                    if is_same
                    else Difference(now, pod.key, chosen, node_name, None, None, "", why)
                )
                continue
            state = CycleState()
            decision = decided_at_once(MemberRequest(world, served, pod, state, placement))
            yield self._weighed(now, pod.key, chosen, None, decision)
            if chosen:
                assumed = pod.with_node(chosen)
                world.cache.assume_pod(assumed)
                world.nominator.remove(pod.uid)
                served.framework.binding.reserve(state, assumed, chosen)

    def _weighed(  # noqa: PLR0911 one answer after the other
        self, now: datetime, key: str, chosen: str, failure: Failure | None, own: Decision
    ) -> Difference | None:
        """The active profile's choice, or its failure, beside the shadow's own decision."""
        wanted = own.node_name
        if chosen == wanted:
            return None
        if not wanted:
            why = "" if own.failure is None else own.failure.message
            rejected = own.failure.unschedulable_plugins if own.failure is not None else ()
            return Difference(now, key, chosen, "", None, None, ", ".join(sorted(rejected)), why)
        if not chosen:
            rejected = failure.unschedulable_plugins if failure is not None else ()
            why = "" if failure is None else failure.message
            return Difference(now, key, "", wanted, None, None, ", ".join(sorted(rejected)), why)
        row = own.search.snapshot.row_of[chosen]
        if not own.search.found.fits[row]:
            plugin, why = self._rejection(own, row)
            return Difference(now, key, chosen, wanted, None, _total(own, wanted), plugin, why)
        # Both nodes fit: how much better the shadow's is, by its own scores.
        there, here = (_position(own, name) for name in (chosen, wanted))
        if there is None or here is None or own.total is None:
            return None  # a nomination that both follow
        total, own_total = int(own.total[there]), int(own.total[here])
        if total == own_total:
            return None  # one of its best nodes
        plugin = _most_different(own, here, there)
        return Difference(now, key, chosen, wanted, total, own_total, plugin)

    def _rejection(self, own: Decision, row: int) -> tuple[str, str]:
        """(plugin, message) with which the shadow turns a node away."""
        found = own.search.found
        diagnosis = own.search.profile.framework.filtering.diagnose(found, own.search.pod)
        place = list(diagnosis.rows).index(row)
        status = diagnosis.statuses[place]
        return status.plugin, status.message


def _gain(difference: Difference) -> int:
    """The difference of the totals of the shadow's node and the other; 0 if one has no total."""
    if difference.total is None or difference.shadow_total is None:
        return 0
    return difference.shadow_total - difference.total


def _position(own: Decision, node_name: str) -> int | None:
    """The place of a node among those that were scored."""
    row = own.search.snapshot.row_of.get(node_name)
    if own.scores is None or row is None:
        return None
    view = own.scores.nodes
    if view.whole:
        return row
    found = np.flatnonzero(view.row_numbers() == row)
    return int(found[0]) if len(found) else None


def _total(own: Decision, node_name: str) -> int | None:
    position = _position(own, node_name)
    return None if position is None or own.total is None else int(own.total[position])


def _most_different(own: Decision, here: int, there: int) -> str:
    """The plugin whose weighted score speaks most for the shadow's own node."""
    by_plugin = {
        score.plugin: (score.normalized_at(here) - score.normalized_at(there)) * score.weight
        for score in (own.scores.by_plugin if own.scores is not None else ())
    }
    return max(by_plugin, key=lambda plugin: by_plugin[plugin], default="")


@dataclass(slots=True)
class Shadows:
    """The shadows of all profiles."""

    world: World
    services: Services
    seeded: Callable[[int], RandomNumbers]
    metrics: Metrics
    by_name: dict[str, Shadow] = field(default_factory=dict)
    """By name of the object."""
    _of: dict[str, dict[str, Shadow]] = field(default_factory=dict)
    """By schedulerName of the active profile, and by name of the object."""
    _beside: dict[str, str] = field(default_factory=dict)
    """The schedulerNames of the active profiles, by name of the object."""

    def decide_beside(
        self, wanted: Iterable[tuple[LoadedProfile, str]], names: Iterable[str]
    ) -> Mapping[str, Exception]:
        """Let these profiles decide beside that of a schedulerName; returns why some cannot.

        Other objects among `names` stop to decide.
        """
        before: dict[str, Shadow] = {}
        for name in names:
            if name in self.by_name:
                before[name] = self.by_name.pop(name)
                beside = self._beside.pop(name)
                del self._of[beside][name]
                if not self._of[beside]:
                    del self._of[beside]
        failures: dict[str, Exception] = {}
        for profile, scheduler_name in wanted:
            shadow = before.get(profile.name)
            auto = self.world.profiles.compatibility
            if (
                shadow is None
                or shadow.profile.loaded.spec != profile.spec
                or shadow.profile.compatibility != auto.of(profile.spec.compatibility)
            ):
                try:
                    shadow = self._made(profile)
                except Exception as failure:  # noqa: BLE001 a plugin may refuse its arguments in any way
                    failures[profile.name] = failure
                    continue
            self.by_name[profile.name] = shadow
            self._beside[profile.name] = scheduler_name
            self._of.setdefault(scheduler_name, {})[profile.name] = shadow
        return failures

    def look(
        self, pod: PodInfo, decision: Decision, waited_seconds: float, assumptions: int
    ) -> None:
        """Let the shadows of a decision's profile decide beside it."""
        shadows = self._of.get(decision.search.profile.scheduler_name)
        if shadows is None:
            return
        for shadow in shadows.values():
            outcome = shadow.look(self.world, pod, decision, waited_seconds, assumptions)
            if outcome:
                self._count(shadow, outcome)

    def look_at_binding(
        self,
        world: World,
        profile_on: Callable[[LoadedProfile], ServedProfile],
        pod: PodInfo,
        decision: Decision,
        waited_seconds: float,
    ) -> None:
        """Let the shadows of an observed profile decide beside another scheduler's binding.

        `decision` is the observed profile's, with the other scheduler's node; `world` is as it was
        before the binding, `profile_on` makes a profile on it. No shadow's choice is followed, so
        that each difference is a regret of one step.
        """
        for shadow in self._of.get(decision.search.profile.scheduler_name, {}).values():
            own, assumptions = profile_on(shadow.profile.loaded), world.objects.assumptions
            outcome = shadow.look(world, pod, decision, waited_seconds, assumptions, own)
            if outcome:
                self._count(shadow, outcome)

    def beside_group(self, scheduler_name: str, waited_seconds: float) -> "BesideGroup | None":
        """Keep the World before a decision on a group; None: no shadow looks at it."""
        looking: list[Shadow] = []
        for shadow in self._of.get(scheduler_name, {}).values():
            passed_over = shadow.passes_over(waited_seconds)
            if passed_over is None:
                looking.append(shadow)
            elif passed_over:
                self._count(shadow, passed_over)
        # Each has a fork of its own, for what it decides changes it.
        forks = [(shadow, fork) for shadow in looking if (fork := self._fork(shadow)) is not None]
        return BesideGroup(forks, self._count) if forks else None

    def _fork(self, shadow: Shadow) -> World | None:
        """The World as it is, for a shadow to decide on; None: a plugin cannot be made again."""
        try:
            return self.world.fork(shadow.profile.random)
        except Exception:
            shadow.failed += 1
            self._count(shadow, "failed")
            if shadow.failed == 1:
                logger.exception("%s cannot decide on groups", shadow.profile.scheduler_name)
            return None

    def _count(self, shadow: Shadow, outcome: str) -> None:
        self.metrics.shadow_decisions.labels(shadow.profile.loaded.name, outcome).inc()

    def described(self, name: str) -> ShadowDiff | None:
        """Differences that a shadow has found, newest first; None: no shadow has that name."""
        shadow = self.by_name.get(name)
        if shadow is None:
            return None
        return ShadowDiff(
            profile=name,
            shadow_of=shadow.profile.loaded.spec.shadow_of,
            decisions=shadow.decisions,
            compared=shadow.compared,
            differing=shadow.differing,
            skipped=shadow.skipped,
            failed=shadow.failed,
            mean_gain=_mean_gain(shadow),
            mean_gain_points=round(shadow.mean_gain, 2),
            differences=[_described(each) for each in reversed(shadow.differences)],
            compatibility=str(shadow.profile.compatibility.version),
            groups=shadow.groups,
        )

    def _made(self, profile: LoadedProfile) -> Shadow:
        numbers = self.seeded(profile.spec.tie_break_seed or 0)
        random = RecordedRandom(numbers)
        world = self.world
        services = replace(
            offline_services(
                world.cache.snapshot,
                world.objects,
                world.nominator,
                random,
                world.clock.now,
                compatibility=world.profiles.compatibility,
            ),
            guard=self.services.guard,
            now_seconds=world.clock.monotonic,
        )
        logger.info("SchedulerProfile %s shadows %s", profile.name, profile.spec.shadow_of)
        return Shadow(ServedProfile(profile, Assembly(profile, services).framework, random=random))


@dataclass(slots=True)
class BesideGroup:
    """The shadows that look at one decision on a group, each with the World before it."""

    forks: Sequence[tuple[Shadow, World]]
    count: Callable[[Shadow, str], None]

    def look(self, request: GroupRequest, decided: DecidedGroup) -> Iterator[None]:
        """Let the shadows decide beside the active profile, in steps."""
        for shadow, world in self.forks:
            outcome = yield from shadow.look_at_group(world, request, decided)
            self.count(shadow, outcome)
            world.forget_results()


def counts(shadow: Shadow) -> JsonObject:
    """The counts of a shadow, for its status."""
    return {
        "decisions": shadow.decisions,
        "compared": shadow.compared,
        "differing": shadow.differing,
        "skipped": shadow.skipped,
        "failed": shadow.failed,
        "meanGain": _mean_gain(shadow),
    }


def _mean_gain(shadow: Shadow) -> str:
    return f"{shadow.mean_gain:.2f}"


def _described(difference: Difference) -> DecisionDifference:
    return DecisionDifference(
        at=rfc3339_seconds(difference.at),
        pod=difference.pod,
        node=difference.node_name,
        shadow_node=difference.shadow_node_name,
        total=difference.total,
        shadow_total=difference.shadow_total,
        plugin=difference.plugin,
        reason=difference.reason,
        group=difference.group or None,
    )
