"""Five tenants on one cluster, one of them hostile, and how long the pods of the others wait.

In time that is skipped, in which what this process computes passes, too, counted in calls of
functions: a wait is what was computed before it, and the same on every machine, however busy.
Invariant: the four create the same pods at the same moments, with the hostile one and without.
"""

import asyncio
import cProfile
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from typing_extensions import override

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.device_cases import DRIVER, claim, request, selecting
from tests.support.in_process import InProcess, make_profile, running
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

TENANTS: Final = tuple(f"tenant-{number}" for number in range(4))
HOSTILE: Final = "default"
EVERY_SECONDS: Final = 0.097
"""Each tenant creates a pod so often; not always when the scheduler's own timers are due."""
_CHANGES_A_SECOND: Final = 50
_PODS_A_SECOND: Final = 500
_PREEMPTORS_A_SECOND: Final = 5
_WARM_SECONDS: Final = 1.0
"""Before, what is done for the first time takes longer."""
_GROUPS: Final = 10
_GROUP_SECONDS: Final = 10.0
_KEEPS: Final = {"scheduling.stellwerk.dev/reserves-room": "true"}
CALL_SECONDS: Final = 150e-9
"""The CPU time of one call or return: 140 to 170 ns, measured without counting."""
API_SECONDS: Final = 0.002
"""From a write to its event, and to its answer: from creating a pod to binding it took 4.4 ms over
loopback at least, and 17 in the median, with nothing else to do."""
HOSTILE_NODES: Final = 0.1
"""The part of the nodes that is granted to each namespace."""


class WorkingClock(VirtualClock):
    """A clock that also goes while this thread computes, but for what a test prepares."""

    def __init__(self, calls: Callable[[], int]) -> None:
        """`calls` tells how many functions have been called and left, since any time."""
        super().__init__()
        self._calls = calls
        self._left_out = calls()

    @override
    def monotonic(self) -> float:
        return super().monotonic() + CALL_SECONDS * (self._calls() - self._left_out)

    @override
    def now(self) -> datetime:
        return VirtualClock().now() + timedelta(seconds=self.monotonic())

    @contextmanager
    def standing(self) -> Iterator[None]:
        """No time passes: what the API server does elsewhere."""
        began = self._calls()
        try:
            yield
        finally:
            self._left_out += self._calls() - began


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """The number of calls and returns in this thread, of Python's functions and of C's."""
    # A profiler asks its timer at each of them: counting there costs no frame of Python.
    count = itertools.count().__next__
    profiler = cProfile.Profile(timer=count)
    profiler.enable()
    try:
        yield count
    finally:
        profiler.disable()


