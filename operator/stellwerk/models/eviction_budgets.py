"""The PodDisruptionBudgets as the Eviction API reads them: which evictions they refuse.

What-if asks it about drains, `would_fit` and plans of moves about the pods that would have to go.
Preemption does not: it deletes pods without the Eviction API, and reads budgets by
`plugins.shared.disruption_budgets`. Invariant: a budget allows no more than its status does, but
for what `give_back` says has been made good.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from stellwerk.models.pod import PodInfo
from stellwerk_kube.json_values import JsonObject, number_or_none
from stellwerk_kube.selectors import LabelSelector, parse_label_selector

_BudgetKey: TypeAlias = tuple[str, str]
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: LabelSelector
    allowed: int
    unready_may_go: bool
    """Whether a pod that is not ready may be evicted whatever is allowed."""


class EvictionBudgets:
    """Every budget, and what evictions have taken of it."""

    def __init__(self, objects: Iterable[JsonObject]) -> None:
        """Read them; one that is malformed protects no pod, as for kube-scheduler."""
        self.malformed = ""
        """The mistake in the first malformed budget; empty: there is none."""
        self._budgets: dict[_BudgetKey, _Budget] = {}
        self._taken: Counter[_BudgetKey] = Counter()
        for obj in objects:
            metadata = obj["metadata"]
            namespace, name = metadata.get("namespace") or "default", metadata["name"]
            try:
                budget = _parsed(obj)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                message = f"PodDisruptionBudget {namespace}/{name}: {error}"
                self.malformed = self.malformed or message
                continue
            if budget is not None:
                self._budgets[namespace, name] = budget

    def of(self, pod: PodInfo) -> list[_BudgetKey]:
        """The budgets that match a pod; an empty selector matches the whole namespace."""
        return [
            key
            for key, budget in self._budgets.items()
            if key[0] == pod.namespace and budget.selector.matches(pod.labels)
        ]

    def allow(self, pods: Iterable[PodInfo]) -> bool:
        """Whether evicting all of them takes no more than every budget allows now."""
        used = Counter(key for pod in pods for key in self.of(pod))
        return all(number <= self._budgets[key].allowed for key, number in used.items())

    def refusing(self, pod: PodInfo) -> tuple[str, str] | None:
        """(the budget, why) where one refuses the eviction of a pod now; None: it is allowed."""
        if pod.phase == "Pending" or pod.phase in _FINISHED or pod.terminating:
            return None
        found = self.of(pod)
        if len(found) > 1:
            names = ", ".join("/".join(key) for key in found)
            return names, "a pod with more than one budget is not evicted"
        for key in found:
            budget = self._budgets[key]
            free = budget.unready_may_go and not pod.is_ready
            if not free and self._taken[key] >= budget.allowed:
                return "/".join(key), "it allows no disruption now"
        return None

    def take(self, pod: PodInfo) -> None:
        """Count a pod as evicted."""
        self._taken.update(self.of(pod))

    def give_back(self, pod: PodInfo) -> None:
        """Count a pod as made good: another one runs in its place."""
        self._taken.subtract(self.of(pod))


def _parsed(obj: JsonObject) -> _Budget | None:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    selector = parse_label_selector(spec.get("selector"))
    if selector is None:
        return None
    healthy = number_or_none(status.get("currentHealthy")) or 0
    desired = number_or_none(status.get("desiredHealthy")) or 0
    always = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return _Budget(
        selector,
        number_or_none(status.get("disruptionsAllowed")) or 0,
        always or healthy >= desired > 0,
    )
