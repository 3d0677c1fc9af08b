"""The free descriptors of the process, which a port must not use up.

PortUse asks before it admits a connection, and once a second. Invariant: if the process may open
few descriptors, a share of them stays free for probes and for what connects to the API server.
"""

from __future__ import annotations

import os
import resource
from typing import Final

MIN_FREE_DESCRIPTORS: Final = 16
"""Descriptors kept free at least, for probes and for what connects to the API server."""
MAX_FREE_DESCRIPTORS: Final = 128
"""Descriptors kept free at most, however many the process may open."""
FREE_DESCRIPTORS_DIVISOR: Final = 8
"""An eighth of the descriptors is kept free, between the two limits above."""
MIN_UNCOUNTED_DESCRIPTORS: Final = 4096
"""From this number of descriptors on, a port cannot use them up within its limits, and they are not
counted: counting lists a directory, for each new connection."""
_DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")
"""Directories that list the descriptors of the process, on Linux and elsewhere."""


class Descriptors:
    """The descriptors of the process, of which a port leaves some free for everything else.

    Against a lack of descriptors for the API server and the probes: with 64 of them and 200
    connections of strangers, pods are bound as ever (docs/security.md).
    """

    def __init__(self, limit: int | None = None) -> None:
        """Count up to the limit of the process, or of a test."""
        if limit is None:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit
        self.are_counted = 0 <= limit < MIN_UNCOUNTED_DESCRIPTORS  # RLIM_INFINITY is -1
        self._kept = min(
            MAX_FREE_DESCRIPTORS, max(MIN_FREE_DESCRIPTORS, limit // FREE_DESCRIPTORS_DIVISOR)
        )

    def missing(self) -> int:
        """Return the number of descriptors that have to be closed for enough to be free."""
        if not self.are_counted:
            return 0
        for directory in _DESCRIPTORS:
            try:
                # Without the one that lists; a Path for each would take ten times as long.
                used = len(os.listdir(directory)) - 1  # noqa: PTH208
            except FileNotFoundError:
                continue
            except OSError:  # not even one for the list
                return self._kept
            return max(0, self._kept - (self._limit - used))
        return 0
