"""What groups of pods cost: `python -m tests.benchmarks.bench_gangs [PART…]`.

Decisions on groups are driven on a World of their own; the rest runs on a whole operator whose
client is a MemoryClient. CPU time of this process; the longest step is what other work of the loop
waits for at most, beside the slices that the group cycle makes of it.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import override

from stellwerk.garbage import collect_seldom
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.world.decide import decide
from stellwerk.world.gangs.group_attempt import GroupRequest, answered
from stellwerk.world.gangs.group_decision import GroupDecision, decide_group
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

RACK = "example.com/rack"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
SCHEDULER = "gangs"
REST_SECONDS = 600.0
"""Virtual."""


class RealTime(VirtualClock):
    """The machine's time, where a clock is wanted that could be moved."""

    @override
    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class Cost:
    """Of one decision on a group."""

    cpu_seconds: float
    longest_step_seconds: float
    decision: GroupDecision


def group(name: str, size: int, topology: str = "") -> JsonObject:
    spec: JsonObject = {"schedulingPolicy": {"gang": {"minCount": size}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"group-{name}"},
        "spec": spec,
    }


def member(name: str, of: str, cpu: str = "500m") -> JsonObject:
    named: JsonObject = {"schedulingGroup": {"podGroupName": of}} if of else {}
    return make_pod(name, cpu=cpu, scheduler_name=SCHEDULER, **named)


def operator_of(nodes: list[JsonObject]) -> InProcess:
    """An operator that decides nothing by itself."""
    world = InProcess()
    world.apply(make_profile(SCHEDULER, gangScheduling=True), *nodes)
    return world


def decided(operator: InProcess, made: JsonObject, members: list[PodInfo]) -> Cost:
    """Decide on a group once, on a World that has decided before, and say what that costs."""
    world = operator.operator.world
    profile = world.profiles.served[SCHEDULER]
    world.cache.update_snapshot()
    decide(world, members[0], profile)
    steps = answered(decide_group(world, profile, GroupRequest(parse_pod_group(made), members)))
    longest = 0.0
    began = before = time.process_time()
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            now = time.process_time()
            return Cost(now - began, max(longest, now - before), ended.value)
        now = time.process_time()
        longest, before = max(longest, now - before), now


def constrained(**spec: Any) -> list[PodInfo]:
    """1,000 members that are alike, and that pods on other nodes matter to."""
    pods = []
    for number in range(1000):
        pod = member(f"m{number}", "g")
        pod["metadata"]["labels"] = {"app": "g"}
        pod["spec"].update(spec)
        pods.append(parse_pod(pod))
    return pods


def gang_of(size: int, *, unlike: bool = False) -> list[PodInfo]:
    """Members that are alike, or of ten sizes."""
    return [
        parse_pod(member(f"m{number}", "g", f"{500 + 10 * (number % 10) * unlike}m"))
        for number in range(size)
    ]


def shown(what: str, cost: Cost) -> None:
    placed = sum(each.assumed is not None for each in cost.decision.attempt.results)
    print(
        f"{what:<58} {cost.cpu_seconds * 1000:7.0f} ms, longest step "
        f"{cost.longest_step_seconds * 1000:6.1f} ms, {placed} placed",
        flush=True,
    )


# --- parts --------------------------------------------------------------------------------------


def large() -> None:
    """A gang of 1,000 on 5,000 nodes."""
    nodes = [make_node(f"n{number}", zone=f"z{number % 3}") for number in range(5000)]
    for unlike in (False, True):
        what = f"1,000 {'pods of ten sizes' if unlike else 'alike pods'}, 5,000 nodes"
        members = gang_of(1000, unlike=unlike)
        shown(what, decided(operator_of(nodes), group("g", 1000), members))


def pairwise() -> None:
    """A gang of 1,000 on 5,000 nodes whose members keep a distance, or keep together."""
    nodes = [make_node(f"n{number}", zone=f"z{number % 3}") for number in range(5000)]
    selector = {"matchLabels": {"app": "g"}}
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    for key in (ZONE, HOSTNAME):
        constraint = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        members = constrained(topologySpreadConstraints=[constraint])
        cost = decided(operator_of(nodes), group("g", 1000), members)
        shown(f"1,000 alike pods, 5,000 nodes, spread by {key.rpartition('/')[2]}", cost)
    for kind, key in (("podAntiAffinity", HOSTNAME), ("podAffinity", ZONE)):
        term = {"labelSelector": selector, "topologyKey": key}
        members = constrained(affinity={kind: {hard: [term]}})
        cost = decided(operator_of(nodes), group("g", 1000), members)
        shown(f"1,000 alike pods, 5,000 nodes, {kind} by {key.rpartition('/')[2]}", cost)


