"""The (anti-)affinity terms of existing pods, each with the pods that have it.

`PairCounts` counts every existing pod with terms here; InterPodAffinity asks which terms match a
pending pod. A TermIndex finds the terms whose selector can match a set of labels: with 30,000 pods
that each repel their own kind, a new pod is compared with one term and not with all. Invariants:
whatever the order of events, every count equals one made from scratch; no term that matches is left
out of `candidates`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from stellwerk.models.pod import LabelSet
from stellwerk.models.pod_affinity import AffinityTerm, PodAffinity
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.snapshot.columns import Counts, IntColumn
from stellwerk.snapshot.counted_terms import CountedTerm
from stellwerk.snapshot.pair_terms import NamespaceLabels, matches_as_existing
from stellwerk_kube.selectors import Requirement

Term = TypeVar("Term")

MAX_TERMS_AT_ONCE: Final = 1000
"""Terms of a spec that are indexed at once. A spec with more is indexed in steps, between which the
event loop runs."""
_MAX_INDEXED_VALUES: Final = 256
"""Label values of a term that are indexed. A term that names more is compared with every pod, which
costs less than so many entries of the index."""
_MAX_MATCHES: Final = 4096
"""Label sets of pending pods whose matching terms are kept. Beyond it, they are searched again."""
_NO_ROWS: Final[IntColumn] = np.zeros(0, np.int64)
_TERMS_PER_STEP: Final = 500
"""Terms that are indexed before the event loop runs; they take about 1 ms."""


class TermKind(Enum):
    """The effect of an existing pod's term on pending pods that it matches."""

    REQUIRED = auto()
    """Required affinity: attracts with hardPodAffinityWeight."""
    REQUIRED_ANTI = auto()
    """Required anti-affinity: keeps them away."""
    PREFERRED = auto()
    """Preferred affinity, or with a negative weight anti-affinity."""


class ExistingTerm(CountedTerm):
    """Existing pods that have a term; a pod that has it twice counts twice."""

    __slots__ = ("kind", "matcher", "specs", "topology_key", "weight")

    def __init__(self, kind: TermKind, term: AffinityTerm, weight: int) -> None:
        super().__init__()
        self.kind = kind
        self.matcher = term.matcher
        self.topology_key = term.topology_key
        self.weight = weight
        """1–100, −100–−1 for preferred anti-affinity; 0 for required terms."""
        self.specs = 0
        """Specs of existing pods that have it."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Those of the selector."""
        return self.matcher.selector.requirements if self.matcher.selector is not None else ()


class TermGroup:
    """Terms of one kind and topology key that match a pod."""

    __slots__ = ("_changes", "_counted_at", "_counts", "terms")

    def __init__(self, terms: list[ExistingTerm], changes: Callable[[], int]) -> None:
        self.terms = terms
        self._changes = changes
        self._counted_at = -1
        self._counts: IntColumn = _NO_ROWS

    def counts(self, rows: int) -> IntColumn:
        """(rows,) int64, pods times weights of all terms, required ones with 1; read only.

        Summed up again only when a pod with terms came or went: one pod may have thousands.
        """
        changes = self._changes()
        if changes != self._counted_at or rows != len(self._counts):
            counts: IntColumn = np.zeros(rows, np.int64)
            for term in self.terms:
                term.column.add_to(counts, term.weight or 1)
            self._counts, self._counted_at = counts, changes
        return self._counts


TermsByKey: TypeAlias = Mapping[str, TermGroup]
"""By topology key."""


@dataclass(frozen=True, slots=True)
class MatchingTerms:
    """The existing pods' terms that match a pending pod."""

    required: TermsByKey = field(default_factory=dict)
    required_anti: TermsByKey = field(default_factory=dict)
    preferred: TermsByKey = field(default_factory=dict)


_NO_TERMS: Final = MatchingTerms()


