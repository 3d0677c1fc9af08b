"""What kubectl logs shows of pods that live, fail and are evicted."""

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.hollow.story import pod_log
from tests.support.node_driver import ClusterDriver, hollow_pod


def test_a_running_pod_tells_where_it_is_and_what_it_started() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("p"))
    cluster.advance(1)
    assert pod_log(cluster.pod("p"), {}).splitlines() == [
        "scheduled to node-1",
        "taken up by the kubelet of node-1",
        "image registry.example/c:1 is present, container c started",
    ]
    (last,) = pod_log(cluster.pod("p"), {"tailLines": "1", "timestamps": "true"}).splitlines()
    assert last.split(" ", 1)[0] == cluster.pod("p")["status"]["startTime"]
    assert last.endswith("container c started")


def test_a_pod_that_crashes_tells_its_exit_code() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("p", annotations={"run-seconds": "1", "exit-code": "3"}))
    cluster.advance(4)
    told = pod_log(cluster.pod("p"), {"container": "c"})
    assert "container c ended: Error, exit code 3" in told
    assert "CrashLoopBackOff: back-off 10s restarting failed container=c" in told


def test_an_evicted_pod_tells_by_what() -> None:
    cluster = ClusterDriver(heartbeats=False)
    for name in ("evicted", "driven-off"):
        cluster.create("pods", hollow_pod(name))
    usage = {"stellwerk.dev/usage": "memory=31.95Gi"}
    cluster.patch("pods", "evicted", {"metadata": {"annotations": usage}})
    cluster.advance(15)
    told = pod_log(cluster.pod("evicted"), {})
    assert "killed by the kubelet: The node was low on resource: memory." in told
    assert "Evicted: The node was low on resource: memory." in told
    taint = {"key": "gone", "value": "", "effect": "NoExecute"}
    cluster.patch("nodes", "node-1", {"spec": {"taints": [taint]}})
    told = pod_log(cluster.pod("driven-off"), {})
    assert "evicted by the taint manager" in told
    assert "deleted with a grace period of 30 s" in told


def test_a_pod_that_was_refused_tells_why() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.create("pods", hollow_pod("large", requests={"cpu": "5"}))
    cluster.advance(1)
    assert "OutOfcpu: Pod was rejected: Node didn't have" in pod_log(cluster.pod("large"), {})


def test_which_container_is_meant_must_be_clear() -> None:
    cluster = ClusterDriver(heartbeats=False)
    pod = hollow_pod("p")
    pod["spec"]["containers"].append({"name": "other", "image": "i:1"})
    cluster.create("pods", pod)
    with pytest.raises(StatusError, match="choose one of: \\[c other\\]"):
        pod_log(cluster.pod("p"), {})
    with pytest.raises(StatusError, match="container none is not valid for pod p"):
        pod_log(cluster.pod("p"), {"container": "none"})
