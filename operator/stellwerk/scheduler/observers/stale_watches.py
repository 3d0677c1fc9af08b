"""Whether what the operator knows is still the cluster's, as /readyz says it.

`app` makes the check a part of readiness. Invariant: a kind of which nothing was heard for longer
than the limit is named, whatever the reason: an API server that is away, a connection that is half
open, credentials that are refused, a right that was withdrawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.metrics import Metrics

LIMIT_SECONDS: Final = 90.0
"""A quiet kind is heard of within 25 s, on kopf's own path once a minute."""
_NAMED_KINDS: Final = 3


class StaleWatches:
    """Fails while the API server says nothing of what is watched; scheduling goes on meanwhile."""

    def __init__(self, metrics: Metrics, limit_seconds: float = LIMIT_SECONDS) -> None:
        """Read the ages that `metrics` exports, and tolerate them up to the limit."""
        self._ages = metrics.watch_silence
        self._limit_seconds = limit_seconds

    def __call__(self) -> str | None:
        """Return what is wrong, or None."""
        ages = {kind: age.current() for (kind,), age in self._ages.items()}
        silent = sorted(
            (kind for kind, seconds in ages.items() if seconds > self._limit_seconds),
            key=lambda kind: (-ages[kind], kind),
        )
        if not silent:
            return None
        others = len(silent) - _NAMED_KINDS
        kinds = ", ".join(silent[:_NAMED_KINDS]) + (f" and {others} more" if others > 0 else "")
        return f"nothing was heard of {kinds} for {ages[silent[0]]:.0f} s"
