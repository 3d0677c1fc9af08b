"""Pods that no scheduler serves are listed and counted, and those of other schedulers are not."""

from collections.abc import Awaitable, Callable

from stellwerk.answers.queue import QueuePage
from stellwerk.backend.queued_pod import Place
from stellwerk.explain.lists.page import Page, PodsAsked
from stellwerk.explain.lists.queue import queue_page
from stellwerk.explain.steps import finished
from stellwerk.models.unserved_pods import MIN_UNSERVED_SECONDS
from stellwerk.profiles.unserved import MAX_NAMES, UnservedPods
from stellwerk.serving.exposition import exposition
from stellwerk_kube.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, running
from tests.support.skipped_time import run_skipping

Flow = Callable[[InProcess, VirtualClock], Awaitable[None]]
LEASES = "/apis/coordination.k8s.io/v1/leases"


def play(flow: Flow) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("stellwerk"), make_node("n1"))
            await flow(world, clock)

    run_skipping(run)


def unserved(world: InProcess) -> UnservedPods:
    return world.operator.unserved


def listed(world: InProcess, asked: PodsAsked | None = None) -> QueuePage:
    without = world.operator.without_profile.pods.values()
    return finished(
        queue_page(
            world.operator.world, Page(), without, asked or PodsAsked(), unserved(world).is_unserved
        )
    )


def names(page: QueuePage) -> list[str]:
    return [each.pod for each in page.unserved or ()]


def counted(world: InProcess, name: str) -> str:
    text = exposition(world.metrics).decode()
    start = f'stellwerk_unserved_pods{{scheduler_name="{name}"}} '
    return next((line.removeprefix(start) for line in text.splitlines() if start in line), "")


async def examined(world: InProcess, clock: VirtualClock) -> None:
    await unserved(world).round()
    clock.advance(MIN_UNSERVED_SECONDS)
    await unserved(world).round()


def test_pods_of_a_profile_that_was_deleted_show_at_once_and_in_the_alert() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(make_profile("packing"))
        await eventually(lambda: "packing" in world.profiles.served)
        world.delete("SchedulerProfile", "packing")
        world.apply(*(make_pod(f"p{n}", scheduler_name="packing") for n in range(3)))
        await eventually(lambda: len(world.operator.without_profile.pods) == 3)
        page = listed(world)
        assert (page.total, page.unserved_total, page.served) == (0, 3, ["stellwerk"])
        assert names(page) == ["default/p0", "default/p1", "default/p2"]
        await examined(world, clock)
        assert counted(world, "packing") == "3.0"
        assert "stellwerk_unserved_pods_once_served 3.0" in exposition(world.metrics).decode()
        world.apply(make_profile("packing"))
        await eventually(lambda: not world.operator.without_profile.pods)
        await unserved(world).round()
        assert listed(world).unserved is None
        assert counted(world, "packing") == ""
        assert "stellwerk_unserved_pods_once_served 0.0" in exposition(world.metrics).decode()

    play(flow)


def test_a_misspelt_name_gets_a_suggestion_and_one_of_nobody_the_served_names() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(make_pod("near", scheduler_name="stelwerk"))
        world.apply(make_pod("far", scheduler_name="volcano"))
        world.apply(make_pod("held", scheduler_name="volcano", schedulingGates=[{"name": "a"}]))
        assert names(listed(world)) == ["default/near"], "of volcano nothing is known yet"
        await examined(world, clock)
        page = listed(world)
        assert names(page) == ["default/near", "default/far"]
        assert [each.reason for each in page.unserved or ()] == [
            'no SchedulerProfile serves schedulerName "stelwerk"; did you mean "stellwerk"?',
            'no SchedulerProfile serves schedulerName "volcano"',
        ]
        assert names(listed(world, PodsAsked(queue="unserved", text="far"))) == ["default/far"]
        assert names(listed(world, PodsAsked(queue="active"))) == []
        assert "stellwerk_unserved_pods_once_served 0.0" in exposition(world.metrics).decode()

    play(flow)


def test_a_lease_that_is_renewed_tells_of_another_scheduler_until_it_is_renewed_no_more() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        held = {"holderIdentity": "v", "leaseDurationSeconds": 15}
        spec = {**held, "renewTime": clock.now().isoformat()}
        metadata = {"name": "volcano", "namespace": "volcano-system"}
        lease = {"kind": "Lease", "metadata": metadata, "spec": spec}
        world.client.objects[f"{LEASES}/volcano"] = lease
        world.apply(make_pod("theirs", scheduler_name="volcano"))
        await examined(world, clock)
        assert names(listed(world)) == []
        assert counted(world, "volcano") == ""
        found = world.operator.explanations.pod("default", "theirs")
        assert found is not None
        answer = finished(found)
        assert answer.state == "elsewhere"
        assert "the lease volcano-system/volcano is renewed" in str(answer.reason)
        clock.advance(120)
        await unserved(world).round()
        assert names(listed(world)) == ["default/theirs"]

    play(flow)


def test_a_pod_that_another_scheduler_has_bound_tells_of_it() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        bound = make_pod("bound", scheduler_name="volcano", node_name="n1")
        bound["status"] = {"phase": "Running", "startTime": clock.now().isoformat()}
        world.apply(bound, make_pod("theirs", scheduler_name="volcano"))
        await examined(world, clock)
        assert names(listed(world)) == []

    play(flow)


def test_names_are_counted_apart_up_to_a_limit() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(*(make_pod(f"p{n}", scheduler_name=f"s-{n}-qq") for n in range(MAX_NAMES + 5)))
        for _ in range(6):
            await unserved(world).round()
            clock.advance(MIN_UNSERVED_SECONDS)
        await unserved(world).round()
        assert world.metrics.unserved_pods.size <= MAX_NAMES + 1

    play(flow)


def test_a_popped_and_skipped_pod_that_is_deleted_is_in_no_list() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        leaving = make_pod("leaving", scheduler_name="stellwerk", cpu="900")
        world.apply(leaving)
        await eventually(lambda: world.condition("leaving") is not None)
        going = world.pod("leaving")
        going["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/hold"],
        }
        world.apply(going, make_node("n2", cpu="1000"))
        entry = world.queue.entries["uid-default-leaving"]
        await eventually(lambda: entry.place is Place.BINDING)
        page = listed(world)
        assert (page.total, page.items) == (0, [])
        found = world.operator.explanations.pod("default", "leaving")
        assert found is not None
        answer = finished(found)
        assert (answer.state, answer.queue) == ("terminating", None)
        assert "takes no room" in str(answer.note)

    play(flow)
