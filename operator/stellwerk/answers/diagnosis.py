"""The answer of `stellwerk doctor`: one finding for each thing that was looked at.

`stellwerk_cli.commands.diagnosis` makes it, `tables` beside it prints it. Invariant: `what` and
`remedy` are sentences of this program with names, reasons and numbers in them; texts of others are
in `quoted`, which no support bundle takes over as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stellwerk.answers.answer import PortAnswer

State: TypeAlias = Literal["ok", "warning", "failed", "unknown"]
STATES: tuple[State, ...] = ("ok", "unknown", "warning", "failed")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(PortAnswer):
    """One thing that was checked."""

    check: str
    """The subject: definition, operator, lease and so on."""
    state: State
    """ok; warning: it works, and may not for long; failed: it is broken; unknown: not seen."""
    what: str
    """The finding in words."""
    remedy: str = ""
    """The thing to do."""
    quoted: Sequence[str] = ()
    """Messages of the cluster and lines of a container's log, as they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(PortAnswer):
    """All findings, in the order in which they were made."""

    state: State
    """The worst state of all findings."""
    items: Sequence[Finding]
