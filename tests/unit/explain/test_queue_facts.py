"""The history of the queues: what it shows, and that it stays as large as it is."""

from stellwerk.explain.queue_facts import QueueHistory
from stellwerk_kube.clock import VirtualClock
from tests.support.answers import written
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile, quiet, running


async def test_it_shows_what_waited_then_and_now() -> None:
    clock = VirtualClock()
    async with running(clock) as world:
        history = QueueHistory(world.operator.world)
        world.apply(make_profile("stellwerk"))
        history.sample()
        clock.advance(60)
        world.apply(make_pod("large", cpu="4", scheduler_name="stellwerk"))
        world.apply(
            make_node("node", cpu="2"), make_pod("web", cpu="1", scheduler_name="stellwerk")
        )
        await quiet(100)
        before, now = written(history.page())["items"]
        assert (before["unschedulable"], before["scheduled"]) == (0, 0)
        assert (now["unschedulable"], now["scheduled"]) == (1, 1)
        assert before["at"] < now["at"]


async def test_reading_adds_nothing_and_old_samples_go() -> None:
    clock = VirtualClock()
    async with running(clock) as world:
        history = QueueHistory(world.operator.world, kept=3)
        for _ in range(10):
            history.sample()
            clock.advance(5)
        first, second = written(history.page())["items"], written(history.page())["items"]
        assert len(first) == 4
        assert [each["at"] for each in first] == [each["at"] for each in second]
