"""The throttle: which pods and groups let others pass, because attempts like theirs take too long.

`app` makes one `Throttle` and gives it to `ScheduleOne` and to the cycle of groups. They ask it
before an attempt, and tell it afterwards what the attempt took. It has three accounts: a time
budget for the foreign code of each profile (`TimeBudget`), slow specs (`SlowSpecs`), and
namespaces whose long attempts find no node (`SlowNamespaces`). Invariant: pods of other specs get
at least nine tenths of the time, namespaces whose attempts find nothing take no more than their
share of the others' time, and nothing is throttled while no others are tried.

One promise has two parts: no namespace delays the pods of the others. This module keeps it for the
time that attempts take, `backend.namespace_fairness` for the order of activeQ, by the number of
pods. 429 answers of the API server are another subject: `client.transport` retries after them, and
`client.adaptive_limiter` lowers the number of requests in flight.
"""

import logging
from collections.abc import Callable, Sized
from enum import Enum, auto
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from stellwerk.framework.time_budget import TimeBudget
from stellwerk.framework.types import CycleState
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.world.decide import Decision, Failure
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

SLOW_ATTEMPT_SECONDS: Final = 0.1
"""An attempt that takes longer, extenders aside, is slow: it is logged and counted. An attempt
takes about 0.1 ms, so a slow one costs the others a thousand attempts."""
SPEC_THROTTLED: Final = (
    "deciding on pods like this takes more than 100 ms, so other pods go first nine tenths of "
    "the time"
)
"""The reason for a pod with a slow spec."""
SPEC_PAUSE_FACTOR: Final = 9
"""Length of the pause of a slow spec, in durations of its last attempt: others get nine tenths."""
MIN_COUNTED_SECONDS: Final = 0.005
"""An attempt without a node counts against its namespace from this duration on."""
NAMESPACE_PAUSE_FACTOR: Final = 200
"""Length of the pause of a namespace, in durations of its attempt that found nothing. So less than
one pod in a hundred of others arrives while such an attempt is under way."""
NAMESPACE_THROTTLED: Final = (
    "failed attempts of this namespace have used up their share of the time, so pods of other "
    "namespaces go first"
)
"""The reason for a pod or a group whose namespace pauses."""
MAX_THROTTLE_SECONDS: Final = 60.0
"""Longest pause of a spec or a namespace, however long its attempt took."""
EARLY_SHARE: Final = 0.02
"""Share of the time that groups of one namespace may take for attempts before the end of their
backoff. Beyond it they wait until their backoff has ended."""
MAX_EARLY_SECONDS: Final = 0.2
"""Seconds of that share that a namespace can save up, and spend at once."""
ACTIVE_NAMESPACE_SECONDS: Final = 1.0
"""A namespace counts as one that has pods to be tried for this time after its last attempt."""
MAX_NAMESPACES: Final = 1024
"""Namespaces that are remembered. Beyond it, those are forgotten that were tried longest ago, or
that have nothing to wait for."""


class _Slow(NamedTuple):
    attempts: int
    """Slow attempts in a row."""
    until_seconds: float
    """Monotonic time until which pods of the spec are throttled."""


class SlowSpecs:
    """Specs whose last attempts were slow."""

    def __init__(self, active: Sized, now: Callable[[], float]) -> None:
        """Begin without any: `active` has a length while pods wait, `now` is monotonic seconds."""
        self._active = active
        self._now = now
        self.specs: WeakKeyDictionary[SchedulingSpec, _Slow] = WeakKeyDictionary()

    def waits(self, spec: SchedulingSpec) -> bool:
        """Return whether a pod of the spec lets others pass that wait now."""
        slow = self.specs.get(spec)
        return slow is not None and slow.until_seconds > self._now() and len(self._active) > 0

    def took(self, spec: SchedulingSpec, seconds: float) -> None:
        """Count an attempt; the first slow one may owe its time to cold caches."""
        if seconds <= SLOW_ATTEMPT_SECONDS:
            self.specs.pop(spec, None)
            return
        before = self.specs.get(spec)
        attempts = before.attempts + 1 if before else 1
        pause_seconds = (
            min(SPEC_PAUSE_FACTOR * seconds, MAX_THROTTLE_SECONDS) if attempts > 1 else 0.0
        )
        self.specs[spec] = _Slow(attempts, self._now() + pause_seconds)


class SlowSearch(Enum):
    """The aim of an attempt that found nothing; each aim has an account of its own."""

    GROUP = auto()
    """Nodes for a group: one piece for the pods of others, however many members it has."""
    CLAIMS = auto()
    """A node with the devices of a pod's claims."""
    VICTIMS = auto()
    """Pods whose eviction makes room."""


class _Spent(NamedTuple):
    left_seconds: float
    """The rest of the early share when it was counted; negative: it was overdrawn."""
    counted_seconds: float
    """Monotonic time of the count."""
    until_seconds: float
    """Monotonic time until which the pods of other namespaces go first."""


