"""From SchedulerProfile objects seen in the cluster to served profiles, while the operator runs.

Event handlers hand in objects, the status writer asks for verdicts; what serves is written into the
World's `Profiles`. `app` creates the default profile where none exists (`ensure_profile`), makes it
again when the last one goes (`keep_profile`), and runs NewPlugins beside the scheduler.
Invariant: a schedulerName is served by the newest version that
could be accepted of the profile that wins it; a bad edit changes nothing but the verdict, and no
edit changes anything in the middle of a scheduling cycle.
"""

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from itertools import islice
from math import inf
from typing import Final

from pydantic import BaseModel

from stellwerk.framework.handle import RandomNumbers, Services
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.metrics import Metrics
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY, too_many_defaults
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import add_installed, installed_points, known_plugins
from stellwerk.profiles.moves import PodsWithoutProfile, ProfileMoves
from stellwerk.profiles.shadows import Shadows
from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginDescription
from stellwerk.profiles.spec.profile import (
    API_VERSION,
    KIND,
    PLURAL,
    LoadedProfile,
    Rejected,
    arbitrate,
    first_profile,
    load_profile,
    operator_of,
    queue_order,
)
from stellwerk.scheduler.extenders.pool import ExtenderPool
from stellwerk.world.extenders import Extenders
from stellwerk.world.profile_selectors import Age
from stellwerk.world.profiles import MOST_COMPARED, ProfileActivity, RecordedRandom, ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.compatibility import Compatibility
from stellwerk_kube.errors import (
    Conflict,
    DestinationError,
    Forbidden,
    ProfileError,
    SchedulerError,
    UnknownPluginError,
)
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion

logger = logging.getLogger(__name__)


_AT_ONCE: Final = 64
"""So many objects are compared with each other as soon as one of them has changed."""
_MADE_AT_ONCE: Final = 8
"""So many frameworks are made at once; one takes a millisecond."""
_PAUSE_PER_OBJECT: Final = 20e-6
"""The time for others after an object was compared, which takes a fifth of that."""
_PAUSE_PER_FRAMEWORK: Final = 4e-3
"""After a framework was made."""
_IN_CYCLE: Final = 1e-3
"""The time until a cycle is looked at again."""
INVALID: Final = "Invalid"
NOT_ALLOWED: Final = "ExtenderNotAllowed"
NOTHING_TO_SHADOW: Final = "NothingToShadow"
MOST_NAMED: Final = 5
"""Profiles that a probe names when none of them can be used."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why the newest version of a profile is not accepted."""

    reason: str
    """For the condition: Invalid, ExtenderNotAllowed, SchedulerNameTaken, QueueSortDiffers and so
    on."""
    message: str


@dataclass(slots=True)
class ProfileEntry:
    """One object as last seen, and what became of it."""

    obj: JsonObject
    newest: LoadedProfile | None = None
    """The newest version, if it is valid in itself."""
    flaw: Refusal | None = None
    """The reason why the newest version is not valid."""
    lacks_plugin: bool = False
    """Whether the flaw is a plugin that is not installed."""
    good: LoadedProfile | None = None
    """The last version that was accepted."""
    good_spec: JsonObject | None = None
    """Its spec, as the user wrote it."""
    serving: LoadedProfile | None = None
    """The version that schedules pods now."""
    refusal: Refusal | None = None
    """The flaw, or the conflict with another profile; worked out anew when any profile changes."""
    activity: ProfileActivity = field(default_factory=ProfileActivity)

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.obj["metadata"]["name"])

    @property
    def age(self) -> Age:
        """The place of the object among others: the oldest comes first."""
        metadata = self.obj["metadata"]
        return str(metadata.get("creationTimestamp") or ""), self.name

    @property
    def generation(self) -> int:
        """The generation that was looked at."""
        return int(self.obj["metadata"].get("generation") or 0)


@dataclass(frozen=True, slots=True)
class _Claims:
    """What verdicts on other profiles may depend on."""

    scheduler_names: frozenset[str]
    """Of its newest version, of the last good one, and as it is written."""
    age: Age | None
    """None: no version may schedule pods."""
    shadow_of: str


_NO_CLAIMS: Final = _Claims(frozenset(), None, "")


