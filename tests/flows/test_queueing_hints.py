"""Which change requeues the pods of which plugin: one row for each plugin and event.

The plugins are the real ones and so is the queue. In every row some pods are unschedulable because
one plugin rejected them; each has a twin that another plugin rejected, which no change requeues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.framework.extension_points import ENQUEUE_EXTENSIONS
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.registry import IN_TREE
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin
from tests.support.queue_driver import Policy, QueueDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

Fields = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
WEB = {"app": "web"}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TOLERATES = {"tolerations": [{"key": "team", "operator": "Exists"}]}
TOLERATES_CORDON = {"tolerations": [{"key": CORDON["key"], "operator": "Exists"}]}


# --- unschedulable pods -------------------------------------------------------------------------


def spread(**labels: str) -> Fields:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return {"labels": labels, "topologySpreadConstraints": [constraint]}


def affinity(kind: str, **labels: str) -> Fields:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def claim(name: str) -> Fields:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def disk(name: str) -> Fields:
    return {"volumes": [{"name": "data", "gcePersistentDisk": {"pdName": name}}]}


def host_port(port: int) -> Fields:
    container = {"name": "main", "image": "i", "ports": [{"containerPort": 80, "hostPort": port}]}
    return {"containers": [container]}


def inline_volume(driver: str) -> Fields:
    return {"volumes": [{"name": "data", "csi": {"driver": driver}}]}


def pod(name: str, fields: Fields) -> PodInfo:
    made = make_pod(name)
    made["metadata"]["labels"] = fields.get("labels", {})
    made["spec"] |= {key: value for key, value in fields.items() if key not in {"cpu", "labels"}}
    if "cpu" in fields:
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = fields["cpu"]
    return parse_pod(made)


# --- changes ------------------------------------------------------------------------------------


def node(**fields: Any) -> NodeInfo:
    return parse_node(make_node("n1", **fields))


def node_added(**fields: Any) -> ClusterChange:
    return ClusterChange(Resource.NODE, Action.ADD, None, node(**fields))


def node_changed(action: Action, before: Fields, after: Fields) -> ClusterChange:
    return ClusterChange(Resource.NODE, action, node(**before), node(**after))


def relabelled(before: Mapping[str, str], after: Mapping[str, str]) -> ClusterChange:
    return node_changed(Action.UPDATE_NODE_LABEL, {"labels": before}, {"labels": after})


def bound(fields: Fields) -> PodInfo:
    return pod("other", {**fields, "nodeName": "n1"})


def bound_added(**fields: Any) -> ClusterChange:
    return ClusterChange(Resource.ASSIGNED_POD, Action.ADD, None, bound(fields))


def bound_deleted(**fields: Any) -> ClusterChange:
    return ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, bound(fields), None)


def bound_changed(action: Action, before: Fields, after: Fields) -> ClusterChange:
    return ClusterChange(Resource.ASSIGNED_POD, action, bound(before), bound(after))


def thing(name: str, namespace: str = "", annotations: Fields | None = None, **rest: Any) -> Fields:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {}, **rest}


def thing_added(resource: Resource, name: str = "x", **fields: Any) -> ClusterChange:
    return ClusterChange(resource, Action.ADD, None, thing(name, **fields))


def thing_changed(
    resource: Resource, before: Fields, after: Fields, name: str = "x"
) -> ClusterChange:
    return ClusterChange(resource, Action.UPDATE_OTHER, thing(name, **before), thing(name, **after))


def claim_added(name: str, namespace: str = "default") -> ClusterChange:
    return thing_added(Resource.PERSISTENT_VOLUME_CLAIM, name, namespace=namespace)


def csi_node_limits(count: int) -> Fields:
    return {"spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": count}}]}}


def zone_of_volume(zone: str) -> Fields:
    return {"metadata": {"name": "pv", "labels": {ZONE: zone}}}


# --- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Pods that `plugin` rejected, a change, and those it requeues."""

    plugin: str
    what: str
    change: ClusterChange
    unschedulable: Mapping[str, Fields]
    requeues: frozenset[str] = frozenset()


def row(
    plugin: str,
    what: str,
    change: ClusterChange,
    *requeues: str,
    of: Mapping[str, Fields] | None = None,
) -> Any:
    made = Row(plugin, what, change, {"a": {}} if of is None else of, frozenset(requeues))
    return pytest.param(made, id=f"{plugin}: {what}")


