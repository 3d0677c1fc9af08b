"""The parts of a World without a cluster: `stellwerk decide` loads one, forks are others.

Invariant: nothing that is decided with these parts reaches a cluster; plugins that try to write
raise OfflineError.
"""

from dataclasses import replace

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.queueing_policy import QueueingPolicy
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.clock import Clock
from stellwerk.framework.offline import offline_services
from stellwerk.framework.services import PodGroups
from stellwerk.framework.worker import Worker
from stellwerk.models.compatibility import AS_RECORDED, Compatibility
from stellwerk.models.profile import LoadedProfile
from stellwerk.plugins.assembly import Assembly
from stellwerk.world.profiles import RecordedRandom, ServedProfile


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
) -> ServedProfile:
    """A profile with plugin instances of its own, on this state; without its extenders.

    Args:
        loaded: the profile.
        cache: nodes and pods.
        objects: everything else.
        nominator: the nominations.
        random: breaks ties.
        clock: its time.
        pod_groups: None: there are none.
        worker: None begins no work.
        compatibility: the meaning of the profile's `compatibility: auto`.

    Raises:
        ProfileError: a plugin refuses its arguments.
    """
    services = offline_services(
        cache.snapshot, objects, nominator, random, clock.now, pod_groups, compatibility
    )
    if worker is not None:
        services = replace(services, worker=worker, now_seconds=clock.monotonic)
    return ServedProfile(loaded, Assembly(loaded, services).framework, random=random)


def offline_queue(profiles: QueueingPolicy, nominator: Nominator) -> SchedulingQueue:
    """An empty queue, from whose activeQ nothing is ever popped."""
    return SchedulingQueue(lambda _: None, profiles, nominator=nominator)
