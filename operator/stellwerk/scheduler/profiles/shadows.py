"""Profiles that decide beside another one and never act: what would they have done?

`ProfileLoader` says which there are, `ScheduleOne` has them look at decisions, the status of a
profile and `/shadow/NAME` tell what came of it. Invariant: a shadow reads the snapshot of the
decision beside which it decides, and binds, reserves and writes nothing; whatever it raises harms
nothing but its own counts.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import numpy as np

from stellwerk.framework.handle import RandomNumbers, Services
from stellwerk.framework.offline import offline_services
from stellwerk.framework.types import CycleState
from stellwerk.metrics import Metrics
from stellwerk.models.answers.shadow import DecisionDifference, ShadowDiff
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.models.profile import LoadedProfile
from stellwerk.plugins.assembly import Assembly
from stellwerk.world.decide import Decision, decide
from stellwerk.world.profiles import RecordedRandom, ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

KEPT: Final = 1000
"""So many differences of a shadow are kept."""
SAMPLE_ONE_IN: Final = 10
MOST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that a shadow would have made otherwise."""

    at: datetime
    pod: str
    node_name: str
    """That the active profile chose; empty: none."""
    shadow_node_name: str
    total: int | None
    """The shadow's total of the active profile's node; None: the node does not fit, or no node."""
    shadow_total: int | None
    """Its total of its own node; None: there was nothing to choose."""
    plugin: str
    """The plugin that made the largest difference, or turned the node away."""
    reason: str = ""
    """The reason why the active profile's node does not fit, or why no node does."""


class Shadow:
    """One version of a profile that decides beside another."""

    def __init__(self, profile: ServedProfile) -> None:
        self.profile = profile
        self.decisions = 0
        """Of the active profile, since this version decides beside it."""
        self.compared = 0
        self.differing = 0
        self.skipped = 0
        """Left out since pods waited."""
        self.failed = 0
        self._gain = 0
        """Of the shadow's total for its own nodes over that for the active profile's."""
        self.differences: deque[Difference] = deque(maxlen=KEPT)
        spec = profile.loaded.spec
        self._sample_one_in = spec.sample_one_in or SAMPLE_ONE_IN
        self._compared_place = 0
        """Which of so many decisions in a row is the one; another one each time, since pods that
        come in a rhythm would otherwise never be compared, or always."""
        seconds = spec.skip_if_waited_seconds
        self._most_wait_seconds = MOST_WAIT_SECONDS if seconds is None else float(seconds)

    @property
    def mean_gain(self) -> float:
        """By how much the shadow's totals differ, on the average of what was compared."""
        return self._gain / self.compared if self.compared else 0.0

    def look(
        self,
        world: World,
        pod: PodInfo,
        decision: Decision,
        waited_seconds: float,
        assumptions: int,
    ) -> str:
        """Decide beside a decision, if it is sampled; what came of it, as the metric calls it.

        `assumptions`: how many objects had been assumed when the decision was made.
        """
        place = self.decisions % self._sample_one_in
        self.decisions += 1
        if place == 0:
            self._compared_place = self.profile.random.randrange(self._sample_one_in)
        if place != self._compared_place:
            return ""
        if waited_seconds > self._most_wait_seconds:
            self.skipped += 1
            return "skipped"
        try:
            with world.objects.before(assumptions):
                own = decide(world, pod, self.profile, CycleState())
            difference = self._compared(world, decision, own)
        except Exception:
            self.failed += 1
            if self.failed == 1:
                logger.exception("%s cannot decide for %s", self.profile.scheduler_name, pod.key)
            return "failed"
        self.compared += 1
        if difference is None:
            return "same"
        self.differing += 1
        self.differences.append(difference)
        return "differing"

    def _compared(self, world: World, decision: Decision, own: Decision) -> Difference | None:
        if decision.node_name == own.node_name:
            return None
        now, key = world.clock.now(), decision.search.pod.key
        chosen, wanted = decision.node_name, own.node_name
        if not wanted:
            why = "" if own.failure is None else own.failure.message
            rejected = own.failure.unschedulable_plugins if own.failure is not None else ()
            return Difference(now, key, chosen, "", None, None, ", ".join(sorted(rejected)), why)
        if not chosen:
            failure = decision.failure
            rejected = failure.unschedulable_plugins if failure is not None else ()
            why = "" if failure is None else failure.message
            return Difference(now, key, "", wanted, None, None, ", ".join(sorted(rejected)), why)
        row = world.cache.snapshot.row_of[chosen]
        if not own.search.found.fits[row]:
            plugin, why = self._rejection(own, row)
            return Difference(now, key, chosen, wanted, None, _total(own, wanted), plugin, why)
        return self._scored(now, key, decision, own)

    def _scored(
        self, now: datetime, key: str, decision: Decision, own: Decision
    ) -> Difference | None:
        """Both nodes fit: how much better the shadow's is, by its own scores."""
        there, here = (_position(own, name) for name in (decision.node_name, own.node_name))
        if there is None or here is None or own.total is None:
            return None  # a nomination that both follow
        total, own_total = int(own.total[there]), int(own.total[here])
        if total == own_total:
            return None  # one of its best nodes
        self._gain += own_total - total
        plugin = _most_different(own, here, there)
        return Difference(now, key, decision.node_name, own.node_name, total, own_total, plugin)

    def _rejection(self, own: Decision, row: int) -> tuple[str, str]:
        """(plugin, message) with which the shadow turns a node away."""
        found = own.search.found
        diagnosis = self.profile.framework.filtering.diagnose(found, own.search.pod)
        place = list(diagnosis.rows).index(row)
        status = diagnosis.statuses[place]
        return status.plugin, status.message


def _position(own: Decision, node_name: str) -> int | None:
    """The place of a node among those that were scored."""
    if own.scores is None:
        return None
    row, view = own.search.snapshot.row_of[node_name], own.scores.nodes
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
    _of: dict[str, list[Shadow]] = field(default_factory=dict)
    """By schedulerName of the active profile."""

    def decide_beside(self, wanted: Iterable[tuple[LoadedProfile, str]]) -> Mapping[str, Exception]:
        """From here on these profiles decide beside that of a schedulerName; why others cannot."""
        before, self.by_name, self._of = self.by_name, {}, {}
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
            self._of.setdefault(scheduler_name, []).append(shadow)
        return failures

    def look(
        self, pod: PodInfo, decision: Decision, waited_seconds: float, assumptions: int
    ) -> None:
        """Let the shadows of a decision's profile decide, too."""
        shadows = self._of.get(decision.search.profile.scheduler_name)
        if shadows is None:
            return
        for shadow in shadows:
            outcome = shadow.look(self.world, pod, decision, waited_seconds, assumptions)
            if outcome:
                name = shadow.profile.loaded.name
                self.metrics.shadow_decisions.labels(name, outcome).inc()

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
            compatibility=str(shadow.profile.compatibility.release),
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
        logger.info("SchedulerProfile %s decides beside %s", profile.name, profile.spec.shadow_of)
        return Shadow(ServedProfile(profile, Assembly(profile, services).framework, random=random))


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
        at=difference.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        pod=difference.pod,
        node=difference.node_name,
        shadow_node=difference.shadow_node_name,
        total=difference.total,
        shadow_total=difference.shadow_total,
        plugin=difference.plugin,
        reason=difference.reason,
    )
