"""The disruptions that the PodDisruptionBudgets of the cluster still allow.

The preemption plugins ask it about the victims of one node at a time, and the preemption of groups
about all of its; it follows the object store. The Eviction API reads budgets in another way and
refuses: `models.eviction_budgets`.
Invariant: budgets are read as the last status said; what a dry run would use up is counted within
that dry run only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.snapshot.columns import ChangeCursor
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject, number_or_none
from stellwerk_kube.selectors import LabelSelector, parse_label_selector

POD_DISRUPTION_BUDGET: Final = "PodDisruptionBudget"
BudgetKey: TypeAlias = tuple[str, str]
"""Namespace and name, as in the object store."""


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """One budget that matches something."""

    selector: LabelSelector
    allowed: int
    """status.disruptionsAllowed."""
    disrupted: frozenset[str]
    """Pods whose eviction the API server has granted already: they cost nothing more."""


class DisruptionBudgets:
    """The budgets of an object store, parsed when they change."""

    def __init__(self, objects: ObjectStore, rules: Compatibility = AS_RECORDED) -> None:
        """`rules`: the release that says what an empty selector means."""
        self._objects = objects
        self._empty_counts = ReleaseRule.EMPTY_BUDGETS_COUNT in rules
        self._cursor = ChangeCursor(objects.changes(POD_DISRUPTION_BUDGET))
        self._budgets: dict[BudgetKey, DisruptionBudget] = {}
        self._matching: WeakKeyDictionary[LabelSet, tuple[BudgetKey, ...]] = WeakKeyDictionary()
        """The budgets that speak of pods with these labels."""

    def violating(self, pods: Sequence[PodInfo]) -> list[bool]:
        """For each pod, whether taking it too, after those before it, overdraws a budget of its."""
        self._refresh()
        if not self._budgets:
            return [False] * len(pods)
        used: Counter[BudgetKey] = Counter()
        return [self._overdraws(pod, used) for pod in pods]

    def _overdraws(self, pod: PodInfo, used: Counter[BudgetKey]) -> bool:
        overdrawn = False
        for key in self._matching_budgets(pod.label_set):
            budget = self._budgets[key]
            if pod.name not in budget.disrupted:
                used[key] += 1
                overdrawn |= used[key] > budget.allowed
        return overdrawn

    def _matching_budgets(self, label_set: LabelSet) -> tuple[BudgetKey, ...]:
        found = self._matching.get(label_set)
        if found is None:
            # Up to v1.37 a pod without labels belongs to no budget, whatever the selector.
            found = self._matching[label_set] = tuple(
                key
                for key, budget in self._budgets.items()
                if (label_set.labels or self._empty_counts)
                and (key[0] or "default") == label_set.namespace
                and budget.selector.matches(label_set.labels)
            )
        return found

    def _refresh(self) -> None:
        if self._cursor.current:
            return
        changed = self._cursor.changed()
        if changed is None:
            self._budgets.clear()
            self._matching.clear()
            for obj in self._objects.list(POD_DISRUPTION_BUDGET):
                metadata = obj["metadata"]
                self._set((metadata.get("namespace") or "", metadata["name"]), obj)
        else:
            for key in changed:
                self._set(key, self._objects.get(POD_DISRUPTION_BUDGET, *key))
        self._cursor.catch_up()

    def _set(self, key: BudgetKey, obj: JsonObject | None) -> None:
        before = self._budgets.get(key)
        budget = self._parse(obj) if obj is not None else None
        if budget is None:
            self._budgets.pop(key, None)
        else:
            self._budgets[key] = budget
        if _selector(before) != _selector(budget):
            self._matching.clear()

    def _parse(self, obj: JsonObject) -> DisruptionBudget | None:
        """A v1.PodDisruptionBudget; None if it matches nothing."""
        try:
            selector = parse_label_selector((obj.get("spec") or {}).get("selector"))
            if selector is None or not (selector.requirements or self._empty_counts):
                return None
            status = obj.get("status") or {}
            return DisruptionBudget(
                selector,
                number_or_none(status.get("disruptionsAllowed")) or 0,
                frozenset(status.get("disruptedPods") or ()),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            # As kube-scheduler: a selector that cannot be read protects no pod.
            return None


def _selector(budget: DisruptionBudget | None) -> LabelSelector | None:
    return budget.selector if budget is not None else None
