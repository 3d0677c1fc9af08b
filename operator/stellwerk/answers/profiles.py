"""The profiles that serve, those that are refused, and what their objects say.

`explain.lists.profiles` makes the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer, Time


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProfile(PortAnswer):
    """A profile that serves."""

    name: str
    scheduler_name: str
    generation: int
    plugins: Mapping[str, Sequence[str]]
    """Plugins by extension point."""
    weights: Mapping[str, int]
    """Weights by Score plugin."""
    scheduled_pods: int
    extenders: bool
    compatibility: str | None = None
    """The Kubernetes release that its decisions follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedProfile(PortAnswer):
    """A profile that does not serve."""

    scheduler_name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCondition(PortAnswer):
    """A condition of a SchedulerProfile."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: Time
    observed_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileObject(PortAnswer):
    """A SchedulerProfile with its conditions."""

    name: str
    generation: int
    conditions: Sequence[ProfileCondition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerFields(PortAnswer):
    """The API server, and what of it can be read."""

    version: str
    """As it says it itself, such as v1.37.0."""
    compatibility: str
    """The release that decisions follow where a profile names none."""
    versions_in_use: Mapping[str, str]
    """By kind, of those that releases serve in different versions."""
    off: Mapping[str, str]
    """Kinds that cannot be read, each with the reason and what is off without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesPage(PortAnswer):
    """Profiles that serve, that do not, and what the objects' conditions say."""

    items: Sequence[ServingProfile]
    refused: Sequence[RefusedProfile]
    objects: Sequence[ProfileObject]
    api_server: ApiServerFields | None = None
