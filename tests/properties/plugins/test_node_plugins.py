"""Plugins that look at node objects say of a whole view what a node at a time would say."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import HostPort
from stellwerk.plugins.image_locality import ImageLocality
from stellwerk.plugins.node_affinity import NodeAffinity
from stellwerk.plugins.node_name import NodeName
from stellwerk.plugins.node_ports import NodePorts
from stellwerk.plugins.node_unschedulable import NodeUnschedulable
from stellwerk.plugins.taint_toleration import TaintToleration
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.selectors import parse_node_selector, parse_preferred_terms
from tests.support.cluster_strategies import Cluster, clusters, profile_affinities
from tests.support.plugin_runs import filtered, make_plugin, raw_scores, statuses

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def tolerated(pod: PodInfo, key: str, value: str, effect: str) -> bool:
    return any(
        (not each.key or each.key == key)
        and (not each.effect or each.effect == effect)
        and (each.operator == "Exists" or each.value == value)
        for each in pod.spec.tolerations
    )


@given(cluster=clusters(), node_name=st.sampled_from(["", "n0", "n3", "nowhere"]))
def test_node_name_admits_the_named_node_only(cluster: Cluster, node_name: str) -> None:
    pod = cluster.pod.with_node(node_name)
    for view in cluster.views():
        rejected = statuses(make_plugin(NodeName), pod, view).keys()
        assert rejected == {name for name in cluster.nodes(view) if node_name not in ("", name)}


@given(cluster=clusters())
def test_node_unschedulable_rejects_cordoned_nodes(cluster: Cluster) -> None:
    stands = tolerated(cluster.pod, "node.kubernetes.io/unschedulable", "", "NoSchedule")
    for view in cluster.views():
        rejected = statuses(make_plugin(NodeUnschedulable), cluster.pod, view).keys()
        expected = {name for name, (node, _) in cluster.nodes(view).items() if node.unschedulable}
        assert rejected == (set() if stands else expected)


@given(cluster=clusters())
def test_taint_toleration_judges_every_taint(cluster: Cluster) -> None:
    plugin = make_plugin(TaintToleration)
    for view in cluster.views():
        open_taints = {
            name: [
                taint.effect
                for taint in node.taints
                if not tolerated(cluster.pod, taint.key, taint.value, taint.effect)
            ]
            for name, (node, _) in cluster.nodes(view).items()
        }
        rejected = statuses(plugin, cluster.pod, view).keys()
        assert rejected == {
            name for name, effects in open_taints.items() if set(effects) - {"PreferNoSchedule"}
        }
        assert raw_scores(plugin, cluster.pod, view) == {
            name: effects.count("PreferNoSchedule") for name, effects in open_taints.items()
        }


def admits(pod: PodInfo, node: NodeInfo) -> bool:
    spec = pod.spec
    return (
        spec.node_selector.items() <= node.labels.items()
        and (pod.node_names is None or node.name in pod.node_names)
        and (
            spec.required_node_affinity is None
            or spec.required_node_affinity.matches(node.labels, node.name)
        )
    )


@given(cluster=clusters(), added=profile_affinities)
def test_node_affinity_is_that_of_pod_and_profile(cluster: Cluster, added: dict[str, Any]) -> None:
    plugin = make_plugin(NodeAffinity, args={"addedAffinity": added})
    enforced = parse_node_selector(added.get(REQUIRED))
    pod = cluster.pod
    terms = (*parse_preferred_terms(added.get(PREFERRED)), *pod.spec.preferred_node_affinity)
    for view in cluster.views():
        expected = {}
        for name, (node, _) in cluster.nodes(view).items():
            if enforced is not None and not enforced.matches(node.labels, name):
                expected[name] = ("node(s) didn't match scheduler-enforced node affinity",)
            elif not admits(pod, node):
                expected[name] = ("node(s) didn't match Pod's node affinity/selector",)
        found = filtered(plugin, CycleState(), pod, view)
        assert {name: status.reasons for name, status in found.items()} == expected
        weights = {
            name: sum(each.weight for each in terms if each.term.matches(node.labels, name))
            for name, (node, _) in cluster.nodes(view).items()
        }
        assert raw_scores(plugin, pod, view) == (weights if terms else None)


@given(cluster=clusters())
def test_node_affinity_restricts_only_to_nodes_that_could_match(cluster: Cluster) -> None:
    plugin = make_plugin(NodeAffinity)
    everything = cluster.views()[0]
    result = plugin.pre_filter(CycleState(), cluster.pod, everything)
    matching = {
        name for name, (node, _) in cluster.nodes(everything).items() if admits(cluster.pod, node)
    }
    if result.status.skip:
        assert matching == cluster.nodes(everything).keys()
    elif not result.status.ok:
        assert not matching
    elif result.node_names is not None:
        assert matching <= result.node_names


def clash(one: HostPort, other: HostPort) -> bool:
    same = (one.port, one.protocol) == (other.port, other.protocol)
    wildcard = "0.0.0.0" in (one.host_ip, other.host_ip)  # noqa: S104 compared, not bound
    return same and (wildcard or one.host_ip == other.host_ip)


def ports_in_use(cluster: Cluster, view: NodeView) -> dict[str, set[HostPort]]:
    """Return each node's ports; one that a pod gives up is free, whoever else used it too."""
    used = {
        name: {port for pod in cluster.cache.pods_on(name).values() for port in pod.spec.host_ports}
        for name in cluster.nodes(view)
    }
    if view.overlay is not None:
        for position, pod, change in view.overlay.log:
            ports = used[cluster.snapshot.node_at(cluster.rows[position]).name]
            (ports.update if change > 0 else ports.difference_update)(pod.spec.host_ports)
    return used


@given(cluster=clusters())
def test_node_ports_rejects_nodes_with_a_clashing_port(cluster: Cluster) -> None:
    for view in cluster.views():
        rejected = statuses(make_plugin(NodePorts), cluster.pod, view).keys()
        assert rejected == {
            name
            for name, ports in ports_in_use(cluster, view).items()
            if any(clash(wanted, port) for wanted in cluster.pod.spec.host_ports for port in ports)
        }


def image_score(cluster: Cluster, pod: PodInfo, node: NodeInfo) -> int:
    every = [each for each in cluster.snapshot.nodes if each is not None]
    held = 0
    # Sizes as the snapshot keeps them: a node that is gone may have been the first to report one.
    images = cluster.snapshot.images
    size_of = {name: max(images.rows(name).values()) for name in images}
    for name in pod.spec.images:
        tagged = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
        if tagged in node.images:
            holders = sum(tagged in each.images for each in every)
            held += int(float(size_of[tagged]) * (holders / len(every)))
    least, most = 23 << 20, (1000 << 20) * pod.spec.container_count
    return 100 * (max(least, min(held, most)) - least) // (most - least)


@given(cluster=clusters())
def test_image_locality_counts_bytes_times_spread(cluster: Cluster) -> None:
    plugin = make_plugin(ImageLocality, cluster.snapshot)
    for view in cluster.views():
        assert raw_scores(plugin, cluster.pod, view) == {
            name: image_score(cluster, cluster.pod, node)
            for name, (node, _) in cluster.nodes(view).items()
        }
