"""The frameworks of the profile versions that serve: made, reloaded and taken away.

`ProfileLoader` asks for the framework of each version that it has chosen. Invariant: while a
schedulerName is served, it keeps its Assembly. A new version gets a new framework with the plugins
whose arguments are the same, and they keep what they know; only another seed makes plugins anew.
Cached columns and the place in the node tree (`node_sampling`) are not kept. Attempts and bindings
that began before go on with the framework of the old version.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from pydantic import BaseModel

from stellwerk.framework.handle import RandomNumbers, Services
from stellwerk.framework.offline import offline_services
from stellwerk.metrics import Metrics
from stellwerk.plugins.assembly import Assembly
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.extenders import Extenders
from stellwerk.world.profiles import ProfileActivity, RecordedRandom, ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)


def reading_services(services: Services) -> Services:
    """The services of plugins that may write nothing, and whose pods no metric counts."""
    offline = offline_services(
        services.snapshot, services.objects, services.nominations, services.random, services.now
    )
    return replace(
        offline,
        now_seconds=services.now_seconds,
        pods_on=services.pods_on,
        guard=services.guard,
        worker=services.worker,
        pod_groups=services.pod_groups,
        sources=services.sources,
    )


class ProfileFrameworks:
    """An assembly of plugins for each schedulerName that is served."""

    def __init__(
        self,
        world: World,
        services: Services,
        seeded: Callable[[int], RandomNumbers],
        metrics: Metrics,
    ) -> None:
        """Begin with none; `seeded` makes the generator of a profile with a `tieBreakSeed`."""
        self._world = world
        self._services = services
        self._reading = reading_services(services)
        """The services of plugins of a profile that observes."""
        self._seeded = seeded
        self._metrics = metrics
        self._assemblies: dict[str, Assembly] = {}
        """By schedulerName."""
        self._random: dict[str, RecordedRandom] = {}
        """The generators of profiles with a seed, by schedulerName."""

    def make(self, profile: LoadedProfile) -> bool:
        """Make or reload the framework of a version; False: what is there is the same.

        Raises:
            Exception: a plugin refuses its arguments, in whatever way it likes.
        """
        assembly = self._assemblies.get(profile.scheduler_name)
        auto = self._world.profiles.compatibility
        if (
            assembly is not None
            and (assembly.profile is profile or assembly.profile.spec == profile.spec)
            and assembly.compatibility == auto.of(profile.spec.compatibility)
        ):
            assembly.profile = profile
            return False
        seed = profile.spec.tie_break_seed
        if (
            assembly is not None
            and assembly.profile.spec.tie_break_seed == seed
            and assembly.profile.observes is profile.observes
        ):
            assembly.reload(profile, auto)
        else:
            services = replace(
                self._reading if profile.observes else self._services, compatibility=auto
            )
            self._random.pop(profile.scheduler_name, None)
            if seed is not None:
                random = RecordedRandom(self._seeded(seed))
                services = replace(services, random=random)
                self._random[profile.scheduler_name] = random
            self._assemblies[profile.scheduler_name] = Assembly(profile, services)
        verb = "observes" if profile.observes else "serves"
        logger.info("SchedulerProfile %s %s %s", profile.name, verb, profile.scheduler_name)
        self._metrics.profile_reloads.labels("served").inc()
        return True

    def take_away(self, scheduler_name: str) -> bool:
        """Drop the framework of a schedulerName that no version serves; False: there is none."""
        if scheduler_name not in self._assemblies:
            return False
        del self._assemblies[scheduler_name]
        self._random.pop(scheduler_name, None)
        return True

    def served(
        self, profile: LoadedProfile, extenders: Extenders | None, activity: ProfileActivity
    ) -> ServedProfile:
        """The version with its framework; the object that serves already if its parts are the same.

        For nearly every profile they are. `Profiles.change` compares by identity, and works out
        selectors only for what is another object.
        """
        name = profile.scheduler_name
        framework = self._assemblies[name].framework
        random = self._random.get(name, self._world.random)
        before = self._world.profiles.served.get(name)
        if (
            before is not None
            and before.loaded is profile
            and before.framework is framework
            and before.random is random
            and before.extenders is extenders
            and before.activity is activity
        ):
            return before
        return ServedProfile(
            profile, framework, random=random, extenders=extenders, activity=activity
        )

    def queue_sort(self) -> tuple[str, BaseModel | None] | None:
        """The QueueSort plugin of all profiles with its arguments; None: no profile serves."""
        for assembly in self._assemblies.values():
            (name,) = assembly.profile.plugins.at(ExtensionPoint.QUEUE_SORT)
            return name, assembly.profile.args.get(name)
        return None
