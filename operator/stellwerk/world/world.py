"""The World: everything that decisions read, as one object.

The operator has one and keeps it in step with the cluster; `stellwerk decide` builds a small one
from a case, `fork` copies one. Invariant: it holds state and no client, so a decision on a World
changes nothing in the cluster.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.queueing_policy import QueueingPolicy
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.interface import APICall
from stellwerk.framework.offline import offline_services
from stellwerk.framework.plugin_isolation import UNLIMITED, PluginGuard, Unaccounted
from stellwerk.framework.services import ClusterClient, NumberSources, PodGroups
from stellwerk.framework.watch_handlers import Lack
from stellwerk.framework.worker import Worker
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import GROUP_KINDS
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import LoadedProfile, load_profile
from stellwerk.snapshot.trial import Trial
from stellwerk.world.gangs.pod_groups import PodGroupStates
from stellwerk.world.profiles import Profiles, RecordedRandom, ServedProfile
from stellwerk_kube.clock import Clock
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.json_values import JsonObject

_RESOURCES: Final = {
    "Namespace": Resource.NAMESPACE,
    "PersistentVolume": Resource.PERSISTENT_VOLUME,
    "PersistentVolumeClaim": Resource.PERSISTENT_VOLUME_CLAIM,
    "StorageClass": Resource.STORAGE_CLASS,
    "CSINode": Resource.CSI_NODE,
    "CSIDriver": Resource.CSI_DRIVER,
    "CSIStorageCapacity": Resource.CSI_STORAGE_CAPACITY,
    "VolumeAttachment": Resource.VOLUME_ATTACHMENT,
    RESOURCE_CLAIM: Resource.RESOURCE_CLAIM,
    "ResourceSlice": Resource.RESOURCE_SLICE,
    "DeviceTaintRule": Resource.RESOURCE_SLICE,
    "DeviceClass": Resource.DEVICE_CLASS,
}
"""Kinds whose changes wake pods under a name of kube-scheduler."""
_SILENT: Final = frozenset(
    {
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "Service",
        "StatefulSet",
    }
)
"""Kinds whose changes end no rejection; those of plugins have events of their own name."""


def is_of_plugins(kind: str) -> bool:
    """Whether changes of a kind wake pods under its own name: only plugins know it."""
    return kind not in _RESOURCES and kind not in _SILENT


@dataclass(frozen=True, slots=True)
class World:
    """The state of one scheduler: nodes and pods, other objects, profiles, queue, time, chance."""

    cache: Cache
    """Nodes and the pods on them, with the snapshot that decisions are made on."""
    objects: IndexedObjectStore
    priority_classes: PriorityClasses
    nominator: Nominator
    queue: SchedulingQueue
    """Every unbound pod that a profile serves, also while it is being scheduled or bound."""
    profiles: Profiles
    clock: Clock
    random: RecordedRandom
    """Breaks ties for every profile without a seed of its own."""
    preempting: set[str] = field(default_factory=set)
    """Uids of preemptors that still have victims to be evicted; PreEnqueue gates them."""
    pod_groups: PodGroupStates = field(default_factory=PodGroupStates)
    """The groups of pods."""
    lacks: dict[str, Lack] = field(default_factory=dict)
    """Kinds whose objects cannot be seen, with the reason."""
    versions: dict[str, str] = field(default_factory=dict)
    """The group and version in use of kinds that releases serve in different ones."""

    def __post_init__(self) -> None:
        self.nominator.now = self.clock.monotonic

    def wake_after_forgetting(self, assumed: PodInfo, *, except_itself: bool = False) -> None:
        """An assumption was undone: move the pods that this may help, perhaps not itself."""
        self.queue.move_all_to_active_or_backoff(
            ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, assumed, None),
            self.clock.monotonic(),
            except_uid=assumed.uid if except_itself else "",
        )

    def wake_after_object(
        self, kind: str, before: JsonObject | None, after: JsonObject | None, now: float
    ) -> None:
        """An object that is neither pod nor node has come, changed or gone: move the pods it helps.

        None: it was not there before, or is not there any more.
        """
        if kind in _SILENT or before is after is None:
            return
        action = Action.UPDATE_OTHER
        if kind != "DeviceTaintRule":  # however one changed, it did so to slices
            action = Action.DELETE if after is None else Action.ADD if before is None else action
        change = ClusterChange(_RESOURCES.get(kind, kind), action, before, after)
        self.queue.move_all_to_active_or_backoff(change, now)

    def misses(self, kind: str) -> bool:
        """Whether pods name objects of a kind that cannot be seen."""
        if kind in GROUP_KINDS:
            return self.pod_groups.misses(GROUP_KINDS[kind])
        return (
            kind == RESOURCE_CLAIM
            and kind in self.lacks
            and any(each.pod.spec.resource_claims for each in self.queue.entries.values())
        )

    def trial(self) -> Trial:
        """Changes of many rows of the snapshot at once, undone on leaving: `with world.trial()`.

        Decisions within see them. Nothing may be awaited meanwhile, and nothing else be changed.
        """
        return self.cache.trial()

    def fork(self, numbers: RandomNumbers, clock: Clock | None = None) -> Self:
        """A World of its own with the same contents, to decide what would be if.

        Columns are copied, pods, nodes and specs are shared, plugin instances are made anew, when
        their profile is asked for, and have no cluster; neither side sees what the other changes.
        Its queue is empty and its profiles call no extenders.

        Args:
            numbers: breaks its ties, also those of profiles with a seed.
            clock: its time; None: the time of this World.
        """
        cache, objects, nominator = self.cache.fork(), self.objects.fork(), self.nominator.fork()
        random = RecordedRandom(numbers)
        pod_groups = self.pod_groups.fork(cache.assumed_pods)
        time = clock or self.clock

        def made(model: ServedProfile) -> ServedProfile:
            return offline_profile(
                model.loaded,
                cache,
                objects,
                nominator,
                random,
                time,
                pod_groups,
                compatibility=profiles.compatibility,
                guard=Unaccounted(model.framework.handle.guard),
            )

        profiles = self.profiles.fork(partial(objects.get, "Namespace", ""), made)
        return type(self)(
            cache=cache,
            objects=objects,
            priority_classes=self.priority_classes.fork(),
            nominator=nominator,
            queue=offline_queue(profiles, nominator),
            profiles=profiles,
            clock=time,
            random=random,
            preempting=self.preempting.copy(),
            pod_groups=pod_groups,
            lacks=self.lacks.copy(),
        )

    def forget_results(self) -> None:
        """Free what decisions have left for later ones: of a fork there are none after its last.

        Its parts refer to each other. They are few; with these results it would take the collector
        tens of milliseconds at once to find them.
        """
        for profile in self.profiles.made:
            profile.framework.forget_results()

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to activeQ at once (`Activate`)."""
        self.queue.activate(pods, self.clock.monotonic())


