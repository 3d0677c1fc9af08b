"""The throttle of specs that take so long to decide on that their pods let others pass.

The scheduling coroutine asks before an attempt and tells what it took; it logs and counts slow
attempts. Invariant: pods of other specs have at least nine tenths of the time, and where none waits
no pod is throttled.
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
_TIMES_LONGER: Final = 9
_LONGEST_SECONDS: Final = 60.0


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
