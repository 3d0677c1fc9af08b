"""Bindings of unknown outcome: the API is asked whether they took place.

Three things leave a binding open: its answer was lost (`BindingCycle` waits in `is_bound`), the
watch has not shown the pod bound in time (`BindingTasks.unconfirmed`), or an event shows a pod
without a node that counts on one (`BindingTasks.doubted`). `Scheduler` runs `BindingOutcomes.run`.
Invariant: until the API has said that a pod is not bound, or is gone, it counts on its node.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from stellwerk.client.paging import pages
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.world.world import World
from stellwerk_kube.errors import NotFound, SchedulerError, in_words
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

CONFIRMATION_SECONDS: Final = 10.0
"""Time in which the watch has to show a pod bound. After it the pod is read from the API."""
OVERDUE_CHECK_SECONDS: Final = 1.0
"""Pause between two searches for pods that the watch has not shown in time."""
MIN_POD_REREAD_SECONDS: Final = 0.2
"""Pause before the second read of a pod that could not be read. It doubles with each failure."""
MAX_POD_REREAD_SECONDS: Final = 10.0
"""Longest pause between two reads of a pod, so that an answer comes soon after an outage."""
MAX_POD_READ_SECONDS: Final = 10.0
"""Time limit of one read, so that a read that hangs holds up the others for seconds only."""
MAX_PARALLEL_READS: Final = 16
"""Pods of one namespace that are read one by one, at the same time. More are read as a list."""
PAGE_ITEMS: Final = 500
"""Pods on a page of a list, as in client-go's pager."""
READS_PER_PAGE: Final = 8
"""The number of reads of single pods that cost the API server about as much as one page."""

TakeBack = Callable[[PodInfo], None]
"""Undoes what counts of a pod that is not bound, and has it scheduled again:
`BindingCycle.take_back`."""


@dataclass(slots=True, eq=False)
class _Question:
    """A pod of which it is not known whether it is bound."""

    pod: PodInfo
    """The pod on the node on which it counts."""
    due_seconds: float
    """Monotonic time of the next read."""
    delay_seconds: float = MIN_POD_REREAD_SECONDS
    answers: list[asyncio.Future[bool]] = field(default_factory=list)
    """The futures that binding tasks wait for: is the pod bound to that node? Empty: none waits."""


