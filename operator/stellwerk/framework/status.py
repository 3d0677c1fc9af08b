"""Statuses: what an extension point answers. An unschedulable pod is a status, never an exception.

Used by every plugin, the runtime and the queue. Invariant: a Status is immutable; reasons are
kube-scheduler's texts.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final


class Code(Enum):
    """kube-scheduler's status codes, with their effect on a pod that does not get a node."""

    SUCCESS = auto()
    ERROR = auto()
    """Something broke: retried after error backoff, whatever happens in the cluster."""
    UNSCHEDULABLE = auto()
    """No room now; taking pods away may help (preemption)."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = auto()
    """No room, and taking pods away would not help."""
    WAIT = auto()
    """Permit only: hold the pod until it is allowed, rejected, or times out."""
    SKIP = auto()
    """Nothing to do here.

    The coupled point (Filter, Score, PreBind) is left out, or the next Bind plugin asked.
    """
    PENDING = auto()
    """Waiting for something outside the cluster's room; woken without backoff."""


_REJECTIONS: Final = frozenset(
    {Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING}
)
CODE_NAMES: Final = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


@dataclass(frozen=True, slots=True)
class Status:
    """A code, the reasons for it, and the plugin that gave it."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    ok: bool = field(init=False, repr=False, compare=False)
    """Success."""
    skip: bool = field(init=False, repr=False, compare=False)
    """Skip."""
    rejected: bool = field(init=False, repr=False, compare=False)
    """Unschedulable, UnschedulableAndUnresolvable or Pending (`IsRejected`)."""

    def __post_init__(self) -> None:
        """Say once what the code means: statuses are mostly constants, and asked everywhere."""
        object.__setattr__(self, "ok", self.code is Code.SUCCESS)
        object.__setattr__(self, "skip", self.code is Code.SKIP)
        object.__setattr__(self, "rejected", self.code in _REJECTIONS)

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)


OK: Final = Status()
SKIP: Final = Status(Code.SKIP)


def unschedulable(plugin: str, *reasons: str) -> Status:
    """No room now; preemption may help."""
    return Status(Code.UNSCHEDULABLE, reasons, plugin)


def unresolvable(plugin: str, *reasons: str) -> Status:
    """No room, and preemption does not help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons, plugin)


def error(plugin: str, *reasons: str) -> Status:
    """Something broke inside a plugin."""
    return Status(Code.ERROR, reasons, plugin)
