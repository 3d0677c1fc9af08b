"""How often Python looks for reference cycles: seldom, for nearly everything is freed by counting.

Long-running commands set it before they import the rest, which makes the imports faster, too.
Invariant: objects that live as long as the process are frozen once, after the first lists
(`gc.freeze` in `app`).
"""

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 50, 50)
"""Collections are few and large."""


def collect_seldom() -> None:
    """Set the thresholds for the rest of the process."""
    gc.set_threshold(*_THRESHOLDS)
