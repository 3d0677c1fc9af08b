"""The present usage of pods: the `usage` of their lifecycle, at the `load` of the time of day.

Node pressure and the metrics API ask for it. Invariant: without a load profile a pod uses all of
its usage all the time.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.hollow.lifecycle import HOUR_MINUTES, MOST_PERCENT, parse_load, parse_usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from stellwerk_cluster.hollow.lifecycle import Lifecycle

VOLUME: Final = "volume/"
"""Before the name of a volume in a usage: what lies in that volume, counted among `volumes` too."""
_DAY_SECONDS: Final = 86_400.0
_FOLLOWS_LOAD: Final = frozenset(("cpu", "memory", "pids"))
"""What a pod gives back when its load falls; what it has stored, it keeps."""


def usage_at(lifecycle: Lifecycle, now: datetime) -> Mapping[str, int]:
    """The usage of a running pod: cpu in millicores, all else in whole units."""
    usage = parse_usage(lifecycle.usage)
    in_volumes = sum(amount for name, amount in usage.items() if name.startswith(VOLUME))
    if in_volumes:
        usage["volumes"] = usage.get("volumes", 0) + in_volumes
    steps = parse_load(lifecycle.load)
    if not steps:
        return usage
    minute = now.hour * HOUR_MINUTES + now.minute
    # Before the first step of the day, the last one of the day before holds.
    percent = steps[bisect_right(steps, (minute, MOST_PERCENT)) - 1].percent
    return {
        name: amount * percent // 100 if name in _FOLLOWS_LOAD else amount
        for name, amount in usage.items()
    }


def seconds_to_change(lifecycle: Lifecycle, now: datetime) -> float | None:
    """The seconds until the usage changes; None: never."""
    steps = parse_load(lifecycle.load)
    if len(steps) < 2:  # noqa: PLR2004  (one step is no change)
        return None
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = (now - midnight) / timedelta(seconds=1)
    starts = [step.minute * 60.0 for step in steps]
    later = [start for start in starts if start > since]
    return later[0] - since if later else starts[0] + _DAY_SECONDS - since
