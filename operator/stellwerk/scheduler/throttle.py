"""The throttles of specs and of groups that take so long to decide on that others would wait.

The scheduling coroutine and group cycles ask before an attempt and tell what it took; slow attempts
are logged and counted. Invariant: pods of other specs have at least nine tenths of the time, groups
of one namespace that fit nowhere take no more than their share of others', and where no others are
tried nothing is throttled.
"""

from collections.abc import Callable, Sized
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from stellwerk.framework.time_budget import TimeBudget
from stellwerk.models.scheduling_spec import SchedulingSpec

SLOW_ATTEMPT_SECONDS: Final = 0.1
"""Deciding longer than this, extenders aside, is counted and logged."""
THROTTLED: Final = (
    "deciding on pods like this takes more than 100 ms: they let others pass, nine tenths of the "
    "time"
)
EARLY_SHARE: Final = 0.02
"""Of the time, what groups of a namespace may take that are tried again before their backoff has
ended."""
EARLY_BURST_SECONDS: Final = 0.2
"""So much of it may be spent at once."""
LONG_SECONDS: Final = 0.005
"""An attempt for claims that takes longer counts."""
VAIN_TIMES: Final = 200
"""So many times as long as an attempt in vain took, others have the time for themselves: fewer than
one of a hundred of their pods comes while such a group is in hand."""
IN_VAIN: Final = (
    "attempts in vain of this namespace have taken their share of the time: they let the pods of "
    "other namespaces pass"
)
_LATELY_SECONDS: Final = 1.0
"""A namespace has pods to be tried if one was so long ago."""
_TIMES_LONGER: Final = 9
_LONGEST_SECONDS: Final = 60.0
_NAMESPACES: Final = 1024
"""Of more, those that were tried longest ago, or have spent nothing, are forgotten."""


class _Slow(NamedTuple):
    attempts: int
    """Slow ones in a row."""
    until_seconds: float
    """Pods of the spec are throttled until then."""


class SlowSpecs:
    """Specs whose last attempts were slow."""

    def __init__(self, active: Sized, now: Callable[[], float]) -> None:
        """`now` tells monotonic seconds."""
        self._active = active
        self._now = now
        self.specs: WeakKeyDictionary[SchedulingSpec, _Slow] = WeakKeyDictionary()

    def waits(self, spec: SchedulingSpec) -> bool:
        """Whether a pod of the spec is throttled, in favour of others that wait now."""
        slow = self.specs.get(spec)
        return slow is not None and slow.until_seconds > self._now() and len(self._active) > 0

    def took(self, spec: SchedulingSpec, seconds: float) -> None:
        """An attempt has been made; the first slow one may owe its time to cold caches."""
        if seconds <= SLOW_ATTEMPT_SECONDS:
            self.specs.pop(spec, None)
            return
        before = self.specs.get(spec)
        attempts = before.attempts + 1 if before else 1
        pause_seconds = min(_TIMES_LONGER * seconds, _LONGEST_SECONDS) if attempts > 1 else 0.0
        self.specs[spec] = _Slow(attempts, self._now() + pause_seconds)


class _Spent(NamedTuple):
    left_seconds: float
    counted_seconds: float
    """When that was."""
    until_seconds: float
    """The pods of others go first until then."""


class VainAttempts:
    """The time that each namespace may still take for attempts in vain: of groups, and for claims.

    A group cycle is one piece for the pods of others: what is decided in it is assumed meanwhile.
    A pod of a higher priority is no reason to wait for groups of a lower one, nor the other way
    round: a group is only held up for pods of its own priority or more.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` tells monotonic seconds."""
        self._now = now
        self.spent: dict[str, _Spent] = {}
        """Of namespaces that have not all of it left."""
        self._tried: dict[str, tuple[float, int]] = {}
        """When a pod of each namespace was tried last, and its priority; the last one is last."""

    @property
    def namespaces(self) -> int:
        """The number of names kept: those that have pods and those that have spent something."""
        return len(self._tried) + len(self.spent)

    def tried(self, namespace: str, priority: int) -> None:
        """A pod of its own is being tried; callers need not tell while nothing is spent."""
        self._tried.pop(namespace, None)
        self._tried[namespace] = (self._now(), priority)
        if len(self._tried) > _NAMESPACES:
            del self._tried[next(iter(self._tried))]

    def took(self, namespace: str, seconds: float) -> None:
        """An attempt was in vain."""
        now, before = self._now(), self.spent.get(namespace)
        begins = now if before is None else max(now, before.until_seconds)
        until = min(begins + VAIN_TIMES * seconds, now + _LONGEST_SECONDS)
        left = self._left_seconds(namespace, now) - seconds
        self.spent[namespace] = _Spent(left, now, until)
        if len(self.spent) > _NAMESPACES:
            self.spent = {
                name: each
                for name, each in self.spent.items()
                if self._left_seconds(name, now) < EARLY_BURST_SECONDS or each.until_seconds > now
            }

    def is_spent(self, namespace: str) -> bool:
        """Whether its groups are to wait until their backoff has ended."""
        return self._left_seconds(namespace, self._now()) < 0

    def waits(self, namespace: str, priority: int) -> bool:
        """Whether such an attempt is not to be made now, in favour of the pods of others."""
        spent, now = self.spent.get(namespace), self._now()
        if spent is None or spent.until_seconds <= now:
            return False
        lately = now - _LATELY_SECONDS
        return any(
            seconds >= lately and other >= priority and name != namespace.partition("/")[0]
            for name, (seconds, other) in self._tried.items()
        )

    def _left_seconds(self, namespace: str, now: float) -> float:
        spent = self.spent.get(namespace)
        if spent is None:
            return EARLY_BURST_SECONDS
        earned = EARLY_SHARE * (now - spent.counted_seconds)
        return min(EARLY_BURST_SECONDS, spent.left_seconds + earned)


class Fairness(NamedTuple):
    """The two limits that keep pods from taking the time of others."""

    budget: TimeBudget
    """Of foreign plugins and extenders."""
    slow_specs: SlowSpecs

    def throttled(self, spec: SchedulingSpec, profile_name: str, *, is_alone: bool) -> str:
        """The reason for which a pod has to leave time to others; empty: there is none.

        `is_alone`: no other profile is served, whose pods would wait for foreign code of this one.
        """
        exceeded = "" if is_alone else self.budget.exceeded(profile_name)
        if not exceeded and self.slow_specs.specs and self.slow_specs.waits(spec):
            return THROTTLED
        return exceeded
