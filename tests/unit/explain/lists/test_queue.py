"""Pods that wait by controller: alike ones are one row, in steps, and times do not jump."""

from copy import copy

import pytest

from stellwerk.answers.queue import QUEUE_COLUMNS, QueuePage
from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.explain.lists.page import MAX_MATCHES_PER_STEP, Page, PodsAsked
from stellwerk.explain.lists.queue import QueueOrder, queue_page
from stellwerk.explain.steps import finished
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.label_selectors import parse_selector_text
from tests.support.builders import make_node, make_pod, owned, pod_info
from tests.support.explaining_port import explaining_port
from tests.support.in_process import InProcess, make_profile, quiet
from tests.support.pod_groups import make_group, make_member

BY_CONTROLLER = QueueOrder(by_controller=True)


def of_web(number: int, cpu: str = "64") -> JsonObject:
    pod = make_pod(f"web-{number}", cpu=cpu, scheduler_name="stellwerk")
    pod["metadata"]["creationTimestamp"] = f"2026-11-22T10:00:{number:02}Z"
    return owned(pod, name="web", kind="StatefulSet")


def page_of(world: InProcess, order: QueueOrder, asked: PodsAsked | None = None) -> QueuePage:
    steps = queue_page(world.operator.handlers.world, Page(), (), asked or PodsAsked(), order=order)
    return finished(steps)


async def test_alike_pods_are_one_row_and_a_group_s_members_too() -> None:
    async with explaining_port() as port:
        world = port.world
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"), make_group("team", 3))
        world.apply(*(of_web(number) for number in range(5)))
        for number in range(2):
            world.apply(make_member(f"m-{number}", "team", cpu="64"))
        world.apply(make_pod("alone", cpu="64", scheduler_name="stellwerk"))
        await quiet(100)
        page = page_of(world, BY_CONTROLLER)
        rows = {each.controller: each.pods for each in page.groups or ()}
        assert rows == {"StatefulSet/web": 5, "PodGroup/team": 2, None: 1}
        assert (page.total, page.groups_total, list(page.items)) == (8, 3, [])
        web = next(each for each in page.groups or () if each.controller == "StatefulSet/web")
        assert (web.created, web.rejected_by) == ("2026-11-22T10:00:00Z", ["NodeResourcesFit"])
        assert "Insufficient cpu" in (web.message or "")
        alike = page_of(world, QueueOrder("age"), PodsAsked(controller="default/StatefulSet/web"))
        assert [each.pod for each in alike.items] == [f"default/web-{n}" for n in range(5)]
        none = page_of(world, QueueOrder(), PodsAsked(reason="NodePorts"))
        assert none.total == 0


async def test_the_time_of_waiting_does_not_jump_at_an_attempt() -> None:
    async with explaining_port() as port:
        world = port.world
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"), of_web(0))
        await quiet(100)
        (before,) = page_of(world, QueueOrder()).items
        (entry,) = world.operator.handlers.world.queue.entries.values()
        entry.queued_at += 60  # as it comes back from another attempt
        (after,) = page_of(world, QueueOrder()).items
        assert (after.waits_since, after.since > before.since) == (before.waits_since, True)


async def test_namespace_and_labels_choose_pods() -> None:
    async with explaining_port() as port:
        world = port.world
        elsewhere = make_pod("db", namespace="shop", cpu="64", labels={"app": "db"})
        elsewhere["spec"]["schedulerName"] = "stellwerk"
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"), of_web(0), elsewhere)
        await quiet(100)
        (only,) = page_of(world, QueueOrder(), PodsAsked(namespace="shop")).items
        assert only.pod == "shop/db"
        for text, found in (("app=db", 1), ("app", 1), ("!app", 1), ("app=db,app!=db", 0)):
            asked = PodsAsked(selector=parse_selector_text(text))
            assert page_of(world, BY_CONTROLLER, asked).total == found, text
        status, said = await port.get("/queue?labelSelector=a%3D(b")
        assert (status, "labelSelector: unable to parse" in said) == (422, True)


@pytest.mark.parametrize("column", QUEUE_COLUMNS)
async def test_every_column_sorts_both_ways(column: str) -> None:
    async with explaining_port() as port:
        port.world.apply(make_profile("stellwerk"), *(of_web(number) for number in range(2)))
        await quiet(100)
        for order in (
            QueueOrder(column),
            QueueOrder(f"-{column}"),
            QueueOrder(column, by_controller=True),
        ):
            assert page_of(port.world, order).total == 2


def test_another_column_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="sorted by one of name, reason"):
        QueueOrder("colour")


async def test_ten_thousand_waiting_pods_are_grouped_in_short_steps() -> None:
    async with explaining_port() as port:
        world = port.world.operator.handlers.world
        fill(world, 10_000)
        steps = queue_page(world, Page(50), order=QueueOrder("name", by_controller=True))
        assert sum(1 for _ in steps) >= 3 * 10_000 // MAX_MATCHES_PER_STEP - 3
        page = finished(queue_page(world, Page(50), order=BY_CONTROLLER))
        assert [(each.controller, each.pods) for each in (page.groups or ())[:2]] == [
            ("Job/web-0", 10),
            ("Job/web-1", 10),
        ]
        assert (len(page.groups or ()), page.groups_total, page.total) == (50, 1000, 10_000)
        world.queue.entries.clear()


def fill(world: World, number: int) -> None:
    """Put pods of controllers with ten pods each into the queue."""
    for at in range(number):
        pod = copy(pod_info("web", uid=f"u{at}") if at == 0 else world.queue.entries["u0"].pod)
        pod.name, pod.uid = f"web-{at}", f"u{at}"
        pod.owner = ("batch/v1 Job", f"web-{at // 10}", f"w{at // 10}")
        entry = QueuedPod(pod, pod, "stellwerk", float(at), Place.UNSCHEDULABLE)
        world.queue.entries[pod.uid] = entry
