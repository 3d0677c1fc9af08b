"""Outcomes of bindings that neither an answer nor the watch has told, asked of the API.

Binding tasks wait here for the outcome of a binding whose answer was lost; pods whose binding was
answered, but that the watch has not shown bound in time, are asked about on their own account, and
so are bound ones that an event shows without a node. Invariant: until the API has said that a pod
is not bound, or is gone, the pod counts on its node.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from stellwerk.client.paging import pages
from stellwerk.errors import NotFound, SchedulerError, in_words
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

CONFIRMATION_SECONDS: Final = 10.0
"""How long the watch may take to show a pod bound before the pod is read from the API."""
LOOK_SECONDS: Final = 1.0
"""How often it is looked whether there is anything to ask."""
_FIRST_DELAY_SECONDS: Final = 0.2
_LONGEST_DELAY_SECONDS: Final = 10.0
_READ_SECONDS: Final = 10.0
"""How long a read may take, so that one that hangs holds up no others for long."""
_AT_ONCE: Final = 16
"""Pods of a namespace that are read one by one, at the same time; more of them as a list."""
_PAGE_ITEMS: Final = 500
_GETS_PER_PAGE: Final = 8
"""A page of a list costs about as much as so many reads of one pod."""

TakeBack = Callable[[PodInfo], None]
"""Undoes what counts of a pod that is not bound, and has it scheduled again."""


@dataclass(slots=True, eq=False)
class _Question:
    """A pod whose binding is to be found out."""

    pod: PodInfo
    """On the node on which it counts."""
    due_seconds: float
    delay_seconds: float = _FIRST_DELAY_SECONDS
    answers: list[asyncio.Future[bool]] = field(default_factory=list)
    """Whether the pod is bound to that node, for the binding task that waits; none: none does."""


class BindingOutcomes:
    """Open questions by uid, and the coroutine that puts them to the API."""

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
        """Whether the API has the pod on the node it is assumed on; waits until the API says so."""
        logger.warning("%s may be bound to %s: asking", assumed.key, assumed.node_name)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ask(assumed).answers.append(answer)
        self._asked.set()
        return await answer

    async def run(self, handlers: WatchHandlers, take_back: TakeBack) -> None:
        """Ask until cancelled.

        Args:
            handlers: take the pods as they were read.
            take_back: takes a pod that turns out not to be bound, and for which no task waits.
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
            self._put_off(due)
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
        """Whether an event has given the answer meanwhile."""
        if self._is_doubtful(question):
            return False
        counted = self._world.cache.pod(question.pod.uid)
        same = counted is not None and counted.node_name == question.pod.node_name
        self._close(question.pod.uid, bound=same)
        return True

    def _is_doubtful(self, question: _Question) -> bool:
        uid = question.pod.uid
        if question.answers:
            return uid in self._world.cache.assumed_pods
        # One that is assumed and in neither is being bound anew.
        return uid in self._bindings.unconfirmed or uid in self._bindings.doubted

    async def _pause(self) -> None:
        self._asked.clear()
        now = self._world.clock.monotonic()
        due = min((each.due_seconds for each in self._open.values()), default=now + LOOK_SECONDS)
        seconds = min(max(due - now, 0.0), LOOK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            pass

    def _put_off(self, asked: Iterable[_Question]) -> None:
        """Read again later what could not be read, less and less often."""
        now = self._world.clock.monotonic()
        for question in asked:
            question.due_seconds = now + question.delay_seconds
            question.delay_seconds = min(2 * question.delay_seconds, _LONGEST_DELAY_SECONDS)

    def _close(self, uid: str, *, bound: bool) -> None:
        question = self._open.pop(uid, None)
        for answer in question.answers if question is not None else ():
            if not answer.done():  # cancelled with its task
                answer.set_result(bound)

    # --- what the API says ----------------------------------------------------------------------

    async def _read(self, pods: Iterable[PodInfo]) -> dict[str, JsonObject | None]:
        """The pods as the API has them (None: gone) by uid; without those that it did not tell."""
        by_namespace: dict[str, dict[str, PodInfo]] = {}
        for pod in pods:
            by_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        told: dict[str, JsonObject | None] = {}
        for namespace, wanted in by_namespace.items():
            if len(wanted) > _AT_ONCE:
                await self._list(namespace, wanted, told)
            missing = [pod for uid, pod in wanted.items() if uid not in told]
            for start in range(0, len(missing), _AT_ONCE):
                batch = missing[start : start + _AT_ONCE]
                answers = await asyncio.gather(*(self._get(pod) for pod in batch))
                told.update(answer for answer in answers if answer is not None)
                if not any(answers):
                    # The API is away: the others have their turn in the next round.
                    return told
        return told

    async def _list(
        self, namespace: str, wanted: Mapping[str, PodInfo], told: dict[str, JsonObject | None]
    ) -> None:
        """Look through pages of the namespace, as long as that is cheaper than single reads."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        left = len(wanted) // _GETS_PER_PAGE
        try:
            async with asyncio.timeout(_READ_SECONDS):
                async for page in pages(self._client.get, path, limit=_PAGE_ITEMS):
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
            async with asyncio.timeout(_READ_SECONDS):
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
            logger.error("%s counted on %s and is not bound", pod.key, pod.node_name)
            take_back(pod)
            handlers.on_pod("MODIFIED", obj)
        self._close(uid, bound=node_name == pod.node_name)


def _tombstone(pod: PodInfo) -> JsonObject:
    """The last that is known of a pod that was deleted unseen."""
    return {"metadata": {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}}
