"""The nodes as the operator's port lists them, and one node explained.

`explain.lists.nodes` makes both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.reading import ClusterReading
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
    """The amounts as Kubernetes writes them."""

    def used(self, resource: str, unit: int) -> str:
        """USED/OFFERED of a resource, in a larger unit."""
        amounts = (self.requested.get(resource, 0), self.allocatable.get(resource, 0))
        return "/".join(f"{amount / unit:.4g}" for amount in amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTotals(PortAnswer):
    """The sums over several nodes, by resource."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage(PortAnswer):
    """Nodes, in the order of their arrival."""

    TITLES: ClassVar = ("NODE", "CPU", "MEMORY GiB", "PODS", "TAINTS")
    NONE: ClassVar = "There is no node."

    total: int
    items: Sequence[NodeFields]
    totals: NodeTotals | None = None
    """The sums over all nodes asked for, on this page or not; absent: they were not wanted."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""
    shares: Sequence[int] | None = None
    """Percent of one resource that pods request of each node, in the order of the list, whatever
    the page; -1: the node does not offer it. Absent: they were not wanted."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each node: what pods request of what it offers."""
        for each in self.items:
            taints = (
                f"{taint.key}{'=' * bool(taint.value)}{taint.value}:{taint.effect}"
                for taint in each.taints
            )
            used = (each.used("cpu", 1000), each.used("memory", 1 << 30), each.used("pods", 1))
            yield (each.name, *used, ", ".join(taints))

    def count(self) -> int:
        """The nodes that there are, on this page or not."""
        return self.total

    def remarks(self) -> Iterator[str]:
        """No line stands below the table."""
        return iter(())

    def names(self) -> Iterator[str]:
        """The nodes."""
        return (f"node/{each.name}" for each in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsTurnedAway(PortAnswer):
    """Pending pods that one plugin rejects on a node for the same reasons."""

    plugin: str
    reasons: Sequence[str]
    pods: Sequence[str]
    """Some of them."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod(PortAnswer):
    """A pod on a node."""

    pod: str
    requests: Mapping[str, int]
    """Amounts by resource: cpu in millicores, memory and storage in bytes."""
    priority: int
    started: Time | None = None
    """status.startTime; absent: it has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation(PortAnswer):
    """A node, and which of the pods that wait would fit there, each seen alone."""

    node: NodeFields
    running: int
    """Pods on it."""
    pods: Sequence[str] = ()
    """Some of them."""
    pods_there: Sequence[NodePod] = ()
    """These pods with the amounts that they request."""
    fitting: Sequence[str]
    """Waiting pods that it would take."""
    turned_away: Sequence[PodsTurnedAway]
    """The reason that concerns most pods first."""
    left_out: int | None = None
    """Pending pods that were not examined."""
    stopped: str | None = None
    """The reason for which they were not."""
    compatibility: Sequence[str] = ()
    """The Kubernetes releases that the verdicts follow."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""
