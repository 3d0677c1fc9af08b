"""VolumeBinding: which nodes fit a pod's claims, and how claims are bound with the pod."""

from typing import Any

import pytest

from stellwerk.framework.events import Action, ClusterChange, Resource, queue_if
from stellwerk.framework.types import OK, SKIP, Code, CycleState, Status
from stellwerk.plugins.volume_binding.plugin import VolumeBinding
from stellwerk.plugins.volume_binding.writes import with_selected_node
from stellwerk.profiles.spec.plugin_args import VolumeBindingArgs
from stellwerk_kube.errors import Conflict
from tests.support.builders import make_node, pod_info
from tests.support.recordings import scenario
from tests.support.storage import (
    StorageWorld,
    claim_volume,
    make_claim,
    make_class,
    make_csi_node,
    make_volume,
)

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"
AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
EVERYWHERE = {"a", "b", "c"}

POD = pod_info("web", volumes=claim_volume("data"))


def small_world(*claims: Any, volumes: Any = (), classes: Any = ()) -> StorageWorld:
    """Nodes a and b in zone z1, c in z2; class wait provides for itself, static does not."""
    world = StorageWorld(
        [make_node("a", zone="z1"), make_node("b", zone="z1"), make_node("c", zone="z2")]
    )
    static = make_class("static", provisioner="kubernetes.io/no-provisioner")
    world.add("StorageClass", make_class(), static, make_class("now", mode="Immediate"), *classes)
    world.add("PersistentVolumeClaim", *claims)
    world.add("PersistentVolume", *volumes)
    return world


def static_claim(name: str = "data", **fields: Any) -> Any:
    return make_claim(name, storage_class="static", **fields)


def static_volume(name: str, **fields: Any) -> Any:
    return make_volume(name, storage_class="static", **fields)


def rejections(world: StorageWorld, pod: Any = POD) -> Any:
    return world.verdicts(VolumeBinding(world.handle), pod)


# --- PreFilter ----------------------------------------------------------------------------------


def test_a_pod_without_claims_is_skipped_and_reserves_nothing() -> None:
    world, state = small_world(), CycleState()
    plugin, pod = VolumeBinding(world.handle), pod_info("web", volumes=[{"name": "x", "csi": {}}])
    assert world.verdicts(plugin, pod, state) == SKIP
    assert plugin.reserve(state, pod, "a") == OK
    assert plugin.pre_bind_pre_flight(state, pod, "a") == SKIP
    plugin.unreserve(state, pod, "a")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "data" not found', id="missing"),
        pytest.param(
            [make_claim("data", volume="v", phase="Lost")],
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
        pytest.param(
            [make_claim("data", storage_class="now")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="unbound although it should be",
        ),
        pytest.param(
            [make_claim("data", volumeName="v")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="half bound by a user",
        ),
        pytest.param(
            [make_claim("data", storage_class="nope")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="of a class that does not exist",
        ),
    ],
)
def test_an_unusable_claim_rejects_the_pod(claims: Any, reason: str) -> None:
    status = rejections(small_world(*claims))
    assert status == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,), "VolumeBinding")


def test_a_claim_that_is_being_deleted_rejects_the_pod() -> None:
    claim = make_claim("data")
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = rejections(small_world(claim))
    assert status.reasons == ('persistentvolumeclaim "data" is being deleted',)


def test_a_class_without_a_binding_mode_is_an_error() -> None:
    world = small_world(make_claim("data", storage_class="x"), classes=[make_class("x", mode=None)])
    reason = 'VolumeBindingMode not set for StorageClass "x"'
    assert rejections(world) == Status(Code.ERROR, (reason,), "VolumeBinding")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        pytest.param(
            [],
            (
                "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                '"web-scratch"'
            ),
            id="not made yet",
        ),
        pytest.param(
            [make_claim("web-scratch")],
            "PVC default/web-scratch was not created for pod default/web (pod is not owner)",
            id="another pod's",
        ),
    ],
)
def test_an_ephemeral_claim_must_be_the_pods(claims: Any, reason: str) -> None:
    pod = pod_info("web", volumes=[{"name": "scratch", "ephemeral": {}}])
    assert rejections(small_world(*claims), pod).reasons == (reason,)


def test_an_ephemeral_claim_of_the_pod_is_used() -> None:
    pod = pod_info("web", volumes=[{"name": "scratch", "ephemeral": {}}])
    world = small_world(make_claim("web-scratch", owner_uid=pod.uid))
    assert rejections(world, pod) == {}


