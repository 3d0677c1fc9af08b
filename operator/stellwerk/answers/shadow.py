"""The decisions that a profile with shadowOf would have made otherwise, as they are answered.

`profiles.shadows` makes it, `stellwerk shadow diff` prints it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer, Time


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDifference(PortAnswer):
    """A decision that the shadow would have made differently."""

    at: Time
    pod: str
    node: str
    """The node that the active profile chose; empty: none."""
    shadow_node: str
    total: int | None
    """The shadow's points for the active profile's node; null: it does not fit, or there is
    none."""
    shadow_total: int | None
    """The shadow's points for its own node; null: there was nothing to choose."""
    plugin: str
    """The plugin that made the largest difference, or turned the node away."""
    reason: str
    group: str | None = None
    """The group, as namespace/name, in whose decision the pod got its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowDiff(PortAnswer):
    """The counts of a shadow, and its differences, the newest first."""

    profile: str
    shadow_of: str
    decisions: int
    compared: int
    differing: int
    skipped: int
    failed: int
    mean_gain: str
    """The points that its own nodes score more, on the average; `meanGainPoints` is a number."""
    mean_gain_points: float
    differences: Sequence[DecisionDifference]
    compatibility: str | None = None
    """The Kubernetes release that its decisions follow."""
    groups: int | None = None
    """Compared decisions that were on groups."""
