"""The waiting pods that no scheduler serves, as this operator knows them.

`app` runs `UnservedPods.run` beside the scheduler. The queue, the metrics and explanations read it.
Pods without a profile may belong to another scheduler: its lease and its events are read from the
API, its bindings are in the cache. Invariant: a round reads a bounded number of names and objects;
without the rights to read them, bindings alone tell schedulers apart.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stellwerk.framework.services import ClusterClient
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo
from stellwerk.models.unserved_pods import (
    MAX_EVENTS,
    MIN_UNSERVED_SECONDS,
    STATIC_POD_OWNER,
    events_path,
    given_up,
    leases_of_name_path,
    sign_of_scheduler,
)
from stellwerk.profiles.moves import PodsWithoutProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

ROUND_SECONDS: Final = 5.0
"""Pause between two rounds. A scrape or an answer shows a pod this much late at the most."""
EXAMINED_SECONDS: Final = 60.0
"""Time for which the sign of a name, or its absence, holds. Then it is looked for again."""
MAX_NAMES_PER_ROUND: Final = 5
"""Names whose leases and events are read in one round: two requests for each."""
MAX_NAMES: Final = 20
"""schedulerNames with a series of their own. The pods of further names count as `OTHER_NAMES`."""
OTHER_NAMES: Final = ""
"""The label value of all names beyond `MAX_NAMES`. No pod has an empty schedulerName."""
_MAX_COMPARED_NAMES: Final = 100
"""Names that are compared with the served ones in a round; one takes less than a millisecond."""
_PODS_AT_ONCE: Final = 2000
"""Pods that a round looks at before it yields to the event loop; this takes a millisecond."""


@dataclass(slots=True)
class _Name:
    """One schedulerName that pods wait for and no profile of this operator serves."""

    noticed_at_seconds: float
    """Monotonic."""
    noticed_at: datetime
    sign: str = ""
    """The sign of another scheduler; empty: there is none."""
    examined_at_seconds: float | None = None
    """Monotonic; None: never."""


class UnservedPods:
    """Tells the pods that no scheduler serves from those that another scheduler serves."""

    def __init__(
        self,
        world: World,
        without_profile: PodsWithoutProfile,
        client: ClusterClient,
        metrics: Metrics,
    ) -> None:
        self._world = world
        self._without_profile = without_profile
        self._client = client
        self._metrics = metrics
        self._names: dict[str, _Name] = {}
        self._near: dict[str, bool] = {}
        """True for names that may be misspellings of served ones, as of the last round."""

    def other_scheduler(self, pod: PodInfo) -> str:
        """Return the sign of another scheduler that serves the pod; empty: none is known."""
        known = self._names.get(pod.spec.scheduler_name)
        return "" if known is None else known.sign

    def is_unserved(self, pod: PodInfo) -> bool:
        """Return whether no scheduler serves a pod that has no profile here."""
        if pod.terminating or pod.spec.scheduling_gates:
            return False
        name, profiles = pod.spec.scheduler_name, self._world.profiles
        known = self._names.get(name)
        if known is not None and known.sign:
            return False
        if name in profiles.once_served or name in profiles.served or self._is_near(name):
            # This operator is meant, or was: the pod shows at once.
            return True
        if known is None or known.examined_at_seconds is None:
            return False
        # A scheduler that has just been installed gets the time to show itself.
        age_seconds = self._world.clock.monotonic() - known.noticed_at_seconds
        return age_seconds >= MIN_UNSERVED_SECONDS

    def _is_near(self, name: str) -> bool:
        if name not in self._near and len(self._near) < _MAX_COMPARED_NAMES:
            self._near[name] = bool(self._world.profiles.suggested(name))
        return self._near.get(name, False)

    # --- rounds ---------------------------------------------------------------------------------

    async def run(self, leading: asyncio.Event) -> None:
        """Look every few seconds while this replica leads, until cancelled."""
        await leading.wait()
        while True:
            try:
                await self.round()
            except Exception:
                logger.exception("cannot look for pods without a scheduler")
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Examine names that are new or were examined long ago, and count the unserved pods."""
        now, world = self._world.clock.monotonic(), self._world
        self._near.clear()
        pods = list(self._without_profile.pods.values())
        given_up_at: dict[str, datetime] = {}
        waited_for = dict[str, None]()
        for number, pod in enumerate(pods):
            if number % _PODS_AT_ONCE == _PODS_AT_ONCE - 1:
                await asyncio.sleep(0)
            name = pod.spec.scheduler_name
            waited_for[name] = None
            moment = given_up(pod.conditions)
            if moment is not None:
                given_up_at[name] = max(moment, given_up_at.get(name, moment))
        for name in self._names.keys() - waited_for.keys():
            del self._names[name]
        for name in waited_for:
            if name not in self._names and len(self._names) < MAX_NAMES:
                self._names[name] = _Name(now, world.clock.now())
        due = [
            (name, known)
            for name, known in self._names.items()
            if known.examined_at_seconds is None
            or now - known.examined_at_seconds >= EXAMINED_SECONDS
        ]
        if due:
            await self._examine(dict(due[:MAX_NAMES_PER_ROUND]), given_up_at)
        await self._count()

    async def _examine(self, names: dict[str, _Name], given_up_at: dict[str, datetime]) -> None:
        """Look for the three signs of a scheduler of each name."""
        world = self._world
        recent: dict[str, list[tuple[str, datetime]]] = {name: [] for name in names}
        for number, pod in enumerate(list(world.cache.pods())):
            if number % _PODS_AT_ONCE == _PODS_AT_ONCE - 1:
                await asyncio.sleep(0)
            found = recent.get(pod.spec.scheduler_name)
            is_static = pod.owner is not None and pod.owner[0] == STATIC_POD_OWNER
            if found is not None and pod.started_seconds is not None and not is_static:
                # The kubelet takes a pod up within a second of its binding.
                started = datetime.fromtimestamp(pod.started_seconds, world.clock.now().tzinfo)
                found.append((pod.key, started))
        for name, known in names.items():
            since = given_up_at.get(name)
            if name in world.profiles.once_served:
                # What this operator did under the name is no sign of another scheduler.
                since = max(known.noticed_at, since or known.noticed_at)
            leases = await self._read(leases_of_name_path(name))
            events = await self._read(events_path(name))
            known.sign = sign_of_scheduler(
                name,
                leases=leases,
                events=events,
                bindings=recent[name],
                now=world.clock.now(),
                since=since,
            )
            known.examined_at_seconds = world.clock.monotonic()

    async def _read(self, path: str) -> list[JsonObject]:
        """The first items of a list; none where it cannot be read."""
        try:
            page = await self._client.get(f"{path}&limit={MAX_EVENTS}")
        except NotFound:
            return []
        except SchedulerError as error:
            logger.debug("a sign of other schedulers cannot be read: %s", error)
            return []
        items = page.get("items")
        return list(items) if isinstance(items, list) else []

    async def _count(self) -> None:
        """Write the metrics: unserved pods by schedulerName, and those of names once served."""
        counts, gone = Counter[str](), 0
        once_served = self._world.profiles.once_served
        for number, pod in enumerate(list(self._without_profile.pods.values())):
            if number % _PODS_AT_ONCE == _PODS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if self.is_unserved(pod):
                name = pod.spec.scheduler_name
                counts[name if name in self._names else OTHER_NAMES] += 1
                gone += name in once_served or given_up(pod.conditions) is not None
        family = self._metrics.unserved_pods
        for (name,), _ in list(family.items()):
            if not counts[name]:
                family.remove(name)
        for name, count in counts.items():
            if count:
                family.labels(name).set(count)
        self._metrics.unserved_pods_once_served.labels().set(gone)
