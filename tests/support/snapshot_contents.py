"""Everything that a snapshot says, by node name, so that two of them can be compared.

Rows that are free, resources that nothing has or requests, and ids of interned values do not show:
they may differ between snapshots that say the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from stellwerk.models.pod import intern_label_set
from stellwerk.models.pod_affinity import PodAffinity
from stellwerk.snapshot.counted_terms import CountedTerm
from stellwerk.snapshot.pair_terms import AffinitySelection, PodSelection, SpreadSelection
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.selectors import LabelSelector, Requirement
from tests.support.builders import pod_info
from tests.support.pairwise_strategies import TOPOLOGY_KEYS

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PROBED_LABEL_SETS: Final = [
    (namespace, labels)
    for namespace in ("default", "prod")
    for labels in ({}, {"app": "a"}, {"app": "b", "tier": "fe"})
]


def _affinity(*terms: Mapping[str, Any]) -> PodAffinity:
    listed = [{"topologyKey": "rack", **term} for term in terms]
    return pod_info("p", affinity={"podAffinity": {_REQUIRED: listed}}).spec.pod_affinity


def _selection(*terms: Mapping[str, Any]) -> AffinitySelection:
    return AffinitySelection(frozenset(term.matcher for term in _affinity(*terms).required))


USUAL_SELECTIONS: Final[Sequence[PodSelection]] = (
    SpreadSelection("default", LabelSelector((Requirement("app", "In", frozenset({"a"})),))),
    _selection({"labelSelector": {"matchLabels": {"app": "a"}}}),
    _selection({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"env": "x"}}}),
)
OTHER_SELECTIONS: Final[Sequence[PodSelection]] = (
    SpreadSelection("prod", LabelSelector((Requirement("tier", "Exists"),))),
    _selection({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}),
)


def contents(
    snapshot: Snapshot, selections: Sequence[PodSelection] = USUAL_SELECTIONS
) -> Mapping[str, Any]:
    """All columns, books and counts; asking for a selection has it counted from then on."""
    for row in snapshot.row_of.values():
        for resource in snapshot.node_at(row).allocatable:
            snapshot.resource_index(resource)
    return {
        "alive": sorted(snapshot.names(np.flatnonzero(snapshot.alive).tolist())),
        "visit order": sorted(snapshot.names(snapshot.visit_order.tolist())),
        "node count": snapshot.node_count,
        "nodes": {name: _node(snapshot, row) for name, row in snapshot.row_of.items()},
        "host ports": {
            port: _by_name(snapshot, snapshot.host_ports.rows(port))
            for port in list(snapshot.host_ports.keys())
        },
        "volumes": {
            key: _by_name(snapshot, snapshot.volume_users.rows(key))
            for key in list(snapshot.volume_users.keys())
        },
        "images": {
            image: set(snapshot.names(snapshot.images.rows(image))) for image in snapshot.images
        },
        "namespaces": dict(snapshot.pair_counts.namespaces),
        "selections": [
            _counts(snapshot, snapshot.pair_counts.term(selection)) for selection in selections
        ],
        "existing terms": [_existing(snapshot, *probe) for probe in _PROBED_LABEL_SETS],
        "held": snapshot.pair_counts.held(),
    }


def layout(snapshot: Snapshot) -> Sequence[Any]:
    """What a rebuild may lay out differently: rows and orders, the very records, image sizes."""
    return [
        list(snapshot.row_of.items()),
        snapshot.names(snapshot.visit_order.tolist()),
        [snapshot.node_at(row) for row in snapshot.row_of.values()],
        [list(map(id, snapshot.pods[row].values())) for row in snapshot.row_of.values()],
        {image: dict(snapshot.images.rows(image)) for image in snapshot.images},
    ]


def _node(snapshot: Snapshot, row: int) -> Mapping[str, Any]:
    node = snapshot.node_at(row)
    labels = {}
    for key in {*node.labels, *TOPOLOGY_KEYS, "zone", "disk"}:
        column = snapshot.label(key)
        value_id = int(column.ids[row])
        labels[key] = column.values[value_id] if value_id >= 0 else None
    return {
        "node": node,
        "pods": {(pod.uid, pod.node_name) for pod in snapshot.pods[row].values()},
        "allocatable": _amounts(snapshot, snapshot.allocatable[:, row].tolist()),
        "requested": _amounts(snapshot, snapshot.requested[:, row].tolist()),
        "extended": dict(snapshot.requested_extended(row)),
        "nonzero": snapshot.nonzero_requested[:, row].tolist(),
        "scored": scored_amounts(snapshot, row),
        "unschedulable": bool(snapshot.unschedulable[row]),
        "taints": snapshot.taint_sets[snapshot.taint_set[row]],
        "labels": labels,
        "volumes": dict(snapshot.volume_users.on_row(row)),
    }


def scored_amounts(snapshot: Snapshot, row: int) -> Mapping[str, list[float]]:
    """(offer, used, free) of a row by resource; kept up to date once they were asked for."""
    found = {}
    for resource, resource_row in snapshot.resource_row.items():
        amounts = snapshot.scored(resource_row)
        columns = (amounts.offers, amounts.used, amounts.free)
        found[resource] = [float(column[row]) for column in columns]
    return {resource: amounts for resource, amounts in found.items() if any(amounts)}


def _amounts(snapshot: Snapshot, column: list[int]) -> Mapping[str, int]:
    return {resource: column[row] for resource, row in snapshot.resource_row.items() if column[row]}


def _by_name(snapshot: Snapshot, rows: Mapping[int, int]) -> Mapping[str, int]:
    return {snapshot.node_at(row).name: count for row, count in rows.items()}


def _counts(snapshot: Snapshot, term: CountedTerm) -> Mapping[str, Any]:
    column = term.column.dense(snapshot.size)
    found: dict[str, Any] = {
        "total": term.column.total,
        "nodes": {name: int(column[row]) for name, row in snapshot.row_of.items()},
        "rows": int(column.sum()),
    }
    for key in TOPOLOGY_KEYS:
        topology = snapshot.topology(key)
        domains = term.by_domain(topology)
        found[key] = {
            name: int(domains.totals[row if topology.one_node_per_domain else topology.domain[row]])
            for name, row in snapshot.row_of.items()
            if topology.has[row]
        }
        found[f"{key} domains"] = (domains.domain_count(), domains.smallest())
    return found


def _existing(
    snapshot: Snapshot, namespace: str, labels: Mapping[str, str]
) -> Mapping[tuple[Any, ...], Any]:
    matching = snapshot.pair_counts.existing_terms(intern_label_set(namespace, labels))
    return {
        (term.kind, term.topology_key, term.weight, term.matcher): _counts(snapshot, term)
        for groups in (matching.required, matching.required_anti, matching.preferred)
        for group in groups.values()
        for term in group.terms
    }
