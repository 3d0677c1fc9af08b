"""Objects that ask for more than any cluster holds, and what each of them costs the operator.

CPU time of the loop's thread is measured, so that other work on the machine does not count.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from stellwerk.models.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running

MIB: Final = 1 << 20


def _affinity(kind: str, **fields: Any) -> dict[str, Any]:
    return {"affinity": {kind: fields}}


def _required_node_affinity(terms: list[JsonObject]) -> dict[str, Any]:
    return _affinity(
        "nodeAffinity",
        requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": terms},
    )


def _expression(key: str, operator: str, *values: str) -> JsonObject:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _pod_term(key: str, label: str) -> JsonObject:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": label}}}


OBJECTS: Final[dict[str, Callable[[], JsonObject]]] = {
    "3,000 node affinity terms Gt a number of 300 digits": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [
                {
                    "matchExpressions": [
                        _expression("kubernetes.io/hostname", "Gt", "9" * 299 + str(i))
                    ]
                }
                for i in range(3000)
            ]
        ),
    ),
    "8,000 node affinity terms": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [{"matchExpressions": [_expression(f"key-{i}", "Exists")]} for i in range(8000)]
        ),
    ),
    "8,000 values of one expression": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [
                {
                    "matchExpressions": [
                        _expression(
                            "kubernetes.io/hostname", "In", *(f"v-{i}" for i in range(8000))
                        )
                    ]
                }
            ]
        ),
    ),
    "8,000 preferred node affinity terms": lambda: make_pod(
        "p",
        **_affinity(
            "nodeAffinity",
            preferredDuringSchedulingIgnoredDuringExecution=[
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [_expression(f"key-{i}", "NotIn", "a")]},
                }
                for i in range(8000)
            ],
        ),
    ),
    "8,000 required pod anti-affinity terms with keys of their own": lambda: make_pod(
        "p",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term(f"key-{i}", "x") for i in range(8000)
            ],
        ),
    ),
    "8,000 pod affinity terms with selectors of their own": lambda: make_pod(
        "p",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term("kubernetes.io/hostname", f"x{i}") for i in range(8000)
            ],
        ),
    ),
    "3,000 soft spread constraints": lambda: make_pod(
        "p",
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": f"key-{i}",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": f"x{i}"}},
            }
            for i in range(3000)
        ],
    ),
    "20,000 nodeSelector entries": lambda: make_pod(
        "p", nodeSelector={f"key-{i}": "v" for i in range(20000)}
    ),
    "20,000 tolerations": lambda: make_pod(
        "p", tolerations=[{"key": f"key-{i}", "operator": "Exists"} for i in range(20000)]
    ),
    "1,000 invented extended resources": lambda: make_pod(
        "p", requests={f"example.com/r{i}": "1" for i in range(1000)}
    ),
    "1,000 invented extended resources, bound": lambda: make_pod(
        "p", node_name="n0", requests={f"example.com/r{i}": "1" for i in range(1000)}
    ),
    "8,000 anti-affinity terms with keys of their own, bound": lambda: make_pod(
        "p",
        node_name="n0",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term(f"key-{i}", "x") for i in range(8000)
            ],
        ),
    ),
    "660 node affinity terms Gt (just within the limit)": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [
                {"matchExpressions": [_expression("kubernetes.io/hostname", "Gt", str(i))]}
                for i in range(660)
            ]
        ),
    ),
    "1,990 nodeSelector entries (just within the limit)": lambda: make_pod(
        "p", nodeSelector={f"key-{i}": "v" for i in range(1990)}
    ),
    "150 soft spread constraints by hostname (just within the limit)": lambda: make_pod(
        "p",
        topologySpreadConstraints=[
            {
                "maxSkew": 1 + i,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": f"x{i}"}},
            }
            for i in range(150)
        ],
    ),
    "150 anti-affinity terms by hostname (just within the limit)": lambda: make_pod(
        "p",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term("kubernetes.io/hostname", f"x{i}") for i in range(150)
            ],
        ),
    ),
    "20,000 labels": lambda: make_pod("p", labels={f"key-{i}": "v" for i in range(20000)}),
    "10,000 host ports": lambda: make_pod(
        "p",
        containers=[
            {
                "name": "main",
                "image": "app",
                "ports": [{"containerPort": i + 1, "hostPort": i + 1} for i in range(10000)],
            }
        ],
    ),
    "5,000 containers": lambda: make_pod(
        "p",
        containers=[
            {"name": f"c{i}", "image": f"image-{i}", "resources": {"requests": {"cpu": "1m"}}}
            for i in range(5000)
        ],
    ),
    "3,000 volumes": lambda: make_pod(
        "p",
        volumes=[
            {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(3000)
        ],
    ),
    "10,000 scheduling gates": lambda: make_pod(
        "p", schedulingGates=[{"name": f"gate-{i}"} for i in range(10000)]
    ),
    "a quantity of 100,000 digits": lambda: make_pod("p", requests={"cpu": "9" * 100000}),
    "a node with 20,000 labels": lambda: make_node(
        "hostile", labels={f"key-{i}": "v" for i in range(20000)}
    ),
    "a node with 1,000 extended resources": lambda: make_node(
        "hostile", allocatable={f"example.com/r{i}": "1" for i in range(1000)}
    ),
    "a node with 10,000 taints": lambda: make_node(
        "hostile",
        taints=[{"key": f"key-{i}", "effect": "NoSchedule", "value": "v"} for i in range(10000)],
    ),
    "a node with 10,000 images": lambda: make_node(
        "hostile", images=[{"names": [f"image-{i}"], "sizeBytes": 1 << 30} for i in range(10000)]
    ),
}


BEYOND_THE_GOAL: Final[dict[str, Callable[[], JsonObject]]] = {
    "30,000 anti-affinity terms, bound": lambda: make_pod(
        "p",
        node_name="n0",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                {"topologyKey": f"k{i}", "labelSelector": {}} for i in range(30000)
            ],
        ),
    ),
}
"""What still takes longer than it should."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an object cost."""

    stall_ms: float
    """The longest step of the loop while it was there: its events, decisions on it and others."""
    left_mib: float
    """Allocated memory that stayed after its deletion."""
    message: str
    """Of its condition PodScheduled; empty: it has none."""


