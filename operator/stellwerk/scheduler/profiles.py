"""The SchedulerProfiles that serve: from objects seen in the cluster to frameworks, while it runs.

Event handlers hand in objects, the scheduler asks for frameworks. Invariant: a framework serves as
long as the last good version of its object stands; a bad edit changes nothing but the verdict.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.errors import ProfileError
from stellwerk.framework.events import QueueingHint
from stellwerk.framework.handle import Services
from stellwerk.framework.interface import EnqueueExtensions, PreEnqueuePlugin, QueueSortPlugin
from stellwerk.framework.runtime import Framework
from stellwerk.framework.status import OK, Status
from stellwerk.models.plugin_description import ExtensionPoint, PluginDescription
from stellwerk.models.pod import PodInfo
from stellwerk.models.profile import Accepted, LoadedProfile, arbitrate, load_profile
from stellwerk.plugins.assembly import Assembly

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]


@dataclass(slots=True)
class ProfileEntry:
    """One object as last seen, and what became of it."""

    obj: JsonObject
    good: LoadedProfile | None = None
    """The last version that could be used."""
    reason: str = ""
    """Why the last version is not accepted, as a condition's reason; empty: it is."""
    message: str = ""


class Profiles:
    """See the module docstring."""

    def __init__(
        self,
        services: Services,
        known_plugins: Mapping[str, PluginDescription],
        on_change: Callable[[Sequence[str]], None],
    ) -> None:
        """`on_change` is told the scheduler names whose framework was made, remade or taken away."""
        self._services = services
        self._known = known_plugins
        self._on_change = on_change
        self.entries: dict[str, ProfileEntry] = {}
        self._assemblies: dict[str, Assembly] = {}
        """By schedulerName."""

    def on_object(self, obj: JsonObject, *, gone: bool) -> None:
        """An object was added, changed or deleted."""
        name = obj["metadata"]["name"]
        if gone:
            self.entries.pop(name, None)
        else:
            entry = self.entries.setdefault(name, ProfileEntry(obj))
            entry.obj = obj
            self._load(name, entry)
        self._serve()

    def framework(self, scheduler_name: str) -> Framework | None:
        """The framework that serves a schedulerName."""
        assembly = self._assemblies.get(scheduler_name)
        return assembly.framework if assembly else None

    def serves(self, scheduler_name: str) -> bool:
        """Whether pods with this schedulerName are ours."""
        return scheduler_name in self._assemblies

    def frameworks(self) -> Iterable[Framework]:
        """Every framework that serves."""
        return [assembly.framework for assembly in self._assemblies.values()]

    def serving(self) -> Mapping[str, LoadedProfile]:
        """The profiles that serve, by schedulerName."""
        return {name: assembly.profile for name, assembly in self._assemblies.items()}

    # --- what the queue asks --------------------------------------------------------------------

    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """The place of a pod in activeQ; every profile has the same QueueSort."""
        framework = self.framework(pod.spec.scheduler_name)
        plugins = framework.plugins[ExtensionPoint.QUEUE_SORT] if framework else ()
        for plugin in plugins:
            if isinstance(plugin, QueueSortPlugin):
                return plugin.sort_key(pod, queued_at_seconds)
        return (queued_at_seconds,)

    def pre_enqueue(self, pod: PodInfo, first_plugin: str) -> Status:
        """Run PreEnqueue; the plugin that gated the pod last time is asked first."""
        framework = self.framework(pod.spec.scheduler_name)
        if framework is None:
            return OK
        plugins = [
            plugin
            for plugin in framework.plugins[ExtensionPoint.PRE_ENQUEUE]
            if isinstance(plugin, PreEnqueuePlugin)
        ]
        for plugin in sorted(plugins, key=lambda plugin: plugin.name != first_plugin):
            status = plugin.pre_enqueue(pod)
            if not status.ok:
                return Status(status.code, status.reasons, plugin.name)
        return OK

    def hints(self, scheduler_name: str) -> Mapping[str, Sequence[QueueingHint]]:
        """What each plugin of a profile registered; one that is missing waits for every event."""
        framework = self.framework(scheduler_name)
        if framework is None:
            return {}
        plugins = {
            plugin.name: plugin for at_point in framework.plugins.values() for plugin in at_point
        }
        return {
            name: plugin.events_to_register()
            for name, plugin in plugins.items()
            if isinstance(plugin, EnqueueExtensions)
        }

    def backoff(self, scheduler_name: str) -> Backoff:
        """How long failed pods of a profile are left alone."""
        assembly = self._assemblies.get(scheduler_name)
        if assembly is None:
            return Backoff()
        spec = assembly.profile.spec
        return Backoff(spec.pod_initial_backoff_seconds, spec.pod_max_backoff_seconds)

    # --- what the cycle asks --------------------------------------------------------------------

    def extenders(self, pod: PodInfo) -> "Extenders | None":
        """The extenders that have a say about the pod."""
        return None

    def binding_extender(self, pod: PodInfo) -> "Extenders | None":
        """The extender that binds the pod, if one does."""
        return None

    # --- loading --------------------------------------------------------------------------------

    def _load(self, name: str, entry: ProfileEntry) -> None:
        try:
            entry.good = load_profile(entry.obj, self._known)
        except ProfileError as error:
            entry.reason, entry.message = "Invalid", str(error)
            logger.error("SchedulerProfile %s is not accepted: %s", name, error)
        else:
            entry.reason = entry.message = ""

    def _serve(self) -> None:
        """Arbitrate among the good versions and make, remake or take away frameworks."""
        good = {name: entry.good for name, entry in self.entries.items() if entry.good is not None}
        verdicts = arbitrate(good.values())
        winners: dict[str, LoadedProfile] = {}
        for name, profile in good.items():
            verdict = verdicts[name]
            if isinstance(verdict, Accepted):
                winners[profile.scheduler_name] = profile
            elif not self.entries[name].reason:
                self.entries[name].reason = verdict.reason
                self.entries[name].message = verdict.message
                logger.error("SchedulerProfile %s is not accepted: %s", name, verdict.message)
        changed = [name for name in self._assemblies if name not in winners]
        for name in changed:
            del self._assemblies[name]
        for scheduler_name, profile in winners.items():
            assembly = self._assemblies.get(scheduler_name)
            if assembly is None:
                self._assemblies[scheduler_name] = Assembly(profile, self._services)
            elif assembly.profile.spec == profile.spec:
                continue
            else:
                assembly.reload(profile)
            changed.append(scheduler_name)
        if changed:
            self._on_change(changed)
