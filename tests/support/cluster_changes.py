"""Random changes of a small cluster: nodes and pods that come, change, go and come again.

A `Change` is made in a cache, for real, or in a trial; `ClusterModel` makes changes in a cache and
knows what is true afterwards, so that a cache can be built anew from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.models.node_acts import cordoned
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.snapshot.trial import Trial
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support import cluster_strategies, pairwise_strategies

NODE_NAMES = [f"n{index}" for index in range(20)]
"""More than a snapshot has room for at first; most changes are of the first few."""
POD_NAMES = [f"p{index}" for index in range(10)]
_VOLUMES: list[JsonObject] = [
    {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "d", "persistentVolumeClaim": {"claimName": "logs"}},
    {"name": "d", "gcePersistentDisk": {"pdName": "disk"}},
]

node_names = st.one_of(st.sampled_from(NODE_NAMES[:4]), st.sampled_from(NODE_NAMES))


@dataclass(frozen=True)
class Change:
    """One thing that happens: what it is, and the object or the name that it is about."""

    act: str
    subject: Any


@st.composite
def nodes(draw: st.DrawFn) -> NodeInfo:
    """Draw a node, perhaps one that was made again under its name."""
    name = draw(node_names)
    obj = draw(cluster_strategies.nodes(name))
    obj["metadata"]["labels"] |= draw(pairwise_strategies.nodes(name))["metadata"]["labels"]
    obj["metadata"]["uid"] = draw(st.sampled_from([name, name, f"{name}-again"]))
    return parse_node(obj)


@st.composite
def pods(draw: st.DrawFn) -> PodInfo:
    """Draw a pod on a node, which need not be there."""
    name, node_name = draw(st.sampled_from(POD_NAMES)), draw(node_names)
    obj = draw(cluster_strategies.pods(name, node_name))
    pairwise = draw(pairwise_strategies.pods(name, node_name))
    obj["metadata"] = pairwise["metadata"] | {"uid": name}
    obj["spec"]["affinity"] = pairwise["spec"]["affinity"]
    obj["spec"]["volumes"] = draw(st.lists(st.sampled_from(_VOLUMES), max_size=1))
    if draw(st.integers(0, 9)) == 0:
        obj["spec"]["containers"][0]["resources"] = {"requests": {"memory": "4Ei"}}
    return parse_pod(obj)


@st.composite
def pending_pods(draw: st.DrawFn) -> PodInfo:
    """Draw a pod to place."""
    obj = draw(cluster_strategies.pods("new"))
    pairwise = draw(pairwise_strategies.pending_pods())
    obj["metadata"] = pairwise["metadata"]
    obj["spec"] |= {key: pairwise["spec"][key] for key in ("affinity", "topologySpreadConstraints")}
    return parse_pod(obj)


uids = st.sampled_from(POD_NAMES)
_common = (
    st.builds(Change, st.just("set node"), nodes()),
    st.builds(Change, st.just("set node"), nodes()),
    st.builds(Change, st.just("remove node"), node_names),
    st.builds(Change, st.just("cordon"), node_names),
    st.builds(Change, st.just("set pod"), pods()),
    st.builds(Change, st.just("set pod"), pods()),
    st.builds(Change, st.just("remove pod"), uids),
)
many_nodes = st.builds(Change, st.just("set nodes"), st.lists(nodes(), min_size=12, max_size=12))
changes = st.one_of(
    *_common,
    st.builds(Change, st.just("assume"), pods()),
    st.builds(Change, st.just("forget"), uids),
    st.builds(
        Change,
        st.just("namespace"),
        st.tuples(
            st.sampled_from(pairwise_strategies.NAMESPACES),
            st.one_of(st.none(), pairwise_strategies.namespace_labels),
        ),
    ),
    st.just(Change("update", None)),
    many_nodes,
)
histories = st.lists(changes, max_size=20)
trials = st.lists(st.one_of(*_common, many_nodes), min_size=1, max_size=10)


@dataclass
class ClusterModel:
    """What is true after the changes so far."""

    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    pods: dict[str, PodInfo] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def copy(self) -> "ClusterModel":
        """Return a model of the same cluster."""
        return ClusterModel(
            self.nodes.copy(), self.pods.copy(), self.assumed.copy(), self.namespaces.copy()
        )

    def make(self, cache: Cache, change: Change) -> None:
        """Make a change here and in a cache; what cannot happen does not."""
        subject = change.subject
        match change.act:
            case "set node":
                cache.set_node(subject)
                self.nodes[subject.name] = subject
            case "set nodes":
                for node in subject:
                    self.make(cache, Change("set node", node))
            case "remove node":
                cache.remove_node(subject)
                self.nodes.pop(subject, None)
            case "cordon" if subject in self.nodes:
                self.make(cache, Change("set node", cordoned(self.nodes[subject])))
            case "namespace":
                self._set_namespace(cache, *subject)
            case "update":
                cache.update_snapshot()
            case act:
                self._make_of_pod(cache, act, subject)

    def _make_of_pod(self, cache: Cache, act: str, subject: Any) -> None:
        match act:
            case "set pod":
                cache.set_pod(subject)
                self.pods[subject.uid] = subject
                self.assumed.discard(subject.uid)
            case "assume" if subject.uid not in self.pods:
                cache.assume_pod(subject)
                self.pods[subject.uid] = subject
                self.assumed.add(subject.uid)
            case "remove pod":
                cache.remove_pod(subject)
                self.pods.pop(subject, None)
                self.assumed.discard(subject)
            case "forget" if subject in self.assumed:
                cache.forget_pod(subject)
                del self.pods[subject]
                self.assumed.discard(subject)

    def _set_namespace(self, cache: Cache, name: str, labels: Mapping[str, str] | None) -> None:
        cache.set_namespace(name, labels)
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels

    def rebuilt(self) -> Cache:
        """Return a new cache of the same objects."""
        cache = Cache()
        for name, labels in self.namespaces.items():
            cache.set_namespace(name, labels)
        for node in self.nodes.values():
            cache.set_node(node)
        for pod in self.pods.values():
            (cache.assume_pod if pod.uid in self.assumed else cache.set_pod)(pod)
        cache.update_snapshot()
        return cache


def make_in_both(trial: Trial, cache: Cache, change: Change) -> None:
    """Make a change in a trial, and for real in a cache that was the same as the trial's."""
    snapshot, subject = cache.snapshot, change.subject
    match change.act:
        case "set node" if subject.name in snapshot.row_of or not cache.pods_on(subject.name):
            trial.set_node(subject)
            cache.set_node(subject)
        case "set nodes":
            for node in subject:
                make_in_both(trial, cache, Change("set node", node))
        case "remove node" if subject in snapshot.row_of:
            trial.remove_node(subject)
            cache.remove_node(subject)
        case "cordon" if subject in snapshot.row_of:
            trial.cordon(subject)
            node = snapshot.node_at(snapshot.row_of[subject])
            cache.set_node(cordoned(node))
        case "set pod" if subject.node_name in snapshot.row_of and not cache.pod(subject.uid):
            trial.add_pod(subject, subject.node_name)
            cache.set_pod(subject)
        case "remove pod":
            pod = cache.pod(subject)
            if pod is not None and pod.node_name in snapshot.row_of:
                trial.remove_pods([pod])
                cache.remove_pod(subject)
        case _:
            pass  # It cannot happen here.
    cache.update_snapshot()