def preempting() -> None:
    """A gang that needs the room of others, among 20,000 pods on 5,000 nodes."""
    nodes = [make_node(f"n{number}", zone=f"z{number % 3}") for number in range(5000)]
    running_pods = [
        make_pod(f"v{number}", cpu="1", node_name=f"n{number % 5000}", priority=number % 3)
        for number in range(20_000)
    ]
    for size, step in ((1000, 0), (100, 20)):
        operator = operator_of([*nodes, *running_pods])
        made = group("g", size)
        made["spec"]["priority"] = 100
        members = [
            parse_pod(member(f"m{number}", "g", f"{2000 - step * (number % 10)}m"))
            for number in range(size)
        ]
        cost = decided(operator, made, members)
        assert cost.decision.preemption is not None
        victims = len(cost.decision.preemption.victims)
        kind = "pods of ten sizes" if step else "alike pods"
        shown(f"{size:,} {kind} that preempt {victims:,} of 20,000, 5,000 nodes", cost)


def topology() -> None:
    """A gang of 100 in one of 200 racks of 25 nodes."""
    for full in (0, 150, 200):
        nodes = [
            make_node(
                f"n{rack}-{number}", cpu="1" if rack < full else "4", labels={RACK: f"r{rack}"}
            )
            for rack in range(200)
            for number in range(25)
        ]
        what = f"100 alike pods, 200 racks of 25, {full} too small"
        shown(what, decided(operator_of(nodes), group("g", 100, RACK), gang_of(100)))
        what = f"100 pods of ten sizes, 200 racks of 25, {full} too small"
        members = gang_of(100, unlike=True)
        shown(what, decided(operator_of(nodes), group("g", 100, RACK), members))


async def _held(size: int, cpu: str, nodes: int) -> tuple[float, float]:
    """(CPU seconds, the longest that the loop was held) from the last member until all is done."""
    async with running(RealTime()) as operator:
        operator.apply(make_profile(SCHEDULER, gangScheduling=True), group("g", size))
        operator.apply(*(make_node(f"n{number}", zone=f"z{number % 3}") for number in range(nodes)))
        operator.cache.update_snapshot()
        members = [member(f"m{number}", "g", cpu) for number in range(size)]
        operator.apply(*members[:-1])
        await quiet(200)
        gc.collect()
        longest = 0.0
        began = before = time.process_time()
        operator.apply(members[-1])
        while not all(map(operator.node_of, ("m0", f"m{size - 1}"))):
            await asyncio.sleep(0)
            now = time.process_time()
            longest, before = max(longest, now - before), now
            if operator.condition("m0"):
                break
        return now - began, longest


def holds() -> None:
    """How long the loop of a whole operator is held, between two turns of other work."""
    for what, cpu, nodes in (("placed", "500m", 5000), ("that fit nowhere", "4", 999)):
        seconds, longest = asyncio.run(_held(1000, cpu, nodes))
        print(
            f"1,000 alike pods {what}, {nodes:,} nodes, whole operator: {seconds * 1000:.0f} ms, "
            f"longest hold of the loop {longest * 1000:.1f} ms",
            flush=True,
        )


async def _bound(clock: VirtualClock, *, size: int, pods: int = 5000) -> float:
    """CPU seconds until all pods are bound; in gangs of a size, 1: in basic groups, 0: in none."""
    groups = pods // max(1, size)
    async with running(clock) as operator:
        operator.apply(make_profile(SCHEDULER, gangScheduling=True))
        operator.apply(*(make_node(f"n{number}", cpu="32") for number in range(1000)))
        objects = [
            member(f"p{gang}-{number}", f"g{gang}" if size else "")
            for gang in range(groups)
            for number in range(max(1, size))
        ]
        if size:
            made = [group(f"g{gang}", size) for gang in range(groups)]
            for each in made if size == 1 else ():
                each["spec"]["schedulingPolicy"] = {"basic": {}}
            operator.apply(*made)
        gc.collect()
        began = time.process_time()
        operator.apply(*objects)
        names = [obj["metadata"]["name"] for obj in objects]
        await eventually(lambda: all(map(operator.node_of, names)))
        return time.process_time() - began


