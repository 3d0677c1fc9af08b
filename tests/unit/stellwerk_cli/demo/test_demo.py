"""The demo's table in plain words; what a manifest forbids is found on the node of a pod."""

from typing import Any

import pytest

from stellwerk.answers.pod import (
    DecisionFields,
    OtherNodes,
    PodExplanation,
    RankedNode,
    ReasonCount,
    RecomputedVerdicts,
    ScoreFields,
)
from stellwerk.answers.suggestion import Suggestion
from stellwerk_cli.demo.demo import Example, forbidden, in_plain_words, table, why
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


AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TAINTS = "node(s) had untolerated taint(s)"
AVOIDS = "node(s) didn't match pod anti-affinity rules"


def placed(feasible: int, against: dict[str, int], **more: Any) -> PodExplanation:
    moment = "2026-01-01T00:00:00Z"
    reasons = [ReasonCount(plugin="P", reasons=[text], nodes=n) for text, n in against.items()]
    decision = DecisionFields(
        decided_at=moment,
        attempts=1,
        nodes=6,
        evaluated=6,
        feasible=feasible,
        nominated=False,
        others=OtherNodes(counted_at=moment, nodes=6 - feasible, reasons=reasons),
        **{"tied": 1, "best": [], **more},
    )
    return PodExplanation(pod="default/p", state="bound", decision=decision)


def test_a_workload_is_a_row_of_80_columns_with_the_reason_in_plain_words() -> None:
    ssd = {"nodeSelector": {"disktype": "ssd"}}
    pods = [
        pod_info("one", node_name="kube-04", **ssd),
        *(pod_info(f"cache-{n}", node_name=f"kube-0{n}") for n in range(1, 4)),
        pod_info("no", **ssd),
    ]
    text = "request 4 CPU instead of 64 CPU"
    fix = Suggestion(text=text, changes=[], feasible_nodes=1, nodes=[], alternatives=[])
    explained: dict[str, PodExplanation | None] = {
        "one": placed(1, {TAINTS: 1, AFFINITY: 4}),
        "cache-1": placed(5, {TAINTS: 1}),
        "cache-2": placed(4, {TAINTS: 1, AVOIDS: 1}),
        "cache-3": placed(3, {TAINTS: 1, AVOIDS: 2}),
        "no": PodExplanation(
            pod="default/no",
            state="waiting",
            verdicts=RecomputedVerdicts(
                recomputed_at="2026-01-01T00:00:00Z",
                first_reasons={AFFINITY: 5, "Insufficient cpu": 1},
            ),
            would_fit=[fix],
        ),
    }
    objects = [
        {"kind": kind, "metadata": {"name": name}, "spec": {}}
        for kind, name in (("Pod", "one"), ("Deployment", "cache"), ("Pod", "no"))
    ]
    examples = [Example("All", schedulable=True, objects=tuple(objects))]
    lines = list(table(examples, pods, explained))
    assert lines == [
        "WORKLOAD   ON                  WHY",
        "one        kube-04             the only node that fits: 4 lack disktype=ssd, 1",
        "                               is tainted",
        "cache (3)  kube-01, kube-02,   3 to 5 of 6 nodes fit each: 1 is tainted, up to 2",
        "           kube-03             have a pod that it avoids",
        "no         none                no node fits: 5 lack disktype=ssd, 1 has too",
        "                               little cpu",
        "\nno fits nowhere. Each of these changes was tried, and lets it in:",
        "  - request 4 CPU instead of 64 CPU",
    ]
    verbose = list(table(examples, pods, explained, is_verbose=True))
    assert f"  one: 1 of 6 nodes fit; 4: {AFFINITY};" in verbose
    assert max(map(len, verbose)) <= 80


@pytest.mark.parametrize(
    ("tied", "leads", "reason"),
    [
        pytest.param(3, [], "one of 3 equally good of 4 that fit", id="a tie"),
        pytest.param(
            1,
            [("NodeAffinity", 200), ("NodeResourcesFit", 1)],
            "best of 4 that fit, as the one it prefers",
            id="a score",
        ),
        pytest.param(1, [("Own", 2)], "best of 4 that fit, by Own", id="a plugin of a user"),
    ],
)
def test_the_choice_is_said(tied: int, leads: list[tuple[str, int]], reason: str) -> None:
    best = [
        RankedNode(
            node=name,
            rank=1,
            total=0,
            scores={
                plugin: ScoreFields(raw=0, normalized=0, weighted=lead * factor)
                for plugin, lead in leads
            },
        )
        for name, factor in (("a", 1), ("b", 0))
    ]
    found = {"p": placed(4, {"other words": 2}, tied=tied, best=best)}
    assert why([pod_info("p", node_name="a")], found) == f"{reason}: 2 (other words)"


def test_labels_that_are_required_are_not_named_one_by_one() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {REQUIRED: {"nodeSelectorTerms": [term]}}
    pod = pod_info("p", affinity={"nodeAffinity": required})
    assert in_plain_words(AFFINITY, 1, pod) == "1 lacks the labels it requires"
