"""Selectors and tolerations over a view: the scalar meaning of `models`, once per distinct value.

NodeAffinity, TaintToleration and PodTopologySpread call it. Invariant: every position's answer is
what `stellwerk_kube.selectors` and `stellwerk_kube.taints` say of that node alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from stellwerk.snapshot.columns import ABSENT, IdColumn, IntColumn, LabelColumn, Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.selectors import NodeSelector, NodeSelectorTerm, Requirement
from stellwerk_kube.taints import Taint, Toleration, untolerated

Value = TypeVar("Value")

_MAX_VALUES_ONE_BY_ONE: Final = 4
"""Wanted values that are compared one by one; np.isin costs more than these."""


def matching_nodes(nodes: NodeView, selector: NodeSelector) -> Mask:
    """(n,) bool, True where any term matches the node."""
    matching: Mask = np.zeros(len(nodes), np.bool_)
    for term in selector.terms:
        matching |= matching_term(nodes, term)
    return matching


def matching_term(nodes: NodeView, term: NodeSelectorTerm) -> Mask:
    """(n,) bool, True where labels and name fulfil the term; an empty term matches no node."""
    requirements = len(term.match_expressions) + len(term.match_fields)
    matching: Mask = np.full(len(nodes), requirements > 0)
    for requirement in term.match_expressions:
        ids, column = nodes.label(requirement.key)
        matching &= _fulfilling(ids, column, requirement)
    for requirement in term.match_fields:
        matching &= _fulfilling_name(nodes, requirement)
    return matching


def matching_labels(nodes: NodeView, labels: Mapping[str, str]) -> Mask:
    """(n,) bool, True where the node has all of these labels (spec.nodeSelector)."""
    matching: Mask = np.ones(len(nodes), np.bool_)
    for key, value in labels.items():
        ids, column = nodes.label(key)
        value_id = column.id_of.get(value)
        if value_id is None:
            return np.zeros(len(nodes), np.bool_)
        matching &= ids == value_id
    return matching


def named(nodes: NodeView, names: Collection[str]) -> Mask:
    """(n,) bool, True where the node has one of the names; they are looked up, not compared."""
    row_of = nodes.snapshot.row_of
    return np.isin(nodes.row_numbers(), [row_of[name] for name in names if name in row_of])


def untolerated_counts(
    nodes: NodeView, tolerations: Collection[Toleration], effects: Collection[str]
) -> IntColumn:
    """(n,) int64, number of the node's taints of these effects that no toleration stands."""
    if len(nodes.snapshot.taint_sets) == 1:
        return np.zeros(len(nodes), np.int64)  # no node ever had a taint
    return _per_distinct(
        nodes.taint_set(),
        nodes.snapshot.taint_sets,
        lambda taints: _count_untolerated(taints, tolerations, effects),
    )


def _count_untolerated(
    taints: tuple[Taint, ...], tolerations: Collection[Toleration], effects: Collection[str]
) -> int:
    return len(untolerated(taints, tolerations, effects)) if taints else 0


def _per_distinct(
    ids: IdColumn, values: Sequence[Value], evaluate: Callable[[Value], int]
) -> IntColumn:
    """(n,) int64, `evaluate` of each position's value, called once per distinct value in view."""
    if len(ids) < len(values):
        known = {value_id: evaluate(values[value_id]) for value_id in set(ids.tolist())}
        return np.array([known[value_id] for value_id in ids.tolist()], dtype=np.int64)
    table: IntColumn = np.array([evaluate(value) for value in values], dtype=np.int64)
    return table[ids]


def _fulfilling(ids: IdColumn, column: LabelColumn, requirement: Requirement) -> Mask:
    """(n,) bool, True where a label with this id fulfils the requirement."""
    fulfilled: Mask
    match requirement.operator:
        case "In":
            fulfilled = _one_of(ids, column, requirement.values)
        case "NotIn":
            fulfilled = ~_one_of(ids, column, requirement.values)
        case "Exists":
            fulfilled = ids != ABSENT
        case "DoesNotExist":
            fulfilled = ids == ABSENT
        case _:
            fulfilled = _compared(ids, column, requirement)
    return fulfilled


def _compared(ids: IdColumn, column: LabelColumn, requirement: Requirement) -> Mask:
    """(n,) bool, True where the label is an integer above (Gt) or below (Lt) the bound."""
    bound = requirement.bound
    if bound is None:
        return np.zeros(len(ids), np.bool_)
    integers, is_integer = column.integers()
    beyond = integers > bound if requirement.operator == "Gt" else integers < bound
    # ABSENT indexes the last entry, which is the answer for nodes without the label.
    fulfilled: Mask = (beyond & is_integer)[ids]
    return fulfilled


def _one_of(ids: IdColumn, column: LabelColumn, values: Collection[str]) -> Mask:
    wanted = [column.id_of[value] for value in values if value in column.id_of]
    if len(wanted) > _MAX_VALUES_ONE_BY_ONE:
        return np.isin(ids, wanted)
    found: Mask = np.zeros(len(ids), np.bool_)
    for value_id in wanted:
        found |= ids == value_id
    return found


def _fulfilling_name(nodes: NodeView, requirement: Requirement) -> Mask:
    """(n,) bool, True where the node's name fulfils the requirement."""
    if requirement.operator == "In":
        return named(nodes, requirement.values)
    if requirement.operator == "NotIn":
        return ~named(nodes, requirement.values)
    if requirement.operator in {"Gt", "Lt"} and requirement.bound is None:
        return np.zeros(len(nodes), np.bool_)
    return np.array(
        [node is not None and requirement.matches_value(node.name) for node in nodes.nodes()],
        dtype=np.bool_,
    )
