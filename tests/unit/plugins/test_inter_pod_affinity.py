"""InterPodAffinity on small clusters: the documents' examples, and rules that are easily missed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin, raw_scores, statuses

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"

NODES = [make_node("a1", zone="a"), make_node("a2", zone="a"), make_node("b1", zone="b")]


def term(key: str, labels: Mapping[str, str] | None, **fields: Any) -> JsonObject:
    selector = {} if labels is None else {"labelSelector": {"matchLabels": dict(labels)}}
    return {"topologyKey": key, **selector, **fields}


def required(side: str, *terms: JsonObject) -> JsonObject:
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def preferred(side: str, weight: int, *terms: JsonObject) -> JsonObject:
    weighted = [{"weight": weight, "podAffinityTerm": each} for each in terms]
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def beside(*terms: JsonObject) -> JsonObject:
    return required("podAffinity", *terms)


def away_from(*terms: JsonObject) -> JsonObject:
    return required("podAntiAffinity", *terms)


def reasons(
    pod: PodInfo,
    pods: Sequence[JsonObject],
    nodes: Sequence[JsonObject] = NODES,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    cache = make_cache(nodes, pods)
    for name, labels in (namespaces or {}).items():
        cache.set_namespace(name, labels)
    cache.update_snapshot()
    plugin = make_plugin(InterPodAffinity, cache.snapshot)
    found = statuses(plugin, pod, NodeView(cache.snapshot))
    return {name: status.reasons[0] for name, status in found.items()}


WEB, DB = {"app": "web"}, {"app": "db"}
WEB_ON_A1 = make_pod("w", labels=WEB, node_name="a1")


@pytest.mark.parametrize(
    ("pod", "pods", "expected"),
    [
        pytest.param(
            pod_info("p", affinity=beside(term(ZONE, WEB))),
            [WEB_ON_A1],
            {"b1": AFFINITY},
            id="affinity by zone admits the whole zone",
        ),
        pytest.param(
            pod_info("p", affinity=beside(term(HOSTNAME, WEB))),
            [WEB_ON_A1],
            {"a2": AFFINITY, "b1": AFFINITY},
            id="affinity by hostname admits the node alone",
        ),
        pytest.param(
            pod_info("p", affinity=away_from(term(ZONE, WEB))),
            [WEB_ON_A1],
            {"a1": ANTI, "a2": ANTI},
            id="anti-affinity by zone excludes the whole zone",
        ),
        pytest.param(
            pod_info("p", labels=WEB),
            [make_pod("e", node_name="a1", affinity=away_from(term(ZONE, WEB)))],
            {"a1": EXISTING, "a2": EXISTING},
            id="a placed pod's anti-affinity keeps the pod away",
        ),
        pytest.param(
            pod_info("p", labels=WEB, affinity=beside(term(ZONE, WEB))),
            [],
            {},
            id="the first pod of its own group goes anywhere",
        ),
        pytest.param(
            pod_info("p", labels=DB, affinity=beside(term(ZONE, WEB))),
            [],
            {"a1": AFFINITY, "a2": AFFINITY, "b1": AFFINITY},
            id="a pod that does not match itself waits for the others",
        ),
        pytest.param(
            pod_info("p", labels=WEB, affinity=beside(term(ZONE, WEB))),
            [WEB_ON_A1],
            {"b1": AFFINITY},
            id="the second pod of the group joins the first",
        ),
        pytest.param(
            pod_info("p", affinity=beside(term(ZONE, WEB), term(ZONE, {"tier": "fe"}))),
            [WEB_ON_A1, make_pod("f", labels={"tier": "fe"}, node_name="a2")],
            {"a1": AFFINITY, "a2": AFFINITY, "b1": AFFINITY},
            id="all affinity terms ask for one and the same pod",
        ),
        pytest.param(
            pod_info("p", affinity=away_from(term(ZONE, WEB), term(ZONE, DB))),
            [WEB_ON_A1, make_pod("d", labels=DB, node_name="b1")],
            {"a1": ANTI, "a2": ANTI, "b1": ANTI},
            id="each anti-affinity term excludes by itself",
        ),
        pytest.param(
            pod_info("p", affinity=away_from(term(ZONE, None))),
            [WEB_ON_A1],
            {},
            id="a term without selector matches no pod",
        ),
        pytest.param(
            pod_info("p", affinity=away_from(term(ZONE, WEB)), namespace="other"),
            [WEB_ON_A1],
            {},
            id="a term speaks of the pod's own namespace",
        ),
        pytest.param(
            pod_info(
                "p", affinity=away_from(term(ZONE, WEB, namespaces=["default"])), namespace="x"
            ),
            [WEB_ON_A1],
            {"a1": ANTI, "a2": ANTI},
            id="a term may name another namespace",
        ),
        pytest.param(
            pod_info("p", affinity=away_from(term(ZONE, WEB, namespaceSelector={})), namespace="x"),
            [WEB_ON_A1],
            {"a1": ANTI, "a2": ANTI},
            id="an empty namespaceSelector speaks of every namespace",
        ),
        pytest.param(
            pod_info("p", labels=WEB, affinity=beside(term("rack", WEB))),
            [],
            {"a1": AFFINITY, "a2": AFFINITY, "b1": AFFINITY},
            id="affinity needs the topology label even for the first pod",
        ),
        pytest.param(
            pod_info("p", affinity=away_from(term("rack", WEB))),
            [WEB_ON_A1],
            {},
            id="anti-affinity is content without the topology label",
        ),
        pytest.param(
            pod_info(
                "p",
                labels=WEB,
                affinity=beside(term(ZONE, DB)) | away_from(term(HOSTNAME, WEB)),
            ),
            [
                WEB_ON_A1,
                make_pod("d", labels=DB, node_name="a2", affinity=away_from(term(HOSTNAME, WEB))),
            ],
            {"a1": ANTI, "a2": EXISTING, "b1": AFFINITY},
            id="affinity is looked at first, then anti-affinity, then the others' anti-affinity",
        ),
    ],
)
def test_why_nodes_are_rejected(
    pod: PodInfo, pods: list[JsonObject], expected: dict[str, str]
) -> None:
    assert reasons(pod, pods) == expected


@pytest.mark.parametrize(
    ("selector", "namespaces", "excluded"),
    [
        pytest.param({"matchLabels": {"env": "x"}}, {"default": {"env": "x"}}, True, id="matching"),
        pytest.param({"matchLabels": {"env": "x"}}, {"default": {"env": "y"}}, False, id="other"),
        pytest.param({"matchLabels": {"env": "x"}}, {}, False, id="namespace unknown"),
        pytest.param(
            {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
            {"default": {"env": "x"}},
            True,
            id="a selector that matches no labels at all matches every namespace, as in v1.36",
        ),
    ],
)
def test_namespace_selectors_of_the_pod(
    selector: JsonObject,
    namespaces: dict[str, dict[str, str]],
    excluded: bool,  # noqa: FBT001 a row of the table
) -> None:
    affinity = away_from(term(HOSTNAME, WEB, namespaceSelector=selector))
    pod = pod_info("p", affinity=affinity, namespace="other")
    assert reasons(pod, [WEB_ON_A1], namespaces=namespaces) == ({"a1": ANTI} if excluded else {})


def test_namespace_selectors_of_placed_pods_follow_the_namespace() -> None:
    selector = {"matchLabels": {"env": "x"}}
    affinity = away_from(term(HOSTNAME, WEB, namespaceSelector=selector))
    cache = make_cache(NODES, [make_pod("e", node_name="a1", affinity=affinity)])
    plugin = make_plugin(InterPodAffinity, cache.snapshot)
    pod = pod_info("p", labels=WEB, namespace="other")
    assert statuses(plugin, pod, NodeView(cache.snapshot)) == {}
    cache.set_namespace("other", {"env": "x"})
    cache.update_snapshot()
    assert list(statuses(plugin, pod, NodeView(cache.snapshot))) == ["a1"]
    cache.set_namespace("other", None)
    cache.update_snapshot()
    assert statuses(plugin, pod, NodeView(cache.snapshot)) == {}


def test_only_affinity_is_beyond_preemption() -> None:
    cache = make_cache(NODES, [WEB_ON_A1])
    plugin = make_plugin(InterPodAffinity, cache.snapshot)
    view = NodeView(cache.snapshot)
    needing = statuses(plugin, pod_info("p", affinity=beside(term(ZONE, WEB))), view)
    rejecting = statuses(plugin, pod_info("q", affinity=away_from(term(ZONE, WEB))), view)
    assert needing["b1"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert rejecting["a1"].code is Code.UNSCHEDULABLE


def test_prefilter_skips_pods_that_no_term_matches() -> None:
    cache = make_cache(NODES, [WEB_ON_A1])
    plugin = make_plugin(InterPodAffinity, cache.snapshot)
    result = plugin.pre_filter(CycleState(), pod_info("p", labels=WEB), NodeView(cache.snapshot))
    assert result.status.code is Code.SKIP


def test_an_overlay_is_one_hypothesis_per_node() -> None:
    repelling = make_pod("e", node_name="a1", affinity=away_from(term(ZONE, WEB)))
    cache = make_cache(NODES, [repelling])
    plugin = make_plugin(InterPodAffinity, cache.snapshot)
    pod, state = pod_info("p", labels=WEB), CycleState()
    plugin.pre_filter(state, pod, NodeView(cache.snapshot))
    view = NodeView(cache.snapshot, np.arange(3)).with_overlay()
    assert view.overlay is not None
    view.overlay.remove_pod(0, parse_pod(repelling))
    # Nominated to b1, and repelling by a topology that no placed pod's term names.
    nominated = pod_info("n", affinity=away_from(term(HOSTNAME, WEB)))
    view.overlay.add_pod(2, nominated)
    assert plugin.filter(state, pod, view).codes.astype(bool).tolist() == [False, True, True]


def test_without_the_only_other_pod_of_its_group_the_pod_is_the_first() -> None:
    cache = make_cache(NODES, [WEB_ON_A1])
    plugin = make_plugin(InterPodAffinity, cache.snapshot)
    pod, state = pod_info("p", labels=WEB, affinity=beside(term(HOSTNAME, WEB))), CycleState()
    plugin.pre_filter(state, pod, NodeView(cache.snapshot))
    view = NodeView(cache.snapshot, np.arange(3)).with_overlay()
    assert view.overlay is not None
    view.overlay.remove_pod(0, parse_pod(WEB_ON_A1))
    assert plugin.filter(state, pod, view).codes.astype(bool).tolist() == [False, True, True]


# --- scores -------------------------------------------------------------------------------------


def raw(
    pod: PodInfo, pods: Sequence[JsonObject], args: Mapping[str, Any] | None = None
) -> dict[str, int] | None:
    cache = make_cache(NODES, pods)
    plugin = make_plugin(InterPodAffinity, cache.snapshot, args)
    return raw_scores(plugin, pod, NodeView(cache.snapshot))


ATTRACTING = make_pod("e", node_name="a1", affinity=preferred("podAffinity", 10, term(ZONE, WEB)))
NEEDING = make_pod("e", node_name="a1", affinity=beside(term(ZONE, WEB)))


@pytest.mark.parametrize(
    ("pod", "pods", "args", "expected"),
    [
        pytest.param(
            pod_info("p", affinity=preferred("podAffinity", 7, term(ZONE, WEB))),
            [WEB_ON_A1, make_pod("w2", labels=WEB, node_name="a2")],
            {},
            {"a1": 14, "a2": 14, "b1": 0},
            id="preferred affinity counts every matching pod of the domain",
        ),
        pytest.param(
            pod_info("p", affinity=preferred("podAntiAffinity", 7, term(HOSTNAME, WEB))),
            [WEB_ON_A1],
            {},
            {"a1": -7, "a2": 0, "b1": 0},
            id="preferred anti-affinity counts against the domain",
        ),
        pytest.param(
            pod_info("p", labels=WEB),
            [ATTRACTING],
            {},
            {"a1": 10, "a2": 10, "b1": 0},
            id="placed pods' preferences count as well",
        ),
        pytest.param(
            pod_info("p", labels=WEB),
            [NEEDING],
            {"hardPodAffinityWeight": 5},
            {"a1": 5, "a2": 5, "b1": 0},
            id="placed pods' required affinity counts with hardPodAffinityWeight",
        ),
        pytest.param(
            pod_info("p", labels=WEB),
            [NEEDING],
            {"hardPodAffinityWeight": 0},
            None,
            id="skip: hardPodAffinityWeight 0 leaves nothing to score",
        ),
        pytest.param(
            pod_info("p", labels=WEB),
            [ATTRACTING],
            {"ignorePreferredTermsOfExistingPods": True},
            None,
            id="skip: the profile ignores placed pods' preferences",
        ),
        pytest.param(
            pod_info(
                "p", labels=WEB, affinity=preferred("podAffinity", 1, term(ZONE, {"no": "pod"}))
            ),
            [ATTRACTING],
            {"ignorePreferredTermsOfExistingPods": True},
            {"a1": 10, "a2": 10, "b1": 0},
            id="placed pods' preferences are not ignored for a pod with preferences",
        ),
        pytest.param(
            pod_info("p", affinity=preferred("podAffinity", 7, term(ZONE, DB))),
            [WEB_ON_A1],
            {},
            None,
            id="skip: no pod matches",
        ),
    ],
)
def test_raw_scores(
    pod: PodInfo, pods: list[JsonObject], args: JsonObject, expected: dict[str, int] | None
) -> None:
    assert raw(pod, pods, args) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([-10, 0, 20], [0, 33, 100], id="stretched to 0–100, truncated"),
        pytest.param([5, 5], [0, 0], id="all alike give 0"),
        pytest.param([], [], id="nothing to score"),
    ],
)
def test_normalize(scores: list[int], expected: list[int]) -> None:
    plugin = make_plugin(InterPodAffinity)
    column = np.array(scores, dtype=np.int64)
    assert plugin.normalize(CycleState(), pod_info("p"), column).tolist() == expected
