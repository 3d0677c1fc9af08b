"""The World: everything that decisions read, as one object.

The operator has one and keeps it in step with the cluster; `stellwerk decide` builds a small one
from a case. Invariant: it holds state and no way to the cluster, so that a decision on it can be
thought through without anything happening.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.clock import Clock
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.models.pod import PodInfo
from stellwerk.world.profiles import Profiles, RecordedRandom


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

    def on_forgotten(self, assumed: PodInfo, *, except_itself: bool = False) -> None:
        """An assumption was undone: move the pods that this may help, perhaps not itself."""
        self.queue.move_all_to_active_or_backoff(
            ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, assumed, None),
            self.clock.monotonic(),
            except_uid=assumed.uid if except_itself else "",
        )

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to activeQ at once (`Activate`)."""
        self.queue.activate(pods, self.clock.monotonic())
