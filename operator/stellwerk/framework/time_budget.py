"""The scheduling coroutine's time that each profile's foreign plugins and extenders take.

The plugin guard and the extenders of a profile report the time of each call; the scheduling
coroutine asks before each attempt. Invariant: the answer depends on the last ten seconds only, and
a profile without foreign code is never throttled.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_SECONDS: Final = 10.0
"""Length of the window in which the time of foreign code is added up. One slow call counts little
in it, and a plugin that became fast again is no longer throttled after it."""
DEFAULT_SHARE: Final = 0.2
"""Share of the scheduling coroutine's time that a profile's foreign code may take. Beyond it, pods
of the profile are throttled, because they delay those of other profiles."""
_BUCKET_SECONDS: Final = 0.5
"""Length of a bucket of the window. Times are added up by bucket, so that the cost does not depend
on the number of calls."""
_BUCKETS: Final = round(WINDOW_SECONDS / _BUCKET_SECONDS)


class _Spent:
    """The time that one profile spent, slice by slice."""

    def __init__(self) -> None:
        self.slices: deque[tuple[int, dict[str, float]]] = deque()
        """(number of the slice, seconds by source), oldest first."""

    def forget_before(self, number: int) -> None:
        """Drop the slices before this one."""
        while self.slices and self.slices[0][0] < number:
            self.slices.popleft()

    def by_source(self) -> dict[str, float]:
        """Seconds in the window by source."""
        total: dict[str, float] = {}
        for _, seconds_by_source in self.slices:
            for source, seconds in seconds_by_source.items():
                total[source] = total.get(source, 0.0) + seconds
        return total


class TimeBudget:
    """The share of the last ten seconds that foreign code of a profile may take."""

    def __init__(self, now: Callable[[], float], share: float = DEFAULT_SHARE) -> None:
        """Start with nothing spent.

        Args:
            now: monotonic seconds.
            share: from 0 to 1; with 1 nothing is ever too much.
        """
        self.now = now
        self._share = share
        self._profiles: dict[str, _Spent] = {}
        self.taken_seconds = 0.0
        """Time of the foreign code of all profiles since the start."""

    def spent(self, scheduler_name: str, source: str, seconds: float) -> None:
        """Note what a plugin or extender (`plugin "X"`) of a profile has just taken."""
        self.taken_seconds += seconds
        spent = self._profiles.get(scheduler_name)
        if spent is None:
            spent = self._profiles[scheduler_name] = _Spent()
        number = self._slice()
        if not spent.slices or spent.slices[-1][0] != number:
            spent.slices.append((number, {}))
            spent.forget_before(number - _BUCKETS)
        by_source = spent.slices[-1][1]
        by_source[source] = by_source.get(source, 0.0) + seconds

    def exceeded(self, scheduler_name: str) -> str:
        """The reason to throttle the profile's pods; empty if there is none.

        Names the source that took most. The text stays the same while the reason does, so that a
        condition is not written again at each attempt.
        """
        spent = self._profiles.get(scheduler_name)
        if spent is None or self._share >= 1:
            return ""
        spent.forget_before(self._slice() - _BUCKETS + 1)
        by_source = spent.by_source()
        if sum(by_source.values()) <= self._share * WINDOW_SECONDS:
            return ""
        slowest = max(by_source, key=by_source.__getitem__)
        return (
            f"{slowest} is too slow: with the other foreign plugins and extenders of "
            f"{scheduler_name} it took more than {self._share * 100:g} % of the last "
            f"{WINDOW_SECONDS:g} s of scheduling"
        )

    def _slice(self) -> int:
        return int(self.now() / _BUCKET_SECONDS)