@dataclass(frozen=True, slots=True)
class _Together:
    """Objects that claim the same schedulerNames, directly or by way of others."""

    names: Collection[str]
    """Of the objects, of which some may be gone."""
    scheduler_names: Collection[str]


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
            max_complexity: of what a profile adds to pods, as of pods themselves.
        """
        self._world = world
        self._services = services
        self._known = known_plugins
        self.extenders = extenders
        self.without_profile = without_profile
        self.moves = ProfileMoves(world, without_profile)
        self._seeded = seeded
        self._metrics = metrics
        self._max_complexity = max_complexity
        self.operator_name = ""
        """Profiles with it as their label count; empty: those without the label."""
        self.entries: dict[str, ProfileEntry] = {}
        """By object name."""
        self._assemblies: dict[str, Assembly] = {}
        """By schedulerName."""
        self._random: dict[str, RecordedRandom] = {}
        """The generators of assemblies with a seed, by schedulerName."""
        self.shadows = Shadows(world, services, seeded, metrics)
        self.on_served: Callable[[Mapping[str, ProfileEntry | None]], None] = lambda _: None
        """Is called with the objects whose verdicts are new, by name; None: one is gone."""
        self.unsaid: set[str] = set()
        """The names of those that are new since their statuses were looked at."""
        self._in_cycle = False
        self._claims: dict[str, _Claims] = {}
        """By object name."""
        self._naming: dict[str, dict[str, None]] = {}
        """The names of the objects that claim a schedulerName, by that."""
        self._beside: dict[str, dict[str, None]] = {}
        """The names of the shadows of an object, by its name."""
        self._by_age: list[Age] = []
        """The objects of which a version may schedule pods, the oldest first."""
        self._oldest: tuple[str, object] = ("", None)
        """(name, QueueSort) of the oldest of them as of the last look."""
        self._dirty: dict[str, set[str]] = {}
        """The names of objects whose verdicts are to be worked out, with schedulerNames that they
        have claimed before."""
        self.emptied = asyncio.Event()
        """Set when the cluster has no object; `keep_profile` waits for it."""
        self.in_memory = ""
        """The name of the default profile while it serves without an object; empty: it does not."""
        self._rest: asyncio.Task[None] | None = None
        """Works out those of them that are too many to be worked out at once."""

    # --- what event handlers tell ---------------------------------------------------------------

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
        """An object was added, changed or deleted; `parse` may know what `self.parse` gives."""
        name = obj["metadata"]["name"]
        if self.in_memory and not gone and operator_of(obj) == self.operator_name:
            # It stood in for the objects of the cluster, of which this is one.
            if name != self.in_memory and self.entries.pop(self.in_memory, None):
                self._note(self.in_memory)
            self.in_memory = ""
        if gone or operator_of(obj) != self.operator_name:
            if self.entries.pop(name, None) is None:
                return
            self._note(name)
            logger.info("SchedulerProfile %s is gone", name)
            self._metrics.profile_reloads.labels("gone").inc()
            if not self.entries:
                self.emptied.set()
        else:
            entry = self.entries.get(name)
            if entry is not None and _same_object(entry.obj, obj):
                same_spec = entry.obj.get("spec") == obj.get("spec")
                entry.obj = obj
                self.unsaid.add(name)
                if same_spec:
                    # Most events of a profile are echoes of its status.
                    return
            else:
                entry = self.entries[name] = ProfileEntry(obj)
                self._restore(entry)
            self._load(entry, (parse or self.parse)(obj))
        self._serve_soon()

    def is_empty(self) -> bool:
        """Whether the cluster has no object, as far as is known."""
        return self.entries.keys() <= {self.in_memory}

    def unready(self) -> str | None:
        """The reason for which no pod is scheduled; None: a profile serves, or shadows one."""
        if self._world.profiles.served or any(
            entry.newest is not None and entry.newest.spec.shadow_of
            for entry in self.entries.values()
        ):
            return None
        if not self.entries:
            return "no profile serves: there is no SchedulerProfile"
        names = ", ".join(islice(sorted(self.entries), MOST_NAMED))
        return f"no profile serves: no version of {names} can be used"

    def lacks_plugins(self) -> bool:
        """Whether a profile waits for a plugin to be installed."""
        return any(entry.lacks_plugin for entry in self.entries.values())

    def on_new_plugins(self, known_plugins: Mapping[str, PluginDescription]) -> None:
        """Plugins have joined those that profiles may name; here are all of them."""
        self._known = known_plugins
        for entry in self.entries.values():
            if entry.lacks_plugin:
                self._load(entry, self.parse(entry.obj))
        self._serve_soon()

    def follow(self, compatibility: Compatibility) -> None:
        """Decide as this release from here on wherever a profile says `compatibility: auto`."""
        if compatibility == self._world.profiles.compatibility:
            return
        self._world.profiles.compatibility = compatibility
        for entry in self.entries.values():
            # What a release refuses, another may accept.
            self._load(entry, self.parse(entry.obj))
        self._serve_soon()

    def _serve_soon(self) -> None:
        """Serve what changed now, or after the cycle that is under way."""
        if not self._in_cycle:
            self._serve()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """For the time of a scheduling cycle: changes that come meanwhile count from the next on.

        Only a cycle that waits for extenders can be overtaken. Its plugins keep state of PreFilter,
        which those of another version may not understand.
        """
        self._in_cycle = True
        try:
            yield
        finally:
            self._in_cycle = False
            if self._dirty:
                self._serve()

    # --- loading one object ---------------------------------------------------------------------

    def _load(self, entry: ProfileEntry, parsed: LoadedProfile | ProfileError) -> None:
        entry.lacks_plugin = isinstance(parsed, UnknownPluginError)
        if isinstance(parsed, ProfileError):
            reason = NOT_ALLOWED if isinstance(parsed, DestinationError) else INVALID
            entry.newest, entry.flaw = None, Refusal(reason, str(parsed))
        else:
            entry.newest, entry.flaw = parsed, None
        self._note(entry.name)

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

    # --- serving all of them --------------------------------------------------------------------

    def _serve(self) -> None:
        """Work out verdicts that are to be new: a few at once, the rest beside other work."""
        looked = made = 0
        while self._dirty and looked < _AT_ONCE and made < _MADE_AT_ONCE:
            together = self._together(_AT_ONCE)
            if together is None:
                break
            looked += 1
            made += self._settle(together)
        if self._dirty and (self._rest is None or self._rest.done()):
            self._rest = asyncio.get_running_loop().create_task(
                self._serve_rest(), name="profiles", context=Context()
            )

    async def _serve_rest(self) -> None:
        """Work out the others one by one, in a fifth of the time."""
        while self._dirty:
            together = None if self._in_cycle else self._together()
            if together is None:
                await asyncio.sleep(_IN_CYCLE)
            else:
                made = self._settle(together)
                objects = len(together.names)
                await asyncio.sleep(_PAUSE_PER_OBJECT * objects + _PAUSE_PER_FRAMEWORK * made)

    # --- which verdicts depend on which ---------------------------------------------------------

    def _note(self, name: str) -> None:
        """Versions of an object have come or gone: note its claims; its verdict is to be new."""
        before, entry = self._claims.pop(name, _NO_CLAIMS), self.entries.get(name)
        after = _NO_CLAIMS if entry is None else _claims(entry)
        if entry is not None:
            self._claims[name] = after
        if after != before:
            for scheduler_name in before.scheduler_names - after.scheduler_names:
                _drop(self._naming, scheduler_name, name)
            for scheduler_name in after.scheduler_names - before.scheduler_names:
                self._naming.setdefault(scheduler_name, {})[name] = None
            if before.shadow_of:
                _drop(self._beside, before.shadow_of, name)
            if after.shadow_of:
                self._beside.setdefault(after.shadow_of, {})[name] = None
            if before.age is not None:
                del self._by_age[bisect_left(self._by_age, before.age)]
            if after.age is not None:
                insort(self._by_age, after.age)
        self._dirty.setdefault(name, set()).update(before.scheduler_names)

    def _look_at_oldest(self) -> LoadedProfile | None:
        """The oldest version, beside which no other QueueSort is accepted.

        With another one the verdicts on all are to be worked out.
        """
        oldest = None
        if self._by_age:
            entry = self.entries[self._by_age[0][1]]
            oldest = entry.newest or entry.good
        now = ("", None) if oldest is None else (oldest.name, queue_order(oldest))
        if now != self._oldest:
            differing = now[1] != self._oldest[1]
            self._oldest = now
            for name, entry in self.entries.items():
                if differing or (entry.refusal and entry.refusal.reason == "QueueSortDiffers"):
                    self._dirty.setdefault(name, set())
        return oldest

    def _together(self, most: float = inf) -> _Together | None:
        """The first object to be looked at, with those on which its verdict depends.

        None: these are more than `most`, or there is none.
        """
        names, scheduler_names = dict[str, None](), dict[str, None]()
        found = [next(iter(self._dirty))]
        while found:
            name = found.pop()
            if name in names:
                continue
            names[name] = None
            if len(names) > most:
                return None
            claimed = self._claims.get(name, _NO_CLAIMS).scheduler_names
            for scheduler_name in (*claimed, *self._dirty.get(name, ())):
                if scheduler_name not in scheduler_names:
                    scheduler_names[scheduler_name] = None
                    found += self._naming.get(scheduler_name, ())
        return _Together(names, scheduler_names)

    # --- serving what belongs together ----------------------------------------------------------

    def _settle(self, together: _Together) -> int:
        """Choose versions, and make, remake or take away frameworks; returns of how many."""
        names, scheduler_names = together.names, together.scheduler_names
        here = [self.entries[name] for name in names if name in self.entries]
        here.sort(key=lambda entry: entry.age)
        entries = {entry.name: entry for entry in here}
        for name in names:
            entries |= {
                shadow: self.entries[shadow]
                for shadow in self._beside.get(name, ())
                if shadow not in entries
            }
        refusals = {name: entry.refusal for name, entry in entries.items()}
        order = self._queue_order()
        changed: set[str] = set()
        winners = self._choose(entries)
        while not self._assemble(winners, scheduler_names, changed):
            winners = self._choose(entries)
        for entry in entries.values():
            entry.serving = None
        for entry, profile in winners:
            entry.serving = profile
            if profile is entry.newest and profile is not entry.good:
                entry.good, entry.good_spec = profile, entry.obj["spec"]
                self._note(entry.name)
        for name in names:
            self._dirty.pop(name, None)
        selected = self._publish(scheduler_names, winners, here)
        self._take_up_shadows({*names, *entries}, entries)
        self._log_refusals(refusals)
        self.unsaid.update(entries)
        self.on_served({**dict.fromkeys(names), **entries})
        if changed:
            reordered = order is not None and order != self._queue_order()
            self._requeue(sorted(changed), reordered=reordered, selected=selected)
        return len(changed)

    def _publish(
        self,
        scheduler_names: Iterable[str],
        winners: list[tuple[ProfileEntry, LoadedProfile]],
        entries: list[ProfileEntry],
    ) -> bool:
        """Write what serves, and why the rest does not, into the World.

        Returns whether the selectors of profiles are others.
        """
        wanted = {profile.scheduler_name: profile.spec.extenders for _, profile in winners}
        for name in scheduler_names:
            self.extenders.serve(name, wanted.get(name, ()))
        served = {
            profile.scheduler_name: self._served(
                entry, profile, self.extenders.of(profile.scheduler_name)
            )
            for entry, profile in winners
        }
        refusals: dict[str, str] = {}
        for entry in entries:
            if entry.refusal is not None and _scheduler_name(entry):
                message = f"SchedulerProfile {entry.name} is not accepted: {entry.refusal.message}"
                refusals.setdefault(_scheduler_name(entry), message)
        return self._world.profiles.change(scheduler_names, served, refusals)

    def _served(
        self, entry: ProfileEntry, profile: LoadedProfile, extenders: Extenders | None
    ) -> ServedProfile:
        """The version as it is served; the same as before where all parts are, as of most it is."""
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
            and before.activity is entry.activity
        ):
            return before
        return ServedProfile(
            profile, framework, random=random, extenders=extenders, activity=entry.activity
        )

    def _take_up_shadows(self, names: Iterable[str], entries: Mapping[str, ProfileEntry]) -> None:
        """Let profiles with shadowOf decide beside those that serve; of no others of the names."""
        wanted: list[tuple[LoadedProfile, str]] = []
        for entry in entries.values():
            version = entry.newest or entry.good
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
        name = shadow.spec.shadow_of
        if self._claims.get(name, _NO_CLAIMS).shadow_of:
            itself = "it cannot shadow itself" if name == shadow.name else "it is a shadow itself"
            return f'spec.shadowOf: "{name}" schedules no pods: {itself}'
        others = (each for each, its in self._claims.items() if each != name and not its.shadow_of)
        near = suggestion(name, islice(others, MOST_COMPARED))
        return f'spec.shadowOf: no SchedulerProfile "{name}" serves{near}'

    def _requeue(self, changed: list[str], *, reordered: bool, selected: bool) -> None:
        """Let the queue follow profiles whose framework was made, remade or taken away."""
        queue, now = self._world.queue, self._world.clock.monotonic()
        self.moves.profiles_changed(selected=selected)
        if reordered:
            queue.reorder()
        for name in changed:
            queue.retry_profile(name, now)

    def _choose(
        self, entries: Mapping[str, ProfileEntry]
    ) -> list[tuple[ProfileEntry, LoadedProfile]]:
        """The version of each of these profiles that serves, where one does.

        Newest versions first; one that loses to an older profile gives way to the last good version
        of its own object, which may still get along with the others.
        """
        oldest = self._look_at_oldest()
        chosen = {
            name: version
            for name, entry in entries.items()
            if (version := entry.newest or entry.good) is not None and not version.spec.shadow_of
        }
        for entry in entries.values():
            entry.refusal = entry.flaw
        while True:
            gave_way = False
            winners = []
            for name, verdict in arbitrate(chosen.values(), oldest).items():
                entry, version = entries[name], chosen[name]
                if not isinstance(verdict, Rejected):
                    winners.append((entry, version))
                    continue
                entry.refusal = entry.refusal or Refusal(verdict.reason, verdict.message)
                if version is entry.newest and entry.good not in (None, version):
                    chosen[name] = entry.good
                    gave_way = True
            if not gave_way:
                return winners

    def _assemble(
        self,
        winners: list[tuple[ProfileEntry, LoadedProfile]],
        names: Iterable[str],
        changed: set[str],
    ) -> bool:
        """Make what is served of these names, noting what changed; False: a version is unfit."""
        for entry, profile in winners:
            try:
                if self._take_up(profile):
                    changed.add(profile.scheduler_name)
            except Exception as failure:  # noqa: BLE001 a plugin may refuse its arguments in any way
                if profile is entry.newest:
                    entry.newest, entry.flaw = None, Refusal(INVALID, _in_words(failure))
                else:
                    entry.good = None
                self._note(entry.name)
                return False
        taken = {profile.scheduler_name for _, profile in winners}
        for name in names:
            if name not in taken and name in self._assemblies:
                del self._assemblies[name]
                self._random.pop(name, None)
                changed.add(name)
        return True

    def _take_up(self, profile: LoadedProfile) -> bool:
        """Serve a version; False if what serves already is the same."""
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
        if assembly is not None and assembly.profile.spec.tie_break_seed == seed:
            assembly.reload(profile, auto)
        else:
            services = replace(self._services, compatibility=auto)
            self._random.pop(profile.scheduler_name, None)
            if seed is not None:
                random = RecordedRandom(self._seeded(seed))
                services = replace(services, random=random)
                self._random[profile.scheduler_name] = random
            self._assemblies[profile.scheduler_name] = Assembly(profile, services)
        logger.info("SchedulerProfile %s serves %s", profile.name, profile.scheduler_name)
        self._metrics.profile_reloads.labels("served").inc()
        return True

    def _queue_order(self) -> tuple[str, BaseModel | None] | None:
        """The QueueSort plugin of all profiles with its arguments; None: no profile serves."""
        for assembly in self._assemblies.values():
            (name,) = assembly.profile.plugins.at(ExtensionPoint.QUEUE_SORT)
            return name, assembly.profile.args.get(name)
        return None

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


def _claims(entry: ProfileEntry) -> _Claims:
    version = entry.newest or entry.good
    versions = [each for each in (entry.newest, entry.good) if each is not None]
    names = {each.scheduler_name for each in versions} | {_scheduler_name(entry)} - {""}
    shadow_of = "" if version is None else version.spec.shadow_of
    age = None if version is None or shadow_of else entry.age
    return _Claims(frozenset(names), age, shadow_of)


def _drop(names: dict[str, dict[str, None]], key: str, name: str) -> None:
    """Take a name away from those that are kept by a key."""
    kept = names[key]
    del kept[name]
    if not kept:
        del names[key]


def _same_object(before: JsonObject, after: JsonObject) -> bool:
    """Whether this is another version, and not another object with the same name."""
    return bool(before["metadata"].get("uid") == after["metadata"].get("uid"))


def _scheduler_name(entry: ProfileEntry) -> str:
    """The schedulerName as it is written; empty: there is none."""
    spec = entry.obj.get("spec")
    name = spec.get("schedulerName") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""


def _in_words(failure: Exception) -> str:
    if isinstance(failure, ProfileError):
        return str(failure)
    return f"spec.plugins: {type(failure).__name__}: {failure}"


_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"


EMPTY_SECONDS: Final = 1.0
"""Seconds without any profile before the default one is made again. A profile that is replaced by
force is deleted and created within less."""
MAX_RETRY_SECONDS: Final = 5.0
"""Longest pause between two attempts to make the default profile. Each costs a request while the
definition is missing, and a definition that comes back is noticed within this time."""


async def ensure_profile(
    loader: ProfileLoader, client: ClusterClient, handlers: WatchHandlers
) -> None:
    """Create the default profile if there is none; from memory if it cannot be created.

    So a fresh installation schedules; an existing profile, however invalid, is never replaced.
    """
    if loader.entries:
        return
    manifest = first_profile(loader.operator_name)
    try:
        created = await client.create(_PATH, manifest)
    except Conflict:
        return
    except SchedulerError as failure:
        _serve_from_memory(loader, handlers, failure)
        if not isinstance(failure, Forbidden):
            loader.emptied.set()  # for `keep_profile`
    else:
        handlers.on_object(KIND, "ADDED", created)


async def keep_profile(
    loader: ProfileLoader, client: ClusterClient, handlers: WatchHandlers
) -> None:
    """Make the default profile whenever the cluster has none, until cancelled.

    The definition of SchedulerProfiles may be gone with the last one. Then no profile can be
    created, and none is served from memory, because those that were there are expected back. The
    log, `/readyz` and `stellwerk_served_profiles` say meanwhile that no profile serves.
    """
    while True:
        await loader.emptied.wait()
        loader.emptied.clear()
        await asyncio.sleep(EMPTY_SECONDS)
        if not loader.entries:
            logger.warning(
                "no SchedulerProfile is left: no profile serves and no pod is scheduled until "
                "there is one; the default one is made as soon as the API server takes it"
            )
        pause_seconds = EMPTY_SECONDS
        while loader.is_empty():
            try:
                created = await client.create(_PATH, first_profile(loader.operator_name))
            except Conflict:
                break  # the watch will show it
            except Forbidden as failure:
                if not loader.entries:
                    _serve_from_memory(loader, handlers, failure)
                break
            except SchedulerError as failure:
                # The definition is missing or on its way out, or the API server is away.
                logger.debug("the default profile cannot be made yet: %s", failure)
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)
                continue
            if loader.is_empty():
                logger.info("the SchedulerProfile %s is made", created["metadata"]["name"])
                handlers.on_object(KIND, "ADDED", created)


def _serve_from_memory(
    loader: ProfileLoader, handlers: WatchHandlers, failure: SchedulerError
) -> None:
    manifest = first_profile(loader.operator_name)
    logger.warning(
        "no SchedulerProfile exists and none can be created; serving %s from memory: %s",
        manifest["spec"]["schedulerName"],
        failure,
    )
    handlers.on_object(KIND, "ADDED", manifest)
    loader.in_memory = manifest["metadata"]["name"]


LOOK_SECONDS: Final = 5.0


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
            await asyncio.sleep(LOOK_SECONDS)
            if self.loader.lacks_plugins():
                await self.look()

    async def look(self) -> None:
        """Take in what was installed since the last look, and load the profiles that lack it."""
        # Reading every package's metadata takes long enough to be done beside the loop.
        found = add_installed(await asyncio.to_thread(self.installed))
        if found:
            logger.info("newly installed plugins: %s", ", ".join(sorted(found)))
            self.loader.on_new_plugins(known_plugins())
