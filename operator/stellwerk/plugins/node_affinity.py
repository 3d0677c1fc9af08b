"""NodeAffinity: spec.nodeSelector, required and preferred node affinity, and the profile's own.

Invariant: a pod whose required terms name nodes by metadata.name is never looked at anywhere else
(PreFilter), and a term without requirements matches no node.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.changes import Change, EditPod, SetLabels
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
from stellwerk.framework.interface import (
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    NormalizeScorePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ProposePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, SKIP, CycleState, FilterResult, Status, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.hints import changed_node
from stellwerk.plugins.shared.label_changes import LabelChanges, label_changes
from stellwerk.plugins.shared.node_matching import (
    matching_labels,
    matching_nodes,
    matching_term,
    named,
)
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.plugins.shared.score_normalization import normalize_to_highest
from stellwerk.profiles.spec.plugin_args import NodeAffinityArgs
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorTerm,
    PreferredTerm,
    parse_node_selector,
    parse_preferred_terms,
)

_NAME: Final = "NodeAffinity"
_CONFLICT: Final = unresolvable(_NAME, "pod affinity terms conflict")
_POD: Final = unresolvable(_NAME, "node(s) didn't match Pod's node affinity/selector")
_ENFORCED: Final = unresolvable(_NAME, "node(s) didn't match scheduler-enforced node affinity")
_STATUS_OF_CODE: Final = (OK, _POD, _ENFORCED)
_POD_CODE: Final = np.int32(1)
_ENFORCED_CODE: Final = np.int32(2)


class NodeAffinity(
    RowByRow,
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensions,
    ProposePlugin,
):
    """Filters by what is required, scores by the weights of what is preferred."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[NodeAffinityArgs]] = NodeAffinityArgs
    filter_reuse: ClassVar[Reuse] = Reuse.NODE
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, _handle: Handle, args: NodeAffinityArgs) -> None:
        self._added_required: NodeSelector | None = None
        self._added_preferred: tuple[PreferredTerm, ...] = ()
        if args.added_affinity is not None:
            added = args.added_affinity.model_dump(by_alias=True, exclude_none=True)
            self._added_required = parse_node_selector(
                added.get("requiredDuringSchedulingIgnoredDuringExecution")
            )
            self._added_preferred = parse_preferred_terms(
                added.get("preferredDuringSchedulingIgnoredDuringExecution")
            )

    # --- PreFilter and Filter -------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        spec = pod.spec
        node_names = pod.details.node_names
        if node_names is None and spec.required_node_affinity is not None:
            node_names = _node_names(spec.required_node_affinity)
        elif node_names is None and self._added_required is None and not spec.node_selector:
            return SKIP_FILTER
        if node_names is not None and not node_names:
            return PreFilterResult(_CONFLICT)
        return PreFilterResult(OK, node_names)

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        codes = np.where(_matching_pod(nodes, pod), np.int32(0), _POD_CODE)
        if self._added_required is not None:
            # The profile's affinity is checked first, as upstream: its reason wins.
            codes[~matching_nodes(nodes, self._added_required)] = _ENFORCED_CODE
        return FilterResult(codes, _STATUS_OF_CODE.__getitem__)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is None:
            return _edits(pod)
        return _labels(pod, nodes.snapshot.node_at(row))

    @override
    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # Nodes named by the pod are no part of the spec that it shares with the rest of its set.
        return pod.spec if pod.node_names is None else None

    # --- Score ----------------------------------------------------------------------------------

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        return OK if pod.spec.preferred_node_affinity or self._added_preferred else SKIP

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        scores: IntColumn = np.zeros(len(nodes), np.int64)
        for preferred in (*self._added_preferred, *pod.spec.preferred_node_affinity):
            scores += matching_term(nodes, preferred.term) * np.int64(preferred.weight)
        return scores

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        return normalize_to_highest(scores)

    # --- queueing hints -------------------------------------------------------------------------

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL,
                self._began_to_match,
                HintScope.SPEC_AND_NODE_NAMES,
            ),
        )

    def _began_to_match(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the node matches now, and is new or did not match before."""
        old, new = changed_node(change)
        if new is None:
            return QUEUE
        added = self._added_required
        if added is not None and not added.matches(new.labels, new.name):
            return QUEUE_SKIP
        return queue_if(_matches(pod, new) and (old is None or not _matches(pod, old)))


def _matching_pod(nodes: NodeView, pod: PodInfo) -> Mask:
    """(n,) bool, True where the node has what the pod itself requires."""
    matching = matching_labels(nodes, pod.spec.node_selector)
    if pod.spec.required_node_affinity is not None:
        matching &= matching_nodes(nodes, pod.spec.required_node_affinity)
    if pod.node_names is not None:
        matching &= named(nodes, pod.node_names)
    return matching


def _matches(pod: PodInfo, node: NodeInfo) -> bool:
    """`_matching_pod` of a single node that need not be in the snapshot."""
    spec, labels = pod.spec, node.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    required = spec.required_node_affinity
    return (required is None or required.matches(labels, node.name)) and (
        pod.node_names is None or node.name in pod.node_names
    )


def _node_names(required: NodeSelector) -> frozenset[str] | None:
    """The only nodes that the terms admit by metadata.name; None if some term names none.

    Empty if every term contradicts itself.
    """
    names: set[str] = set()
    for term in required.terms:
        of_term = _term_node_names(term)
        if of_term is None:
            return None
        names |= of_term
    return frozenset(names) if required.terms else None


def _term_node_names(term: NodeSelectorTerm) -> frozenset[str] | None:
    names: frozenset[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == NODE_NAME_FIELD and requirement.operator == "In":
            names = requirement.values if names is None else names & requirement.values
    return names


# --- proposals ----------------------------------------------------------------------------------


_MAX_PROPOSED_LABELS: Final = 64
"""Labels that are proposed for a node: more than it ever lacks by mistake. Each is a column of all
nodes when it is tried."""


def _labels(pod: PodInfo, node: NodeInfo) -> Iterator[Change]:
    """The labels that the pod asks of its node."""
    spec, labels = pod.spec, node.labels
    needed: LabelChanges = {
        key: value for key, value in spec.node_selector.items() if labels.get(key) != value
    }
    required = spec.required_node_affinity
    if required is None or required.matches(labels, node.name):
        options: list[LabelChanges] = [{}]
    else:
        options = list(label_changes(required, node))
    for option in options:
        together = {**option, **needed}
        if len(together) > _MAX_PROPOSED_LABELS:
            continue
        if together and all(option.get(key, value) == value for key, value in needed.items()):
            yield SetLabels(node.name, tuple(together.items()))


def _edits(pod: PodInfo) -> Iterator[Change]:
    for key, value in pod.spec.node_selector.items():
        yield EditPod(f"drop {key}={value} from nodeSelector", _without_selector(key))
    if pod.spec.required_node_affinity is not None or pod.node_names is not None:
        yield EditPod("drop the required node affinity", _without_affinity)


def _without_selector(key: str) -> Callable[[PodInfo], PodInfo]:
    def edit(pod: PodInfo) -> PodInfo:
        left = {name: value for name, value in pod.spec.node_selector.items() if name != key}
        return replace(pod, spec=replace(pod.spec, node_selector=left))

    return edit


def _without_affinity(pod: PodInfo) -> PodInfo:
    return replace(
        pod,
        spec=replace(pod.spec, required_node_affinity=None),
        details=replace(pod.details, node_names=None),
    )