ZONED: Fields = {"labels": {ZONE: "z1"}}
UNZONED: Fields = {"labels": {}}
SIZES = {"small": {"cpu": "1"}, "large": {"cpu": "8"}}
POOLS = {"red": {"nodeSelector": {"pool": "red"}}, "blue": {"nodeSelector": {"pool": "blue"}}}
TOLERANCES = {"tolerant": TOLERATES, "plain": {}}
APPS = {"web": spread(app="web"), "db": spread(app="db")}
WANTS = {
    "near": affinity("podAffinity", app="web"),
    "far": affinity("podAntiAffinity", app="web"),
    "near_db": affinity("podAffinity", app="db"),
    "far_db": affinity("podAntiAffinity", app="db"),
}
CLAIMS = {"mine": claim("data"), "theirs": claim("else")}
PORTS = {"same": host_port(80), "free": host_port(81)}
DISKS = {"same": disk("d1"), "free": disk("d2")}

ROWS = [
    row("NodeUnschedulable", "a schedulable node", node_added(), "a"),
    row("NodeUnschedulable", "a cordoned node", node_added(unschedulable=True)),
    row(
        *("NodeUnschedulable", "a node is uncordoned"),
        node_changed(Action.UPDATE_NODE_TAINT, {"unschedulable": True}, {}),
        "a",
    ),
    row(
        *("NodeUnschedulable", "a cordoned node is tainted"),
        node_changed(
            Action.UPDATE_NODE_TAINT,
            {"unschedulable": True},
            {"unschedulable": True, "taints": [TAINT]},
        ),
    ),
    row("NodeName", "a node comes", node_added(), "a"),
    row("NodeName", "a node is relabelled", relabelled({}, {"a": "b"})),
    row("TaintToleration", "a node without taints", node_added(), *TOLERANCES, of=TOLERANCES),
    row(
        *("TaintToleration", "a tainted node"),
        node_added(taints=[TAINT]),
        "tolerant",
        of=TOLERANCES,
    ),
    row(
        *("TaintToleration", "a taint goes"),
        node_changed(Action.UPDATE_NODE_TAINT, {"taints": [TAINT]}, {}),
        "plain",
        of=TOLERANCES,
    ),
    row(
        *("TaintToleration", "a taint comes"),
        node_changed(Action.UPDATE_NODE_TAINT, {}, {"taints": [TAINT]}),
        of=TOLERANCES,
    ),
    row("NodeAffinity", "a node", node_added(labels={"pool": "red"}), "red", of=POOLS),
    row(
        "NodeAffinity",
        "new labels",
        relabelled({"pool": "red"}, {"pool": "blue"}),
        "blue",
        of=POOLS,
    ),
    row("NodeAffinity", "other labels", relabelled({}, {"a": "b"}), of=POOLS),
    row(
        *("NodeAffinity", "more cpu"),
        node_changed(Action.UPDATE_NODE_ALLOCATABLE, {"cpu": "1"}, {"cpu": "9"}),
        of=POOLS,
    ),
    row("NodePorts", "a pod with the port goes", bound_deleted(**host_port(80)), "same", of=PORTS),
    row("NodePorts", "a pod without ports goes", bound_deleted(), of=PORTS),
    row("NodePorts", "a node comes", node_added(), *PORTS, of=PORTS),
    row("NodeResourcesFit", "a pod goes", bound_deleted(cpu="1"), *SIZES, of=SIZES),
    row(
        *("NodeResourcesFit", "a pod shrinks"),
        bound_changed(Action.UPDATE_POD_SCALE_DOWN, {"cpu": "2"}, {"cpu": "1"}),
        *("small", "large"),
        of={**SIZES, "no_cpu": {}},
    ),
    row("NodeResourcesFit", "a pod comes", bound_added(cpu="1"), of=SIZES),
    row("NodeResourcesFit", "a node comes", node_added(cpu="4"), "small", of=SIZES),
    row(
        *("NodeResourcesFit", "a node grows enough"),
        node_changed(Action.UPDATE_NODE_ALLOCATABLE, {"cpu": "4"}, {"cpu": "8"}),
        *("small", "large"),
        of=SIZES,
    ),
    row(
        *("NodeResourcesFit", "a node grows too little"),
        node_changed(Action.UPDATE_NODE_ALLOCATABLE, {"cpu": "1"}, {"cpu": "4"}),
        "small",
        of=SIZES,
    ),
    row(
        *("NodeResourcesFit", "a node grows elsewhere"),
        node_changed(
            Action.UPDATE_NODE_ALLOCATABLE, {}, {"allocatable": {"example.com/dongle": "1"}}
        ),
        of=SIZES,
    ),
    row("NodeResourcesFit", "a node is relabelled", relabelled({}, {"x": "y"}), of=SIZES),
    row(
        "VolumeRestrictions",
        "a user of the disk goes",
        bound_deleted(**disk("d1")),
        "same",
        of=DISKS,
    ),
    row("VolumeRestrictions", "a pod without disks goes", bound_deleted(), of=DISKS),
    row("VolumeRestrictions", "a node comes", node_added(), *DISKS, of=DISKS),
    row("VolumeRestrictions", "its claim comes", claim_added("data"), "mine", of=CLAIMS),
    row("NodeVolumeLimits", "a CSINode comes", thing_added(Resource.CSI_NODE), *CLAIMS, of=CLAIMS),
    row(
        *("NodeVolumeLimits", "a limit grows"),
        thing_changed(Resource.CSI_NODE, csi_node_limits(1), csi_node_limits(2)),
        *CLAIMS,
        of=CLAIMS,
    ),
    row(
        *("NodeVolumeLimits", "a limit shrinks"),
        thing_changed(Resource.CSI_NODE, csi_node_limits(2), csi_node_limits(1)),
        of=CLAIMS,
    ),
    row("NodeVolumeLimits", "a pod with claims goes", bound_deleted(**claim("x")), "a"),
    row("NodeVolumeLimits", "a pod without claims goes", bound_deleted()),
    row("NodeVolumeLimits", "its claim comes", claim_added("data"), "mine", of=CLAIMS),
    row(
        *("NodeVolumeLimits", "a volume is detached"),
        ClusterChange(
            Resource.VOLUME_ATTACHMENT,
            Action.DELETE,
            {"metadata": {"name": "x"}, "spec": {"attacher": "csi.example"}},
        ),
        "mine",
        of={"mine": claim("data"), "none": {}},
    ),
    row("VolumeBinding", "a class comes", thing_added(Resource.STORAGE_CLASS), *CLAIMS, of=CLAIMS),
    row(
        *("VolumeBinding", "a class provides elsewhere"),
        thing_changed(
            Resource.STORAGE_CLASS, {"allowedTopologies": []}, {"allowedTopologies": [{"a": "b"}]}
        ),
        *CLAIMS,
        of=CLAIMS,
    ),
    row(
        *("VolumeBinding", "a class changes otherwise"),
        thing_changed(Resource.STORAGE_CLASS, {}, {"reclaimPolicy": "Retain"}),
        of=CLAIMS,
    ),
    row("VolumeBinding", "its claim comes", claim_added("data"), "mine", of=CLAIMS),
    row("VolumeBinding", "a claim elsewhere", claim_added("data", "other"), of=CLAIMS),
    row(
        *("VolumeBinding", "its claim changes"),
        thing_changed(
            Resource.PERSISTENT_VOLUME_CLAIM,
            {"namespace": "default"},
            {"namespace": "default"},
            name="data",
        ),
        "mine",
        of=CLAIMS,
    ),
    row("VolumeBinding", "a volume", thing_added(Resource.PERSISTENT_VOLUME), *CLAIMS, of=CLAIMS),
    row("VolumeBinding", "a node comes", node_added(), *CLAIMS, of=CLAIMS),
    row("VolumeBinding", "a node's labels", relabelled({}, {"a": "b"}), *CLAIMS, of=CLAIMS),
    row("VolumeBinding", "a CSINode comes", thing_added(Resource.CSI_NODE), *CLAIMS, of=CLAIMS),
    row(
        *("VolumeBinding", "plugins are migrated"),
        thing_changed(
            Resource.CSI_NODE,
            {},
            {"annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/x"}},
        ),
        *CLAIMS,
        of=CLAIMS,
    ),
    row(
        *("VolumeBinding", "a driver stops counting"),
        thing_changed(
            Resource.CSI_DRIVER,
            {"spec": {"storageCapacity": True}},
            {"spec": {"storageCapacity": False}},
            name="csi.example",
        ),
        "user",
        of={"user": inline_volume("csi.example"), "other": inline_volume("csi.other")},
    ),
    row(
        *("VolumeBinding", "more capacity"),
        thing_changed(Resource.CSI_STORAGE_CAPACITY, {"capacity": "1Gi"}, {"capacity": "2Gi"}),
        *CLAIMS,
        of=CLAIMS,
    ),
    row(
        *("VolumeBinding", "less capacity"),
        thing_changed(Resource.CSI_STORAGE_CAPACITY, {"capacity": "2Gi"}, {"capacity": "1Gi"}),
        of=CLAIMS,
    ),
    row(
        *("VolumeZone", "a class that waits"),
        thing_added(Resource.STORAGE_CLASS, volumeBindingMode="WaitForFirstConsumer"),
        *CLAIMS,
        of=CLAIMS,
    ),
    row(
        *("VolumeZone", "a class that does not wait"),
        thing_added(Resource.STORAGE_CLASS, volumeBindingMode="Immediate"),
        of=CLAIMS,
    ),
    row("VolumeZone", "a node comes", node_added(), *CLAIMS, of=CLAIMS),
    row("VolumeZone", "a node's labels", relabelled({}, {ZONE: "z"}), *CLAIMS, of=CLAIMS),
    row("VolumeZone", "its claim comes", claim_added("data"), "mine", of=CLAIMS),
    row("VolumeZone", "a volume", thing_added(Resource.PERSISTENT_VOLUME), *CLAIMS, of=CLAIMS),
    row(
        *("VolumeZone", "a volume moves"),
        ClusterChange(
            Resource.PERSISTENT_VOLUME,
            Action.UPDATE_OTHER,
            zone_of_volume("z1"),
            zone_of_volume("z2"),
        ),
        *CLAIMS,
        of=CLAIMS,
    ),
    row(
        *("VolumeZone", "a volume changes otherwise"),
        ClusterChange(
            Resource.PERSISTENT_VOLUME,
            Action.UPDATE_OTHER,
            zone_of_volume("z1"),
            zone_of_volume("z1"),
        ),
        of=CLAIMS,
    ),
    row("PodTopologySpread", "a counted pod comes", bound_added(labels=WEB), "web", of=APPS),
    row("PodTopologySpread", "a counted pod goes", bound_deleted(labels=WEB), "web", of=APPS),
    row("PodTopologySpread", "another pod goes", bound_deleted(labels={"app": "x"}), of=APPS),
    row(
        *("PodTopologySpread", "a pod ceases to count"),
        bound_changed(Action.UPDATE_POD_LABEL, {"labels": WEB}, {"labels": {}}),
        "web",
        of=APPS,
    ),
    row("PodTopologySpread", "a node with the key", node_added(**ZONED), *APPS, of=APPS),
    row("PodTopologySpread", "a node without it", node_added(**UNZONED), of=APPS),
    row(
        *("PodTopologySpread", "a node goes"),
        ClusterChange(Resource.NODE, Action.DELETE, node(**ZONED), None),
        *APPS,
        of=APPS,
    ),
    row(
        "PodTopologySpread", "a node moves", relabelled({ZONE: "z1"}, {ZONE: "z2"}), *APPS, of=APPS
    ),
    row(
        *("PodTopologySpread", "other labels of a node"),
        relabelled({ZONE: "z1"}, {ZONE: "z1", "a": "b"}),
        of=APPS,
    ),
    row(
        *("PodTopologySpread", "a taint in the topology"),
        node_changed(Action.UPDATE_NODE_TAINT, {**ZONED, "taints": [TAINT]}, ZONED),
        *APPS,
        of=APPS,
    ),
    row("InterPodAffinity", "a wanted pod comes", bound_added(labels=WEB), "near", of=WANTS),
    row(
        "InterPodAffinity",
        "an avoided pod goes",
        bound_deleted(labels=WEB),
        "far",
        of=WANTS,
    ),
    row(
        *("InterPodAffinity", "a pod becomes wanted"),
        bound_changed(Action.UPDATE_POD_LABEL, {"labels": {}}, {"labels": WEB}),
        "near",
        of=WANTS,
    ),
    row(
        *("InterPodAffinity", "a pod ceases to match the anti-affinity"),
        bound_changed(Action.UPDATE_POD_LABEL, {"labels": WEB}, {"labels": {}}),
        "far",
        of=WANTS,
    ),
    row("InterPodAffinity", "a node with the key", node_added(**ZONED), *WANTS, of=WANTS),
    row(
        *("InterPodAffinity", "other labels of a node"),
        relabelled({ZONE: "z1"}, {ZONE: "z1", "a": "b"}),
        of=WANTS,
    ),
    row("NodeDeclaredFeatures", "a node comes", node_added(), "a"),
    row("NodeDeclaredFeatures", "a node is relabelled", relabelled({}, {"a": "b"})),
    row("DefaultPreemption", "a victim goes", bound_deleted()),
    row("SchedulingGates", "a pod goes", bound_deleted()),
    row("SchedulingGates", "a node comes", node_added()),
    row("DynamicResources", "a node comes", node_added(), "a"),
    row("DynamicResources", "a slice comes", thing_added(Resource.RESOURCE_SLICE), "a"),
    row("DynamicResources", "a class comes", thing_added(Resource.DEVICE_CLASS), "a"),
    row("DynamicResources", "a pod goes", bound_deleted()),
    row("Extender", "any event", thing_added(Resource.CSI_DRIVER), "a"),
    row("Extender", "an annotation", node_changed(Action.UPDATE_NODE_ANNOTATION, {}, {}), "a"),
]


