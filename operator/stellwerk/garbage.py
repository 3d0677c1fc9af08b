"""How often Python looks for reference cycles: seldom, for nearly everything is freed by counting.

Long-running commands say so before they import the rest, which is a tenth faster for it. Invariant:
objects that live as long as the process are frozen once, by whoever has listed them (`gc.freeze`).
"""

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 50, 50)
"""Few and large collections."""


def collect_seldom() -> None:
    """For the rest of the process."""
    gc.set_threshold(*_THRESHOLDS)