class ExistingTerms:
    """Distinct terms of existing pods; a fork counts them when it is first asked."""

    def __init__(self, pods: Counts[SchedulingSpec, int] | None = None) -> None:
        self._pods: Counts[SchedulingSpec, int] = Counts() if pods is None else pods
        """Pods with terms by spec and row."""
        self._counted = pods is None
        """True if the terms are counted; until then only `_pods` is kept."""
        self._terms: dict[tuple[TermKind, AffinityTerm, int], ExistingTerm] = {}
        self._terms_of: dict[SchedulingSpec, tuple[ExistingTerm, ...]] = {}
        self._index: TermIndex[ExistingTerm] = TermIndex()
        self._matching: WeakKeyDictionary[LabelSet, MatchingTerms] = WeakKeyDictionary()
        self._changes = 0
        """Number of times that a pod with terms came or went."""
        self._idle: dict[SchedulingSpec, None] = {}
        """Specs with many terms that have no pod, or none yet; their terms count nothing."""

    def __len__(self) -> int:
        return len(self._terms)

    def matching(self, label_set: LabelSet, namespaces: NamespaceLabels) -> MatchingTerms:
        """The terms that match a pending pod with these labels."""
        if not self._counted:
            self._count_all()
        if not self._terms:
            return _NO_TERMS
        known = self._matching.get(label_set)
        if known is None:
            if len(self._matching) >= _MAX_MATCHES:
                self.forget_matches()
            known = self._matching[label_set] = self._find(label_set, namespaces)
        return known

    def forget_matches(self) -> None:
        """Terms or labels of namespaces are different now."""
        if self._matching:
            self._matching = WeakKeyDictionary()

    def count_pods(self, row: int, spec: SchedulingSpec, change: int) -> None:
        """Add pods with terms, or take them out, on a row."""
        self._pods.add(spec, row, change)
        if self._counted:
            self._count(row, spec, change)

    def index_terms(self, specs: Iterable[SchedulingSpec]) -> Iterator[None]:
        """Enter specs with many terms that are soon to be counted, and drop idle ones, in steps.

        What is counted is the same without it, and between any two steps.
        """
        for spec in list(self._idle):
            if spec not in self._idle:
                continue
            del self._idle[spec]
            terms = self._terms_of.pop(spec)
            for start in range(0, len(terms), _TERMS_PER_STEP):
                self._leave(terms[start : start + _TERMS_PER_STEP])
                yield
        for spec in specs:
            if self._counted and spec not in self._terms_of:
                yield from self._enter_ahead(spec)

    def _enter_ahead(self, spec: SchedulingSpec) -> Iterator[None]:
        entered: list[ExistingTerm] = []
        for each in _terms_of(spec.pod_affinity):
            entered.append(self._entered(*each))
            if len(entered) % _TERMS_PER_STEP == 0:
                yield
        if spec in self._terms_of:  # counted between two steps
            self._leave(tuple(entered))
        else:
            self._terms_of[spec], self._idle[spec] = tuple(entered), None

    def fork(self) -> "ExistingTerms":
        """The terms of the same pods."""
        return ExistingTerms(self._pods.fork())

    def _count_all(self) -> None:
        self._counted = True
        for spec, rows in self._pods.items():
            for row, pods in rows.items():
                self._count(row, spec, pods)

    def _count(self, row: int, spec: SchedulingSpec, change: int) -> None:
        terms = self._terms_of.get(spec)
        if terms is None:
            terms = tuple([self._entered(*each) for each in _terms_of(spec.pod_affinity)])
            self._terms_of[spec] = terms
        self._changes += 1
        for term in terms:
            term.add(row, change)
        if change < 0 and spec not in self._pods:
            if len(terms) > MAX_TERMS_AT_ONCE:
                self._idle[spec] = None
                return
            del self._terms_of[spec]
            self._leave(terms)
        elif self._idle:
            self._idle.pop(spec, None)

    def _entered(self, kind: TermKind, affinity_term: AffinityTerm, weight: int) -> ExistingTerm:
        key = (kind, affinity_term, weight)
        term = self._terms.get(key)
        if term is None:
            term = self._terms[key] = ExistingTerm(kind, affinity_term, weight)
            self._index.add(term, term.requirements)
            self.forget_matches()
        term.specs += 1
        return term

    def _leave(self, terms: tuple[ExistingTerm, ...]) -> None:
        """Drop the terms of a spec without pods, unless other specs have them."""
        for term in terms:
            term.specs -= 1
            if term.specs == 0:
                affinity_term = AffinityTerm(term.matcher, term.topology_key)
                del self._terms[term.kind, affinity_term, term.weight]
                self._index.discard(term, term.requirements)
                self.forget_matches()

    def _find(self, label_set: LabelSet, namespaces: NamespaceLabels) -> MatchingTerms:
        found: dict[TermKind, dict[str, list[ExistingTerm]]] = {kind: {} for kind in TermKind}
        verdicts: dict[int, bool] = {}  # thousands of terms may share a matcher
        for term in self._index.candidates(label_set.labels):
            matches = verdicts.get(id(term.matcher))
            if matches is None:
                matches = matches_as_existing(term.matcher, label_set, namespaces)
                verdicts[id(term.matcher)] = matches
            if matches:
                found[term.kind].setdefault(term.topology_key, []).append(term)

        def changes() -> int:
            return self._changes

        def groups(kind: TermKind) -> TermsByKey:
            return {key: TermGroup(terms, changes) for key, terms in found[kind].items()}

        return MatchingTerms(
            groups(TermKind.REQUIRED),
            groups(TermKind.REQUIRED_ANTI),
            groups(TermKind.PREFERRED),
        )


