"""Filter of DynamicResources: a verdict for each row of a view.

The plugin's Filter, Reserve and PostFilter ask. Invariant: rows are judged in kube-scheduler's
order: extended resources, then the search, then the claims that are allocated already.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from stellwerk.framework.types import CycleState, FilterResult, completes, error, unresolvable
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.selectors import parse_node_selector
from stellwerk.plugins.devices.attempt import Attempt
from stellwerk.plugins.devices.claims import demand_of
from stellwerk.plugins.devices.extended import (
    ExtendedClaim,
    extended_claim,
    is_offered,
    left_to_devices,
    spec_of,
)
from stellwerk.plugins.devices.finder import BEST_ALTERNATIVE, INVALID, NONE, Answers, DeviceFinder
from stellwerk.plugins.devices.readiness import is_available
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn, VerdictColumn
from stellwerk.snapshot.snapshot import NodeView

NAME: Final = "DynamicResources"
UNAVAILABLE: Final = unresolvable(NAME, "resourceclaim not available on the node")
NOT_ALLOCATED: Final = unresolvable(NAME, "cannot allocate all claims")
_STATUSES: Final = {
    1: unresolvable(NAME, "cannot schedule extended resource claim"),
    2: unresolvable(NAME, "cannot fit resource"),
    3: NOT_ALLOCATED,
    4: unresolvable(NAME, "invalid resource pools were encountered"),
    5: UNAVAILABLE,
    6: error(NAME, "devices are still being searched"),
}
_STALE, _NO_RESOURCE, _NOT_ALLOCATED, _INVALID_POOLS, _UNAVAILABLE, _UNFINISHED = _STATUSES
_FIRST_FAILURE: Final = 7


@dataclass(frozen=True, slots=True)
class NodeVerdicts:
    """Judges the nodes for one attempt."""

    finder: DeviceFinder
    pod: PodInfo
    attempt: Attempt
    now: datetime
    timeout_seconds: float

    def filter(self, nodes: NodeView, state: CycleState) -> FilterResult:
        """The verdicts of the rows of a view; without meaning if work is left undone."""
        rows = nodes.row_numbers()
        codes = np.zeros(len(rows), np.int32)
        failures: list[str] = []
        if self.attempt.stale is not None:
            codes[:] = _STALE
        else:
            for resources, positions in self._by_resources(nodes, rows):
                self._search(resources, rows, positions, codes, failures, state)
                if state.unfinished is not None:
                    return FilterResult(np.full_like(codes, _UNFINISHED), _STATUSES.__getitem__)
        missing = np.logical_not(self._available(nodes))
        codes[missing & (codes == 0)] = _UNAVAILABLE
        statuses = _STATUSES | {
            _FIRST_FAILURE + number: error(NAME, text) for number, text in enumerate(failures)
        }
        return FilterResult(codes, statuses.__getitem__)

    def scores(self, nodes: NodeView) -> IntColumn:
        """(n,) int64, how good the alternatives are that each row can have."""
        rows = nodes.row_numbers()
        scores = np.zeros(len(rows), np.int64)
        for resources, positions in self._by_resources(nodes, rows):
            answers = self._answers(resources)
            if answers is not None:
                wanted = rows[positions]
                self.finder.ask(answers, self.attempt.names, wanted)
                scores[positions] = answers.scores[wanted] + rank_score(self.attempt.allocated)
        return scores

    def unavailable(self, nodes: NodeView) -> list[JsonObject]:
        """The allocated claims that cannot be used on one of the nodes or another."""
        return [claim for claim in self.attempt.allocated if not self._usable(claim, nodes).all()]

    # --- extended resources ---------------------------------------------------------------------

    def resources_on(self, node: NodeInfo) -> tuple[str, ...] | None:
        """The extended resources for which a claim is made on the node; None: no claim is.

        A pod with claims of its own gets one even where the node offers everything.
        """
        if not self.attempt.backed:
            return None
        left = left_to_devices(node, self.attempt.backed)
        return left if left or self.attempt.claims else None

    def extended_on(self, node: NodeInfo) -> ExtendedClaim | None:
        """What the claim for extended resources asks for on the node."""
        resources = self.resources_on(node)
        return None if resources is None else self._extended(resources)

    def _extended(self, resources: Sequence[str]) -> ExtendedClaim:
        return extended_claim(self.pod.extended_requests, resources, self.finder.classes)

    def _by_resources(
        self, nodes: NodeView, rows: RowColumn
    ) -> Iterable[tuple[tuple[str, ...] | None, RowColumn]]:
        """The positions of nodes that leave the same resources to devices."""
        if not self.attempt.backed:
            return [(None, np.arange(len(rows)))]
        found: dict[tuple[str, ...] | None, list[int]] = {}
        for position, node in enumerate(nodes.nodes()):
            if node is not None:
                found.setdefault(self.resources_on(node), []).append(position)
        return [(key, np.array(positions, np.intp)) for key, positions in found.items()]

    def tasks(self, nodes: NodeView) -> Iterator[tuple[int, Answers]]:
        """What is known of each task that the nodes come to, and for how many of them it is."""
        for resources, positions in self._by_resources(nodes, nodes.row_numbers()):
            answers = self._answers(resources)
            if answers is not None:
                yield len(positions), answers

    # --- the search -----------------------------------------------------------------------------

    def answers_on(self, node: NodeInfo) -> Answers | None:
        """What is known of the task that the attempt comes to on a node; None: there is none."""
        return self._answers(self.resources_on(node))

    def _answers(self, resources: tuple[str, ...] | None) -> Answers | None:
        """What is known of the task where these resources are left to devices."""
        demands = self.attempt.demands
        if resources is not None:
            demands = (*demands, demand_of({"spec": spec_of(self._extended(resources))}))
        return self.finder.answers(demands) if demands else None

    def _search(
        self,
        resources: tuple[str, ...] | None,
        rows: RowColumn,
        positions: RowColumn,
        codes: VerdictColumn,
        failures: list[str],
        state: CycleState,
    ) -> None:
        """Write the codes of nodes that leave the same resources to devices."""
        if self.attempt.backed:
            offered = [self._is_offered(int(row)) for row in rows[positions].tolist()]
            codes[positions[np.logical_not(offered)]] = _NO_RESOURCE
            positions = positions[np.array(offered, np.bool_)]
        answers = self._answers(resources)
        if answers is None:
            return
        asked = rows[positions]
        if not completes(state, self.finder.searched(answers, asked), self.finder.now_seconds):
            return
        verdicts, failed = self.finder.ask(answers, self.attempt.names, asked)
        codes[positions[verdicts == NONE]] = _NOT_ALLOCATED
        codes[positions[verdicts == INVALID]] = _INVALID_POOLS
        for position, text in failed.items():
            codes[positions[position]] = _FIRST_FAILURE + len(failures)
            failures.append(text)

    def _is_offered(self, row: int) -> bool:
        node = self.finder.node_at(row)
        return node is None or is_offered(node, self.pod, self.attempt.backed)

    # --- allocated claims -----------------------------------------------------------------------

    def _available(self, nodes: NodeView) -> Mask:
        """(n,) bool, rows where all allocated claims can be used."""
        available: Mask = np.ones(len(nodes), np.bool_)
        for claim in self.attempt.allocated:
            available &= self._usable(claim, nodes)
        return available

    def _usable(self, claim: JsonObject, nodes: NodeView) -> Mask:
        if not is_available(claim, self.now, self.timeout_seconds):
            return np.zeros(len(nodes), np.bool_)
        selector = parse_node_selector(claim["status"]["allocation"].get("nodeSelector"))
        if selector is None:
            return np.ones(len(nodes), np.bool_)
        return matching_nodes(nodes, selector)


def rank_score(claims: Iterable[JsonObject]) -> int:
    """What the alternatives score that allocated claims were given."""
    score = 0
    for claim in claims:
        results = (claim["status"]["allocation"].get("devices") or {}).get("results") or ()
        given = {result["request"] for result in results}
        for request in demand_of(claim).requests:
            if request.prioritized:
                ranks = enumerate(request.choices)
                score += next(
                    (BEST_ALTERNATIVE - rank for rank, each in ranks if each.full_name in given), 0
                )
    return score
