"""NodeVolumeLimits counts each attachment once, wherever it comes from."""

from typing import Any

import pytest

from stellwerk.framework.events import Action, ClusterChange, Resource, queue_if
from stellwerk.framework.types import SKIP, Code, CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.node_volume_limits import NodeVolumeLimits
from stellwerk_kube.compatibility import Compatibility, Release
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.storage import (
    StorageWorld,
    claim_volume,
    make_attachment,
    make_claim,
    make_class,
    make_csi_node,
    make_volume,
)

EXCEEDED = ("node(s) exceed max volume count",)
DRIVER = "csi.example.com"
EBS = "ebs.csi.aws.com"
FULL = {"a": EXCEEDED}


def world_with(*pods: Any, limit: int | None = 1, driver: str = DRIVER) -> StorageWorld:
    """Node a with a limit, node b without a CSINode; claims c0–c3 on volumes v0–v3."""
    world = StorageWorld([make_node("a"), make_node("b")], pods)
    world.add("CSINode", make_csi_node("a", {driver: limit}))
    world.add("StorageClass", make_class())
    for i in range(4):
        world.add("PersistentVolumeClaim", make_claim(f"c{i}", volume=f"v{i}"))
        world.add("PersistentVolume", make_volume(f"v{i}", claim=f"c{i}"))
    return world


def user(*claims: str, node: str = "a", name: str = "user") -> Any:
    return make_pod(name, node_name=node, volumes=claim_volume(*claims))


def verdicts(world: StorageWorld, *claims: str) -> Any:
    pod = pod_info("web", volumes=claim_volume(*claims))
    return world.verdicts(NodeVolumeLimits(world.handle), pod)


@pytest.mark.parametrize(
    ("pods", "claims", "limit", "expected"),
    [
        pytest.param([], ["c0"], 1, {}, id="room for one"),
        pytest.param([], ["c0", "c1"], 1, FULL, id="two at once where one fits"),
        pytest.param([user("c0")], ["c1"], 1, FULL, id="one is in use"),
        pytest.param([user("c0")], ["c1"], 2, {}, id="one is in use of two"),
        pytest.param([user("c0")], ["c0"], 1, {}, id="the same volume costs nothing"),
        pytest.param([user("c0"), user("c0", name="too")], ["c1"], 2, {}, id="shared counts once"),
        pytest.param([user("c0", node="b")], ["c1"], 1, {}, id="in use on another node"),
        pytest.param(
            [user("c0"), user("c1", name="too")], ["c0"], 1, {}, id="over the limit before"
        ),
        pytest.param([user("c0")], ["c1"], None, {}, id="a driver without a count"),
        pytest.param([user("c0")], ["c1"], 0, FULL, id="a node that attaches nothing"),
        pytest.param([user("gone")], ["c1"], 1, {}, id="a user whose claim is gone"),
    ],
)
def test_volumes_of_pods_are_counted(
    pods: Any, claims: list[str], limit: int | None, expected: Any
) -> None:
    assert verdicts(world_with(*pods, limit=limit), *claims) == expected


def test_two_volumes_with_one_handle_are_one_attachment() -> None:
    world = world_with(user("c0"))
    handle = {"csi": {"driver": DRIVER, "volumeHandle": "v0"}}
    world.add("PersistentVolume", make_volume("v1", claim="c1", source=handle))
    assert verdicts(world, "c1") == {}


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param("v2", FULL, id="of a volume that no pod uses"),
        pytest.param("v0", {}, id="of a volume that a pod uses counts once"),
        pytest.param("gone", {}, id="of a volume that does not exist"),
    ],
)
def test_attachments_count(volume: str, expected: Any) -> None:
    world = world_with(user("c0"), limit=2)
    world.add("VolumeAttachment", make_attachment("x", "a", volume))
    assert verdicts(world, "c1") == expected


