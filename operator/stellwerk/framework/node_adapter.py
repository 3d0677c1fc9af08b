"""The short way to write a plugin: one function of one node, in place of columns.

Users inherit one of these classes and register theirs as an entry point of group
`stellwerk.plugins`; the framework sees ordinary Filter and Score plugins. Invariant: the node shown
to the function equals the view's row, including pods that an overlay has added or taken away.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.answers.pod import PluginFacts
from stellwerk.framework.changes import Change
from stellwerk.framework.interface import (
    ExplainPlugin,
    FilterPlugin,
    ProposePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState, FilterResult, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, VerdictColumn
from stellwerk.snapshot.pod_counts import NATIVE_RESOURCES, Usage
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.taints import Taint


@dataclass(frozen=True, slots=True)
class Node:
    """One node with what runs on it; read only."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    """Amount by resource; cpu in millicores, memory and storage in bytes, all else in units."""
    requested: Mapping[str, int]
    """Amount that its pods request by resource, in the same units; "pods" is their number."""
    pods: tuple[PodInfo, ...]
    """Bound and assumed pods."""


class _WithArguments:
    """Holds what every plugin is made with."""

    def __init__(self, handle: Handle, args: BaseModel | None = None) -> None:
        self.handle = handle
        self.args = args


class NodeFilterPlugin(_WithArguments, FilterPlugin):
    """A Filter plugin that looks at one node at a time.

    `filter_reuse` may be set to NODE or USAGE if the answer depends on nothing but pod.spec and the
    node (and, with USAGE, its pods): the function then runs again only for nodes that changed.
    """

    def __init__(self, handle: Handle, args: BaseModel | None = None) -> None:
        super().__init__(handle, args)
        self._codes_of_reasons: dict[str, int] = {}

    @abstractmethod
    def filter_node(self, pod: PodInfo, node: Node) -> str | None:
        """Return why the pod does not fit on the node, or None if it does."""

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        # Codes of cached columns must mean the same in later answers.
        reasons = {} if self.filter_reuse is Reuse.NEVER else self._codes_of_reasons
        codes: VerdictColumn = np.zeros(len(nodes), np.int32)
        for position, node in _nodes(nodes):
            reason = self.filter_node(pod, node)
            if reason is not None:
                codes[position] = reasons.setdefault(reason, len(reasons) + 1)
        texts = list(reasons)
        return FilterResult(codes, lambda code: unschedulable(self.name, texts[code - 1]))


class NodeExplainPlugin(_WithArguments, ExplainPlugin, ProposePlugin):
    """Adds to explanations, and proposes changes, by one node at a time; beside either other base.

    Both are asked only when a user asks why a pod waits, and each proposal is tried before it is
    suggested.
    """

    def explain_pod(self, pod: PodInfo, nodes: Iterator[Node]) -> str | None:  # noqa: ARG002
        """Return a line for the explanation of a pod, or None."""
        return None

    def propose_for_pod(self, pod: PodInfo) -> Iterable[Change]:  # noqa: ARG002
        """Return what the pod could do without, so that more nodes take it."""
        return ()

    def propose_for_node(self, pod: PodInfo, node: Node) -> Iterable[Change]:  # noqa: ARG002
        """Return what would make this node take the pod, which the plugin turns away."""
        return ()

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        line = self.explain_pod(pod, (node for _, node in _nodes(nodes)))
        return None if line is None else PluginFacts(lines=[line])

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterable[Change]:
        if row is None:
            return self.propose_for_pod(pod)
        info = nodes.snapshot.node_at(row)
        node = _node(info, nodes.snapshot.pods[row], nodes.snapshot.usage(row))
        return self.propose_for_node(pod, node)


class NodeScorePlugin(_WithArguments, ScorePlugin):
    """A Score plugin that looks at one node at a time.

    Scores are 0–100, unless the class also has `normalize`. `score_reuse` is as `filter_reuse`.
    """

    @abstractmethod
    def score_node(self, pod: PodInfo, node: Node) -> int:
        """Return the node's score; the more, the better."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        scores: IntColumn = np.zeros(len(nodes), np.int64)
        for position, node in _nodes(nodes):
            scores[position] = self.score_node(pod, node)
        return scores


def _nodes(nodes: NodeView) -> Iterator[tuple[int, Node]]:
    """The nodes in view by position; free rows are left out."""
    changes: dict[int, list[tuple[PodInfo, int]]] = {}
    if nodes.overlay is not None:
        for position, pod, change in nodes.overlay.changes():
            changes.setdefault(position, []).append((pod, change))
    rows = nodes.row_numbers().tolist()
    for position, (row, info) in enumerate(zip(rows, nodes.nodes(), strict=True)):
        if info is not None:
            pods = dict(nodes.snapshot.pods[row])
            changed = changes.get(position, ())
            for pod, change in changed:
                if change > 0:
                    pods[pod.uid] = pod
                else:
                    pods.pop(pod.uid, None)
            usage = nodes.snapshot.usage(row)
            for pod, change in changed:
                usage.count(pod, change)
            yield position, _node(info, pods, usage)


def _node(info: NodeInfo, pods: Mapping[str, PodInfo], usage: Usage) -> Node:
    return Node(
        name=info.name,
        labels=MappingProxyType(dict(info.labels)),
        taints=info.taints,
        allocatable=MappingProxyType(dict(info.allocatable)),
        requested=MappingProxyType(
            {
                **dict.fromkeys(info.allocatable, 0),
                **dict(zip(NATIVE_RESOURCES, usage.amounts, strict=True)),
                **usage.extended,
            }
        ),
        pods=tuple(pods.values()),
    )
