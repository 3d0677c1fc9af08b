"""Which endings of a supervised process are right, by what was done to it and what it has said.

`supervised_operator` asks. Invariant: an ending counts as right for one of the reasons of
docs/reliability.md only, so that a crash stays a failure however busy the machine is.
"""

import signal
from dataclasses import dataclass, field
from typing import Final

from stellwerk.supervision import ENDED_AT_ONCE

LOST_LEASE: Final = "stellwerk: lost the lease "
"""The line of a leader that was paused, or not given the processor, beyond its renew deadline."""
_LEASE_STATUS: Final = 1


@dataclass
class Life:
    """One process from its start to its end."""

    was_live: bool = False
    """Whether it has answered a probe: its handlers of signals are installed."""
    signals: list[signal.Signals] = field(default_factory=list)
    """Those that may end it, in their order."""

    def is_right(self, status: int, said: str) -> bool:
        """Whether it may have ended with this status, having written this."""
        if lost_lease(status, said):
            return True
        if signal.SIGKILL in self.signals and status == -signal.SIGKILL:
            return True
        terminations = self.signals.count(signal.SIGTERM)
        if status == 0:
            return terminations > 0
        if status == ENDED_AT_ONCE:
            return terminations > 1
        return status == -signal.SIGTERM and terminations > 0 and not self.was_live


def lost_lease(status: int, said: str) -> bool:
    """Whether it has ended because another process may lead by now."""
    return status == _LEASE_STATUS and LOST_LEASE in said
