"""Histories of gangs: what a user, nodes and the API do, step by step, and what must hold after.

Property tests draw them. One operator follows another over a restart, on the same objects.
Invariant: steps name gangs and nodes by number, so that every history can be played.
"""

import asyncio
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet

NODES = 3
GANGS = 4
SCHEDULER = "gangs"
SETTLED_SECONDS = 90.0
"""Virtual; longer than the longest backoff and any retries of a write."""
GIVE_BACK_SECONDS = 20
WRITES_SECONDS = 4.0
"""What saying it and deleting the pods may take on top."""
_OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "j",
    "uid": "j",
    "controller": True,
}
_PODS = "/api/v1/namespaces/default/pods/"


@dataclass
class _Gang:
    """A gang as the user knows it."""

    min_count: int
    cpu: int
    pods: list[str] = field(default_factory=list)
    lost: int = 0
    """Bound members that were deleted."""
    given_back: bool = False
    """Whether it may be bound in part for GIVE_BACK_SECONDS only."""
    partly_since: float | None = None
    """When it was first seen bound in part; None: it is not now."""


class GangHistory:
    """A cluster of a few nodes, its gangs, and the operator that places them."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._gangs: dict[int, _Gang] = {}
        self._nodes: dict[int, int] = {}
        self._pods: dict[str, JsonObject] = {}
        """As they were when they were last seen."""
        self.world = InProcess(clock)
        self._task: asyncio.Task[None] | None = None
        self.world.apply(make_profile(SCHEDULER, gangScheduling=True))
        self._start()

    # --- steps ----------------------------------------------------------------------------------

    def add_node(self, number: int, cpu: int) -> None:
        """Add a node, or change how large it is; it never shrinks."""
        self._nodes[number] = max(cpu, self._nodes.get(number, 0))
        self.world.apply(make_node(f"n{number}", cpu=str(self._nodes[number])))

    def add_gang(self, number: int, min_count: int, cpu: int) -> None:
        """Create a group, unless it is there; it may be there after its pods."""
        gang = self._gangs.setdefault(number, _Gang(min_count, cpu))
        if _group_path(number) not in self.world.client.objects:
            self.world.apply(_group(number, gang.min_count))

    def add_pods(self, number: int, count: int) -> None:
        """Create pods of a gang, whether or not it exists."""
        gang = self._gangs.setdefault(number, _Gang(2, 1))
        for _ in range(count):
            name = f"p{next(self._numbers)}"
            gang.pods.append(name)
            pod = make_pod(
                name,
                cpu=str(gang.cpu),
                scheduler_name=SCHEDULER,
                schedulingGroup={"podGroupName": f"g{number}"},
            )
            pod["metadata"]["ownerReferences"] = [_OWNER]
            self.world.apply(pod)

    def ask_back(self, number: int) -> None:
        """From here on a gang may be bound in part for some time only."""
        gang, path = self._gangs.get(number), _group_path(number)
        if gang is not None and path in self.world.client.objects:
            gang.given_back = True
            status = self.world.client.objects[path].get("status", {})
            asked = _group(number, gang.min_count, GIVE_BACK_SECONDS)
            self.world.apply({**asked, "status": status})

    def delete_pod(self, number: int) -> None:
        """Delete the oldest pod of a gang."""
        gang = self._gangs.get(number)
        if gang is not None and gang.pods:
            name = gang.pods.pop(0)
            gang.lost += bool(self.world.node_of(name))
            self.world.delete("Pod", name)

    def end_gang(self, number: int) -> None:
        """Delete all pods of a gang, and the group."""
        gang = self._gangs.pop(number, None)
        if gang is None:
            return
        for name in gang.pods:
            self.world.delete("Pod", name)
        if _group_path(number) in self.world.client.objects:
            self.world.delete("PodGroup", f"g{number}")

    def refuse(self, number: int) -> None:
        """The next binding of a gang's youngest pod is refused."""
        gang = self._gangs.get(number)
        if gang is not None and gang.pods and not self.world.node_of(gang.pods[-1]):
            path = f"{_PODS}{gang.pods[-1]}/binding"
            error = ApiError(f"bind {gang.pods[-1]}", 422, "Invalid", "not this one")
            self.world.client.failures[path] = error

    async def restart(self) -> None:
        """The operator ends at once, and another one finds what it has left behind."""
        await self.stop()
        objects = list(self.world.client.objects.values())
        failures = self.world.client.failures
        self.world = InProcess(self._clock)
        self.world.client.failures = failures
        for kind in ("SchedulerProfile", "Node", "PodGroup", "Pod"):
            self.world.apply(*(each for each in objects if each["kind"] == kind))
        self._start()

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def stop(self) -> None:
        """End the operator."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        await self.world.operator.extenders.close()
        if not self._task.cancelled():
            self._task.result()

    def _start(self) -> None:
        self._task = asyncio.create_task(self.world.operator.scheduler.run())

    # --- what must hold -------------------------------------------------------------------------

    def check_room(self) -> None:
        """No node holds more than it has."""
        self.look()
        used: defaultdict[str, int] = defaultdict(int)
        for gang in self._gangs.values():
            for name in gang.pods:
                node_name = self.world.node_of(name)
                if node_name:
                    used[node_name] += gang.cpu
        for number, cpu in self._nodes.items():
            assert used[f"n{number}"] <= cpu, f"n{number} is over-committed"

    def check_given_back(self) -> None:
        """No gang that is given back is bound in part for longer; lost pods are made anew."""
        now = self._clock.monotonic()
        self.look()
        for number, gang in self._gangs.items():
            is_partly = gang.given_back and 0 < len(self._bound(gang)) < gang.min_count
            if not is_partly:
                gang.partly_since = None
            elif gang.partly_since is None:
                gang.partly_since = now
            else:
                held = now - gang.partly_since
                assert held <= GIVE_BACK_SECONDS + WRITES_SECONDS, f"g{number}: {held} s"

    def look(self) -> None:
        """See that the operator has deleted pods, as its watch does, and make others."""
        for number, gang in self._gangs.items():
            self._make_anew(number, gang)

    def _make_anew(self, number: int, gang: _Gang) -> None:
        objects = self.world.client.objects
        gone = [name for name in gang.pods if f"{_PODS}{name}" not in objects]
        for name in gone:
            gang.pods.remove(name)
            self.world.operator.handlers.on_pod("DELETED", self._pods[name])
        gang.lost += len(gone)
        self.add_pods(number, len(gone))
        self._pods.update({name: objects[f"{_PODS}{name}"] for name in gang.pods})

    def check_whole(self) -> None:
        """No gang is partly bound, but for what it has lost."""
        for number, gang in self._gangs.items():
            bound = len(self._bound(gang))
            gang.lost = gang.lost if bound else 0
            assert not 0 < bound + gang.lost < gang.min_count, f"g{number} is partly bound"

    def check_placed(self) -> None:
        """No gang waits that would fit into what is free now, and no member of a placed one."""
        for number, gang in self._gangs.items():
            bound, there = len(self._bound(gang)), len(gang.pods)
            needed = max(1, gang.min_count - bound)
            complete = there >= gang.min_count and there > bound
            if complete and _group_path(number) in self.world.client.objects:
                places = sum(free // gang.cpu for free in self._free(but_for=number).values())
                assert places < needed, f"g{number} waits, with {places} places for {needed}"

    def _bound(self, gang: _Gang) -> list[str]:
        return [name for name in gang.pods if self.world.node_of(name)]

    def _free(self, but_for: int) -> dict[str, int]:
        """What is free on each node, and not kept for gangs but this one."""
        free = {f"n{number}": cpu for number, cpu in self._nodes.items()}
        for node_name, pods in self.world.operator.world.nominator.by_node.items():
            for pod in pods.values():
                if pod.group is not None and pod.group.name != f"g{but_for}":
                    free[node_name] -= self._gangs[int(pod.group.name[1:])].cpu
        for gang in self._gangs.values():
            for name in self._bound(gang):
                free[str(self.world.node_of(name))] -= gang.cpu
        return free


async def play(history: GangHistory, steps: list[tuple[Any, ...]], *, whole: bool) -> None:
    """Play steps, looking at every moment, and at the end when all is settled.

    After a step `hurry` the next one comes within so many turns of the loop, in the middle of what
    is being decided and bound.
    """
    for (name, *arguments), (following, *_) in zip(steps, [*steps[1:], [""]], strict=True):
        if name == "hurry":
            await quiet(*arguments)
        else:
            history.look()
            done = getattr(history, name)(*arguments)
            if done is not None:
                await done
        history.check_room()
        if following == "hurry":
            continue
        await asyncio.sleep(0.05)
        history.check_room()
        history.check_given_back()
        if whole:
            history.check_whole()
    for _ in range(int(SETTLED_SECONDS)):
        await asyncio.sleep(1)
        history.check_given_back()
    history.check_room()
    history.check_placed()
    if whole:
        history.check_whole()


def _group(number: int, min_count: int, give_back_seconds: int = 0) -> JsonObject:
    annotations = {}
    if give_back_seconds:
        annotations["scheduling.stellwerk.dev/give-back-seconds"] = str(give_back_seconds)
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": f"g{number}",
            "namespace": "default",
            "uid": f"group-{number}",
            "annotations": annotations,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


def _group_path(number: int) -> str:
    return f"/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/g{number}"