# --- Filter: bound claims -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volumes", "rejected"),
    [
        pytest.param([make_volume("v", claim="data")], {}, id="reachable from everywhere"),
        pytest.param(
            [make_volume("v", claim="data", nodes={ZONE: ["z1"]})],
            {"c": (AFFINITY,)},
            id="reachable in one zone",
        ),
        pytest.param([], dict.fromkeys(EVERYWHERE, (NO_VOLUME,)), id="the volume is gone"),
    ],
)
def test_a_bound_volume_decides_by_its_node_affinity(volumes: Any, rejected: Any) -> None:
    assert rejections(small_world(make_claim("data", volume="v"), volumes=volumes)) == rejected


def test_the_first_claim_that_fails_gives_the_reason() -> None:
    world = small_world(
        make_claim("data", volume="v"),
        make_claim("more", volume="gone"),
        volumes=[make_volume("v", claim="data", nodes={ZONE: ["z1"]})],
    )
    pod = pod_info("web", volumes=claim_volume("data", "more"))
    assert rejections(world, pod) == {"a": (NO_VOLUME,), "b": (NO_VOLUME,), "c": (AFFINITY,)}


def test_an_in_tree_volume_is_sought_by_the_drivers_zone_where_the_node_is_migrated() -> None:
    source = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    world = small_world(
        make_claim("data", volume="v"),
        volumes=[make_volume("v", claim="data", nodes={ZONE: ["z1"]}, source=source)],
    )
    world.add("CSINode", make_csi_node("b", migrated=["kubernetes.io/aws-ebs"]))
    assert rejections(world) == {"b": (AFFINITY,), "c": (AFFINITY,)}


# --- Filter: unbound claims ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "volume", "rejected"),
    [
        pytest.param(static_claim(), None, EVERYWHERE, id="nothing there"),
        pytest.param(static_claim(), static_volume("v"), set(), id="one for every claim"),
        pytest.param(
            static_claim(), static_volume("v", nodes={HOST: ["b"]}), {"a", "c"}, id="a local one"
        ),
        pytest.param(static_claim(storage="2Gi"), static_volume("v"), EVERYWHERE, id="too small"),
        pytest.param(static_claim(), make_volume("v"), EVERYWHERE, id="of another class"),
        pytest.param(static_claim(), static_volume("v", claim="x"), EVERYWHERE, id="taken"),
        pytest.param(static_claim(), static_volume("v", claim="data"), set(), id="bound to it"),
        pytest.param(
            static_claim(),
            static_volume("v", claim="data", nodes={ZONE: ["z2"]}),
            {"a", "b"},
            id="bound to it, reachable from one node",
        ),
        pytest.param(
            static_claim(modes=["ReadWriteMany"]), static_volume("v"), EVERYWHERE, id="other modes"
        ),
        pytest.param(
            static_claim(volumeMode="Block"),
            static_volume("v"),
            EVERYWHERE,
            id="not a block device",
        ),
        pytest.param(
            static_claim(volumeAttributesClassName="gold"),
            static_volume("v"),
            EVERYWHERE,
            id="another attributes class",
        ),
        pytest.param(
            static_claim(selector={"matchLabels": {"tier": "1"}}),
            static_volume("v", labels={"tier": "2"}),
            EVERYWHERE,
            id="not selected",
        ),
        pytest.param(
            static_claim(selector={"matchLabels": {"tier": "1"}}),
            static_volume("v", labels={"tier": "1"}),
            set(),
            id="selected",
        ),
    ],
)
def test_an_unbound_claim_needs_an_existing_volume(
    claim: Any, volume: Any, rejected: set[str]
) -> None:
    world = small_world(claim, volumes=[volume] if volume else [])
    assert rejections(world) == dict.fromkeys(rejected, (NO_MATCH,))


def test_one_volume_does_not_serve_two_claims() -> None:
    world = small_world(
        static_claim(),
        static_claim("more"),
        volumes=[static_volume("v"), static_volume("w", nodes={ZONE: ["z2"]})],
    )
    pod = pod_info("web", volumes=claim_volume("data", "more"))
    assert rejections(world, pod) == dict.fromkeys({"a", "b"}, (NO_MATCH,))


