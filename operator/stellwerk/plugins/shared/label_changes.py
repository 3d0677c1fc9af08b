"""The labels that would make a node match a selector.

NodeAffinity and the plugins of volumes propose them; two importers, so that it stands alone.
"""

from collections.abc import Iterator
from typing import TypeAlias

from stellwerk_kube.node import NodeInfo
from stellwerk_kube.selectors import NodeSelector, Requirement

LabelChanges: TypeAlias = dict[str, str | None]
"""Labels that a node gets, or loses (None)."""


def label_changes(selector: NodeSelector, node: NodeInfo) -> Iterator[LabelChanges]:
    """Changes of a node's labels that fulfil a term, where labels can; the fewest first."""
    options = []
    for term in selector.terms:
        if not (term.match_expressions or term.match_fields):
            continue
        if not all(field.matches_value(node.name) for field in term.match_fields):
            continue
        changes: LabelChanges = {}
        unmet = [each for each in term.match_expressions if not _met(each, node, changes)]
        for requirement in unmet:
            changes[requirement.key] = _value_for(requirement)
        labels = {**node.labels, **changes}
        present = {key: value for key, value in labels.items() if value is not None}
        if changes and all(
            each.matches_value(present.get(each.key)) for each in term.match_expressions
        ):
            options.append(changes)
    yield from sorted(options, key=len)


def _met(requirement: Requirement, node: NodeInfo, changes: LabelChanges) -> bool:
    value = changes.get(requirement.key, node.labels.get(requirement.key))
    return requirement.matches_value(value)


def _value_for(requirement: Requirement) -> str | None:
    """A label value that fulfils a requirement."""
    if requirement.operator == "In":
        return min(requirement.values, default="")
    if requirement.operator == "Exists":
        return ""
    if requirement.bound is not None:
        return str(requirement.bound + (1 if requirement.operator == "Gt" else -1))
    return None
