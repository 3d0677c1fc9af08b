"""A node as the scheduler sees it."""

import json
from typing import Any

import pytest

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo, describes_node, parse_node, zone_key
from stellwerk_kube.taints import Taint
from tests.support.builders import make_node

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
BETA_REGION, BETA_ZONE = (
    f"failure-domain.beta.kubernetes.io/{part}" for part in ("region", "zone")
)


def test_what_is_kept_of_a_node() -> None:
    obj = make_node(
        "n1",
        cpu="3920m",
        memory="1Gi",
        allocatable={"example.com/gpu": "2"},
        taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}],
        images=[{"names": ["app:1", "app@sha256:0"], "sizeBytes": 5}, {"sizeBytes": 7}],
        unschedulable=True,
    )
    obj["metadata"]["annotations"] = {
        "scheduler.alpha.kubernetes.io/preferAvoidPods": "{}",
        "other": "x",
    }
    obj["status"]["declaredFeatures"] = ["A", "B"]
    node = parse_node(obj)
    assert node.allocatable == {
        "cpu": 3920,
        "memory": 1 << 30,
        "pods": 110,
        "example.com/gpu": 2,
    }
    assert node.taints == (Taint("k", "v", "NoSchedule"),)
    assert node.images == {"app:1": 5, "app@sha256:0": 5}
    assert node.unschedulable
    assert list(node.annotations) == ["scheduler.alpha.kubernetes.io/preferAvoidPods"]
    assert node.declared_features == {"A", "B"}


def test_of_an_image_name_listed_twice_the_first_size_counts() -> None:
    images = [{"names": ["app:1"], "sizeBytes": 5}, {"names": ["other", "app:1"], "sizeBytes": 7}]
    assert parse_node(make_node("n", images=images)).images == {"app:1": 5, "other": 7}


def test_a_node_that_says_nothing_offers_nothing() -> None:
    node = parse_node({"metadata": {"name": "bare"}})
    assert node.uid == "bare"
    assert (node.allocatable, node.taints, node.unschedulable) == ({}, (), False)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param({}, id="no metadata"),
        pytest.param({"metadata": {}}, id="no name"),
        pytest.param(make_node("n", cpu="lots"), id="no quantity"),
        pytest.param(make_node("n", taints=[{"key": "k"}]), id="a taint without effect"),
    ],
)
def test_a_malformed_node(obj: JsonObject) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse_node(obj)


def changed(**change: Any) -> NodeInfo:
    obj = make_node("n1", zone="a")
    for part, fields in change.items():
        obj[part] |= fields
    return parse_node(obj)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"metadata": {"resourceVersion": "7"}}, True, id="a new version"),
        pytest.param({"status": {"addresses": [{"address": "::1"}]}}, True, id="an address"),
        pytest.param({"status": {"conditions": [{"type": "Ready"}]}}, True, id="a heartbeat"),
        pytest.param({"metadata": {"annotations": {"x": "y"}}}, True, id="an annotation"),
        pytest.param({"metadata": {"uid": "again"}}, False, id="another node of that name"),
        pytest.param({"metadata": {"labels": {}}}, False, id="labels"),
        pytest.param({"spec": {"unschedulable": True}}, False, id="cordoned"),
        pytest.param(
            {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, False, id="a taint"
        ),
        pytest.param({"status": {"allocatable": {"cpu": "1"}}}, False, id="allocatable"),
        pytest.param({"status": {"images": [{"names": ["a"]}]}}, False, id="an image"),
        pytest.param({"status": {"declaredFeatures": ["F"]}}, False, id="a feature"),
    ],
)
def test_what_counts_as_a_change(change: JsonObject, *, same: bool) -> None:
    assert changed().same_for_scheduling(changed(**change)) is same


@pytest.mark.parametrize(
    ("labels", "other", "same"),
    [
        pytest.param({ZONE: "a"}, {BETA_ZONE: "a"}, True, id="beta and stable are one"),
        pytest.param({ZONE: "b", BETA_ZONE: "a"}, {ZONE: "a"}, True, id="beta wins"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a"}, False, id="another region"),
        pytest.param({REGION: "a"}, {ZONE: "a"}, False, id="a region is no zone"),
        pytest.param({BETA_REGION: "r", ZONE: "a"}, {REGION: "r", ZONE: "a"}, True, id="mixed"),
        pytest.param({}, {"zone": "a"}, True, id="no zone at all"),
    ],
)
def test_zone_keys(labels: dict[str, str], other: dict[str, str], *, same: bool) -> None:
    assert (zone_key(labels) == zone_key(other)) is same


@pytest.mark.parametrize(
    ("label", "describes"),
    [
        ("kubernetes.io/hostname", True),
        ("kubernetes.io/os", True),
        ("beta.kubernetes.io/arch", True),
        ("node.kubernetes.io/instance-type", True),
        ("failure-domain.beta.kubernetes.io/region", True),
        ("feature.node.kubernetes.io/cpu-cpuid.AVX2", True),
        ("topology.ebs.csi.aws.com/zone", True),
        ("eks.amazonaws.com/nodegroup", True),
        ("cloud.google.com/gke-nodepool", True),
        ("karpenter.sh/capacity-type", True),
        ("nvidia.com/gpu.product", True),
        ("node-restriction.kubernetes.io/tenant", False),
        ("node-role.kubernetes.io/worker", False),
        ("disk", False),
        ("example.com/rack", False),
        ("notkubernetes.io/disk", False),
    ],
)
def test_labels_that_say_what_a_node_is(label: str, *, describes: bool) -> None:
    assert describes_node(label) is describes


@pytest.mark.parametrize(("letters", "is_shared"), [(100, True), (1000, False)])
def test_nodes_share_texts_and_amounts_of_usual_length_alone(
    letters: int, *, is_shared: bool
) -> None:
    image, amounts = "i" * letters, {f"example.com/{'r' * letters * 5}": "1"}
    obj = make_node("n", allocatable=amounts, images=[{"names": [image], "sizeBytes": 1}])
    first, second = (parse_node(json.loads(json.dumps(obj))) for _ in range(2))
    assert first.images == second.images == {image: 1}
    assert (next(iter(first.images)) is next(iter(second.images))) == is_shared
    assert first.allocatable == second.allocatable
    assert (first.allocatable is second.allocatable) == is_shared
