"""Explanations, what-if, listings and dumps on the operator's port, as JSON.

`app` adds the routes to the port, whose guard asks the API server before each request. Invariant:
one answer is computed at a time, in slices of a few milliseconds, so that the next decision never
waits long; users have their turns one after the other; a replica that does not lead answers 503 and
names the one that does, but for its dump, which is its own.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from stellwerk.answers.answer import Kind, codec
from stellwerk.answers.observed import ObservedPage
from stellwerk.answers.pod import names_near
from stellwerk.answers.queue import BY_CONTROLLER
from stellwerk.answers.what_if import Supposition, WhatIf
from stellwerk.explain.lists.claims import explain_claim
from stellwerk.explain.lists.decisions import decisions_page
from stellwerk.explain.lists.devices import DevicesAsked, devices_page, explain_device
from stellwerk.explain.lists.nodes import NodesAsked, explain_node, nodes_page
from stellwerk.explain.lists.owned_pods import owned_pods
from stellwerk.explain.lists.page import (
    DEFAULT_ENTRIES,
    MAX_ENTRIES_PER_PAGE,
    Page,
    PodsAsked,
    natural_order,
)
from stellwerk.explain.lists.profiles import profiles_page
from stellwerk.explain.lists.queue import QueueOrder, queue_page
from stellwerk.explain.lists.search import search_page
from stellwerk.explain.placement_now import explain_pod
from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.steps import OutOfTime, suggested
from stellwerk.explain.what_if import what_if
from stellwerk.serving.http import LIMITS
from stellwerk.serving.openapi import openapi_document
from stellwerk_kube.compatibility import is_newer_than_known
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_kube.label_selectors import LabelSelectorError, parse_selector_text
from stellwerk_kube.listening.middleware import USER, check_room, json_within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from stellwerk.answers.devices import ClaimExplanation, DeviceExplanation
    from stellwerk.answers.group import GroupExplanation
    from stellwerk.answers.nodes import NodeExplanation
    from stellwerk.answers.pod import PodExplanation
    from stellwerk.answers.shadow import ShadowDiff
    from stellwerk.explain.report import Explanations
    from stellwerk.explain.steps import Result, Steps
    from stellwerk.scheduler.observers.debugger import Debugger
    from stellwerk_kube.json_values import JsonObject
    from stellwerk_kube.selectors import LabelSelector

ANSWER_SLICE_SECONDS: Final = 0.005
"""Time that an answer computes before the next decision may be made."""
MAX_COMPUTING_SECONDS: Final = 2.0
"""Computing time after which an answer ends with what it has, and says so."""
COMPUTING_SECONDS_PER_TEMPLATE_POD: Final = 0.0002
"""Computing time added for each pod of a question's templates: a pod of a Deployment at 5,000 nodes
takes 0.15 ms. The most pods that a question may have add 3 s."""


_MAX_PODS_PER_STEP: Final = 2000
"""Names of pods that are compared before the next decision may be made."""
_MAX_NEAR_NAMES: Final = 20
"""Names that are shown in place of one that is not there."""


class FairLock:
    """One answer at a time; of those who wait, the users alternate."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """In the order in which the users get the lock next."""
        self._taken = False

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait for the lock, and give it to the next user in the end."""
        if self._taken:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(user, deque()).append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._give()
                else:
                    self._forget(user, waiter)
                raise
        self._taken = True
        try:
            yield
        finally:
            self._give()

    def _give(self) -> None:
        """Give the lock to the user who had it longest ago."""
        user = next(iter(self._waiting), None)
        self._taken = user is not None
        if user is None:
            return
        waiting = self._waiting.pop(user)
        waiter = waiting.popleft()
        if waiting:
            self._waiting[user] = waiting  # behind all others
        waiter.set_result(None)

    def _forget(self, user: str, waiter: asyncio.Future[None]) -> None:
        waiting = self._waiting[user]
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[user]


