"""Whether zones can hold what a pod asks, on all nodes of a view at once.

`Alignment` makes the choices of the kubelet's single-numa-node policy: each request goes whole into
the lowest zone that holds it, and is taken from there before the next.
"""

import numpy as np
import numpy.typing as npt

from stellwerk.plugin_api import Mask, NodeView, RowColumn
from stellwerk_plugins.numa.columns import ZoneMask, Zones, whole_above
from stellwerk_plugins.numa.requests import Request, is_shared, may_be_anywhere


class Alignment:
    """The zones of the nodes of a view, from which requests are taken one after the other."""

    def __init__(self, zones: Zones, nodes: NodeView, *, guaranteed: bool) -> None:
        self._zones = zones
        self._rows: RowColumn | slice = nodes.rows
        self._size = len(nodes)
        self._guaranteed = guaranteed
        self._left: dict[str, npt.NDArray[np.int64]] = {}
        """(P, n) int64, what is available of resources from which something was taken."""

    def place(self, request: Request) -> tuple[Mask, RowColumn]:
        """((n,) bool, whether a zone holds the request; (n,) intp, the position of the lowest)."""
        possible = np.ones((self._zones.present.shape[0], self._size), np.bool_)
        offered: Mask = np.ones(self._size, np.bool_)
        for resource, amount in request.items():
            if not amount:
                continue
            amounts = self._zones.amounts(resource)
            if not amounts.offered.all():
                offered &= amounts.offered[self._rows]
            if self._guaranteed or not is_shared(resource):
                # Of what a zone does not report, 0 is available.
                holds: ZoneMask = self._available(resource) >= whole_above(resource, amount)
            else:
                holds = amounts.reported[:, self._rows]
            if may_be_anywhere(resource):
                holds = holds | ~amounts.reported[:, self._rows].any(axis=0)
            possible &= holds
        fits: Mask = offered & possible.any(axis=0)
        return fits, possible.argmax(axis=0)

    def take(self, request: Request, positions: RowColumn) -> None:
        """Take a request from the zones at these positions."""
        everywhere = np.arange(self._size)
        for resource, amount in request.items():
            if not amount or (is_shared(resource) and not self._guaranteed):
                continue
            left = self._left.get(resource)
            if left is None:
                left = self._left[resource] = self._available(resource).copy()
            # What is below 0 holds nothing, as what is not reported.
            left[positions, everywhere] -= whole_above(resource, amount)

    def _available(self, resource: str) -> npt.NDArray[np.int64]:
        left = self._left.get(resource)
        if left is not None:
            return left
        available: npt.NDArray[np.int64] = self._zones.amounts(resource).available[:, self._rows]
        return available
