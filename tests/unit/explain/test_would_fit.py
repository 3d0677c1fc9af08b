"""What would help: found wherever one change is enough, small, and true."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from stellwerk.explain.would_fit import WouldFit
from stellwerk.framework.changes import request_less
from stellwerk_simulation.cases.decide import Case
from tests.support.answers import as_json
from tests.support.builders import make_node, make_pod, owned
from tests.support.corpus import SUITES, Recording
from tests.support.single_changes import FILE, fits, unschedulable, with_change

SOLVED_BY: Mapping[str, str] = json.loads(FILE.read_text())
EXACT_KINDS = frozenset({"tolerate", "deletePod", "uncordon", "removeTaints", "labelNode"})
"""Kinds that can be made in the JSON of a case as they are described."""


def suggested(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    loaded = Case(case)
    search = WouldFit(loaded.world, loaded.pod, loaded.profile)
    for _ in search.search():
        pass
    return [as_json(suggestion.answer()) for suggestion in search.suggestions]


def texts(case: Mapping[str, Any]) -> list[str]:
    return [each["text"] for each in suggested(case)]


def sets_of(suggestions: list[dict[str, Any]]) -> list[frozenset[str]]:
    """The changes of every suggestion and alternative."""
    every = [
        changes for each in suggestions for changes in (each["changes"], *each["alternatives"])
    ]
    return [frozenset(json.dumps(change, sort_keys=True) for change in each) for each in every]


@pytest.fixture(scope="module")
def answers() -> list[tuple[Recording, list[dict[str, Any]]]]:
    """Half of the corpus's unschedulable cases, with what is suggested for each."""
    recordings = [each for suite in SUITES for each in unschedulable(suite)]
    return [(each, suggested(each.case)) for each in recordings[::2]]


def test_wherever_one_change_is_enough_such_a_change_is_suggested(
    answers: list[tuple[Recording, list[dict[str, Any]]]],
) -> None:
    solvable = [
        (recording.id, suggestions)
        for recording, suggestions in answers
        if SOLVED_BY.get(recording.id)
    ]
    missed = [
        f"{case_id}: {SOLVED_BY[case_id]}"
        for case_id, suggestions in solvable
        if not any(len(each["changes"]) == 1 for each in suggestions)
    ]
    assert len(solvable) > 150
    assert len(missed) <= 0.05 * len(solvable), missed


def test_suggestions_are_true(answers: list[tuple[Recording, list[dict[str, Any]]]]) -> None:
    for recording, suggestions in answers[::4]:
        for suggestion in suggestions:
            changes = suggestion["changes"]
            if all(change["kind"] in EXACT_KINDS for change in changes):
                case = dict(recording.case)
                for change in changes:
                    case = with_change(case, change)
                assert fits(case), f"{recording.id}: {suggestion['text']}"


def test_no_suggestion_holds_all_changes_of_another(
    answers: list[tuple[Recording, list[dict[str, Any]]]],
) -> None:
    for recording, suggestions in answers:
        sets = sets_of(suggestions)
        held = [(a, b) for a in sets for b in sets if a is not b and a <= b]
        assert not held, recording.id


def test_the_amount_that_is_lacking_is_named_for_each_node() -> None:
    nodes = [make_node("a", cpu="2"), make_node("b", cpu="2")]
    pods = [make_pod("x", cpu="1500m", node_name="a"), make_pod("y", cpu="1700m", node_name="b")]
    case = {"id": "free", "nodes": nodes, "pods": pods, "pod": make_pod("web", cpu="1")}
    assert texts(case)[0] == "free 500m CPU on a or 700m CPU on b"


def test_what_nodes_that_are_too_small_lack_is_said_of_nodes() -> None:
    nodes = [make_node(f"n{number}", cpu="4") for number in range(4)]
    found = texts({"id": "grow", "nodes": nodes, "pod": make_pod("web", cpu="6")})
    assert "add 2 CPU to n0, n1 or 2 more nodes" in found
    found = texts({"id": "grow", "nodes": nodes[:3], "pod": make_pod("web", cpu="6")})
    assert "add 2 CPU to n0, n1 or 1 more node" in found


def test_a_taint_is_tolerated_or_removed() -> None:
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    nodes = [make_node(f"n{n}", taints=[taint]) for n in range(6)]
    found = texts({"id": "taint", "nodes": nodes, "pod": make_pod("web")})
    assert found == [
        "tolerate dedicated=gpu:NoSchedule → 6 nodes",
        "remove dedicated=gpu:NoSchedule from n0, n1 or 4 more",
    ]


def test_two_changes_are_suggested_where_none_is_enough_alone() -> None:
    taint = {"key": "k", "value": "", "effect": "NoSchedule"}
    node = make_node("a", cpu="4", taints=[taint])
    pods = [make_pod("x", cpu="3500m", node_name="a")]
    found = texts({"id": "two", "nodes": [node], "pods": pods, "pod": make_pod("w", cpu="1")})
    assert found[0] == "tolerate k:NoSchedule and free 500m CPU on a"


