"""Which objects are judged anew after a change; the properties have all else."""

from stellwerk.profiles.dependencies import ProfileClaims, ProfileDependencies, ProfileGroup


def named(name: str, *scheduler_names: str, created: int, order: str = "priority") -> ProfileClaims:
    return ProfileClaims(frozenset(scheduler_names), (f"{created:02}", name), order)


def judged(**objects: ProfileClaims) -> ProfileDependencies:
    """Nothing is outdated."""
    dependencies = ProfileDependencies()
    for name, its in objects.items():
        dependencies.change(name, its)
    settle(dependencies)
    return dependencies


def settle(dependencies: ProfileDependencies) -> list[ProfileGroup]:
    groups = []
    while dependencies.outdated:
        group = dependencies.next_group()
        assert group is not None
        dependencies.note_oldest()
        dependencies.judged(group)
        groups.append(group)
    return groups


def test_an_object_that_shares_no_scheduler_name_is_judged_by_itself() -> None:
    dependencies = judged(a=named("a", "s", created=1), b=named("b", "t", created=2))
    dependencies.change("b", named("b", "t", created=2))
    (group,) = settle(dependencies)
    assert set(group.names) == {"b"}


def test_objects_are_judged_together_by_way_of_others() -> None:
    dependencies = judged(
        a=named("a", "s", created=1),
        b=named("b", "s", "t", created=2),
        c=named("c", "t", created=3),
        d=named("d", "u", created=4),
    )
    dependencies.change("a", named("a", "s", created=1))
    (group,) = settle(dependencies)
    assert set(group.names) == {"a", "b", "c"}
    assert set(group.scheduler_names) == {"s", "t"}


def test_a_name_that_is_given_up_goes_to_those_that_claim_it_still() -> None:
    dependencies = judged(a=named("a", "s", created=1), b=named("b", "s", created=2))
    dependencies.change("a", named("a", "t", created=1))
    (group,) = settle(dependencies)
    assert set(group.names) == {"a", "b"}
    dependencies.change("a", None)
    (group,) = settle(dependencies)
    assert set(group.names) == {"a"}
    assert set(group.scheduler_names) == {"t"}


def test_another_order_of_the_oldest_concerns_all_that_schedule_pods() -> None:
    dependencies = judged(
        a=named("a", "s", created=1),
        b=named("b", "t", created=2),
        shadow=ProfileClaims(frozenset({"shadow/x"}), shadow_of="b"),
    )
    dependencies.change("a", named("a", "s", created=1, order="name"))
    assert {name for group in settle(dependencies) for name in group.names} == {"a", "b"}


def test_another_oldest_of_the_same_order_concerns_those_that_it_refuses() -> None:
    dependencies = judged(
        a=named("a", "s", created=1),
        b=named("b", "t", created=2),
        c=named("c", "u", created=3, order="name"),
    )
    dependencies.change("a", None)
    assert {name for group in settle(dependencies) for name in group.names} == {"a", "c"}


def test_a_group_that_is_too_large_is_not_given() -> None:
    dependencies = ProfileDependencies()
    for number in range(5):
        dependencies.change(f"p{number}", named(f"p{number}", "s", created=number))
    assert dependencies.next_group(4) is None
    group = dependencies.next_group(5)
    assert group is not None
    assert len(group.names) == 5


def test_without_objects_there_is_no_group_and_no_oldest() -> None:
    dependencies = ProfileDependencies()
    assert dependencies.next_group() is None
    assert dependencies.note_oldest() == ""
