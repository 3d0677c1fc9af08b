"""The accepted specs of a profile, as `stellwerk profile history` answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer
from stellwerk_kube.json_values import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSpec(PortAnswer):
    """A spec that was accepted, and what became of it."""

    revision: int
    generation: int
    """The profile's generation when it had that spec; 0: not known."""
    accepted_at: str
    replaced_at: str | None = None
    """Absent: it is in use, or that is not known."""
    scheduled_pods: int
    spec: JsonObject | None
    """Null: it is too large to be kept, or the kept value is not a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHistory(PortAnswer):
    """A profile with its accepted specs, newest first."""

    profile: str
    revisions: Sequence[AcceptedSpec]
