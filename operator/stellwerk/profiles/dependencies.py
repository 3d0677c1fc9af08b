"""The dependencies of verdicts on SchedulerProfiles: who must be judged anew after a change.

`ProfileLoader` tells each change of an object (`ProfileDependencies.change`), takes one group after
the other that must be judged (`next_group`), and says when that is done (`judged`). A verdict
depends on four things: the versions of the object itself; objects that claim the same
schedulerName, of which the oldest serves it; the oldest object of all, because all profiles have
its QueueSort; and for a shadow, the object beside which it decides. Pure: it knows names and
claims, no profiles and no World. Invariant: as long as nothing is outdated, to judge every object
again would change no verdict.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final

from stellwerk.world.profile_selectors import Age


@dataclass(frozen=True, slots=True)
class ProfileClaims:
    """The part of an object on which verdicts on other objects depend."""

    scheduler_names: frozenset[str] = frozenset()
    """The schedulerNames of its newest version, of its last good one, and as the user wrote it."""
    age: Age | None = None
    """Its place among all objects; None: no version of it may schedule pods."""
    queue_sort: object = None
    """The QueueSort plugin with its arguments of the version that may schedule pods; else None."""
    shadow_of: str = ""
    """The object beside which it decides; empty: it is no shadow."""


NO_CLAIMS: Final = ProfileClaims()
"""The claims of an object that does not exist."""


@dataclass(frozen=True, slots=True)
class ProfileGroup:
    """Objects that claim the same schedulerNames, directly or by way of others."""

    names: Collection[str]
    """The names of the objects, also of those that are gone."""
    scheduler_names: Collection[str]
    """All schedulerNames that one of them claims, or claimed when it was judged last."""


class ProfileDependencies:
    """The claims of all objects, and the objects whose verdicts are outdated."""

    def __init__(self) -> None:
        """Begin without objects."""
        self._claims: dict[str, ProfileClaims] = {}
        """By name of the object."""
        self._claimants: dict[str, dict[str, None]] = {}
        """The names of the objects that claim a schedulerName, by schedulerName."""
        self._shadows: dict[str, dict[str, None]] = {}
        """The names of an object's shadows, by its name."""
        self._by_age: list[Age] = []
        """The ages of the objects that have one, the oldest first."""
        self._judged_beside: tuple[str, object] = ("", None)
        """(name, queue order) of the oldest object when it was asked for last."""
        self.outdated: dict[str, set[str]] = {}
        """The objects whose verdicts are outdated, in order, and the schedulerNames that each has
        claimed before: their verdicts are given with those of the present claimants."""

    @property
    def claims(self) -> Mapping[str, ProfileClaims]:
        """The claims by name of the object."""
        return self._claims

    def change(self, name: str, claims: ProfileClaims | None) -> None:
        """Note that an object has other versions, or is gone (None): its verdict is outdated."""
        before, after = self._claims.pop(name, NO_CLAIMS), claims or NO_CLAIMS
        if claims is not None:
            self._claims[name] = claims
        if after != before:
            for scheduler_name in before.scheduler_names - after.scheduler_names:
                _drop(self._claimants, scheduler_name, name)
            for scheduler_name in after.scheduler_names - before.scheduler_names:
                self._claimants.setdefault(scheduler_name, {})[name] = None
            if before.shadow_of:
                _drop(self._shadows, before.shadow_of, name)
            if after.shadow_of:
                self._shadows.setdefault(after.shadow_of, {})[name] = None
            if before.age is not None:
                del self._by_age[bisect_left(self._by_age, before.age)]
            if after.age is not None:
                insort(self._by_age, after.age)
        self.outdated.setdefault(name, set()).update(before.scheduler_names)

    def note_oldest(self) -> str:
        """Mark verdicts that depend on the oldest object as outdated if that object changed.

        It has changed if it is another one than at the last call, or has another QueueSort.
        `change` does not look for that, so that after many changes in a row only their outcome
        counts. Returns the oldest object that may schedule pods; empty: there is none.
        """
        name = self._by_age[0][1] if self._by_age else ""
        queue_sort = self._claims[name].queue_sort if name else None
        before, self._judged_beside = self._judged_beside, (name, queue_sort)
        if before != self._judged_beside:
            # With the same QueueSort, only refusals change: they name the oldest profile.
            is_reordered = before[1] != queue_sort
            for other, claims in self._claims.items():
                if claims.age is not None and (is_reordered or claims.queue_sort != queue_sort):
                    self.outdated.setdefault(other, set())
        return name

    def next_group(self, most: float = inf) -> ProfileGroup | None:
        """The first outdated object, with all objects that compete with it for schedulerNames.

        None: nothing is outdated, or these are more than `most` objects.
        """
        names, scheduler_names = dict[str, None](), dict[str, None]()
        found = [*islice(self.outdated, 1)]
        while found:
            name = found.pop()
            if name in names:
                continue
            names[name] = None
            if len(names) > most:
                return None
            claimed = self._claims.get(name, NO_CLAIMS).scheduler_names
            for scheduler_name in (*claimed, *self.outdated.get(name, ())):
                if scheduler_name not in scheduler_names:
                    scheduler_names[scheduler_name] = None
                    found += self._claimants.get(scheduler_name, ())
        return ProfileGroup(names, scheduler_names) if names else None

    def shadows_of(self, name: str) -> Collection[str]:
        """The shadows of an object: their verdicts are given after its own."""
        return self._shadows.get(name, {})

    def judged(self, group: ProfileGroup) -> None:
        """Note that the verdicts on a group are new."""
        for name in group.names:
            self.outdated.pop(name, None)


def _drop(names: dict[str, dict[str, None]], key: str, name: str) -> None:
    """Take a name away from those of a key, and the key with its last name."""
    kept = names[key]
    del kept[name]
    if not kept:
        del names[key]
