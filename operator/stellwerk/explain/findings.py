"""What every filter says of every node for one pod: each plugin asked on its own.

Explanations and the search for what would help begin with it. Invariant: a node that no plugin
turns away here and that is not feasible nevertheless is kept from the pod by PreFilter or by pods
that are nominated to it, and is counted as such.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.types import Feasibility, FilterResult, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.world.decide import find_nodes
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World


@dataclass(frozen=True, slots=True)
class Findings:
    """The verdicts of all plugins on all nodes."""

    found: Feasibility
    rows: RowColumn
    """(n,) the rows of the nodes, in the order of their arrival."""
    results: Mapping[str, FilterResult]
    """Plugin → its verdicts, by position in `rows`; empty where PreFilter turned the pod away."""
    diagnosis: Diagnosis
    """The first rejection of each node, nominated pods counted."""

    @property
    def fails(self) -> IntColumn:
        """(n,) how many plugins turn each node away."""
        total = np.zeros(len(self.rows), np.int64)
        for result in self.results.values():
            total += result.codes != 0
        return total

    @property
    def fits(self) -> Mask:
        """(n,) bool, the nodes that take the pod."""
        mask: Mask = self.found.fits[self.rows]
        return mask

    def failing(self, position: int) -> list[str]:
        """The plugins that turn one node away."""
        return [name for name, result in self.results.items() if result.codes[position]]

    def status(self, plugin: str, position: int) -> Status:
        """What one plugin says of one node that it turns away."""
        result = self.results[plugin]
        return result.status(int(result.codes[position]))

    def statuses(self, plugin: str) -> Sequence[tuple[Status, list[int]]]:
        """The statuses of one plugin with the positions that have them, the most frequent first."""
        result = self.results[plugin]
        codes = result.codes
        rejected = np.unique(codes[codes != 0]).tolist()
        by_code = [
            (result.status(code), np.flatnonzero(codes == code).tolist()) for code in rejected
        ]
        return sorted(by_code, key=lambda each: -len(each[1]))


def findings(world: World, pod: PodInfo, profile: ServedProfile) -> Generator[None, None, Findings]:
    """Ask every plugin about every node, one after the other.

    Raises:
        PluginFailure: a plugin raised.
    """
    search = find_nodes(world, pod, profile, thorough=True)
    yield
    found, snapshot, framework = search.found, search.snapshot, profile.framework
    rows = np.array(list(snapshot.row_of.values()), np.intp)
    results: dict[str, FilterResult] = {}
    if found.pre_filter.ok:
        view = NodeView(snapshot, rows)
        for plugin, result in framework.filters.each(found.state, pod, view):
            results[plugin.name] = result
            yield
    return Findings(found, rows, results, framework.filtering.diagnose(found, pod))