def _terms_of(affinity: PodAffinity) -> Iterator[tuple[TermKind, AffinityTerm, int]]:
    """(what it does, term, weight as in ExistingTerm) of every term that can match a pod."""
    return (each for each in _all_terms_of(affinity) if each[1].matcher.selector is not None)


def _all_terms_of(affinity: PodAffinity) -> Iterator[tuple[TermKind, AffinityTerm, int]]:
    for term in affinity.required:
        yield TermKind.REQUIRED, term, 0
    for term in affinity.required_anti:
        yield TermKind.REQUIRED_ANTI, term, 0
    for weighted in affinity.preferred:
        yield TermKind.PREFERRED, weighted.term, weighted.weight
    for weighted in affinity.preferred_anti:
        yield TermKind.PREFERRED, weighted.term, -weighted.weight


class TermIndex(Generic[Term]):
    """Terms by a label that every matching pod must have: most selectors ask for one value."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[Term, None]] = {}
        self._others: dict[Term, None] = {}

    def add(self, term: Term, requirements: Sequence[Requirement]) -> None:
        """File a term under its most selective requirement."""
        requirement = _filed_under(requirements)
        if requirement is None:
            self._others[term] = None
            return
        for value in requirement.values:
            self._by_label.setdefault((requirement.key, value), {})[term] = None

    def discard(self, term: Term, requirements: Sequence[Requirement]) -> None:
        """Take a term out again."""
        requirement = _filed_under(requirements)
        if requirement is None:
            self._others.pop(term, None)
            return
        for value in requirement.values:
            filed = self._by_label.get((requirement.key, value), {})
            filed.pop(term, None)
            if not filed:
                self._by_label.pop((requirement.key, value), None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Term]:
        """Terms that may match these labels, each once."""
        yield from self._others
        for label in labels.items():
            yield from self._by_label.get(label, ())


def most_selective(requirements: Sequence[Requirement]) -> Requirement | None:
    """The requirement with the fewest wanted values; None: no requirement names values."""
    if len(requirements) == 1:
        return requirements[0] if requirements[0].operator == "In" else None
    wanting = [requirement for requirement in requirements if requirement.operator == "In"]
    return min(wanting, key=lambda requirement: len(requirement.values), default=None)


def _filed_under(requirements: Sequence[Requirement]) -> Requirement | None:
    requirement = most_selective(requirements)
    return (
        None
        if requirement is None or len(requirement.values) > _MAX_INDEXED_VALUES
        else requirement
    )
