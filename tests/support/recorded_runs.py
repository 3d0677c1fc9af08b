"""Runs of an in-process operator that records: arrivals, ends, nodes that go, preemption."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from stellwerk.journal import writer as journal_writer
from stellwerk.journal.entries import Head
from stellwerk.journal.reader import Journal, open_journal
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.scheduler.observers.recording import Recording
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.replaying import Replay
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.pod_groups import constrained_to, make_group, make_member

STARTED = "2026-01-01T00:00:00Z"


def on_a_device(monkeypatch: pytest.MonkeyPatch, device: Path) -> None:
    """Have journals written to what would be refused as a file: a full disk, a disk that hangs."""
    opened = os.O_WRONLY
    monkeypatch.setattr(journal_writer, "opened_anew", lambda _, **__: os.open(device, opened))


async def record_run(
    options: JournalOptions,
    *,
    seed: int = 1,
    pods: int = 300,
    nodes: int = 25,
    by_namespace: bool = False,
) -> list[str]:
    """Record a random run; the reasons for which the recording ended early.

    `by_namespace`: now and then the labels of the namespace let another profile serve its pods.
    """
    ended: list[str] = []
    clock, numbers = VirtualClock(), random.Random(seed)
    writer = JournalWriter(options, Head("test", STARTED, hashed=options.hashed), ended.append)
    try:
        async with running(clock, Recording(writer, clock)) as world:
            world.apply(make_profile("default-scheduler"))
            if by_namespace:
                world.apply(packing("packing", "batch"), packing("tight", "web"))
                world.apply(_namespace("web"))
            for number in range(nodes):
                zone = {"topology.kubernetes.io/zone": f"z{number % 3}"}
                world.apply(make_node(f"n{number}", cpu="4", labels=zone))
            for number in range(pods):
                await _arrive(world, number, numbers)
                if number % 40 == 39:
                    await _disturb(world, number, numbers)
                if by_namespace and number % 25 == 24:
                    world.apply(_namespace(numbers.choice(["batch", "web", "none"])))
            await quiet(1000)
    finally:
        writer.close()
    return ended


def packing(name: str, team: str) -> JsonObject:
    """A profile that fills nodes up, for namespaces of a team."""
    args = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}}
    return make_profile(
        name,
        created=1,
        pluginConfig=[{"name": "NodeResourcesFit", "args": args}],
        weights={"NodeResourcesFit": 100},
        selector={"namespaceSelector": {"matchLabels": {"team": team}}},
    )


def _namespace(team: str) -> JsonObject:
    metadata = {"name": "default", "uid": "default", "labels": {"team": team}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


async def _arrive(world: InProcess, number: int, numbers: random.Random) -> None:
    cpu = f"{numbers.choice([100, 500, 2000])}m"
    app = f"a{numbers.randrange(4)}"
    spec: dict[str, Any] = {}
    if numbers.random() < 0.3:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }
        ]
    priority = numbers.choice([0, 0, 0, 10])
    pod = make_pod(f"p{number}", cpu=cpu, labels={"app": app}, priority=priority, **spec)
    world.apply(pod)
    if numbers.random() < 0.2:
        await quiet(30)


async def _disturb(world: InProcess, number: int, numbers: random.Random) -> None:
    """Let time pass, a pod end, and sometimes a node go."""
    await quiet(100)
    world.clock.advance(3)
    world.queue.flush_backoff(world.clock.monotonic())
    for kind, name in (("Pod", f"p{numbers.randrange(number)}"), ("Node", "n7")):
        path = (
            f"/api/v1/namespaces/default/pods/{name}" if kind == "Pod" else f"/api/v1/nodes/{name}"
        )
        if path in world.client.objects and (kind == "Pod" or numbers.random() < 0.3):
            world.delete(kind, name)


async def record_gangs(options: JournalOptions, *, seed: int) -> None:
    """Record gangs of unlike members on few nodes, while pods come and go between two of them."""
    clock, numbers = VirtualClock(), random.Random(seed)
    writer = JournalWriter(options, Head("test", STARTED, hashed=options.hashed))
    zones = {number: {"topology.kubernetes.io/zone": f"z{number % 3}"} for number in range(9)}
    try:
        async with running(clock, Recording(writer, clock)) as world:
            world.apply(make_profile("stellwerk", gangScheduling=True))
            world.apply(*(make_node(f"n{each}", cpu="4", labels=zones[each]) for each in zones))
            for number in range(24):
                size, priority = numbers.randrange(2, 6), numbers.choice([0, 0, 10])
                topology = constrained_to("topology.kubernetes.io/zone")
                extra = {"schedulingConstraints": topology} if numbers.random() < 0.3 else {}
                world.apply(make_group(f"g{number}", size, priority=priority, **extra))
                for member in range(size):
                    cpu = f"{numbers.choice([300, 700, 1500])}m"
                    name = f"g{number}-{member}"
                    world.apply(make_member(name, f"g{number}", cpu=cpu, priority=priority))
                for other in range(numbers.randrange(6)):
                    await quiet(numbers.randrange(4))
                    name = f"o{number}-{other}"
                    world.apply(make_pod(name, cpu="200m", node_name=f"n{numbers.randrange(9)}"))
                await quiet(60)
                for name in _pods(world, numbers):
                    world.delete("Pod", name)
                    await quiet(numbers.randrange(3))
                clock.advance(3)
                world.queue.flush_backoff(clock.monotonic())
            await quiet(300)
    finally:
        writer.close()


async def record_partly_bound(options: JournalOptions) -> None:
    """Record gangs of which some members are bound: room is kept, for members that are there."""
    clock = VirtualClock()
    writer = JournalWriter(options, Head("test", STARTED, hashed=options.hashed))
    try:
        async with running(clock, Recording(writer, clock)) as world:
            world.apply(make_profile("stellwerk", gangScheduling=True, compatibility="1.37"))
            world.apply(*(make_node(f"n{each}", cpu="1") for each in range(6)))
            for name, there in (("short", 3), ("large", 4)):
                world.apply(make_group(name, 4))
                for member in range(there):
                    cpu = "64" if member == 1 and name == "large" else "1"
                    world.apply(make_member(f"{name}-{member}", name, cpu=cpu))
                bound = make_member(f"{name}-bound", name, cpu="1", node_name="n0")
                world.apply({**bound, "spec": {**bound["spec"], "containers": []}})
                await quiet(60)
            for number in range(3):
                world.apply(make_pod(f"o{number}", cpu="1", scheduler_name="stellwerk"))
                clock.advance(400 if number == 1 else 3)
                world.queue.flush_backoff(clock.monotonic())
                world.queue.flush_unschedulable(clock.monotonic())
                await quiet(100)
            world.apply(make_node("more", cpu="1"))
            await quiet(300)
    finally:
        writer.close()


def _pods(world: InProcess, numbers: random.Random) -> list[str]:
    """Some that are there."""
    pods = [obj for obj in world.client.objects.values() if obj["kind"] == "Pod"]
    names = [pod["metadata"]["name"] for pod in pods]
    return numbers.sample(names, min(len(names), numbers.randrange(6)))


def replayed(file: Path) -> tuple[Replay, Journal]:
    """A journal replayed to its end; needs a running event loop."""
    journal = open_journal(file)
    replay: Replay | None = None
    for entry in journal:
        if replay is None:
            assert isinstance(entry, Head)
            replay = Replay(entry)
        replay.feed(entry)
    assert replay is not None
    replay.finish()
    return replay, journal
