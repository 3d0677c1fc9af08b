"""The profile of a pod: by the selectors of the profiles, or else by the pod's schedulerName.

`Profiles` asks for pods of the World; what knows objects alone (cases, reruns of recordings) asks
for their fields. Invariant: the answer depends on the pod's schedulerName and labels, the labels of
its namespace and the profiles that serve, in the order of their age, and on nothing that was asked
before: what is kept of a namespace holds for that version of its object alone.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from stellwerk.profiles.spec.selector import PodsSelected
from stellwerk_kube.json_values import JsonObject, text_map
from stellwerk_kube.selectors import Labels, LabelSelector

_NONE: Final[Mapping[str, LabelSelector]] = {}
Age: TypeAlias = tuple[str, str]
"""(creationTimestamp, name) of a profile: the oldest is the least."""
UNDECIDED: Final = "?"
"""In place of a schedulerName, which has no such character: the namespace has not been seen."""


NOT_ADMITTED: Final = "!"
"""In the same place: the profile takes no pods of the namespace."""


class ProfileSelectors:
    """The selectors of the profiles that serve, and whose pods they take; empty until given."""

    def __init__(self, namespace: Callable[[str], JsonObject | None]) -> None:
        """`namespace`: the object of a namespace as last seen; None: it was not seen."""
        self._namespace = namespace
        self.by_scheduler_name: dict[str, tuple[PodsSelected, ...]] = {}
        """The selectors that list a schedulerName, the oldest profile's first."""
        self._ages: dict[str, Age] = {}
        """Ages of the profiles whose selectors came one by one, by the profiles' names."""
        self.limits: dict[str, LabelSelector] = {}
        """The namespaces whose pods a profile takes, by its name, where these are not all."""
        self._seen: dict[tuple[str, str], tuple[JsonObject, tuple[PodsSelected, ...]]] = {}
        """Those of them that match a namespace, by schedulerName and namespace, with its object."""

    def serve(
        self, selectors: Iterable[PodsSelected], limits: Mapping[str, LabelSelector] = _NONE
    ) -> bool:
        """From here on these selectors count, the oldest profile's first; whether they are new.

        `limits` are the namespaces whose pods a profile takes, by its name, where not of all.
        """
        listings: dict[str, list[PodsSelected]] = {}
        for selector in selectors:
            for name in selector.scheduler_names:
                listings.setdefault(name, []).append(selector)
        by_scheduler_name = {name: tuple(listing) for name, listing in listings.items()}
        if (by_scheduler_name, limits) == (self.by_scheduler_name, self.limits):
            return False
        self.by_scheduler_name, self.limits = by_scheduler_name, dict(limits)
        self._seen.clear()
        return True

    def change(
        self,
        profile_name: str,
        before: PodsSelected | None,
        after: PodsSelected | None,
        age: Age,
        limit: LabelSelector | None,
    ) -> bool:
        """From here on one profile has this selector and this limit, the others theirs as before.

        Returns whether they are new.
        """
        if before == after and age == self._ages.get(profile_name, age):
            if limit == self.limits.get(profile_name):
                return False
        else:
            for name in () if before is None else before.scheduler_names:
                listing = self.by_scheduler_name[name]
                self._list(name, [each for each in listing if each.profile_name != profile_name])
            self._ages.pop(profile_name, None)
            if after is not None:
                self._ages[profile_name] = age
                for name in after.scheduler_names:
                    by_age = list(self.by_scheduler_name.get(name, ()))
                    insort(by_age, after, key=lambda each: self._ages[each.profile_name])
                    self._list(name, by_age)
        if limit is None:
            self.limits.pop(profile_name, None)
        else:
            self.limits[profile_name] = limit
        self._seen.clear()
        return True

    def _list(self, scheduler_name: str, listing: Sequence[PodsSelected]) -> None:
        if listing:
            self.by_scheduler_name[scheduler_name] = tuple(listing)
        else:
            self.by_scheduler_name.pop(scheduler_name, None)

    def fork(self, namespace: Callable[[str], JsonObject | None]) -> "ProfileSelectors":
        """Copy the selectors for other namespaces; neither side sees what the other changes."""
        fork = ProfileSelectors(namespace)
        fork.by_scheduler_name = dict(self.by_scheduler_name)
        fork._ages, fork.limits = dict(self._ages), dict(self.limits)
        return fork

    @property
    def read_namespaces(self) -> bool:
        """Whether the labels of namespaces may matter at all."""
        return bool(self.by_scheduler_name or self.limits)

    def admitted(self, profile_name: str, namespace: str) -> str:
        """The name of a profile that takes the pods of a namespace.

        UNDECIDED: the namespace has not been seen; NOT_ADMITTED: the profile does not take them.
        """
        limit = self.limits.get(profile_name)
        if limit is None:
            return profile_name
        obj = self._namespace(namespace)
        if obj is None:
            return UNDECIDED
        admits = limit.matches(text_map(obj["metadata"].get("labels")))
        return profile_name if admits else NOT_ADMITTED

    def first(self, scheduler_name: str, namespace: str, labels: Labels) -> str:
        """The name of the profile whose selector has a pod; empty: none has.

        UNDECIDED: that depends on the labels of a namespace that has not been seen.
        """
        return next(self._matching(scheduler_name, namespace, labels), "")

    def all(self, scheduler_name: str, namespace: str, labels: Labels) -> tuple[str, ...]:
        """The names of all profiles whose selectors match a pod, the oldest first."""
        found = tuple(self._matching(scheduler_name, namespace, labels))
        return () if UNDECIDED in found else found

    def forget(self, namespace: str) -> None:
        """A namespace is gone."""
        for name in self.by_scheduler_name:
            self._seen.pop((name, namespace), None)

    def _matching(self, scheduler_name: str, namespace: str, labels: Labels) -> Iterator[str]:
        listing = self.by_scheduler_name.get(scheduler_name, ())
        obj = self._namespace(namespace) if listing else None
        for selector in listing if obj is None else self._there(scheduler_name, namespace, obj):
            if not selector.pods.matches(labels):
                continue
            if obj is None and selector.reads_namespace:
                yield UNDECIDED
                return
            yield selector.profile_name

    def _there(
        self, scheduler_name: str, namespace: str, obj: JsonObject
    ) -> tuple[PodsSelected, ...]:
        """The selectors that match pods of a namespace, as far as its labels go."""
        known = self._seen.get((scheduler_name, namespace))
        if known is not None and known[0] is obj:
            return known[1]
        labels = text_map(obj["metadata"].get("labels"))
        found = tuple(
            selector
            for selector in self.by_scheduler_name[scheduler_name]
            if selector.namespaces.matches(labels)
        )
        self._seen[scheduler_name, namespace] = obj, found
        return found


class SelectorOverlaps:
    """The number of pods that selectors of several profiles match, by namespace.

    Counted anew when selectors change, and for a namespace when its labels do.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[tuple[str, str]]] = {}
        """Namespace → (the profile that got the pods, a younger one that did not)."""

    def count(self, namespace: str, matching: Sequence[str]) -> None:
        """A pod went to the first of these profiles."""
        if len(matching) > 1:
            counts = self._counts.setdefault(namespace, Counter())
            counts.update((matching[0], younger) for younger in matching[1:])

    def forget(self, namespace: str) -> None:
        """The labels of a namespace are others, or it is gone."""
        self._counts.pop(namespace, None)

    def clear(self) -> None:
        """Other selectors count."""
        self._counts.clear()

    def of(self, profile_name: str) -> tuple[Counter[str], Counter[str]]:
        """(pods that it got, by the younger profile; pods that it did not, by the older one)."""
        got: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        for counts in self._counts.values():
            for (older, younger), pods in counts.items():
                if older == profile_name:
                    got[younger] += pods
                elif younger == profile_name:
                    lost[older] += pods
        return got, lost
