"""How fast a scheduler drains a backlog, or how long a pod waits at a steady rate, at any API.

Creates nodes and pods, starts the scheduler by its command line, and reads bindings from a pod
watch, which is resumed where the server ends it. It DELETES every node, and every pod in the
namespace "default", first.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk_cli.commands.bench_server_cost import counters_in
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import (
    HIGH_PRIORITY,
    LOW_PODS_PER_NODE,
    SCHEDULER_NAME,
    node_name,
    on_node,
    posted_node,
    posted_pod,
)
from tests.benchmarks import api_cost
from tests.benchmarks.api_cost import ApiProcesses
from tests.benchmarks.pod_watch import ACCEPT, PodChange, PodChanges
from tests.benchmarks.scheduler_process import SchedulerProcess, Usage, cpu_seconds_of, running

PODS: Final = "/api/v1/namespaces/default/pods"
_ALL_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
_CREATORS: Final = 48
_FEW: Final = 10
"""With so few bindings no rate is worth computing."""
_READY_POLL_SECONDS: Final = 0.1
_RESTING: Final = 0.1
"""Seconds of CPU that an API server uses in a second although nobody asks it anything."""
_QUIET_SECONDS: Final = 3
_REST_TRIES: Final = 120


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Who is measured."""

    command: str
    name: str = SCHEDULER_NAME
    """The schedulerName of the pods."""
    ready_url: str | None = None
    """Answers 200 once the scheduler is ready; None: time to ready is not measured."""


@dataclass(frozen=True, slots=True)
class Load:
    """What it is measured with."""

    kind: str = "basic"
    nodes: int = 1000
    init: int = 0
    """Pods that are bound before."""
    pods: int = 2000
    rate: float = 0.0
    """Pods per second while the scheduler runs; 0: a backlog before it starts."""
    warm_seconds: float = 8.0
    """With a rate: seconds that pass once the scheduler is ready, before the first pod comes. A
    scheduler without `ready_url` has to start in this time."""
    timeout_seconds: float = 300.0
    runs: bool = False
    """Whether a pod counts once it runs, and not once it is bound. On the embedded cluster hollow
    nodes run it; where the cost of a control plane is read, this measurement says that it runs."""
    is_prepared: bool = False
    """Whether the nodes and the bound pods are there: then nothing is deleted or created before."""


class Api:
    """The API server, as somebody who creates and watches sees it."""

    def __init__(self, credentials: Credentials) -> None:
        self._server = credentials.server
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = credentials.new_session(timeout=timeout)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def get(self, path: str) -> JsonObject:
        """What lies at a path."""
        return await self._json("GET", path)

    async def post(self, path: str, body: JsonObject) -> JsonObject:
        """Create an object; one that exists already is left as it is."""
        return await self._json("POST", path, body, allowed=409)

    async def patch(self, path: str, body: JsonObject, content_type: str) -> JsonObject:
        """Change an object."""
        return await self._json("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str) -> None:
        """Delete an object or a collection."""
        await self._json("DELETE", path)

    async def post_all(self, path: str, bodies: list[JsonObject]) -> None:
        """Create many objects, several at once, in order."""
        remaining = iter(bodies)

        async def work() -> None:
            for body in remaining:
                await self.post(path, body)

        await asyncio.gather(*(work() for _ in range(_CREATORS)))

    def watch(self, path: str, accept: str = "application/json") -> Any:
        """An open watch, in one of the accepted encodings."""
        return self._session.get(self._server + path, headers={"Accept": accept})

    async def requests(self) -> api_cost.Requests:
        """The requests that the API server has counted so far."""
        async with self._session.get(f"{self._server}/metrics") as response:
            return counters_in((await response.text()).splitlines()).requests

    async def _json(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        allowed: int = 200,
        content_type: str = "application/json",
    ) -> JsonObject:
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, self._server + path, data=data, headers=headers
        ) as response:
            text = await response.read()
            if response.status >= 300 and response.status != allowed:
                raise RuntimeError(f"{method} {path}: {response.status} {text.decode()[:400]}")
            answer: JsonObject = orjson.loads(text)
            return answer


