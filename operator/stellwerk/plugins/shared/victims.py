"""Pods that were preempted and have not ended yet.

Preemption asks for them before it looks for others, and queueing hints while they leave. Invariant:
the condition that preemption writes is what tells them from other pods that terminate.
"""

from typing import Final

from stellwerk.models.pod import PodInfo

PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
"""The reason of the condition that marks a victim."""


def is_leaving_as_victim(pod: PodInfo) -> bool:
    """Whether the pod is terminating because it was preempted (`podTerminatingByPreemption`)."""
    if not pod.terminating:
        return False
    for condition in pod.conditions:
        if condition.get("type") == "DisruptionTarget":
            return (
                condition.get("status") == "True"
                and condition.get("reason") == PREEMPTION_BY_SCHEDULER
            )
    return False
