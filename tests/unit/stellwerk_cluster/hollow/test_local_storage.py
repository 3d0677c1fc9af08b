"""Pods that write more than they may: volumes, containers, and all of a pod together."""

from typing import Any

import pytest

from tests.support.node_driver import ClusterDriver, hollow_pod

GIBI = {"ephemeral-storage": "1Gi"}


def evicted(usage: str, **spec: Any) -> tuple[str, str]:
    """Phase and message of a pod after the kubelet has looked."""
    cluster = ClusterDriver(1, heartbeats=False)
    cluster.create("pods", hollow_pod("p", annotations={"usage": usage}, **spec))
    cluster.advance(15)
    status = cluster.pod("p")["status"]
    assert "DisruptionTarget" not in [each["type"] for each in status["conditions"]]
    return status["phase"], status.get("message", "")


def scratch(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "scratch", "emptyDir": source}]}


@pytest.mark.parametrize(
    ("usage", "spec", "message"),
    [
        pytest.param(
            "volume/scratch=1025Mi",
            scratch(sizeLimit="1Gi"),
            'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
            id="a volume",
        ),
        pytest.param(
            "logs=600Mi,writable=600Mi",
            {"limits": GIBI},
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            id="its only container",
        ),
        pytest.param(
            "logs=100Mi,volume/scratch=1Gi",
            {"limits": GIBI, **scratch()},
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            id="volumes count for the pod",
        ),
    ],
)
def test_a_pod_above_a_limit_of_its_own_is_evicted(
    usage: str, spec: dict[str, Any], message: str
) -> None:
    assert evicted(usage, **spec) == ("Failed", message)


def test_one_container_with_a_limit_beside_one_without() -> None:
    cluster = ClusterDriver(1, heartbeats=False)
    pod = hollow_pod("p", annotations={"usage": "logs=3Gi"}, limits=GIBI)
    pod["spec"]["containers"].append({"name": "free", "image": "i:1"})
    cluster.create("pods", pod)
    cluster.advance(15)
    message = 'Container c exceeded its local ephemeral storage limit "1Gi". '
    assert cluster.pod("p")["status"]["message"] == message
    assert ("Evicted", message) in cluster.events("p")


@pytest.mark.parametrize(
    ("usage", "spec"),
    [
        pytest.param("volume/scratch=1Gi", scratch(sizeLimit="1Gi"), id="up to the limit"),
        pytest.param("volume/other=2Gi", scratch(sizeLimit="1Gi"), id="in another volume"),
        pytest.param("volume/scratch=2Gi", scratch(), id="without a limit"),
        pytest.param(
            "volume/scratch=2Gi",
            scratch(sizeLimit="1Gi", medium="Memory"),
            id="in memory, which is no storage",
        ),
        pytest.param("logs=1Gi", {"limits": GIBI}, id="up to the limit of the container"),
    ],
)
def test_other_pods_stay(usage: str, spec: dict[str, Any]) -> None:
    assert evicted(usage, **spec) == ("Running", "")


def test_several_go_one_after_the_other() -> None:
    cluster = ClusterDriver(1, heartbeats=False)
    for name in ("one", "two"):
        usage = {"usage": "logs=2Gi"}
        cluster.create("pods", hollow_pod(name, annotations=usage, limits=GIBI))
    cluster.advance(20)
    assert {cluster.phase(name) for name in ("one", "two")} == {"Failed"}
    assert cluster.condition("node-1", "DiskPressure") == "False"
