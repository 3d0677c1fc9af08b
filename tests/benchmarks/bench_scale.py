"""`python -m tests.benchmarks.bench_scale`: a whole operator in process with very many nodes, pods.

Nodes and bound pods come as the streams of lists, or with --pages as their pages, and as bytes, as
from the API server; decisions are made by the scheduling coroutine and bound by a client that
confirms them at once. Prints where memory goes, CPU time until everything is listed, decisions a
second of CPU time, the longest step of the event loop in each part, events of the watch a second of
CPU time, and what events that concern much of the cluster cost.
"""

import argparse
import asyncio
import json
import resource
import statistics
import time
from asyncio.events import Handle
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import orjson
from typing_extensions import override

from stellwerk.app import RunOptions
from stellwerk.framework.services import Recorder
from stellwerk.garbage import collect_seldom
from stellwerk.handlers.delivery import MAX_EVENTS_PER_SLICE, Delivery
from stellwerk.handlers.reflector import Reflector, StreamRefused
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import ObjectReference
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST
from stellwerk.wiring import Operator
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import KINDS, posted_pod
from tests.benchmarks.workloads import NAMESPACE_PODS, listed_node, listed_pod, namespace
from tests.support.memory_client import MemoryClient

PENDING: Final = 100_000
_WATCHED: Final = 10_000
"""Events of a kind, at the most."""
_MIB: Final = 1 << 20


# --- the operator and what it is told -------------------------------------------------------------


class _Silent(Recorder):
    """A Recorder that keeps nothing."""

    @override
    def event(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporting_controller: str,
        related: ObjectReference | None = None,
    ) -> None:
        pass


class _Server(MemoryClient):
    """Lists made-up nodes and pods as bytes, and confirms what is bound."""

    def __init__(self, nodes: int, pods: int, kind: str, *, streams: bool) -> None:
        super().__init__()
        self.streams = streams
        self.items: Mapping[str, tuple[int, Callable[[int], JsonObject]]] = {
            "/api/v1/nodes": (nodes, listed_node),
            "/api/v1/pods": (pods, lambda index: listed_pod(index, nodes, kind)),
        }
        self.making_seconds = 0.0
        """CPU time that making objects has taken, which is no work of the operator's."""
        self.pending: dict[str, bytes] = {}
        """Pods to be bound as JSON, with a gap for the node, by name."""
        self.on_pod: Callable[[str, JsonObject], None] = lambda *_: None
        self.bound = 0
        self.version = 10_000_000

    @override
    async def get(self, path: str) -> JsonObject:
        collection, _, query = path.partition("?")
        if not query:
            return _profile()
        started = time.process_time()
        count, make = self.items[collection]
        asked = dict(part.split("=") for part in query.split("&"))
        begin = int(asked.get("continue", "0"))
        end = min(count, begin + int(asked["limit"]))
        kind = "NodeList" if collection.endswith("nodes") else "PodList"
        page = orjson.dumps(
            {
                "kind": kind,
                "metadata": {"resourceVersion": "9", "continue": str(end) if end < count else ""},
                "items": [make(index) for index in range(begin, end)],
            }
        )
        self.making_seconds += time.process_time() - started
        await asyncio.sleep(0)
        answer: JsonObject = orjson.loads(page)
        return answer

    def watch(
        self, collection: str, since: str | None
    ) -> AbstractAsyncContextManager[AsyncIterator[JsonObject]]:
        """Open the stream of a collection."""
        return aclosing(self._events(collection, since))

    async def _events(self, collection: str, since: str | None) -> AsyncGenerator[JsonObject, None]:
        """The events that list a collection; the watch that follows them ends at once."""
        if since is not None:
            return
        if not self.streams:
            raise StreamRefused(collection)
        count, make = self.items[collection]
        for index in range(count):
            started = time.process_time()
            line = orjson.dumps({"type": "ADDED", "object": make(index)})
            self.making_seconds += time.process_time() - started
            yield orjson.loads(line)
        annotations = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": "9", "annotations": annotations}
        yield {"type": "BOOKMARK", "object": {"metadata": metadata}}

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        await asyncio.sleep(0)
        self.version += 1
        line = self.pending.pop(name).replace(
            b'"nodeName":""', b'"nodeName":"%b"' % node_name.encode()
        )
        line = line.replace(b'"resourceVersion":"1"', b'"resourceVersion":"%d"' % self.version)
        self.bound += 1
        self.on_pod("MODIFIED", orjson.loads(line))

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        await asyncio.sleep(0)

    @override
    async def patch(
        self, path: str, body: Mapping[str, Any], *, content_type: str = ""
    ) -> JsonObject:
        await asyncio.sleep(0)
        return _profile()


