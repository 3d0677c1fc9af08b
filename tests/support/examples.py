"""How many examples Hypothesis tries, for property tests that say it themselves.

`make test` tries a third of them, the same in every run; `make test-all` tries all.
"""

from typing import Final

from hypothesis import settings

SHORT: Final = "short"


def examples(number: int) -> int:
    """Return the number, or a third of it in the profile of `make test`."""
    return -(-number // 3) if settings.get_current_profile_name() == SHORT else number
