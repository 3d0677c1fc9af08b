"""Selections of pods by pairwise terms, and the terms of pending pods that are counted.

`PairCounts` counts for them; InterPodAffinity, PodTopologySpread and their hints make selections
and ask whether a term matches a pod. Invariant: selections are immutable and hashable, and equal
ones share their counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

from stellwerk.models.pod import LabelSet
from stellwerk.models.pod_affinity import PodMatcher
from stellwerk.snapshot.counted_terms import CountedTerm
from stellwerk_kube.compatibility import Compatibility, ReleaseRule
from stellwerk_kube.selectors import LabelSelector, Requirement

NamespaceLabels: TypeAlias = Mapping[str, Mapping[str, str]]
"""Labels by namespace."""


class PodSelection(Protocol):
    """The pods to be counted; hashable, equal selections share their counts."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Requirements that every counted pod's labels fulfil."""
        ...

    @property
    def reads_namespaces(self) -> bool:
        """True if the answer depends on the labels of namespaces."""
        ...

    @property
    def counts_terminating(self) -> bool:
        """True if pods that are being deleted count."""
        ...

    def matches(self, label_set: LabelSet, namespaces: NamespaceLabels) -> bool:
        """Return whether pods with these labels count."""
        ...


@dataclass(frozen=True, slots=True)
class SpreadSelection:
    """Pods that a spread constraint counts: same namespace, not terminating."""

    namespace: str
    selector: LabelSelector
    counts_everything: bool = False
    """True if an empty selector counts all pods. It counts none in `countPodsMatchSelector` of
    v1.33 to v1.37."""

    @classmethod
    def of(cls, namespace: str, selector: LabelSelector, rules: Compatibility) -> Self:
        """The pods that count in a release."""
        # Only for empty selectors does it matter: others share their counts between releases.
        empty_counts = ReleaseRule.COUNT_FOR_EMPTY_SELECTORS in rules
        return cls(namespace, selector, empty_counts and not selector.requirements)

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
        """Return whether the selector matches the labels, in its namespace."""
        return (
            (self.counts_everything or bool(self.selector.requirements))
            and label_set.namespace == self.namespace
            and self.selector.matches(label_set.labels)
        )


@dataclass(frozen=True, slots=True)
class AffinitySelection:
    """Pods that every one of a pending pod's terms speaks of."""

    matchers: frozenset[PodMatcher]
    reads_once: bool = False
    """As `matches_as_incoming` has it."""

    @classmethod
    def of(cls, matchers: Iterable[PodMatcher], rules: Compatibility) -> Self:
        """The pods that count in a release."""
        found = frozenset(matchers)
        # Only for namespaceSelectors does it matter: others share their counts between releases.
        reads_once = ReleaseRule.READ_NAMESPACES_ONCE in rules
        has_selector = any(matcher.namespace_selector is not None for matcher in found)
        return cls(found, reads_once and has_selector)

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
        """True if a term has a namespaceSelector."""
        return any(matcher.namespace_selector is not None for matcher in self.matchers)

    @property
    def counts_terminating(self) -> bool:
        """A terminating pod attracts and repels until it is gone."""
        return True

    def matches(self, label_set: LabelSet, namespaces: NamespaceLabels) -> bool:
        """Return whether every matcher matches these pods."""
        return all(
            matches_as_incoming(matcher, label_set, namespaces, reads_once=self.reads_once)
            for matcher in self.matchers
        )


def matches_as_incoming(
    matcher: PodMatcher, label_set: LabelSet, namespaces: NamespaceLabels, *, reads_once: bool
) -> bool:
    """Return whether a pending pod's term matches pods with these labels.

    The namespaceSelector adds the namespaces that are known and have such labels, and an empty one
    adds all. v1.34 to v1.37 then compare it with empty labels as well, since
    `mergeAffinityTermNamespacesIfNotEmpty` works on a copy there: a selector that matches a
    namespace without labels matches every namespace. With `reads_once` they do not.
    """
    namespace, labels = label_set.namespace, label_set.labels
    known = namespaces.get(namespace)
    if known is not None and matcher.matches(namespace, labels, known):
        return True
    if not reads_once:
        return matcher.matches(namespace, labels, {})
    is_open = matcher.namespace_selector is not None and not matcher.namespace_selector.requirements
    return (
        (is_open or namespace in matcher.namespaces)
        and matcher.selector is not None
        and matcher.selector.matches(labels)
    )


def matches_as_existing(
    matcher: PodMatcher, label_set: LabelSet, namespaces: NamespaceLabels
) -> bool:
    """Return whether an existing pod's term matches a pending pod with these labels."""
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
