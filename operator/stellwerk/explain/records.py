"""Records of decisions that ended in a node, with the best nodes by score, and of evictions.

The scheduling cycle keeps one per decision, the explanation of a bound pod reads it, and those of
victims and preemptors read the Evictions, which stay when the pods are gone. All namespaces share
the room for decisions, 64 MiB (`MAX_RECORDS_BYTES`); beyond it the oldest are dropped, of whichever
namespace. Invariant: as many are kept as there is room for; records hold copies of a few entries of
each column, never a column, because columns are written anew in the next cycle, and nothing of the
pod, which may be huge; texts are made only when a record is read.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np

from stellwerk.answers.pod import (
    LastPreemption,
    PreemptedBy,
    PreemptionCandidate,
    VictimFields,
)
from stellwerk.framework.interface import Candidate
from stellwerk.framework.plugin_isolation import is_trusted
from stellwerk.framework.score_phase import PluginScore, Scores
from stellwerk.framework.types import Code, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.world.decide import EXTENDER, Decision, Search
from stellwerk_kube.compatibility import PatchRelease

if TYPE_CHECKING:
    from stellwerk.models.scheduling_spec import SchedulingSpec


MAX_SHOWN_NODES: Final = 20
"""Nodes of a decision that an answer shows, the best first."""
MAX_RECORDS_BYTES: Final = 64 << 20
"""Memory for all records. Beyond it the oldest records are dropped."""
_FLOOR_NODES: Final = 28
"""Nodes that reach a new floor. They are more than are shown, so that the floor serves the next
decisions, whose totals differ a little."""
_MAX_KEPT_NODES: Final = 40
"""Nodes that a record keeps. A decision among no more nodes is kept whole, without a search for the
best."""
_COUNTING_SHARE: Final = 0.02
"""Share of the time that counting the reasons of rejected nodes may take."""
_MAX_COUNTING_SECONDS: Final = 0.05
"""Seconds of that share that can be saved up, and spent at once."""
_RECORD_BYTES: Final = 1500
"""Bytes of a record without its columns: names, keys, objects."""
_NODE_BYTES: Final = 16
"""Bytes for the raw and the normalised score of one node in one column."""


@dataclass(frozen=True, slots=True)
class Rejections:
    """Nodes that were turned away, by reason, as counted at some time."""

    counts: Mapping[Status, int]
    """Nodes by their first rejection."""
    counted_at_seconds: float
    """Monotonic."""
    others: int
    """Number of nodes that were not feasible then."""


def refusals_of_extenders(search: Search, now: float) -> Rejections | None:
    """The nodes that extenders took away from those that plugins left; None: there is none."""
    answer = search.by_extenders
    if answer is None:
        return None
    refused = search.offered - len(answer.node_names)
    left = frozenset(answer.node_names)
    counts: Counter[tuple[str, ...]] = Counter(
        tuple(reason[:_MAX_LETTERS] for reason in status.reasons)
        for name, status in answer.statuses.items()
        if name not in left
    )
    told = counts.most_common(_MAX_REASONS)
    silent = max(0, refused - sum(nodes for _, nodes in told))
    reasons = {Status(Code.UNSCHEDULABLE, each, EXTENDER): nodes for each, nodes in told}
    if silent:
        words = _MORE_REASONS if len(counts) > len(told) else _NO_REASON
        reasons[Status(Code.UNSCHEDULABLE, (words,), EXTENDER)] = silent
    return Rejections(reasons, now, refused)


_MAX_REASONS: Final = 20
"""Reasons that are kept of one answer: an extender may give another one for each node."""
_MAX_LETTERS: Final = 256
"""Letters that are kept of one reason: an extender may give one of any length."""
_NO_REASON: Final = "rejected without a reason"
_MORE_REASONS: Final = "other reasons, or none"
_MAX_REFUSED_PODS: Final = 4096
"""Waiting pods whose last refusals by extenders are kept."""

KeptScore: TypeAlias = tuple[str, int, IntColumn | int, IntColumn | int]
"""(plugin, weight, raw, normalised) of the kept nodes; one number where all have it.

