"""A pod's entry in the scheduling queue: where it is, why, and how often it was tried.

Made and changed by the queue alone; the scheduling coroutine reads it. Invariants: `place` is the
one answer to "where is this pod"; an item of activeQ or backoffQ whose sequence is not the entry's
is stale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from typing import Final, Literal, NamedTuple

from stellwerk.models.pod import PodInfo

NO_PLUGINS: Final[frozenset[str]] = frozenset()


class Place(IntEnum):
    """The place of a pod; kube-scheduler has a name for each, and none for all of them."""

    ACTIVE = 0
    """activeQ: popped when all before it have been."""
    BACKOFF = auto()
    """podBackoffQ: worth another attempt, but not yet; popped early when activeQ is empty."""
    ERROR_BACKOFF = auto()
    """podErrorBackoffQ: worth another attempt after an error, but not yet; never popped early."""
    UNSCHEDULABLE = auto()
    """unschedulablePods: rejected, until a change in the cluster may help."""
    GATED = auto()
    """unschedulablePods with a GatingPlugin: kept from activeQ by PreEnqueue."""
    IN_FLIGHT = auto()
    """inFlightPods: popped; changes in the cluster are remembered for it."""
    BINDING = auto()
    """After Done: popped, and past all rejections; what fails from here on is an error."""
    OBSERVED = auto()
    """Decided for a profile that observes; it waits for the other scheduler, and no timer moves
    it."""
    ABSENT = auto()
    """Not in the queue: not yet, or no longer since it was deleted or bound."""


BACKOFF_Q: Final = frozenset({Place.BACKOFF, Place.ERROR_BACKOFF})
UNSCHEDULABLE_PODS: Final = frozenset({Place.UNSCHEDULABLE, Place.GATED})
IN_FLIGHT: Final = frozenset({Place.IN_FLIGHT, Place.BINDING})


class QueueingStrategy(IntEnum):
    """The consequence of a change for a rejected pod; the higher one wins (`queueingStrategy`)."""

    SKIP = 0
    """It stays where it is."""
    AFTER_BACKOFF = auto()
    """It is worth another attempt when its backoff has passed."""
    IMMEDIATELY = auto()
    """A Pending plugin answered Queue: no backoff."""


class QueueEvent(StrEnum):
    """Movements of a pod into a queue by no change in the cluster; labels of the metric."""

    POD_ADD = "UnschedulablePodAdd"
    POD_UPDATE = "UnschedulablePodUpdate"
    ATTEMPT_FAILURE = "ScheduleAttemptFailure"
    BACKOFF_COMPLETE = "BackoffComplete"
    POP_FROM_BACKOFF = "PopFromBackoffQ"
    FORCE_ACTIVATE = "ForceActivate"
    UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"
    PROFILE_CHANGE = "SchedulerProfileChange"
    MANY_CHANGES = "ManyChanges"
    GATE_OPENED = "GateOpened"
    REJECTION_ENDED = "RejectionEnded"


class BindingStage(NamedTuple):
    """The point that the binding cycle of a popped pod is at; binding cycles note it."""

    point: Literal["Permit", "PreBind", "Bind"]
    since_seconds: float
    """Monotonic."""
    waits_for: Sequence[str] = ()
    """Names of what the binding cycle waits for: plugins, members of a group, the watch."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod and its history in the queue (`QueuedPodInfo`); times are monotonic seconds."""

    pod: PodInfo
    """The pod as of its last entry into a queue; while it is popped, updates go to `newest`."""
    newest: PodInfo
    """The pod as the API last showed it."""
    profile_name: str
    """The schedulerName of the profile that serves it, as of its last entry into a queue."""
    queued_at: float
    """Time at which it entered the queue, or came back from its last attempt (`Timestamp`)."""
    place: Place = Place.ABSENT
    attempts: int = 0
    initial_attempt_at: float | None = None
    """Time at which it first reached activeQ: scheduling latency starts there."""
    active_since: float | None = None
    """Time at which it last entered activeQ; None: popped from backoffQ by an idle activeQ."""
    unschedulable_count: int = 0
    """Attempts that ended in a rejection since the pod entered the queue; sets the backoff."""
    consecutive_errors: int = 0
    """Attempts that ended in an error since the last rejection; more than 0 set the backoff."""
    unschedulable_plugins: frozenset[str] = NO_PLUGINS
    """The plugins that rejected it last, the gating plugin included."""
    pending_plugins: frozenset[str] = NO_PLUGINS
    """The plugins that answered Pending."""
    gating_plugin: str = ""
    """The PreEnqueue plugin that keeps it from activeQ; empty: none."""
    waits_backoff_out: bool = False
    """An idle activeQ is no reason to try it before its backoff ends."""
    flushed_at: float = -math.inf
    """Time at which the timeout last ran PreEnqueue again. A gated pod keeps its `queued_at`, which
    orders activeQ, and would otherwise be flushed each time."""
    due_at: float = math.inf
    """Wall-clock time, in seconds since the epoch, at which a rejection ends by itself and the pod
    is tried again, once. Infinite: no rejection does."""
    was_flushed: bool = False
    """It last left unschedulablePods by the timeout: a sign of a hint that missed its change."""
    returned_as: int = 0
    """The number of its last return from an attempt: the order of those of one moment."""
    sort_key: tuple[float, ...] = ()
    sorted_at: float = 0.0
    """Time by which `sort_key` sorts it; later than `queued_at` if others may pass it."""
    sequence: int = 0
    """The number of its item in activeQ or backoffQ; 0: it has none."""
    is_observed: bool = False
    """Another scheduler serves it, and it is decided for comparison alone. It has an activeQ of its
    own, holds no room, and no metric of kube-scheduler's counts it."""
    backoff_expiration: float = 0.0
    """The whole second in which its backoff ends; 0: none."""

    @property
    def may_go_early(self) -> bool:
        """True if an idle activeQ may pop it before its backoff ends; never after an error."""
        return bool(self.rejector_plugins) and not (self.waits_backoff_out or self.is_observed)

    @property
    def rejector_plugins(self) -> frozenset[str]:
        """Every plugin whose hints can requeue the pod (`rejectorPlugins`)."""
        if not self.pending_plugins:
            return self.unschedulable_plugins
        return self.unschedulable_plugins | self.pending_plugins


class ActiveItem(NamedTuple):
    """An item of activeQ: ordered by sort key, equal keys by sequence, which no two items share."""

    sort_key: tuple[float, ...]
    sequence: int
    entry: QueuedPod | None
    """None: no pod, but a sign that backoffQ has one."""
