"""The volume plugins equal a plain look at one node at a time, however the cluster came about."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.framework.types import CycleState, Status
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.node_volume_limits import NodeVolumeLimits
from stellwerk.plugins.volume_binding.plugin import VolumeBinding
from stellwerk.plugins.volume_restrictions import VolumeRestrictions
from stellwerk.plugins.volume_zone import VolumeZone
from stellwerk_kube.node import parse_node
from tests.properties.plugins import volume_references as reference
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.examples import examples
from tests.support.storage import (
    StorageWorld,
    claim_volume,
    make_attachment,
    make_claim,
    make_class,
    make_csi_node,
    make_volume,
)

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
SELECTED = "volume.kubernetes.io/selected-node"
NODES = ("a", "b", "c", "d")
KINDS = (
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
)

Json = dict[str, Any]


def few(values: st.SearchStrategy[Any], size: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, max_size=size)


labels = st.dictionaries(
    st.sampled_from([ZONE, BETA_ZONE, REGION]), st.sampled_from(["x", "y"]), max_size=3
)
sizes = st.sampled_from(["1Gi", "1500Mi", "2Gi", "3G"])
claim_names = st.sampled_from(["c0", "c1", "c2", "c3"])
volume_names = st.sampled_from(["v0", "v1", "v2", "v3", "v4", "v5"])
class_names = st.sampled_from(["wait", "static"])
drivers = st.sampled_from(["d0", "d1"])
modes = st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"]])
topologies = st.none() | st.fixed_dictionaries(
    {},
    optional={
        ZONE: few(st.sampled_from(["x", "y"])),
        "kubernetes.io/hostname": few(st.sampled_from(NODES)),
    },
)


@st.composite
def worlds_objects(draw: st.DrawFn, *, sized: bool = True) -> dict[str, dict[str, Json]]:
    """Storage objects by kind and name. Volumes of one class have distinct sizes."""
    objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
    zones = draw(few(st.sampled_from(["x", "y"]), 1))
    objects["StorageClass"]["wait"] = make_class(provisioner="d0", zones=zones)
    no_provisioner = "kubernetes.io/no-provisioner"
    objects["StorageClass"]["static"] = make_class("static", provisioner=no_provisioner)
    order = draw(st.permutations(range(6)))
    for i in range(6):
        name, claim = f"v{i}", draw(st.sampled_from(["", "", "c0", "c1"]))
        objects["PersistentVolume"][name] = make_volume(
            name,
            storage=f"{1000 + 300 * order[i]}Mi" if sized else "1Gi",
            storage_class=draw(class_names),
            modes=draw(modes),
            claim=claim if not _claimed(objects, claim) else "",
            nodes=draw(topologies),
            labels={"tier": draw(st.sampled_from(["1", "2"])), **draw(labels)},
            source={"csi": {"driver": draw(drivers), "volumeHandle": draw(volume_names)}},
        )
    for i in range(4):
        objects["PersistentVolumeClaim"][f"c{i}"] = draw(claims(f"c{i}"))
    if draw(st.booleans()):
        spec = {"storageCapacity": draw(st.booleans())}
        objects["CSIDriver"]["d0"] = {"metadata": {"name": "d0"}, "spec": spec}
    for i, (size, wanted) in enumerate(draw(few(st.tuples(sizes, labels)))):
        objects["CSIStorageCapacity"][f"s{i}"] = {
            "metadata": {"name": f"s{i}"},
            "storageClassName": "wait",
            "capacity": size,
            "nodeTopology": {"matchLabels": wanted},
        }
    return objects


@st.composite
def claims(draw: st.DrawFn, name: str) -> Json:
    selected = draw(st.sampled_from([None, None, None, "a"]))
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["selector"] = {"matchLabels": {"tier": "1"}}
    return make_claim(
        name,
        storage=draw(sizes),
        storage_class=draw(class_names),
        modes=draw(modes),
        volume=draw(st.sampled_from(["", "", "v0", "v1", "gone"])),
        annotations={SELECTED: selected} if selected else None,
        **spec,
    )


def _claimed(objects: dict[str, dict[str, Json]], claim: str) -> bool:
    """Whether a volume names the claim already: which of several wins is left open upstream."""
    return any(
        volume["spec"].get("claimRef", {}).get("name") == claim
        for volume in objects["PersistentVolume"].values()
    )


def world_of(
    objects: dict[str, dict[str, Json]], node_labels: list[dict[str, str]], pods: Any = ()
) -> StorageWorld:
    nodes = [make_node(name, labels=own) for name, own in zip(NODES, node_labels, strict=False)]
    world = StorageWorld(nodes, pods)
    for kind, by_name in objects.items():
        for obj in by_name.values():
            world.objects.set(kind, obj)
    return world


def plain(world: StorageWorld, rejects: Callable[[str, dict[str, str]], list[str]]) -> Any:
    found = {}
    for node in world.cache.nodes():
        reasons = rejects(node.name, dict(node.labels))
        if reasons:
            found[node.name] = tuple(reasons)
    return found


four_labels = st.lists(labels, min_size=4, max_size=4)
used_claims = st.lists(claim_names, min_size=1, max_size=3, unique=True)


@given(worlds_objects(), four_labels, used_claims)
@settings(max_examples=examples(120), deadline=None)
def test_volume_binding(
    objects: dict[str, dict[str, Json]], node_labels: Any, used: list[str]
) -> None:
    world = world_of(objects, node_labels)
    pod = pod_info("web", volumes=claim_volume(*used))
    mine = [objects["PersistentVolumeClaim"][name] for name in used]
    verdicts = world.verdicts(VolumeBinding(world.handle), pod)
    assert verdicts == plain(
        world, lambda name, own: reference.binding_reasons(objects, mine, name, own)
    )


@given(
    worlds_objects(),
    st.lists(st.tuples(st.none() | worlds_objects(), four_labels), min_size=2, max_size=4),
    st.lists(st.sampled_from([2, 3, 4, 4]), min_size=4, max_size=4),
    used_claims,
)
@settings(max_examples=examples(120), deadline=None)
def test_volume_binding_follows_nodes_and_objects(
    objects: dict[str, dict[str, Json]],
    history: list[Any],
    sizes_of_cluster: list[int],
    used: list[str],
) -> None:
    world = StorageWorld()
    plugin, pod = VolumeBinding(world.handle), pod_info("web", volumes=claim_volume(*used))
    shown: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
    for (changed, node_labels), size in zip(history, sizes_of_cluster, strict=False):
        objects = changed or objects
        for kind in KINDS:
            _show(world, kind, shown[kind], objects[kind])
        for position, (name, own) in enumerate(zip(NODES, node_labels, strict=True)):
            if position < size:
                world.cache.set_node(parse_node(make_node(name, labels=own)))
            else:
                world.cache.remove_node(name)
        mine = [objects["PersistentVolumeClaim"][name] for name in used]
        verdicts = world.verdicts(plugin, pod)
        assert verdicts == plain(world, partial(reference.binding_reasons, objects, mine))


def _show(world: StorageWorld, kind: str, shown: dict[str, Json], objects: dict[str, Json]) -> None:
    """Make the store hold these objects of the kind; only what differs is touched."""
    for name in [name for name in shown if name not in objects]:
        world.objects.remove(kind, shown.pop(name))
    for name, obj in objects.items():
        if shown.get(name) != obj:
            world.objects.set(kind, obj)
            shown[name] = obj


@given(worlds_objects(), four_labels, used_claims)
@settings(max_examples=examples(60), deadline=None)
def test_reserve_takes_what_the_plain_search_finds(
    objects: dict[str, dict[str, Json]], node_labels: Any, used: list[str]
) -> None:
    world, state = world_of(objects, node_labels), CycleState()
    pod, plugin = pod_info("web", volumes=claim_volume(*used)), VolumeBinding(world.handle)
    verdicts = world.verdicts(plugin, pod, state)
    assert isinstance(verdicts, dict)
    fitting = [name for name in NODES if name not in verdicts]
    if not fitting:
        return
    assert plugin.reserve(state, pod, fitting[0]).ok
    own = world.cache.node(fitting[0])
    assert own is not None
    mine = [objects["PersistentVolumeClaim"][name] for name in used]
    for name, volume in _taken(objects, mine, dict(own.labels)).items():
        assumed = world.objects.get("PersistentVolume", "", volume)
        assert assumed is not None
        assert assumed["spec"]["claimRef"]["name"] == name
    plugin.unreserve(state, pod, fitting[0])
    for volume in objects["PersistentVolume"].values():
        assert world.objects.get("PersistentVolume", "", volume["metadata"]["name"]) is volume


def _taken(objects: dict[str, dict[str, Json]], mine: list[Json], own: dict[str, str]) -> Any:
    """Claim → existing volume, smallest claims first."""
    taken: dict[str, str] = {}
    unbound = [
        c
        for c in mine
        if "volumeName" not in c["spec"] and SELECTED not in c["metadata"]["annotations"]
    ]
    sized = {"1Gi": 0, "1500Mi": 1, "2Gi": 2, "3G": 3}
    for claim in sorted(
        unbound, key=lambda c: sized[c["spec"]["resources"]["requests"]["storage"]]
    ):
        found = reference.find_matching_volume(objects, claim, own, set(taken.values()))
        if found is not None:
            taken[claim["metadata"]["name"]] = found["metadata"]["name"]
    return taken


@given(worlds_objects(), four_labels, used_claims)
@settings(max_examples=examples(60), deadline=None)
def test_volume_zone(
    objects: dict[str, dict[str, Json]], node_labels: Any, used: list[str]
) -> None:
    mine = [objects["PersistentVolumeClaim"][name]["spec"].get("volumeName") for name in used]
    volumes = [objects["PersistentVolume"].get(name, {}) for name in mine if name]
    world = world_of(objects, node_labels)
    verdicts = world.verdicts(
        VolumeZone(world.handle), pod_info("web", volumes=claim_volume(*used))
    )
    if isinstance(verdicts, Status):
        zoned = any(
            key.endswith(("zone", "region"))
            for v in volumes
            if v
            for key in v["metadata"]["labels"]
        )
        assert {} in volumes or (verdicts.skip and not zoned)
        return
    assert verdicts == plain(
        world,
        lambda _, own: [reference.ELSEWHERE] if reference.zone_conflict(volumes, own) else [],
    )


# --- what depends on pods -----------------------------------------------------------------------

read_only = st.booleans()
disks = st.one_of(
    st.builds(
        lambda n, r: {"gcePersistentDisk": {"pdName": n, "readOnly": r}},
        st.sampled_from(["p", "q"]),
        read_only,
    ),
    st.builds(
        lambda n, r: {"awsElasticBlockStore": {"volumeID": n, "readOnly": r}},
        st.sampled_from(["p", "q"]),
        read_only,
    ),
    st.builds(
        lambda n, r: {"iscsi": {"iqn": n, "readOnly": r}}, st.sampled_from(["p", "q"]), read_only
    ),
    st.builds(
        lambda m, i, r: {"rbd": {"monitors": m, "pool": "p", "image": i, "readOnly": r}},
        st.lists(st.sampled_from(["m", "n", "o"]), min_size=1, max_size=2, unique=True),
        st.sampled_from(["p", "q"]),
        read_only,
    ),
)
disk_volumes = few(disks.map(lambda source: {"name": "disk", **source}))


def overlaid(
    world: StorageWorld, plugin: Any, pod: PodInfo, data: st.DataObject, extra: list[PodInfo]
) -> tuple[Any, dict[str, list[PodInfo]]]:
    """Verdicts of a view whose overlay adds and removes pods, and the pods as they are then."""
    state = CycleState()
    status = world.verdicts(plugin, pod, state)
    if isinstance(status, Status):
        return status, {}
    view, snapshot = world.view().with_overlay(), world.cache.snapshot
    assert view.overlay is not None
    then: dict[str, list[PodInfo]] = {}
    for name, row in snapshot.row_of.items():
        then[name] = []
        for there in snapshot.pods[row].values():
            if data.draw(st.booleans()):
                view.overlay.remove_pod(row, there)
            else:
                then[name].append(there)
        for added in extra:
            if data.draw(st.booleans()):
                view.overlay.add_pod(row, added)
                then[name].append(added)
    return world.filter(plugin, state, pod, view), then


@given(
    st.lists(st.tuples(st.sampled_from(NODES), disk_volumes), max_size=6),
    disk_volumes,
    disk_volumes,
    st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_volume_restrictions_with_any_overlay(
    users: Any, wanted: Any, nominated: Any, data: st.DataObject
) -> None:
    pods = [
        make_pod(f"u{i}", node_name=node, volumes=volumes)
        for i, (node, volumes) in enumerate(users)
    ]
    world, pod = world_of({}, [{}] * 4, pods), pod_info("web", volumes=wanted)
    plugin = VolumeRestrictions(world.handle)
    extra = [pod_info("nominated", volumes=nominated)]
    verdicts, then = overlaid(world, plugin, pod, data, extra)
    if isinstance(verdicts, Status):
        assert verdicts.skip
        assert not wanted
        return
    conflicts = {name for name, there in then.items() if reference.disk_conflict(pod, there)}
    assert verdicts == dict.fromkeys(conflicts, (reference.DISK,))


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, str, Any]:
    """(what to do, name, object): one change of the cluster."""
    kind = draw(
        st.sampled_from(
            [
                "Pod",
                "Pod",
                "Node",
                "PersistentVolumeClaim",
                "PersistentVolume",
                "CSINode",
                "VolumeAttachment",
                "StorageClass",
            ]
        )
    )
    name = draw(
        {
            "Pod": st.sampled_from(["p0", "p1", "p2", "p3"]),
            "Node": st.sampled_from(NODES),
            "CSINode": st.sampled_from(NODES),
            "PersistentVolumeClaim": claim_names,
            "PersistentVolume": volume_names,
            "VolumeAttachment": st.sampled_from(["x", "y"]),
            "StorageClass": class_names,
        }[kind]
    )
    if draw(st.integers(0, 4)) == 0:
        return kind, name, None
    return kind, name, draw(_object(kind, name))


@st.composite
def _object(draw: st.DrawFn, kind: str, name: str) -> Json:
    handle = {"driver": draw(drivers), "volumeHandle": draw(volume_names)}
    node, driver, volume = draw(st.sampled_from(NODES)), draw(drivers), draw(volume_names)
    limits = {limited: draw(st.integers(0, 3)) for limited in draw(few(drivers, 2))}
    made: dict[str, Callable[[], Json]] = {
        "Pod": lambda: make_pod(name, node_name=node, volumes=claim_volume(*draw(used_claims))),
        "Node": lambda: make_node(name),
        "CSINode": lambda: make_csi_node(name, limits),
        "PersistentVolumeClaim": lambda: draw(claims(name)),
        "PersistentVolume": lambda: make_volume(name, source={"csi": handle}),
        "VolumeAttachment": lambda: make_attachment(name, node, volume, driver=driver),
        "StorageClass": lambda: make_class(name, provisioner=driver),
    }
    return made[kind]()


def take(world: StorageWorld, objects: dict[str, dict[str, Json]], step: Any) -> None:
    kind, name, obj = step
    match kind:
        case "Pod":
            # spec.volumes cannot change: another pod of the name takes the place of the old one.
            world.cache.remove_pod(f"uid-default-{name}")
            if obj is not None:
                world.cache.set_pod(parse_pod(obj))
        case "Node":
            if obj is None:
                world.cache.remove_node(name)
            else:
                world.cache.set_node(parse_node(obj))
        case _ if obj is None:
            gone = objects[kind].pop(name, None)
            if gone is not None:
                world.objects.remove(kind, gone)
        case _:
            objects[kind][name] = obj
            world.objects.set(kind, obj)


@given(st.lists(st.lists(steps(), max_size=12), min_size=1, max_size=4), used_claims, st.data())
@settings(max_examples=examples(60), deadline=None)
def test_node_volume_limits_after_any_history_and_with_any_overlay(
    history: Any, used: list[str], data: st.DataObject
) -> None:
    objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
    world = StorageWorld()
    plugin = NodeVolumeLimits(world.handle)
    for name in NODES:
        take(world, objects, ("CSINode", name, make_csi_node(name, {"d0": 1, "d1": 2})))
    for i in range(4):
        take(world, objects, ("PersistentVolumeClaim", f"c{i}", make_claim(f"c{i}")))
    pod = pod_info("web", volumes=claim_volume(*used))
    extra = [pod_info("nominated", volumes=claim_volume(*data.draw(used_claims)))]
    for stretch in history:
        for step in stretch:
            take(world, objects, step)
        verdicts, then = overlaid(world, plugin, pod, data, extra)
        if any(name not in objects["PersistentVolumeClaim"] for name in used):
            continue
        exceeded = {
            name
            for name, there in then.items()
            if reference.exceeds_limits(objects, pod, name, there)
        }
        assert verdicts == dict.fromkeys(exceeded, (reference.EXCEEDED,))
