"""The rules of nodes: the taint that every new node gets, unique taints, immutable provider ids.

Called by the verbs. Invariant: a node is created with the not-ready taint; it is removed by the
node lifecycle controller, or by what stands in for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import label_value_errors, qualified_name_errors

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader

NOT_READY = "node.kubernetes.io/not-ready"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def prepare_node(node: JsonObject, _cluster: Reader) -> None:
    """Add the not-ready taint (TaintNodesByCondition admission), whatever the body says."""
    taints = node["spec"].get("taints") or []
    if not any(
        taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints
    ):
        node["spec"]["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]


def validate_node(node: JsonObject) -> list[Cause]:
    """What is wrong with a node."""
    return _taint_causes(node["spec"].get("taints") or ())


def validate_node_update(new: JsonObject, old: JsonObject, _subresource: str) -> list[Cause]:
    """What is wrong with a change of a node."""
    causes = validate_node(new)
    causes += causes  # The API server validates the taints of an update twice, and says so twice.
    was = old["spec"].get("providerID", "")
    if was and new["spec"].get("providerID", "") != was:
        text = 'node updates may not change providerID except from "" to valid'
        causes.append(forbidden_field("spec.providerID", text))
    return causes


def _taint_causes(taints: list[JsonObject] | tuple[()]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(taints):
        field = f"metadata.taints[{position}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        causes += [bad_value(f"{field}.key", key, error) for error in qualified_name_errors(key)]
        causes += [
            bad_value(f"{field}.value", taint["value"], error)
            for error in label_value_errors(taint.get("value", ""))
        ]
        if not effect:
            causes.append(required(f"{field}.effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{field}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            causes.append(_repeated_taint(field, taint))
        seen.add((key, effect))
    return causes


def _repeated_taint(field: str, taint: JsonObject) -> Cause:
    shown = {
        "Key": taint.get("key", ""),
        "Value": taint.get("value", ""),
        "Effect": taint.get("effect", ""),
        "TimeAdded": taint.get("timeAdded"),
    }
    value = orjson.loads(orjson.dumps(shown))
    return duplicate(field, value, "taints must be unique by key and effect pair")