@dataclass
class Waits:
    """What became of the pods of the four."""

    seconds: list[float] = field(default_factory=list)
    """From when a pod was to be created to its binding."""
    unbound: int = 0
    kept_nodes: int = 0
    """The most nodes that were kept for the hostile one at a time."""

    def share(self, part: float) -> float:
        """The wait that this part of the pods did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def waits(seconds: float, *, nodes: int, pods: int) -> Waits:
    """The waits of the four in so many seconds beside a hostile one with so many pods; 0: alone."""
    with counted_calls() as calls:
        clock = WorkingClock(calls)
        return run_skipping(lambda _: _play(clock, seconds, nodes, pods), clock)


async def _play(clock: WorkingClock, seconds: float, nodes: int, pods: int) -> Waits:
    found = Waits()
    room = {"maxNodes": "10%", "maxSeconds": 30, "cooldownSeconds": 60}
    args = [{"name": "GangScheduling", "args": {"reservation": room}}]
    async with running(clock) as world:
        bound: dict[str, float] = {}
        bind, report = world.client.bind, world.client.patch_pod_status

        async def noted(namespace: str, name: str, uid: str, node_name: str) -> None:
            bound[name] = clock.monotonic() + API_SECONDS
            await asyncio.sleep(API_SECONDS)
            await bind(namespace, name, uid, node_name)

        async def answered(*args: Any, **options: Any) -> None:
            await asyncio.sleep(API_SECONDS)
            await report(*args, **options)

        world.client.bind = noted  # type: ignore[method-assign]
        world.client.patch_pod_status = answered  # type: ignore[method-assign]
        with clock.standing():
            world.apply(make_profile("stellwerk", gangScheduling=True, pluginConfig=args))
            world.apply(*(make_node(f"n{n}", cpu="64", pods="5000") for n in range(nodes)))
            for n in range(nodes):
                for name, priority in ((f"r{n}", -1), (f"b{n}", 0)):
                    pod = make_pod(name, cpu="1", node_name=f"n{n}", priority=priority)
                    pod["spec"]["activeDeadlineSeconds"] = 20
                    world.apply(pod)
        hostile = Hostile(world, clock, nodes)
        tasks = [asyncio.create_task(each) for each in hostile.acts(pods)] if pods else []
        created: dict[str, float] = {}

        def create(number: int, due: float) -> None:
            for tenant in TENANTS:
                name = f"{tenant}-{number}"
                with clock.standing():
                    pod = make_pod(name, namespace=tenant, cpu="10m", scheduler_name="stellwerk")
                created[name] = due
                world.apply(pod)
            nominated = world.operator.world.nominator.by_node
            found.kept_nodes = max(found.kept_nodes, sum(map(bool, nominated.values())))

        loop, began = asyncio.get_running_loop(), clock.monotonic()
        for number in range(int(seconds / EVERY_SECONDS)):
            due = began + number * EVERY_SECONDS
            # As the loop calls what reads a socket: an event has no task of its own.
            loop.call_at(due + API_SECONDS, create, number, due)
        await asyncio.sleep(seconds + 5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        found.unbound = len(created.keys() - bound.keys())
        measured = {name: at for name, at in created.items() if at >= began + _WARM_SECONDS}
        found.seconds = [bound[name] - at for name, at in measured.items() if name in bound]
    return found


_CLAIMS: Final = 10
_DEVICES: Final = 128
_DEAR: Final = (
    f"{list(range(90))}.all(x, {list(range(90))}.exists(y, x == y)) && device.driver == 'none'"
)
"""About a million steps short of the limit of one expression."""


def _devices() -> list[JsonObject]:
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(_DEVICES)]
    spec = {"driver": DRIVER, "nodeName": "n0", "pool": pool, "devices": devices}
    version = {"apiVersion": "resource.k8s.io/v1"}
    return [
        {**version, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {**version, "kind": "ResourceSlice", "metadata": {"name": "n0"}, "spec": spec},
    ]


class Hostile:
    """What one tenant does to be in the others' way."""

    def __init__(self, world: InProcess, clock: WorkingClock, nodes: int) -> None:
        self._world, self._clock, self._nodes = world, clock, nodes
        self._waiting: list[JsonObject] = []

    def acts(self, pods: int) -> list[Any]:
        return [
            self.unschedulable(pods),
            self.flap(),
            self.make_groups_anew(),
            self.claim(),
            self.preempt(),
        ]

    async def claim(self) -> None:
        """Pods whose claims are searched for with expressions as dear as they may be."""
        with self._clock.standing():
            self._world.apply(*_devices())
        for number in range(_CLAIMS):
            with self._clock.standing():
                asked = claim(f"c{number}", request(**selecting(_DEAR)))
                named = [{"name": "c", "resourceClaimName": f"c{number}"}]
                pod = make_pod(f"c{number}", scheduler_name="stellwerk", resourceClaims=named)
            self._world.apply(
                {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **asked}
            )
            self._world.apply(pod)
            await asyncio.sleep(1)

    async def preempt(self) -> None:
        """Pods, each of a kind of its own, for which victims are searched on every node in vain."""
        number = 0
        while True:
            await asyncio.sleep(1 / _PREEMPTORS_A_SECOND)
            number += 1
            with self._clock.standing():
                cpu = f"{63_500 + number % 400}m"
                pod = make_pod(f"v{number}", cpu=cpu, scheduler_name="stellwerk")
            self._world.apply(pod)

    async def unschedulable(self, pods: int) -> None:
        """Pods that fit nowhere, of a hundred kinds."""
        for number in range(pods):
            await asyncio.sleep(1 / _PODS_A_SECOND)
            with self._clock.standing():
                pod = make_pod(
                    f"u{number}",
                    cpu="1000",
                    scheduler_name="stellwerk",
                    tolerations=[{"key": f"k{number % 100}", "operator": "Exists"}],
                )
                self._waiting.append(pod)
            self._world.apply(pod)

    async def flap(self) -> None:
        """Annotations and labels of what waits change all the time."""
        number = 0
        while True:
            await asyncio.sleep(1 / _CHANGES_A_SECOND)
            number += 1
            if not self._waiting:
                continue
            with self._clock.standing():
                name = self._waiting[number % len(self._waiting)]["metadata"]["name"]
                old = self._world.pod(name)
                metadata = {
                    **old["metadata"],
                    "annotations": {"changed": str(number)},
                    "labels": {"changed": str(number % 7)},
                }
                new = {**old, "metadata": metadata}
            self._world.apply(new)
            if number % 5 == 0:
                with self._clock.standing():
                    size = 2 + number % 3
                    group = make_group(f"flapping-{number % 3}", size, _KEEPS)
                self._world.apply(group)
                if number < 5 * 4:
                    for member in range(size):
                        pod = make_member(
                            f"flapping-{number % 3}-{member}", f"flapping-{number % 3}", cpu="60"
                        )
                        self._world.apply(pod)

    def _size(self, name: str) -> int:
        """The first group and every other one ask for few nodes, which may be granted."""
        return self._nodes if int(name.rpartition("-")[2]) % 2 else 2

    async def make_groups_anew(self) -> None:
        """Groups that ask for every node, and for room, again and again."""
        made: list[str] = []
        turn = 0
        while True:
            for name in made:
                self._world.delete("PodGroup", name)
                for member in range(self._size(name)):
                    await asyncio.sleep(1 / _PODS_A_SECOND)
                    self._world.delete("Pod", f"{name}-{member}")
            made = [f"group-{turn}-{number}" for number in range(_GROUPS)]
            for name in made:
                with self._clock.standing():
                    objects = [
                        make_group(name, self._size(name), _KEEPS),
                        *(
                            make_member(f"{name}-{member}", name, cpu="64")
                            for member in range(self._size(name))
                        ),
                    ]
                for obj in objects:
                    await asyncio.sleep(1 / _PODS_A_SECOND)
                    self._world.apply(obj)
            turn += 1
            await asyncio.sleep(_GROUP_SECONDS)