def test_an_unbound_claim_counts_for_the_driver_of_its_class() -> None:
    world = world_with(user("c0"))
    world.add("PersistentVolumeClaim", make_claim("new"))
    assert verdicts(world, "new") == FULL


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({"awsElasticBlockStore": {"volumeID": "vol-2"}}, FULL, id="another disk"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, id="the same disk"),
        pytest.param({"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}, {}, id="by its URL"),
        pytest.param({"azureFile": {"shareName": "s"}}, {}, id="a kind that is never counted"),
    ],
)
def test_disks_named_in_pods_count_for_their_csi_driver(volume: Any, expected: Any) -> None:
    theirs = [{"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}]
    world = world_with(make_pod("user", node_name="a", volumes=theirs), driver=EBS)
    pod = pod_info("web", volumes=[{"name": "d", **volume}])
    assert world.verdicts(NodeVolumeLimits(world.handle), pod) == expected


def test_an_in_tree_volume_counts_for_its_csi_driver() -> None:
    world = world_with(user("c0"), driver=EBS)
    for i in range(2):
        source = {"awsElasticBlockStore": {"volumeID": f"aws://zone/vol-{i}"}}
        world.add("PersistentVolume", make_volume(f"v{i}", claim=f"c{i}", source=source))
    assert verdicts(world, "c1") == FULL


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="none"),
        pytest.param([{"name": "x", "csi": {"driver": DRIVER}}], id="inline CSI"),
        pytest.param([{"name": "x", "rbd": {"monitors": ["m"], "image": "i"}}], id="RBD"),
    ],
)
def test_volumes_that_are_not_attached_are_skipped(volumes: Any) -> None:
    world = world_with()
    assert world.verdicts(NodeVolumeLimits(world.handle), pod_info("p", volumes=volumes)) == SKIP


def test_a_missing_claim_rejects_every_node() -> None:
    reason = 'looking up PVC default/nope: persistentvolumeclaim "nope" not found'
    assert verdicts(world_with(), "nope") == {"a": (reason,), "b": (reason,)}


def test_an_ephemeral_claim_of_another_pod_is_an_error() -> None:
    world, state = world_with(), CycleState()
    world.add("PersistentVolumeClaim", make_claim("web-scratch"))
    pod = pod_info("web", volumes=[{"name": "scratch", "ephemeral": {}}])
    plugin = NodeVolumeLimits(world.handle)
    world.verdicts(plugin, pod, state)
    result = plugin.filter(state, pod, world.view())
    assert result.status(int(result.codes[0])).code is Code.ERROR


def test_a_volume_whose_ephemeral_claim_is_another_pods_is_counted_all_the_same() -> None:
    holder = make_pod("user", node_name="a", volumes=[{"name": "scratch", "ephemeral": {}}])
    world = world_with(holder)
    world.add("PersistentVolumeClaim", make_claim("user-scratch", volume="v0"))
    assert verdicts(world, "c1") == FULL


def test_counts_follow_the_cluster() -> None:
    world = world_with(user("c0"))
    plugin, pod = NodeVolumeLimits(world.handle), pod_info("web", volumes=claim_volume("c1"))
    assert world.verdicts(plugin, pod) == FULL
    world.objects.set("CSINode", make_csi_node("a", {DRIVER: 2}))
    assert world.verdicts(plugin, pod) == {}
    world.objects.set("VolumeAttachment", make_attachment("x", "a", "v2"))
    assert world.verdicts(plugin, pod) == FULL
    world.objects.remove("VolumeAttachment", make_attachment("x", "a", "v2"))
    assert world.verdicts(plugin, pod) == {}
    world.cache.set_pod(parse_pod(user("c3", name="too")))
    assert world.verdicts(plugin, pod) == FULL


def test_a_victim_frees_its_volumes_on_its_row() -> None:
    world, state = world_with(user("c0")), CycleState()
    plugin, pod = NodeVolumeLimits(world.handle), pod_info("web", volumes=claim_volume("c1"))
    world.verdicts(plugin, pod, state)
    view = world.view().with_overlay()
    assert view.overlay is not None
    [victim] = world.cache.pods()
    view.overlay.remove_pod(world.cache.snapshot.row_of["a"], victim)
    assert world.filter(plugin, state, pod, view) == {}
    assert world.filter(plugin, state, pod, world.view()) == FULL


def test_a_nominated_pod_takes_room_on_its_row() -> None:
    world, state = world_with(), CycleState()
    plugin, pod = NodeVolumeLimits(world.handle), pod_info("web", volumes=claim_volume("c1"))
    world.verdicts(plugin, pod, state)
    view = world.view().with_overlay()
    assert view.overlay is not None
    nominated = pod_info("nominated", volumes=claim_volume("c0"))
    view.overlay.add_pod(world.cache.snapshot.row_of["a"], nominated)
    assert world.filter(plugin, state, pod, view) == FULL


def ebs_volume(volume_id: str) -> Any:
    return [{"name": "d", "awsElasticBlockStore": {"volumeID": volume_id}}]


WITH_CLAIM = pod_info("web", volumes=claim_volume("c0"))
WITH_DISK = pod_info("web", volumes=ebs_volume("vol-1"))


