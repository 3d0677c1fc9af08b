"""Pods that are larger than every node, by whatever they request."""

from stellwerk_simulation.hopeless import pods_that_fit_nowhere
from stellwerk_simulation.manifests import node_of, pod_of
from stellwerk_simulation.trace import TraceNode, TracePod
from tests.support.builders import make_node, make_pod

SMALL = TraceNode("small", 4000, 8192, 2, "T4")
LARGE = TraceNode("large", 96_000, 1024, 0, "")


def names(pods: list[TracePod], nodes: list[TraceNode]) -> list[str]:
    return [pod.name for pod in pods_that_fit_nowhere(pods, nodes)]


def test_no_node_has_enough_of_everything() -> None:
    pods = [
        TracePod("fits", 4000, 8192, 2, 1000, ("T4", "G2")),
        TracePod("cpu", 97_000, 1, 0, 0, ()),
        TracePod("cpu-and-memory", 5000, 2048, 0, 0, ()),
        TracePod("devices", 1, 1, 3, 1000, ()),
        TracePod("model", 1, 1, 1, 500, ("G2",)),
    ]
    assert names(pods, [SMALL, LARGE]) == ["cpu", "cpu-and-memory", "devices", "model"]


def test_extended_resources_of_manifests_count() -> None:
    resource = "example.com/card"
    nodes = [node_of(make_node("n", allocatable={resource: "2"}))]
    pods = [pod_of(make_pod(f"p{number}", requests={resource: str(number)})) for number in (2, 3)]
    assert names(pods, nodes) == ["default/p3"]
