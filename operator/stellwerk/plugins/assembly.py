"""From a loaded profile to a framework: instances of its plugins, in calling order.

`app` calls it for every accepted profile, `decide` for a case's. Invariant: a plugin appears as one
instance at all of its extension points, and a reload keeps instances whose arguments are equal.
"""

from dataclasses import replace

from stellwerk.framework.handle import ProfileHandle, Services
from stellwerk.framework.interface import Plugin
from stellwerk.framework.plugin_isolation import isolated
from stellwerk.framework.runtime import Framework
from stellwerk.plugins.registry import instantiate
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk_kube.compatibility import Compatibility
from stellwerk_kube.errors import ProfileError


class Assembly:
    """A framework with what a reload needs to know of it."""

    def __init__(self, profile: LoadedProfile, services: Services) -> None:
        self.profile = profile
        self._services = services
        self._handle = ProfileHandle(services, profile.scheduler_name, profile.spec.compatibility)
        self._guard = services.guard.of_profile(profile.scheduler_name)
        self._instances: dict[str, Plugin] = {}
        self.framework = self._build(profile)

    @property
    def compatibility(self) -> Compatibility:
        """The release that the framework decides as."""
        return self._handle.compatibility

    def reload(self, profile: LoadedProfile, auto: Compatibility) -> Framework:
        """A new framework for a new version; the old one goes on for the attempts it began.

        `auto`: the meaning of `compatibility: auto` by now.
        """
        compatibility = auto.of(profile.spec.compatibility)
        if compatibility != self.compatibility:
            # Plugins ask for their release once, when they are made.
            self._services = replace(self._services, compatibility=auto)
            self._handle = ProfileHandle(
                self._services, profile.scheduler_name, profile.spec.compatibility
            )
            self._instances = {}
        self.framework = self._build(profile)
        self.profile = profile
        return self.framework

    def _build(self, profile: LoadedProfile) -> Framework:
        known = self._instances
        known_args = self.profile.args if known else {}
        self._instances = {
            name: (
                known[name]
                if name in known and known_args.get(name) == profile.args.get(name)
                else self._instance(name, profile)
            )
            for name in profile.plugins.names
        }
        by_point = {
            point: [self._instances[name] for name in profile.plugins.at(point)]
            for point in ExtensionPoint
        }
        return Framework(
            self._handle,
            by_point,
            profile.plugins.weights,
            percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
            check_all_filters=profile.spec.check_all_filters,
            metrics_recorder=self._services.metrics_recorder(profile.scheduler_name, by_point),
            extenders_choose=any(
                extender.filter_verb or extender.prioritize_verb
                for extender in profile.spec.extenders
            ),
        )

    def _instance(self, name: str, profile: LoadedProfile) -> Plugin:
        """A new instance of a plugin, whose kinds are watched from now on.

        Raises:
            ProfileError: the plugin refuses its arguments, in whatever way.
        """
        try:
            made = self._guard.call(
                name, "Init", lambda: instantiate(name, self._handle, profile.args.get(name))
            )
        except ProfileError:
            raise
        except Exception as failure:
            raise ProfileError(
                _arguments_field(name, profile),
                f"plugin {name} cannot be created: {type(failure).__name__}: {failure}",
            ) from failure
        for kind in getattr(made, "watched_kinds", ()):
            self._services.sources.watch(kind)
        return isolated(made, self._guard)


def _arguments_field(name: str, profile: LoadedProfile) -> str:
    for index, config in enumerate(profile.spec.plugin_config):
        if config.name == name:
            return f"spec.pluginConfig[{index}].args"
    return "spec.plugins"
