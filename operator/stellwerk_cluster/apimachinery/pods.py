"""The facts about pods that verbs, controllers and kubelets agree on: group, end and readiness.

Amounts are in `stellwerk_kube.pod_amounts`. Invariant: a pod is read here, never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject


def group_of(pod: JsonObject) -> str:
    """The name of the pod's group in its namespace; empty without one."""
    name: str = (pod["spec"].get("schedulingGroup") or EMPTY).get("podGroupName", "")
    return name


_FINISHED: Final = ("Succeeded", "Failed")


def is_finished(pod: JsonObject) -> bool:
    """Whether the containers of a pod have ended and will not start again."""
    return (pod.get("status") or {}).get("phase") in _FINISHED


def is_ready(pod: JsonObject) -> bool:
    """Whether the pod's Ready condition is True."""
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in pod["status"].get("conditions") or ()
    )


MAX_KEPT_SPECS: Final = 1024
"""Specs of pods whose checks are kept: pods of one controller have the same."""
_MAX_KEPT_SPEC_BYTES: Final = 8 * 1024
"""Bytes of a spec that is kept. Longer ones are rare, and not worth their memory."""


def memo_key(spec: JsonObject) -> bytes | None:
    """The bytes of a specification, under which answers about it are kept.

    None where answers depend on the name of the pod, too.
    """
    if any("ephemeral" in volume for volume in spec.get("volumes") or ()):
        return None
    content = orjson.dumps(spec)
    return content if len(content) <= _MAX_KEPT_SPEC_BYTES else None
