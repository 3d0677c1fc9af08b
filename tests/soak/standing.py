"""Processes that live as long as a soak, beside hostile clients and tenants, and their memory.

One embedded API server, one page, two operators under leader election, and one that is never
killed, of another name. So many pods come and go, before all else and after the last restart of the
API server, that what the last one keeps of decisions and events, and the server of changes, is
full, which would take days at a low rate. `Soak` has the leader killed
every few minutes, in turn while nothing happens and while some members of a group of twelve are
bound, and the API server restarted twice with an older copy of its data. Invariant: what is judged
is what the API server told a watch, and the nodes of the two kinds of operators are not the same
ones, as theirs would be two schedulers.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
import orjson

from stellwerk_cli.cli import UNREACHABLE
from stellwerk_kube.json_values import JsonObject
from tests.flows.test_costs_of_questions import eight_bodies, questions
from tests.soak.kept_cluster import HELD, NODES, OWN, SCHEDULERS, SERVER
from tests.support.builders import make_pod
from tests.support.device_cases import claim, request, selecting
from tests.support.endings import Life, lost_lease
from tests.support.history import Change, Replay
from tests.support.invariants import check_capacity
from tests.support.limited_ports import LOCAL, LimitedPort
from tests.support.pod_groups import make_group
from tests.support.processes import AnyProcess, start, trusting
from tests.support.replicas import OWN_LEASE
from tests.support.supervised_operator import free_port

KEPT_MIB: Final = 4.0
"""What a process may grow by in the second half of the time,"""
_MEASURED_SECONDS: Final = 3600.0
"""of a soak that is at least so long: before, everything is done for the first time."""
_SEEDS: Final = 1 << 32
_PLAIN: Final = 24
_GANG: Final = 12
_UNSCHEDULABLE: Final = 100
"""Pods of the hostile tenant that wait for ever, for each scheduler."""
_DEAR: Final = (
    f"{list(range(60))}.all(x, {list(range(60))}.exists(y, x == y)) && device.driver == 'none'"
)
_PLAIN_SECONDS, _HOSTILE_SECONDS, _GROUPS_SECONDS = 2.0, 1.0, 30.0
_CLAIM_SECONDS, _ASKED_SECONDS, _ODD_SECONDS, _PROBE_SECONDS = 120.0, 20.0, 1.5, 10.0
_EVENTS_SECONDS, _SAMPLE_SECONDS = 60.0, 60.0
_CREATORS: Final = 16
_HELD_OPEN: Final = 24
"""Odd connections at once."""
_PATIENCE_SECONDS: Final = 300.0
"""So long a plain pod may wait while the API answers: beside a kill and other work."""
_UP_SECONDS: Final = 900.0
"""So long the API server may take to start, on a machine that is busy with other things."""
_LARGEST_BODY: Final = 256 << 10
_COMPARED: Final = re.compile(r"cache compared with the API: (.*)")
_OLDER_SHARES: Final = (1 / 12, 1 / 4)
"""Of the time: in its second half, whose memory is measured, no process is young."""
_SECONDS_OLDER: Final = 120.0
_FILL: Final = 30_000
"""Pods after which records of decisions (64 MiB), of events (10,000) and of changes (65,536) push
out older ones."""
_WAVE: Final = 1_000

# --- processes ------------------------------------------------------------------------------------


@dataclass
class Kept:
    """A process of the soak, its log, and what it has used."""

    name: str
    log: Path
    module: str
    arguments: tuple[str, ...]
    process: AnyProcess | None = None
    life: Life = field(default_factory=Life)
    began: float = 0.0
    resident: list[tuple[float, float]] = field(default_factory=list)
    """When (seconds of the soak), and MiB, of the process that runs now."""
    cpu_seconds: float = 0.0
    _ended_cpu: float = 0.0
    _lives: int = 0

    async def begin(self) -> None:
        """Start it, or start it again."""
        self._lives += 1
        self._ended_cpu = self.cpu_seconds
        self.log = self.log.with_name(f"{self.name}.{self._lives}.log")
        self.life, self.began, self.resident = Life(), time.monotonic(), []
        with self.log.open("wb") as output:
            self.process = await start(output, *self.arguments, module=self.module, is_forked=False)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.returncode is None

    def said(self) -> str:
        """What it has written in this life."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.is_alive:
            if number in {signal.SIGKILL, signal.SIGTERM}:
                self.life.signals.append(number)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30) -> int | None:
        """End it; its status, or None if it does not end."""
        self.send(number)
        assert self.process is not None
        try:
            return await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            self.send(signal.SIGKILL)
            return None

    def sample(self, now: float) -> float:
        """Note its resident memory and processor time; MiB."""
        assert self.process is not None
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return 0.0
        self.cpu_seconds = self._ended_cpu + (int(fields[11]) + int(fields[12])) / os.sysconf(
            "SC_CLK_TCK"
        )
        mib = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        self.resident.append((now, mib))
        return mib


