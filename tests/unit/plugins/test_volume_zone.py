"""VolumeZone holds volumes' zone and region labels, of both generations, against nodes."""

from typing import Any

import pytest

from stellwerk.framework.events import Action, ClusterChange, Resource, queue_if
from stellwerk.framework.types import SKIP, Code, Status
from stellwerk.plugins.volume_zone import VolumeZone
from tests.support.builders import make_node, pod_info
from tests.support.storage import (
    StorageWorld,
    claim_volume,
    make_claim,
    make_class,
    make_volume,
)

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
ELSEWHERE = ("node(s) had no available volume zone",)


def world_with(volume_labels: dict[str, str]) -> StorageWorld:
    world = StorageWorld(
        [
            make_node("a", labels={ZONE: "z1", REGION: "r"}),
            make_node("b", labels={ZONE: "z2", REGION: "r"}),
            make_node("beta", labels={BETA_ZONE: "z1"}),
            make_node("bare"),
        ]
    )
    world.add("PersistentVolumeClaim", make_claim("data", volume="v"))
    world.add("PersistentVolume", make_volume("v", claim="data", labels=volume_labels))
    return world


POD = pod_info("web", volumes=claim_volume("data"))


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        pytest.param({ZONE: "z1"}, {"b", "beta"}, id="a zone, which beta nodes do not have"),
        pytest.param({BETA_ZONE: "z1"}, {"b"}, id="a beta zone, which the newer label fulfils"),
        pytest.param({ZONE: "z1__z2"}, {"beta"}, id="a volume in two zones"),
        pytest.param({ZONE: "z1__ z2 "}, {"beta"}, id="zones with spaces around"),
        pytest.param({REGION: "r"}, {"beta"}, id="a region"),
        pytest.param({ZONE: "z1", REGION: "s"}, {"a", "b", "beta"}, id="labels are ANDed"),
    ],
)
def test_zones_are_compared(labels: dict[str, str], rejected: set[str]) -> None:
    world = world_with(labels)
    verdicts = world.verdicts(VolumeZone(world.handle), POD)
    assert verdicts == dict.fromkeys(rejected, ELSEWHERE)


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="no labels"),
        pytest.param({"zone": "z1"}, id="other labels"),
        pytest.param({ZONE: "z1__"}, id="a label that cannot be read"),
    ],
)
def test_a_volume_without_zones_is_skipped(labels: dict[str, str]) -> None:
    world = world_with(labels)
    assert world.verdicts(VolumeZone(world.handle), POD) == SKIP


def test_a_pod_without_volumes_is_skipped() -> None:
    world = world_with({ZONE: "z1"})
    assert world.verdicts(VolumeZone(world.handle), pod_info("web")) == SKIP


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        pytest.param(None, 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param(
            make_claim("data", volume="gone"), 'persistentvolume "gone" not found', id="no volume"
        ),
        pytest.param(
            make_claim("data", storage_class=None),
            "PersistentVolumeClaim had no pv name and storageClass name",
            id="unbound without a class",
        ),
        pytest.param(
            make_claim("data", storage_class="nope"),
            'storageclass.storage.k8s.io "nope" not found',
            id="unbound, class missing",
        ),
        pytest.param(
            make_claim("data", storage_class="silent"),
            'VolumeBindingMode not set for StorageClass "silent"',
            id="unbound, class without a mode",
        ),
        pytest.param(
            make_claim("data", storage_class="now"),
            "PersistentVolume had no name",
            id="unbound although its class binds at once",
        ),
        pytest.param(make_claim("data"), "", id="unbound and waiting for the pod"),
    ],
)
def test_a_claim_that_cannot_be_judged_rejects_the_pod(claim: Any, reason: str) -> None:
    world = StorageWorld([make_node("a", zone="z1")])
    if claim is not None:
        world.add("PersistentVolumeClaim", claim)
    world.add(
        "StorageClass",
        make_class(),
        make_class("now", mode="Immediate"),
        make_class("silent", mode=None),
    )
    status = world.verdicts(VolumeZone(world.handle), POD)
    if not reason:
        assert status == SKIP
    else:
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert status == Status(code, (reason,), "VolumeZone")


@pytest.mark.parametrize(
    ("resource", "old", "new", "requeues"),
    [
        pytest.param(Resource.STORAGE_CLASS, None, make_class(), True, id="a class that waits"),
        pytest.param(
            Resource.STORAGE_CLASS,
            None,
            make_class(mode="Immediate"),
            False,
            id="one that does not",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("data"), True, id="the pod's claim"
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("other"), False, id="another claim"
        ),
        pytest.param(Resource.PERSISTENT_VOLUME, None, make_volume("v"), True, id="a new volume"),
        pytest.param(
            Resource.PERSISTENT_VOLUME,
            make_volume("v"),
            make_volume("v", labels={ZONE: "z"}),
            True,
            id="a volume that got a zone",
        ),
        pytest.param(
            Resource.PERSISTENT_VOLUME,
            make_volume("v", labels={ZONE: "z"}),
            make_volume("v", labels={ZONE: "z", "tier": "1"}),
            False,
            id="a volume whose zone stayed",
        ),
    ],
)
def test_hints(resource: Resource, old: Any, new: Any, *, requeues: bool) -> None:
    hints = VolumeZone(StorageWorld().handle).events_to_register()
    [hint] = [h.queueing_hint_fn for h in hints if h.resource is resource]
    assert hint is not None
    assert hint(POD, ClusterChange(resource, Action.ADD, old=old, new=new)) is queue_if(requeues)
