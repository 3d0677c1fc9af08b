"""NodeName, NodeUnschedulable, TaintToleration and NodeAffinity: texts, codes, what is skipped."""

from typing import Any

import pytest

from stellwerk.framework.types import Code, CycleState
from stellwerk.plugins.node_affinity import NodeAffinity
from stellwerk.plugins.node_declared_features import NodeDeclaredFeatures
from stellwerk.plugins.node_name import NodeName
from stellwerk.plugins.node_unschedulable import NodeUnschedulable
from stellwerk.plugins.shared.score_normalization import normalize_to_highest
from stellwerk.plugins.taint_toleration import TaintToleration
from stellwerk.snapshot.snapshot import NodeView
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import (
    make_plugin,
    raw_scores,
    reasons_on,
    scores_on,
    statuses,
)

ON_SSD = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def preferred(*weighted: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    terms = [{"weight": weight, "preference": term} for weight, term in weighted]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def label_is(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def name_in(*names: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": list(names)}


# --- NodeName and NodeUnschedulable -----------------------------------------------------------


def test_node_name_rejects_every_other_node() -> None:
    pod = pod_info("p", node_name="b")
    rejected = {"a": ("node(s) didn't match the requested node name",)}
    assert reasons_on(NodeName, pod, [make_node("a"), make_node("b")]) == rejected


def test_a_pod_without_node_name_may_go_anywhere() -> None:
    assert reasons_on(NodeName, pod_info("p"), [make_node("a")]) == {}


def test_verdicts_on_a_named_node_are_not_cached_for_the_spec() -> None:
    plugin = make_plugin(NodeName)
    free, named = pod_info("p"), pod_info("p", node_name="a")
    assert free.spec is named.spec
    assert plugin.filter_key(CycleState(), free) is free.spec
    assert plugin.filter_key(CycleState(), named) is None


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        pytest.param([], False, id="no toleration"),
        pytest.param([{"operator": "Exists"}], True, id="everything tolerated"),
        pytest.param(
            [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}], True, id="by key"
        ),
        pytest.param(
            [
                {
                    "key": "node.kubernetes.io/unschedulable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                }
            ],
            False,
            id="another effect",
        ),
    ],
)
def test_a_cordoned_node_takes_only_pods_that_tolerate_it(
    tolerations: list[dict[str, str]], *, fits: bool
) -> None:
    pod = pod_info("p", tolerations=tolerations)
    nodes = [make_node("cordoned", unschedulable=True), make_node("open")]
    expected = {} if fits else {"cordoned": ("node(s) were unschedulable",)}
    assert reasons_on(NodeUnschedulable, pod, nodes) == expected


# --- TaintToleration ----------------------------------------------------------------------------


def tainted(name: str, *taints: tuple[str, str]) -> dict[str, Any]:
    return make_node(name, taints=[{"key": key, "effect": effect} for key, effect in taints])


def test_the_reason_does_not_name_the_taint() -> None:
    nodes = [
        tainted("a", ("k", "NoSchedule")),
        tainted("b", ("k", "NoExecute")),
        tainted("c", ("k", "PreferNoSchedule")),
    ]
    reason = ("node(s) had untolerated taint(s)",)
    assert reasons_on(TaintToleration, pod_info("p"), nodes) == {"a": reason, "b": reason}


def test_an_untolerated_taint_cannot_be_resolved_by_preemption() -> None:
    cache = make_cache([tainted("a", ("k", "NoSchedule"))])
    found = statuses(make_plugin(TaintToleration), pod_info("p"), NodeView(cache.snapshot))
    assert found["a"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert found["a"].plugin == "TaintToleration"


def test_documented_pod_tolerates_one_of_two_keys() -> None:
    # Taints key1 NoSchedule and NoExecute, key2 NoSchedule; both of key1 are tolerated.
    node = make_node(
        "node1",
        taints=[
            {"key": "key1", "value": "value1", "effect": "NoSchedule"},
            {"key": "key1", "value": "value1", "effect": "NoExecute"},
            {"key": "key2", "value": "value2", "effect": "NoSchedule"},
        ],
    )
    tolerations = [
        {"key": "key1", "operator": "Equal", "value": "value1", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ]
    assert reasons_on(TaintToleration, pod_info("p", tolerations=tolerations), [node]).keys() == {
        "node1"
    }
    tolerations.append({"key": "key2", "operator": "Exists"})
    assert reasons_on(TaintToleration, pod_info("p", tolerations=tolerations), [node]) == {}


def test_fewer_soft_taints_score_higher() -> None:
    cache = make_cache(
        [
            tainted("none"),
            tainted("one", ("a", "PreferNoSchedule")),
            tainted("three", *((key, "PreferNoSchedule") for key in "abc")),
        ]
    )
    plugin, nodes, pod = make_plugin(TaintToleration), NodeView(cache.snapshot), pod_info("p")
    raw = plugin.score(CycleState(), pod, nodes)
    assert raw.tolist() == [0, 1, 3]
    assert plugin.normalize(CycleState(), pod, raw).tolist() == [100, 67, 0]


def test_without_soft_taints_every_node_gets_100() -> None:
    plugin, pod = make_plugin(TaintToleration), pod_info("p")
    nodes = NodeView(make_cache([tainted("a"), tainted("b")]).snapshot)
    raw = plugin.score(CycleState(), pod, nodes)
    assert plugin.normalize(CycleState(), pod, raw).tolist() == [100, 100]


# --- NodeAffinity -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, id="nodeSelector"),
        pytest.param({"affinity": required(*ON_SSD)}, id="required affinity"),
    ],
)
def test_a_required_label_keeps_other_nodes_out(spec: dict[str, Any]) -> None:
    nodes = [make_node("ssd", labels={"disk": "ssd"}), make_node("hdd", labels={"disk": "hdd"})]
    rejected = {"hdd": ("node(s) didn't match Pod's node affinity/selector",)}
    assert reasons_on(NodeAffinity, pod_info("p", **spec), nodes) == rejected


def test_the_profiles_own_affinity_gives_its_own_reason_first() -> None:
    args = {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [label_is("scheduler-profile", "foo")]
            }
        }
    }
    nodes = [
        make_node("foo", labels={"scheduler-profile": "foo", "disk": "ssd"}),
        make_node("foo-hdd", labels={"scheduler-profile": "foo"}),
        make_node("bare"),
    ]
    pod = pod_info("p", nodeSelector={"disk": "ssd"})
    assert reasons_on(NodeAffinity, pod, nodes, args=args) == {
        "foo-hdd": ("node(s) didn't match Pod's node affinity/selector",),
        "bare": ("node(s) didn't match scheduler-enforced node affinity",),
    }


