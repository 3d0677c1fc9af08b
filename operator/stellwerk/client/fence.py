"""Whether this process may write: the lease's deadline, looked at where bytes are sent.

`elector` opens the fence and moves its deadline, `transport` and `extender` ask it after every wait
and right before every attempt of a write. The deadline is a moment on a monotonic clock, so that a
process that was paused finds it passed as soon as it wakes. Invariant: a fence that has closed, by
its deadline or by `close`, never opens again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.errors import NotLeader

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER: Final = float("-inf")
_ALWAYS: Final = float("inf")


class Fence:
    """Open without leader election; with it, from the first lease until a renewal comes too late.

    Events are not writes in this sense: no decision depends on them. The recorder asks whether to
    accept one, and writes what it has accepted whatever happens then.
    """

    __slots__ = (
        "_has_been_open",
        "_is_closed",
        "_lease_ends_at_seconds",
        "_now",
        "_on_closed",
        "_unanswered_at_seconds",
        "closes_at_seconds",
        "guarding",
        "in_flight",
        "margin_seconds",
    )

    def __init__(
        self, now_seconds: Callable[[], float], *, guarding: bool, margin_seconds: float = 0.0
    ) -> None:
        """Start closed if it is `guarding`, and open without end if not.

        Args:
            now_seconds: a monotonic clock, the one by which the lease is renewed.
            guarding: whether there is leader election at all.
            margin_seconds: the time between the renew deadline and the end of the lease, in which
                writes that were sent in time arrive or are given up.
        """
        self._now = now_seconds
        self.guarding = guarding
        self.margin_seconds = margin_seconds
        self.closes_at_seconds = _NEVER if guarding else _ALWAYS
        """The renew deadline: no write is begun from then on."""
        self._lease_ends_at_seconds = self.closes_at_seconds
        self.in_flight = 0
        """Writes that were begun and are not answered yet."""
        self._has_been_open = not guarding
        self._is_closed = False
        self._unanswered_at_seconds = _NEVER
        self._on_closed: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether a write may be begun now."""
        return self._now() < self.closes_at_seconds

    def check(self, act: str) -> None:
        """Let a write pass.

        Raises:
            NotLeader: the lease is not held, or its renew deadline has passed.
        """
        if self._now() >= self.closes_at_seconds:
            raise NotLeader(act)

    def admits_event(self, type_: str) -> bool:
        """Whether to record one: while open all, afterwards those on what went well until then.

        A binding that was sent in time is reported also when its answer comes late; what fails once
        the lease is lost fails for that reason alone, and the next holder tries it again.
        """
        return self._has_been_open and (type_ == "Normal" or self.is_open)

    def within_lease(self, timeout_seconds: float) -> float:
        """Cut a write's time-out so that it ends with the lease; at least 0."""
        left_seconds = self._lease_ends_at_seconds - self._now()
        return timeout_seconds if timeout_seconds < left_seconds else max(0.0, left_seconds)

    # --- what the elector does --------------------------------------------------------------------

    def extend(self, closes_at_seconds: float) -> bool:
        """Open, or stay open until a later moment; False if it is too late for that."""
        now_seconds = self._now()
        has_closed = self._is_closed or (
            self._has_been_open and now_seconds >= self.closes_at_seconds
        )
        if has_closed or now_seconds >= closes_at_seconds:
            return False
        self._has_been_open = True
        self.closes_at_seconds = closes_at_seconds
        self._lease_ends_at_seconds = closes_at_seconds + self.margin_seconds
        return True

    def close(self) -> None:
        """Begin no write any more, and drop those that are queued."""
        self._is_closed = True
        self.closes_at_seconds = _NEVER
        for notify in self._on_closed:
            notify()

    def on_closed(self, notify: Callable[[], None]) -> None:
        """Have `notify` called when the fence is closed (not when its deadline merely passes)."""
        self._on_closed.append(notify)

    # --- writes under way -------------------------------------------------------------------------

    def begin(self) -> None:
        """Count a write that is about to be sent."""
        self.in_flight += 1

    def end(self, *, answered: bool) -> None:
        """Count it out again; one without an answer may still have its effect."""
        self.in_flight -= 1
        if not answered:
            self._unanswered_at_seconds = self._now()

    @property
    def is_settled(self) -> bool:
        """Whether nothing of this process can still reach the API: only then release a lease."""
        quiet_seconds = self._now() - self._unanswered_at_seconds
        return self.in_flight == 0 and quiet_seconds > self.margin_seconds


def open_fence() -> Fence:
    """Return the fence of a process without leader election: it lets everything pass."""
    return Fence(lambda: 0.0, guarding=False)
