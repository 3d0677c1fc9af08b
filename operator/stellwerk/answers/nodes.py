"""The nodes as the operator's port lists them, and one node explained.

`explain.lists.nodes` makes both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.suggestion import TaintFields


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuantities(PortAnswer):
    """Amounts of a node as quantities, such as 500m and 4Gi."""

    allocatable: Mapping[str, str]
    requested: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFields(PortAnswer):
    """A node with what it offers and what is used of it."""

    name: str
    allocatable: Mapping[str, int]
    """Amounts by resource: cpu in millicores, memory and storage in bytes."""
    requested: Mapping[str, int]
    labels: Mapping[str, str]
    taints: Sequence[TaintFields]
    unschedulable: bool
    quantities: NodeQuantities | None = None
    """The same amounts as Kubernetes writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTotals(PortAnswer):
    """The sums over several nodes, by resource."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage(PortAnswer):
    """Nodes, in the order of their arrival."""

    total: int
    items: Sequence[NodeFields]
    totals: NodeTotals | None = None
    """Of all nodes that were asked for, on this page or not; absent: they were not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsTurnedAway(PortAnswer):
    """Waiting pods that one plugin turns away from a node for the same reasons."""

    plugin: str
    reasons: Sequence[str]
    pods: Sequence[str]
    """Some of them."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation(PortAnswer):
    """A node, and which of the pods that wait would fit there, each seen alone."""

    node: NodeFields
    running: int
    """Pods on it."""
    pods: Sequence[str] = ()
    """Some of them."""
    fitting: Sequence[str]
    """Waiting pods that it would take."""
    turned_away: Sequence[PodsTurnedAway]
    """The reason that concerns most pods first."""
    left_out: int | None = None
    """So many waiting pods were not looked at."""
    stopped: str | None = None
    """Why not."""
    compatibility: Sequence[str] = ()
    """The Kubernetes releases that the verdicts follow."""
