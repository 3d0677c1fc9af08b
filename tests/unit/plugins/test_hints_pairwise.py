"""Which changes wake pods that PodTopologySpread or InterPodAffinity rejected."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from stellwerk.framework.interface import EnqueueExtensions
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin

WEB, DB = {"app": "web"}, {"app": "db"}


def hint_for(
    plugin: EnqueueExtensions, resource: Resource | str, action: Action
) -> ClusterEventWithHint:
    """Return the one registration that covers the change."""
    (found,) = (
        hint
        for hint in plugin.events_to_register()
        if hint.resource is resource and action in hint.action
    )
    return found


def requeues(plugin: EnqueueExtensions, pod: PodInfo, change: ClusterChange) -> bool:
    """Whether the hint for the change answers Queue for the pod."""
    hint = hint_for(plugin, change.resource, change.action).queueing_hint_fn
    assert hint is not None
    return hint(pod, change) is QueueingHint.QUEUE


def bound(name: str, labels: Mapping[str, str], **fields: Any) -> PodInfo:
    return pod_info(name, labels=labels, node_name="n", **fields)


def node(**labels: str) -> NodeInfo:
    return parse_node(make_node("n", labels=labels))


def tainted() -> NodeInfo:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    return parse_node(make_node("n", labels={"zone": "a"}, taints=taints))


def pod_added(new: PodInfo) -> ClusterChange:
    return ClusterChange(Resource.POD, Action.ADD, None, new)


def pod_deleted(old: PodInfo) -> ClusterChange:
    return ClusterChange(Resource.POD, Action.DELETE, old, None)


def relabelled(old: PodInfo, new: PodInfo) -> ClusterChange:
    return ClusterChange(Resource.POD, Action.UPDATE_POD_LABEL, old, new)


def tolerating(old: PodInfo, new: PodInfo) -> ClusterChange:
    return ClusterChange(Resource.POD, Action.UPDATE_POD_TOLERATION, old, new)


def node_added(new: NodeInfo) -> ClusterChange:
    return ClusterChange(Resource.NODE, Action.ADD, None, new)


def node_deleted(old: NodeInfo) -> ClusterChange:
    return ClusterChange(Resource.NODE, Action.DELETE, old, None)


def node_relabelled(old: NodeInfo, new: NodeInfo) -> ClusterChange:
    return ClusterChange(Resource.NODE, Action.UPDATE_NODE_LABEL, old, new)


# --- PodTopologySpread --------------------------------------------------------------------------


def spreading(**fields: Any) -> PodInfo:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
        **fields.pop("constraint", {}),
    }
    return pod_info("p", labels=WEB, topologySpreadConstraints=[constraint], **fields)


HONORS_TAINTS = {"constraint": {"nodeTaintsPolicy": "Honor"}}
TOLERATES = {"tolerations": [{"operator": "Exists"}]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(pod_added(bound("x", WEB)), True, id="a matching pod appears"),
        pytest.param(pod_added(bound("x", DB)), False, id="another pod appears"),
        pytest.param(pod_added(bound("x", WEB, namespace="y")), False, id="in another namespace"),
        pytest.param(pod_added(pod_info("x", labels=WEB)), False, id="it has no node yet"),
        pytest.param(pod_deleted(bound("x", WEB)), True, id="a matching pod goes"),
        pytest.param(pod_deleted(bound("x", DB)), False, id="another pod goes"),
        pytest.param(relabelled(bound("x", DB), bound("x", WEB)), True, id="a pod begins to match"),
        pytest.param(relabelled(bound("x", WEB), bound("x", DB)), True, id="a pod ceases to match"),
        pytest.param(
            relabelled(bound("x", WEB), bound("x", {**WEB, "rev": "2"})),
            False,
            id="a label changes that no selector reads",
        ),
        pytest.param(
            tolerating(spreading(), spreading(**TOLERATES)),
            False,
            id="new tolerations do not matter where taints are ignored",
        ),
        pytest.param(node_added(node(zone="a")), True, id="a node with the label appears"),
        pytest.param(node_added(node()), False, id="a node without the label appears"),
        pytest.param(node_deleted(node(zone="a")), True, id="a node with the label goes"),
        pytest.param(node_deleted(node()), False, id="a node without the label goes"),
        pytest.param(node_relabelled(node(), node(zone="a")), True, id="a node gets the label"),
        pytest.param(node_relabelled(node(zone="a"), node()), True, id="a node loses the label"),
        pytest.param(
            node_relabelled(node(zone="a"), node(zone="b")), True, id="a node changes its zone"
        ),
        pytest.param(
            node_relabelled(node(zone="a"), node(zone="a", other="x")),
            False,
            id="a node changes another label",
        ),
        pytest.param(
            ClusterChange(Resource.NODE, Action.UPDATE_NODE_TAINT, tainted(), node(zone="a")),
            True,
            id="a node's taints change",
        ),
    ],
)
def test_spread(change: ClusterChange, *, expected: bool) -> None:
    assert requeues(make_plugin(PodTopologySpread), spreading(), change) is expected


def test_spread_that_honours_taints_wakes_for_new_tolerations() -> None:
    rejected = spreading(**HONORS_TAINTS)
    change = tolerating(rejected, spreading(**HONORS_TAINTS, **TOLERATES))
    assert requeues(make_plugin(PodTopologySpread), rejected, change)


def test_spread_by_default_constraints_reads_the_defaults() -> None:
    args = {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    }
    plugin = make_plugin(PodTopologySpread, args=args)
    # Nothing selects the pod, so it has no constraints and cannot have been rejected for them.
    assert not requeues(plugin, pod_info("p", labels=WEB), pod_added(bound("x", WEB)))


# --- InterPodAffinity ---------------------------------------------------------------------------


def with_terms(side: str, *labels: Mapping[str, str], **term: Any) -> PodInfo:
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": dict(each)}, **term}
        for each in labels
    ]
    return pod_info(
        "p",
        labels=WEB,
        affinity={side: {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    )


def repelling(labels: Mapping[str, str], **fields: Any) -> PodInfo:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": dict(labels)}}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return bound("x", DB, affinity={"podAntiAffinity": terms}, **fields)


NEEDS_DB = with_terms("podAffinity", DB)
AVOIDS_DB = with_terms("podAntiAffinity", DB)
AVOIDS_TWO = with_terms("podAntiAffinity", DB, {"tier": "be"})
PLAIN = pod_info("p", labels=WEB)


@pytest.mark.parametrize(
    ("pod", "change", "expected"),
    [
        pytest.param(NEEDS_DB, pod_added(bound("x", DB)), True, id="the needed pod appears"),
        pytest.param(NEEDS_DB, pod_added(bound("x", WEB)), False, id="another pod appears"),
        pytest.param(
            NEEDS_DB, pod_added(pod_info("x", labels=DB)), False, id="the needed pod has no node"
        ),
        pytest.param(AVOIDS_DB, pod_added(bound("x", DB)), False, id="an avoided pod appears"),
        pytest.param(AVOIDS_DB, pod_deleted(bound("x", DB)), True, id="an avoided pod goes"),
        pytest.param(AVOIDS_DB, pod_deleted(bound("x", WEB)), False, id="another pod goes"),
        pytest.param(
            AVOIDS_TWO,
            pod_deleted(bound("x", DB)),
            True,
            id="one of several avoided pods goes",
        ),
        pytest.param(PLAIN, pod_deleted(repelling(WEB)), True, id="a pod that avoids it goes"),
        pytest.param(PLAIN, pod_deleted(repelling(DB)), False, id="a pod that avoids others goes"),
        pytest.param(
            NEEDS_DB,
            relabelled(bound("x", WEB), bound("x", DB)),
            True,
            id="a pod becomes what is needed",
        ),
        pytest.param(
            AVOIDS_DB,
            relabelled(bound("x", DB), bound("x", WEB)),
            True,
            id="a pod ceases to match the anti-affinity",
        ),
        pytest.param(
            AVOIDS_DB,
            relabelled(bound("x", WEB), bound("x", DB)),
            False,
            id="a pod begins to match the anti-affinity",
        ),
        pytest.param(PLAIN, relabelled(PLAIN, PLAIN), True, id="the pod's own labels change"),
        pytest.param(NEEDS_DB, node_added(node(zone="a")), True, id="a node of a zone appears"),
        pytest.param(NEEDS_DB, node_added(node()), False, id="a node without a zone appears"),
        pytest.param(
            AVOIDS_DB, node_added(node()), True, id="anti-affinity takes a node without a zone"
        ),
        pytest.param(
            NEEDS_DB, node_relabelled(node(), node(zone="a")), True, id="a node gets a zone"
        ),
        pytest.param(
            NEEDS_DB, node_relabelled(node(zone="a"), node()), False, id="a node loses its zone"
        ),
        pytest.param(
            AVOIDS_DB, node_relabelled(node(zone="a"), node()), True, id="a node leaves its zone"
        ),
        pytest.param(
            AVOIDS_DB, node_relabelled(node(), node(zone="a")), False, id="a node joins a zone"
        ),
        pytest.param(
            AVOIDS_DB,
            node_relabelled(node(zone="a"), node(zone="b")),
            True,
            id="a node changes its zone",
        ),
        pytest.param(
            AVOIDS_DB,
            node_relabelled(node(zone="a"), node(zone="a", other="x")),
            False,
            id="a node changes another label",
        ),
        pytest.param(
            PLAIN,
            node_added(node()),
            False,
            id="a node appears, and no pod avoids it",
        ),
    ],
)
def test_affinity(pod: PodInfo, change: ClusterChange, *, expected: bool) -> None:
    assert requeues(make_plugin(InterPodAffinity), pod, change) is expected


def _anti_affinity_in_zone_a() -> Cache:
    repeller = make_pod("e", node_name="n")
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    repeller["spec"]["affinity"] = {"podAntiAffinity": terms}
    return make_cache([make_node("n", labels={"zone": "a"})], [repeller])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(node_added(node()), id="a node appears"),
        pytest.param(node_relabelled(node(zone="a"), node(zone="b")), id="a node changes its zone"),
    ],
)
def test_nodes_requeue_a_pod_that_existing_pods_have_anti_affinity_to(
    change: ClusterChange,
) -> None:
    plugin = make_plugin(InterPodAffinity, _anti_affinity_in_zone_a().snapshot)
    assert requeues(plugin, PLAIN, change)


def _namespace_selecting(labels: Mapping[str, str]) -> PodInfo:
    return with_terms("podAffinity", labels, namespaceSelector={"matchLabels": {"env": "x"}})


@pytest.mark.parametrize(
    ("make_waiting", "expected"),
    [
        pytest.param(lambda: _namespace_selecting(DB), True, id="terms that select namespaces"),
        pytest.param(lambda: NEEDS_DB, False, id="terms that do not"),
    ],
)
def test_a_namespace_wakes_pods_with_a_namespace_selector(
    make_waiting: Callable[[], PodInfo], *, expected: bool
) -> None:
    change = ClusterChange(Resource.NAMESPACE, Action.UPDATE_OTHER, {}, {})
    assert requeues(make_plugin(InterPodAffinity), make_waiting(), change) is expected