def test_bound_and_unbound_reasons_stand_beside_each_other() -> None:
    world = small_world(
        make_claim("data", volume="v"),
        static_claim("more"),
        volumes=[make_volume("v", claim="data", nodes={ZONE: ["z1"]})],
    )
    pod = pod_info("web", volumes=claim_volume("data", "more"))
    both = {"a": (NO_MATCH,), "b": (NO_MATCH,), "c": (AFFINITY, NO_MATCH)}
    assert rejections(world, pod) == both


@pytest.mark.parametrize(
    ("storage_class", "rejected"),
    [
        pytest.param(make_class("x"), set(), id="anywhere"),
        pytest.param(make_class("x", zones=["z2"]), {"a", "b"}, id="in allowed topologies"),
        pytest.param(make_class("x", provisioner=""), EVERYWHERE, id="without a provisioner"),
    ],
)
def test_a_volume_can_be_made(storage_class: Any, rejected: set[str]) -> None:
    world = small_world(make_claim("data", storage_class="x"), classes=[storage_class])
    assert rejections(world) == dict.fromkeys(rejected, (NO_MATCH,))


def test_a_claim_with_a_node_goes_nowhere_else() -> None:
    world = small_world(make_claim("data", annotations={SELECTED: "b"}))
    assert rejections(world) == {"a": (NO_MATCH,), "c": (NO_MATCH,)}


def capacity(name: str, *, topology: Any, **limits: str) -> Any:
    return {
        "metadata": {"name": name},
        "storageClassName": "wait",
        "nodeTopology": topology,
    } | limits


@pytest.mark.parametrize(
    ("capacities", "rejected"),
    [
        pytest.param([], EVERYWHERE, id="none published"),
        pytest.param([capacity("x", topology={}, capacity="1Gi")], set(), id="enough everywhere"),
        pytest.param([capacity("x", topology={}, capacity="1Mi")], EVERYWHERE, id="not enough"),
        pytest.param([capacity("x", topology=None, capacity="1Gi")], EVERYWHERE, id="unreachable"),
        pytest.param(
            [capacity("x", topology={"matchLabels": {ZONE: "z2"}}, capacity="1Gi")],
            {"a", "b"},
            id="enough in one zone",
        ),
        pytest.param(
            [capacity("x", topology={}, capacity="9Gi", maximumVolumeSize="1Mi")],
            EVERYWHERE,
            id="the largest volume counts before the sum",
        ),
    ],
)
def test_a_driver_that_tells_its_capacity_needs_room(capacities: Any, rejected: set[str]) -> None:
    world = small_world(make_claim("data"))
    driver = {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}
    world.add("CSIDriver", driver)
    world.add("CSIStorageCapacity", *capacities)
    assert rejections(world) == dict.fromkeys(rejected, (NO_SPACE,))


# --- Reserve and PreBind ------------------------------------------------------------------------


class Attempt:
    """A pod that has passed Filter and is to go to node b."""

    def __init__(self, world: StorageWorld, pod: Any = POD, timeout_seconds: int = 600) -> None:
        self.world, self.pod, self.state = world, pod, CycleState()
        args = VolumeBindingArgs.model_validate({"bindTimeoutSeconds": timeout_seconds})
        self.plugin = VolumeBinding(world.handle, args)
        verdicts = world.verdicts(self.plugin, pod, self.state)
        assert isinstance(verdicts, dict)
        assert "b" not in verdicts

    def reserve(self) -> Status:
        return self.plugin.reserve(self.state, self.pod, "b")

    def unreserve(self) -> None:
        self.plugin.unreserve(self.state, self.pod, "b")

    async def pre_bind(self) -> Status:
        assert self.plugin.pre_bind_pre_flight(self.state, self.pod, "b") == OK
        return await self.plugin.pre_bind(self.state, self.pod, "b")


def static_world() -> StorageWorld:
    return small_world(
        static_claim(),
        static_claim("rival"),
        volumes=[static_volume("large", storage="9Gi"), static_volume("small", storage="2Gi")],
    )