def test_a_pod_without_requirements_is_skipped() -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    plugin = make_plugin(NodeAffinity)
    assert plugin.pre_filter(CycleState(), pod_info("p"), nodes).status.skip
    assert plugin.pre_score(CycleState(), pod_info("p"), nodes).skip


@pytest.mark.parametrize(
    ("terms", "node_names"),
    [
        pytest.param([{"matchFields": [name_in("a")]}], {"a"}, id="one name"),
        pytest.param(
            [{"matchFields": [name_in("a")]}, {"matchFields": [name_in("b")]}],
            {"a", "b"},
            id="terms are alternatives",
        ),
        pytest.param(
            [{"matchFields": [name_in("a", "b"), name_in("b", "c")]}],
            {"b"},
            id="fields of a term are joined",
        ),
        pytest.param(
            [{"matchFields": [name_in("a")], **label_is("disk", "ssd")}],
            {"a"},
            id="a name beside an expression",
        ),
        pytest.param(
            [{"matchFields": [name_in("a")]}, label_is("disk", "ssd")],
            None,
            id="one term without a name leaves all nodes",
        ),
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}],
            None,
            id="NotIn names no pod",
        ),
    ],
)
def test_named_nodes_are_all_that_is_looked_at(
    terms: list[dict[str, Any]], node_names: set[str] | None
) -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    pod = pod_info("p", affinity=required(*terms))
    result = make_plugin(NodeAffinity).pre_filter(CycleState(), pod, nodes)
    assert result.status.ok
    assert result.node_names == node_names


