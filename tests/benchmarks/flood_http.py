"""The flood over HTTP: the embedded API in one process, the operator in another, both on sockets.

`bench_flood --http` runs it. Invariant: a wait is read from one watch beside the operator's own,
by wall clock, from the line that says that a pod is there to the line that says where it is bound;
so the API server's share of a binding is in it, in every phase alike.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from stellwerk.client.credentials import load_credentials
from stellwerk_simulation.workloads import SCHEDULER_NAME, node_name
from tests.benchmarks.drain import Api, Scheduler
from tests.benchmarks.flood import FLOOD, FULL_CPU, TEMPLATES, Load, flood_pod
from tests.benchmarks.scheduler_process import SchedulerProcess, running
from tests.support.builders import make_pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stellwerk_kube.json_values import JsonObject

TEAMS: Final = tuple(f"team-{number}" for number in range(4))
"""The other namespaces."""
_CREATORS: Final = 8
"""Requests of the flood that are on their way at once."""
_CREATE_SECONDS: Final = 80.0
"""At most: a slow machine creates a smaller flood, and the table says so."""
_START_SECONDS: Final = 30.0
_REST_SECONDS: Final = 60.0
"""At most, until the last pod is bound."""
_ASK_SECONDS: Final = 0.05
_PAGE: Final = 500
_MERGE: Final = "application/merge-patch+json"


@dataclass
class HttpWaits:
    """What one phase took."""

    phase: str
    seconds: list[float] = field(default_factory=list)
    """From a pod's event to the event of its binding, ascending once the phase is over."""
    answer_seconds: list[float] = field(default_factory=list)
    """A GET of one small object meanwhile: what the API server alone makes others wait."""


@dataclass
class HttpFlood:
    """The phases of one flood, and what became of it."""

    phases: list[HttpWaits]
    created: int
    created_seconds: float
    reported: int
    """Pods of the flood that have the condition of an attempt in the end."""


class _Run:
    """One flood at one API server."""

    def __init__(self, api: Api, load: Load) -> None:
        self._api, self._load = api, load
        self._waits = HttpWaits("")
        self._seen: dict[str, tuple[float, HttpWaits]] = {}
        self._awaited: set[str] = set()
        """Pods of the others that are created, and not seen bound."""
        self._number = 0
        self._requests: set[asyncio.Task[Any]] = set()
        self._failed: BaseException | None = None

    # --- what users and kubelets do -------------------------------------------------------------

    async def fill(self) -> None:
        """Namespaces, and on each node a pod that leaves 1.5 CPUs."""
        for namespace in (FLOOD, *TEAMS):
            metadata = {"name": namespace}
            await self._api.post(
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
            )
        full = [
            _posted(make_pod(f"full-{index}", cpu=FULL_CPU, node_name=node_name(index)))
            for index in range(self._load.nodes)
        ]
        await self._api.post_all("/api/v1/namespaces/default/pods", full)

    async def create_flood(self) -> tuple[int, float]:
        """Create the flood, at its rate or as fast as the API server takes it.

        Returns:
            How many pods there were, and the seconds that they took.
        """
        created, started = 0, time.perf_counter()
        numbers = iter(range(self._load.flood))

        async def create() -> None:
            nonlocal created
            for number in numbers:
                if time.perf_counter() - started > _CREATE_SECONDS:
                    return
                due = started + number / self._load.flood_per_second
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                template = number if self._load.different else number % TEMPLATES
                await self._api.post(_pods(FLOOD), _posted(flood_pod(number, template)))
                created += 1

        await asyncio.gather(*(create() for _ in range(_CREATORS)))
        return created, time.perf_counter() - started

    async def create_others(self) -> None:
        """Create pods that fit at their rate, until cancelled."""
        started = time.perf_counter()
        while True:
            due = started + self._number / self._load.others_per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._number += 1
            team = TEAMS[self._number % len(TEAMS)]
            labels = {"app": f"other-{self._number % 5}", "measured": "yes"}
            name = f"other-{self._number}"
            pod = make_pod(name, namespace=team, cpu="10m", labels=labels)
            self._awaited.add(name)
            self._send(self._api.post(_pods(team), _posted(pod)))

    async def change_nodes(self) -> None:
        """Let nodes change, label and allocatable in turn, until cancelled."""
        number = 0
        while True:
            await asyncio.sleep(1 / self._load.node_changes_per_second)
            number += 1
            path = f"/api/v1/nodes/{node_name(number % self._load.nodes)}"
            if number % 2:
                labels = {"revision": str(number)}
                await self._api.patch(path, {"metadata": {"labels": labels}}, _MERGE)
            else:
                allocatable = {"memory": f"{32767 - number}Mi"}
                status = {"status": {"allocatable": allocatable}}
                await self._api.patch(f"{path}/status", status, _MERGE)

    def _send(self, request: Any) -> None:
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()

    # --- what is seen of it ---------------------------------------------------------------------

    async def ask(self) -> None:
        """Ask the API server for a small object time and again, until cancelled."""
        while True:
            began = time.perf_counter()
            await self._api.get(f"/api/v1/namespaces/{FLOOD}")
            self._waits.answer_seconds.append(time.perf_counter() - began)
            await asyncio.sleep(_ASK_SECONDS)

    async def watch(self) -> None:
        """Note when pods of the others come and are bound, until cancelled."""
        listed = await self._api.get("/api/v1/pods?limit=1")
        version = listed["metadata"]["resourceVersion"]
        while True:
            path = f"/api/v1/pods?watch=1&labelSelector=measured%3Dyes&resourceVersion={version}"
            async with self._api.watch(path) as response:
                rest = b""
                async for chunk in response.content.iter_any():
                    now = time.perf_counter()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = self._on_event(orjson.loads(line), now)

    def _on_event(self, event: JsonObject, now: float) -> str:
        obj = event["object"]
        if event["type"] == "ERROR":
            raise RuntimeError(f"the pod watch failed: {obj.get('message')}")
        metadata = obj["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        if event["type"] == "ADDED":
            self._seen[name] = now, self._waits
        elif event["type"] == "MODIFIED" and obj["spec"].get("nodeName") and name in self._seen:
            since, waits = self._seen.pop(name)
            self._awaited.discard(name)
            waits.seconds.append(now - since)
            path = f"{_pods(namespace)}/{name}?gracePeriodSeconds=0"
            loop = asyncio.get_running_loop()
            loop.call_later(self._load.lifetime_seconds, lambda: self._send(self._api.delete(path)))
        version: str = metadata["resourceVersion"]
        return version

    async def reported(self) -> int:
        """How many pods of the flood have the condition that an attempt leaves."""
        found, token = 0, ""
        while True:
            page = await self._api.get(f"{_pods(FLOOD)}?limit={_PAGE}&continue={token}")
            found += sum(
                any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))
                for pod in page["items"]
            )
            token = page["metadata"].get("continue", "")
            if not token:
                return found

    # --- phases ---------------------------------------------------------------------------------

    async def run(self, operator: SchedulerProcess) -> HttpFlood:
        """Undisturbed, while the flood comes, and while it waits."""
        phases = [HttpWaits(name) for name in ("undisturbed", "while it comes", "while it waits")]
        async with asyncio.TaskGroup() as tasks:
            self._waits = HttpWaits("warm")
            creating = tasks.create_task(self.create_others())
            others = [
                tasks.create_task(each) for each in (self.watch(), self.change_nodes(), self.ask())
            ]
            await asyncio.sleep(self._load.lifetime_seconds)
            self._waits = phases[0]
            await asyncio.sleep(self._load.phase_seconds)
            self._waits = phases[1]
            created, created_seconds = await self.create_flood()
            self._waits = phases[2]
            await asyncio.sleep(self._load.phase_seconds)
            creating.cancel()
            await self._until_bound(operator)
            for task in others:
                task.cancel()
        for phase in phases:
            phase.seconds.sort()
            phase.answer_seconds.sort()
        return HttpFlood(phases, created, created_seconds, await self.reported())

    async def _until_bound(self, operator: SchedulerProcess) -> None:
        """Raise unless every pod of the others is bound, so that the figures mean something."""
        deadline = time.perf_counter() + _REST_SECONDS
        while self._awaited:
            operator.check_alive()
            if self._failed is not None:
                raise self._failed
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{len(self._awaited)} pods are not bound")
            await asyncio.sleep(0.05)


