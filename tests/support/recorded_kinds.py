"""Recorded runs of one kind each: preemption, volumes, devices, gangs, extenders.

    python -m tests.support.recorded_kinds

makes `tests/data/recordings` anew: what every later version has to decide as it was decided then.
Invariant: each run has what it is called for, so that its replay says something about it.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from stellwerk.journal.entries import Head
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.scheduler.observers.recording import Recording
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.releases import DEFAULT_RELEASE
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock, rfc3339_milliseconds
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.fake_extender import Call, fake_extender
from tests.support.in_process import make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping, run_skipping_over_sockets
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

EXAMPLES = ROOT / "docs" / "examples"
RECORDINGS: Final = ROOT / "tests" / "data" / "recordings"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"

_STORAGE_CLASS: Final[JsonObject] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disks"},
    "provisioner": "disks.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}

Story = Callable[[VirtualCluster], Awaitable[None]]


async def preemption(world: VirtualCluster) -> None:
    """Pods of three priorities on nodes that are full, some behind a budget."""
    for value, name in ((0, "low"), (50, "middle"), (1000, "high")):
        world.apply(_priority_class(name, value))
    world.apply(_budget("low", min_available=5))
    world.apply(_deployment("low", 10, cpu="900m", priorityClassName="low"))
    world.apply(_deployment("middle", 6, cpu="900m", priorityClassName="middle"))
    await asyncio.sleep(20)
    world.apply(_deployment("high", 4, cpu="1500m", priorityClassName="high"))
    await asyncio.sleep(60)
    world.patch("deployments", "low", {"spec": {"replicas": 2}}, "apps")
    await asyncio.sleep(30)


async def volumes(world: VirtualCluster) -> None:
    """A StatefulSet with claims that wait for their pods, one of them to start anew."""
    world.apply(_STORAGE_CLASS)
    template = make_pod("t", cpu="500m", labels={"app": "db"})
    room = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "disks"}
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], **room}}
    pod = {"metadata": {"labels": {"app": "db"}}, "spec": template["spec"]}
    pod["spec"].pop("schedulerName", None)
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    spec = {
        "replicas": 4,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": pod,
        "volumeClaimTemplates": [claim],
    }
    world.apply(_object("apps/v1", "StatefulSet", "db", spec))
    await asyncio.sleep(30)
    world.delete("pods", "db-1")
    world.apply(_deployment("web", 6, cpu="200m"))
    await asyncio.sleep(30)


async def devices(world: VirtualCluster) -> None:
    """Claims of GPUs, whose pods end and leave them to others."""
    world.apply_file(EXAMPLES / "gpu-claim.yaml")
    await asyncio.sleep(20)
    for name in sorted(world.pods)[:1]:
        world.delete("pods", name)
    world.apply_file(EXAMPLES / "gpu-extended-resource.yaml")
    await asyncio.sleep(40)


async def gangs(world: VirtualCluster) -> None:
    """Gangs that wait, share a zone, are placed in another order, and make room by preemption."""
    patch = {"spec": {"gangScheduling": True, "tieBreakSeed": 7}}
    world.patch(PLURAL, "default-scheduler", patch, GROUP)
    world.apply(*(_plain(make_pod(f"small-{number}", cpu="3")) for number in range(4)))
    await asyncio.sleep(5)
    world.apply_file(EXAMPLES / "gang-one-zone.yaml")
    world.apply_file(EXAMPLES / "gang-of-four.yaml")
    await asyncio.sleep(10)
    world.delete("pods", "small-0")
    world.apply(_plain(make_group("mixed", 4)))
    for number, cpu in enumerate(("1", "1", "2", "3")):
        world.apply(_plain(make_member(f"mixed-{number}", "mixed", cpu=cpu)))
    await asyncio.sleep(30)
    world.apply(_deployment("filler", 6, cpu="1"))
    await asyncio.sleep(30)
    world.apply_file(EXAMPLES / "gang-preempts.yaml")
    await asyncio.sleep(60)
    for name in ("small-1", "small-2"):
        if name in world.pods:
            world.delete("pods", name)
    await asyncio.sleep(30)


def _zoned(count: int, cpu: str = "4") -> list[JsonObject]:
    return [
        make_node(f"n{number}", cpu=cpu, labels={ZONE: f"z{number % 3}", HOSTNAME: f"n{number}"})
        for number in range(count)
    ]


STORIES: Final[dict[str, tuple[Story, Sequence[JsonObject]]]] = {
    "preemption": (preemption, _zoned(4)),
    "volumes": (volumes, _zoned(3)),
    "devices": (devices, [make_node("node-a"), make_node("node-b")]),
    "gangs": (gangs, _zoned(6)),
}
KINDS: Final = (*STORIES, "extenders")


def record(kind: str, options: JournalOptions) -> None:
    """Record a run of one kind."""
    if kind == "extenders":
        run_skipping_over_sockets(lambda clock: _extenders(clock, options))
        return
    story, nodes = STORIES[kind]

    async def flow(clock: VirtualClock) -> None:
        gates = feature_gates("AllAlpha=true,AllBeta=true", DEFAULT_RELEASE)
        cluster = ClusterOptions(
            seed=1, heartbeats=False, release=DEFAULT_RELEASE, feature_gates=gates
        )
        writer = _writer(options, clock)
        recording = Recording(writer, clock)
        try:
            async with open_virtual_cluster(clock, nodes, cluster, recording) as world:
                await story(world)
        finally:
            writer.close()

    run_skipping(flow)


async def _extenders(clock: VirtualClock, options: JournalOptions) -> None:
    """Extenders filter, score, fail now and then, and agree to preemption while events come."""
    numbers, writer = random.Random(3), _writer(options, clock)
    try:
        async with (
            fake_extender() as extender,
            running(clock, Recording(writer, clock)) as world,
        ):
            extender.answers |= {
                "filter": lambda body: (
                    500 if len(extender.calls) % 9 == 0 else _filtered(body, numbers)
                ),
                "prioritize": lambda body: [
                    {"host": name, "score": numbers.randrange(11)} for name in _names(body)
                ],
                "preempt": lambda body: {"nodeNameToMetaVictims": body["NodeNameToMetaVictims"]},
            }
            verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 3}
            spec = {"urlPrefix": extender.url, "nodeCacheCapable": True, **verbs}
            extenders = [{**spec, "preemptVerb": "preempt"}]
            world.apply(make_profile("default-scheduler", extenders=extenders))
            world.apply(*_zoned(8))

            def disturb(_: Call) -> None:
                """What the cluster looks like changes while the extender thinks."""
                number = len(extender.calls)
                if number % 3 == 0:
                    world.apply(make_pod(f"other-{number}", cpu="100m", node_name="n1"))
                if number % 7 == 0:
                    world.apply(make_node("n2", cpu=str(2 + number % 3), labels={ZONE: "z2"}))

            extender.on_call = disturb
            for number in range(50):
                priority = numbers.choice([0, 0, 10])
                world.apply(make_pod(f"p{number}", cpu="900m", priority=priority))
                await quiet(20)
                if number % 10 == 9:
                    await asyncio.sleep(30)
            await asyncio.sleep(60)
    finally:
        writer.close()


def _writer(options: JournalOptions, clock: VirtualClock) -> JournalWriter:
    return JournalWriter(
        options, Head("test", rfc3339_milliseconds(clock.now()), hashed=options.hashed)
    )


def _names(body: JsonObject) -> list[str]:
    names: list[str] = body["NodeNames"]
    return names


def _filtered(body: JsonObject, numbers: random.Random) -> JsonObject:
    left = [name for name in _names(body) if numbers.random() < 0.7]
    failed = {name: "not this one" for name in _names(body) if name not in left}
    return {"nodenames": left, "failedNodes": failed}


def _plain(obj: JsonObject) -> JsonObject:
    """As a user would write it: for the default scheduler, without a uid."""
    obj["metadata"].pop("uid", None)
    obj.get("spec", {}).pop("schedulerName", None)
    if "apiVersion" not in obj:
        obj |= {"apiVersion": "v1", "kind": "Pod"}
    return obj


def _object(api_version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _priority_class(name: str, value: int) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _budget(app: str, min_available: int) -> JsonObject:
    spec = {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}}
    return _object("policy/v1", "PodDisruptionBudget", app, spec)


def _deployment(name: str, replicas: int, cpu: str, **fields: str) -> JsonObject:
    containers = [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}]
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": containers, **fields},
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return _object("apps/v1", "Deployment", name, spec)


if __name__ == "__main__":
    for each in KINDS:
        file: Path = RECORDINGS / f"{each}.journal"
        record(each, JournalOptions(file))
        sys.stdout.write(f"{file.relative_to(ROOT)}: {file.stat().st_size} bytes\n")
