"""Operators that follow one another on the same objects, as replicas whose leader is killed do.

Stories of gangs that are bound in part use it, in virtual time. Invariant: an operator that is over
changes nothing any more, and the next one knows only what is in the store.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, Store, eventually, make_profile
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

SIZE: Final = 8
"""Nodes of a core each, and members of a gang, unless a story says otherwise."""
PODS: Final = "/api/v1/namespaces/default/pods"
LISTED: Final = ("SchedulerProfile", "Node", "PodGroup", "Pod")
"""The order in which a process that starts sees the kinds, unless a story says otherwise."""


class MortalStore(Store):
    """A store that an operator is lost to, or that goes away, between two bindings."""

    def __init__(self, watch: Callable[[JsonObject], None]) -> None:
        super().__init__(watch)
        self.bindings_left = sys.maxsize
        """Bindings that are made before that."""
        self.goes_away = False
        """Whether bindings are answered by an error then; else the operator hears no more."""
        self.is_over = asyncio.Event()

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        if self.bindings_left == 0:
            self.is_over.set()
            if self.goes_away:
                raise Unavailable(f"bind {name}", 503, "ServiceUnavailable", "away")
            await asyncio.Event().wait()
        self.bindings_left -= 1
        await super().bind(namespace, name, uid, node_name)


@dataclass
class Replicas:
    """One operator after another on the same objects, and what they have been told."""

    clock: VirtualClock
    leader: InProcess = field(init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = InProcess(self.clock, store=MortalStore)
        first.apply(make_profile("stellwerk", gangScheduling=True))
        self.lead(first)

    @property
    def store(self) -> MortalStore:
        assert isinstance(self.leader.client, MortalStore)
        return self.leader.client

    def lead(self, operator: InProcess) -> None:
        """Let an operator schedule from now on."""
        self.leader = operator
        self._tasks.append(asyncio.create_task(self.leader.operator.scheduler.run()))

    async def killed_after(self, bindings: int, *objects: JsonObject) -> None:
        """Create objects, and end the process when it has made so many bindings."""
        self.store.bindings_left = bindings
        self.leader.apply(*objects)
        await eventually(self.store.is_over.is_set)

    def follow(self, kinds: Sequence[str] = LISTED, first: str = "") -> None:
        """Start another process, which lists each kind by name.

        `first`: those whose names begin so come first.
        """
        objects = self.leader.client.objects
        follower = InProcess(self.clock, store=MortalStore)

        def position(path: str) -> tuple[int, bool, str]:
            name = path.rpartition("/")[2]
            return kinds.index(objects[path]["kind"]), not name.startswith(first), name

        follower.apply(*(objects[path] for path in sorted(objects, key=position)))
        self.lead(follower)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.leader.operator.extenders.close()

    def bound(self, beginning: str) -> int:
        """How many pods are bound whose names begin so."""
        pods = [each for each in self.leader.client.objects.values() if each["kind"] == "Pod"]
        named = [each for each in pods if each["metadata"]["name"].startswith(beginning)]
        return sum(bool(each["spec"].get("nodeName")) for each in named)

    def kept(self) -> int:
        """How many nodes are kept for pods that wait."""
        return len(self.leader.operator.world.nominator.by_node)


def story(play: Callable[[Replicas], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        replicas = Replicas(clock)
        try:
            await play(replicas)
        finally:
            await replicas.end()

    run_skipping(run)


def nodes(count: int = SIZE) -> list[JsonObject]:
    return [make_node(f"n{number}", cpu="1") for number in range(count)]


def gang(
    name: str = "m", size: int = SIZE, *, created: str = "2025-12-31T23:00:00Z", **spec: Any
) -> list[JsonObject]:
    """A group and as many members as it needs, of a core each; it is an hour old."""
    group = make_group(name, size)
    group["metadata"]["creationTimestamp"] = created
    return [group, *(make_member(f"{name}-{each}", name, cpu="1", **spec) for each in range(size))]


def singles(beginning: str = "a", count: int = 12, **spec: Any) -> list[JsonObject]:
    """Pods of one core, whose names come before those of the gang."""
    spec = {"cpu": "1", "scheduler_name": "stellwerk", **spec}
    return [make_pod(f"{beginning}-{number:02}", **spec) for number in range(count)]


def half_bound(name: str, size: int, bound_on: Sequence[str], **given: Any) -> list[JsonObject]:
    """A gang whose first members are on these nodes, whoever has bound them."""
    group, *members = gang(name, size, **given)
    for member, node_name in zip(members, bound_on, strict=False):
        member["spec"]["nodeName"] = node_name
    return [group, *members]
