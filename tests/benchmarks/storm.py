"""A cluster in which thousands of pods wait and every node keeps changing.

A benchmark and a test run it: the whole operator in process, fed with nodes as a watch delivers
them. Invariant: every waiting pod is rejected by four plugins, each on other nodes, and the changes
of a second are those of a large cluster: 900 heartbeats, 50 changes of labels, 50 growths.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from stellwerk.backend.queued_pod import Place
from stellwerk.garbage import collect_seldom
from stellwerk.serving.exposition import exposition
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, running
from tests.support.skipped_time import run_skipping

if TYPE_CHECKING:
    from random import Random

    from stellwerk_kube.clock import VirtualClock
    from stellwerk_kube.json_values import JsonObject


SPECS: Final = 500
REJECTED_BY: Final = {"TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread"}
UPDATES_PER_SECOND: Final = 1_000
_POOLS: Final = 10
_TAINTED, _GENERAL, _SMALL_PER_POOL, _LARGE_PER_POOL = 400, 480, 10, 2
_SMALL_CPU_MILLIS: Final = 4_000
_CROWD: Final = 2
"""Pods of an app that stand where no more of it may go."""
_BURST: Final = 10
"""Updates that arrive at once."""
_KINDS: Final = ("heartbeat",) * 18 + ("label", "growth")
_CONDITIONS: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
_IMAGES: Final = 20
_TAINT: Final = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


@dataclass
class Storm:
    """What a run has cost."""

    cpu_seconds: list[float] = field(default_factory=list)
    """Of event handling and scheduling together, for each second of cluster time."""
    attempts: int = 0
    """Pods that a change woke, and that were tried and rejected again."""
    hints: int = 0
    """Calls of hint functions."""


def run_storm(*, pods: int, seconds: int, random: Random) -> Storm:
    """Let so many pods wait and nodes change for so many seconds of virtual time."""

    async def flow(clock: VirtualClock) -> Storm:
        async with running(clock) as world:
            nodes = _fill(world, pods)
            while not _all_rejected(world, pods):  # noqa: ASYNC110 nobody to set an event
                await asyncio.sleep(1)
            return await _storm(world, _Changes(nodes, random), seconds)

    thresholds = gc.get_threshold()
    collect_seldom()
    try:
        return run_skipping(flow)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _storm(world: InProcess, changes: _Changes, seconds: int) -> Storm:
    # As in the real operator, the collector looks at what was listed no more.
    gc.collect()
    gc.freeze()
    storm = Storm()
    attempts, hints = _attempts(world), _hint_calls(world)
    for _ in range(seconds):
        batch = [orjson.dumps(node) for node in changes.of_a_second()]
        started = time.process_time()
        for position in range(0, len(batch), _BURST):
            for raw in batch[position : position + _BURST]:
                world.operator.handlers.on_node("MODIFIED", orjson.loads(raw))
            await asyncio.sleep(_BURST / UPDATES_PER_SECOND)
        storm.cpu_seconds.append(time.process_time() - started)
    storm.attempts = _attempts(world) - attempts
    storm.hints = _hint_calls(world) - hints
    return storm


def _fill(world: InProcess, pods: int) -> list[JsonObject]:
    world.apply(make_profile("default-scheduler"))
    nodes = _nodes()
    for node in nodes:
        # A copy: what was delivered never changes, the list goes on changing.
        world.operator.handlers.on_node(None, orjson.loads(orjson.dumps(node)))
    for pod in _crowds():
        world.operator.handlers.on_pod(None, pod)
    world.apply(*(_waiting_pod(number) for number in range(pods)))
    return nodes


def _all_rejected(world: InProcess, pods: int) -> bool:
    entries = list(world.queue.entries.values())
    return len(entries) == pods and all(
        entry.place is Place.UNSCHEDULABLE and entry.unschedulable_plugins == REJECTED_BY
        for entry in entries
    )


# --- the cluster --------------------------------------------------------------------------------


def _nodes() -> list[JsonObject]:
    nodes = [_node(f"batch-{n}", cpu="2000m", taints=[_TAINT]) for n in range(_TAINTED)]
    nodes += [_node(f"general-{n}", cpu="2000m") for n in range(_GENERAL)]
    for pool in range(_POOLS):
        labels = {"pool": f"pool-{pool}"}
        nodes += [
            _node(f"small-{pool}-{n}", cpu=f"{_SMALL_CPU_MILLIS}m", zone="b", labels=labels)
            for n in range(_SMALL_PER_POOL)
        ]
        nodes += [
            _node(f"large-{pool}-{n}", cpu="64", zone="a", labels=labels)
            for n in range(_LARGE_PER_POOL)
        ]
    return nodes


def _node(name: str, **fields: Any) -> JsonObject:
    """A node of some 8 KB, as kubelets report them."""
    node = make_node(name, **fields)
    status = node["status"]
    node["metadata"]["labels"] |= {f"feature.example/{n}": "true" for n in range(10)}
    node["metadata"]["annotations"] = {f"example.com/annotation-{n}": "x" * 40 for n in range(6)}
    status["capacity"] = dict(status["allocatable"])
    status["conditions"] = [
        {
            "type": type_,
            "status": "True" if type_ == "Ready" else "False",
            "reason": f"Kubelet{type_}",
            "message": "kubelet has looked at what there is of it",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for type_ in _CONDITIONS
    ]
    status["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    status["nodeInfo"] = {f"version{n}": "v1.36.2" for n in range(10)}
    status["images"] = [
        {
            "names": [f"registry.example/app-{n}@sha256:{n:064x}", f"registry.example/app-{n}:1"],
            "sizeBytes": 50_000_000 + n,
        }
        for n in range(_IMAGES)
    ]
    return node


def _crowds() -> list[JsonObject]:
    """Pods that fill small nodes by half, and pods that keep others of their app away."""
    pods = [
        make_pod(f"filler-{pool}-{n}", cpu="2", node_name=f"small-{pool}-{n}")
        for pool in range(_POOLS)
        for n in range(_SMALL_PER_POOL)
    ]
    pods += [
        make_pod(
            f"crowd-{spec}-{n}",
            labels={"app": f"app-{spec}"},
            cpu="10m",
            node_name=f"large-{spec % _POOLS}-{n}",
        )
        for spec in range(SPECS)
        for n in range(_CROWD)
    ]
    return pods


def _waiting_pod(number: int) -> JsonObject:
    """A pod that fits large nodes only, where too many of its app are."""
    spec = number % SPECS
    app = {"app": f"app-{spec}"}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": app},
    }
    return make_pod(
        f"waiting-{number}",
        cpu=f"{_SMALL_CPU_MILLIS + 1 + spec}m",
        labels=app,
        nodeSelector={"pool": f"pool-{spec % _POOLS}"},
        topologySpreadConstraints=[constraint],
    )


# --- what happens in it -------------------------------------------------------------------------


class _Changes:
    """The updates of nodes that a second brings; each node goes on from what it was.

    Once a second a node becomes large enough for the pods of a spec, were it empty: they are tried.
    Otherwise nodes grow that stay too small, or in what nobody asks for.
    """

    def __init__(self, nodes: list[JsonObject], random: Random) -> None:
        self._nodes = nodes
        self._small = [node for node in nodes if node["metadata"]["name"].startswith("small")]
        self._random = random
        self._number = 0

    def of_a_second(self) -> list[JsonObject]:
        """The nodes as they are after each update."""
        return [self._change(kind) for kind in islice(cycle(_KINDS), UPDATES_PER_SECOND)]

    def _change(self, kind: str) -> JsonObject:
        self._number += 1
        node = self._nodes[self._random.randrange(len(self._nodes))]
        if kind == "heartbeat":
            for condition in node["status"]["conditions"]:
                condition["lastHeartbeatTime"] = f"2026-01-01T01:00:{self._number % 60:02}Z"
        elif kind == "label":
            node["metadata"]["labels"]["feature.example/revision"] = str(self._number)
        elif self._number % UPDATES_PER_SECOND == 0:
            node = self._random.choice(self._small)
            _grow_cpu(node)
        elif "pool" in node["metadata"]["labels"]:
            node["status"]["allocatable"]["example.com/device"] = str(self._number)
        else:
            _grow_cpu(node)
        node["metadata"]["resourceVersion"] = str(self._number)
        return orjson.loads(orjson.dumps(node))  # type: ignore[no-any-return]


def _grow_cpu(node: JsonObject) -> None:
    allocatable = node["status"]["allocatable"]
    allocatable["cpu"] = f"{int(allocatable['cpu'].removesuffix('m')) + 1}m"


def _attempts(world: InProcess) -> int:
    return sum(entry.attempts for entry in world.queue.entries.values())


def _hint_calls(world: InProcess) -> int:
    name = "scheduler_queueing_hint_execution_duration_seconds_count{"
    lines = exposition(world.metrics).decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))
