"""Judging only what is outdated gives the verdicts that judging all from nothing gives."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.profiles.dependencies import ProfileClaims, ProfileDependencies, ProfileGroup
from tests.support.examples import examples

NAMES: Final = "abcdef"
SCHEDULER_NAMES: Final = ("s", "t", "u")


@dataclass(frozen=True)
class Version:
    scheduler_name: str
    order: str
    shadow_of: str = ""


@dataclass(frozen=True)
class Obj:
    created: int
    newest: Version | None
    good: Version | None = None

    @property
    def version(self) -> Version | None:
        return self.newest or self.good

    def claims(self, name: str) -> ProfileClaims:
        names = frozenset(each.scheduler_name for each in (self.newest, self.good) if each)
        version = self.version
        if version is None:
            return ProfileClaims(names)
        if version.shadow_of:
            return ProfileClaims(names, shadow_of=version.shadow_of)
        return ProfileClaims(names, (f"{self.created:02}", name), version.order)


@dataclass
class Judge:
    """A plain one: the older object wins a schedulerName, and all have the order of the oldest."""

    objects: dict[str, Obj] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    served: dict[str, tuple[str, Version]] = field(default_factory=dict)
    """By schedulerName."""

    def oldest(self) -> str:
        able = [
            (each.created, name)
            for name, each in self.objects.items()
            if each.version is not None and not each.version.shadow_of
        ]
        return min(able)[1] if able else ""

    def judge(self, names: Collection[str], scheduler_names: Collection[str]) -> None:
        """Give verdicts on these objects, in the order of their age, and then on their shadows."""
        here = sorted(
            (name for name in names if name in self.objects),
            key=lambda name: (self.objects[name].created, name),
        )
        for name in names:
            self.verdicts.pop(name, None)
        chosen = {
            name: version
            for name in here
            if (version := self.objects[name].version) is not None and not version.shadow_of
        }
        self.verdicts |= dict.fromkeys(here, "no version")
        refusals: dict[str, str] = {}
        while True:
            winners, given_way = self._arbitrate(chosen, refusals)
            if not given_way:
                break
            chosen |= given_way
        for scheduler_name in scheduler_names:
            self.served.pop(scheduler_name, None)
        for name, version in winners.items():
            self.served[version.scheduler_name] = (name, version)
            if version is self.objects[name].newest:
                self.objects[name] = replace(self.objects[name], good=version)
        for name in chosen:
            self.verdicts[name] = refusals.get(name, "accepted")
        for name, each in self.objects.items():
            version = each.version
            if version is not None and (name in names or version.shadow_of in names):
                self._judge_shadow(name, version)

    def _arbitrate(
        self, chosen: dict[str, Version], refusals: dict[str, str]
    ) -> tuple[dict[str, Version], dict[str, Version]]:
        oldest = self.oldest()
        winners: dict[str, Version] = {}
        given_way: dict[str, Version] = {}
        taken: dict[str, str] = {}
        for name, version in chosen.items():
            leader = self.objects[oldest].version
            assert leader is not None
            if version.scheduler_name in taken:
                why = f"taken by {taken[version.scheduler_name]}"
            elif version.order != leader.order:
                why = f"differs from {oldest}"
            else:
                taken[version.scheduler_name] = name
                winners[name] = version
                continue
            refusals.setdefault(name, why)
            good = self.objects[name].good
            if version is self.objects[name].newest and good is not None and good != version:
                given_way[name] = good
        return winners, given_way

    def _judge_shadow(self, name: str, version: Version) -> None:
        if version.shadow_of:
            serving = {each for each, _ in self.served.values()}
            beside = version.shadow_of
            self.verdicts[name] = f"beside {beside}" if beside in serving else "beside nothing"


Edit: TypeAlias = tuple[str, int, Version | None] | str
"""(name, created, newest version; None: a flawed one), or the name of an object to delete."""

versions = st.builds(
    Version,
    st.sampled_from(SCHEDULER_NAMES),
    st.sampled_from(["by priority", "by priority", "by name"]),
)
shadows = st.builds(Version, st.just("shadow"), st.just(""), st.sampled_from(NAMES))
edits = st.one_of(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 9), st.one_of(versions, versions, shadows)),
    st.tuples(st.sampled_from(NAMES), st.integers(0, 9), st.none()),
    st.sampled_from(NAMES),
)
batches = st.lists(st.lists(edits, min_size=1, max_size=4), min_size=1, max_size=8)


def apply(edit: Edit, judge: Judge, dependencies: ProfileDependencies) -> None:
    if isinstance(edit, str):
        if judge.objects.pop(edit, None):
            dependencies.change(edit, None)
        return
    name, created, newest = edit
    if newest is not None and newest.shadow_of:
        # A shadow serves no schedulerName that another could have.
        newest = replace(newest, scheduler_name=f"shadow/{name}")
    before = judge.objects.get(name)
    obj = Obj(created, newest) if before is None else replace(before, newest=newest)
    judge.objects[name] = obj
    dependencies.change(name, obj.claims(name))


def together(name: str, claims: dict[str, frozenset[str]]) -> set[str]:
    """The objects that compete with one, found by comparing each with each."""
    found = {name}
    while more := {
        other
        for other, names in claims.items()
        if other not in found and any(names & claims.get(each, frozenset()) for each in found)
    }:
        found |= more
    return found


@settings(max_examples=examples(400), deadline=None)
@given(batches)
def test_verdicts_on_what_is_outdated_are_those_of_a_judgement_from_nothing(
    batches: list[list[Edit]],
) -> None:
    judge, dependencies = Judge(), ProfileDependencies()
    for batch in batches:
        for edit in batch:
            apply(edit, judge, dependencies)
        while dependencies.outdated:
            group = dependencies.next_group()
            assert group is not None
            assert_is_whole(group, judge, dependencies)
            assert dependencies.note_oldest() == judge.oldest()
            shadows_of_group = {
                name
                for name, each in judge.objects.items()
                if each.version is not None and each.version.shadow_of in group.names
            }
            assert shadows_of_group == {
                shadow for name in group.names for shadow in dependencies.shadows_of(name)
            }
            goods = {name: each.good for name, each in judge.objects.items()}
            judge.judge(group.names, group.scheduler_names)
            for name, each in judge.objects.items():
                if each.good != goods[name]:
                    dependencies.change(name, each.claims(name))
            dependencies.judged(group)
        from_nothing = Judge(dict(judge.objects))
        from_nothing.judge(list(judge.objects), [*SCHEDULER_NAMES])
        assert judge.verdicts == from_nothing.verdicts
        assert judge.served == from_nothing.served


def assert_is_whole(group: ProfileGroup, judge: Judge, dependencies: ProfileDependencies) -> None:
    """A group has all that compete with its first object by what they claim, and claimed."""
    claims = {
        name: each.claims(name).scheduler_names | dependencies.outdated.get(name, set())
        for name, each in judge.objects.items()
    }
    for name, before in dependencies.outdated.items():
        claims.setdefault(name, frozenset(before))
    first = next(iter(dependencies.outdated))
    names = set(group.names)
    assert first in names
    present = {name: each.claims(name).scheduler_names for name, each in judge.objects.items()}
    claimed = set(group.scheduler_names)
    assert {name for name, its in present.items() if its & claimed} <= names
    assert names <= together(first, claims)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(edits, max_size=20))
def test_claims_are_kept_as_if_they_had_been_made_from_nothing(made: list[Edit]) -> None:
    judge, dependencies = Judge(), ProfileDependencies()
    for edit in made:
        apply(edit, judge, dependencies)
    anew = ProfileDependencies()
    for name, each in judge.objects.items():
        anew.change(name, each.claims(name))
    assert dict(dependencies.claims) == dict(anew.claims)
    assert dependencies.note_oldest() == anew.note_oldest()
    for name in NAMES:
        assert set(dependencies.shadows_of(name)) == set(anew.shadows_of(name))