def throughput() -> None:
    """100 gangs of 50 at once beside 5,000 single pods, in pairs."""
    for _ in range(3):
        single = run_skipping(partial(_bound, size=0))
        gangs = run_skipping(partial(_bound, size=50))
        print(
            f"5,000 pods, 1,000 nodes: single {5000 / single:.0f}/s, in 100 gangs "
            f"{5000 / gangs:.0f}/s of CPU time: {single / gangs:.0%}",
            flush=True,
        )


def sizes() -> None:
    """Basic groups of one, and gangs of several sizes, beside as many plain pods, in pairs."""
    pods = 2000
    for size in (1, 2, 10, 100, 500):
        ratios, per_pod = [], []
        for _ in range(3):
            plain = run_skipping(partial(_bound, size=0, pods=pods))
            grouped = run_skipping(partial(_bound, size=size, pods=pods))
            ratios.append(grouped / plain)
            per_pod.append(grouped / pods * 1e6)
        what = "basic groups of one" if size == 1 else f"gangs of {size}"
        print(
            f"{pods:,} pods in {what}, 1,000 nodes: {sorted(per_pod)[1]:.0f} µs a pod, "
            f"{sorted(ratios)[1]:.2f} times plain pods (median of 3 pairs)",
            flush=True,
        )


async def _upstream(groups: int, size: int, *, basic: bool) -> tuple[float, float]:
    """(CPU seconds until all pods are bound, the longest that the loop was held)."""
    async with running(RealTime()) as operator:
        operator.apply(make_profile(SCHEDULER, gangScheduling=True))
        operator.apply(
            *(make_node(f"n{number}", cpu="4", memory="32Gi", pods="110") for number in range(5000))
        )
        made = [group(f"g{number}", size) for number in range(groups)]
        for each in made if basic else ():
            each["spec"]["schedulingPolicy"] = {"basic": {}}
        operator.apply(*made)
        operator.cache.update_snapshot()
        names = [f"p{number}" for number in range(groups * size)]
        pods = [
            make_pod(
                name,
                cpu="100m",
                memory="100Mi",
                scheduler_name=SCHEDULER,
                schedulingGroup={"podGroupName": f"g{number // size}"},
            )
            for number, name in enumerate(names)
        ]
        gc.collect()
        longest, bound = 0.0, 0
        began = time.process_time()
        operator.apply(*pods)
        before = time.process_time()
        while bound < len(names):
            await asyncio.sleep(0)
            now = time.process_time()
            longest, before = max(longest, now - before), now
            while bound < len(names) and operator.node_of(names[bound]):
                bound += 1
        return now - began, longest


def upstream() -> None:
    """The suites gangscheduling and basicscheduling of scheduler_perf, with its largest groups."""
    loads = ((1000, 3), (2000, 3), (3000, 3), (3, 1000), (6, 1000), (9, 1000), (10, 5000))
    for basic in (False, True):
        for groups, size in loads:
            seconds, longest = asyncio.run(_upstream(groups, size, basic=basic))
            pods = groups * size
            print(
                f"5,000 nodes, {groups:,} {'basic groups' if basic else 'gangs'} of {size:,}: "
                f"{pods / seconds:.0f} pods/s of CPU time, {seconds / pods * 1e6:.0f} µs a pod, "
                f"longest hold of the loop {longest * 1000:.1f} ms",
                flush=True,
            )


async def _resting(clock: VirtualClock) -> float:
    """The share of a core that groups take that fit nowhere."""
    groups, size = 50, 100
    async with running(clock) as operator:
        operator.apply(make_profile(SCHEDULER, gangScheduling=True))
        operator.apply(*(make_node(f"n{number}", cpu="2") for number in range(100)))
        operator.apply(*(group(f"g{gang}", size) for gang in range(groups)))
        operator.apply(
            *(
                member(f"p{gang}-{number}", f"g{gang}", "4")
                for gang in range(groups)
                for number in range(size)
            )
        )
        await asyncio.sleep(60)
        began = time.process_time()
        await asyncio.sleep(REST_SECONDS)
        return (time.process_time() - began) / REST_SECONDS


def resting() -> None:
    """50 hopeless gangs of 100 at rest."""
    print(f"50 gangs of 100 that fit nowhere: {run_skipping(_resting):.2%} of a core")


PARTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (large, pairwise, topology, preempting, holds, throughput, sizes, upstream, resting)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    collect_seldom()
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
