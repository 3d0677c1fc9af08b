"""The key of a pod's group: the API of the group, its namespace and its name.

Pods are parsed with one, groups are found by it. Invariant: a key says nothing of whether the group
exists.
"""

from typing import Final, NamedTuple

WORKLOAD_API: Final = "scheduling.k8s.io"
"""PodGroups of kube-scheduler, which pods name in spec.schedulingGroup."""
COSCHEDULING_API: Final = "scheduling.x-k8s.io"
"""PodGroups of the coscheduling plugin (v1alpha1), which pods name by a label."""
GROUP_KINDS: Final = {"PodGroup": WORKLOAD_API, "CoschedulingPodGroup": COSCHEDULING_API}
"""Kinds as `handlers.delivery` calls them, and the API of each."""
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"


class PodGroupKey(NamedTuple):
    """The identity of a group, as its members give it."""

    api: str
    namespace: str
    name: str

    @property
    def shown(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"
