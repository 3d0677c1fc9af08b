"""Groups of pods and their members, as the API has them."""

from collections.abc import Mapping
from typing import Any

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod


def make_group(
    name: str, min_count: int = 0, annotations: Mapping[str, str] | None = None, **spec: Any
) -> JsonObject:
    """A PodGroup of kube-scheduler's API; without a number its policy is basic."""
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"group-{name}",
            "annotations": dict(annotations or {}),
        },
        "spec": {"schedulingPolicy": policy, **spec},
    }


def make_member(name: str, group: str, **spec: Any) -> JsonObject:
    """A pod that names its group in spec.schedulingGroup."""
    pod = make_pod(name, **{"scheduler_name": "stellwerk", **spec})
    pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


def constrained_to(*keys: str) -> JsonObject:
    """spec.schedulingConstraints: all members share one value of each label."""
    return {"topology": [{"key": key} for key in keys]}
