"""What is said of a group stays with its object: one that was made anew gets nothing of the old."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.models.pod_group import PodGroupKey
from stellwerk.scheduler.gangs import group_cycle
from stellwerk.scheduler.gangs.group_conditions import (
    MAX_CHECKS_PER_ITERATION,
    GroupConditions,
)
from stellwerk.world.decide import Decision
from stellwerk.world.gangs.group_attempt import MemberRequest, decided_at_once
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.in_process import InProcess, Store, make_profile
from tests.support.pod_groups import constrained_to, make_group, make_member
from tests.support.skipped_time import run_skipping

PATH = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/g"


def made_anew(min_count: int) -> JsonObject:
    group = make_group("g", min_count)
    group["metadata"]["uid"] = "another"
    return group


class ReplacingStore(Store):
    """A store in which a group is made anew in the moment in which its status is written."""

    replacement: JsonObject | None = None
    bodies: list[Mapping[str, Any]]

    def __init__(self, watch: Callable[[JsonObject], None]) -> None:
        super().__init__(watch)
        self.bodies = []

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        if path == f"{PATH}/status":
            self.bodies.append(body)
            if self.replacement is not None:
                self.objects[PATH], self.replacement = self.replacement, None
        return await super().patch(path, body, content_type=content_type)


def story(play: Callable[[InProcess], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        world = InProcess(clock, store=ReplacingStore)
        task = asyncio.create_task(world.operator.scheduler.run())
        world.apply(make_profile("stellwerk", gangScheduling=True), make_node("n", cpu="2"))
        try:
            await play(world)
        finally:
            task.cancel()
            await asyncio.wait({task})
            await world.operator.extenders.close()

    run_skipping(run)


def members(count: int) -> list[JsonObject]:
    return [make_member(f"p{number}", "g", cpu="1") for number in range(count)]


def scheduled(world: InProcess) -> str:
    """The status of the condition PodGroupScheduled; empty: there is none."""
    conditions = world.client.objects[PATH].get("status", {}).get("conditions", ())
    found = (each["status"] for each in conditions if each["type"] == "PodGroupScheduled")
    return next(found, "")


def test_a_group_that_is_made_anew_before_the_write_gets_no_status_of_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(world: InProcess) -> None:
        assert isinstance(world.client, ReplacingStore)
        world.client.replacement = made_anew(3)
        world.apply(make_group("g", 3), *members(3))
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(0.5)
        assert [each["metadata"] for each in world.client.bodies] == [{"uid": "group-g"}]
        assert "status" not in world.client.objects[PATH]
        assert not caplog.records, "that is nothing to warn of"
        world.apply(world.client.objects[PATH])
        await asyncio.sleep(5)
        assert scheduled(world) == "False"

    story(play)


def test_what_waits_to_be_written_is_dropped_when_the_group_is_made_anew() -> None:
    async def play(world: InProcess) -> None:
        assert isinstance(world.client, ReplacingStore)
        conditions = world.operator.group_conditions
        world.apply(make_group("g", 3), *members(2))
        await asyncio.sleep(5)
        key = next(iter(world.operator.world.pod_groups.groups))
        world.client.bodies.clear()
        conditions.unschedulable(key, "said of the old one")
        world.apply(made_anew(2))
        await asyncio.sleep(5)
        assert "said of the old one" not in str(world.client.bodies)
        assert scheduled(world) == "True"

    story(play)


def test_a_group_that_is_made_anew_while_it_is_decided_is_decided_for_what_it_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def play(world: InProcess) -> None:
        new = made_anew(2)
        new["spec"]["schedulingConstraints"] = constrained_to("zone")

        def replacing(ask: MemberRequest) -> Decision:
            decision = decided_at_once(ask)
            asked.append(ask.pod.name)
            if len(asked) == 1:
                world.apply(new)
            return decision

        monkeypatch.setattr(group_cycle, "decided_at_once", replacing)
        world.apply(make_node("n", cpu="1", labels={"zone": "a"}))
        world.apply(make_node("m", cpu="1", labels={"zone": "b"}))
        world.apply(make_group("g", 2), *members(2))
        await asyncio.sleep(5)
        # No zone has two places.
        assert [world.node_of(f"p{number}") for number in range(2)] == [None, None]
        assert scheduled(world) == "False"
        world.apply(make_node("more", cpu="1", labels={"zone": "a"}))
        await asyncio.sleep(15)
        assert {world.node_of(f"p{number}") for number in range(2)} == {"n", "more"}

    story(play)


def test_that_a_group_was_placed_is_not_believed_of_the_next_one_of_its_name() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_group("g", 2), *members(2))
        await asyncio.sleep(5)
        assert scheduled(world) == "True"
        for number in range(2):
            world.delete("Pod", f"p{number}")
        # The watch was away: the deletion of the object was not seen.
        world.apply(made_anew(2))
        world.apply(make_member("q", "g", cpu="1"))
        await asyncio.sleep(5)
        assert scheduled(world) == "False"

    story(play)


@pytest.mark.parametrize(
    ("min_count", "of_group"),
    [
        pytest.param(2, ["Scheduled"], id="gang"),
        pytest.param(0, [], id="basic, whose pods say it"),
    ],
)
def test_a_group_that_is_placed_gets_an_event_if_it_is_a_gang(
    min_count: int, of_group: list[str]
) -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_group("g", min_count), *members(2))
        await asyncio.sleep(5)
        reasons = [reason for name, _, reason, _ in world.notes.events if name == "g"]
        assert (scheduled(world), reasons) == ("True", of_group)

    story(play)


def test_a_basic_group_that_waits_gets_an_event() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_group("g"), make_member("p0", "g", cpu="8"))
        await asyncio.sleep(5)
        reasons = [reason for name, _, reason, _ in world.notes.events if name == "g"]
        assert (scheduled(world), reasons) == ("False", ["FailedScheduling"])

    story(play)


def test_many_groups_that_came_together_are_looked_at_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together: list[PodGroupKey] = []
    parts: list[int] = []
    check = GroupConditions._check  # noqa: SLF001 nothing else shows iterations

    def end_part() -> None:
        parts.append(len(together))
        together.clear()

    def counted(conditions: GroupConditions, key: PodGroupKey) -> None:
        if not together:
            asyncio.get_running_loop().call_soon(end_part)
        together.append(key)
        check(conditions, key)

    monkeypatch.setattr(GroupConditions, "_check", counted)

    async def play(world: InProcess) -> None:
        for number in range(150):
            world.apply(make_group(f"g{number}", 2), make_member(f"p{number}", f"g{number}"))
        await asyncio.sleep(3)
        waiting = [
            path
            for path, obj in world.client.objects.items()
            if "/podgroups/" in path
            and any(
                each["reason"] == "WaitingForPods"
                for each in obj.get("status", {}).get("conditions", ())
            )
        ]
        assert len(waiting) == 150
        assert max(parts) == MAX_CHECKS_PER_ITERATION

    story(play)
