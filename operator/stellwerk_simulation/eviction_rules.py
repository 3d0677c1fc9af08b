"""The rules of moving pods: what holds a pod where it is, and what budgets still allow.

Plans of moves ask it. Invariant: the moves of one plan together never take more from a
PodDisruptionBudget than its status allows now, for an eviction is not sure to be made good before
the next one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from stellwerk.errors import ConfigurationError
from stellwerk.models.json_values import JsonObject, number_or_none
from stellwerk.models.pod import PodInfo
from stellwerk.models.selectors import LabelSelector, parse_label_selector

_MIRROR: Final = "kubernetes.io/config.mirror"
_BudgetKey: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MoveRules:
    """Which pods a user lets move."""

    bare_pods: bool
    """Also pods without a controller, which nothing makes anew."""
    max_priority: int


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: LabelSelector
    allowed: int


class EvictionBudgets:
    """The PodDisruptionBudgets as the Eviction API reads them."""

    def __init__(self, objects: Iterable[JsonObject]) -> None:
        self._budgets: dict[_BudgetKey, _Budget] = {}
        for obj in objects:
            metadata = obj["metadata"]
            namespace, name = metadata.get("namespace") or "default", metadata["name"]
            try:
                selector = parse_label_selector((obj.get("spec") or {}).get("selector"))
                allowed = number_or_none((obj.get("status") or {}).get("disruptionsAllowed"))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                message = f"PodDisruptionBudget {namespace}/{name}: {error}"
                raise ConfigurationError(message) from error
            if selector is not None:
                self._budgets[namespace, name] = _Budget(selector, allowed or 0)

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


def stays_with_its_node(pod: PodInfo, manifest: JsonObject) -> bool:
    """Whether a pod belongs to its node, which counts as empty with it: DaemonSets, mirror pods."""
    kind = pod.owner[0].rpartition(" ")[2] if pod.owner is not None else ""
    return kind in {"DaemonSet", "Node"} or _MIRROR in _annotations(manifest)


def reason_to_stay(
    pod: PodInfo, manifest: JsonObject, rules: MoveRules, budgets: EvictionBudgets
) -> str:
    """Why a pod is never moved; empty: it may be."""
    reasons = (
        (stays_with_its_node(pod, manifest), "belongs to a DaemonSet or is a mirror pod"),
        (pod.owner is None and not rules.bare_pods, "has no controller (--bare-pods)"),
        (pod.priority > rules.max_priority, "has a priority above --max-priority"),
        (pod.terminating, "is terminating"),
        (pod.group is not None, "belongs to a group of pods"),
        (bool(manifest["spec"].get("resourceClaims")), "holds resource claims"),
        (len(budgets.of(pod)) > 1, "has more than one PodDisruptionBudget"),
        (not budgets.allow([pod]), "has a PodDisruptionBudget that allows no disruption"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _annotations(manifest: JsonObject) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}