A plain tuple: a decision makes one for each plugin, and the making of objects would cost as much as
the columns.
"""


def score_at(score: KeptScore, position: int) -> tuple[int, int]:
    """(raw, normalised) of one kept node."""
    _, _, raw, normalized = score
    return (
        raw if isinstance(raw, int) else int(raw[position]),
        normalized if isinstance(normalized, int) else int(normalized[position]),
    )


@dataclass(slots=True)
class DecisionRecord:
    """One decision that ended in a node; not frozen, for freezing costs at each decision.

    Of the pod, which may be huge, it holds names alone.
    """

    uid: str
    namespace: str
    name: str
    priority: int
    scheduler_name: str
    node_name: str
    decided_at_seconds: float
    """Monotonic."""
    attempts: int
    feasible: int
    evaluated: int
    nodes: int
    """Number of all nodes."""
    tied: int
    """Number of nodes that shared the best total; 1: there was no tie."""
    nominated: bool
    """It went to the node to which it was nominated; no other node was evaluated."""
    names: Sequence[str]
    """The kept nodes, in no order; empty: there was nothing to choose."""
    total: IntColumn | None
    """(kept,) int64, with what extenders added."""
    scores: Sequence[KeptScore]
    rejections: Rejections | None
    """None: no node was turned away, or they were not counted."""

    size_bytes: int
    """About what it holds in memory."""
    release: PatchRelease
    """The release that the decision followed."""
    remarks: tuple[str, ...] = ()
    """As `CycleState.remarks`."""

    @property
    def key(self) -> str:
        """NAMESPACE/NAME of the pod."""
        return f"{self.namespace}/{self.name}"

    def ranked(self) -> list[int]:
        """Positions of the best kept nodes: the highest total first, of equals the chosen one."""
        if self.total is None:
            return []
        order = range(len(self.names))
        totals, chosen = self.total.tolist(), self.node_name
        best = sorted(order, key=lambda at: (-totals[at], self.names[at] != chosen))
        return best[:MAX_SHOWN_NODES]


class DecisionRecords:
    """The last decisions by uid of the pod, as many as the room holds."""

    def __init__(
        self, now: Callable[[], float] = lambda: 0.0, room_bytes: int = MAX_RECORDS_BYTES
    ) -> None:
        """`now`: monotonic seconds."""
        self._now = now
        self._room_bytes = room_bytes
        self._records: OrderedDict[str, DecisionRecord] = OrderedDict()
        self.held_bytes = 0
        self._floors: dict[str, int] = {}
        """schedulerName → a total that _FLOOR_NODES nodes, or more, reached when it was set."""
        self._refused: OrderedDict[str, Rejections] = OrderedDict()
        """Nodes that extenders refused in the last attempt of a waiting pod, by uid of the pod."""
        self._rejections: Rejections | None = None
        self._rejected_spec: SchedulingSpec | None = None
        self._credit_seconds = _MAX_COUNTING_SECONDS
        self._credited_at_seconds = 0.0

    def __len__(self) -> int:
        return len(self._records)

    def of(self, uid: str) -> DecisionRecord | None:
        """The record of a pod; None: it was decided too long ago, or not here."""
        return self._records.get(uid)

    def newest(self, offset: int, limit: int) -> list[DecisionRecord]:
        """Some records, the last decision first."""
        return list(islice(reversed(self._records.values()), offset, offset + limit))

    def since(self, node_name: str, seconds: float) -> Iterator[DecisionRecord]:
        """Decisions for a node after a moment of the monotonic clock, the last one first."""
        for record in reversed(self._records.values()):
            if record.decided_at_seconds <= seconds:
                return
            if record.node_name == node_name:
                yield record

    def keep(self, decision: Decision, attempts: int, now: float) -> None:
        """Keep a decision for a node, before the snapshot that it was made on changes."""
        self.put(self.made(decision, attempts, now))

    def keep_refusals(self, decision: Decision, now: float) -> None:
        """Keep what extenders refused, of a decision without a node."""
        uid = decision.search.pod.uid
        self._refused.pop(uid, None)
        refused = refusals_of_extenders(decision.search, now)
        if refused is not None:
            self._refused[uid] = refused
            if len(self._refused) > _MAX_REFUSED_PODS:
                self._refused.popitem(last=False)

    def refused(self, uid: str) -> Rejections | None:
        """The nodes that extenders refused in the last attempt of a pod that waits."""
        return self._refused.get(uid)

    def made(self, decision: Decision, attempts: int, now: float) -> DecisionRecord:
        """A record that is not kept yet, made before the snapshot of the decision changes."""
        search = decision.search
        found, scores, total = search.found, decision.scores, decision.total
        names: Sequence[str] = ()
        kept: Sequence[KeptScore] = ()
        if scores is not None and total is not None:
            positions = self._best(search.profile.scheduler_name, total, decision.best)
            chosen = decision.position
            if len(total) > _MAX_KEPT_NODES and chosen >= 0 and chosen not in positions.tolist():
                positions[-1] = chosen
            total = total[positions]
            names = node_names(search, scores, positions)
            kept = [kept_score(score, positions) for score in scores.by_plugin]
        nodes = search.snapshot.node_count
        others = nodes - decision.feasible
        pod = search.pod
        return DecisionRecord(
            pod.uid,
            pod.namespace,
            pod.name,
            pod.spec.priority,
            search.profile.scheduler_name,
            decision.node_name,
            now,
            attempts,
            decision.feasible,
            found.evaluated,
            nodes,
            1 if decision.best is None else len(decision.best),
            search.nominated,
            names,
            total,
            kept,
            # The others of a nominated node were not looked at: none of them was turned away.
            self._why(search, others, now) if others and not search.nominated else None,
            _RECORD_BYTES + _NODE_BYTES * len(names) * (1 + len(kept)),
            search.profile.compatibility.version,
            found.state.remarks,
        )

    def put(self, record: DecisionRecord) -> None:
        """Keep a record; the oldest make room."""
        uid = record.uid
        self._refused.pop(uid, None)
        before = self._records.pop(uid, None)
        if before is not None:
            self.held_bytes -= before.size_bytes
        self._records[uid] = record
        self.held_bytes += record.size_bytes
        while self.held_bytes > self._room_bytes:
            _, oldest = self._records.popitem(last=False)
            self.held_bytes -= oldest.size_bytes

    # --- the best nodes -------------------------------------------------------------------------

    def _best(self, profile: str, total: IntColumn, best: RowColumn | None) -> RowColumn:
        """Positions of the best nodes, in no order: MAX_SHOWN_NODES of them and a few more.

        Ordering all totals would cost more than the rest of the record; totals change little from
        one decision to the next, so that the floor of the last one finds the best of this one.
        """
        if len(total) <= _MAX_KEPT_NODES:
            return np.arange(len(total))
        if best is not None and len(best) >= MAX_SHOWN_NODES:
            return best[:_MAX_KEPT_NODES].copy()
        above = (total >= self._floors.get(profile, 0)).nonzero()[0]
        if MAX_SHOWN_NODES <= len(above) <= _MAX_KEPT_NODES:
            return above
        rest = len(total) - _FLOOR_NODES
        floor = int(np.partition(total, rest)[rest])
        self._floors[profile] = floor
        above = np.flatnonzero(total >= floor)
        if len(above) > _MAX_KEPT_NODES:
            # So many share the floor that not all are kept; the better ones are.
            better = np.flatnonzero(total > floor)
            above = np.concatenate(
                [better, np.flatnonzero(total == floor)[: _MAX_KEPT_NODES - len(better)]]
            )
        return above

    # --- the others -----------------------------------------------------------------------------

    def _why(self, search: Search, others: int, now: float) -> Rejections | None:
        """The rejections of other nodes, by plugins and by extenders.

        None: it was not the turn of this pod, and no extender refused a node.
        """
        refused = refusals_of_extenders(search, now)
        if refused is None:
            return self._by_plugins(search, others, now)
        by_plugins = self._by_plugins(search, others - refused.others, now)
        counted = {} if by_plugins is None else by_plugins.counts
        return Rejections({**counted, **refused.counts}, now, others)

    def _by_plugins(self, search: Search, others: int, now: float) -> Rejections | None:
        """The rejections of other nodes: as counted last for such a pod, or counted now.

        Counting may take a small share of the time only. None: it was not the turn of this pod.
        """
        spec, last = search.pod.spec, self._rejections
        known = last if spec is self._rejected_spec else None
        if known is not None and known.others == others:
            return known
        gained = (now - self._credited_at_seconds) * _COUNTING_SHARE
        self._credit_seconds = min(_MAX_COUNTING_SECONDS, self._credit_seconds + gained)
        self._credited_at_seconds = now
        if self._credit_seconds <= 0 or not _may_be_asked_again(search):
            return known
        began = self._now()
        diagnosis = search.profile.framework.filtering.diagnose(search.found, search.pod)
        counts = {s: n for s, n in diagnosis.statuses.counts().items() if not s.ok}
        counted = self._rejections = Rejections(counts, now, others)
        self._rejected_spec = spec
        self._credit_seconds -= self._now() - began
        return counted


def node_names(search: Search, scores: Scores, positions: RowColumn) -> Sequence[str]:
    """The names of the scored nodes at these positions."""
    view, nodes = scores.nodes, search.snapshot.nodes
    rows = positions if view.whole else view.row_numbers()[positions]
    # Rows of a decision hold nodes; a comprehension is twice as fast as calls for each name.
    return [node.name for node in map(nodes.__getitem__, rows.tolist()) if node is not None]


def kept_score(score: PluginScore, positions: RowColumn) -> KeptScore:
    """One plugin's points of the nodes at these positions."""
    scored, answered = score.scored, score.answered
    of_best = answered if isinstance(answered, int) else answered[positions]
    if isinstance(scored, int):
        return score.plugin, score.weight, of_best, scored
    normalized = of_best if scored is answered else scored[positions]
    return score.plugin, score.weight, of_best, normalized


