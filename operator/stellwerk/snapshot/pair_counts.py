"""How many pods match each pairwise term on each node, and how many have one.

A book of the snapshot; InterPodAffinity, PodTopologySpread and SelectorSpread ask. Pods are counted
by LabelSet first, so that a new term is counted from label sets and not from pods. Invariant:
whatever the order of events, every count equals one made from scratch.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from typing_extensions import override

from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.models.selectors import Requirement
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.copy_on_write import Counts
from stellwerk.snapshot.existing_terms import ExistingTerms, MatchingTerms
from stellwerk.snapshot.pair_terms import PodSelection, PodTerm
from stellwerk.snapshot.term_index import TermIndex, most_selective

_MAX_TERMS: Final = 1024
"""Terms of pending pods that are kept counted; the least recently used ones make room."""

_MAX_KEYS: Final = 256
"""Label keys that label sets are filed under; pods may make up any number, and each costs all."""


class PairCounts(Book):
    """Counts per term and row: of pods that pending pods' terms match, and of existing terms."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of every known namespace."""
        self._pods: Counts[LabelSet, int] = Counts()
        """Existing pods by LabelSet and row."""
        self._terminating: Counts[LabelSet, int] = Counts()
        """Those of them that are being deleted."""
        self._label_sets_by_label: dict[str, dict[str, dict[LabelSet, None]]] = {}
        """Label key → value → label sets of `_pods`, for keys that some term has asked for."""
        self._terms: dict[PodSelection, PodTerm] = {}
        self._terms_of: dict[LabelSet, list[PodTerm]] = {}
        """The terms in use that count pods of a label set; most count in none."""
        self._term_index: TermIndex[PodTerm] = TermIndex()
        self._uses = 0
        self._existing = ExistingTerms()
        self.pods_with_terms = 0
        """Existing pods with (anti-)affinity terms; without any, there is nothing to match."""

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
            self._count_label_sets(term)
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

    def existing_terms(self, label_set: LabelSet) -> MatchingTerms:
        """The existing pods' terms that match a pending pod with these labels."""
        return self._existing.matching(label_set, self.namespaces)

    def held(self) -> tuple[int, int]:
        """(distinct LabelSets of existing pods, distinct terms that they have), for audits."""
        return len(self._pods), len(self._existing)

    # --- what the cache writes ------------------------------------------------------------------

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        label_set, pods = pod.label_set, self._pods
        if change > 0 and label_set not in pods:
            self._enter(label_set)
        pods.add(label_set, row, change)
        if pod.terminating:
            self._terminating.add(label_set, row, change)
        for term in self._terms_of.get(label_set, ()):
            if not pod.terminating or term.selection.counts_terminating:
                term.add(row, change)
        if change < 0 and label_set not in pods:
            self._leave(label_set)
        if not pod.spec.pod_affinity.empty:
            self.pods_with_terms += change
            self._existing.count_pods(row, pod.spec, change)

    def prepare(self, specs: Iterable[SchedulingSpec]) -> Iterator[None]:
        """Enter specs with many terms whose pods are to be counted, step by step."""
        return self._existing.prepare(specs)

    def set_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels; None: it is gone."""
        if self.namespaces.get(namespace) == labels:
            return
        if labels is None:
            del self.namespaces[namespace]
        else:
            self.namespaces[namespace] = labels
        self._existing.forget_matches()
        for term in self._terms.values():
            if term.selection.reads_namespaces:
                self._uncount_label_sets(term)
                self._count_label_sets(term)

    @override
    def fork(self) -> "PairCounts":
        """The same pods; terms are counted anew when they are asked for."""
        fork = PairCounts()
        fork.namespaces = self.namespaces.copy()
        fork._pods, fork._terminating = self._pods.fork(), self._terminating.fork()
        fork._existing, fork.pods_with_terms = self._existing.fork(), self.pods_with_terms
        return fork

    # --- label sets and the terms that count them -----------------------------------------------

    def _enter(self, label_set: LabelSet) -> None:
        """There are pods with these labels now."""
        for key, by_value in self._label_sets_by_label.items():
            if key in label_set.labels:
                by_value.setdefault(label_set.labels[key], {})[label_set] = None
        terms = [
            term
            for term in self._term_index.candidates(label_set.labels)
            if term.selection.matches(label_set, self.namespaces)
        ]
        if terms:
            self._terms_of[label_set] = terms

    def _leave(self, label_set: LabelSet) -> None:
        """No pod has these labels any more."""
        self._terms_of.pop(label_set, None)
        for key, by_value in self._label_sets_by_label.items():
            value = label_set.labels.get(key)
            if value is not None:
                del by_value[value][label_set]
                if not by_value[value]:
                    del by_value[value]

    def _count_label_sets(self, term: PodTerm) -> None:
        for label_set in self._candidates(term.selection.requirements):
            if not term.selection.matches(label_set, self.namespaces):
                continue
            self._terms_of.setdefault(label_set, []).append(term)
            terminating = self._terminating.of(label_set)
            for row, pods in self._pods.of(label_set).items():
                counts = term.selection.counts_terminating
                counted = pods if counts else pods - terminating.get(row, 0)
                if counted:
                    term.add(row, counted)

    def _uncount_label_sets(self, term: PodTerm) -> None:
        for label_set in self._candidates(term.selection.requirements):
            terms = self._terms_of.get(label_set, [])
            if term in terms:
                terms.remove(term)
                if not terms:
                    del self._terms_of[label_set]
        term.clear()

    def _candidates(self, requirements: tuple[Requirement, ...]) -> Iterator[LabelSet]:
        """Label sets of pods that may fulfil the requirements, each once."""
        requirement = most_selective(requirements)
        if requirement is None:
            yield from self._pods
            return
        by_value = self._label_sets_by_label.get(requirement.key)
        if by_value is None:
            if len(self._label_sets_by_label) >= _MAX_KEYS:
                self._label_sets_by_label.clear()
            by_value = self._label_sets_by_label[requirement.key] = {}
            for label_set in self._pods:
                value = label_set.labels.get(requirement.key)
                if value is not None:
                    by_value.setdefault(value, {})[label_set] = None
        for value in requirement.values:
            yield from by_value.get(value, ())

    def _drop_terms(self) -> None:
        """Drop the quarter of the terms that was used longest ago."""
        oldest = sorted(self._terms.values(), key=lambda term: term.last_use)
        for term in oldest[: _MAX_TERMS // 4]:
            term.dropped = True
            del self._terms[term.selection]
            self._term_index.discard(term, term.selection.requirements)
            self._uncount_label_sets(term)
