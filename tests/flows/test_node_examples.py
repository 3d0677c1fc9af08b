"""The examples of the documentation that kubelets and node controllers answer, in virtual time."""

from typing import Any

import pytest
import yaml

from stellwerk_cluster.hollow.eviction_thresholds import parse_configuration
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.hollow.lifecycle import parse_stages
from stellwerk_kube.json_values import JsonObject
from tests.support.node_driver import ClusterDriver, hollow_pod
from tests.support.repository import ROOT

EXAMPLES = ROOT / "docs" / "examples"


def content(file: str) -> Any:
    return yaml.safe_load((EXAMPLES / file).read_text())


def nodes_for(examples: str) -> list[JsonObject]:
    """The nodes that lie beside the examples for them."""
    text = (EXAMPLES / "nodes" / f"{examples}.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def cluster_of(file: str) -> ClusterDriver:
    configuration = parse_configuration(content(file), file)
    kubelet = KubeletOptions(configuration=configuration)
    return ClusterDriver(nodes_for("ten-gibibytes"), heartbeats=False, kubelet=kubelet)


def apply(cluster: ClusterDriver, manifest: JsonObject) -> None:
    cluster.create("pods", manifest)
    cluster.advance(1)


@pytest.mark.parametrize(
    ("file", "name", "outcome"),
    [
        pytest.param("node-name.yaml", "nginx", ("Running", None), id="it runs unscheduled"),
        pytest.param(
            "node-name-too-large.yaml", "too-large", ("Failed", "OutOfcpu"), id="it is too large"
        ),
    ],
)
def test_a_pod_with_a_node_name_is_for_the_kubelet_alone(
    file: str, name: str, outcome: tuple[str, str | None]
) -> None:
    cluster = ClusterDriver(nodes_for("kube-01"), heartbeats=False)
    apply(cluster, content(file))
    status = cluster.pod(name)["status"]
    assert (status["phase"], status.get("reason")) == outcome


def test_a_node_name_does_not_override_a_node_selector() -> None:
    cluster = ClusterDriver(heartbeats=False)
    apply(cluster, hollow_pod("p", nodeSelector={"disktype": "ssd"}))
    assert cluster.pod("p")["status"]["reason"] == "NodeAffinity"


def test_a_label_that_changes_later_evicts_nothing() -> None:
    cluster = ClusterDriver(heartbeats=False)
    cluster.patch("nodes", "node-1", {"metadata": {"labels": {"disktype": "ssd"}}})
    apply(cluster, hollow_pod("p", nodeSelector={"disktype": "ssd"}))
    cluster.patch("nodes", "node-1", {"metadata": {"labels": {"disktype": None}}})
    cluster.advance(60)
    assert cluster.phase("p") == "Running"


def test_minimum_reclaim_goes_on_until_1524_mebibytes_are_free() -> None:
    cluster = cluster_of("eviction-minimum-reclaim.kubelet.yaml")
    for name, used in (("one", "300Mi"), ("two", "400Mi"), ("three", "200Mi")):
        apply(cluster, hollow_pod(name, annotations={"usage": f"logs={used}"}))
    # 600Mi are left: below 1Gi. With 1000Mi, and with 1300Mi, 1524Mi are not reached yet.
    cluster.annotate("nodes", "node-1", usage="nodefs=100900Mi")
    cluster.advance(40)
    assert {cluster.phase(name) for name in ("one", "two", "three")} == {"Failed"}
    cluster.annotate("nodes", "node-1", usage="nodefs=100800Mi")
    apply(cluster, hollow_pod("later", annotations={"usage": "logs=1Mi"}, node_name="node-1"))
    assert cluster.pod("later")["status"]["reason"] == "Evicted"


def test_images_are_reclaimed_until_102_gibibytes_are_free() -> None:
    cluster = cluster_of("eviction-minimum-reclaim.kubelet.yaml")
    for name, used in (("one", "2Gi"), ("two", "1500Mi"), ("three", "1Gi")):
        apply(cluster, hollow_pod(name, annotations={"usage": f"writable={used}"}))
    # 200Gi: 99.5Gi are left, then 101.5Gi, then 103Gi.
    cluster.annotate("nodes", "node-1", capacity="imagefs=200Gi", usage="imagefs=96Gi")
    cluster.advance(40)
    phases = [cluster.phase(name) for name in ("one", "two", "three")]
    assert phases == ["Failed", "Failed", "Running"]


def test_reserved_memory_is_not_allocatable_and_pods_go_below_500_mebibytes() -> None:
    cluster = cluster_of("eviction-reserved-memory.kubelet.yaml")
    assert cluster.node("node-1")["status"]["allocatable"]["memory"] == "8204Mi"
    apply(cluster, hollow_pod("p", annotations={"usage": "memory=9739Mi"}))
    cluster.advance(30)
    assert cluster.phase("p") == "Running"
    cluster.annotate("pods", "p", usage="memory=9741Mi")
    cluster.advance(15)
    assert cluster.pod("p")["status"]["reason"] == "Evicted"


def test_stages_say_how_pods_live() -> None:
    stages = tuple(parse_stages(content("slow-start.stages.yaml"), "f"))
    cluster = ClusterDriver(heartbeats=False, kubelet=KubeletOptions(stages=stages))
    pod = hollow_pod("db")
    pod["metadata"]["labels"] = {"app": "database"}
    cluster.create("pods", pod)
    cluster.advance(29)
    assert cluster.phase("db") == "Pending"
    cluster.advance(60)
    assert not cluster.pod("db")["status"]["containerStatuses"][0]["ready"]
    cluster.advance(3)
    assert cluster.pod("db")["status"]["containerStatuses"][0]["ready"]