# --- parts of a World without a cluster: plugins that try to write raise OfflineError ------------


def offline_profile(  # noqa: PLR0913 - the parts of a World, and what is special
    loaded: LoadedProfile,
    cache: Cache,
    objects: IndexedObjectStore,
    nominator: Nominator,
    random: RecordedRandom,
    clock: Clock,
    pod_groups: PodGroups | None = None,
    *,
    worker: Worker | None = None,
    compatibility: Compatibility = AS_RECORDED,
    guard: PluginGuard = UNLIMITED,
    sources: NumberSources | None = None,
    client: ClusterClient | None = None,
    preempting: AbstractSet[str] | None = None,
    write_later: Callable[[APICall], None] | None = None,
) -> ServedProfile:
    """A profile with plugin instances of its own, on this state; without its extenders.

    `worker`: None begins no work; `compatibility`: the meaning of `compatibility: auto`; `guard`
    limits the time of plugins that do not come with Stellwerk; `sources`: None reads nothing;
    `client`: None: what plugins write is refused; `preempting`: None: no pod has victims that
    are still to be deleted;
    `write_later`: None: what plugins do not wait for is left undone.

    Raises:
        ProfileError: a plugin refuses its arguments.
    """
    services = offline_services(
        cache.snapshot, objects, nominator, random, clock.now, pod_groups, compatibility
    )
    if guard is not UNLIMITED:
        services = replace(services, guard=guard)
    if sources is not None:
        services = replace(services, sources=sources)
    if client is not None:
        services = replace(services, client=client)
    if write_later is not None:
        services = replace(services, write_later=write_later)
    if preempting is not None:
        services = replace(services, preempting=preempting)
    if worker is not None:
        services = replace(services, worker=worker, now_seconds=clock.monotonic)
    return ServedProfile(loaded, Assembly(loaded, services).framework, random=random)


def profile_on(
    world: World,
    loaded: LoadedProfile,
    *,
    guard: PluginGuard = UNLIMITED,
    sources: NumberSources | None = None,
) -> ServedProfile:
    """Make a profile with plugin instances of its own, on the parts of this World.

    `guard` and `sources` are as for `offline_profile`.

    Raises:
        ProfileError: a plugin refuses its arguments.
    """
    return offline_profile(
        loaded,
        world.cache,
        world.objects,
        world.nominator,
        world.random,
        world.clock,
        world.pod_groups,
        compatibility=world.profiles.compatibility,
        guard=guard,
        sources=sources,
    )


def supposed_profile(world: World, manifest: JsonObject) -> ServedProfile:
    """Make the profile that a manifest describes, of the plugins that are known, on this World.

    Raises:
        ProfileError: the manifest is no profile, or a plugin refuses its arguments.
    """
    auto, served = world.profiles.compatibility, world.profiles.served.values()
    guard = next((each.framework.handle.guard for each in served), UNLIMITED)
    return profile_on(world, load_profile(manifest, known_plugins(), auto), guard=guard)


def offline_queue(profiles: QueueingPolicy, nominator: Nominator) -> SchedulingQueue:
    """An empty queue, from whose activeQ nothing is ever popped."""
    return SchedulingQueue(lambda _: None, profiles, nominator=nominator)
