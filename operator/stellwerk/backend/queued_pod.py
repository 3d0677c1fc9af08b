"""A pod's entry in the scheduling queue: where it is, why, and how often it was tried.

Made and changed by the queue alone; the scheduling coroutine reads it. Invariant: `place` is the
one answer to "where is this pod"; heaps and indexes that disagree with it hold stale entries.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from typing import Final

from stellwerk.models.pod import PodInfo

NO_PLUGINS: Final[frozenset[str]] = frozenset()


class Place(IntEnum):
    """Where a pod is; the queue counts pods by place."""

    ACTIVE = 0
    """In activeQ: to be scheduled as soon as its turn comes."""
    BACKOFF = auto()
    """Worth another attempt, but not yet; taken early when activeQ is empty."""
    ERROR_BACKOFF = auto()
    """The same after something broke; never taken early."""
    UNSCHEDULABLE = auto()
    """Rejected, waiting for a change in the cluster."""
    GATED = auto()
    """Kept out by a PreEnqueue plugin."""
    IN_FLIGHT = auto()
    """Taken; changes in the cluster are remembered for it."""
    BINDING = auto()
    """Taken and done with rejections: what fails from here on is an error."""
    GONE = auto()
    """Deleted, bound, or replaced by a newer entry."""


WAITING: Final = frozenset({Place.UNSCHEDULABLE, Place.GATED})
BACKING_OFF: Final = frozenset({Place.BACKOFF, Place.ERROR_BACKOFF})
TAKEN: Final = frozenset({Place.IN_FLIGHT, Place.BINDING})


class QueueingStrategy(IntEnum):
    """What a change means for a rejected pod; the higher one wins (`queueingStrategy`)."""

    SKIP = 0
    """It stays where it is."""
    AFTER_BACKOFF = auto()
    """It is worth another attempt when its backoff has passed."""
    IMMEDIATELY = auto()
    """What a Pending plugin waited for has come: no backoff."""


class QueueEvent(StrEnum):
    """What moved a pod into a queue where it was no change in the cluster; labels of the metric."""

    POD_ADD = "UnschedulablePodAdd"
    POD_UPDATE = "UnschedulablePodUpdate"
    ATTEMPT_FAILURE = "ScheduleAttemptFailure"
    BACKOFF_COMPLETE = "BackoffComplete"
    POP_FROM_BACKOFF = "PopFromBackoffQ"
    FORCE_ACTIVATE = "ForceActivate"
    UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"
    PROFILE_CHANGE = "SchedulerProfileChange"
    GATE_OPENED = "GateOpened"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """See the module docstring. Times are monotonic seconds."""

    pod: PodInfo
    """The pod as of its last entry into a queue; while it is taken, updates go to `newest`."""
    newest: PodInfo
    """The pod as the API last showed it."""
    queued_at: float
    """When it entered the queue, or came back from its last attempt."""
    place: Place = Place.GONE
    taken_at: float = 0.0
    """When its last attempt began."""
    attempts: int = 0
    initial_attempt_at: float | None = None
    """When it first reached activeQ: where scheduling latency starts."""
    unschedulable_count: int = 0
    """Attempts that ended in a rejection; sets the backoff."""
    consecutive_errors: int = 0
    """Attempts since the last rejection that broke; set the backoff while there are any."""
    unschedulable_plugins: frozenset[str] = NO_PLUGINS
    """Who rejected it last, gating plugins included."""
    pending_plugins: frozenset[str] = NO_PLUGINS
    """Who answered Pending."""
    gating_plugin: str = ""
    was_flushed: bool = False
    """Its last way into activeQ was waiting too long: a sign of a hint that missed its change."""
    sort_key: tuple[float, ...] = ()
    sequence: int = 0
    """Number of its last entry into activeQ or backoffQ; heap items with another one are stale."""
    backoff_until: float = 0.0
    """The one-second window in which its backoff ends; 0: none."""

    @property
    def rejectors(self) -> frozenset[str]:
        """Every plugin whose hints can wake the pod."""
        if not self.pending_plugins:
            return self.unschedulable_plugins
        return self.unschedulable_plugins | self.pending_plugins

    @property
    def gated(self) -> bool:
        """Whether a PreEnqueue plugin keeps it out."""
        return bool(self.gating_plugin)
