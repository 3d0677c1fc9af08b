"""How many pods match each pairwise term on each node, and how many own one.

The snapshot tells it of every pod, node and namespace that changes; InterPodAffinity and
PodTopologySpread ask. Pods are grouped by LabelSet, so that a new term is counted from groups and
not from pods. Invariant: whatever the order of events, every count equals one made from scratch.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.models.pod_affinity import AffinityTerm, PodAffinity
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.models.selectors import Requirement
from stellwerk.snapshot.columns import LabelColumn
from stellwerk.snapshot.pair_terms import (
    OwnedMatches,
    OwnedTerm,
    Ownership,
    PodSelection,
    PodTerm,
    has_terms,
    matches_as_existing,
    terms_of,
)
from stellwerk.snapshot.term_index import TermIndex, most_selective
from stellwerk.snapshot.topology import Topology

_MAX_TERMS: Final = 1024
"""Terms of pending pods that are kept counted; the least recently used ones make room."""
_MAX_MATCHES: Final = 4096
"""LabelSets of pending pods whose owned terms are remembered; most stay in use when bound."""

_NO_MATCHES: Final = OwnedMatches()


class LabelledRows(Protocol):
    """What is asked of the snapshot that is counted for."""

    size: int
    node_count: int

    def label(self, key: str) -> LabelColumn:
        """The column of a label key."""
        ...


class _Owners:
    """The placed pods of one spec with affinity terms."""

    __slots__ = ("pods", "terms")

    def __init__(self, terms: tuple[OwnedTerm, ...]) -> None:
        self.terms = terms
        self.pods = 0


class _Group:
    """The placed pods of one LabelSet."""

    __slots__ = ("label_set", "rows", "terminating", "terms")

    def __init__(self, label_set: LabelSet) -> None:
        self.label_set = label_set
        self.rows: dict[int, int] = {}
        """Pods by row."""
        self.terminating: dict[int, int] | None = None
        """Those of them that are being deleted, by row."""
        self.terms: list[PodTerm] = []
        """The terms in use that count them."""


class PairCounts:
    """Counts per term and row; see the module docstring."""

    def __init__(self, snapshot: LabelledRows) -> None:
        self._snapshot = snapshot
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of every known namespace."""
        self._groups: dict[LabelSet, _Group] = {}
        self._groups_by_label: dict[str, dict[str, dict[_Group, None]]] = {}
        """Label key → value → groups, for keys that some term has asked for."""
        self._terms: dict[PodSelection, PodTerm] = {}
        self._term_index: TermIndex[PodTerm] = TermIndex()
        self._uses = 0
        self._owners: dict[SchedulingSpec, _Owners] = {}
        self._owned: dict[tuple[Ownership, AffinityTerm, int], OwnedTerm] = {}
        self._owned_index: TermIndex[OwnedTerm] = TermIndex()
        self._owned_version = 0
        self._owned_matches: WeakKeyDictionary[LabelSet, tuple[int, OwnedMatches]] = (
            WeakKeyDictionary()
        )
        self._topologies: dict[str, Topology] = {}

    # --- what plugins ask -----------------------------------------------------------------------

    def term(self, selection: PodSelection) -> PodTerm:
        """The counts of a selection; counted from now on, until others need the room."""
        self._uses += 1
        term = self._terms.get(selection)
        if term is None:
            if len(self._terms) >= _MAX_TERMS:
                self._drop_terms()
            term = self._terms[selection] = PodTerm(selection)
            self._term_index.add(term, selection.requirements)
            self._count_groups(term)
        term.last_use = self._uses
        return term

    def keep(self, terms: Iterable[PodTerm]) -> bool:
        """Note that the terms are in use; False: one was dropped meanwhile, ask for all again."""
        self._uses += 1
        kept = True
        for term in terms:
            term.last_use = self._uses
            kept &= not term.dropped
        return kept

    def owned_matches(self, label_set: LabelSet) -> OwnedMatches:
        """The terms of placed pods that mean a pending pod with these labels."""
        if not self._owned:
            return _NO_MATCHES
        known = self._owned_matches.get(label_set)
        if known is None or known[0] != self._owned_version:
            if len(self._owned_matches) >= _MAX_MATCHES:
                self._owned_matches.clear()
            known = (self._owned_version, self._find_owned(label_set))
            self._owned_matches[label_set] = known
        return known[1]

    def topology(self, key: str) -> Topology:
        """The domains of a topology key; good until a node's labels change."""
        topology = self._topologies.get(key)
        if topology is None:
            snapshot = self._snapshot
            topology = self._topologies[key] = Topology(
                key, snapshot.label(key), snapshot.size, snapshot.node_count
            )
        return topology

    def held(self) -> tuple[int, int]:
        """(distinct LabelSets of placed pods, distinct terms that they own), for audits."""
        return len(self._groups), len(self._owned)

    # --- what the snapshot tells ----------------------------------------------------------------

    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod on a row."""
        group = self._groups.get(pod.label_set) or self._add_group(pod.label_set)
        _count(group.rows, row, change)
        if pod.terminating:
            if group.terminating is None:
                group.terminating = {}
            _count(group.terminating, row, change)
        for term in group.terms:
            if not pod.terminating or term.selection.counts_terminating:
                term.add(row, change)
        if not group.rows:
            self._remove_group(group)
        if has_terms(pod.spec.pod_affinity):
            self._count_owner(row, pod.spec, change)

    def labels_changed(self) -> None:
        """A node's labels changed, or it is about to leave: every domain may look different now."""
        for topology in self._topologies.values():
            topology.valid = False
        self._topologies.clear()

    def set_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels; None: it is gone."""
        if self.namespaces.get(namespace) == labels:
            return
        if labels is None:
            del self.namespaces[namespace]
        else:
            self.namespaces[namespace] = labels
        self._owned_version += 1
        for term in self._terms.values():
            if term.selection.reads_namespaces:
                self._uncount_groups(term)
                self._count_groups(term)

    # --- groups and the terms that count them ---------------------------------------------------

    def _add_group(self, label_set: LabelSet) -> _Group:
        group = self._groups[label_set] = _Group(label_set)
        for key, by_value in self._groups_by_label.items():
            if key in label_set.labels:
                by_value.setdefault(label_set.labels[key], {})[group] = None
        group.terms = [
            term
            for term in self._term_index.candidates(label_set.labels)
            if term.selection.matches(label_set, self.namespaces)
        ]
        return group

    def _remove_group(self, group: _Group) -> None:
        del self._groups[group.label_set]
        for key, by_value in self._groups_by_label.items():
            value = group.label_set.labels.get(key)
            if value is not None:
                del by_value[value][group]
                if not by_value[value]:
                    del by_value[value]

    def _count_groups(self, term: PodTerm) -> None:
        for group in self._candidate_groups(term.selection.requirements):
            if not term.selection.matches(group.label_set, self.namespaces):
                continue
            group.terms.append(term)
            for row, pods in group.rows.items():
                terminating = (group.terminating or {}).get(row, 0)
                counted = pods if term.selection.counts_terminating else pods - terminating
                if counted:
                    term.add(row, counted)

    def _uncount_groups(self, term: PodTerm) -> None:
        for group in self._candidate_groups(term.selection.requirements):
            if term in group.terms:
                group.terms.remove(term)
        term.clear()

    def _candidate_groups(self, requirements: tuple[Requirement, ...]) -> Iterator[_Group]:
        """Groups that may fulfil the requirements, each once."""
        requirement = most_selective(requirements)
        if requirement is None:
            yield from self._groups.values()
            return
        by_value = self._groups_by_label.get(requirement.key)
        if by_value is None:
            by_value = self._groups_by_label[requirement.key] = {}
            for group in self._groups.values():
                value = group.label_set.labels.get(requirement.key)
                if value is not None:
                    by_value.setdefault(value, {})[group] = None
        for value in requirement.values:
            yield from by_value.get(value, ())

    def _drop_terms(self) -> None:
        """Drop the quarter of the terms that was used longest ago."""
        oldest = sorted(self._terms.values(), key=lambda term: term.last_use)
        for term in oldest[: _MAX_TERMS // 4]:
            term.dropped = True
            del self._terms[term.selection]
            self._term_index.discard(term, term.selection.requirements)
            self._uncount_groups(term)

    # --- owned terms ----------------------------------------------------------------------------

    def _count_owner(self, row: int, spec: SchedulingSpec, change: int) -> None:
        owners = self._owners.get(spec)
        if owners is None:
            owners = self._owners[spec] = _Owners(self._own_terms(spec.pod_affinity))
        owners.pods += change
        for term in owners.terms:
            term.add(row, change)
        if owners.pods == 0:
            del self._owners[spec]
            self._disown_terms(owners.terms)

    def _own_terms(self, affinity: PodAffinity) -> tuple[OwnedTerm, ...]:
        terms = []
        for ownership, term, weight in terms_of(affinity):
            key = (ownership, term, weight)
            owned = self._owned.get(key)
            if owned is None:
                owned = self._owned[key] = OwnedTerm(ownership, term, weight)
                self._owned_index.add(owned, owned.requirements)
                self._owned_version += 1
            owned.users += 1
            terms.append(owned)
        return tuple(terms)

    def _disown_terms(self, terms: tuple[OwnedTerm, ...]) -> None:
        for owned in terms:
            owned.users -= 1
            if owned.users == 0:
                term = AffinityTerm(owned.matcher, owned.topology_key)
                del self._owned[owned.ownership, term, owned.weight]
                self._owned_index.discard(owned, owned.requirements)
                self._owned_version += 1

    def _find_owned(self, label_set: LabelSet) -> OwnedMatches:
        found: dict[Ownership, list[OwnedTerm]] = {ownership: [] for ownership in Ownership}
        for owned in self._owned_index.candidates(label_set.labels):
            if matches_as_existing(owned.matcher, label_set, self.namespaces):
                found[owned.ownership].append(owned)
        return OwnedMatches(
            tuple(found[Ownership.REQUIRED]),
            tuple(found[Ownership.REQUIRED_ANTI]),
            tuple(found[Ownership.PREFERRED]),
        )


def _count(rows: dict[int, int], row: int, change: int) -> None:
    count = rows.get(row, 0) + change
    if count:
        rows[row] = count
    else:
        del rows[row]