class BindingOutcomes:
    """The open questions by uid of the pod, and the coroutine that reads the pods."""

    def __init__(self, world: World, bindings: BindingTasks, client: ClusterClient) -> None:
        self._world = world
        self._bindings = bindings
        self._client = client
        self._open: dict[str, _Question] = {}
        self._asked = asyncio.Event()

    def __contains__(self, uid: str) -> bool:
        """Whether a binding task waits for the outcome of its binding."""
        question = self._open.get(uid)
        return question is not None and bool(question.answers)

    async def is_bound(self, assumed: PodInfo) -> bool:
        """Wait until the API says whether it has the pod on the node that it is assumed on."""
        logger.warning(
            "%s may be bound to %s: reading it from the API", assumed.key, assumed.node_name
        )
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ask(assumed).answers.append(answer)
        self._asked.set()
        return await answer

    async def run(self, handlers: WatchHandlers, take_back: TakeBack) -> None:
        """Ask until cancelled.

        Args:
            handlers: take the pods as they were read.
            take_back: is called with a pod that is not bound, if no binding task waits for it.
        """
        while True:
            self._ask_about_overdue()
            now = self._world.clock.monotonic()
            due = [each for each in self._open.values() if each.due_seconds <= now]
            unknown = [each.pod for each in due if not self._answered_from_memory(each)]
            for uid, obj in (await self._read(unknown)).items():
                try:
                    self._take(uid, obj, handlers, take_back)
                except ValueError as malformed:
                    logger.error("cannot see whether a pod is bound: %s", malformed)  # noqa: TRY400 one line
            # What is still open is read again after a pause that doubles.
            now = self._world.clock.monotonic()
            for question in due:
                question.due_seconds = now + question.delay_seconds
                question.delay_seconds = min(2 * question.delay_seconds, MAX_POD_REREAD_SECONDS)
            await self._pause()

    # --- what is asked --------------------------------------------------------------------------

    def _ask(self, pod: PodInfo) -> _Question:
        question = self._open.get(pod.uid)
        if question is None:
            question = self._open[pod.uid] = _Question(pod, self._world.clock.monotonic())
        return question

    def _ask_about_overdue(self) -> None:
        bindings, cache = self._bindings, self._world.cache
        overdue_seconds = self._world.clock.monotonic() - CONFIRMATION_SECONDS
        overdue = [uid for uid, at in bindings.unconfirmed.items() if at <= overdue_seconds]
        for uid in (*overdue, *bindings.doubted):
            pod = cache.pod(uid)
            if pod is None:
                bindings.confirmed(uid)
            else:
                self._ask(pod)

    def _answered_from_memory(self, question: _Question) -> bool:
        """Close a question that an event has answered meanwhile; False: it is still open."""
        uid, cache = question.pod.uid, self._world.cache
        if question.answers:
            is_open = uid in cache.assumed_pods
        else:  # no task waits; a pod that is assumed and in neither of these is bound once more
            is_open = uid in self._bindings.unconfirmed or uid in self._bindings.doubted
        if is_open:
            return False
        counted = cache.pod(uid)
        same = counted is not None and counted.node_name == question.pod.node_name
        self._close(uid, bound=same)
        return True

    async def _pause(self) -> None:
        self._asked.clear()
        now = self._world.clock.monotonic()
        latest = now + OVERDUE_CHECK_SECONDS
        due = min((each.due_seconds for each in self._open.values()), default=latest)
        seconds = min(max(due - now, 0.0), OVERDUE_CHECK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            pass

    def _close(self, uid: str, *, bound: bool) -> None:
        question = self._open.pop(uid, None)
        for answer in question.answers if question is not None else ():
            if not answer.done():  # cancelled with its task
                answer.set_result(bound)

    # --- what the API says ----------------------------------------------------------------------

    async def _read(self, pods: Iterable[PodInfo]) -> dict[str, JsonObject | None]:
        """Read pods: the objects by uid, None for a pod that is gone.

        A pod that could not be read is missing in the result.
        """
        by_namespace: dict[str, dict[str, PodInfo]] = {}
        for pod in pods:
            by_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        told: dict[str, JsonObject | None] = {}
        for namespace, wanted in by_namespace.items():
            if len(wanted) > MAX_PARALLEL_READS:
                await self._list(namespace, wanted, told)
            missing = [pod for uid, pod in wanted.items() if uid not in told]
            for start in range(0, len(missing), MAX_PARALLEL_READS):
                batch = missing[start : start + MAX_PARALLEL_READS]
                answers = await asyncio.gather(*(self._get(pod) for pod in batch))
                told.update(answer for answer in answers if answer is not None)
                if not any(answers):
                    # The API is away: the next round reads the others.
                    return told
        return told

    async def _list(
        self, namespace: str, wanted: Mapping[str, PodInfo], told: dict[str, JsonObject | None]
    ) -> None:
        """Read pages of the namespace for as long as that is cheaper than single reads."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        left = len(wanted) // READS_PER_PAGE
        try:
            async with asyncio.timeout(MAX_POD_READ_SECONDS):
                async for page in pages(self._client.get, path, limit=PAGE_ITEMS):
                    for obj in page.get("items") or ():
                        if obj["metadata"]["uid"] in wanted:
                            told[obj["metadata"]["uid"]] = obj
                    left -= 1
                    if not left or len(told) == len(wanted):
                        return
        except (SchedulerError, TimeoutError) as failure:
            logger.debug("cannot list the pods of %s: %s", namespace, in_words(failure))

    async def _get(self, pod: PodInfo) -> tuple[str, JsonObject | None] | None:
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        try:
            async with asyncio.timeout(MAX_POD_READ_SECONDS):
                obj = await self._client.get(path)
        except NotFound:
            return pod.uid, None
        except (SchedulerError, TimeoutError) as failure:
            logger.debug(
                "cannot read %s to see whether it is bound: %s", pod.key, in_words(failure)
            )
            return None
        # The name may belong to another pod by now.
        return pod.uid, obj if obj["metadata"]["uid"] == pod.uid else None

    def _take(
        self, uid: str, obj: JsonObject | None, handlers: WatchHandlers, take_back: TakeBack
    ) -> None:
        question = self._open[uid]
        pod = question.pod
        if self._answered_from_memory(question):
            return
        node_name = None if obj is None else obj["spec"].get("nodeName")
        if obj is None:
            handlers.on_pod("DELETED", _tombstone(pod))
        elif node_name:
            handlers.on_pod("MODIFIED", obj)
        elif not question.answers:
            logger.error("%s counted on %s, but is not bound", pod.key, pod.node_name)
            take_back(pod)
            handlers.on_pod("MODIFIED", obj)
        self._close(uid, bound=node_name == pod.node_name)


def _tombstone(pod: PodInfo) -> JsonObject:
    """The object for a DELETED event of a pod whose deletion the watch has not shown."""
    return {"metadata": {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}}
