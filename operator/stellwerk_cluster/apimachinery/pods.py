"""The facts about pods that verbs, controllers and kubelets agree on.

Invariant: a pod is read here, never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

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