def bind_by_controller(world: StorageWorld, claim: str, volume: str) -> None:
    def bind(obj: Any) -> None:
        obj["spec"]["volumeName"] = volume
        obj["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"

    world.change("PersistentVolumeClaim", claim, bind)


def test_reserve_shows_the_next_cycle_what_is_taken() -> None:
    world = static_world()
    assert Attempt(world).reserve() == OK
    rival = Attempt(world, pod_info("rival", volumes=claim_volume("rival")))
    assert rival.reserve() == OK
    large, small = (world.objects.get("PersistentVolume", "", n) for n in ("large", "small"))
    assert small is not None
    assert small["spec"]["claimRef"]["name"] == "data"
    assert large is not None
    assert large["spec"]["claimRef"]["name"] == "rival"


def test_unreserve_gives_everything_back() -> None:
    world = static_world()
    attempt = Attempt(world)
    attempt.reserve()
    attempt.unreserve()
    attempt.unreserve()
    small = world.objects.get("PersistentVolume", "", "small")
    assert small is not None
    assert "claimRef" not in small["spec"]


async def test_pre_bind_names_the_claim_in_the_volume_and_waits_for_the_controller() -> None:
    world = static_world()
    attempt = Attempt(world)
    attempt.reserve()
    world.steps = [lambda: None, lambda: bind_by_controller(world, "data", "small")]
    assert await attempt.pre_bind() == OK
    assert world.client.requests == [("PUT", "/api/v1/persistentvolumes/small")]
    written = world.client.objects["/api/v1/persistentvolumes/small"]
    reference = written["spec"]["claimRef"]
    assert reference["uid"] == "uid-data"
    assert (reference["namespace"], reference["name"]) == ("default", "data")
    assert written["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}


async def test_pre_bind_names_the_node_in_the_claim_and_waits_for_the_provisioner() -> None:
    world = small_world(make_claim("data"))
    attempt = Attempt(world)
    attempt.reserve()

    def provide() -> None:
        world.add("PersistentVolume", make_volume("made", claim="data", nodes={HOST: ["b"]}))
        bind_by_controller(world, "data", "made")

    world.steps = [provide]
    assert await attempt.pre_bind() == OK
    path = "/api/v1/namespaces/default/persistentvolumeclaims/data"
    assert world.client.requests == [("PUT", path)]
    assert world.client.objects[path]["metadata"]["annotations"][SELECTED] == "b"


async def test_a_volume_that_does_not_come_in_time_is_an_error() -> None:
    world = small_world(make_claim("data"))
    attempt = Attempt(world, timeout_seconds=0)
    attempt.reserve()
    reason = "binding volumes: context deadline exceeded"
    assert await attempt.pre_bind() == Status(Code.ERROR, (reason,), "VolumeBinding")


async def test_a_provisioner_that_gives_up_ends_the_wait() -> None:
    world = small_world(make_claim("data"))
    attempt = Attempt(world)
    attempt.reserve()

    def give_up(claim: Any) -> None:
        claim["metadata"]["annotations"] = {"other": "x"}

    world.steps = [lambda: world.change("PersistentVolumeClaim", "data", give_up)]
    status = await attempt.pre_bind()
    assert status.reasons == ('binding volumes: provisioning failed for PVC "data"',)


async def test_a_volume_made_in_the_wrong_place_ends_the_wait() -> None:
    world = small_world(make_claim("data"))
    attempt = Attempt(world)
    attempt.reserve()

    def provide() -> None:
        world.add("PersistentVolume", make_volume("made", claim="data", nodes={HOST: ["a"]}))
        bind_by_controller(world, "data", "made")

    world.steps = [provide]
    reason = (
        'binding volumes: pv "made" node affinity doesn\'t match node "b": '
        "no matching NodeSelectorTerms"
    )
    assert (await attempt.pre_bind()).reasons == (reason,)


async def test_a_claim_that_is_deleted_meanwhile_ends_the_wait() -> None:
    world = static_world()
    attempt = Attempt(world)
    attempt.reserve()
    gone = {"metadata": {"name": "data", "namespace": "default"}}
    world.steps = [lambda: world.objects.remove("PersistentVolumeClaim", gone)]
    reason = 'binding volumes: failed to check binding: persistentvolumeclaim "data" not found'
    assert (await attempt.pre_bind()).reasons == (reason,)


async def test_what_the_watch_has_not_shown_yet_is_waited_for() -> None:
    world = static_world()
    attempt = Attempt(world)
    attempt.reserve()
    world.muted = True
    assert (await attempt.pre_bind()).message == "binding volumes: context deadline exceeded"


async def test_a_refused_write_undoes_the_rest() -> None:
    world = small_world(
        static_claim(),
        static_claim("more", storage="2Gi"),
        volumes=[static_volume("small"), static_volume("large", storage="2Gi")],
    )
    attempt = Attempt(world, pod_info("web", volumes=claim_volume("data", "more")))
    attempt.reserve()
    path = "/api/v1/persistentvolumes/large"
    world.client.failures[path] = Conflict("replace large", 409, "Conflict", "modified")
    status = await attempt.pre_bind()
    assert (status.code, status.message) == (Code.ERROR, "cannot replace large: 409 modified")
    attempt.unreserve()
    small, large = (world.objects.get("PersistentVolume", "", n) for n in ("small", "large"))
    assert small is not None
    assert small["spec"]["claimRef"]["name"] == "data", "written, so it stays"
    assert large is not None
    assert "claimRef" not in large["spec"]


def test_a_volume_that_changed_since_filter_cannot_be_reserved() -> None:
    world = static_world()
    attempt = Attempt(world)
    # Between Filter and Reserve nothing runs; the store refuses all the same.
    for name in ("small", "large"):
        world.objects.set("PersistentVolume", static_volume(name, claim="other"))
    status = attempt.reserve()
    assert status == Status(Code.ERROR, ('no pod volume found for node "b"',), "VolumeBinding")


def test_the_claim_is_written_as_kube_scheduler_writes_it() -> None:
    requests = scenario("wait-for-first-consumer")["schedulerRequests"]
    [written] = [request["requestObject"] for request in requests if request["verb"] == "update"]
    metadata = {key: value for key, value in written["metadata"].items() if key != "annotations"}
    assert with_selected_node({**written, "metadata": metadata}, "n1") == written


# --- hints --------------------------------------------------------------------------------------


def csi_driver(*, storage_capacity: bool) -> Any:
    return {"metadata": {"name": "d"}, "spec": {"storageCapacity": storage_capacity}}


WITH_DRIVER = pod_info("web", volumes=[{"name": "x", "csi": {"driver": "d"}}])


@pytest.mark.parametrize(
    ("pod", "resource", "old", "new", "requeues"),
    [
        pytest.param(POD, Resource.STORAGE_CLASS, None, make_class(), True, id="a class came"),
        pytest.param(
            POD,
            Resource.STORAGE_CLASS,
            make_class(),
            make_class(zones=["z1"]),
            True,
            id="other topologies",
        ),
        pytest.param(
            POD, Resource.STORAGE_CLASS, make_class(), make_class(), False, id="the same topologies"
        ),
        pytest.param(
            POD, Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("data"), True, id="its claim"
        ),
        pytest.param(
            POD, Resource.PERSISTENT_VOLUME_CLAIM, None, make_claim("x"), False, id="another claim"
        ),
        pytest.param(
            POD,
            Resource.CSI_NODE,
            make_csi_node("a"),
            make_csi_node("a", migrated=["p"]),
            True,
            id="a plugin was migrated",
        ),
        pytest.param(
            POD,
            Resource.CSI_NODE,
            make_csi_node("a"),
            make_csi_node("a", {"d": 1}),
            False,
            id="a driver was registered",
        ),
        pytest.param(
            WITH_DRIVER,
            Resource.CSI_DRIVER,
            csi_driver(storage_capacity=True),
            csi_driver(storage_capacity=False),
            True,
            id="the driver no longer counts",
        ),
        pytest.param(
            POD,
            Resource.CSI_DRIVER,
            csi_driver(storage_capacity=True),
            csi_driver(storage_capacity=False),
            False,
            id="a driver that the pod does not name",
        ),
        pytest.param(
            POD,
            Resource.CSI_STORAGE_CAPACITY,
            capacity("x", topology={}, capacity="1Gi"),
            capacity("x", topology={}, capacity="2Gi"),
            True,
            id="more room",
        ),
        pytest.param(
            POD,
            Resource.CSI_STORAGE_CAPACITY,
            capacity("x", topology={}, capacity="2Gi"),
            capacity("x", topology={}, capacity="1Gi"),
            False,
            id="less room",
        ),
    ],
)
def test_hints(pod: Any, resource: Resource, old: Any, new: Any, *, requeues: bool) -> None:
    hints = VolumeBinding(StorageWorld().handle).events_to_register()
    [hint] = [h.queueing_hint_fn for h in hints if h.resource is resource]
    assert hint is not None
    change = ClusterChange(resource, Action.UPDATE_OTHER, old=old, new=new)
    assert hint(pod, change) is queue_if(requeues)
