"""Which changes can end a rejection by InterPodAffinity.

Registered by the plugin, called by the queue for waiting pods. Invariant: a change that makes the
pod schedulable wakes it. kube-scheduler v1.36 sleeps through some that are answered here: a pod
that matches one of several anti-affinity terms goes away, a node leaves a domain where placed pods
shun the pod, a namespace begins to match a namespaceSelector.
"""

from collections.abc import Sequence

from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    Resource,
)
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import AffinityTerm
from stellwerk.plugins.shared.hints import changed_node, occupied_room
from stellwerk.snapshot.pair_counts import PairCounts
from stellwerk.snapshot.pair_terms import matches_as_existing, matches_as_incoming


def affinity_hints(counts: PairCounts) -> Sequence[ClusterEventWithHint]:
    """The plugin's registrations."""
    hints = _AffinityHints(counts)
    scope = HintScope.SPEC_AND_LABELS
    return (
        ClusterEventWithHint(Resource.POD, Action.ADD, hints.after_pod_came, scope),
        ClusterEventWithHint(Resource.POD, Action.DELETE, hints.after_pod_went, scope),
        ClusterEventWithHint(
            Resource.POD, Action.UPDATE_POD_LABEL, hints.after_pod_update, HintScope.POD
        ),
        ClusterEventWithHint(
            Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, hints.after_node_change, scope
        ),
        ClusterEventWithHint(
            Resource.NAMESPACE, Action.ADD | Action.UPDATE, after_namespace_change
        ),
    )


class _AffinityHints:
    """The hint functions about pods, which need to know the namespaces."""

    def __init__(self, counts: PairCounts) -> None:
        self._counts = counts

    def after_pod_came(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether a pod appeared that fulfils the pod's affinity."""
        if not isinstance(change.new, PodInfo):
            return True
        return occupied_room(change.new) and self._attracts(pod, change.new)

    def after_pod_went(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether a pod vanished that the pod shuns, or that shuns the pod."""
        gone = change.old
        if not isinstance(gone, PodInfo):
            return True
        return occupied_room(gone) and (
            any(self._means(term, gone) for term in pod.spec.pod_affinity.required_anti)
            or any(
                matches_as_existing(term.matcher, pod.label_set, self._counts.namespaces)
                for term in gone.spec.pod_affinity.required_anti
            )
        )

    def after_pod_update(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether a pod's new labels fulfil the affinity or no longer violate the anti-affinity."""
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo) or new.uid == pod.uid:
            return True
        if not (occupied_room(old) and occupied_room(new)):
            return False
        return (self._attracts(pod, new) and not self._attracts(pod, old)) or any(
            self._means(term, old) and not self._means(term, new)
            for term in pod.spec.pod_affinity.required_anti
        )

    def after_node_change(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether a node enters a domain the pod needs, or leaves one where it is not wanted."""
        old, new = changed_node(change)
        if new is None:
            return True
        wanted = {term.topology_key for term in pod.spec.pod_affinity.required}
        shunned = {term.topology_key for term in pod.spec.pod_affinity.required_anti}
        placed = self._counts.existing_terms(pod.label_set).required_anti
        shunned |= {term.topology_key for term in placed}
        if old is None:
            # A node without the topology key takes any pod with anti-affinity.
            return bool(shunned) or not wanted.isdisjoint(new.labels)
        return any(_moved(key, old, new) for key in wanted if key in new.labels) or any(
            _moved(key, old, new) for key in shunned if key in old.labels
        )

    def _attracts(self, pod: PodInfo, other: PodInfo) -> bool:
        """Whether another pod matches all of the pod's required affinity terms."""
        terms = pod.spec.pod_affinity.required
        return bool(terms) and all(self._means(term, other) for term in terms)

    def _means(self, term: AffinityTerm, other: PodInfo) -> bool:
        return matches_as_incoming(term.matcher, other.label_set, self._counts.namespaces)


def _moved(key: str, old: NodeInfo, new: NodeInfo) -> bool:
    return old.labels.get(key) != new.labels.get(key)


def after_namespace_change(pod: PodInfo, change: ClusterChange) -> bool:  # noqa: ARG001 a hint function
    """Whether the pod's terms read the labels of namespaces."""
    affinity = pod.spec.pod_affinity
    return any(
        term.matcher.namespace_selector is not None
        for term in (*affinity.required, *affinity.required_anti)
    )
