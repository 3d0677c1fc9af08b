"""The page's questions: few at once, each once a second, however many windows there are."""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.answers.answer import Kind, codec
from stellwerk.answers.decisions import DecisionsPage
from stellwerk_cli.page.answers import FRESH_SECONDS, MAX_KEPT_ANSWERS, Answers, PodEvent, Port
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import SchedulerError
from tests.support.in_process import eventually


class SlowPort(Port):
    """Answers when it is let, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.open = asyncio.Event()
        self.open.set()
        self.failing = False

    @override
    async def get(self, path: str, kind: type[Kind]) -> Kind:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.open.wait()
        self.at_once -= 1
        if self.failing:
            raise SchedulerError("no answer")
        return codec(kind).read({"total": self.asked, "items": []})

    @override
    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        return await self.get(path, kind)


async def test_windows_share_an_answer_for_a_second() -> None:
    port, clock = SlowPort(), VirtualClock()
    answers = Answers(port, clock)
    port.open.clear()
    windows = [asyncio.create_task(answers.get("/queue", DecisionsPage)) for _ in range(20)]
    await asyncio.sleep(0)
    port.open.set()
    assert {each.total for each in await asyncio.gather(*windows)} == {1}
    clock.advance(FRESH_SECONDS)
    assert (await answers.get("/queue", DecisionsPage)).total == 2


async def test_a_failure_is_not_kept_and_a_window_that_closes_ends_no_other() -> None:
    port = SlowPort()
    answers = Answers(port, VirtualClock())
    port.failing = True
    with pytest.raises(SchedulerError):
        await answers.get("/queue", DecisionsPage)
    port.failing = False
    port.open.clear()
    closed, other = (asyncio.create_task(answers.get("/queue", DecisionsPage)) for _ in range(2))
    await asyncio.sleep(0)
    closed.cancel()
    port.open.set()
    assert (await other).total == 2


async def test_few_are_asked_at_once_and_too_many_are_turned_away() -> None:
    port = SlowPort()
    answers = Answers(port, VirtualClock())
    port.open.clear()
    asked = [
        asyncio.create_task(answers.get(f"/explain/default/{n}", DecisionsPage)) for n in range(100)
    ]
    await eventually(lambda: port.asked == 3)
    port.open.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert port.most_at_once == 3
    assert 0 < sum(isinstance(each, SchedulerError) for each in results) < 100


async def test_what_is_old_is_let_go() -> None:
    port, clock = SlowPort(), VirtualClock()
    answers = Answers(port, clock)
    await answers.get("/nodes", DecisionsPage)
    await answers.get("/profiles", DecisionsPage)
    assert len(answers) == 2
    clock.advance(FRESH_SECONDS)
    await answers.get("/queue", DecisionsPage)
    assert len(answers) == 1


async def test_what_is_kept_is_bounded() -> None:
    port = SlowPort()
    answers = Answers(port, VirtualClock())
    for number in range(4 * MAX_KEPT_ANSWERS):
        await answers.get(f"/explain/default/{number}", DecisionsPage)
    await answers.get(f"/explain/default/{4 * MAX_KEPT_ANSWERS - 1}", DecisionsPage)
    assert port.asked == 4 * MAX_KEPT_ANSWERS, "the last one is kept"
    await answers.get("/explain/default/0", DecisionsPage)
    assert port.asked == 4 * MAX_KEPT_ANSWERS + 1, "the first one is not"


@pytest.mark.parametrize(
    ("written", "event"),
    [
        pytest.param(
            {"lastTimestamp": "t", "type": "Warning", "reason": "r", "message": "m", "count": 4},
            PodEvent("t", "Warning", "r", "m", 4),
            id="v1",
        ),
        pytest.param(
            {"eventTime": "t", "type": "Normal", "reason": "r", "note": "n", "series": None},
            PodEvent("t", "Normal", "r", "n", 1),
            id="events.k8s.io",
        ),
        pytest.param(
            {"eventTime": "t", "series": {"count": 7, "lastObservedTime": "u"}},
            PodEvent("u", "", "", "", 7),
            id="a series",
        ),
    ],
)
def test_an_event_is_read_in_both_versions(written: dict[str, object], event: PodEvent) -> None:
    assert PodEvent.of(written) == event


async def test_what_is_kept_under_a_name_is_asked_for_again_when_it_is_too_old() -> None:
    clock, asked = VirtualClock(), count()
    answers = Answers(SlowPort(), clock)

    async def question() -> int:
        return next(asked)

    assert [await answers.kept("e", question, 10.0) for _ in range(2)] == [0, 0]
    clock.advance(10)
    assert await answers.kept("e", question, 10.0) == 1