def percentile(ascending: list[float], share: float) -> float:
    """A percentile in the values' unit."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


async def run(kubeconfig: Path, scheduler: Scheduler, load: Load, log: Path) -> HttpFlood:
    """Run a flood at the API server that a kubeconfig leads to, under a scheduler's command."""
    api = Api(await load_credentials(str(kubeconfig)))
    try:
        one = _Run(api, load)
        await one.fill()
        with running(scheduler.command, log) as operator:
            await _until_ready(scheduler, operator)
            return await one.run(operator)
    finally:
        await api.close()


async def _until_ready(scheduler: Scheduler, operator: SchedulerProcess) -> None:
    assert scheduler.ready_url is not None
    async with asyncio.timeout(_START_SECONDS), aiohttp.ClientSession() as session:
        while True:
            operator.check_alive()
            with suppress(aiohttp.ClientError):  # it does not listen yet
                async with session.get(scheduler.ready_url, ssl=False) as response:
                    if response.ok:
                        return
            await asyncio.sleep(0.1)


def rows(name: str, flood: HttpFlood) -> Iterator[list[str]]:
    """Of the table: the phases side by side, one figure a row."""
    for figure, share in (("p50", 0.5), ("p99", 0.99)):
        cells = [f"{1000 * percentile(phase.seconds, share):.1f}" for phase in flood.phases]
        yield [name, f"event to binding, {figure} ms", *cells]
    for figure, share in (("p50", 0.5), ("p99", 0.99)):
        cells = [f"{1000 * percentile(phase.answer_seconds, share):.1f}" for phase in flood.phases]
        yield [name, f"a GET meanwhile, {figure} ms", *cells]
    yield [name, "pods of the others", *(f"{len(each.seconds):,}" for each in flood.phases)]


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _posted(pod: JsonObject) -> JsonObject:
    """The pod as a user creates it."""
    del pod["metadata"]["uid"]
    pod["spec"]["schedulerName"] = SCHEDULER_NAME
    return pod
