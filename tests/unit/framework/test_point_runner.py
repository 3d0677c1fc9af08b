"""Plugins of one point run in order, are measured, and named where they fail."""

from collections.abc import Set as AbstractSet
from typing import ClassVar

import pytest
from typing_extensions import override

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.extension_points import BIND, RESERVE
from stellwerk.framework.interface import BindPlugin, ReservePlugin
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.status import OK, Code, Status, error, unschedulable
from stellwerk.framework.stopwatch import Stopwatch
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.models.pod import PodInfo
from tests.support.builders import pod_info

POD = pod_info("web")


class Measured(Stopwatch):
    """What was measured, in order."""

    def __init__(self) -> None:
        self.points: list[tuple[str, Code, float]] = []
        self.plugins: list[tuple[str, str, Code, float]] = []

    @override
    def started(self) -> float:
        return 7.0

    @override
    def point(self, label: str, code: Code, started: float) -> None:
        self.points.append((label, code, started))

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        self.plugins.append((plugin, label, code, started))

    @override
    def evaluated(self, label: str, skipped: AbstractSet[str]) -> None: ...


class Reserving(ReservePlugin):
    name: ClassVar[str] = "Reserving"

    def __init__(self, answer: Status | Exception) -> None:
        self.answer = answer
        self.asked = 0

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class Binding(BindPlugin):
    name: ClassVar[str] = "Binding"

    @override
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        raise ValueError("no such node")


def runner(
    *plugins: Reserving, stopwatch: Stopwatch | None = None
) -> PointRunner[ReservePlugin, Status]:
    return PointRunner(RESERVE, {ExtensionPoint.RESERVE: plugins}, stopwatch or Measured())


def test_a_plugin_is_asked_when_the_caller_comes_to_it() -> None:
    first, second = Reserving(OK), Reserving(OK)
    answers = runner(first, second).run(CycleState(), POD, "n1")
    assert next(answers) == (first, OK)
    assert (first.asked, second.asked) == (1, 0)


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ValueError("no"), 'running Reserve plugin "Reserving": ValueError: no'),
        (PluginFailure("Other", "Filter", "late"), 'running Filter plugin "Other": late'),
    ],
    ids=["anything is named", "a name that is there already stays"],
)
def test_what_a_plugin_raises_names_it(raised: Exception, message: str) -> None:
    with pytest.raises(PluginFailure, match=message):
        list(runner(Reserving(raised)).run(CycleState(), POD, "n1"))


async def test_so_does_what_it_raises_while_it_waits() -> None:
    binding = PointRunner(BIND, {ExtensionPoint.BIND: [Binding()]}, Measured())
    ((plugin, call),) = binding.calls
    with pytest.raises(PluginFailure, match='running Bind plugin "Binding": ValueError'):
        await binding.wait(plugin, call, CycleState(), POD, "n1")


@pytest.mark.parametrize("sampled", [True, False])
def test_plugins_are_measured_in_sampled_attempts(*, sampled: bool) -> None:
    measured = Measured()
    full = unschedulable("Reserving", "full")
    list(runner(Reserving(full), stopwatch=measured).run(CycleState(sampled=sampled), POD, "n1"))
    expected = [("Reserving", "Reserve", Code.UNSCHEDULABLE, 7.0)]
    assert measured.plugins == (expected if sampled else [])


def test_a_run_that_raises_is_measured_as_an_error() -> None:
    measured = Measured()
    point = runner(stopwatch=measured)
    with point.timed() as timing:
        assert timing.noted(OK) is OK
    with pytest.raises(ValueError, match="broken"), point.timed():
        raise ValueError("broken")
    assert measured.points == [("Reserve", Code.SUCCESS, 7.0), ("Reserve", Code.ERROR, 7.0)]


def test_a_rejection_keeps_its_plugin_and_an_error_gets_a_name() -> None:
    point, plugin = runner(), Reserving(OK)
    assert point.named(plugin, unschedulable("", "full")) == unschedulable("Reserving", "full")
    assert point.named(plugin, unschedulable("Other", "full")) == unschedulable("Other", "full")
    named = point.named(plugin, error("", "lost"))
    assert named == error("Reserving", 'running Reserve plugin "Reserving": lost')