class ExplanationRoutes:
    """The handlers; `table` holds their routes."""

    def __init__(
        self,
        explanations: Explanations,
        standby: Callable[[], str | None],
        debugger: Debugger,
        slice_seconds: float = ANSWER_SLICE_SECONDS,
        computed_seconds: float = MAX_COMPUTING_SECONDS,
    ) -> None:
        """Prepare the routes.

        Args:
            explanations: what is asked.
            standby: the identity of the replica that leads, perhaps empty; None: this one leads.
            debugger: makes dumps, of a standby as well.
            slice_seconds: how long an answer is computed before other work goes on.
            computed_seconds: how long in all, in CPU time.
        """
        self._explanations = explanations
        self._standby = standby
        self._debugger = debugger
        self._slice_seconds = slice_seconds
        self._computed_seconds = computed_seconds
        self._lock = FairLock()
        self.table = web.RouteTableDef()
        self.table.get("/explain/{namespace}/{pod}")(self._explain)
        self.table.get("/explain/{namespace}/podgroups/{group}")(self._explain_group)
        self.table.get("/explain/{namespace}/resourceclaims/{claim}")(self._explain_claim)
        self.table.get("/explain/{namespace}/owners/{kind}/{owner}")(self._owned)
        self.table.get("/explain/devices")(self._devices)
        # Below /explain/, so that roles of before give the right to it.
        self.table.get("/explain/search")(self._search)
        self.table.get("/queue")(self._queue)
        self.table.get("/queue/history")(self._history)
        self.table.get("/decisions")(self._decisions)
        self.table.get("/profiles")(self._profiles)
        self.table.get("/shadow/{profile}")(self._shadow)
        self.table.get("/observed")(self._observed)
        self.table.get("/nodes")(self._nodes)
        self.table.get("/openapi/v3")(self._openapi)
        self.table.post("/what-if")(self._what_if)
        self.table.get("/debug/dump")(self._dump)

    async def _explain(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]

        def steps() -> Steps[PodExplanation]:
            found = explain_pod(self._explanations, namespace, name)
            if found is None:
                return self._not_found(namespace, name)
            return found

        return await self._answer(request, steps)

    def _not_found(self, namespace: str, name: str) -> Steps[PodExplanation]:
        """Say that there is no such pod, with those whose names begin so or nearly are this one.

        Raises:
            web.HTTPNotFound: always, at the end.
        """
        world, near, count = self._explanations.world, list[str](), 0
        entries = list(world.queue.entries.items())
        # A pod that is being bound is on its node already.
        waiting = (entry.newest for uid, entry in entries if world.cache.pod(uid) is None)
        for number, pod in enumerate(chain(list(world.cache.pods()), waiting)):
            if number % _MAX_PODS_PER_STEP == 0:
                near = nsmallest(_MAX_NEAR_NAMES, near, key=natural_order)
                yield
            if pod.namespace == namespace and pod.name.startswith(name):
                near.append(pod.name)
                count += 1
        said = f'there is no pod "{namespace}/{name}" here'
        if count:
            said += names_near(nsmallest(_MAX_NEAR_NAMES, near, key=natural_order), count)
        else:
            queued = [entry.newest for _, entry in entries]
            unserved = self._explanations.without_profile().values()
            here = chain(list(world.cache.pods()), queued, list(unserved))
            said += yield from suggested(
                name, (pod.name for pod in here if pod.namespace == namespace)
            )
        raise web.HTTPNotFound(text=said + "\n")

    async def _explain_group(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["group"]

        def steps() -> Steps[GroupExplanation]:
            found = explain_group(self._explanations.world, namespace, name)
            if found is None:
                raise web.HTTPNotFound(text=f'there is no pod group "{namespace}/{name}" here\n')
            return found

        return await self._answer(request, steps)

    async def _explain_claim(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["claim"]

        def steps() -> Steps[ClaimExplanation]:
            found = explain_claim(self._explanations.world, namespace, name)
            if found is None:
                raise web.HTTPNotFound(text=f'there is no claim "{namespace}/{name}" here\n')
            return found

        return await self._answer(request, steps)

    async def _owned(self, request: web.Request) -> web.Response:
        namespace, world = request.match_info["namespace"], self._explanations.world
        owner = f"{request.match_info['kind']}/{request.match_info['owner']}"
        return await self._answer(request, lambda: owned_pods(world, namespace, owner))

    async def _devices(self, request: web.Request) -> web.Response:
        world, page, name = self._explanations.world, _page(request), request.query.get("explain")
        if name is None:
            words = _asked(request, "q", "node", "state")
            return await self._answer(
                request, lambda: devices_page(world, page, DevicesAsked(*words))
            )

        def steps() -> Steps[DeviceExplanation]:
            found = explain_device(world, name)
            if found is None:
                raise web.HTTPNotFound(text=f'there is no device "{name}" here\n')
            return found

        return await self._answer(request, steps)

    async def _search(self, request: web.Request) -> web.Response:
        asked, page = self._explanations, _page(request)
        (text,) = _asked(request, "q")
        return await self._answer(
            request,
            lambda: search_page(
                asked.world,
                asked.without_profile().values(),
                [each.name for each in asked.profile_objects()],
                text,
                page.limit,
            ),
        )

    async def _queue(self, request: web.Request) -> web.Response:
        page, asked = _page(request), self._explanations
        text, queue, plugin, controller = _asked(request, "q", "queue", "plugin", "controller")
        sort, by, namespace, labels = _asked(request, "sort", "by", "namespace", "labelSelector")
        reason = request.query.get("reason")
        return await self._answer(
            request,
            lambda: queue_page(
                asked.world,
                page,
                asked.without_profile().values(),
                PodsAsked(
                    text, queue, plugin, "", controller, reason, namespace, _selector(labels)
                ),
                asked.unserved.is_unserved,
                QueueOrder(sort, by == BY_CONTROLLER),
            ),
        )

    async def _history(self, request: web.Request) -> web.Response:
        (wanted,) = _asked(request, "range")
        return await self._answer(request, lambda: self._explanations.history.page(wanted))

    async def _decisions(self, request: web.Request) -> web.Response:
        page, asked = _page(request), self._explanations
        text, node = _asked(request, "q", "node")
        wanted = PodsAsked(text, node=node)
        return await self._answer(
            request,
            lambda: decisions_page(asked.world, asked.records, page, wanted, asked.observed),
        )

    async def _profiles(self, request: web.Request) -> web.Response:
        asked = self._explanations
        return await self._answer(
            request, lambda: profiles_page(asked.world, asked.profile_objects())
        )

    async def _shadow(self, request: web.Request) -> web.Response:
        name = request.match_info["profile"]

        def steps() -> Steps[ShadowDiff]:
            yield
            found = self._explanations.shadow(name)
            if found is None:
                raise web.HTTPNotFound(text=f'"{name}" shadows no profile\n')
            return found

        return await self._answer(request, steps)

    async def _observed(self, request: web.Request) -> web.Response:
        asked, (name,) = self._explanations, _asked(request, "profile")
        limit = _page(request).limit

        def steps() -> Steps[ObservedPage]:
            found = []
            for each in asked.observed(limit):
                yield
                if not name or name in {each.name, each.scheduler_name}:
                    found.append(each)
            if name and not found:
                raise web.HTTPNotFound(text=f'no profile "{name}" observes another scheduler\n')
            return ObservedPage(items=found)

        return await self._answer(request, steps)

    async def _nodes(self, request: web.Request) -> web.Response:
        world, page, name = self._explanations.world, _page(request), request.query.get("explain")
        if name is None:
            text, label, sort, shares = _asked(request, "q", "label", "sort", "shares")
            words = (text, label, sort, bool(request.query.get("totals")), shares)
            return await self._answer(request, lambda: nodes_page(world, page, NodesAsked(*words)))

        def steps() -> Steps[NodeExplanation]:
            found = explain_node(world, name)
            if found is None:
                return self._no_node(name)
            return found

        return await self._answer(request, steps)

    def _no_node(self, name: str) -> Steps[NodeExplanation]:
        """Say that there is no such node.

        Raises:
            web.HTTPNotFound: always, at the end.
        """
        names = [node.name for node in self._explanations.world.cache.nodes()]
        near = yield from suggested(name, names)
        raise web.HTTPNotFound(text=f'there is no node "{name}" here{near}\n')

    async def _what_if(self, request: web.Request) -> web.Response:
        asked, body = self._explanations, await request.read()
        budget = _Budget(self._computed_seconds)

        def steps() -> Steps[WhatIf]:
            # Read in its turn: as objects a body is many times as large.
            try:
                version = asked.world.profiles.server_version or ""
                is_newer = is_newer_than_known(version)
                supposed = Supposition.of(json_within(LIMITS, body), is_server_newer=is_newer)
                budget.more_seconds = supposed.template_pods * COMPUTING_SECONDS_PER_TEMPLATE_POD
            except ConfigurationError as error:
                raise web.HTTPBadRequest(text=f"{error}\n") from error
            return what_if(asked.world, supposed, asked.max_pod_complexity, asked.throttled)

        return await self._answer(request, steps, budget=budget)

    async def _dump(self, request: web.Request) -> web.Response:
        # Other questions are answered while the API server is listed.
        comparison = await self._debugger.compare()
        return await self._answer(
            request, lambda: self._debugger.answer(comparison), leader_alone=False
        )

    async def _openapi(self, _: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(openapi_document))

    async def _answer(
        self,
        request: web.Request,
        begin: Callable[[], Steps[Kind]],
        *,
        leader_alone: bool = True,
        budget: _Budget | None = None,
    ) -> web.Response:
        """Compute an answer in slices, when its user has the lock."""
        leader = self._standby()
        if leader_alone and leader is not None:
            return _json({"error": "this replica is not the leader", "leader": leader}, status=503)
        try:
            async with self._lock.of(request.get(USER, "")):
                check_room(request)
                try:
                    answer = await self._in_slices(begin(), budget)
                    # Made beside the loop, since the first of a kind takes a while.
                    written = await asyncio.to_thread(codec, type(answer))
                    return _response(await self._in_slices(written.in_steps(answer)))
                finally:
                    # The parts of a fork refer to each other: freed before the next is made.
                    gc.collect(1)
        except ConfigurationError as error:
            raise web.HTTPUnprocessableEntity(text=f"{error}\n") from error
        except OutOfTime as error:
            raise web.HTTPUnprocessableEntity(text=f"{error}\n") from error
        except SchedulerError as error:
            raise web.HTTPInternalServerError(text=f"{error}\n") from error

    async def _in_slices(self, steps: Steps[Result], budget: _Budget | None = None) -> Result:
        budget = budget or _Budget(self._computed_seconds)
        used_seconds, began = 0.0, time.thread_time()
        try:
            while True:
                next(steps)
                slice_seconds = time.thread_time() - began
                if slice_seconds >= self._slice_seconds:
                    used_seconds += slice_seconds
                    if used_seconds > budget.in_all_seconds:
                        used_seconds = -math.inf
                        steps.throw(OutOfTime(budget.why_over))
                    # Others have as long: a handshake takes several rounds of the loop.
                    await asyncio.sleep(slice_seconds)
                    began = time.thread_time()
        except StopIteration as ended:
            result: Result = ended.value
            return result


@dataclass(slots=True)
class _Budget:
    """The CPU time of one answer, which may grow once the question is read."""

    seconds: float
    more_seconds: float = 0.0

    @property
    def in_all_seconds(self) -> float:
        """Seconds of CPU time."""
        return self.seconds + self.more_seconds

    @property
    def why_over(self) -> str:
        """The reason for which an answer ends here."""
        return f"the answer is cut off here: it has taken {self.in_all_seconds:.3g} s of computing"


def _asked(request: web.Request, *keys: str) -> Iterator[str]:
    """Values of the query by key; empty where it has none."""
    return (request.query.get(key, "").strip() for key in keys)


def _selector(text: str) -> LabelSelector | None:
    """The selector of a query, as kubectl writes it; None: it has none.

    Raises:
        ConfigurationError: it is malformed.
    """
    try:
        return parse_selector_text(text) if text else None
    except LabelSelectorError as error:
        raise ConfigurationError(f"labelSelector: {error}") from error


def _page(request: web.Request) -> Page:
    try:
        limit = int(request.query.get("limit", DEFAULT_ENTRIES))
        offset = int(request.query.get("offset", 0))
    except ValueError as error:
        raise web.HTTPBadRequest(text="limit and offset must be numbers\n") from error
    if not (0 < limit <= MAX_ENTRIES_PER_PAGE and offset >= 0):
        raise web.HTTPBadRequest(
            text=f"limit must be 1 to {MAX_ENTRIES_PER_PAGE}, offset at least 0\n"
        )
    return Page(limit, offset)


def _json(result: JsonObject, status: int = 200) -> web.Response:
    return _response(orjson.dumps(result), status)


def _response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