@pytest.fixture(scope="module")
def policy() -> Policy:
    """Every plugin's registrations, as a profile with all of them has them."""
    plugins = [make_plugin(kind) for kind in IN_TREE if hasattr(kind, "events_to_register")]
    return Policy(
        registered={
            "Deaf": (),
            **{
                plugin.name: plugin.events_to_register()
                for plugin in plugins
                if ENQUEUE_EXTENSIONS.implemented_by(plugin)
            },
        }
    )


def requeued(driver: QueueDriver) -> set[str]:
    return {
        entry.pod.name for entry in driver.queue.entries.values() if entry.place is Place.BACKOFF
    }


@pytest.mark.parametrize("row", ROWS)
def test_the_right_pods_wake_and_no_others(policy: Policy, row: Row) -> None:
    driver = QueueDriver(policy)
    for name, fields in row.unschedulable.items():
        driver.reject(pod(name, fields), row.plugin)
        driver.reject(pod(f"{name}-twin", fields), "Deaf")
    driver.change(row.change)
    assert requeued(driver) == row.requeues


@pytest.mark.parametrize(
    "plugin",
    [
        *("NodeName", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions"),
        *("VolumeBinding", "VolumeZone", "InterPodAffinity", "NodeDeclaredFeatures"),
    ],
)
def test_who_waits_for_new_nodes_is_woken_when_one_is_untainted(
    policy: Policy, plugin: str
) -> None:
    driver = QueueDriver(policy)
    driver.reject(pod_info("a", cpu="99"), plugin)
    driver.change(node_changed(Action.UPDATE_NODE_TAINT, {"taints": [TAINT]}, {}))
    assert requeued(driver) == {"a"}


OWN_UPDATES: list[tuple[str, Fields, Fields, bool]] = [
    ("NodeUnschedulable", {}, TOLERATES_CORDON, True),
    ("NodeUnschedulable", {}, TOLERATES, False),
    ("TaintToleration", {}, TOLERATES, True),
    ("TaintToleration", {}, {"labels": WEB}, False),
    ("NodeResourcesFit", {"cpu": "2"}, {"cpu": "1"}, True),
    ("NodeResourcesFit", {"cpu": "1"}, {"cpu": "2"}, False),
    ("NodeResourcesFit", {}, {"labels": WEB}, False),
    ("SchedulingGates", {"schedulingGates": [{"name": "x/one"}]}, {}, True),
    ("PodTopologySpread", spread(app="web"), {**spread(app="web"), "labels": {}}, True),
    ("InterPodAffinity", WANTS["near"], {**WANTS["near"], "labels": WEB}, True),
    ("NodeAffinity", {}, {"labels": WEB}, False),
    ("Extender", {}, {}, True),
]


@pytest.mark.parametrize(
    ("plugin", "before", "after", "requeues"),
    [
        pytest.param(*case, id=f"{case[0]} {'requeues' if case[3] else 'skips'} {number}")
        for number, case in enumerate(OWN_UPDATES)
    ],
)
def test_a_pods_own_update_wakes_it_alone(
    policy: Policy, plugin: str, before: Fields, after: Fields, *, requeues: bool
) -> None:
    driver = QueueDriver(policy)
    for name in ("a", "b"):
        driver.reject(pod(name, before), plugin)
    driver.queue.update(pod("a", after), driver.now)
    assert requeued(driver) == ({"a"} if requeues else set())
