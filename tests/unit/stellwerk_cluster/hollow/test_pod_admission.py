"""What a kubelet refuses, with its reasons and messages."""

from typing import Any

import pytest

from stellwerk_cluster.hollow.pod_admission import AdmittedPods, refusal_of
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod

NODE = make_node(
    "n",
    cpu="4",
    memory="8Gi",
    pods="3",
    labels={"disk": "ssd"},
    allocatable={"example.com/gpu": "1"},
)
TAINT = {"key": "gone", "value": "", "effect": "NoExecute"}


def ported(name: str, address: str = "", port: int = 80, protocol: str = "TCP") -> JsonObject:
    pod = make_pod(name)
    door: dict[str, Any] = {"containerPort": 80, "hostPort": port, "protocol": protocol}
    pod["spec"]["containers"][0]["ports"] = [{**door, **({"hostIP": address} if address else {})}]
    return pod


def load(*pods: JsonObject) -> AdmittedPods:
    admitted = AdmittedPods()
    for pod in pods:
        admitted.add(pod)
    return admitted


def tainted(effect: str) -> JsonObject:
    return {**NODE, "spec": {"taints": [{**TAINT, "effect": effect}]}}


@pytest.mark.parametrize(
    ("pod", "others", "reason", "message"),
    [
        pytest.param(
            make_pod("p", cpu="1"),
            [make_pod("a", cpu="3500m")],
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 1000, used: 3500, capacity: 4000",
            id="cpu counts in millicores",
        ),
        pytest.param(
            make_pod("p", memory="9Gi"),
            [],
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 9663676416, used: 0, "
            "capacity: 8589934592",
            id="memory counts in bytes",
        ),
        pytest.param(
            make_pod("p", cpu="9"),
            [make_pod(name) for name in "abc"],
            "OutOfpods",
            "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
            id="the number of pods comes first",
        ),
        pytest.param(
            make_pod("p", requests={"example.com/gpu": "1"}),
            [make_pod("a", requests={"example.com/gpu": "1"})],
            "OutOfexample.com/gpu",
            "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1",
            id="an extended resource of the node",
        ),
        pytest.param(
            make_pod("p", nodeSelector={"disk": "hdd"}),
            [],
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="a node selector that does not match",
        ),
        pytest.param(
            ported("p"),
            [ported("a", "127.0.0.1")],
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod "
            "ports",
            id="a port on all addresses collides with one on any",
        ),
        pytest.param(
            make_pod("p", nodeSelector={"kubernetes.io/os": "windows"}),
            [],
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            id="a pod for another system",
        ),
    ],
)
def test_a_kubelet_refuses(
    pod: JsonObject, others: list[JsonObject], reason: str, message: str
) -> None:
    assert refusal_of(pod, NODE, load(*others)) == (reason, message)


@pytest.mark.parametrize(
    ("pod", "others"),
    [
        pytest.param(make_pod("p", cpu="500m"), [make_pod("a", cpu="3500m")], id="what just fits"),
        pytest.param(
            make_pod("p", requests={"example.com/of-the-cluster": "5"}),
            [],
            id="an extended resource that the node does not name",
        ),
        pytest.param(ported("p"), [ported("a", protocol="UDP")], id="a port of another protocol"),
        pytest.param(
            ported("p", "10.0.0.1"), [ported("a", "10.0.0.2")], id="a port of another address"
        ),
    ],
)
def test_a_kubelet_takes(pod: JsonObject, others: list[JsonObject]) -> None:
    assert refusal_of(pod, NODE, load(*others)) is None


def test_only_taints_with_no_execute_matter_and_not_to_static_pods() -> None:
    pod = make_pod("p")
    assert refusal_of(pod, tainted("NoSchedule"), AdmittedPods()) is None
    refused = refusal_of(pod, tainted("NoExecute"), AdmittedPods())
    assert refused is not None
    assert refused.reason == "TaintToleration"
    static = make_pod("s")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert refusal_of(static, tainted("NoExecute"), AdmittedPods()) is None


def test_what_leaves_makes_room() -> None:
    large = make_pod("a", cpu="4")
    admitted = load(large)
    assert refusal_of(make_pod("p", cpu="1"), NODE, admitted) is not None
    admitted.remove(large["metadata"]["uid"])
    assert refusal_of(make_pod("p", cpu="4"), NODE, admitted) is None
