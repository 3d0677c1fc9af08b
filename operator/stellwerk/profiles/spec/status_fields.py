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
    """Accepted: the profile is valid and free of conflicts. Active: pods are scheduled by it, or it
    decides beside another. Ready: its newest version acts as written. Stalled: it is not ready, and
    waits for a change. Overlapping: pods that its selector matches are matched by another."""

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
    """All of them."""

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
    """Those of them that this profile decided, too."""

    differing: Annotated[int, Field(ge=0)] = 0
    """Those of them that it would have made otherwise."""

    skipped: Annotated[int, Field(ge=0)] = 0
    """Left out because pods waited."""

    failed: Annotated[int, Field(ge=0)] = 0
    """This profile could not decide."""

    mean_gain: Annotated[str, Field(max_length=32)] = "0.00"
    """The mean difference between the totals of its own node and the active profile's node, by its
    own scores, over all that was compared."""


class SchedulerProfileStatus(ConfigModel):
    """The status of the profile, written by the operator."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation that the operator has looked at."""

    conditions: Items[Condition] = ()
    """Accepted, Active and Ready, and Overlapping of a profile with a selector."""

    pending_pods: PendingPods | None = None
    """Pods that wait for a node."""

    scheduled_pods: Annotated[int, Field(ge=0)] = 0
    """Pods bound by this profile since the operator started."""

    last_decision_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = (
        None
    )
    """The time of the last decision on a pod."""

    shadow: ShadowStatus | None = None
    """Counts of a profile with shadowOf."""

    last_good_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of lastGoodSpec."""

    last_good_spec: dict[str, Any] | None = None
    """The last spec that was accepted. It stays active while a newer one is not."""