def test_names_that_exclude_each_other_reject_the_pod() -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    pod = pod_info("p", affinity=required({"matchFields": [name_in("a"), name_in("b")]}))
    status = make_plugin(NodeAffinity).pre_filter(CycleState(), pod, nodes).status
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("pod affinity terms conflict",)


def test_pods_of_a_daemon_set_share_a_spec_but_no_verdict() -> None:
    plugin = make_plugin(NodeAffinity)
    nodes = [make_node("a"), make_node("b")]
    on_a, on_b = (
        pod_info("p", affinity=required({"matchFields": [name_in(name)]})) for name in "ab"
    )
    assert on_a.spec is on_b.spec
    assert plugin.filter_key(CycleState(), on_a) is None
    assert reasons_on(NodeAffinity, on_a, nodes).keys() == {"b"}
    assert reasons_on(NodeAffinity, on_b, nodes).keys() == {"a"}


def test_an_empty_term_matches_no_node() -> None:
    pod = pod_info("p", affinity=required({}))
    assert reasons_on(NodeAffinity, pod, [make_node("a")]).keys() == {"a"}


def test_documented_weights_1_and_50() -> None:
    nodes = [make_node("one", labels={"label-1": "x"}), make_node("two", labels={"label-2": "x"})]
    pod = pod_info(
        "p", affinity=preferred((1, label_is("label-1", "x")), (50, label_is("label-2", "x")))
    )
    cache = make_cache(nodes)
    plugin, view = make_plugin(NodeAffinity), NodeView(cache.snapshot)
    assert raw_scores(plugin, pod, view) == {"one": 1, "two": 50}
    raw = plugin.score(CycleState(), pod, view)
    assert plugin.normalize(CycleState(), pod, raw).tolist() == [2, 100]


def test_the_profiles_preferences_add_to_the_pods() -> None:
    args = {
        "addedAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": label_is("disk", "ssd")}
            ]
        }
    }
    nodes = [make_node("ssd", labels={"disk": "ssd"}), make_node("bare")]
    pod = pod_info("p", affinity=preferred((3, label_is("disk", "ssd"))))
    assert scores_on(NodeAffinity, pod, nodes, args=args) == {"ssd": 10, "bare": 0}
    assert scores_on(NodeAffinity, pod_info("q"), nodes, args=args) == {"ssd": 7, "bare": 0}


def test_a_label_that_appears_later_is_seen() -> None:
    cache = make_cache([make_node("a")])
    pod = pod_info("p", nodeSelector={"disk": "ssd"})
    plugin = make_plugin(NodeAffinity)
    assert statuses(plugin, pod, NodeView(cache.snapshot)).keys() == {"a"}
    labelled = make_cache([make_node("a", labels={"disk": "ssd"})])
    assert statuses(plugin, pod, NodeView(labelled.snapshot)) == {}


# --- NodeDeclaredFeatures -----------------------------------------------------------------------


def restarting_pod() -> dict[str, Any]:
    pod = make_pod("p")
    pod["spec"]["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    return pod


def test_a_needed_feature_must_be_declared() -> None:
    able = make_node("able")
    able["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits", "Other"]
    pod = pod_info("p", containers=restarting_pod()["spec"]["containers"])
    assert reasons_on(NodeDeclaredFeatures, pod, [able, make_node("old")]) == {
        "old": ("node(s) didn't match Pod's required features",)
    }


def test_a_pod_that_needs_no_feature_is_skipped() -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    plugin = make_plugin(NodeDeclaredFeatures)
    assert plugin.pre_filter(CycleState(), pod_info("p"), nodes).status.skip


# --- normalisation ------------------------------------------------------------------------------


def test_normalising_no_rows_gives_no_rows() -> None:
    plugin, pod = make_plugin(TaintToleration), pod_info("p")
    empty = NodeView(make_cache().snapshot)
    assert plugin.normalize(CycleState(), pod, plugin.score(CycleState(), pod, empty)).size == 0
    assert normalize_to_highest(plugin.score(CycleState(), pod, empty)).size == 0
