"""What pairwise terms speak of: the pods that pending pods ask about, and the terms of placed ones.

`PairCounts` counts for them; InterPodAffinity, PodTopologySpread and their hints make selections
and ask whether a term means a pod. Invariant: selections are immutable and hashable, and equal ones
share their counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias

from stellwerk.models.pod import LabelSet
from stellwerk.models.pod_affinity import AffinityTerm, PodAffinity, PodMatcher
from stellwerk.models.selectors import LabelSelector, Requirement
from stellwerk.snapshot.counted_terms import CountedTerm

NamespaceLabels: TypeAlias = Mapping[str, Mapping[str, str]]
"""Labels by namespace."""

# --- which pods a term counts -------------------------------------------------------------------


class PodSelection(Protocol):
    """Which pods are counted; hashable, equal selections share their counts."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Requirements that every counted pod's labels fulfil."""
        ...

    @property
    def reads_namespaces(self) -> bool:
        """Whether the answer depends on the labels of namespaces."""
        ...

    @property
    def counts_terminating(self) -> bool:
        """Whether pods that are being deleted count."""
        ...

    def matches(self, label_set: LabelSet, namespaces: NamespaceLabels) -> bool:
        """Whether pods with these labels count."""
        ...


@dataclass(frozen=True, slots=True)
class SpreadSelection:
    """Pods that a spread constraint counts: same namespace, not terminating."""

    namespace: str
    selector: LabelSelector

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Those of the selector."""
        return self.selector.requirements

    @property
    def reads_namespaces(self) -> bool:
        """Only the namespace's name matters."""
        return False

    @property
    def counts_terminating(self) -> bool:
        """`countPodsMatchSelector` passes over terminating pods."""
        return False

    def matches(self, label_set: LabelSet, namespaces: NamespaceLabels) -> bool:  # noqa: ARG002 of the protocol
        """An empty selector counts nothing (`countPodsMatchSelector`, v1.36)."""
        return (
            bool(self.selector.requirements)
            and label_set.namespace == self.namespace
            and self.selector.matches(label_set.labels)
        )


@dataclass(frozen=True, slots=True)
class AffinitySelection:
    """Pods that every one of a pending pod's terms speaks of."""

    matchers: frozenset[PodMatcher]

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Those of all selectors."""
        return tuple(
            requirement
            for matcher in self.matchers
            if matcher.selector is not None
            for requirement in matcher.selector.requirements
        )

    @property
    def reads_namespaces(self) -> bool:
        """Whether a term has a namespaceSelector."""
        return any(matcher.namespace_selector is not None for matcher in self.matchers)

    @property
    def counts_terminating(self) -> bool:
        """A terminating pod attracts and repels until it is gone."""
        return True

    def matches(self, label_set: LabelSet, namespaces: NamespaceLabels) -> bool:
        """Whether every matcher means these pods."""
        return all(matches_as_incoming(matcher, label_set, namespaces) for matcher in self.matchers)


def matches_as_incoming(
    matcher: PodMatcher, label_set: LabelSet, namespaces: NamespaceLabels
) -> bool:
    """Whether a pending pod's term means pods with these labels.

    v1.36 resolves the namespaceSelector to the namespaces it knows, and then compares it with empty
    labels as well (`mergeAffinityTermNamespacesIfNotEmpty` works on a copy): a selector that
    matches a namespace without labels matches every namespace.
    """
    namespace, labels = label_set.namespace, label_set.labels
    if matcher.matches(namespace, labels, {}):
        return True
    known = namespaces.get(namespace)
    return known is not None and matcher.matches(namespace, labels, known)


def matches_as_existing(
    matcher: PodMatcher, label_set: LabelSet, namespaces: NamespaceLabels
) -> bool:
    """Whether a placed pod's term means a pending pod with these labels."""
    namespace = label_set.namespace
    return matcher.matches(namespace, label_set.labels, namespaces.get(namespace, {}))


class PodTerm(CountedTerm):
    """Pods of a selection, counted."""

    __slots__ = ("dropped", "last_use", "selection")

    def __init__(self, selection: PodSelection) -> None:
        super().__init__()
        self.selection = selection
        self.last_use = 0
        self.dropped = False
        """Made room for other terms: no longer counted."""


# --- terms that placed pods own -----------------------------------------------------------------


class Ownership(Enum):
    """What a placed pod's term does to pending pods that it matches."""

    REQUIRED = auto()
    """Required affinity: attracts with hardPodAffinityWeight."""
    REQUIRED_ANTI = auto()
    """Required anti-affinity: keeps them away."""
    PREFERRED = auto()
    """Preferred affinity, or with a negative weight anti-affinity."""


class OwnedTerm(CountedTerm):
    """Placed pods that have a term; a pod that has it twice counts twice."""

    __slots__ = ("matcher", "ownership", "topology_key", "users", "weight")

    def __init__(self, ownership: Ownership, term: AffinityTerm, weight: int) -> None:
        super().__init__()
        self.ownership = ownership
        self.matcher = term.matcher
        self.topology_key = term.topology_key
        self.weight = weight
        """1–100, −100–−1 for preferred anti-affinity; 0 for required terms."""
        self.users = 0
        """Specs of placed pods that have it."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Those of the selector."""
        return self.matcher.selector.requirements if self.matcher.selector is not None else ()


@dataclass(frozen=True, slots=True)
class OwnedMatches:
    """The owned terms that mean a pending pod."""

    required: tuple[OwnedTerm, ...] = ()
    required_anti: tuple[OwnedTerm, ...] = ()
    preferred: tuple[OwnedTerm, ...] = ()


def has_terms(affinity: PodAffinity) -> bool:
    """Whether there is any term at all."""
    return bool(
        affinity.required or affinity.required_anti or affinity.preferred or affinity.preferred_anti
    )


def terms_of(affinity: PodAffinity) -> Iterator[tuple[Ownership, AffinityTerm, int]]:
    """(what it does, term, weight as in OwnedTerm) of every term that a pod has."""
    for term in affinity.required:
        yield Ownership.REQUIRED, term, 0
    for term in affinity.required_anti:
        yield Ownership.REQUIRED_ANTI, term, 0
    for weighted in affinity.preferred:
        yield Ownership.PREFERRED, weighted.term, weighted.weight
    for weighted in affinity.preferred_anti:
        yield Ownership.PREFERRED, weighted.term, -weighted.weight