def _may_be_asked_again(search: Search) -> bool:
    """Whether every filter comes with Stellwerk: others may count their calls, and take long."""
    return all(is_trusted(plugin) for plugin, _ in search.profile.framework.filters.runner.calls)


_MAX_EVICTIONS: Final = 4096
"""Victims, and preemptors, that are remembered. Beyond it the oldest are forgotten."""
_MAX_CANDIDATES: Final = 20
"""First candidates of a preemption that its record keeps, without the chosen one."""


Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Nomination:
    """A node that victims were to leave for a preemptor."""

    preemptor: PodInfo
    node_name: str
    decided_at_seconds: float
    """Monotonic."""


class Evictions:
    """The last preemptions by the names of victims and of preemptors."""

    def __init__(self) -> None:
        self._by_victim: OrderedDict[str, PreemptedBy] = OrderedDict()
        self._by_preemptor: OrderedDict[str, LastPreemption] = OrderedDict()
        self._nominations: OrderedDict[str, Nomination] = OrderedDict()
        """The last one of each preemptor, in the order in which they were made."""

    def keep(self, decision: Decision, decided_at: str, now_seconds: float) -> None:
        """Keep what a decision that nominates a node means for its victims, and why that node.

        `now_seconds`: monotonic, of the decision.
        """
        chosen, preemptor = decision.candidate, decision.search.pod
        if chosen is None:
            return
        for victim in chosen.victims:
            record = PreemptedBy(
                by=preemptor.key,
                by_priority=preemptor.priority,
                priority=victim.priority,
                node=victim.node_name,
                decided_at=decided_at,
                decided_by=decision.decided_by or None,
            )
            _put(self._by_victim, victim.key, record)
        nomination = Nomination(preemptor, chosen.node_name, now_seconds)
        _put(self._nominations, preemptor.key, nomination)
        others = decision.post_filter.candidates if decision.post_filter is not None else ()
        last = LastPreemption(
            decided_at=decided_at,
            node=chosen.node_name,
            budget_violations=chosen.pdb_violations,
            victims=_victims(chosen),
            candidates=len(others),
            others=[
                _for_candidate(each) for each in others[:_MAX_CANDIDATES] if each is not chosen
            ],
            nominated_node=chosen.node_name,
            decided_by=decision.decided_by or None,
        )
        _put(self._by_preemptor, preemptor.key, last)

    def of_victim(self, key: str) -> PreemptedBy | None:
        """The preemptor of a pod, and when; None: there was none, as far as is known."""
        return self._by_victim.get(key)

    def of_preemptor(self, key: str) -> LastPreemption | None:
        """The last preemption for a pod, with the other candidates."""
        return self._by_preemptor.get(key)

    def nomination_of(self, key: str) -> Nomination | None:
        """The node that a preemptor was nominated to last, and when."""
        return self._nominations.get(key)

    def later_on(self, nomination: Nomination) -> Iterator[Nomination]:
        """The nominations to the same node afterwards, the newest first."""
        for other in reversed(self._nominations.values()):
            if other.decided_at_seconds <= nomination.decided_at_seconds:
                return
            if other.node_name == nomination.node_name:
                yield other


def _put(entries: OrderedDict[str, Entry], key: str, entry: Entry) -> None:
    entries.pop(key, None)
    entries[key] = entry
    while len(entries) > _MAX_EVICTIONS:
        entries.popitem(last=False)


@lru_cache(maxsize=1024)  # hundreds of pods that preempt at once see the same candidates
def _for_candidate(candidate: Candidate) -> PreemptionCandidate:
    return PreemptionCandidate(
        node=candidate.node_name,
        budget_violations=candidate.pdb_violations,
        victims=_victims(candidate),
    )


def _victims(candidate: Candidate) -> list[VictimFields]:
    return [VictimFields(pod=victim.key, priority=victim.priority) for victim in candidate.victims]
