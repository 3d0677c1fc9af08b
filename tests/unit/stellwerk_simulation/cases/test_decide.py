"""`decide` resolves priorities as admission would have."""

import json
from typing import Any

import pytest

from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, Release
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import CaseError, decide
from tests.support.builders import make_node, make_pod


def test_a_class_name_without_a_priority_is_resolved() -> None:
    result = decide(
        {
            "id": "classes",
            "nodes": [make_node("n1", cpu="1")],
            "pods": [make_pod("low", cpu="1", node_name="n1")],
            "pod": make_pod("new", cpu="1", priorityClassName="high"),
            "priorityclasses": [
                {"metadata": {"name": "high"}, "value": 1000},
                {"metadata": {"name": "usual"}, "value": 10, "globalDefault": True},
            ],
        }
    )
    assert result["preemption"]["victims"] == ["default/low"]


def test_the_global_default_applies_to_pods_without_a_class() -> None:
    result = decide(
        {
            "id": "default",
            "nodes": [make_node("n1", cpu="1")],
            "pods": [make_pod("explicit", cpu="1", node_name="n1", priority=5)],
            "pod": make_pod("new", cpu="1"),
            "priorityclasses": [
                {
                    "metadata": {"name": "usual"},
                    "value": 10,
                    "globalDefault": True,
                    "preemptionPolicy": "Never",
                }
            ],
        }
    )
    assert "preemptionPolicy=Never" in result["message"]


def test_a_score_may_come_from_a_book_of_the_plugin() -> None:
    controller = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web", "uid": "u1"}
    avoids = make_node("a")
    signature = {"podSignature": {"podController": controller}}
    annotation = "scheduler.alpha.kubernetes.io/preferAvoidPods"
    avoids["metadata"]["annotations"] = {annotation: json.dumps({"preferAvoidPods": [signature]})}
    pod = make_pod("web")
    pod["metadata"]["ownerReferences"] = [{**controller, "controller": True}]
    profile = {"plugins": {"score": {"enabled": [{"name": "NodePreferAvoidPods"}]}}}
    answer = decide({"id": "x", "profile": profile, "nodes": [avoids, make_node("b")], "pod": pod})
    assert answer["selected"] == ["b"]


AS_1_37 = Compatibility.with_release(Release.V1_37)


@pytest.mark.parametrize(
    ("compatibility", "profile", "release"),
    [
        pytest.param(AS_RECORDED, {}, "1.36.2", id="1.36.2 where nothing is said"),
        (AS_1_37, {}, str(AS_1_37.version)),
        (AS_1_37, {"compatibility": "auto"}, str(AS_1_37.version)),
        pytest.param(
            AS_RECORDED,
            {"compatibility": "1.37"},
            str(AS_1_37.version),
            id="a profile goes before the command",
        ),
        pytest.param(
            AS_1_37, {"compatibility": "1.36.1"}, "1.36.1", id="a profile names a patch release"
        ),
    ],
)
def test_an_answer_names_the_release_that_it_follows(
    compatibility: Compatibility, profile: dict[str, str], release: str
) -> None:
    case = {"id": "r", "profile": profile, "nodes": [make_node("n1")], "pod": make_pod("p")}
    assert decide(case, compatibility)["compatibility"] == release


ON_N1 = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
ON_N2 = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}


def using_claim(**spec: Any) -> JsonObject:
    return make_pod("web", resourceClaims=[{"name": "c", "resourceClaimName": "c"}], **spec)


def test_a_rejection_by_prefilter_names_its_plugin_and_no_nodes() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ON_N1]}}
    pod = using_claim(affinity={"nodeAffinity": required})
    nodes = [make_node("n1"), make_node("n2")]
    reasons = ['could not find ResourceClaim "default/c"']
    assert decide({"id": "x", "nodes": nodes, "pod": pod})["prefilter"] == {
        "plugin": "DynamicResources",
        "code": "UnschedulableAndUnresolvable",
        "reasons": reasons,
        "nodeNames": None,
    }


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_pod_that_is_done_keeps_a_claim_as_long_as_it_is_in_reserved_for(phase: str) -> None:
    user = make_pod("user", node_name="n2")
    user["status"] = {"phase": phase}
    entry = {"resource": "pods", "name": "user", "uid": user["metadata"]["uid"]}
    allocation = {"devices": {}, "nodeSelector": {"nodeSelectorTerms": [ON_N2]}}
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {}},
        "status": {"allocation": allocation, "reservedFor": [entry]},
    }
    case = {"id": "x", "nodes": [make_node("n1")], "pods": [user], "pod": using_claim()}
    kept = decide({**case, "resourceclaims": [claim]})
    assert "deallocate" not in kept
    assert kept["message"].split(". ")[1].startswith("still not schedulable, preemption: ")
    freed = {**claim, "status": {"allocation": allocation, "reservedFor": []}}
    assert decide({**case, "resourceclaims": [freed]})["deallocate"] == ["c"]


@pytest.mark.parametrize(
    ("now", "victim"),
    [("2026-06-01T10:05:00Z", "default/old"), ("2026-06-01T12:00:00Z", "default/young")],
)
def test_a_case_says_of_when_it_is(now: str, victim: str) -> None:
    pods = []
    for name, started in {"old": "2026-06-01T08:00:00Z", "young": "2026-06-01T10:00:00Z"}.items():
        pod = make_pod(name, cpu="1", node_name="n", priority=0)
        pods.append({**pod, "status": {"phase": "Running", "startTime": started}})
    args = {"minRunSeconds": 600}
    result = decide(
        {
            "id": "x",
            "now": now,
            "profile": {"pluginConfig": [{"name": "DefaultPreemption", "args": args}]},
            "nodes": [make_node("n", cpu="2")],
            "pods": pods,
            "pod": make_pod("urgent", cpu="1", priority=9),
        }
    )
    assert result["preemption"]["victims"] == [victim]


def test_a_case_of_no_time_is_refused() -> None:
    with pytest.raises(CaseError, match=r"^now: "):
        decide({"id": "x", "now": "noon", "pod": make_pod("p")})
