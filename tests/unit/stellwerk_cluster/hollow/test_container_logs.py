"""What kubectl logs shows of pods that live, fail and are evicted."""

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.hollow.container_logs import pod_log
from tests.support.node_driver import ClusterDriver, hollow_pod


def told(cluster: ClusterDriver, name: str, container: str = "", *, previous: bool = False) -> str:
    return "\n".join(line.text for line in pod_log(cluster.pod(name), container, previous))


def test_a_running_pod_tells_where_it_is_and_what_it_started() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("p"))
    cluster.advance(1)
    assert told(cluster, "p").splitlines() == [
        "scheduled to node-1",
        "started by the kubelet of node-1",
        "image registry.example/c:1 is present, container c started",
    ]


def test_a_pod_that_crashes_tells_its_exit_code() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("p", annotations={"run-seconds": "1", "exit-code": "3"}))
    cluster.advance(4)
    story = told(cluster, "p", "c")
    assert "container c ended: Error, exit code 3" in story
    assert "CrashLoopBackOff: back-off 10s restarting failed container=c" in story


def test_an_evicted_pod_tells_by_what() -> None:
    cluster = ClusterDriver(heartbeats=False)
    for name in ("evicted", "driven-off"):
        cluster.create("pods", hollow_pod(name))
    usage = {"stellwerk.dev/usage": "memory=31.95Gi"}
    cluster.patch("pods", "evicted", {"metadata": {"annotations": usage}})
    cluster.advance(15)
    story = told(cluster, "evicted")
    assert "killed by the kubelet: The node was low on resource: memory." in story
    assert "Evicted: The node was low on resource: memory." in story
    taint = {"key": "gone", "value": "", "effect": "NoExecute"}
    cluster.patch("nodes", "node-1", {"spec": {"taints": [taint]}})
    story = told(cluster, "driven-off")
    assert "evicted by the taint manager" in story
    assert "deleted with a grace period of 30 s" in story


def test_a_pod_that_was_refused_tells_why() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("large", requests={"cpu": "5"}))
    cluster.advance(1)
    assert "OutOfcpu: Pod was rejected: Node didn't have" in told(cluster, "large")


def test_which_container_is_meant_must_be_clear() -> None:
    cluster = ClusterDriver(heartbeats=False)
    pod = hollow_pod("p")
    pod["spec"]["containers"].append({"name": "other", "image": "i:1"})
    cluster.create("pods", pod)
    with pytest.raises(StatusError, match="choose one of: \\[c other\\]"):
        told(cluster, "p")
    with pytest.raises(StatusError, match="container none is not valid for pod p"):
        told(cluster, "p", "none")


def test_the_run_before_is_told_alone_and_of_a_first_run_there_is_none() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("p"))
    cluster.advance(2)
    with pytest.raises(StatusError, match='previous terminated container "c" in pod "p" not found'):
        told(cluster, "p", previous=True)
    cluster.annotate("pods", "p", end_now="OOMKilled")
    cluster.advance(2)
    assert told(cluster, "p", previous=True).splitlines() == [
        "image registry.example/c:1 is present, container c started",
        "container c ended: OOMKilled, exit code 137, killed by the kernel because memory ran out",
    ]
    assert told(cluster, "p").endswith("container c started, restart 1")
