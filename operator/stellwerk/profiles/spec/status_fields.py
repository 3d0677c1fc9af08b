"""The status of a SchedulerProfile: what the operator answers to its user.

`profiles/status_writer.py` writes it and `profiles/conditions.py` words its conditions;
`profiles/spec/crd.py` makes its schema. `spec_fields` beside it is what the user writes. Invariant:
`lastGoodSpec` was accepted once, so that a restart can serve it while a newer spec is refused.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from stellwerk.profiles.spec.config_model import ConfigModel, Items


class Condition(ConfigModel):
    """A statement about the profile."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Accepted: the profile is valid and free of conflicts. Active: it schedules or observes pods,
    or shadows a profile that does. Ready: its newest version acts as written. Stalled: it is not
    ready, and waits for a change. Overlapping: another selector matches pods that its selector
    matches."""

    status: Literal["True", "False", "Unknown"]
    """Whether the statement holds."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """The reason, as one word for programs."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """The reason in words, with the field that is wrong."""

    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """The time of the last change of the status."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the object that the statement is about."""


class PendingPods(ConfigModel):
    """Pods of the profile that wait for a node, by queue."""

    total: Annotated[int, Field(ge=0)] = 0
    """All pending pods."""

    active: Annotated[int, Field(ge=0)] = 0
    """Pods that are next."""

    backoff: Annotated[int, Field(ge=0)] = 0
    """Pods that wait after a failed attempt."""

    unschedulable: Annotated[int, Field(ge=0)] = 0
    """Pods that fit nowhere until the cluster changes."""

    gated: Annotated[int, Field(ge=0)] = 0
    """Pods that may not be scheduled yet."""


class ShadowStatus(ConfigModel):
    """Counts of a profile with shadowOf since the operator took up this version."""

    decisions: Annotated[int, Field(ge=0)] = 0
    """Decisions of the active profile."""

    compared: Annotated[int, Field(ge=0)] = 0
    """Decisions of the active profile that this profile also made."""

    differing: Annotated[int, Field(ge=0)] = 0
    """Compared decisions that this profile would have made differently."""

    skipped: Annotated[int, Field(ge=0)] = 0
    """Decisions that were not compared because pods waited."""

    failed: Annotated[int, Field(ge=0)] = 0
    """Decisions that this profile could not make."""

    mean_gain: Annotated[str, Field(max_length=32)] = "0.00"
    """Points that the nodes of this profile score more than those of the active profile, by this
    profile's scores, on average over all compared decisions."""


class SchedulerProfileStatus(ConfigModel):
    """The status of the profile, written by the operator."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation that the operator has processed."""

    conditions: Items[Condition] = ()
    """Accepted, Active and Ready, and for a profile with a selector Overlapping."""

    pending_pods: PendingPods | None = None
    """Pods that wait for a node."""

    scheduled_pods: Annotated[int, Field(ge=0)] = 0
    """Pods bound by this profile since the operator started."""

    last_decision_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = (
        None
    )
    """The time of the last decision on a pod."""

    shadow: ShadowStatus | None = None
    """Comparison of a profile with shadowOf."""

    last_good_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of lastGoodSpec."""

    last_good_spec: dict[str, Any] | None = None
    """The last spec that was accepted. It stays active while a newer one is not."""