class Drain:
    """One measurement."""

    def __init__(
        self, api: Api, scheduler: Scheduler, load: Load, processes: ApiProcesses | None = None
    ) -> None:
        self._api, self._scheduler, self._load = api, scheduler, load
        self._processes = processes
        self._spent_before_first: api_cost.Spent | None = None
        self._speed = api_cost.MachineSpeed()
        self._created: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._victims_ended: list[float] = []
        self._kubelets: dict[str, asyncio.Task[JsonObject]] = {}
        """For each pod the request of its kubelet, where this measurement plays them."""
        self._before_first = Usage(0.0, 0.0)
        self._ready_seconds: float | None = None
        self._watches = 0

    async def run(self, log: Path) -> dict[str, Any]:
        """Measure; the scheduler's output goes to `log`."""
        if not self._load.is_prepared:
            await self._prepare()
        if self._load.kind == "preempt":
            await self._api.post(_PRIORITY_CLASSES, HIGH_PRIORITY)
            await asyncio.sleep(1)  # admission reads classes through a cache
        if not self._load.rate:
            await self._api.post_all(PODS, [self._pod(index) for index in range(self._load.pods)])
        listed = await self._api.get(f"{PODS}?limit=1")
        requests: api_cost.Requests = {}
        if self._processes is not None:
            await self._rest_of_server(self._processes)
            requests = await self._api.requests()
        started = time.perf_counter()
        async with AsyncExitStack() as stack:
            scheduler = stack.enter_context(running(self._scheduler.command, log))
            if self._processes is not None:
                stack.callback(asyncio.create_task(self._speed.run()).cancel)
            if self._load.kind == "preempt":
                # The first one is bound late: what was spent before belongs to it.
                self._note_first(scheduler)
            watch = asyncio.create_task(
                self._watch(scheduler, listed["metadata"]["resourceVersion"])
            )
            ready = asyncio.create_task(self._wait_until_ready(started))
            try:
                if self._load.rate:
                    await asyncio.wait_for(asyncio.shield(ready), self._load.timeout_seconds)
                    await asyncio.sleep(self._load.warm_seconds)
                    self._note_first(scheduler)
                    await self._create_paced()
                await self._wait_for(watch, scheduler)
                await ready
                await asyncio.gather(*self._kubelets.values())
            finally:
                watch.cancel()
                ready.cancel()
            usage = await scheduler.usage_at_rest()
            cost: dict[str, Any] = {}
            if self._processes is not None and self._spent_before_first is not None:
                # Events wait for a slot while a server is late: the scheduler looks idle then.
                await self._rest_of_server(self._processes)
                usage = scheduler.usage()
                last = api_cost.spent(self._processes, scheduler.group)
                bound = max(1, len(self._bound))
                cost["pass_ms"] = round(self._speed.pass_ms, 3)
                cost |= api_cost.figures_per_pod(self._spent_before_first, last, bound)
                cost |= api_cost.requests_between(requests, await self._api.requests(), bound)
        return self._figures(started, usage) | cost

    # --- the cluster before ---------------------------------------------------------------------

    async def _prepare(self) -> None:
        load = self._load
        while True:
            await self._api.delete(f"{PODS}?gracePeriodSeconds=0")
            if not (await self._api.get(f"{PODS}?limit=1"))["items"]:
                break
            await asyncio.sleep(0.5)
        present = await self._api.get(f"{_NODES}?resourceVersion=0")
        wanted = {node_name(index) for index in range(load.nodes)}
        if {node["metadata"]["name"] for node in present["items"]} != wanted:
            await self._api.delete(_NODES)
            await self._api.post_all(_NODES, [posted_node(index) for index in range(load.nodes)])
        bound = self._bound_pods("basic", "init", load.init)
        if load.kind == "preempt":
            bound += self._bound_pods("low", "low", LOW_PODS_PER_NODE * load.nodes)
        await self._api.post_all(PODS, bound)

    def _bound_pods(self, kind: str, prefix: str, count: int) -> list[JsonObject]:
        return [
            on_node(
                posted_pod(kind, index, scheduler_name=self._scheduler.name, prefix=prefix),
                node_name(index % self._load.nodes),
            )
            for index in range(count)
        ]

    def _pod(self, index: int) -> JsonObject:
        return posted_pod(self._load.kind, index, scheduler_name=self._scheduler.name)

    async def _create_paced(self) -> None:
        started = time.perf_counter()
        tasks = []

        async def create(index: int) -> None:
            sent = time.perf_counter()
            answer = await self._api.post(PODS, self._pod(index))
            self._created[answer["metadata"]["name"]] = sent

        for index in range(self._load.pods):
            due = started + index / self._load.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(create(index)))
        await asyncio.gather(*tasks)

    # --- what the scheduler does ----------------------------------------------------------------

    async def _wait_for(self, watch: "asyncio.Task[None]", scheduler: SchedulerProcess) -> None:
        """Wait until every pod is bound, or for as long as the load allows."""
        deadline = time.perf_counter() + self._load.timeout_seconds
        while time.perf_counter() < deadline:
            done, _ = await asyncio.wait({watch}, timeout=1)
            if done:
                return watch.result()
            scheduler.check_alive()
        return None

    async def _wait_until_ready(self, started: float) -> None:
        url = self._scheduler.ready_url
        if url is None:
            return
        async with aiohttp.ClientSession() as session:
            while self._ready_seconds is None:
                try:
                    async with session.get(url, ssl=False) as response:  # a certificate of its own
                        if response.status == 200:
                            self._ready_seconds = time.perf_counter() - started
                except aiohttp.ClientError:
                    pass  # it does not listen yet
                await asyncio.sleep(_READY_POLL_SECONDS)

    async def _watch(self, scheduler: SchedulerProcess, resource_version: str) -> None:
        """Note when each pod was bound; servers end watches, and it goes on where it was."""
        while len(self._bound) < self._load.pods:
            self._watches += 1
            path = _ALL_PODS if self._load.kind == "preempt" else PODS
            path += f"?watch=1&resourceVersion={resource_version}&allowWatchBookmarks=true"
            accept = "application/json" if self._processes is None else ACCEPT
            async with self._api.watch(path, accept) as response:
                changes = PodChanges(response.content_type)
                async for piece in response.content.iter_any():
                    now = time.perf_counter()
                    for change in changes.of(piece):
                        resource_version = change.resource_version
                        self._see(scheduler, change, now)
                    if len(self._bound) >= self._load.pods:
                        return

    def _see(self, scheduler: SchedulerProcess, change: PodChange, now: float) -> None:
        if self._load.runs and self._processes is not None and change.node_name:
            self._run_pod(change.name)
        has_come = change.phase == "Running" if self._load.runs else bool(change.node_name)
        if change.type == "MODIFIED" and has_come and change.name.startswith("pod-"):
            if not self._bound and not self._load.rate and self._load.kind != "preempt":
                self._note_first(scheduler)
            self._bound.setdefault(change.name, now)
        elif change.type == "DELETED":
            self._victims_ended.append(now)

    def _run_pod(self, name: str) -> None:
        """Say once that a pod runs, as its node's kubelet would."""
        if name not in self._kubelets:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self._kubelets[name] = asyncio.create_task(
                self._api.patch(f"{PODS}/{name}/status", {"status": status}, _STRATEGIC_MERGE)
            )

    def _note_first(self, scheduler: SchedulerProcess) -> None:
        """Note what was spent before the first pod: the start, its lists and connections."""
        self._before_first = scheduler.usage()
        if self._processes is not None:
            self._spent_before_first = api_cost.spent(self._processes, scheduler.group)
            self._speed.forget()

    async def _rest_of_server(self, processes: ApiProcesses) -> None:
        """Wait until the API server has had nothing to do for a while."""
        quiet, before = 0, cpu_seconds_of(processes.api_server)
        for _ in range(_REST_TRIES):
            await asyncio.sleep(1.0)
            now = cpu_seconds_of(processes.api_server)
            quiet = quiet + 1 if now - before <= _RESTING else 0
            if quiet == _QUIET_SECONDS:
                return
            before = now
        raise RuntimeError("the API server does not come to rest: does something else use it?")

    # --- figures --------------------------------------------------------------------------------

    def _figures(self, started: float, usage: Usage) -> dict[str, Any]:
        load, times = self._load, sorted(self._bound.values())
        figures: dict[str, Any] = {
            "kind": load.kind,
            "nodes": load.nodes,
            "init": load.init,
            "pods": load.pods,
            "bound": len(times),
            "cpu_s": round(usage.cpu_seconds, 2),
            "peak_mib": round(usage.peak_mib),
        }
        if len(self._victims_ended) > _FEW:
            seconds = self._victims_ended[-1] - self._victims_ended[0]
            figures["victims"] = len(self._victims_ended)
            figures["victims_per_s"] = round((len(self._victims_ended) - 1) / seconds, 1)
        if self._watches > 1:
            figures["watches"] = self._watches
        if self._ready_seconds is not None:
            figures["ready_s"] = round(self._ready_seconds, 2)
        if len(times) <= _FEW:
            return figures
        steady_cpu_seconds = usage.cpu_seconds - self._before_first.cpu_seconds
        figures["cpu_before_s"] = round(self._before_first.cpu_seconds, 2)
        figures["cpu_ms_per_pod"] = round(1000 * steady_cpu_seconds / len(times), 3)
        if load.rate:
            figures["rate"] = load.rate
            waits = sorted(self._bound[name] - sent for name, sent in self._created.items())
            for share in (0.5, 0.9, 0.99):
                figures[f"p{share * 100:.0f}_ms"] = round(1000 * _percentile(waits, share), 1)
        else:
            figures["first_bind_s"] = round(times[0] - started, 2)
            figures["total_s"] = round(times[-1] - started, 2)
            figures["pods_per_s"] = round((len(times) - 1) / (times[-1] - times[0]), 1)
        return figures


async def drain(
    kubeconfig: Path,
    scheduler: Scheduler,
    load: Load,
    log: Path,
    processes: ApiProcesses | None = None,
) -> dict[str, Any]:
    """Measure a scheduler at a cluster, and with `processes` what it costs the API server."""
    api = Api(await load_credentials(str(kubeconfig)))
    try:
        return await Drain(api, scheduler, load, processes).run(log)
    finally:
        await api.close()


def _percentile(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
