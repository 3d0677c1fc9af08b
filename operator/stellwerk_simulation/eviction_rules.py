"""The rules of moving pods: what holds a pod where it is.

Plans of moves ask it. Invariant: the moves of one plan together never take more from a
PodDisruptionBudget than its status allows now, for an eviction is not sure to be made good before
the next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.models.eviction_budgets import EvictionBudgets
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo

_MIRROR: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class MoveRules:
    """The rules by which a user lets pods move."""

    bare_pods: bool
    """Also pods without a controller, which nothing makes anew."""
    max_priority: int


def stays_with_its_node(pod: PodInfo, manifest: JsonObject) -> bool:
    """Whether a pod belongs to its node, which counts as empty with it: DaemonSets, mirror pods."""
    kind = pod.owner[0].rpartition(" ")[2] if pod.owner is not None else ""
    return kind in {"DaemonSet", "Node"} or _MIRROR in _annotations(manifest)


def reason_to_stay(
    pod: PodInfo, manifest: JsonObject, rules: MoveRules, budgets: EvictionBudgets
) -> str:
    """The reason why a pod is never moved; empty: it may be."""
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