class Steps:
    """CPU time of the longest step of the event loop, while installed."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self.longest = ""

    def taken(self) -> tuple[float, str]:
        """Milliseconds of the longest step since the last call, and which it was."""
        found = round(1000 * self.longest_seconds, 1), self.longest
        self.longest_seconds, self.longest = 0.0, ""
        return found

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Look at every callback of the loop."""
        run = Handle._run  # noqa: SLF001  (where every step begins)

        def timed(handle: Handle) -> None:
            callback: Any = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
            started = time.thread_time()
            run(handle)
            seconds = time.thread_time() - started
            if seconds > self.longest_seconds:
                owner = getattr(callback, "__self__", None)
                self.longest = owner.get_name() if isinstance(owner, asyncio.Task) else ""
                self.longest = self.longest or getattr(callback, "__qualname__", repr(callback))
                self.longest_seconds = seconds

        Handle._run = timed  # type: ignore[assignment,method-assign]  # noqa: SLF001
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster, and how much is asked of it."""

    nodes: int
    pods: int
    """Bound ones."""
    decisions: int
    """Of each workload."""
    streamed: bool = True
    """Whether streams list it, and not pages."""


class Cluster:
    """An operator that has listed a cluster of some size."""

    def __init__(self, size: Size, kind: str = "basic") -> None:
        """`kind` is the workload of the pods that are bound already."""
        self.size = size
        self.server = _Server(size.nodes, size.pods, kind, streams=size.streamed)
        self.metrics = Metrics()
        self.operator = Operator(
            self.server, _Silent(), self.metrics, SystemClock(), RunOptions(), numbers=Random
        )
        self.deliveries = {
            watched.kind: Delivery(watched, self.operator.handlers, self.metrics, lambda *_: None)
            for watched in WATCHED
        }
        self.server.on_pod = self.deliveries["Pod"].deliver
        self.leading = asyncio.Event()
        self._pods = 0

    async def list(self, kind: str) -> None:
        """List a kind as the operator does."""
        delivery = self.deliveries[kind]
        stream = Reflector(delivery, self.server, self.metrics)
        await stream.run(partial(self.server.watch, delivery.watched.collection_path))

    def begin(self) -> asyncio.Task[None]:
        """Everything is listed: let the operator schedule."""
        self.deliveries["SchedulerProfile"].deliver("ADDED", _profile())
        for index in range(self.size.pods // NAMESPACE_PODS + 1):
            self.deliveries["Namespace"].deliver("ADDED", _namespace(index, "first"))
        for kind in self.deliveries:
            self.operator.handlers.on_synced(kind)
        self.leading.set()
        return asyncio.create_task(self.operator.schedule(self.leading), name="scheduling")

    async def add_pods(self, kind: str, count: int, **requests: str) -> None:
        """Pods without a node, in slices as they come in a watch."""
        for number in range(count):
            self._pods += 1
            pod = posted_pod(kind, self._pods)
            name = pod["metadata"]["name"]
            pod["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
            pod["spec"] |= {"nodeName": "", "priority": 0}
            pod["spec"]["containers"][0]["resources"]["requests"].update(requests)
            # What orjson gives holds on to room to spare, four times the size.
            self.server.pending[name] = bytes(memoryview(orjson.dumps(pod)))
            self.deliveries["Pod"].deliver("ADDED", orjson.loads(self.server.pending[name]))
            if number % MAX_EVENTS_PER_SLICE == MAX_EVENTS_PER_SLICE - 1:
                await asyncio.sleep(0)

    async def bind_pods(self, kind: str, count: int) -> float:
        """Pods a second of CPU time, from the event that shows one to that which confirms it."""
        bound = self.server.bound + count
        started = time.process_time()
        await self.add_pods(kind, count)
        while self.server.bound < bound:  # noqa: ASYNC110  (nothing else wakes it)
            await asyncio.sleep(0.001)
        return count / (time.process_time() - started)

    async def deliver_changes(self, kind: str) -> float:
        """Events a second of CPU time, from bytes into cache and queue: conditions that change."""
        count, make = self.server.items["/api/v1/nodes" if kind == "Node" else "/api/v1/pods"]
        chosen = Random(0).sample(range(count), min(count, _WATCHED))
        seconds = 0.0
        for begin in range(0, len(chosen), MAX_EVENTS_PER_SLICE):
            lines = [
                _changed(make(index)) for index in chosen[begin : begin + MAX_EVENTS_PER_SLICE]
            ]
            started = time.process_time()
            for line in lines:
                self.deliveries[kind].deliver("MODIFIED", orjson.loads(line))
            await asyncio.sleep(0)
            seconds += time.process_time() - started
        return len(chosen) / seconds


def _profile(**spec: Any) -> JsonObject:
    profile = orjson.loads(orjson.dumps(dict(DEFAULT_PROFILE_MANIFEST)))
    profile["metadata"] |= {"uid": "profile", "resourceVersion": str(len(spec) + 1)}
    profile["metadata"]["generation"] = len(spec) + 1
    profile["spec"] |= spec
    return cast("JsonObject", profile)


def _changed(obj: JsonObject) -> bytes:
    """An object with a condition more, as a watch tells of it."""
    obj["metadata"]["resourceVersion"] = "8000000"
    condition = {"type": "Seen", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    obj.setdefault("status", {}).setdefault("conditions", []).append(condition)
    return orjson.dumps(obj)


def _namespace(index: int, team: str) -> JsonObject:
    name = namespace(index * NAMESPACE_PODS)
    metadata = {"name": name, "uid": name, "labels": {"team": team}, "resourceVersion": team}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / _MIB


async def measure(size: Size, kinds: Sequence[str], *, events: bool) -> AsyncIterator[JsonObject]:
    """The figures of one cluster, part by part."""
    steps = Steps()
    with steps.measured():
        resident, cluster = _resident_mib(), Cluster(size)
        yield {"part": "start", "resident_mib": round(resident)}
        cpu_seconds = 0.0
        for kind, count in (("Node", size.nodes), ("Pod", size.pods)):
            started, made = time.process_time(), cluster.server.making_seconds
            await cluster.list(kind)
            seconds = time.process_time() - started - (cluster.server.making_seconds - made)
            cpu_seconds += seconds
            now = _resident_mib()
            yield {
                "part": f"list of {kind}",
                "objects": count,
                "cpu_s": round(seconds, 2),
                "bytes_each": round((now - resident) * _MIB / max(1, count)),
                "longest_step_ms": steps.taken(),
            }
            resident = now
        started = time.process_time()
        scheduling = cluster.begin()
        await cluster.bind_pods("basic", 1)
        cpu_seconds += time.process_time() - started
        yield {
            "part": "until the first pod is bound",
            "cpu_s": round(cpu_seconds, 2),
            "resident_mib": round(_resident_mib()),
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "longest_step_ms": steps.taken(),
        }
        rate = 0.0
        for kind in kinds:
            await cluster.bind_pods(kind, 50)  # what is made once for a kind
            first = steps.taken()
            rates = [await cluster.bind_pods(kind, size.decisions // 5) for _ in range(5)]
            yield {
                "part": f"decisions, {kind}",
                "per_s": round(statistics.median(rates)),
                "longest_step_ms": steps.taken(),
                "first_ms": first,
            }
            rate = rate or statistics.median(rates)
        for kind in ("Pod", "Node"):
            yield {
                "part": f"events of the watch, {kind}",
                "per_s": round(await cluster.deliver_changes(kind)),
            }
        steps.taken()  # those that made the events
        if events:
            async for figures in _events(cluster, rate, steps):
                yield figures
        yield {
            "part": "all",
            "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        scheduling.cancel()
        await asyncio.wait({scheduling})


async def _events(cluster: Cluster, rate: float, steps: Steps) -> AsyncIterator[JsonObject]:
    """Events that concern much of the cluster: the longest step, and pods a second beside them."""
    size = cluster.size
    count = max(100, size.decisions // 5)

    async def flap() -> None:
        node = listed_node(1)
        for number in range(20):
            node["metadata"]["resourceVersion"] = str(5_000_000 + number)
            taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
            node["spec"] = {"taints": [taint] if number % 2 == 0 else []}
            cluster.deliveries["Node"].deliver("MODIFIED", orjson.loads(orjson.dumps(node)))
            await asyncio.sleep(0.01)

    async def relabel() -> None:
        cluster.deliveries["Namespace"].deliver("MODIFIED", _namespace(0, "second"))

    async def edit() -> None:
        cluster.deliveries["SchedulerProfile"].deliver(
            "MODIFIED", _profile(percentageOfNodesToScore=100)
        )

    happenings = {
        "a node flaps 20 times": flap,
        f"a namespace with {min(size.pods, NAMESPACE_PODS):,} pods is relabelled": relabel,
        "a profile is edited": edit,
    }
    for title, happening in happenings.items():
        started = time.process_time()
        task = asyncio.create_task(happening(), name=title)
        beside = await cluster.bind_pods("basic", count)
        await task
        seconds = time.process_time() - started
        after = await cluster.bind_pods("basic", count)
        yield {
            "part": title,
            "cpu_s": round(seconds, 2),
            "beside": round(beside / rate, 2),
            "after": round(after / rate, 2),
            "longest_step_ms": steps.taken(),
        }
    queue, started = cluster.operator.world.queue, time.process_time()
    await cluster.add_pods("basic", PENDING, cpu="1000")
    while queue.pending()["unschedulable"] < PENDING:  # noqa: ASYNC110  (nothing else wakes it)
        await asyncio.sleep(0.01)
    seconds = time.process_time() - started
    after = await cluster.bind_pods("basic", count)
    yield {
        "part": f"{PENDING:,} pods pend",
        "cpu_s": round(seconds, 2),
        "beside": round(PENDING / seconds / rate, 2),
        "after": round(after / rate, 2),
        "longest_step_ms": steps.taken(),
    }


async def _print(size: Size, kinds: Sequence[str], *, events: bool) -> None:
    async for figures in measure(size, kinds, events=events):
        print(json.dumps(figures), flush=True)


def main() -> None:
    """Print one JSON line per part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--pods", type=int, default=500_000, help="already bound")
    parser.add_argument("--decisions", type=int, default=2000, help="of each workload")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: basic, spread")
    parser.add_argument("--pages", action="store_true", help="as of a server that streams no lists")
    parser.add_argument("--events", action="store_true", help="what happens to large clusters, too")
    options = parser.parse_args()
    size = Size(options.nodes, options.pods, options.decisions, streamed=not options.pages)
    kinds = options.kind or ["basic", "spread"]
    collect_seldom()
    asyncio.run(_print(size, kinds, events=options.events))


if __name__ == "__main__":
    main()
