"""The topology labels that a node lacks, with values that other nodes have.

PodTopologySpread and InterPodAffinity propose them alike, so that what both ask for is one change.
"""

from collections.abc import Iterator
from typing import Final

from stellwerk.framework.changes import Change, SetLabels
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot

_FEW: Final = 4
"""So many values of a label are tried."""


def topology_labels(pod: PodInfo, snapshot: Snapshot, node: NodeInfo) -> Iterator[Change]:
    """The labels that the pod's hard constraints and required affinity go by."""
    spec = pod.spec
    keys = [each.topology_key for each in spec.spread_constraints if each.hard]
    keys += [term.topology_key for term in spec.pod_affinity.required]
    for key in dict.fromkeys(keys):
        if key not in node.labels:
            for value in snapshot.label(key).values[:_FEW]:
                yield SetLabels(node.name, ((key, value),))
