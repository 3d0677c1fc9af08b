"""Devices through random histories with faults: nothing is held twice, nothing is overdrawn.

Pods of two profiles are decided while others are being bound; the API refuses, loses answers, and
shows what was written late. What claims hold is counted after every write, as the API has it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import APICall
from stellwerk.framework.offline import Offline, offline_services
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.profiles.spec.plugin_args import DynamicResourcesArgs
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import parse_quantity
from tests.support.builders import make_cache, make_node, make_pod
from tests.support.examples import examples

GROUP = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"
Write = Callable[[], JsonObject]


def _slice(name: str, pool: str, count: int, **spec: Any) -> JsonObject:
    pools = {"name": pool, "generation": 1, "resourceSliceCount": count}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pools, **spec}}


def _part(name: str, amount: int) -> JsonObject:
    counters = {"slices": {"value": str(amount)}}
    return {"name": name, "consumesCounters": [{"counterSet": "card", "counters": counters}]}


COUNTERS = {"slices": {"value": "4"}}
SLICES = [
    _slice("a", "a", 1, nodeName="a", devices=[{"name": "gpu-0"}, {"name": "gpu-1"}]),
    _slice("c1", "card", 2, nodeName="b", sharedCounters=[{"name": "card", "counters": COUNTERS}]),
    _slice(
        "c2", "card", 2, nodeName="b", devices=[_part("p0", 2), _part("p1", 2), _part("all", 4)]
    ),
    _slice(
        "n",
        "net",
        1,
        allNodes=True,
        devices=[
            {
                "name": "nic",
                "allowMultipleAllocations": True,
                "capacity": {"lanes": {"value": "3", "requestPolicy": {"default": "1"}}},
            }
        ],
    ),
]


class FaultyApi(Offline):
    """Claims with optimistic locking; writes fail, answers get lost, the watch is late."""

    def __init__(self, rng: Random, objects: IndexedObjectStore) -> None:
        self.claims: dict[str, JsonObject] = {}
        self.late: list[tuple[str, JsonObject]] = []
        """(kind of event, claim) that the watch has yet to show."""
        self._rng = rng
        self._objects = objects
        self._version = 0
        self.calm = False

    def show(self) -> None:
        """Let the watch show the next event."""
        if self.late:
            event, claim = self.late.pop(0)
            (self._objects.remove if event == "DELETED" else self._objects.set)(
                "ResourceClaim", claim
            )

    def put(self, claim: JsonObject) -> JsonObject:
        self._version += 1
        metadata = {**claim["metadata"], "resourceVersion": str(self._version)}
        stored = {**claim, "metadata": metadata}
        self.claims[metadata["name"]] = stored
        self.late.append(("MODIFIED", stored))
        self.check()
        return stored

    def remove(self, name: str) -> None:
        self.late.append(("DELETED", self.claims.pop(name)))

    @override
    async def get(self, path: str) -> JsonObject:
        await self._pause()
        return self._stored(path)

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        def write() -> JsonObject:
            stored = self._stored(path)
            if stored["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise Conflict("replace", 409, "Conflict", "modified")
            if path.endswith("/status"):
                return self.put({**stored, "status": body["status"]})
            return self.put({**body, "status": stored.get("status") or {}})

        return await self._faulty(write)

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        def write() -> JsonObject:
            stored = self._stored(path)
            gone = {each["uid"] for each in body["status"]["reservedFor"]}
            status = dict(stored.get("status") or {})
            left = [each for each in status.get("reservedFor") or () if each["uid"] not in gone]
            return self.put({**stored, "status": {**status, "reservedFor": left}})

        return await self._faulty(write)

    def _stored(self, path: str) -> JsonObject:
        name = path.removeprefix(f"{GROUP}/").removesuffix("/status")
        if name not in self.claims:
            raise NotFound("find", 404, "NotFound", name)
        return self.claims[name]

    async def _faulty(self, write: Write) -> JsonObject:
        await self._pause()
        chance = 1.0 if self.calm else self._rng.random()
        if chance < 0.1:
            raise Unavailable("write", None, "Timeout", "before it was written")
        if chance < 0.15:
            raise Forbidden("write", 403, "Forbidden", "not now")
        stored = write()
        await self._pause()
        if chance < 0.25:
            raise Unavailable("write", None, "Timeout", "after it was written")
        return stored

    async def _pause(self) -> None:
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)

    def check(self) -> None:
        """No device is held by two claims, no counter and no capacity is overdrawn."""
        whole: Counter[str] = Counter()
        lanes = Fraction(0)
        for claim in self.claims.values():
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                if "shareID" in result:
                    lanes += parse_quantity(result["consumedCapacity"]["lanes"])
                else:
                    whole[result["device"]] += 1
        assert all(times == 1 for times in whole.values()), whole
        assert whole["p0"] * 2 + whole["p1"] * 2 + whole["all"] * 4 <= 4, whole
        assert lanes <= 3, lanes


class History:
    """One random history."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.cache = make_cache([make_node("a"), make_node("b")])
        self.objects = IndexedObjectStore()
        self.api = FaultyApi(rng, self.objects)
        self.background: set[asyncio.Task[None]] = set()
        for each in SLICES:
            self.objects.set("ResourceSlice", each)
        self.objects.set("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}})
        self.plugins = [self._plugin(name) for name in ("first", "second")]

    def _plugin(self, profile: str) -> DynamicResources:
        services = offline_services(self.cache.snapshot, self.objects, Nominator(), self.rng)
        services = replace(services, client=self.api, write_later=self._start)
        return DynamicResources(ProfileHandle(services, profile), DynamicResourcesArgs())

    def _start(self, api_call: APICall) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(api_call.carry_out))
        self.background.add(task)

    async def _carry_out(self, write: Callable[[FaultyApi], Awaitable[None]]) -> None:
        for _ in range(50):
            try:
                await write(self.api)
            except Unavailable:
                await asyncio.sleep(0)
            except ApiError:
                return
            else:
                return

    async def run(self, pods: int) -> None:
        watch = asyncio.create_task(self._watch())
        await asyncio.gather(*(self._pod(number) for number in range(pods)))
        self.api.calm = True
        while self.background:
            await self.background.pop()
        watch.cancel()
        self.api.put({"metadata": {"name": "c99", "namespace": "default"}, "spec": {}})
        while self.api.late:
            self.api.show()
        last = self._parsed(99)
        for plugin in self.plugins:
            plugin.pre_filter(CycleState(), last, NodeView(self.cache.snapshot))
        assert list(self.objects.list("AllocationInFlight")) == [], "nothing stays in flight"

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            if self.rng.random() < 0.5:
                self.api.show()

    def _parsed(self, number: int) -> Any:
        reference = {"name": "c", "resourceClaimName": f"c{number}"}
        return parse_pod(make_pod(f"p{number}", uid=f"p{number}", resourceClaims=[reference]))

    async def _pod(self, number: int) -> None:
        name, pod = f"c{number}", self._parsed(number)
        exactly = {"deviceClassName": "gpu", "count": self.rng.choice((1, 1, 2))}
        requests = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        metadata = {"name": name, "namespace": "default", "uid": name}
        self.api.put({"metadata": metadata, "spec": requests, "status": {}})
        for _ in range(6):
            await self._some_time()
            if await self._attempt(self.rng.choice(self.plugins), pod):
                await self._some_time()
                if self.rng.random() < 0.5:
                    self._finish(name)
                return
        if self.rng.random() < 0.5 and name in self.api.claims:
            self.api.remove(name)

    def _finish(self, name: str) -> None:
        """The pod is over: its controller gives the devices back, perhaps with the claim."""
        claim = self.api.claims[name]
        if self.rng.random() < 0.5:
            self.api.put({**claim, "status": {}})
        else:
            self.api.remove(name)

    async def _attempt(self, plugin: DynamicResources, pod: Any) -> bool:
        state, nodes = CycleState(), NodeView(self.cache.snapshot)
        if not plugin.pre_filter(state, pod, nodes).status.ok:
            return False
        codes = plugin.filter(state, pod, nodes).codes
        fresh = self._plugin("fresh")
        fresh.pre_filter(state, pod, nodes)
        assert codes.tolist() == fresh.filter(state, pod, nodes).codes.tolist(), "kept answers"
        fitting = [row for row, code in enumerate(codes.tolist()) if code == 0]
        if not fitting:
            return False
        node_name = self.cache.snapshot.node_at(self.rng.choice(fitting)).name
        assert plugin.reserve(state, pod, node_name).ok, "what Filter finds can be reserved"
        await self._some_time()
        status = await plugin.pre_bind(state, pod, node_name)
        if status.ok and self.rng.random() < 0.8:
            return True
        plugin.unreserve(state, pod, node_name)
        return False

    async def _some_time(self) -> None:
        for _ in range(self.rng.randrange(12)):
            await asyncio.sleep(0)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 7))
def test_no_device_is_held_twice_and_nothing_is_overdrawn(seed: int, pods: int) -> None:
    asyncio.run(History(Random(seed)).run(pods))
