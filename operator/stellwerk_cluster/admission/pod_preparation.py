"""What becomes of a new pod between admission and validation: label keys turn into selectors.

Called through the strategy of pods, once per pod. Invariant: the keys themselves stay, so that a
reader sees where a requirement comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}


def merge_label_keys(pod: JsonObject, _cluster: Reader) -> None:
    """Give selectors with label keys the values that the pod itself has under them."""
    labels = labels_of(pod)
    for holder in _holders(pod["spec"]):
        selector = holder.get("labelSelector")
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for name, operator in _OPERATORS.items()
            for key in holder.get(name) or ()
            if key in labels
        ]
        if selector is not None and added:
            expressions = [*(selector.get("matchExpressions") or ()), *added]
            holder["labelSelector"] = {**selector, "matchExpressions": expressions}


def _holders(spec: JsonObject) -> Iterator[JsonObject]:
    """All terms and constraints of a pod that may have label keys."""
    yield from spec.get("topologySpreadConstraints") or ()
    affinity = spec.get("affinity") or EMPTY
    for part in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(part) or EMPTY
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or {}