class SlowNamespaces:
    """The time that each namespace may still take for attempts that find no node.

    A pod of a higher priority does not wait for others of a lower one: an attempt is held up only
    for pods of its own priority or more.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin with nothing spent; `now` is monotonic seconds."""
        self._now = now
        self.spent: dict[tuple[str, SlowSearch], _Spent] = {}
        """The account of each namespace and aim; without those that have all of it left."""
        self._tried: dict[str, tuple[float, int]] = {}
        """(monotonic time, priority) of the last attempt in each namespace, the oldest first."""

    def __len__(self) -> int:
        """Count what is kept: namespaces that were tried, and those that have spent something."""
        return len(self._tried) + len(self.spent)

    def tried(self, namespace: str, priority: int) -> None:
        """Note that a pod of the namespace is tried; it is not needed while nothing is spent."""
        self._tried.pop(namespace, None)
        self._tried[namespace] = (self._now(), priority)
        if len(self._tried) > MAX_NAMESPACES:
            del self._tried[next(iter(self._tried))]

    def took(self, namespace: str, search: SlowSearch, seconds: float) -> None:
        """Count an attempt that found nothing."""
        now, before = self._now(), self.spent.get((namespace, search))
        begins = now if before is None else max(now, before.until_seconds)
        until = min(begins + NAMESPACE_PAUSE_FACTOR * seconds, now + MAX_THROTTLE_SECONDS)
        left = self._left_seconds(before, now) - seconds
        self.spent[namespace, search] = _Spent(left, now, until)
        if len(self.spent) > MAX_NAMESPACES:
            self.spent = {
                key: each
                for key, each in self.spent.items()
                if self._left_seconds(each, now) < MAX_EARLY_SECONDS or each.until_seconds > now
            }

    def waits_backoff_out(self, namespace: str) -> bool:
        """Return whether groups of a namespace are not tried before their backoff has ended.

        An idle activeQ takes rejected pods early. Groups get only the early share for it, so that
        many groups that fit nowhere cost little however often the cluster changes.
        """
        return self._left_seconds(self.spent.get((namespace, SlowSearch.GROUP)), self._now()) < 0

    def waits(self, namespace: str, search: SlowSearch, priority: int) -> bool:
        """Return whether such an attempt is not made now, because others have pods to be tried."""
        spent, now = self.spent.get((namespace, search)), self._now()
        if spent is None or spent.until_seconds <= now:
            return False
        return any(
            seconds >= now - ACTIVE_NAMESPACE_SECONDS and other >= priority and name != namespace
            for name, (seconds, other) in self._tried.items()
        )

    def _left_seconds(self, spent: _Spent | None, now: float) -> float:
        """The seconds that are left of the early share now."""
        if spent is None:
            return MAX_EARLY_SECONDS
        earned = EARLY_SHARE * (now - spent.counted_seconds)
        return min(MAX_EARLY_SECONDS, spent.left_seconds + earned)


class Throttle:
    """The three accounts, and what a pod's attempt asks of them and adds to them."""

    def __init__(self, world: World, budget: TimeBudget, active: Sized, metrics: Metrics) -> None:
        """Begin with nothing spent.

        Args:
            world: the profiles that serve, and the clock.
            budget: of foreign plugins and extenders; they write into it themselves.
            active: activeQ, which has a length while pods wait.
            metrics: counts slow attempts.
        """
        self._profiles = world.profiles
        self.budget = budget
        self.slow_specs = SlowSpecs(active, world.clock.monotonic)
        self.slow_namespaces = SlowNamespaces(world.clock.monotonic)
        self._metrics = metrics

    def why_slow(self, pod: PodInfo, profile: ServedProfile) -> str:
        """Return why a pod's profile or spec lets others pass, or an empty text.

        Explanations also ask it; it notes nothing.
        """
        # With one profile there are no pods of others that foreign code of this one could delay.
        is_alone = len(self._profiles.served) == 1
        if not is_alone and (exceeded := self.budget.exceeded(profile.scheduler_name)):
            return exceeded
        return SPEC_THROTTLED if self.slow_specs.specs and self.slow_specs.waits(pod.spec) else ""

    def begin(self, pod: PodInfo, profile: ServedProfile) -> str:
        """Note that a pod is tried; returns why it has to let others pass, or an empty text."""
        slow_namespaces = self.slow_namespaces
        if slow_namespaces.spent:
            slow_namespaces.tried(pod.namespace, pod.priority)
        # Most clusters have one profile and no slow spec: then this is all, without another call.
        if len(self._profiles.served) != 1 or self.slow_specs.specs:
            slow = self.why_slow(pod, profile)
            if slow:
                return slow
        if pod.spec.resource_claims and slow_namespaces.waits(
            pod.namespace, SlowSearch.CLAIMS, pod.priority
        ):
            return NAMESPACE_THROTTLED
        return ""

    def forgoes_victims(self, pod: PodInfo) -> bool:
        """Return whether an attempt for a pod must do without a search for victims."""
        return self.slow_namespaces.waits(pod.namespace, SlowSearch.VICTIMS, pod.priority)

    def took(
        self,
        pod: PodInfo,
        profile: ServedProfile,
        state: CycleState,
        decision: Decision | Failure,
        seconds: float,
        foreign_seconds: float,
    ) -> None:
        """Count an attempt for a pod, and log a slow one.

        Args:
            pod: the pod.
            profile: the version that decided.
            state: of the attempt.
            decision: what came of it.
            seconds: what it took in all.
            foreign_seconds: what foreign plugins took of that.
        """
        found = decision if isinstance(decision, Decision) else None
        if seconds > MIN_COUNTED_SECONDS and (found is None or not found.node_name):
            if pod.spec.resource_claims:
                self.slow_namespaces.took(pod.namespace, SlowSearch.CLAIMS, seconds)
            has_victims = found is not None and found.candidate is not None
            if state.victims_searched and not (state.without_victims or has_victims):
                self.slow_namespaces.took(pod.namespace, SlowSearch.VICTIMS, seconds)
        if profile.extenders is not None:
            return
        # What foreign code took is no fault of the spec: the profile has a budget for it.
        self.slow_specs.took(pod.spec, seconds - foreign_seconds)
        if seconds > SLOW_ATTEMPT_SECONDS:
            self._metrics.slow_attempts.labels(profile.scheduler_name).inc()
            logger.warning("%s: deciding took %.0f ms", pod.key, 1000 * seconds)
