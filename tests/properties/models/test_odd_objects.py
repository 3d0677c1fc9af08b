"""Objects that no API server should let through cost themselves, and never a scheduling cycle."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import parse_pod
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_simulation.cases.decide import CaseError, decide
from tests.support.builders import make_node, make_pod, pod_info

Path: TypeAlias = tuple[str | int, ...]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""What parsers raise and event handlers expect: the object is counted and skipped."""

DELETED: Final = object()
ODD: Final[tuple[Any, ...]] = (
    *(DELETED, None, "", "x", "٣", "\ud800", "9E", "-9E", "1e99999"),
    *(0, -5, 5, 10**30, 1.5, 1e308, float("inf"), True),
    *([], [None], [5], ["x"], [{}], {}, {"a": None}, {"a": 5}, {"a": ["b"]}),
)


def term() -> JsonObject:
    return {
        "labelSelector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "n", "operator": "In", "values": ["1"]}],
        },
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "namespaces": ["default"],
        "topologyKey": "kubernetes.io/hostname",
        "matchLabelKeys": ["app"],
        "mismatchLabelKeys": ["n"],
    }


def constraint(when: str) -> JsonObject:
    return {
        "maxSkew": 1,
        "minDomains": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "web"}},
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["app"],
    }


def rich_pod(name: str) -> JsonObject:
    """A pod that says something in every field that a scheduler reads."""
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": 2}},
        "ports": [{"hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP"}],
        "restartPolicyRules": [{"action": "None"}],
    }
    expression = {"key": "n", "operator": "Gt", "values": ["3"]}
    pod = make_pod(
        name,
        labels={"app": "web", "n": "1"},
        priority=5,
        preemptionPolicy="PreemptLowerPriority",
        nodeSelector={"disk": "ssd"},
        tolerations=[
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
        ],
        affinity={
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [expression],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ],
                        }
                    ]
                },
                PREFERRED: [{"weight": 5, "preference": {"matchExpressions": [expression]}}],
            },
            "podAffinity": {PREFERRED: [{"weight": 3, "podAffinityTerm": term()}]},
            "podAntiAffinity": {REQUIRED: [term()]},
        },
        topologySpreadConstraints=[constraint("DoNotSchedule"), constraint("ScheduleAnyway")],
        overhead={"cpu": "1m"},
        resources={"requests": {"cpu": "2"}},
        hostNetwork=True,
        initContainers=[{**container, "name": "sidecar", "restartPolicy": "Always"}],
        volumes=[
            {"name": "disk", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"name": "blocks", "rbd": {"monitors": ["a"], "pool": "p", "image": "i"}},
            {"name": "files", "image": {"reference": "registry.example/files"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
        ],
    )
    pod["spec"]["containers"] = [container]
    pod["metadata"] |= {
        "resourceVersion": "5",
        "generation": 1,
        "ownerReferences": [
            {
                "controller": True,
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": "u",
            }
        ],
    }
    pod["status"] = {
        "phase": "Pending",
        "nominatedNodeName": "n2",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        "containerStatuses": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": "2"}},
                "allocatedResources": {"cpu": "1"},
            }
        ],
        "resources": {"requests": {"cpu": "3"}},
    }
    return pod


def simple_pod(name: str) -> JsonObject:
    """The same without what keeps it from being placed here."""
    pod = rich_pod(name)
    for field in ("volumes", "topologySpreadConstraints"):
        del pod["spec"][field]
    del pod["spec"]["affinity"]["podAntiAffinity"]
    return pod


def rich_node(name: str) -> JsonObject:
    node = make_node(
        name,
        cpu="8",
        zone="z1",
        labels={"disk": "ssd", "n": "4"},
        taints=[{"key": "k", "value": "v", "effect": "NoExecute"}],
        images=[{"names": ["registry.example/app:1"], "sizeBytes": 50_000_000}],
        allocatable={"example.com/gpu": "2"},
    )
    node["metadata"]["resourceVersion"] = "5"
    node["metadata"]["annotations"] = {"scheduler.alpha.kubernetes.io/preferAvoidPods": "{}"}
    node["status"]["declaredFeatures"] = ["Feature"]
    return node


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict | list):
        children = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in children:
            yield from paths(child, (*path, key))


@st.composite
def odd(draw: st.DrawFn, usual: JsonObject) -> JsonObject:
    """The object with one to three of its values replaced or taken away."""
    obj = deepcopy(usual)
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(list(paths(obj))))
        place: Any = obj
        for step in above:
            place = place[step]
        value = draw(st.sampled_from(ODD))
        if value is not DELETED:  # a copy would be another one
            place[last] = deepcopy(value)
        else:
            place.pop(last)
    return obj


PODS = st.sampled_from([rich_pod, simple_pod]).flatmap(lambda make: odd(make("odd")))
NODES = odd(rich_node("n1"))


def decided(nodes: list[JsonObject], pods: list[JsonObject], pod: JsonObject) -> bool:
    """Whether there was a decision, and not a refusal of one of the objects."""
    try:
        result = decide({"id": "odd", "nodes": nodes, "pods": pods, "pod": pod})
    except (CaseError, ProfileError):
        return False
    return bool(result["id"] == "odd")


def test_the_usual_objects_are_decided_with() -> None:
    assert decided([rich_node("n1")], [simple_pod("other")], simple_pod("web"))
    assert decided([rich_node("n1")], [rich_pod("other")], rich_pod("web"))


@given(PODS)
def test_an_odd_pod_is_refused_or_decided(pod: JsonObject) -> None:
    decided([rich_node("n1")], [make_pod("low", node_name="n1", priority=-5)], pod)


@given(PODS)
def test_an_odd_pod_on_a_node_is_refused_or_counted(pod: JsonObject) -> None:
    if isinstance(pod.get("spec"), dict):
        pod["spec"]["nodeName"] = "n1"
    decided([rich_node("n1"), rich_node("n2")], [pod], simple_pod("web"))
    decided([rich_node("n1"), rich_node("n2")], [pod], rich_pod("web"))


@given(NODES)
def test_an_odd_node_is_refused_or_decided_on(node: JsonObject) -> None:
    on_it = make_pod("low", node_name="n1", cpu="7", priority=-5)
    decided([node, rich_node("n2")], [on_it], simple_pod("web"))
    decided([node], [on_it], rich_pod("web"))


@given(PODS, NODES)
def test_what_the_cache_took_it_gives_back(pod: JsonObject, node: JsonObject) -> None:
    cache = Cache()
    try:
        parsed_pod, parsed_node = parse_pod(pod), parse_node(node)
    except MALFORMED:
        return
    cache.set_node(parsed_node)
    for uid, request in (("a", "9E"), ("b", "9E"), ("c", "9E")):
        cache.set_pod(pod_info(uid, uid=uid, memory=request, node_name=parsed_node.name))
    cache.set_pod(parsed_pod.with_node(parsed_node.name))
    requested = cache.update_snapshot().requested
    assert (requested >= 0).all()
    for uid in [pod.uid for pod in cache.pods()]:
        cache.remove_pod(uid)
    assert not cache.update_snapshot().requested.any()
    cache.remove_node(parsed_node.name)
    assert cache.update_snapshot().node_count == 0


@pytest.mark.parametrize("amount", ["-1", "-9E", -5])
def test_an_amount_below_zero_makes_no_room(amount: str | int) -> None:
    pod = parse_pod(make_pod("web", requests={"cpu": amount, "memory": amount}))  # type: ignore[dict-item]
    assert pod.amounts.requests == {"cpu": 0, "memory": 0}
    assert parse_node(make_node("n", cpu=str(amount))).allocatable["cpu"] == 0
