"""From SchedulerProfile objects seen in the cluster to served profiles, while the operator runs.

An object came (`ProfileLoader.on_object`, called by event handlers): it is checked. Who must be
judged anew? `ProfileDependencies` knows. Who serves? The versions of those objects are chosen, get
their frameworks (`ProfileFrameworks`) and are written into the World's `Profiles`, which the queue
and decisions read; pods that wait follow (`ProfileMoves`). `ProfileStatusWriter` and
`RevisionHistory` report the verdicts, which stand in the entries. Invariant: a schedulerName is
served by the newest version that could be accepted of the profile that wins it; a bad edit changes
nothing but the verdict, and no edit changes anything in the middle of a scheduling cycle
(`unchanged`). If a cycle is under way, or many objects wait, an object is judged later, by what it
says then: edits that follow each other quickly cost one verdict. Pods that are being bound keep the
version with which their attempt began.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from itertools import islice
from typing import Final

from stellwerk.framework.handle import RandomNumbers, Services
from stellwerk.metrics import Metrics
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY, too_many_defaults
from stellwerk.plugins.registry import add_installed, installed_points, known_plugins
from stellwerk.profiles.dependencies import NO_CLAIMS, ProfileDependencies, ProfileGroup
from stellwerk.profiles.entry import (
    INVALID,
    NOT_ALLOWED,
    NOTHING_TO_SHADOW,
    ProfileEntry,
    Refusal,
)
from stellwerk.profiles.frameworks import ProfileFrameworks
from stellwerk.profiles.moves import PodsWithoutProfile, ProfileMoves
from stellwerk.profiles.permission import SchedulingPermission
from stellwerk.profiles.shadows import Shadows
from stellwerk.profiles.spec.plugin_description import PluginDescription
from stellwerk.profiles.spec.profile import (
    LoadedProfile,
    Rejected,
    arbitrate,
    load_profile,
    operator_of,
)
from stellwerk.scheduler.extenders.pool import ExtenderPool
from stellwerk.world.profiles import MAX_NAMES_TO_SUGGEST
from stellwerk.world.world import World
from stellwerk_kube.compatibility import Compatibility
from stellwerk_kube.errors import DestinationError, ProfileError, UnknownPluginError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion

logger = logging.getLogger(__name__)

MAX_JUDGED_AT_ONCE: Final = 64
"""Groups that are judged before an event handler returns, and objects in one of these groups. More
groups, and larger ones, are judged beside other work. To judge an object takes about 4 µs."""
MAX_FRAMEWORKS_AT_ONCE: Final = 8
"""Frameworks that are made before an event handler returns; one takes a millisecond."""
PAUSE_SECONDS_PER_OBJECT: Final = 20e-6
"""Pause for other work after an object was judged beside it. To judge one takes a fifth of that."""
PAUSE_SECONDS_PER_FRAMEWORK: Final = 4e-3
"""Pause for other work after a framework was made beside it, four times as long as that takes."""
CYCLE_CHECK_SECONDS: Final = 1e-3
"""Pause after which it is checked again whether the scheduling cycle under way has ended."""
MAX_NAMED_PROFILES: Final = 5
"""Profiles that `unready` names; the sentence stands in `/readyz` and has to stay short."""


class ProfileLoader:
    """Every SchedulerProfile object, and a framework for each version that serves."""

    def __init__(
        self,
        world: World,
        services: Services,
        known_plugins: Mapping[str, PluginDescription],
        extenders: ExtenderPool,
        without_profile: PodsWithoutProfile,
        seeded: Callable[[int], RandomNumbers],
        metrics: Metrics,
        max_complexity: int = DEFAULT_MAX_POD_COMPLEXITY,
    ) -> None:
        """Prepare to serve.

        Args:
            world: where profiles are served.
            services: what plugins are offered.
            known_plugins: the plugins that profiles may name.
            extenders: makes and closes extenders.
            without_profile: gives pods up when their profile comes, takes them when it goes.
            seeded: makes the generator of a profile with a `tieBreakSeed`.
            metrics: counts the verdicts.
            max_complexity: the limit on what a profile adds to pods, the same as for pods.
        """
        self._world = world
        self._known = known_plugins
        self.extenders = extenders
        self.without_profile = without_profile
        self.moves = ProfileMoves(world, without_profile)
        self._metrics = metrics
        self._max_complexity = max_complexity
        self.operator_name = ""
        """The name of this operator, which serves profiles with it as their label; empty: profiles
        without the label."""
        self.permission = SchedulingPermission()
        """The facts about this process by which profiles that schedule are refused."""
        self.entries: dict[str, ProfileEntry] = {}
        """By object name."""
        self._dependencies = ProfileDependencies()
        self._frameworks = ProfileFrameworks(world, services, seeded, metrics)
        self.shadows = Shadows(world, services, seeded, metrics)
        self.on_judged: Callable[[Mapping[str, ProfileEntry | None]], None] = lambda _: None
        """Called with the objects that were judged, by name; None: the object is gone."""
        self._unreported: set[str] = set()
        """The names of objects that are new, or were judged, since `take_unreported`."""
        self._in_cycle = False
        self.emptied = asyncio.Event()
        """Set when the cluster has no object; `keep_profile` waits for it."""
        self.in_memory = ""
        """The name of the default profile while it serves without an object; empty: it does not."""
        self._judging: asyncio.Task[None] | None = None
        """Judges what is too much to be judged before an event handler returns."""

    # --- an object came -------------------------------------------------------------------------

    def parse(self, obj: JsonObject) -> LoadedProfile | ProfileError:
        """The profile checked and resolved, or why it cannot be used; in any thread."""
        reason = too_many_defaults(obj.get("spec"), self._max_complexity)
        if reason:
            return ProfileError("spec.pluginConfig", reason)
        try:
            loaded = load_profile(obj, self._known, self._world.profiles.compatibility)
            self.extenders.refuse(loaded.spec.extenders)
        except ProfileError as error:
            return error.with_traceback(None)
        return loaded

    def on_object(
        self,
        obj: JsonObject,
        *,
        gone: bool,
        parse: Callable[[JsonObject], LoadedProfile | ProfileError] | None = None,
    ) -> None:
        """Take an object that was added, changed or deleted.

        `parse` may know already what `self.parse` gives.
        """
        name = obj["metadata"]["name"]
        if self.in_memory and not gone and operator_of(obj) == self.operator_name:
            # The profile in memory stood in for the objects of the cluster, of which this is one.
            if name != self.in_memory and self.entries.pop(self.in_memory, None):
                self._dependencies.change(self.in_memory, None)
            self.in_memory = ""
        if gone or operator_of(obj) != self.operator_name:
            if self.entries.pop(name, None) is None:
                return
            self._dependencies.change(name, None)
            logger.info("SchedulerProfile %s is gone", name)
            self._metrics.profile_reloads.labels("gone").inc()
            if not self.entries:
                self.emptied.set()
        else:
            entry = self.entries.get(name)
            if entry is not None and _same_object(entry.obj, obj):
                same_spec = entry.obj.get("spec") == obj.get("spec")
                entry.obj = obj
                self._unreported.add(name)
                if same_spec:
                    # Most events of a profile are echoes of its status.
                    return
            else:
                entry = self.entries[name] = ProfileEntry(obj, self._may_serve)
                self._restore(entry)
            self._load(entry, (parse or self.parse)(obj))
        self._judge_soon()

    def _load(self, entry: ProfileEntry, parsed: LoadedProfile | ProfileError) -> None:
        """Take the newest version of an object, or its flaw."""
        entry.is_judged = False
        entry.lacks_plugin = isinstance(parsed, UnknownPluginError)
        if isinstance(parsed, ProfileError):
            reason = NOT_ALLOWED if isinstance(parsed, DestinationError) else INVALID
            entry.newest, entry.flaw = None, Refusal(reason, str(parsed))
        else:
            entry.newest, entry.flaw = parsed, None
            if not (parsed.observes or parsed.spec.shadow_of):
                self.permission.wanted.set()
        self._dependencies.change(entry.name, entry.claims)

    def _restore(self, entry: ProfileEntry) -> None:
        """Find the last good version of an object that is new to this process in its status."""
        status = entry.obj.get("status") or {}
        spec = status.get("lastGoodSpec")
        if spec is None:
            return
        metadata = {
            **entry.obj["metadata"],
            "generation": status.get("lastGoodGeneration") or 0,
        }
        parsed = self.parse({"metadata": metadata, "spec": spec})
        if isinstance(parsed, ProfileError):
            logger.warning(
                "the last good version of SchedulerProfile %s cannot be used: %s",
                entry.name,
                parsed,
            )
        else:
            entry.good, entry.good_spec = parsed, spec

    def on_new_plugins(self, known_plugins: Mapping[str, PluginDescription]) -> None:
        """Load the profiles that lacked a plugin: these are all plugins that they may name now."""
        self._known = known_plugins
        for entry in self.entries.values():
            if entry.lacks_plugin:
                self._load(entry, self.parse(entry.obj))
        self._judge_soon()

    def follow(self, compatibility: Compatibility) -> None:
        """Decide as this release from here on wherever a profile says `compatibility: auto`."""
        if compatibility == self._world.profiles.compatibility:
            return
        self._world.profiles.compatibility = compatibility
        for entry in self.entries.values():
            # What a release refuses, another may accept.
            self._load(entry, self.parse(entry.obj))
        self._judge_soon()

    def on_permission(self) -> None:
        """Judge every profile again: this process may schedule, or may not, from here on."""
        for entry in self.entries.values():
            self._dependencies.change(entry.name, entry.claims)
        self._judge_soon()

    def _may_serve(self, version: LoadedProfile) -> bool:
        return self.permission.refusal(version) is None

    # --- what others ask ------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Return whether the cluster has no object, as far as is known."""
        return self.entries.keys() <= {self.in_memory}

    def unready(self) -> str | None:
        """Return why no pod is scheduled; None: a profile serves, or shadows one."""
        if self._world.profiles.served or any(
            entry.newest is not None and entry.newest.spec.shadow_of
            for entry in self.entries.values()
        ):
            return None
        if not self.entries:
            return "no profile serves: there is no SchedulerProfile"
        names = ", ".join(islice(sorted(self.entries), MAX_NAMED_PROFILES))
        return f"no profile serves: no version of {names} can be used"

    def lacks_plugins(self) -> bool:
        """Return whether a profile waits for a plugin to be installed."""
        return any(entry.lacks_plugin for entry in self.entries.values())

    def take_unreported(self) -> set[str]:
        """Return the names of the objects that are new or were judged since the last call."""
        names, self._unreported = self._unreported, set()
        return names

    # --- who must be judged anew ----------------------------------------------------------------

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Judge nothing inside the block, which is a scheduling cycle; judge after it.

        Only a cycle that waits, for extenders for example, can be overtaken by a change. Its
        plugins keep state of PreFilter, which those of another version may not understand.
        """
        self._in_cycle = True
        try:
            yield
        finally:
            self._in_cycle = False
            if self._dependencies.outdated:
                self._judge_some()

    def _judge_soon(self) -> None:
        """Judge what changed now, or after the cycle that is under way."""
        if not self._in_cycle:
            self._judge_some()

    def _judge_some(self) -> None:
        """Judge a few groups at once, and start a task for the rest."""
        outdated = self._dependencies.outdated
        judged = made = 0
        while outdated and judged < MAX_JUDGED_AT_ONCE and made < MAX_FRAMEWORKS_AT_ONCE:
            group = self._dependencies.next_group(MAX_JUDGED_AT_ONCE)
            if group is None:
                break
            judged += 1
            made += self._judge(group)
        if outdated and (self._judging is None or self._judging.done()):
            self._judging = asyncio.get_running_loop().create_task(
                self._judge_rest(), name="profiles", context=Context()
            )

    async def _judge_rest(self) -> None:
        """Judge the other groups one by one, in a fifth of the time."""
        while self._dependencies.outdated:
            group = None if self._in_cycle else self._dependencies.next_group()
            if group is None:
                await asyncio.sleep(CYCLE_CHECK_SECONDS)
            else:
                made = self._judge(group)
                objects = len(group.names)
                pause_seconds = PAUSE_SECONDS_PER_OBJECT * objects
                await asyncio.sleep(pause_seconds + PAUSE_SECONDS_PER_FRAMEWORK * made)

    # --- who serves -----------------------------------------------------------------------------

    def _judge(self, group: ProfileGroup) -> int:
        """Choose versions of a group and serve them; returns the number of frameworks that changed.

        The order matters: versions are chosen and get frameworks, which may refuse them; only then
        are they served in the World, then shadows find what they decide beside, and at last the
        queue follows.
        """
        competing = [self.entries[name] for name in group.names if name in self.entries]
        competing.sort(key=lambda entry: entry.age)
        entries = {entry.name: entry for entry in competing}
        for name in group.names:
            for shadow in self._dependencies.shadows_of(name):
                entries.setdefault(shadow, self.entries[shadow])
        refusals = {name: entry.refusal for name, entry in entries.items()}
        queue_sort = self._frameworks.queue_sort()
        changed: set[str] = set()
        winners = self._choose(entries)
        while not self._make_frameworks(winners, group.scheduler_names, changed):
            winners = self._choose(entries)
        for entry in entries.values():
            entry.serving, entry.is_judged = None, True
        for entry, profile in winners:
            entry.serving = profile
            if profile is entry.newest and profile is not entry.good:
                entry.good, entry.good_spec = profile, entry.obj["spec"]
                self._dependencies.change(entry.name, entry.claims)
        self._dependencies.judged(group)
        selected = self._publish(group.scheduler_names, winners, competing)
        self._take_up_shadows({*group.names, *entries}, entries)
        self._log_refusals(refusals)
        self._unreported.update(entries)
        self.on_judged({**dict.fromkeys(group.names), **entries})
        if changed:
            self.moves.profiles_changed(selected=selected)
            queue, now = self._world.queue, self._world.clock.monotonic()
            if queue_sort is not None and queue_sort != self._frameworks.queue_sort():
                queue.reorder()
            for scheduler_name in sorted(changed):
                queue.retry_profile(scheduler_name, now)
        return len(changed)

    def _choose(
        self, entries: Mapping[str, ProfileEntry]
    ) -> list[tuple[ProfileEntry, LoadedProfile]]:
        """Choose the version of each of these profiles that serves, if one does.

        Newest versions first; one that may not be served here, or loses to an older profile, gives
        way to the last good version of its own object, which may still get along with the others.
        """
        oldest = self.entries.get(self._dependencies.note_oldest())
        chosen = {
            name: version
            for name, entry in entries.items()
            if (version := entry.version) is not None and not version.spec.shadow_of
        }
        for entry in entries.values():
            entry.refusal = entry.flaw
            if entry.newest is not None:
                entry.refusal = self.permission.refusal(entry.newest)
        while True:
            gave_way = False
            winners = []
            verdicts = arbitrate(chosen.values(), None if oldest is None else oldest.version)
            for name, verdict in verdicts.items():
                entry, version = entries[name], chosen[name]
                if not isinstance(verdict, Rejected):
                    winners.append((entry, version))
                    continue
                entry.refusal = entry.refusal or Refusal(verdict.reason, verdict.message)
                good = entry.good
                if (
                    version is entry.newest
                    and good not in (None, version)
                    and self._may_serve(good)
                ):
                    chosen[name] = good
                    gave_way = True
            if not gave_way:
                return winners

    def _make_frameworks(
        self,
        winners: list[tuple[ProfileEntry, LoadedProfile]],
        scheduler_names: Iterable[str],
        changed: set[str],
    ) -> bool:
        """Make the frameworks of what serves, and note which changed.

        False: a plugin refused its arguments. Its version is a flawed one from here on.
        """
        for entry, profile in winners:
            try:
                if self._frameworks.make(profile):
                    changed.add(profile.scheduler_name)
            except Exception as failure:  # noqa: BLE001 a plugin may refuse its arguments in any way
                if profile is entry.newest:
                    entry.newest, entry.flaw = None, Refusal(INVALID, _in_words(failure))
                else:
                    entry.good = None
                self._dependencies.change(entry.name, entry.claims)
                return False
        taken = {profile.scheduler_name for _, profile in winners}
        for name in scheduler_names:
            if name not in taken and self._frameworks.take_away(name):
                changed.add(name)
        return True

    def _publish(
        self,
        scheduler_names: Iterable[str],
        winners: list[tuple[ProfileEntry, LoadedProfile]],
        entries: list[ProfileEntry],
    ) -> bool:
        """Write what serves, and why the rest does not, into the World.

        Returns whether the selectors of profiles are others.
        """
        wanted = {
            # No extender is asked about the pods of another scheduler.
            profile.scheduler_name: () if profile.observes else profile.spec.extenders
            for _, profile in winners
        }
        for name in scheduler_names:
            self.extenders.serve(name, wanted.get(name, ()))
        served = {
            profile.scheduler_name: self._frameworks.served(
                profile, self.extenders.of(profile.scheduler_name), entry.activity
            )
            for entry, profile in winners
        }
        refusals: dict[str, str] = {}
        for entry in entries:
            if entry.refusal is not None and entry.scheduler_name:
                message = f"SchedulerProfile {entry.name} is not accepted: {entry.refusal.message}"
                refusals.setdefault(entry.scheduler_name, message)
        return self._world.profiles.change(scheduler_names, served, refusals)

    def _take_up_shadows(self, names: Iterable[str], entries: Mapping[str, ProfileEntry]) -> None:
        """Let the shadows among these profiles decide beside those that serve.

        Objects of these names that are shadows no more stop to do so.
        """
        wanted: list[tuple[LoadedProfile, str]] = []
        for entry in entries.values():
            version = entry.version
            if version is None or not version.spec.shadow_of:
                continue
            target = self.entries.get(version.spec.shadow_of)
            active = None if target is None else target.serving
            if active is None or active.spec.shadow_of:
                entry.refusal = Refusal(NOTHING_TO_SHADOW, self._why_nothing(version))
                continue
            wanted.append((version, active.scheduler_name))
        failures = self.shadows.decide_beside(wanted, names)
        for version, _ in wanted:
            entry, failure = self.entries[version.name], failures.get(version.name)
            if failure is not None:
                entry.refusal = Refusal(INVALID, _in_words(failure))
                continue
            entry.serving = version
            if version is entry.newest:
                entry.good, entry.good_spec = version, entry.obj["spec"]

    def _why_nothing(self, shadow: LoadedProfile) -> str:
        """The reason why there is nothing that a profile could decide beside."""
        name, claims = shadow.spec.shadow_of, self._dependencies.claims
        if claims.get(name, NO_CLAIMS).shadow_of:
            itself = "it cannot shadow itself" if name == shadow.name else "it is a shadow itself"
            return f'spec.shadowOf: "{name}" schedules no pods: {itself}'
        others = (each for each, its in claims.items() if each != name and not its.shadow_of)
        near = suggestion(name, islice(others, MAX_NAMES_TO_SUGGEST))
        return f'spec.shadowOf: no SchedulerProfile "{name}" serves{near}'

    def _log_refusals(self, before: Mapping[str, Refusal | None]) -> None:
        for name, refusal in before.items():
            entry = self.entries[name]
            if entry.refusal == refusal:
                continue
            if entry.refusal is not None:
                logger.error("SchedulerProfile %s is not accepted: %s", name, entry.refusal.message)
                self._metrics.profile_reloads.labels("refused").inc()
            else:
                logger.info("SchedulerProfile %s is accepted again", name)


def _same_object(before: JsonObject, after: JsonObject) -> bool:
    """Return whether this is another version, and not another object with the same name."""
    return bool(before["metadata"].get("uid") == after["metadata"].get("uid"))


def _in_words(failure: Exception) -> str:
    if isinstance(failure, ProfileError):
        return str(failure)
    return f"spec.plugins: {type(failure).__name__}: {failure}"


PLUGIN_SEARCH_SECONDS: Final = 5.0
"""Pause between two searches for newly installed plugins. Each reads the metadata of all installed
packages, in a thread."""


@dataclass(frozen=True, slots=True)
class NewPlugins:
    """Finds plugins of packages that were installed while the operator runs.

    It looks every few seconds, and only for as long as a profile names a plugin that is not known.
    """

    loader: ProfileLoader
    installed: Callable[[], Sequence[EntryPoint]] = installed_points

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(PLUGIN_SEARCH_SECONDS)
            if self.loader.lacks_plugins():
                await self.look()

    async def look(self) -> None:
        """Take in what was installed since the last look, and load the profiles that lack it."""
        # Reading every package's metadata takes long enough to be done beside the loop.
        found = add_installed(await asyncio.to_thread(self.installed))
        if found:
            logger.info("newly installed plugins: %s", ", ".join(sorted(found)))
            self.loader.on_new_plugins(known_plugins())
