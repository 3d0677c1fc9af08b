"""The failure of an attempt, in whichever cycle.

Decisions, Reserve and binding cycles make Failures, `effects.requeue` reads them. Invariant: a
failure that is not a rejection has no rejecting plugins, since no event can be awaited to end it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.framework.diagnosis import Diagnosis, fit_error, rejecting_plugins
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.types import Status, StatusColumn
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.world.pod_status import CLEAR_NOMINATION, LEAVE_NOMINATION, NominatingInfo

POD_COMPLEXITY: Final = "PodComplexity"
"""Stands for the limit among the plugins that rejected a pod."""


def complexity_hints() -> Sequence[ClusterEventWithHint]:
    """An update that makes the pod less complex: it ends a rejection for complexity."""
    return (
        ClusterEventWithHint(
            Resource.UNSCHEDULED_POD, Action.UPDATE_POD, _became_simple, HintScope.POD
        ),
    )


def _became_simple(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    new = change.new
    return queue_if(isinstance(new, PodInfo) and new.uid == pod.uid and not new.spec.too_complex)


@dataclass(slots=True)
class Failure:
    """The message for events and conditions, and the plugins whose hints can end a rejection."""

    message: str
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nomination: NominatingInfo = LEAVE_NOMINATION
    rejected: bool = False
    """True: plugins found no node. False: something broke, and is tried again after a backoff."""

    slow: bool = False
    """Its profile's foreign code takes too much time: nothing was tried."""

    @classmethod
    def throttled(cls, message: str) -> "Failure":
        """The pod is not tried now, since foreign code of its profile is too slow."""
        return cls(message, slow=True)

    @classmethod
    def error(cls, message: str) -> "Failure":
        """Something broke."""
        return cls(message, nomination=CLEAR_NOMINATION)

    @classmethod
    def not_permitted(cls, status: Status) -> "Failure":
        """A rejection by Reserve or Permit: the one node that was chosen does not take the pod."""
        if not status.rejected:
            return cls.error(status.message)
        unschedulable, pending = rejecting_plugins([status])
        diagnosis = Diagnosis((0,), StatusColumn.of([status]), "", unschedulable, pending)
        return cls(fit_error(diagnosis), unschedulable, pending, rejected=True)

    @classmethod
    def too_complex(cls, spec: SchedulingSpec) -> "Failure":
        """A rejection without a look at any node, until the pod itself changes."""
        return cls(spec.too_complex, frozenset({POD_COMPLEXITY}), rejected=True)

    @classmethod
    def not_bound(cls, status: Status) -> "Failure":
        """PreBind or Bind did not succeed: as its status says, an error mostly.

        Another attempt follows after a backoff; no hint is asked.
        """
        return cls(status.message, rejected=status.rejected)
