"""Label selectors and node selectors: their scalar meaning, written once.

Parsed with the object that carries them; evaluated by plugins (once per distinct label value),
queueing hints, the hollow kubelet and the references that tests compare with. Invariant: a
selector is immutable and hashable, so that equal selectors share one count column and one verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import gt, lt
from typing import Final, TypeAlias

from stellwerk_kube.json_values import JsonObject, text, text_map, texts, whole_number

Labels: TypeAlias = Mapping[str, str]

NODE_NAME_FIELD: Final = "metadata.name"
"""The only field of a node that matchFields can speak of."""

_BY_OPERATOR: Final[dict[str, Callable[[str | None, frozenset[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}
_COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {"Gt": gt, "Lt": lt}
_MAX_DIGITS: Final = 19
"""Digits of a number that fits in 64 bits."""


def parse_integer(text: str) -> int | None:
    """An integer as Go's ParseInt reads it: no spaces, no underscores, 64 bits; None: it is none.

    Digits are counted before they are read, since Python's integers have no end.
    """
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits.isascii() or not digits.isdigit():
        return None
    if len(digits) > _MAX_DIGITS and len(digits.lstrip("0")) > _MAX_DIGITS:
        return None
    number = int(digits.lstrip("0") or "0")
    if text.startswith("-"):
        number = -number
    return number if -(1 << 63) <= number < 1 << 63 else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression `key operator values`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    bound: int | None = field(default=None, init=False, compare=False, repr=False)
    """The number that Gt and Lt compare with, parsed once; None: nothing fulfils the comparison."""

    def __post_init__(self) -> None:
        if self.operator in _BY_OPERATOR:
            return
        if self.operator not in _COMPARISONS:
            message = f"{self.operator!r} is not a valid selector operator"
            raise ValueError(message)
        if len(self.values) == 1:
            object.__setattr__(self, "bound", parse_integer(next(iter(self.values))))

    def matches_value(self, value: str | None) -> bool:
        """Whether a label with this value (None: label absent) fulfils the requirement."""
        matches = _BY_OPERATOR.get(self.operator)
        return self._compares(value) if matches is None else matches(value, self.values)

    def _compares(self, value: str | None) -> bool:
        """Gt and Lt: false unless both sides are integers (labels.Requirement.Matches)."""
        if value is None or self.bound is None:
            return False
        number = parse_integer(value)
        return number is not None and _COMPARISONS[self.operator](number, self.bound)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements together; without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether the labels fulfil every requirement."""
        return all(
            requirement.matches_value(labels.get(requirement.key))
            for requirement in self.requirements
        )

    def with_values(self, labels: Labels, keys: Sequence[str], operator: str) -> "LabelSelector":
        """The selector narrowed by `key operator (labels[key])`, for keys that the labels have."""
        added = tuple(
            Requirement(key, operator, frozenset({labels[key]})) for key in keys if key in labels
        )
        return LabelSelector(
            tuple(dict.fromkeys((*self.requirements, *added))) if added else self.requirements
        )


EVERYTHING: Final = LabelSelector()


def parse_label_selector(selector: JsonObject | None) -> LabelSelector | None:
    """A metav1.LabelSelector; None (no selector) matches nothing and stays None."""
    if selector is None:
        return None
    labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    exact = (
        [
            Requirement(key, "In", frozenset({value}))
            for key, value in sorted(text_map(labels).items())
        ]
        if labels
        else []
    )
    if expressions:
        exact += map(parse_requirement, expressions)
    return LabelSelector(tuple(exact))


def parse_requirement(expression: JsonObject) -> Requirement:
    """One matchExpressions or matchFields entry."""
    return Requirement(
        text(expression["key"]), expression["operator"], frozenset(texts(expression.get("values")))
    )


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """ANDed expressions over node labels and the node's name; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels, node_name: str) -> bool:
        """Whether a node of that name and with these labels fulfils the term."""
        if not self.match_expressions and not self.match_fields:
            return False
        return all(
            requirement.matches_value(labels.get(requirement.key))
            for requirement in self.match_expressions
        ) and all(requirement.matches_value(node_name) for requirement in self.match_fields)


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """ORed terms; without terms it matches no node."""

    terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, labels: Labels, node_name: str) -> bool:
        """Whether any term matches the node."""
        return any(term.matches(labels, node_name) for term in self.terms)


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A node selector term with the weight (1–100) it adds to a node that matches."""

    weight: int
    term: NodeSelectorTerm


def parse_node_selector_term(term: JsonObject) -> NodeSelectorTerm:
    """A v1.NodeSelectorTerm; matchFields knows metadata.name only, as the API server does."""
    return NodeSelectorTerm(
        tuple(parse_requirement(item) for item in term.get("matchExpressions") or ()),
        tuple(parse_requirement(item) for item in term.get("matchFields") or ()),
    )


def parse_node_selector(selector: JsonObject | None) -> NodeSelector | None:
    """A v1.NodeSelector; None stays None (no restriction)."""
    if selector is None:
        return None
    terms = selector.get("nodeSelectorTerms") or ()
    return NodeSelector(tuple(parse_node_selector_term(term) for term in terms))


def parse_preferred_terms(terms: Sequence[JsonObject] | None) -> tuple[PreferredTerm, ...]:
    """PreferredDuringSchedulingIgnoredDuringExecution of a node affinity."""
    return tuple(
        PreferredTerm(
            whole_number(item["weight"]), parse_node_selector_term(item.get("preference") or {})
        )
        for item in terms or ()
    )
