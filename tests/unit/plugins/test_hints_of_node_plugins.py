"""Which changes in the cluster wake a pod that a plugin rejected."""

from collections.abc import Callable
from typing import Any

import pytest

from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    QueueingHintFn,
    Resource,
)
from stellwerk.framework.interface import EnqueueExtensions
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.node_affinity import NodeAffinity
from stellwerk.plugins.node_declared_features import NodeDeclaredFeatures
from stellwerk.plugins.node_name import NodeName
from stellwerk.plugins.node_ports import NodePorts
from stellwerk.plugins.node_resources_fit import NodeResourcesFit
from stellwerk.plugins.node_unschedulable import NodeUnschedulable
from stellwerk.plugins.scheduling_gates import SchedulingGates
from stellwerk.plugins.taint_toleration import TaintToleration
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin

Change = Callable[[], ClusterChange]
POD_RESOURCES = {Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}


def node(**fields: Any) -> NodeInfo:
    return parse_node(make_node("n", **fields))


def node_added(**fields: Any) -> ClusterChange:
    return ClusterChange(Resource.NODE, Action.ADD, None, node(**fields))


def node_changed(action: Action, old: dict[str, Any], new: dict[str, Any]) -> ClusterChange:
    return ClusterChange(Resource.NODE, action, node(**old), node(**new))


def pod_deleted(pod: PodInfo) -> ClusterChange:
    return ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, pod, None)


def pod_changed(action: Action, old: PodInfo, new: PodInfo) -> ClusterChange:
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.UNSCHEDULED_POD
    return ClusterChange(resource, action, old, new)


def covers(hint: ClusterEventWithHint, change: ClusterChange) -> bool:
    same = hint.resource is change.resource
    of_pods = hint.resource is Resource.POD and change.resource in POD_RESOURCES
    return (same or of_pods) and bool(hint.action & change.action)


def requeues(
    kind: type[EnqueueExtensions],
    pod: PodInfo,
    change: ClusterChange,
    args: dict[str, Any] | None = None,
) -> bool:
    """Return what the queue would find: a registered hint covers the change and answers Queue."""
    hints = make_plugin(kind, args=args).events_to_register()
    found: list[QueueingHintFn | None] = [
        hint.queueing_hint_fn for hint in hints if covers(hint, change)
    ]
    return any(hint is None or hint(pod, change) is QueueingHint.QUEUE for hint in found)


