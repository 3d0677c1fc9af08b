"""What is said of a group: its members, what it waits for, and what would make it fit."""

from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.steps import finished
from stellwerk.models.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.group_decisions import GroupWorld
from tests.support.pod_groups import make_group, make_member


def explained(*objects: JsonObject, name: str = "g") -> JsonObject:
    steps = explain_group(GroupWorld(*objects).world, "default", name)
    assert steps is not None
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: JsonObject = ended.value
            return result


def members(count: int) -> list[JsonObject]:
    return [make_member(f"p{n}", "g", cpu="1") for n in range(count)]


def test_a_group_that_misses_pods_says_how_many() -> None:
    found = explained(make_group("g", 3), *members(2))
    assert (found["state"], found["exist"], found["minCount"]) == ("waiting for pods", 2, 3)
    assert found["waitsFor"] == "waiting for minCount pods of the gang: 2 of 3 exist"


def test_pods_whose_group_does_not_exist_are_explained_too() -> None:
    assert "to exist" in explained(*members(1))["waitsFor"]


def test_how_many_more_nodes_would_do() -> None:
    found = explained(make_node("n", cpu="2"), make_group("g", 5), *members(5))
    assert found["state"] == "waiting for room"
    assert len(found["wouldHappen"]["nodes"]) == 2
    assert [(each["nodes"], each["like"]) for each in found["wouldFit"]] == [(2, "n")]


def test_where_no_number_of_such_nodes_helps_none_is_named() -> None:
    large = [make_member("p", "g", cpu="9")]
    assert explained(make_node("n", cpu="2"), make_group("g", 1), *large)["wouldFit"] == []


def test_how_long_room_is_kept_is_shown() -> None:
    annotations = {"scheduling.stellwerk.dev/give-back-seconds": "60"}
    world = GroupWorld(make_node("n", cpu="2"), make_group("g", 3, annotations), *members(3))
    (group,) = world.world.pod_groups.groups.values()
    group.reserved_since = world.clock.monotonic()
    world.clock.advance(100)
    steps = explain_group(world.world, "default", "g")
    assert steps is not None
    found = finished(steps)
    assert (found["roomIsKeptSeconds"], found["givenBackAfterSeconds"]) == (200, 60)


def test_a_placed_group_is_one() -> None:
    pods = [make_member(f"p{n}", "g", cpu="1", node_name="n") for n in range(2)]
    found = explained(make_node("n", cpu="2"), make_group("g", 2), *pods)
    assert (found["state"], found["placed"]) == ("placed", 2)
    assert {each["node"] for each in found["members"]} == {"n"}


def test_the_live_world_is_only_read() -> None:
    world = GroupWorld(make_node("n", cpu="2"), make_group("g", 3), *members(3))
    steps = explain_group(world.world, "default", "g")
    assert steps is not None
    for _ in steps:
        assert not world.cache.assumed_pods
    assert [node.name for node in world.cache.nodes()] == ["n"]


def test_an_unknown_group_is_none() -> None:
    assert explain_group(GroupWorld().world, "default", "g") is None