def spread(zone: str, *names: str) -> list[dict[str, Any]]:
    return [make_pod(name, labels={"app": "web"}, node_name=f"in-{zone}") for name in names]


def over_zones(skew: int) -> dict[str, Any]:
    constraint = {
        "maxSkew": skew,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return make_pod("new", labels={"app": "web"}, cpu="1", topologySpreadConstraints=[constraint])


def test_the_likeliest_fix_comes_before_a_smaller_change_that_leaves_too_little() -> None:
    gpu = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    nodes = [make_node("small", cpu="750m"), make_node("large", cpu="4", taints=[gpu])]
    pod = make_pod("p", cpu="7")
    found = texts({"id": "likely", "nodes": nodes, "pods": [], "pod": pod})
    likely = found.index("tolerate dedicated=gpu:NoSchedule and request 4 instead of 7 CPU")
    assert likely < found.index("request 0.75 instead of 7 CPU")


@pytest.mark.parametrize(
    ("resource", "amount", "instead_of", "text"),
    [
        ("cpu", 3250, 7000, "request 3.25 instead of 7 CPU"),
        ("cpu", 250, 500, "request 250m instead of 500m CPU"),
        ("cpu", 4000, 6000, "request 4 instead of 6 CPU"),
        ("memory", 512 << 20, 4 << 30, "request 0.5Gi instead of 4Gi memory"),
        ("memory", 100 << 20, 4 << 30, "request 100Mi instead of 4Gi memory"),
        ("example.com/gpu", 2, 3, "request 2 instead of 3 example.com/gpu"),
        ("example.com/milli", 12345, 20000, "request 12345 instead of 20000 example.com/milli"),
    ],
)
def test_amounts_of_one_change_have_one_unit(
    resource: str, amount: int, instead_of: int, text: str
) -> None:
    assert request_less(resource, amount, instead_of).describe() == text


def test_pods_that_are_too_many_in_a_zone_are_counted() -> None:
    nodes = [make_node("in-a", zone="a"), make_node("in-b", zone="b", cpu="500m")]
    pods = [*spread("a", "one", "two", "three"), *spread("b", "other")]
    found = texts({"id": "skew", "nodes": nodes, "pods": pods, "pod": over_zones(1)})
    zone = "topology.kubernetes.io/zone"
    assert (
        f"2 pods too many in {zone}=a for maxSkew 1: delete default/one on in-a and delete "
        "default/three on in-a"
    ) in found
    found = texts({"id": "skew", "nodes": nodes, "pods": pods, "pod": over_zones(2)})
    assert any(each.startswith(f"1 pod too many in {zone}=a for maxSkew 2: ") for each in found)


def test_no_pod_is_named_that_a_constraint_does_not_count() -> None:
    """A pod on a node that the pending one is kept from counts for no zone."""
    nodes = [
        make_node("in-a", zone="a", labels={"ok": "yes"}),
        make_node("also-a", zone="a"),
        make_node("in-b", zone="b", cpu="500m", labels={"ok": "yes"}),
    ]
    pods = [*spread("a", "one", "two", "three"), *spread("b", "other")]
    pods.append(make_pod("alone", labels={"app": "web"}, node_name="also-a"))
    pod = over_zones(1)
    pod["spec"]["nodeSelector"] = {"ok": "yes"}
    thinned = [
        each
        for each in suggested({"id": "skew", "nodes": nodes, "pods": pods, "pod": pod})
        if "too many" in each["text"]
    ]
    assert [len(each["changes"]) for each in thinned] == [2]
    assert "alone" not in thinned[0]["text"]


def test_a_pod_that_must_not_preempt_is_told_whose_eviction_would_do() -> None:
    low = make_pod("job", cpu="2", node_name="a", priority=1, namespace="batch")
    new = make_pod("new", cpu="2", priority=10, preemptionPolicy="Never")
    loaded = Case({"id": "n", "nodes": [make_node("a", cpu="2")], "pods": [low], "pod": new})
    search = WouldFit(loaded.world, loaded.pod, loaded.profile)
    for _ in search.search():
        pass
    assert (search.eviction, search.eviction_node) == (("batch/job",), "a")


def test_the_world_is_as_it_was_after_the_search() -> None:
    nodes = [make_node("a", cpu="1"), make_node("b", cpu="1", unschedulable=True)]
    loaded = Case({"id": "w", "nodes": nodes, "pod": make_pod("w", cpu="2")})
    before = loaded.world.cache.snapshot.allocatable.copy()
    search = WouldFit(loaded.world, loaded.pod, loaded.profile)
    for _ in search.search():
        pass
    assert (loaded.world.cache.snapshot.allocatable == before).all()


def test_a_volume_or_a_claim_that_keeps_the_pod_waiting_is_named() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    waiting = make_pod("web", volumes=volumes)
    case = {"id": "volume", "nodes": [make_node("a")], "pod": waiting, "pvcs": []}
    assert texts(case) == ["do without volume data (claim missing)"]
    claims = [{"name": "gpu", "resourceClaimName": "missing"}, {"name": "nic"}]
    case["pod"] = make_pod("web", resourceClaims=claims)
    both = ["do without resource claim gpu and do without resource claim nic"]
    assert texts(case) == both
    case["pod"] = make_pod("web", resourceClaims=claims[:1])
    assert texts(case) == ["do without resource claim gpu"]


def test_a_pod_is_named_that_holds_the_device() -> None:
    device_class = {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
    }
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    driver = {"driver": "gpu.example.com", "pool": pool, "nodeName": "a"}
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}]}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    train = make_pod(
        "train", node_name="a", resourceClaims=[{"name": "g", "resourceClaimName": "held"}]
    )
    holder = {"resource": "pods", "name": "train", "uid": train["metadata"]["uid"]}
    held: dict[str, Any] = {
        "metadata": {"name": "held", "namespace": "default"},
        "spec": {"devices": devices},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [holder]},
    }
    free = {"metadata": {"name": "free", "namespace": "default"}, "spec": {"devices": devices}}
    pod = make_pod("new", resourceClaims=[{"name": "g", "resourceClaimName": "free"}])
    case = {
        "id": "device",
        "nodes": [make_node("a")],
        "pods": [train, make_pod("bystander", node_name="a")],
        "pod": pod,
        "deviceclasses": [device_class],
        "resourceslices": [
            {"metadata": {"name": "s"}, "spec": {**driver, "devices": [{"name": "gpu-0"}]}}
        ],
        "resourceclaims": [held, free],
    }
    assert texts(case) == [
        "delete default/train on a, which holds claim held",
        "do without resource claim g",
    ]
    shared = {**held["status"], "reservedFor": [holder, {**holder, "uid": "another"}]}
    case["resourceclaims"] = [{**held, "status": shared}, free]
    assert texts(case) == ["do without resource claim g"]