TAINT = {"key": "k", "effect": "NoSchedule"}
TOLERATION = {"key": "k", "operator": "Exists"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
REJECTED = pod_info("rejected")
ON_SSD = pod_info("rejected", nodeSelector={"disk": "ssd"})
SSD, HDD = {"labels": {"disk": "ssd"}}, {"labels": {"disk": "hdd"}}


def tolerating(name: str, *tolerations: dict[str, str]) -> PodInfo:
    return pod_info(name, tolerations=list(tolerations))


LABEL, TAINTS = Action.UPDATE_NODE_LABEL, Action.UPDATE_NODE_TAINT


@pytest.mark.parametrize(
    ("kind", "pod", "change", "requeued"),
    [
        pytest.param(NodeName, REJECTED, node_added(), True, id="NodeName: any new node"),
        pytest.param(
            NodeName, REJECTED, node_changed(LABEL, {}, SSD), False, id="NodeName: no other change"
        ),
        pytest.param(
            NodeUnschedulable, REJECTED, node_added(), True, id="NodeUnschedulable: a new node"
        ),
        pytest.param(
            NodeUnschedulable,
            REJECTED,
            node_added(unschedulable=True),
            False,
            id="NodeUnschedulable: a new cordoned node",
        ),
        pytest.param(
            NodeUnschedulable,
            REJECTED,
            node_changed(TAINTS, {"unschedulable": True}, {}),
            True,
            id="NodeUnschedulable: uncordoned",
        ),
        pytest.param(
            NodeUnschedulable,
            REJECTED,
            node_changed(TAINTS, {}, {"taints": [TAINT]}),
            False,
            id="NodeUnschedulable: schedulable before",
        ),
        pytest.param(
            NodeUnschedulable,
            tolerating("rejected", CORDON),
            pod_changed(Action.UPDATE_POD_TOLERATION, REJECTED, tolerating("rejected", CORDON)),
            True,
            id="NodeUnschedulable: the pod tolerates cordoned nodes now",
        ),
        pytest.param(
            NodeUnschedulable,
            tolerating("rejected", TOLERATION),
            pod_changed(Action.UPDATE_POD_TOLERATION, REJECTED, tolerating("rejected", TOLERATION)),
            False,
            id="NodeUnschedulable: the pod tolerates something else now",
        ),
        pytest.param(
            NodeUnschedulable,
            REJECTED,
            pod_changed(
                Action.UPDATE_POD_TOLERATION, pod_info("other"), tolerating("other", CORDON)
            ),
            False,
            id="NodeUnschedulable: another pod tolerates",
        ),
        pytest.param(
            TaintToleration,
            REJECTED,
            node_added(),
            True,
            id="TaintToleration: a node without taints",
        ),
        pytest.param(
            TaintToleration,
            REJECTED,
            node_added(taints=[TAINT]),
            False,
            id="TaintToleration: a new node, tainted",
        ),
        pytest.param(
            TaintToleration,
            tolerating("rejected", TOLERATION),
            node_added(taints=[TAINT]),
            True,
            id="TaintToleration: a new node, tolerated",
        ),
        pytest.param(
            TaintToleration,
            REJECTED,
            node_changed(TAINTS, {"taints": [TAINT]}, {}),
            True,
            id="TaintToleration: the taint goes",
        ),
        pytest.param(
            TaintToleration,
            tolerating("rejected", TOLERATION),
            node_changed(TAINTS, {"taints": [TAINT]}, {}),
            False,
            id="TaintToleration: it was tolerated before",
        ),
        pytest.param(
            TaintToleration,
            REJECTED,
            pod_changed(Action.UPDATE_POD_TOLERATION, REJECTED, tolerating("rejected", TOLERATION)),
            True,
            id="TaintToleration: the pod has a new toleration",
        ),
        pytest.param(
            TaintToleration,
            REJECTED,
            pod_changed(
                Action.UPDATE_POD_TOLERATION, pod_info("other"), tolerating("other", TOLERATION)
            ),
            False,
            id="TaintToleration: another pod has",
        ),
        pytest.param(
            NodeAffinity, ON_SSD, node_added(**SSD), True, id="NodeAffinity: a new node matches"
        ),
        pytest.param(
            NodeAffinity, ON_SSD, node_added(**HDD), False, id="NodeAffinity: a new node does not"
        ),
        pytest.param(
            NodeAffinity,
            ON_SSD,
            node_changed(LABEL, HDD, SSD),
            True,
            id="NodeAffinity: the label is set",
        ),
        pytest.param(
            NodeAffinity,
            ON_SSD,
            node_changed(LABEL, SSD, {"labels": {"disk": "ssd", "more": "x"}}),
            False,
            id="NodeAffinity: it matched before",
        ),
        pytest.param(
            DynamicResources, REJECTED, node_added(), True, id="DynamicResources: a node comes"
        ),
    ],
)
def test_changes_of_nodes_and_tolerations(
    kind: type[EnqueueExtensions], pod: PodInfo, change: ClusterChange, *, requeued: bool
) -> None:
    assert requeues(kind, pod, change) is requeued


def test_a_node_outside_the_profiles_affinity_requeues_no_pod() -> None:
    term = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    args = {"addedAffinity": required}
    ours = {"labels": {"disk": "ssd", "team": "x"}}
    assert not requeues(NodeAffinity, ON_SSD, node_added(**SSD), args)
    assert requeues(NodeAffinity, ON_SSD, node_added(**ours), args)


def test_only_the_named_node_wakes_a_daemon_sets_pod() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod = pod_info("rejected", affinity={"nodeAffinity": required})
    other = ClusterChange(Resource.NODE, Action.ADD, None, parse_node(make_node("other")))
    assert requeues(NodeAffinity, pod, node_added())
    assert not requeues(NodeAffinity, pod, other)


# --- NodePorts ----------------------------------------------------------------------------------


def with_port(name: str, port: int, **fields: Any) -> PodInfo:
    pod = make_pod(name, **fields)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": port}]
    return parse_pod(pod)


@pytest.mark.parametrize(
    ("change", "requeued"),
    [
        pytest.param(
            pod_deleted(with_port("gone", 80, node_name="n")), True, id="the port is free again"
        ),
        pytest.param(
            pod_deleted(with_port("gone", 81, node_name="n")), False, id="another port is free"
        ),
        pytest.param(
            pod_deleted(with_port("gone", 80, nominated_node_name="n")),
            True,
            id="a nominated pod held it",
        ),
        pytest.param(pod_deleted(with_port("gone", 80)), False, id="the pod had no node"),
        pytest.param(pod_deleted(pod_info("gone", node_name="n")), False, id="it had no port"),
        pytest.param(node_added(), True, id="any new node"),
    ],
)
def test_node_ports(change: ClusterChange, *, requeued: bool) -> None:
    assert requeues(NodePorts, with_port("rejected", 80), change) is requeued


# --- NodeResourcesFit ---------------------------------------------------------------------------

GROWN = Action.UPDATE_NODE_ALLOCATABLE
SHRUNK = Action.UPDATE_POD_SCALE_DOWN
TWO_CORES = pod_info("rejected", cpu="2")


@pytest.mark.parametrize(
    ("change", "requeued"),
    [
        pytest.param(pod_deleted(pod_info("gone", node_name="n")), True, id="a pod left its node"),
        pytest.param(
            pod_deleted(pod_info("gone", nominated_node_name="n")), True, id="so did a nominee"
        ),
        pytest.param(pod_deleted(pod_info("gone")), False, id="a pod without node was deleted"),
        pytest.param(node_added(cpu="2"), True, id="a new node is large enough"),
        pytest.param(node_added(cpu="1"), False, id="a new node is too small"),
        pytest.param(node_added(cpu="2", pods="0"), False, id="a new node takes no pods"),
        pytest.param(
            node_changed(GROWN, {"cpu": "2"}, {"cpu": "3"}), True, id="the node got more cores"
        ),
        pytest.param(
            node_changed(GROWN, {"cpu": "1"}, {"cpu": "1500m"}), False, id="but still too few"
        ),
        pytest.param(
            node_changed(GROWN, {"memory": "1Gi"}, {"memory": "2Gi"}),
            False,
            id="more of what the pod does not want",
        ),
        pytest.param(
            node_changed(GROWN, {"pods": "10"}, {"pods": "11"}), True, id="room for more pods"
        ),
        pytest.param(
            pod_changed(
                SHRUNK,
                pod_info("big", cpu="3", node_name="n"),
                pod_info("big", cpu="1", node_name="n"),
            ),
            True,
            id="a pod on a node gave cores back",
        ),
        pytest.param(
            pod_changed(
                SHRUNK,
                pod_info("big", memory="3Gi", node_name="n"),
                pod_info("big", memory="1Gi", node_name="n"),
            ),
            False,
            id="it gave back what the pod does not want",
        ),
        pytest.param(
            pod_changed(SHRUNK, pod_info("other", cpu="3"), pod_info("other", cpu="1")),
            False,
            id="a pod without node shrank",
        ),
        pytest.param(
            pod_changed(SHRUNK, pod_info("rejected", cpu="3"), TWO_CORES), True, id="itself shrank"
        ),
    ],
)
def test_node_resources_fit(change: ClusterChange, *, requeued: bool) -> None:
    assert requeues(NodeResourcesFit, TWO_CORES, change) is requeued


# --- SchedulingGates and NodeDeclaredFeatures ---------------------------------------------------


def test_only_its_own_last_gate_frees_a_pod() -> None:
    action = Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    gated = pod_info("rejected", schedulingGates=[{"name": "g"}])
    other = pod_info("other", schedulingGates=[{"name": "g"}])
    assert requeues(SchedulingGates, gated, pod_changed(action, gated, REJECTED))
    assert not requeues(SchedulingGates, gated, pod_changed(action, other, pod_info("other")))


def declaring(*features: str) -> NodeInfo:
    obj = make_node("n")
    obj["status"]["declaredFeatures"] = list(features)
    return parse_node(obj)


def needing(name: str) -> PodInfo:
    pod = make_pod(name)
    pod["spec"]["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    return parse_pod(pod)


@pytest.mark.parametrize(
    ("change", "requeued"),
    [
        pytest.param(node_added(), True, id="any new node"),
        pytest.param(
            ClusterChange(
                Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE, declaring(), declaring("X")
            ),
            True,
            id="a node declares more",
        ),
        pytest.param(
            ClusterChange(
                Resource.NODE, Action.UPDATE_NODE_DECLARED_FEATURE, declaring("X"), declaring("X")
            ),
            False,
            id="a node declares the same",
        ),
        pytest.param(
            pod_changed(Action.UPDATE_POD_OTHER, needing("rejected"), REJECTED),
            True,
            id="the pod needs less",
        ),
        pytest.param(
            pod_changed(Action.UPDATE_POD_OTHER, REJECTED, REJECTED),
            False,
            id="the pod needs the same",
        ),
        pytest.param(
            pod_changed(Action.UPDATE_POD_OTHER, needing("other"), pod_info("other")),
            False,
            id="another pod needs less",
        ),
    ],
)
def test_node_declared_features(change: ClusterChange, *, requeued: bool) -> None:
    assert requeues(NodeDeclaredFeatures, needing("rejected"), change) is requeued


# --- all of them --------------------------------------------------------------------------------

EVERY = (
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeDeclaredFeatures,
    SchedulingGates,
)


@pytest.mark.parametrize("kind", EVERY)
def test_a_change_of_unexpected_shape_is_answered_with_queue(kind: type[EnqueueExtensions]) -> None:
    for hint in make_plugin(kind).events_to_register():
        if hint.queueing_hint_fn is not None:
            change = ClusterChange(hint.resource, hint.action)
            assert hint.queueing_hint_fn(REJECTED, change) is QueueingHint.QUEUE


@pytest.mark.parametrize("kind", EVERY)
def test_hints_that_compare_pods_say_that_they_look_at_the_whole_pod(
    kind: type[EnqueueExtensions],
) -> None:
    updates = Action.UPDATE_POD
    for hint in make_plugin(kind).events_to_register():
        if hint.resource is Resource.POD and hint.action & updates:
            assert hint.scope is HintScope.POD
