"""Resources with a row in the (R, N) columns: some node offers them and some pod asks for them.

The snapshot keeps one. Pods may invent resources, and nodes may offer thousands: a row is made when
a plugin first asks for a resource that some node offers, and freed with the last such node.
Invariant: a resource without a row is offered by no node, or has not been asked for.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from stellwerk.snapshot.pod_counts import NATIVE_RESOURCES

MANY_RESOURCES: Final = 1000
"""A node that offers more is kept as a whole, and looked at when a pod asks."""


class ResourceRows:
    """Rows by resource, free rows, and what nodes offer."""

    def __init__(self) -> None:
        self.row_of: dict[str, int] = {
            resource: row for row, resource in enumerate(NATIVE_RESOURCES)
        }
        """The rows in use; those of native resources come first and stay."""
        self.used = len(NATIVE_RESOURCES)
        """Rows in use or once used."""
        self._free: list[int] = []
        self._nodes_offering: dict[str, int] = {}
        """The number of nodes that offer a resource, those with very many left out."""
        self._large: dict[int, Mapping[str, int]] = {}
        """The resources of nodes that offer very many, by the node's row."""

    def is_offered(self, resource: str) -> bool:
        """Whether some node has a resource that is not native."""
        return resource in self._nodes_offering or any(
            resource in offer for offer in self._large.values()
        )

    def take(self, resource: str) -> int:
        """A row for a resource that has none, zero everywhere."""
        row = self._free.pop() if self._free else self.used
        self.used = max(self.used, row + 1)
        self.row_of[resource] = row
        return row

    def change_node(
        self, node_row: int, before: Mapping[str, int], after: Mapping[str, int]
    ) -> list[int]:
        """Another offer of a node; returns the rows that are free now, to be zeroed."""
        if node_row in self._large or len(after) > MANY_RESOURCES:
            return self._change_large(node_row, before, after)
        if before.keys() == after.keys():
            return []
        self._count(after)
        return self._freed(self._uncounted(before))

    def _change_large(
        self, node_row: int, before: Mapping[str, int], after: Mapping[str, int]
    ) -> list[int]:
        """Count a node that has, or had, very many resources; only those in rows are looked at."""
        if self._large.pop(node_row, None) is None:
            lost = self._uncounted(before)
        else:
            lost = [resource for resource in _extended(self.row_of) if resource in before]
        if len(after) > MANY_RESOURCES:
            self._large[node_row] = after
        else:
            self._count(after)
        return self._freed(lost)

    def _count(self, offer: Mapping[str, int]) -> None:
        offering = self._nodes_offering
        for resource in _extended(offer):
            offering[resource] = offering.get(resource, 0) + 1

    def _uncounted(self, offer: Mapping[str, int]) -> list[str]:
        """Take out an offer; returns the resources that were offered by no other counted node."""
        offering, lost = self._nodes_offering, []
        for resource in _extended(offer):
            nodes = offering[resource] - 1
            if nodes:
                offering[resource] = nodes
            else:
                del offering[resource]
                lost.append(resource)
        return lost

    def _freed(self, lost: Iterable[str]) -> list[int]:
        """Take away the rows of those resources that no node offers."""
        row_of = self.row_of
        gone = [each for each in lost if each in row_of and not self.is_offered(each)]
        freed = [row_of.pop(resource) for resource in gone]
        self._free += freed
        return freed

    def compact(self) -> list[int]:
        """Number the rows in use anew, without gaps; returns which they were."""
        rows = list(self.row_of.values())
        self.row_of = {resource: row for row, resource in enumerate(self.row_of)}
        self.used = len(rows)
        self._free.clear()
        return rows

    def fork(self) -> "ResourceRows":
        """A copy."""
        fork = ResourceRows()
        fork.row_of, fork.used, fork._free = self.row_of.copy(), self.used, self._free.copy()
        fork._nodes_offering, fork._large = self._nodes_offering.copy(), self._large.copy()
        return fork


def _extended(offer: Iterable[str]) -> list[str]:
    return [resource for resource in offer if resource not in NATIVE_RESOURCES]
