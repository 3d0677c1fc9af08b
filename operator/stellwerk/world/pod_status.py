"""The part of a pod's status that the scheduler writes: conditions and the nomination.

Failed attempts, bindings that take long and preemption write it. Invariant: one strategic merge
patch says both, it names only what changed, and nothing is written when nothing changed (as
kube-scheduler).

A nomination ends if an attempt fails with an error, if preemption finds no candidate, if a pod of
higher priority preempts on the node (`decide.clear_lower_nominations`), if the preemption fails or
the profile goes (`decide.withdraw_nomination`), and with the binding, in which the API server takes
it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from stellwerk.models.pod import SCHEDULING_GATED
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.untrusted_text import shown

if TYPE_CHECKING:
    from datetime import datetime

    from stellwerk.models.pod import PodInfo
    from stellwerk_kube.clock import Clock

POD_SCHEDULED: Final = "PodScheduled"
DISRUPTION_TARGET: Final = "DisruptionTarget"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
SLOW: Final = "Slow"
"""Foreign code of the pod's profile takes too much of the scheduler's time."""


class NominatingMode(Enum):
    """Whether an attempt changes the nomination (`NominatingMode`)."""

    NOOP = auto()
    """It stays as it is."""
    OVERRIDE = auto()
    """It becomes what the NominatingInfo names."""


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """The change of status.nominatedNodeName."""

    node_name: str
    """Empty: remove it."""
    in_any_case: bool = False
    """It was written so lately that the pod may not show it yet: compare with nothing."""
    mode: NominatingMode = NominatingMode.OVERRIDE


LEAVE_NOMINATION: Final = NominatingInfo("", mode=NominatingMode.NOOP)
CLEAR_NOMINATION: Final = NominatingInfo("")
"""`clearNominatedNode`."""


@dataclass(frozen=True, slots=True)
class Report:
    """A change of a pod's status."""

    pod: PodInfo
    """As the API has it, as far as is known."""
    reason: str = ""
    """Reason of the condition PodScheduled=False; empty: leave the condition alone."""
    message: str = ""
    nomination: NominatingInfo = LEAVE_NOMINATION

    def followed_by(self, later: Report) -> Report:
        """One report that says what both say one after the other."""
        condition = later if later.reason else self
        silent = later.nomination.mode is NominatingMode.NOOP
        nomination = self.nomination if silent else later.nomination
        return Report(later.pod, condition.reason, condition.message, nomination)

    def patch(self, clock: Clock) -> dict[str, Any] | None:
        """The patch to send; None if the pod says all that already."""
        if self.reason:
            return status_patch(
                self.pod,
                clock.now(),
                reason=self.reason,
                message=self.message,
                nomination=self.nomination,
            )
        status = nomination_patch(self.pod, self.nomination)
        return {"status": status} if status else None


def status_patch(
    pod: PodInfo, now: datetime, *, reason: str, message: str, nomination: NominatingInfo
) -> dict[str, Any] | None:
    """The patch that makes PodScheduled False with this reason; None if the pod says so already."""
    status = _condition_patch(pod, now, POD_SCHEDULED, "False", reason, message)
    status |= nomination_patch(pod, nomination)
    return {"status": status} if status else None


def disruption_patch(
    pod: PodInfo, now: datetime, *, reason: str, message: str
) -> dict[str, Any] | None:
    """The patch that says why a pod has to go; None if the pod says so already."""
    status = _condition_patch(pod, now, DISRUPTION_TARGET, "True", reason, message)
    return {"status": status} if status else None


def nomination_patch(pod: PodInfo, nomination: NominatingInfo) -> dict[str, Any]:
    """The part of a status patch that sets or removes the nomination, if it changes."""
    if nomination.mode is NominatingMode.NOOP:
        return {}
    if nomination.node_name == pod.nominated_node_name and not nomination.in_any_case:
        return {}
    return {"nominatedNodeName": nomination.node_name or None}


def _condition_patch(
    pod: PodInfo, now: datetime, type_: str, value: str, reason: str, message: str
) -> dict[str, Any]:
    wanted: dict[str, Any] = {"status": value, "reason": reason, "message": shown(message)}
    if pod.generation:
        wanted["observedGeneration"] = pod.generation
    types = list(pod.condition_types)
    # What a running pod's conditions say is not kept; then the whole condition is written.
    present = next((each for each in pod.conditions if each["type"] == type_), None)
    stamp = rfc3339_seconds(now)
    if present is None:
        condition = {
            "type": type_,
            "lastProbeTime": None,
            "lastTransitionTime": stamp,
            **wanted,
        }
        if type_ not in types:
            types.append(type_)
    else:
        condition = {key: value for key, value in wanted.items() if present.get(key) != value}
        if not condition:
            return {}
        begins_to_wait = present.get("reason") == SCHEDULING_GATED and "reason" in condition
        if "status" in condition or begins_to_wait:
            # kube-scheduler leaves the time of a gated pod as it is, which is that of its creation,
            # or none. Here it says since when the pod waits for a node.
            condition["lastTransitionTime"] = stamp
        condition["type"] = type_
    patch: dict[str, Any] = {"conditions": [condition]}
    if len(types) > 1 or type_ in pod.condition_types:
        patch["$setElementOrder/conditions"] = [{"type": type_} for type_ in types]
    return patch
