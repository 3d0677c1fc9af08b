"""What a manifest forbids is found on the node that a pod is on."""

from typing import Any

import pytest

from stellwerk_cli.demo.demo import forbidden
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, pod_info

ZONE = "topology.kubernetes.io/zone"
SELECTOR = {"matchLabels": {"app": "web"}}
TERM = {"topologyKey": ZONE, "labelSelector": SELECTOR}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = {
    node["metadata"]["name"]: parse_node(node)
    for node in (
        make_node("a", zone="z1"),
        make_node("b", zone="z2"),
        make_node("t", zone="z2", taints=[{"key": "k", "effect": "NoSchedule"}]),
    )
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": SELECTOR,
}


@pytest.mark.parametrize(
    ("node", "others", "spec", "objection"),
    [
        pytest.param("a", [], {}, "", id="nothing"),
        pytest.param("a", [], {"nodeSelector": {"d": "s"}}, "not labelled d=s", id="selector"),
        pytest.param("t", [], {}, "taint k", id="a taint"),
        pytest.param("t", [], {"tolerations": [{"operator": "Exists"}]}, "", id="tolerated"),
        pytest.param(
            "a",
            ["a"],
            {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
            "to be avoided",
            id="anti-affinity",
        ),
        pytest.param(
            "a",
            ["b"],
            {"affinity": {"podAffinity": {REQUIRED: [TERM]}}, "labels": {"app": "db"}},
            "asked for",
            id="affinity",
        ),
        pytest.param(
            "a", ["a"], {"topologySpreadConstraints": [SPREAD]}, "differs by 2", id="uneven"
        ),
        pytest.param("a", ["b"], {"topologySpreadConstraints": [SPREAD]}, "", id="even"),
    ],
)
def test_objections(node: str, others: list[str], spec: dict[str, Any], objection: str) -> None:
    labels = {"labels": {"app": "web"}}
    pod = pod_info("new", node_name=node, **(labels | spec))
    placed = [
        pod_info(f"o{n}", node_name=name, labels={"app": "web"}) for n, name in enumerate(others)
    ]
    found = forbidden(pod, [pod, *placed], NODES)
    assert (objection in found) if objection else not found
