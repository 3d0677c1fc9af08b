"""What the scheduling cycle and the binding cycle of one attempt share.

Invariant: the framework and the extenders are those with which the attempt began, whatever becomes
of the profile meanwhile.
"""

from dataclasses import dataclass

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.runtime import Framework
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.extenders.profile_extenders import ProfileExtenders


@dataclass(slots=True)
class Attempt:
    """One scheduling attempt of one pod."""

    queued: QueuedPod
    framework: Framework
    extenders: ProfileExtenders | None
    state: CycleState
    started_seconds: float
    evaluated: int = 0
    """How many nodes were looked at."""
    feasible: int = 0
    """How many of them took the pod."""
    announced: bool = False
    """Whether the node has been written into the pod's status ahead of the binding."""

    @property
    def pod(self) -> PodInfo:
        """The pod as it left the queue."""
        return self.queued.pod
