"""One SchedulerProfile object as last seen, and what became of it.

`ProfileLoader` keeps an entry for each object and alone writes it, but for the status that the
`ProfileStatusWriter` has stored. The history and the status are made of entries. Invariant:
`serving` is `newest` or `good`, or None.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stellwerk.profiles.dependencies import ProfileClaims
from stellwerk.profiles.spec.profile import LoadedProfile, queue_sort_of
from stellwerk.world.profile_selectors import Age
from stellwerk.world.profiles import ProfileActivity
from stellwerk_kube.json_values import JsonObject

INVALID: Final = "Invalid"
"""The reason of a refusal: a field is wrong, or a plugin refuses its arguments."""
NOT_ALLOWED: Final = "ExtenderNotAllowed"
"""The reason of a refusal: the administrator does not allow an extender's address or files."""
NOTHING_TO_SHADOW: Final = "NothingToShadow"
"""The reason of a refusal: the object that a shadow names schedules no pods."""
OBSERVE_ONLY: Final = "ObserveOnly"
"""The reason of a refusal: the profile would schedule, and this operator only observes."""
BESIDE_KUBE_SCHEDULER: Final = "BesideKubeScheduler"
"""The reason of a refusal: it would serve the pods that kube-scheduler serves."""
RIGHT_MISSING: Final = "RightMissing"
"""The reason of a refusal: the operator lacks the right to bind pods."""
PROCESS_REASONS: Final = frozenset({OBSERVE_ONLY, BESIDE_KUBE_SCHEDULER, RIGHT_MISSING})
"""The reasons that come from this process and its rights, and not from the object."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why the newest version of a profile is not accepted."""

    reason: str
    """For the condition: one of the reasons above, or that of a `Rejected`."""
    message: str


@dataclass(slots=True)
class ProfileEntry:
    """An object, the versions of it that may serve, and the verdict."""

    obj: JsonObject
    may_serve: Callable[[LoadedProfile], bool] = lambda _: True
    """Tells whether this process may serve a version."""
    newest: LoadedProfile | None = None
    """The newest version, if it is valid in itself."""
    flaw: Refusal | None = None
    """The reason why the newest version is not valid in itself."""
    lacks_plugin: bool = False
    """Whether the flaw is a plugin that is not installed."""
    good: LoadedProfile | None = None
    """The last version that was accepted."""
    good_spec: JsonObject | None = None
    """The spec of `good`, as the user wrote it."""
    serving: LoadedProfile | None = None
    """The version that schedules pods now, or decides beside another profile."""
    refusal: Refusal | None = None
    """The verdict on the newest version: its flaw, or its conflict with another profile; None: it
    is accepted."""
    is_judged: bool = False
    """Whether `serving` and `refusal` are of the newest version. A profile that comes in the middle
    of a scheduling cycle, or with many others, is judged a little later."""
    activity: ProfileActivity = field(default_factory=ProfileActivity)

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.obj["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The uid of the object; empty: it is served from memory."""
        return str(self.obj["metadata"].get("uid") or "")

    @property
    def age(self) -> Age:
        """The place of the object among others: the oldest comes first."""
        return str(self.obj["metadata"].get("creationTimestamp") or ""), self.name

    @property
    def generation(self) -> int:
        """The generation of the object as last seen."""
        return int(self.obj["metadata"].get("generation") or 0)

    @property
    def scheduler_name(self) -> str:
        """The schedulerName as the user wrote it; empty: there is none."""
        spec = self.obj.get("spec")
        name = spec.get("schedulerName") if isinstance(spec, dict) else None
        return name if isinstance(name, str) else ""

    @property
    def version(self) -> LoadedProfile | None:
        """The version that is tried first: the newest, or else the last good one.

        The last good one is tried if the newest is flawed or may not be served here. None: neither
        may be served.
        """
        versions = (self.newest, self.good)
        return next((each for each in versions if each is not None and self.may_serve(each)), None)

    @property
    def claims(self) -> ProfileClaims:
        """The part of the object on which verdicts on others may depend."""
        versions = [each for each in (self.newest, self.good) if each is not None]
        names = {each.scheduler_name for each in versions} | {self.scheduler_name} - {""}
        version = self.version
        if version is None:
            return ProfileClaims(frozenset(names))
        if version.spec.shadow_of:
            return ProfileClaims(frozenset(names), shadow_of=version.spec.shadow_of)
        return ProfileClaims(frozenset(names), self.age, queue_sort_of(version))
