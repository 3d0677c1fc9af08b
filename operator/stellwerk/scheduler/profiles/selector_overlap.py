"""The pods that a profile schedules, in words, and its condition Overlapping.

The latter stands where a profile has a selector, and counts pods that another selector has, too.
The status writer asks. Invariant: what it says of two profiles is the same number in both.
"""

from collections import Counter
from typing import Final, TypeAlias

from stellwerk.models.profile import LoadedProfile
from stellwerk.world.profiles import Profiles

OVERLAPPING: Final = "Overlapping"
_NAMED: Final = 3
"""So many other profiles are named."""

Statement: TypeAlias = tuple[str, str, str, str]
"""(type, status, reason, message) of a condition."""


def pods_of(profiles: Profiles, serving: LoadedProfile) -> str:
    """The pods that a profile schedules, in words."""
    name, selector = serving.scheduler_name, serving.spec.selector
    listing = profiles.selectors.by_scheduler_name.get(name, ())
    others = any(each.profile_name != name for each in listing)
    unless = ", unless the selector of another profile has them" if others else ""
    too = "" if selector is None else ", and those that its selector matches"
    return f'pods with schedulerName "{name}"{unless}{too}'


def overlap(profiles: Profiles, serving: LoadedProfile | None) -> Statement | None:
    """The statement on a profile's selector; None: it serves no pods by one."""
    if serving is None or serving.spec.selector is None:
        return None
    got, lost = profiles.overlaps.of(serving.scheduler_name)
    said = [
        *_said(profiles, got, 'the younger SchedulerProfile "{}" matches {} of this selector, too'),
        *_said(profiles, lost, 'the older SchedulerProfile "{}" got {} of this selector'),
    ]
    if not said:
        return OVERLAPPING, "False", "NoOverlap", "no pod was matched by another selector, too"
    more = len(said) - _NAMED
    if more > 0:
        said[_NAMED:] = [f"and {more} more profiles"]
    return OVERLAPPING, "True", "SelectorsOverlap", "; ".join(said)


def _said(profiles: Profiles, pods: Counter[str], sentence: str) -> list[str]:
    lines = []
    for name, count in pods.most_common():
        served = profiles.served.get(name)
        shown = name if served is None else served.loaded.name
        lines.append(sentence.format(shown, "1 pod" if count == 1 else f"{count} pods"))
    return lines