class LoopMeter:
    """The longest step of the event loop, in CPU time of its thread."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._run = asyncio.Handle._run  # noqa: SLF001 a step of the loop has no public seam

    def __enter__(self) -> Self:
        run = self._run

        def timed(handle: asyncio.Handle) -> None:
            self.call(lambda: run(handle))

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment] # noqa: SLF001
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign] # noqa: SLF001

    def call(self, step: Callable[[], object]) -> None:
        """Time one step."""
        started = time.thread_time()
        step()
        self.longest_seconds = max(self.longest_seconds, time.thread_time() - started)


class HostileWorld:
    """A running operator that is shown objects as a watch shows them, and whose words are kept."""

    def __init__(self, world: InProcess) -> None:
        self._world = world
        self.messages: dict[str, str] = {}
        """Of the condition PodScheduled, by pod."""
        world.client.patch_pod_status = self._patch_pod_status  # type: ignore[method-assign]

    async def cost_of(self, obj: JsonObject, *, memory: bool = True) -> Cost:
        """Show the object, decide on other pods beside it, add a node, delete all again."""
        gc.collect()
        with LoopMeter() as meter:
            await self._live_through(obj, meter)
        await quiet(1)
        stall_ms = 1e3 * meter.longest_seconds
        message, left = self.messages.pop(obj["metadata"]["name"], ""), 0
        if memory:
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                await self._live_through(obj, meter=LoopMeter())
                self.messages.clear()
                gc.collect()
                left = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
        return Cost(stall_ms, left / MIB, message)

    async def _live_through(self, obj: JsonObject, meter: LoopMeter) -> None:
        world, kind = self._world, obj["kind"]
        meter.call(lambda: self._show(kind, "ADDED", obj))
        await quiet(50)
        world.apply(make_pod("other", cpu="100m", labels={"app": "x"}))
        await quiet(50)
        late = make_node("late")
        meter.call(lambda: self._show("Node", "ADDED", late))
        await quiet(50)
        meter.call(lambda: self._show(kind, "DELETED", obj))
        await quiet(50)
        world.delete("Pod", "other")
        meter.call(lambda: self._show("Node", "DELETED", late))
        world.apply(make_pod("another", cpu="100m"))
        await quiet(50)
        world.delete("Pod", "another")
        await quiet(50)

    def _show(self, kind: str, event_type: str, obj: JsonObject) -> None:
        handlers = self._world.operator.handlers
        (handlers.on_pod if kind == "Pod" else handlers.on_node)(event_type, obj)

    async def _patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        assert namespace == "default", urgent
        for condition in patch["status"].get("conditions", ()):
            self.messages[name] = condition["message"]


@asynccontextmanager
async def hostile_world(nodes: int) -> AsyncIterator[HostileWorld]:
    """An operator with so many nodes in three zones, and a pod on one of them."""
    async with running() as world:
        world.apply(
            *(make_node(f"n{number}", zone=f"z{number % 3}") for number in range(nodes)),
            make_profile("default-scheduler"),
        )
        world.apply(make_pod("first", cpu="100m"))
        await quiet(100)
        yield HostileWorld(world)
