"""Two versions, one store: autoscalers are kept as autoscaling/v2 and shown in either.

Used by `views`. Invariant: the target of cpu, which is all that v1 can say, is kept both ways;
other metrics are not shown in v1, and are lost when an autoscaler is written in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

GROUP: Final = "autoscaling"
_PERCENT: Final = "targetCPUUtilizationPercentage"


def to_second_version(obj: JsonObject) -> JsonObject:
    """The v2 form of an autoscaler in v1."""
    spec = dict(obj.get("spec") or EMPTY)
    percent = spec.pop(_PERCENT, None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return {**obj, "apiVersion": f"{GROUP}/v2", "spec": spec}


def to_first_version(obj: JsonObject) -> JsonObject:
    """The v1 form of an autoscaler in v2."""
    spec = dict(obj.get("spec") or EMPTY)
    percents = [
        (metric["resource"].get("target") or EMPTY).get("averageUtilization")
        for metric in spec.pop("metrics", None) or ()
        if (metric.get("resource") or EMPTY).get("name") == "cpu"
    ]
    spec.pop("behavior", None)
    for percent in percents:
        if percent is not None:
            spec[_PERCENT] = percent
    status = dict(obj.get("status") or EMPTY)
    for name in ("conditions", "currentMetrics"):
        status.pop(name, None)
    status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    return {**obj, "apiVersion": f"{GROUP}/v1", "spec": spec, "status": status}
