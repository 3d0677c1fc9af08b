"""What is said of a group: its members, what it waits for, and what would make it fit."""

from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.steps import finished
from stellwerk_kube.json_values import JsonObject
from tests.support.answers import written
from tests.support.builders import make_node, make_pod
from tests.support.device_cases import case as device_case
from tests.support.device_cases import claim, device, request
from tests.support.device_cases import held as taken_claim
from tests.support.group_decisions import GroupWorld
from tests.support.in_process import eventually, make_profile, running
from tests.support.pod_groups import constrained_to, make_group, make_member


def explained(*objects: JsonObject, name: str = "g") -> JsonObject:
    steps = explain_group(GroupWorld(*objects).world, "default", name)
    assert steps is not None
    return written(steps)


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


def test_a_profile_that_places_no_groups_is_named() -> None:
    world = GroupWorld(make_node("n", cpu="2"), make_group("g", 2), *members(2))
    world.apply(make_profile("stellwerk", generation=2))
    steps = explain_group(world.world, "default", "g")
    assert steps is not None
    (remark,) = written(steps)["remarks"]
    assert remark == 'profile "stellwerk" places pods one by one: gangScheduling is off'


def test_members_are_tried_in_the_order_of_the_scheduler() -> None:
    pods = [make_member(name, "g", cpu="1") for name in "ab"]
    world = GroupWorld(make_group("g"), *pods, make_node("n", cpu="1"))
    world.queue.entries["uid-default-b"].initial_attempt_at = -1.0
    steps = explain_group(world.world, "default", "g")
    assert steps is not None
    # The one that was tried before the other came, whatever its name.
    assert written(steps)["wouldHappen"]["nodes"] == {"default/b": "n"}


def test_where_room_is_kept_is_shown() -> None:
    annotations = {"scheduling.stellwerk.dev/reserves-room": "true"}
    other = make_pod("other", cpu="1", node_name="n", activeDeadlineSeconds=60)
    world = GroupWorld(make_node("n", cpu="2"), other, make_group("g", 2, annotations), *members(2))
    args = [{"name": "GangScheduling", "args": {"reservation": {"maxNodes": 1}}}]
    world.apply(make_profile("stellwerk", generation=2, gangScheduling=True, pluginConfig=args))
    steps = explain_group(world.world, "default", "g")
    assert steps is not None
    assert written(steps)["wouldHappen"]["roomIsKeptOn"] == ["n"]


def test_how_long_room_is_kept_is_shown() -> None:
    annotations = {"scheduling.stellwerk.dev/give-back-seconds": "60"}
    world = GroupWorld(make_node("n", cpu="2"), make_group("g", 3, annotations), *members(3))
    (group,) = world.world.pod_groups.groups.values()
    group.reserved_since = world.clock.monotonic()
    world.clock.advance(100)
    steps = explain_group(world.world, "default", "g")
    assert steps is not None
    found = written(steps)
    assert (found["roomIsKeptSeconds"], found["givenBackAfterSeconds"]) == (200, 60)


def test_nodes_that_pods_tolerate_are_counted_as_further_ones() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    offered = {"cpu": "2", "memory": "1Gi", "pods": "9", "example.com/gpu": "1"}
    gpu = make_node("gpu", allocatable=offered, taints=[taint])
    nodes = [make_node(f"large{n}", cpu=str(90 + n)) for n in range(4)]
    toleration = {"key": "gpu", "operator": "Exists"}
    pods = [
        make_member(f"p{n}", "g", requests={"example.com/gpu": "1"}, tolerations=[toleration])
        for n in range(2)
    ]
    found = explained(gpu, *nodes, make_group("g", 2), *pods)
    assert [(each["nodes"], each["like"]) for each in found["wouldFit"]] == [(1, "gpu")]


def test_misspelt_labels_and_groups_are_named() -> None:
    node = make_node("n", cpu="2", labels={"topology.kubernetes.io/zone": "a"})
    constraints = constrained_to("topology.kubernetes.io/zoen")
    group = make_group("g", 2, schedulingConstraints=constraints)
    (remark,) = explained(node, group, *members(2))["remarks"]
    assert remark.startswith('no node has the label "topology.kubernetes.io/zoen"')
    assert remark.endswith('did you mean "topology.kubernetes.io/zone"?')
    orphan = make_member("p", "trainign", cpu="1")
    assert explained(make_group("training", 1), orphan, name="trainign")["remarks"] == [
        'there is no pod group "trainign"; did you mean "training"?'
    ]


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


def gang_of_devices(count: int, devices: int, held: int = 0) -> list[JsonObject]:
    """A gang whose members want a device each, and a node with some, which others hold in part."""
    first = device_case(claim("c0", request()), devices=[device(f"d{n}") for n in range(devices)])
    objects = [
        {"kind": "DeviceClass", **first["deviceclasses"][0]},
        {"kind": "ResourceSlice", **first["resourceslices"][0]},
        make_node("a", cpu="32"),
        make_group("g", count),
    ]
    for number in range(held):
        taken = taken_claim(f"h{number}", f"d{number}", by=f"other{number}")
        objects.append({"kind": "ResourceClaim", **taken})
    for number in range(count):
        objects.append({"kind": "ResourceClaim", **claim(f"c{number}", request())})
        wanted = [{"name": "c", "resourceClaimName": f"c{number}"}]
        objects.append(make_member(f"p{number}", "g", cpu="1", resourceClaims=wanted))
    return objects


def test_how_many_more_nodes_would_do_for_devices_and_what_is_missing() -> None:
    found = explained(*gang_of_devices(4, devices=2, held=1))
    assert found["wouldHappen"]["lacking"] == "1 device of class gpu"
    assert [(each["nodes"], each["like"]) for each in found["wouldFit"]] == [(2, "a")]
    would = found["wouldHappen"]
    assert would["missing"].startswith("3 of 4 members get no node; default/p1: 0/1 nodes")
    assert "cannot allocate all claims" in would["missing"]
    assert "no plugin rejected pod" not in str(would["reasons"])
    assert set(would["reasons"]) == {"default/p1", "default/p2", "default/p3"}


async def test_what_would_wake_a_member_is_what_would_wake_any_of_them() -> None:
    async with running() as world:
        profile = make_profile("stellwerk", gangScheduling=True)
        world.apply(profile, *gang_of_devices(3, devices=2, held=1))
        await eventually(lambda: all(world.condition(f"p{n}") for n in range(3)))
        for number in range(3):
            steps = world.operator.explanations.pod("default", f"p{number}")
            assert steps is not None
            found = finished(steps)
            assert found.queue is not None
            words = {each.words for each in found.queue.woken_by or ()}
            assert {"a ResourceClaim changes", "a node is added"} <= words, number
            assert found.would_wait is not None
            assert "no plugin rejected pod" not in found.would_wait
            assert "cannot allocate all claims" in found.would_wait
