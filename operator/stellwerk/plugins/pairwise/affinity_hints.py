"""Queueing hints of InterPodAffinity: the changes that can end its rejection.

Registered by the plugin, called by the queue for unschedulable pods. Invariant: a change that makes
the pod schedulable is answered with Queue. kube-scheduler v1.36 answers QueueSkip to some of them:
a pod that matches one of several anti-affinity terms is deleted, a node leaves a domain where
existing pods have anti-affinity to the pod, a namespace begins to match a namespaceSelector.
"""

from collections.abc import Sequence
from typing import Final

from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import AffinityTerm
from stellwerk.plugins.shared.hints import changed_node, had_node
from stellwerk.snapshot.pair_terms import matches_as_existing, matches_as_incoming
from stellwerk.snapshot.pod_counts import PairCounts

_MANY_TERMS: Final = 256


def affinity_hints(counts: PairCounts) -> Sequence[ClusterEventWithHint]:
    """The plugin's registrations."""
    hints = _AffinityHints(counts)
    scope = HintScope.SPEC_AND_LABELS
    return (
        ClusterEventWithHint(Resource.POD, Action.ADD, hints.after_pod_add, scope),
        ClusterEventWithHint(Resource.POD, Action.DELETE, hints.after_pod_delete, scope),
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
    """The hint functions that read the labels of namespaces or the terms of existing pods."""

    def __init__(self, counts: PairCounts) -> None:
        self._counts = counts

    def after_pod_add(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the new pod fulfils the pod's affinity."""
        if not isinstance(change.new, PodInfo):
            return QUEUE
        return queue_if(had_node(change.new) and self._fulfils(change.new, pod))

    def after_pod_delete(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the pod had anti-affinity to the deleted one, or the deleted one to it."""
        gone = change.old
        if not isinstance(gone, PodInfo):
            return QUEUE
        if not had_node(gone):
            return QUEUE_SKIP
        if len(gone.spec.pod_affinity.required_anti) > _MANY_TERMS:
            # An attempt in vain costs less than so many terms, which each rejected pod is asked of.
            return QUEUE
        return queue_if(
            any(self._matches(term, gone) for term in pod.spec.pod_affinity.required_anti)
            or any(
                matches_as_existing(term.matcher, pod.label_set, self._counts.namespaces)
                for term in gone.spec.pod_affinity.required_anti
            )
        )

    def after_pod_update(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a pod's new labels fulfil the affinity or no longer violate the anti-affinity."""
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo) or new.uid == pod.uid:
            return QUEUE
        if not (had_node(old) and had_node(new)):
            return QUEUE_SKIP
        return queue_if(
            (self._fulfils(new, pod) and not self._fulfils(old, pod))
            or any(
                self._matches(term, old) and not self._matches(term, new)
                for term in pod.spec.pod_affinity.required_anti
            )
        )

    def after_node_change(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a node enters a domain of the affinity, or leaves one of an anti-affinity."""
        old, new = changed_node(change)
        if new is None:
            return QUEUE
        affinity = {term.topology_key for term in pod.spec.pod_affinity.required}
        anti_affinity = {term.topology_key for term in pod.spec.pod_affinity.required_anti}
        of_existing_pods = self._counts.existing_terms(pod.label_set).required_anti
        anti_affinity |= of_existing_pods.keys()
        if old is None:
            # A node without the topology key takes any pod with anti-affinity.
            return queue_if(bool(anti_affinity) or not affinity.isdisjoint(new.labels))
        return queue_if(
            any(_moved(key, old, new) for key in affinity if key in new.labels)
            or any(_moved(key, old, new) for key in anti_affinity if key in old.labels)
        )

    def _fulfils(self, other: PodInfo, pod: PodInfo) -> bool:
        """Whether another pod matches all of the pod's required affinity terms."""
        terms = pod.spec.pod_affinity.required
        return bool(terms) and all(self._matches(term, other) for term in terms)

    def _matches(self, term: AffinityTerm, other: PodInfo) -> bool:
        return matches_as_incoming(term.matcher, other.label_set, self._counts.namespaces)


def _moved(key: str, old: NodeInfo, new: NodeInfo) -> bool:
    return old.labels.get(key) != new.labels.get(key)


def after_namespace_change(pod: PodInfo, _: ClusterChange) -> QueueingHint:
    """Whether the pod's terms read the labels of namespaces."""
    affinity = pod.spec.pod_affinity
    return queue_if(
        any(
            term.matcher.namespace_selector is not None
            for term in (*affinity.required, *affinity.required_anti)
        )
    )
