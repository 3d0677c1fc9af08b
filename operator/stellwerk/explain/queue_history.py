"""The number of pods in each queue over the last hour, and of those that had got a node by then.

The operator samples, its port serves the samples, the page draws them. Invariant: the history is as
large after a month as after an hour, and a sample looks at no pod.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from stellwerk.explain.queue_facts import at
from stellwerk.explain.steps import Steps
from stellwerk.models.answers.listings import QueueHistoryPage, QueueSample
from stellwerk.world.world import World

SAMPLE_SECONDS: Final = 5.0
KEPT: Final = 720
"""An hour of samples."""
_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """The queues at one moment."""

    at_seconds: float
    """Monotonic."""
    active: int
    backoff: int
    unschedulable: int
    gated: int
    scheduled: int
    """Pods that have got a node since the process started, over the profiles that serve."""


class QueueHistory:
    """The last samples, oldest first."""

    def __init__(self, world: World, kept: int = KEPT) -> None:
        self._world = world
        self._samples: deque[Sample] = deque(maxlen=kept)

    def sample(self) -> None:
        """Keep how the queues are now."""
        self._samples.append(self._now())

    def _now(self) -> Sample:
        world = self._world
        profiles = world.profiles.served.values()
        scheduled = sum(profile.activity.scheduled_pods for profile in profiles)
        counts = world.queue.pending()
        return Sample(world.clock.monotonic(), **counts, scheduled=scheduled)

    def page(self) -> Steps[QueueHistoryPage]:
        """The samples, and how the queues are at this moment."""
        yield
        items = []
        for number, each in enumerate([*self._samples, self._now()]):
            if number % _AT_ONCE == 0:
                yield
            items.append(
                QueueSample(
                    at=at(self._world.clock, each.at_seconds),
                    active=each.active,
                    backoff=each.backoff,
                    unschedulable=each.unschedulable,
                    gated=each.gated,
                    scheduled=each.scheduled,
                )
            )
        return QueueHistoryPage(every_seconds=SAMPLE_SECONDS, items=items)
