"""VolumeRestrictions keeps disks and single-user claims from a second user."""

from typing import Any

import pytest

from stellwerk.framework.events import Action, ClusterChange, Resource, queue_if
from stellwerk.framework.types import SKIP, Code, CycleState
from stellwerk.plugins.volume_restrictions import VolumeRestrictions
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.storage import StorageWorld, claim_volume, make_claim

NO_DISK = ("node(s) had no available disk",)
IN_USE = (
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
)


def disk(kind: str, **source: Any) -> list[dict[str, Any]]:
    return [{"name": "disk", kind: source}]


def gce(*, read_only: bool) -> list[dict[str, Any]]:
    return disk("gcePersistentDisk", pdName="d", readOnly=read_only)


def ebs(*, read_only: bool) -> list[dict[str, Any]]:
    return disk("awsElasticBlockStore", volumeID="vol-1", readOnly=read_only)


def rbd(*monitors: str, image: str = "i", read_only: bool = False) -> list[dict[str, Any]]:
    return disk("rbd", monitors=list(monitors), pool="p", image=image, readOnly=read_only)


def iscsi(iqn: str, *, read_only: bool = False) -> list[dict[str, Any]]:
    return disk("iscsi", iqn=iqn, lun=0, targetPortal="t", readOnly=read_only)


@pytest.mark.parametrize(
    ("mine", "theirs", "conflict"),
    [
        pytest.param(gce(read_only=False), gce(read_only=False), True, id="two writers of a PD"),
        pytest.param(gce(read_only=True), gce(read_only=False), True, id="reading what is written"),
        pytest.param(gce(read_only=False), gce(read_only=True), True, id="writing what is read"),
        pytest.param(gce(read_only=True), gce(read_only=True), False, id="two readers of a PD"),
        pytest.param(ebs(read_only=True), ebs(read_only=True), True, id="EBS has one user, always"),
        pytest.param(ebs(read_only=True), gce(read_only=False), False, id="disks of two kinds"),
        pytest.param(rbd("a", "b"), rbd("b", "c"), True, id="RBD with one common monitor"),
        pytest.param(rbd("a"), rbd("b"), False, id="RBD with other monitors"),
        pytest.param(rbd("a"), rbd("a", image="j"), False, id="another RBD image"),
        pytest.param(iscsi("q"), iscsi("q", read_only=True), True, id="iSCSI by qualified name"),
        pytest.param(iscsi("q"), iscsi("r"), False, id="two iSCSI targets"),
    ],
)
def test_disks_conflict_on_their_node(mine: Any, theirs: Any, *, conflict: bool) -> None:
    user = make_pod("user", node_name="a", volumes=theirs)
    world = StorageWorld([make_node("a"), make_node("b")], [user])
    plugin = VolumeRestrictions(world.handle)
    verdicts = world.verdicts(plugin, pod_info("web", volumes=mine))
    assert verdicts == ({"a": NO_DISK} if conflict else {})


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="without volumes"),
        pytest.param(claim_volume("data"), id="with a claim that pods may share"),
        pytest.param(claim_volume("single"), id="with an unused single-user claim"),
        pytest.param(disk("csi", driver="d"), id="with an inline CSI volume"),
    ],
)
def test_a_pod_with_nothing_to_share_is_skipped(volumes: Any) -> None:
    world = StorageWorld([make_node("a")])
    world.add(
        "PersistentVolumeClaim",
        make_claim("data"),
        make_claim("single", modes=["ReadWriteOncePod"]),
    )
    assert (
        world.verdicts(VolumeRestrictions(world.handle), pod_info("web", volumes=volumes)) == SKIP
    )


def test_a_missing_claim_rejects_the_pod() -> None:
    world = StorageWorld([make_node("a")])
    pod = pod_info("web", volumes=claim_volume("nope"))
    status = world.verdicts(VolumeRestrictions(world.handle), pod)
    assert not isinstance(status, dict)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ('persistentvolumeclaim "nope" not found',)


def single_user_world() -> StorageWorld:
    user = make_pod("user", node_name="a", volumes=claim_volume("single"))
    world = StorageWorld([make_node("a"), make_node("b")], [user])
    world.add("PersistentVolumeClaim", make_claim("single", modes=["ReadWriteOncePod"]))
    return world


def test_a_single_user_claim_in_use_rejects_every_node_as_preemptable() -> None:
    world, state = single_user_world(), CycleState()
    plugin, pod = VolumeRestrictions(world.handle), pod_info("web", volumes=claim_volume("single"))
    assert world.verdicts(plugin, pod, state) == {"a": IN_USE, "b": IN_USE}
    result = plugin.filter(state, pod, world.view())
    assert result.status(int(result.codes[0])).code is Code.UNSCHEDULABLE


def test_the_claim_of_the_same_name_in_another_namespace_is_another() -> None:
    world = single_user_world()
    foreign = make_claim("single", modes=["ReadWriteOncePod"])
    foreign["metadata"]["namespace"] = "other"
    world.add("PersistentVolumeClaim", foreign)
    pod = pod_info("web", namespace="other", volumes=claim_volume("single"))
    assert world.verdicts(VolumeRestrictions(world.handle), pod) == SKIP


def test_taking_the_user_off_its_node_frees_the_claim_for_that_row_only() -> None:
    world, state = single_user_world(), CycleState()
    plugin, pod = VolumeRestrictions(world.handle), pod_info("web", volumes=claim_volume("single"))
    world.verdicts(plugin, pod, state)
    view = world.view().with_overlay()
    victim = next(iter(world.cache.pods()))
    assert view.overlay is not None
    view.overlay.remove_pod(world.cache.snapshot.row_of["a"], victim)
    assert world.filter(plugin, state, pod, view) == {"b": IN_USE}


def test_a_nominated_user_of_the_disk_counts_on_its_row() -> None:
    world, state = StorageWorld([make_node("a"), make_node("b")]), CycleState()
    plugin, pod = VolumeRestrictions(world.handle), pod_info("web", volumes=gce(read_only=False))
    world.verdicts(plugin, pod, state)
    view = world.view().with_overlay()
    assert view.overlay is not None
    nominated = pod_info("nominated", volumes=gce(read_only=False))
    view.overlay.add_pod(world.cache.snapshot.row_of["b"], nominated)
    assert world.filter(plugin, state, pod, view) == {"b": NO_DISK}


@pytest.mark.parametrize(
    ("gone", "requeues"),
    [
        pytest.param({"volumes": claim_volume("data")}, True, id="a user of the same claim"),
        pytest.param({"volumes": claim_volume("other")}, False, id="a user of another claim"),
        pytest.param({"volumes": gce(read_only=False)}, True, id="a writer of the same disk"),
        pytest.param({"volumes": gce(read_only=True)}, False, id="a reader beside a reader"),
        pytest.param({"volumes": claim_volume("data"), "namespace": "b"}, False, id="elsewhere"),
    ],
)
def test_a_deleted_pod_requeues_what_it_blocked(gone: dict[str, Any], *, requeues: bool) -> None:
    rejected = pod_info("web", volumes=[*claim_volume("data"), *gce(read_only=True)])
    change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, old=pod_info("gone", **gone))
    hints = VolumeRestrictions(StorageWorld().handle).events_to_register()
    [hint] = [h.queueing_hint_fn for h in hints if h.resource is Resource.POD]
    assert hint is not None
    assert hint(rejected, change) is queue_if(requeues)