@pytest.mark.parametrize(
    ("pod", "change", "requeues"),
    [
        pytest.param(
            WITH_CLAIM,
            ClusterChange(
                Resource.CSI_NODE,
                Action.UPDATE_OTHER,
                make_csi_node("a", {DRIVER: 1}),
                make_csi_node("a", {DRIVER: 2}),
            ),
            True,
            id="a limit grew",
        ),
        pytest.param(
            WITH_CLAIM,
            ClusterChange(
                Resource.CSI_NODE,
                Action.UPDATE_OTHER,
                make_csi_node("a", {DRIVER: 2}),
                make_csi_node("a", {DRIVER: 1}),
            ),
            False,
            id="a limit shrank",
        ),
        pytest.param(
            WITH_CLAIM,
            ClusterChange(
                Resource.POD, Action.DELETE, pod_info("u", node_name="a", volumes=claim_volume("x"))
            ),
            True,
            id="a pod with volumes went",
        ),
        pytest.param(
            WITH_CLAIM,
            ClusterChange(Resource.POD, Action.DELETE, pod_info("u", volumes=claim_volume("x"))),
            False,
            id="a pod without a node went",
        ),
        pytest.param(
            WITH_CLAIM,
            ClusterChange(Resource.POD, Action.DELETE, pod_info("u", node_name="a")),
            False,
            id="a pod without volumes went",
        ),
        pytest.param(
            WITH_CLAIM,
            ClusterChange(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, make_claim("c0")),
            True,
            id="the pod's claim came",
        ),
        pytest.param(
            WITH_CLAIM,
            ClusterChange(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, make_claim("c1")),
            False,
            id="another claim came",
        ),
        pytest.param(
            WITH_DISK,
            ClusterChange(
                Resource.VOLUME_ATTACHMENT,
                Action.DELETE,
                make_attachment("x", "a", "v", driver=EBS),
            ),
            True,
            id="the disk's driver detached something",
        ),
        pytest.param(
            WITH_DISK,
            ClusterChange(
                Resource.VOLUME_ATTACHMENT, Action.DELETE, make_attachment("x", "a", "v")
            ),
            False,
            id="another driver detached something",
        ),
    ],
)
def test_hints(pod: Any, change: ClusterChange, *, requeues: bool) -> None:
    hints = NodeVolumeLimits(StorageWorld().handle).events_to_register()
    [hint] = [
        h.queueing_hint_fn
        for h in hints
        if h.resource is change.resource and h.action & change.action and h.queueing_hint_fn
    ]
    assert hint(pod, change) is queue_if(requeues)


def driver_object(*, prevents: bool | None) -> JsonObject:
    spec = {} if prevents is None else {"preventPodSchedulingIfMissing": prevents}
    return {"metadata": {"name": DRIVER}, "spec": spec}


OF_DRIVER = (Resource.CSI_DRIVER, Action.UPDATE_OTHER)


@pytest.mark.parametrize(
    ("change", "requeues"),
    [
        pytest.param(
            ClusterChange(
                Resource.CSI_NODE,
                Action.UPDATE_OTHER,
                {"metadata": {"name": "a"}, "spec": {"drivers": []}},
                {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": DRIVER}]}},
            ),
            True,
            id="a driver without a limit came to a node",
        ),
        pytest.param(
            ClusterChange(*OF_DRIVER, driver_object(prevents=True), driver_object(prevents=False)),
            True,
            id="the driver need no longer be on the node",
        ),
        pytest.param(
            ClusterChange(*OF_DRIVER, driver_object(prevents=True), driver_object(prevents=None)),
            True,
            id="the driver says no longer that it must",
        ),
        pytest.param(
            ClusterChange(Resource.CSI_DRIVER, Action.DELETE, driver_object(prevents=True)),
            True,
            id="the driver's object is gone",
        ),
        pytest.param(
            ClusterChange(*OF_DRIVER, driver_object(prevents=None), driver_object(prevents=True)),
            False,
            id="the driver must be on the node from now on",
        ),
    ],
)
def test_what_ends_the_lack_of_a_driver_wakes_at_once(
    change: ClusterChange, *, requeues: bool
) -> None:
    world = StorageWorld(compatibility=Compatibility.with_release(Release.V1_37))
    [hint] = [
        each.queueing_hint_fn
        for each in NodeVolumeLimits(world.handle).events_to_register()
        if each.resource is change.resource and each.action & change.action
        if each.queueing_hint_fn
    ]
    assert hint(WITH_CLAIM, change) is queue_if(requeues)


def test_drivers_are_no_event_before_1_37() -> None:
    registered = NodeVolumeLimits(StorageWorld().handle).events_to_register()
    assert Resource.CSI_DRIVER not in {each.resource for each in registered}
