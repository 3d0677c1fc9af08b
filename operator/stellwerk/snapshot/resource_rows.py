"""Resources with a row in the (R, N) columns: some node offers them and some pod asks for them.

The snapshot keeps one. Pods may invent resources, and nodes may offer thousands: a row is made when
a plugin first asks for a resource that some node offers, and freed with the last such node.
Invariant: a resource without a row is offered by no node, or has not been asked for.
"""

from collections.abc import Iterable, Mapping

from stellwerk.snapshot.usage import NATIVE_RESOURCES


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

    def is_offered(self, resource: str) -> bool:
        """Whether some node has a resource that is not native."""
        return resource in self._nodes_offering

    def take(self, resource: str) -> int:
        """A row for a resource that has none, zero everywhere."""
        row = self._free.pop() if self._free else self.used
        self.used = max(self.used, row + 1)
        self.row_of[resource] = row
        return row

    def change_node(self, before: Mapping[str, int], after: Mapping[str, int]) -> list[int]:
        """Another offer of a node; returns the rows that are free now, to be zeroed."""
        if before.keys() == after.keys():
            return []
        offering, freed = self._nodes_offering, []
        for resource in _extended(after):
            offering[resource] = offering.get(resource, 0) + 1
        for resource in _extended(before):
            nodes = offering[resource] - 1
            if nodes:
                offering[resource] = nodes
                continue
            del offering[resource]
            row = self.row_of.pop(resource, None)
            if row is not None:
                freed.append(row)
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
        fork._nodes_offering = self._nodes_offering.copy()
        return fork


def _extended(offer: Iterable[str]) -> list[str]:
    return [resource for resource in offer if resource not in NATIVE_RESOURCES]
