"""Pod (anti-)affinity terms and topology spread constraints: their scalar meaning, written once.

Parsed once per spec; used by InterPodAffinity, PodTopologySpread, the pair counts and queueing
hints. Invariant: terms are immutable and hashable; equal terms of different pods share one column
of counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from typing_extensions import override

from stellwerk_kube.json_values import (
    JsonObject,
    number_or_none,
    text,
    text_or_empty,
    texts,
    whole_number,
)
from stellwerk_kube.selectors import LabelSelector, parse_label_selector

_SELECTION: Final = (
    "labelSelector",
    "namespaceSelector",
    "namespaces",
    "matchLabelKeys",
    "mismatchLabelKeys",
)
"""The fields of a term that say which pods it speaks of."""


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """The pods of a term: those of the namespaces whose labels the selector matches."""

    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    """Matches further namespaces by their labels; None adds none, an empty selector adds all."""
    selector: LabelSelector | None
    """None matches no pod."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Worked out once: terms are looked up again and again, and there may be thousands."""

    def __post_init__(self) -> None:
        parts = (self.namespaces, self.namespace_selector, self.selector)
        object.__setattr__(self, "_hash", hash(parts))

    @override
    def __hash__(self) -> int:
        return self._hash

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> bool:
        """Whether a pod with these labels, in a namespace with those labels, is meant."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        return namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespace_labels)
        )


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A pod affinity term: pods that match, counted per value of the topology key."""

    matcher: PodMatcher
    topology_key: str


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred term; weight 1–100."""

    weight: int
    term: AffinityTerm


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """spec.affinity.podAffinity and podAntiAffinity of a pod."""

    required: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred_anti: tuple[WeightedTerm, ...] = ()
    empty: bool = field(init=False, repr=False, compare=False)
    """Whether there is no term at all, as with most pods."""
    size: int = field(init=False, repr=False, compare=False)
    """The number of terms in all."""

    def __post_init__(self) -> None:
        terms = (self.required, self.preferred, self.required_anti, self.preferred_anti)
        object.__setattr__(self, "size", sum(map(len, terms)))
        object.__setattr__(self, "empty", not self.size)


_NO_AFFINITY: Final = PodAffinity()
"""The terms of most pods: none. They share it, because it is immutable."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint; labels of matchLabelKeys are already part of the selector."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    selector: LabelSelector | None
    min_domains: int | None
    honor_node_affinity: bool
    honor_node_taints: bool

    @property
    def hard(self) -> bool:
        """DoNotSchedule: a filter; otherwise ScheduleAnyway: a score."""
        return self.when_unsatisfiable == "DoNotSchedule"


def parse_pod_affinity(
    affinity: JsonObject, namespace: str, labels: Mapping[str, str]
) -> PodAffinity:
    """PodAffinity and podAntiAffinity of a pod in that namespace and with those labels."""
    if not affinity:
        return _NO_AFFINITY
    attract, repel = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    matchers: dict[bytes, PodMatcher] = {}

    def parse(term: JsonObject) -> AffinityTerm:
        # Terms mostly differ in their topology key alone.
        selection = orjson.dumps([term.get(name) for name in _SELECTION])
        matcher = matchers.get(selection)
        if matcher is None:
            matcher = matchers[selection] = _parse_matcher(term, namespace, labels)
        return AffinityTerm(matcher, text_or_empty(term.get("topologyKey")))

    def required(terms: JsonObject) -> tuple[AffinityTerm, ...]:
        listed = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        return tuple(map(parse, listed))

    def preferred(terms: JsonObject) -> tuple[WeightedTerm, ...]:
        listed = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        return tuple(
            WeightedTerm(
                whole_number(item["weight"]),
                parse(item["podAffinityTerm"]),
            )
            for item in listed
        )

    return PodAffinity(required(attract), preferred(attract), required(repel), preferred(repel))


def _parse_matcher(term: JsonObject, namespace: str, labels: Mapping[str, str]) -> PodMatcher:
    selector = parse_label_selector(term.get("labelSelector"))
    if selector is not None:
        # A no-op where the API server has merged the keys already: requirements are not repeated.
        if "matchLabelKeys" in term:
            selector = selector.with_values(labels, term["matchLabelKeys"] or (), "In")
        if "mismatchLabelKeys" in term:
            selector = selector.with_values(labels, term["mismatchLabelKeys"] or (), "NotIn")
    namespaces = frozenset(texts(term.get("namespaces")))
    namespace_selector = parse_label_selector(term.get("namespaceSelector"))
    if not namespaces and namespace_selector is None:
        namespaces = frozenset({namespace})
    return PodMatcher(namespaces, namespace_selector, selector)


def parse_spread_constraints(
    constraints: Sequence[JsonObject] | None, labels: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    """spec.topologySpreadConstraints (or a plugin's defaultConstraints, with no labels)."""
    parsed = []
    for item in constraints or ():
        selector = parse_label_selector(item.get("labelSelector"))
        if selector is not None:
            selector = selector.with_values(labels, item.get("matchLabelKeys") or (), "In")
        parsed.append(
            SpreadConstraint(
                max_skew=whole_number(item["maxSkew"]),
                topology_key=text(item["topologyKey"]),
                when_unsatisfiable=text(item["whenUnsatisfiable"]),
                selector=selector,
                min_domains=number_or_none(item.get("minDomains")),
                honor_node_affinity=item.get("nodeAffinityPolicy") != "Ignore",
                honor_node_taints=item.get("nodeTaintsPolicy") == "Honor",
            )
        )
    return tuple(parsed)