# --- what the API server says ---------------------------------------------------------------------


class Server:
    """The API by HTTP; requests wait while it is being restarted."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session
        self.up = asyncio.Event()

    async def ask(self, method: str, path: str, body: JsonObject | None = None) -> tuple[int, Any]:
        """Status and answer; 0: nobody answered."""
        await self.up.wait()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=None if body is None else orjson.dumps(body),
                headers={"Content-Type": kind},
                timeout=aiohttp.ClientTimeout(total=20),
            ) as answer:
                text = await answer.read()
                return answer.status, orjson.loads(text) if text else None
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError):
            return 0, None

    async def watch(self, path: str, version: str) -> AsyncIterator[JsonObject]:
        """The changes of a collection after a version, until the stream ends."""
        url = f"{self.url}{path}?watch=1&resourceVersion={version}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self._session.get(url, timeout=timeout) as answer:
            buffered = b""
            async for piece in answer.content.iter_any():
                *lines, buffered = (buffered + piece).split(b"\n")
                for line in lines:
                    yield orjson.loads(line)


class Judge:
    """What became of every pod, by a watch of its own."""

    def __init__(self, server: Server, wrong: Callable[[str], None]) -> None:
        self._server = server
        self._wrong = wrong
        self.pods: dict[str, JsonObject] = {}
        """By uid, as the API has them."""
        self.deleted: set[str] = set()
        """uids of pods whose deletion was asked for."""
        self.rewound = True
        """Whether the next list may lack what there was."""
        self.bound: Counter[str] = Counter()
        """By namespace and scheduler."""
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        self.on_bound: list[Callable[[JsonObject], None]] = []
        self.up_at = 0.0
        """When the API server answered again: before, nothing could be bound."""
        self._waiting: dict[str, float] = {}
        self._replay = Replay()
        self.audits = 0

    async def follow(self) -> None:
        """List, watch, and list again when the stream ends; until cancelled."""
        while True:
            status, listed = await self._server.ask("GET", "/api/v1/pods")
            _, nodes = await self._server.ask("GET", "/api/v1/nodes")
            if status != 200 or nodes is None:
                await asyncio.sleep(0.2)
                continue
            for node in nodes["items"]:
                self._replay.take(Change(time.monotonic(), "nodes", None, node, 0, rewound=True))
            self._relist({each["metadata"]["uid"]: each for each in listed["items"]})
            version = listed["metadata"]["resourceVersion"]
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async for event in self._server.watch("/api/v1/pods", version):
                    if event["type"] == "ERROR":
                        break
                    is_gone = event["type"] == "DELETED"
                    self._take(event["object"], is_gone=is_gone, rewound=False)
            await asyncio.sleep(0.2)

    def _relist(self, present: dict[str, JsonObject]) -> None:
        rewound, self.rewound = self.rewound, False
        for uid, pod in list(self.pods.items()):
            if rewound or uid not in present:
                if not rewound:
                    self._check_gone(pod)
                self._take(pod, is_gone=True, rewound=True)
        for pod in present.values():
            self._take(pod, is_gone=False, rewound=True)

    def _take(self, pod: JsonObject, *, is_gone: bool, rewound: bool) -> None:
        now, uid = time.monotonic(), pod["metadata"]["uid"]
        before = self.pods.pop(uid, None)
        after = None if is_gone else pod
        version = int(pod["metadata"]["resourceVersion"])
        self._replay.take(Change(now, "pods", before or pod, after, version, rewound=rewound))
        if after is None:
            self._waiting.pop(uid, None)
            if not rewound:
                self._check_gone(pod)
                self.deleted.discard(uid)
            return
        self.pods[uid] = pod
        if not pod["spec"].get("nodeName"):
            self._waiting.setdefault(uid, now)
            return
        since = self._waiting.pop(uid, None)
        if since is not None and not rewound:
            kind = f"{pod['metadata']['namespace']} {pod['spec']['schedulerName']}"
            self.bound[kind] += 1
            self.waits[kind].append(now - since)
            for listener in self.on_bound:
                listener(pod)

    def _check_gone(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        if metadata["uid"] not in self.deleted and metadata["namespace"] != "hostile":
            self._wrong(f"lost: {metadata['namespace']}/{metadata['name']} is gone")

    def of(self, namespace: str, scheduler: str) -> list[JsonObject]:
        """The pods there, the oldest first."""
        found = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["namespace"] == namespace
            and pod["spec"]["schedulerName"] == scheduler
        ]
        return sorted(found, key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))

    def waits_long(self, seconds: float) -> list[str]:
        """Pods of the others that have waited for longer."""
        now = time.monotonic()
        return [
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']} ({now - since:.0f} s)"
            for uid, since in self._waiting.items()
            if (pod := self.pods[uid])["metadata"]["namespace"] != "hostile"
            and now - max(since, self.up_at) > seconds
        ]

    async def audit(self) -> None:
        """Compare with a fresh list, and judge what there was."""
        self.audits += 1
        judged = self._replay.judgement()
        for name in judged.doubled:
            self._wrong(f"bound twice: {name}")
        for text in judged.over_committed:
            self._wrong(f"over-committed: {text}")
        judged.doubled.clear()
        judged.over_committed.clear()
        judged.delays_seconds.clear()
        _, nodes = await self._server.ask("GET", "/api/v1/nodes")
        _, pods = await self._server.ask("GET", "/api/v1/pods")
        if nodes and pods:
            try:
                check_capacity(nodes["items"], pods["items"])
            except AssertionError as failure:
                self._wrong(f"over-committed: {failure}")
        for each in self.waits_long(_PATIENCE_SECONDS):
            self._wrong(f"not bound: {each}")


# --- the soak -------------------------------------------------------------------------------------

Task: TypeAlias = Callable[[], Awaitable[None]]


class Soak:
    """One run."""

    def __init__(self, minutes: float, seed: int, directory: Path) -> None:
        self.seconds = 60 * minutes
        self._directory = directory
        self._random = random.Random(seed)
        self._scale = min(1.0, minutes / 30)
        """Of periods of minutes, in a run that is only to be tried."""
        self._began = time.monotonic()
        self._quiet = asyncio.Lock()
        """Held while a group comes or goes, and while the data are copied: a group is whole."""
        self._number = int(time.time()) % 10_000_000 * 100
        self._wrongs: list[str] = []
        self.done: Counter[str] = Counter()
        self._partly: list[int] = []
        """How many of twelve were bound when the leader was killed."""
        self._probes: defaultdict[str, list[float]] = defaultdict(list)
        self._own_seconds = time.process_time()
        self._up_at = 0.0
        """When the API server answered again."""

    def _say(self, text: str) -> None:
        print(f"{(time.monotonic() - self._began) / 60:6.1f} min: {text}", flush=True)

    def _wrong(self, text: str) -> None:
        self._wrongs.append(text)
        self._say(f"WRONG: {text}")

    def next_number(self) -> int:
        """A number that no object has in its name."""
        self._number += 1
        return self._number

    async def run(self) -> list[str]:
        """Everything that was wrong."""
        server_port, own_port = free_port(), free_port()
        lead_ports = [free_port(), free_port()]
        config = str(self._directory / "kubeconfig")
        election = ("--leader-elect", *OWN_LEASE)

        def operator(name: str, port: int, *more: str) -> Kept:
            run = ("run", "--kubeconfig", config, "--bind-address", f"{LOCAL}:{port}", *more)
            return Kept(name, self._directory / f"{name}.log", "stellwerk", run)

        self.api = Kept(
            "API server",
            self._directory / "server.log",
            SERVER,
            (str(server_port), str(self._directory)),
        )
        self.own = operator("operator", own_port, "--operator-name", OWN)
        self.leads = [
            operator(f"replica {number}", port, *election) for number, port in enumerate(lead_ports)
        ]
        asker = str(self._directory / "asker")
        url = f"https://{LOCAL}:{own_port}"
        page = ("page", "--kubeconfig", asker, "--url", url, "--insecure-skip-tls-verify")
        self.page = Kept("page", self._directory / "page.log", "stellwerk", page)
        self.kept = [self.api, self.own, self.page, *self.leads]
        connector = aiohttp.TCPConnector(ssl=trusting())
        async with aiohttp.ClientSession(connector=connector) as session:
            self.server = Server(f"https://{LOCAL}:{server_port}", session)
            self.judge = Judge(self.server, self._wrong)
            try:
                await self.api.begin()
                await self._until(self._api_answers)
                self.server.up.set()
                for each in (self.own, *self.leads):
                    await each.begin()
                await self._until(lambda: self._answered(self.own, "serving own"))
                await self.page.begin()
                await self._until(lambda: self._answered(self.page, "/?"))
                self._ports = {
                    "API server": LimitedPort(server_port, tls=True, live="/version"),
                    "operator": LimitedPort(own_port, tls=True, live="/livez"),
                    "page": LimitedPort(self._page_port(), tls=False, live="/static/page.js"),
                }
                await self._live_through()
            finally:
                for each in reversed(self.kept):
                    if each.is_alive:
                        each.send(signal.SIGKILL)
        return self._wrongs

    async def _live_through(self) -> None:
        tasks: list[Task] = [self.judge.follow, self._tend, self._kill, self._restart]
        tasks += [self._audit, self._gangs, self._ask, self._odd, self._probe, self._look]
        tasks += [self._expire_events, self._sample]
        for scheduler in SCHEDULERS:
            hostile = Hostile(self, scheduler)
            tasks += [hostile.unschedulable, hostile.groups, hostile.claims]
            tasks += [self._plain_tenant(scheduler)]
        self._began = time.monotonic()
        following = [asyncio.create_task(self._guarded(each)) for each in tasks[:2]]
        await self._fill()
        self._began = time.monotonic()
        acting = [asyncio.create_task(self._guarded(each)) for each in tasks[2:]]
        await asyncio.sleep(self.seconds)
        for task in acting:
            task.cancel()
        await asyncio.gather(*acting, return_exceptions=True)
        await self._come_to_rest()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        self._tell()
        for each in (self.page, self.own, *self.leads, self.api):
            status = await each.end()
            if status is None or not (status == 0 or each.life.is_right(status, each.said())):
                self._wrong(f"asked to end, {each.name} ended with {status}")

    async def _guarded(self, task: Task) -> None:
        """Run a task; what it raises is wrong, and it goes on."""
        while True:
            try:
                await task()
            except asyncio.CancelledError:
                raise
            except Exception as failure:  # noqa: BLE001 a soak of hours says it and goes on
                self._wrong(f"{getattr(task, '__name__', task)}: {failure!r}")
            await asyncio.sleep(1)

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 90) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await condition():  # noqa: ASYNC110 any condition
                    await asyncio.sleep(0.1)
        except TimeoutError:
            said = "\n".join(each.said()[-1500:] for each in self.kept if each.process)
            raise AssertionError(said) from None

    async def _api_answers(self) -> bool:
        port = LimitedPort(int(self.server.url.rpartition(":")[2]), tls=True, live="/version")
        try:
            return b" 200 " in (await port.answer(port.get(port.live)))[:20]
        except OSError:
            return False

    async def _answered(self, kept: Kept, text: str) -> bool:
        return text in kept.said()

    def _page_url(self) -> str:
        found = re.search(r"http://127\.0\.0\.1:\d+/\?\S+", self.page.said())
        assert found is not None, self.page.said()
        return found.group()

    def _page_port(self) -> int:
        return int(self._page_url().partition("/?")[0].rpartition(":")[2])

    async def _fill(self) -> None:
        """Have small pods bound and deleted, a wave at a time."""
        waves = max(1, int(_FILL * self._scale) // _WAVE)
        for number in range(waves):
            left = iter(range(_WAVE))

            async def create(left: Iterator[int] = left) -> None:
                for _ in left:
                    while not await self.create("fill", OWN, "fill", cpu="1m"):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

            await asyncio.gather(*(create() for _ in range(_CREATORS)))
            await self._until(self._none_waits, _PATIENCE_SECONDS)
            self.judge.deleted |= {pod["metadata"]["uid"] for pod in self.judge.of("fill", OWN)}
            for path in ("/api/v1/namespaces/fill/pods", _EVENTS_OF.format("fill")):
                await self.server.ask("DELETE", f"{path}?gracePeriodSeconds=0")
            await self._until(self._none_is_there, _PATIENCE_SECONDS)
            if number % 5 == 4:
                self._say(f"{(number + 1) * _WAVE} pods have come and gone to fill what is kept")

    async def _none_waits(self) -> bool:
        there = self.judge.of("fill", OWN)
        return len(there) >= _WAVE and all(pod["spec"].get("nodeName") for pod in there)

    async def _none_is_there(self) -> bool:
        return not self.judge.of("fill", OWN)

    # Plain tenants.

    def _plain_tenant(self, scheduler: str) -> Task:
        async def plain() -> None:
            while True:
                await asyncio.sleep(_PLAIN_SECONDS)
                there = self.judge.of("plain", scheduler)
                if len(there) >= _PLAIN and there[0]["spec"].get("nodeName"):
                    await self.delete(there[0])
                    there = there[1:]
                if len(there) < _PLAIN:
                    self.done["plain pods"] += await self.create("plain", scheduler, "plain")

        return plain

    async def create(
        self, namespace: str, scheduler: str, name: str, *, cpu: str = "1", **spec: Any
    ) -> bool:
        """Create a pod for the nodes of a scheduler."""
        pod = make_pod(
            f"{name}-{self.next_number()}",
            cpu=cpu,
            namespace=namespace,
            scheduler_name=scheduler,
            nodeSelector={"pool": scheduler},
            **spec,
        )
        del pod["metadata"]["uid"]
        path = f"/api/v1/namespaces/{namespace}/pods"
        status, _ = await self.server.ask("POST", path, pod)
        return status == 201

    async def delete(self, pod: JsonObject) -> None:
        """Delete a pod at once."""
        metadata = pod["metadata"]
        self.judge.deleted.add(metadata["uid"])
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        await self.server.ask("DELETE", f"{path}?gracePeriodSeconds=0")

    async def _gangs(self) -> None:
        """A group of twelve comes and goes, for each scheduler in turn."""
        for scheduler in cycle(SCHEDULERS):
            await asyncio.sleep(60 * self._scale)
            await self._gang(scheduler)

    async def _gang(self, scheduler: str, while_bound: Callable[[], None] | None = None) -> None:
        """Twelve pods; all are bound, and go. `while_bound` is called when the first one is."""
        async with self._quiet:
            name, called = f"g{self.next_number()}", False

            def on_bound(pod: JsonObject) -> None:
                nonlocal called
                if while_bound is None or called or not pod["metadata"]["name"].startswith(name):
                    return
                called = True
                while_bound()

            self.judge.on_bound.append(on_bound)
            try:
                await self._until_clear()
                group = {**make_group(name, _GANG), "kind": "PodGroup"}
                group["metadata"] = {"name": name, "namespace": "gangs"}
                await self.server.ask("POST", f"{_GROUPS}/gangs/podgroups", group)
                for _ in range(_GANG):
                    named = {"podGroupName": name}
                    await self.create("gangs", scheduler, name, schedulingGroup=named)

                async def all_bound() -> bool:
                    there = self.judge.of("gangs", scheduler)
                    return len(there) == _GANG and all(p["spec"].get("nodeName") for p in there)

                await self._until_bound(all_bound, name)
                self.done["groups of twelve"] += 1
                if while_bound is not None and not called:
                    self._wrong(f"no member of {name} was seen to be bound")
            finally:
                self.judge.on_bound.remove(on_bound)
                await self._until_clear()

    async def _until_bound(self, bound: Callable[[], Awaitable[bool]], name: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not await bound():  # noqa: ASYNC110 any condition
                    await asyncio.sleep(0.1)
        except TimeoutError:
            there = [p for p in self.judge.pods.values() if p["metadata"]["namespace"] == "gangs"]
            nodes = sum(bool(p["spec"].get("nodeName")) for p in there)
            self._wrong(f"{nodes} of {len(there)} members of {name} are bound")

    async def _until_clear(self) -> None:
        """Delete every group there is, and its pods."""
        for pod in list(self.judge.pods.values()):
            if pod["metadata"]["namespace"] == "gangs":
                await self.delete(pod)
        _, groups = await self.server.ask("GET", f"{_GROUPS}/gangs/podgroups")
        for each in (groups or {}).get("items", ()):
            path = f"{_GROUPS}/gangs/podgroups/{each['metadata']['name']}"
            await self.server.ask("DELETE", path)

    # What goes wrong.

    def _leader(self) -> Kept | None:
        acquired = "successfully acquired"
        leads = (each for each in self.leads if each.is_alive and acquired in each.said())
        return next(leads, None)

    async def _kill(self) -> None:
        """SIGKILL of the leader: while nothing happens, and while a group is bound in part."""
        for number in range(1 << 30):
            await asyncio.sleep(300 * self._scale)
            if (leader := self._leader()) is None:
                self._say("nobody leads, so that nobody is killed")
                continue
            if number % 2:
                await self._gang(HELD, while_bound=lambda: self._strike(self._leader()))
            else:
                async with self._quiet:
                    leader.send(signal.SIGKILL)
                self.done["killed while idle"] += 1

    def _strike(self, leader: Kept | None) -> None:
        if leader is not None:
            leader.send(signal.SIGKILL)
            self.done["killed between bindings"] += 1
            asyncio.get_running_loop().call_later(1, self._note_partly)

    def _note_partly(self) -> None:
        there = self.judge.of("gangs", HELD)
        self._partly.append(sum(bool(pod["spec"].get("nodeName")) for pod in there))

    async def _tend(self) -> None:
        """Start again what has ended; what nobody ended is wrong."""
        while True:
            await asyncio.sleep(1)
            for each in (self.own, self.page, *self.leads):
                if each.is_alive:
                    continue
                assert each.process is not None
                status = each.process.returncode or 0
                if lost_lease(status, each.said()):
                    self.done["leases lost"] += 1
                is_right = each.life.is_right(status, each.said())
                if status == UNREACHABLE and self._was_down(each.began):
                    self.done["starts beside an API server that was down"] += 1
                elif not is_right:
                    self._wrong(f"{each.name} ended with {status}: {each.said()[-600:]}")
                await each.begin()

    async def _restart(self) -> None:
        """Twice the API server comes back with older data.

        The first time they are a copy of files that were being written, the second time those of a
        server that ended in order, so that versions do not skip.
        """
        data, copy = self._directory / "data", self._directory / "older"
        older = _SECONDS_OLDER * self._scale
        for number, share in enumerate(_OLDER_SHARES):
            await asyncio.sleep(max(0.0, share * self.seconds - older - self._now))
            async with self._quiet:
                shutil.rmtree(copy, ignore_errors=True)
                if number:
                    await self._down()
                    shutil.copytree(data, copy)
                    await self._up()
                else:
                    shutil.copytree(data, copy)
            before = {uid for uid, pod in self.judge.pods.items() if pod["spec"].get("nodeName")}
            await asyncio.sleep(max(0.0, share * self.seconds - self._now))
            async with self._quiet:
                await self._down(*([] if number else [signal.SIGKILL]))
                self.judge.rewound = True
                shutil.rmtree(data)
                copy.rename(data)
                await self._up()
            gone = len(before - set(self.judge.pods))
            self.done["restarted with older data"] += 1
            self._say(f"the API server has data of {older:.0f} s ago; {gone} pods had gone since")
        # It has begun with an empty history of changes, which it keeps 65,536 of for each kind.
        await self._fill()
        await asyncio.sleep(self.seconds)

    def _was_down(self, since: float) -> bool:
        """Whether the API server did not answer at some time since that moment."""
        return not self.server.up.is_set() or self._up_at > since

    async def _down(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.server.up.clear()
        await self.api.end(number)

    async def _up(self) -> None:
        await self.api.begin()
        await self._until(self._api_answers, _UP_SECONDS)
        self._up_at = self.judge.up_at = time.monotonic()
        self.server.up.set()

    # Hostile clients.

    async def _odd(self) -> None:
        """Connections as no client opens them, at each port in turn, a few dozen at once."""
        held: set[asyncio.Task[None]] = set()
        kinds = cycle(_ODD)
        try:
            while True:
                await asyncio.sleep(_ODD_SECONDS)
                kind = next(kinds)
                for port in self._ports.values():
                    if len(held) < _HELD_OPEN:
                        held.add(task := asyncio.create_task(_odd_peer(port, kind)))
                        task.add_done_callback(held.discard)
                        self.done["odd connections"] += 1
        finally:
            for task in held:
                task.cancel()

    async def _ask(self) -> None:
        """What-if bodies of the hostile shapes, at the operator's port."""
        token = (self._directory / "asker.token").read_text("utf-8")
        bodies = [orjson.dumps(each) for each in (*eight_bodies(), *questions().values())]
        bodies = [body for body in bodies if len(body) <= _LARGEST_BODY]
        self._random.shuffle(bodies)
        leader_port = LimitedPort(0, tls=True, live="/livez")
        for number, body in enumerate(cycle(bodies)):
            await asyncio.sleep(_ASKED_SECONDS)
            port = self._ports["operator"]
            if number % 4 == 3 and (leader := self._leader()) is not None:
                leader_port.number = int(leader.arguments[4].rpartition(":")[2])
                port = leader_port
            asked = port.get("/what-if", token, method="POST", body=body)
            began = time.monotonic()
            with contextlib.suppress(OSError, TimeoutError):
                status = (await port.answer(asked, "127.0.0.9"))[9:12].decode()
                self.done[f"what-if {status}"] += 1
                answers = {"200", "400", "413", "422", "429"}
                if self._was_down(began):
                    answers.add("503")  # nobody says whose token it is
                if port is leader_port:
                    answers.add("")  # it was killed, or lost its lease
                if status not in answers:
                    self._wrong(f"what-if was answered with {status!r}")

    async def _probe(self) -> None:
        """The probes of others, beside all that."""
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            for name, port in self._ports.items():
                if name == "API server" and not self.server.up.is_set():
                    continue
                began = time.monotonic()
                try:
                    answer = await port.answer(port.get(port.live), "127.0.0.2")
                except OSError:
                    answer = b""
                # The page asks for its key before all else.
                if answer[9:12] in {b"200", b"403"}:
                    self._probes[name].append(time.monotonic() - began)
                elif name != "API server":
                    self._wrong(f"{name} was not live: {answer[:80]!r}")

    async def _look(self) -> None:
        """A browser with the page's key looks at it."""
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            origin = self._page_url().partition("/?")[0]
            async with session.get(self._page_url()) as answer:
                assert answer.status == 200
            for path in cycle(("/", "/queue", "/nodes", "/decisions", "/profiles")):
                await asyncio.sleep(15)
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(origin + path) as answer:
                        await answer.read()
                        self.done[f"looked at the page: {answer.status}"] += 1

    async def _expire_events(self) -> None:
        """Events go, as after an hour, so that their number is the same all along."""
        while True:
            await asyncio.sleep(_EVENTS_SECONDS)
            for namespace in ("plain", "gangs", "hostile"):
                await self.server.ask("DELETE", _EVENTS_OF.format(namespace))

    # What is found.

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(180 * self._scale)
            async with self._quiet:
                if self.server.up.is_set():
                    await self.judge.audit()
                    await self._compare(self.own)

    async def _compare(self, kept: Kept) -> None:
        """The operator compares its cache with the API, until they are the same."""
        found = "it did not answer"
        for _ in range(20):
            before = len(_COMPARED.findall(kept.said()))
            kept.send(signal.SIGUSR2)
            for _ in range(25):
                await asyncio.sleep(0.2)
                said = _COMPARED.findall(kept.said())
                if len(said) > before:
                    found = said[-1]
                    break
            if found == "no discrepancies":
                self.done["caches compared"] += 1
                return
        self._wrong(f"the cache of the {kept.name} differs: {found}")

    async def _come_to_rest(self) -> None:
        """Whatever was created is bound, and every cache is as the API."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while self.judge.waits_long(0):  # noqa: ASYNC110 any condition
                    await asyncio.sleep(0.5)
        for each in self.judge.waits_long(0):
            self._wrong(f"lost: {each}")
        await self.judge.audit()
        await self._compare(self.own)

        async def is_led() -> bool:
            return self._leader() is not None

        await self._until(is_led)
        if (leader := self._leader()) is not None:
            await self._compare(leader)

    async def _sample(self) -> None:
        while True:
            shown = [f"{each.name} {each.sample(self._now):.1f}" for each in self.kept]
            bound = sum(self.judge.bound.values())
            pods, wrong = len(self.judge.pods), len(self._wrongs)
            self._say(f"MiB: {', '.join(shown)}; {bound} bound, {pods} pods, {wrong} wrong")
            await asyncio.sleep(_SAMPLE_SECONDS * self._scale)

    def _tell(self) -> None:
        """Print what was measured, and hold memory to its bound."""
        for each in (self.api, self.own, self.page):
            half = self.seconds / 2
            first = max(half, each.resident[0][0] + self.seconds / 12)
            span = self.seconds / 12
            begin = [mib for at, mib in each.resident if first <= at < first + span] or [0.0]
            end = [mib for at, mib in each.resident if at >= self.seconds - span]
            end = end or [each.resident[-1][1]]
            grown = statistics.median(end) - statistics.median(begin)
            series = " ".join(f"{mib:.0f}" for at, mib in each.resident if at >= first)
            self._say(
                f"RSS of {each.name}: from minute {first / 60:.0f} on, median of the first "
                f"{span / 60:.0f} minutes {statistics.median(begin):.1f} MiB, of the last "
                f"{statistics.median(end):.1f}: {grown:+.1f} ({series})"
            )
            if grown > KEPT_MIB and self.seconds >= _MEASURED_SECONDS:
                self._wrong(f"{each.name} grew by {grown:.1f} MiB")
        for name, waits in self._probes.items():
            self._say(f"probe of {name}: {_shares(waits)}")
        for kind, waits in self.judge.waits.items():
            self._say(f"created to bound, {kind}: {len(waits)} pods, {_shares(waits)}")
        cpu = sum(each.cpu_seconds for each in self.kept)
        peers = time.process_time() - self._own_seconds
        self._say(
            f"processor: {100 * cpu / self._now:.1f} % of a core by all processes, and "
            f"{100 * peers / self._now:.1f} % by the peers"
        )
        done = ", ".join(f"{name}: {times}" for name, times in sorted(self.done.items()))
        self._say(f"{done}, audits: {self.judge.audits}")
        self._say(f"of twelve members, bound when the leader was killed between: {self._partly}")


_EVENTS_OF: Final = "/apis/events.k8s.io/v1/namespaces/{}/events"
_GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces"


def _shares(waits: list[float]) -> str:
    ordered = sorted(waits)
    shown = [ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99)]
    return f"median {shown[0]:.3f} s, 99 % {shown[1]:.3f} s, worst {ordered[-1]:.3f} s"


_ODD: Final = (
    *("slow headers", "headers without end", "idle", "half a handshake", "pipelined"),
    *("method", "no path", "body", "slow body"),
)


async def _odd_peer(port: LimitedPort, kind: str) -> None:
    """One connection, until it is closed or a minute is over."""
    with contextlib.suppress(OSError, TimeoutError):
        reader, writer = await port.connect("127.0.1.1", handshake=kind != "half a handshake")
        slowly = asyncio.create_task(_write_slowly(writer, _pieces(port, kind)))
        try:
            async with asyncio.timeout(60):
                await reader.read()
        finally:
            slowly.cancel()
            port.abort(writer)


async def _write_slowly(writer: asyncio.StreamWriter, pieces: list[bytes]) -> None:
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(1)


def _pieces(port: LimitedPort, kind: str) -> list[bytes]:
    """What a peer writes, a second between two pieces."""
    whole = port.get(port.live).replace(b"Connection: close\r\n", b"")
    body = b"POST /what-if HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return {
        "slow headers": [bytes([byte]) for byte in whole],
        "headers without end": [whole[:-2] + (b"X-Y: " + b"y" * 8000 + b"\r\n") * 60],
        "idle": [],
        "half a handshake": [b"\x16\x03\x01\x02\x00\x01\x00"],
        "pipelined": [whole * 20],
        "method": [b"BREW " + whole[4:] + b"OPTIONS * HTTP/1.1\r\n\r\n"],
        "no path": [b"CONNECT /x HTTP/1.1\r\n\r\n"],
        "body": [body % 100_000_000 + b"{" * 100_000],
        "slow body": [body % 60, *[b"["] * 60],
    }[kind]


class Hostile:
    """What one tenant does to be in the others' way; the number of its objects stays the same."""

    def __init__(self, soak: Soak, scheduler: str) -> None:
        self._soak, self._scheduler = soak, scheduler

    async def unschedulable(self) -> None:
        """Pods that fit nowhere come and go, and their labels and annotations change."""
        soak = self._soak
        for number in range(1 << 30):
            await asyncio.sleep(_HOSTILE_SECONDS)
            there = soak.judge.of("hostile", self._scheduler)
            waiting = [pod for pod in there if pod["metadata"]["name"].startswith("u-")]
            tolerations = [{"key": f"k{number % 100}", "operator": "Exists"}]
            if len(waiting) < _UNSCHEDULABLE:
                for _ in range(5):
                    await soak.create(
                        "hostile", self._scheduler, "u", cpu="1000", tolerations=tolerations
                    )
                continue
            if number % 4 == 0:
                await soak.delete(waiting[0])
            metadata = waiting[number % len(waiting)]["metadata"]
            labels = {"changed": str(number % 7)}
            changed = {"annotations": {"changed": str(number)}, "labels": labels}
            path = f"/api/v1/namespaces/hostile/pods/{metadata['name']}"
            status, _ = await soak.server.ask("PATCH", path, {"metadata": changed})
            soak.done["changes of the hostile tenant"] += status == 200

    async def groups(self) -> None:
        """Groups that ask for every node, or two, and for room, are made again and again."""
        soak, scheduler = self._soak, self._scheduler
        prefix = f"h{scheduler[0]}"
        for size in cycle((NODES + 1, 2)):
            for pod in soak.judge.of("hostile", scheduler):
                if pod["metadata"]["name"].startswith(prefix):
                    await soak.delete(pod)
            _, found = await soak.server.ask("GET", f"{_GROUPS}/hostile/podgroups")
            for each in (found or {}).get("items", ()):
                if each["metadata"]["name"].startswith(prefix):
                    path = f"{_GROUPS}/hostile/podgroups/{each['metadata']['name']}"
                    await soak.server.ask("DELETE", path)
            name = f"{prefix}{soak.next_number()}"
            group = make_group(name, size, {"scheduling.stellwerk.dev/reserves-room": "true"})
            group["metadata"] |= {"namespace": "hostile"}
            del group["metadata"]["uid"]
            await soak.server.ask("POST", f"{_GROUPS}/hostile/podgroups", group)
            for _ in range(size):
                named = {"podGroupName": name}
                await soak.create("hostile", scheduler, name, cpu="4", schedulingGroup=named)
            soak.done["groups of the hostile tenant"] += 1
            await asyncio.sleep(_GROUPS_SECONDS)

    async def claims(self) -> None:
        """A pod whose claim is searched for with an expression as dear as it may be."""
        soak, scheduler = self._soak, self._scheduler
        prefix, claims = "c", "/apis/resource.k8s.io/v1/namespaces/hostile/resourceclaims"
        while True:
            for pod in soak.judge.of("hostile", scheduler):
                if pod["metadata"]["name"].startswith(f"{prefix}-"):
                    await soak.delete(pod)
            name = f"{prefix}-{scheduler}"
            await soak.server.ask("DELETE", f"{claims}/{name}")
            asked = claim(name, request(**selecting(_DEAR)))
            asked["metadata"] = {"name": name, "namespace": "hostile"}
            await soak.server.ask("POST", claims, asked)
            named = [{"name": "c", "resourceClaimName": name}]
            await soak.create("hostile", scheduler, prefix, resourceClaims=named)
            soak.done["dear claims"] += 1
            await asyncio.sleep(_CLAIM_SECONDS)


async def stand(minutes: float, seed: int, directory: Path) -> list[str]:
    """Live through so many minutes; everything that was wrong."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await Soak(minutes, seed, directory).run()


def main() -> int:
    """Run for so long; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(_SEEDS))
    parser.add_argument("--directory", type=Path, help="for logs and data, which stay there")
    given = parser.parse_args()
    # A peer that is refused while it writes is what is meant.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        wrongs = asyncio.run(stand(given.minutes, given.seed, given.directory or Path(directory)))
    print(f"seed {given.seed}, {given.minutes:g} minutes: {len(wrongs)} wrong", flush=True)
    return int(bool(wrongs))


if __name__ == "__main__":
    sys.exit(main())