@pytest.mark.parametrize(
    "label",
    [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "node.kubernetes.io/instance-type",
        "topology.hostpath.csi/node",
    ],
)
def test_no_node_is_labelled_as_another_one(label: str) -> None:
    pod = make_pod("web", nodeSelector={label: "n1", "disk": "ssd"})
    nodes = [make_node("n1", labels={label: "n1"}), make_node("n2", labels={label: "n2"})]
    found = texts({"id": "labels", "nodes": nodes, "pod": pod})
    assert "label n1 disk=ssd" in found
    assert [each for each in found if label in each and each.startswith("label")] == []


def test_no_node_is_moved_to_another_zone_by_a_label() -> None:
    zone = "topology.kubernetes.io/zone"
    required = {"topologyKey": zone, "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}}
    beside = make_pod("beside", labels={"app": "web"}, cpu="1", node_name="in-a")
    nodes = [make_node("in-a", zone="a", cpu="1"), make_node("nowhere", cpu="1")]
    pod = make_pod("web", cpu="1", affinity=affinity)
    found = texts({"id": "zones", "nodes": nodes, "pods": [beside], "pod": pod})
    assert found
    assert [each for each in found if each.startswith("label")] == []


def test_what_was_not_tried_is_not_counted() -> None:
    nodes = [make_node(f"n{number}") for number in range(200)]
    pod = make_pod("web", nodeSelector={"disk": "ssd"})
    found = texts({"id": "labels", "nodes": nodes, "pod": pod})
    (text,) = [each for each in found if each.startswith("label ")]
    assert text.endswith("or another: 32 would work, of 32 tried among 200 nodes")


def test_a_pod_that_comes_back_or_has_a_budget_is_named_so() -> None:
    labels = {"app": "low"}
    pods = [
        owned(make_pod("a", cpu="2", node_name="n", labels=labels), "low-1"),
        make_pod("b", cpu="2", node_name="n"),
    ]
    loaded = Case({
        "id": "comes back",
        "nodes": [make_node("n", cpu="4")],
        "pods": [{**each, "status": {"phase": "Running"}} for each in pods],
        "pod": make_pod("web", cpu="2"),
        "pdbs": [],
    })  # fmt: skip
    budget = {
        "metadata": {"name": "low", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": 0},
    }
    loaded.world.objects.set("PodDisruptionBudget", budget)
    search = WouldFit(loaded.world, loaded.pod, loaded.profile)
    for _ in search.search():
        pass
    found = [each.text for each in search.suggestions if each.text.startswith("delete")]
    assert found[0] == "delete default/b on n"
    assert found[1] == (
        "delete default/a on n (ReplicaSet low-1 makes another one; budget default/low forbids "
        "its eviction now)"
    )
