"""How one point's plugins are called, named in what they raise, and measured."""

from typing import ClassVar

import pytest
from typing_extensions import override

from stellwerk.framework.binding_points import BindingPoints
from stellwerk.framework.extension_points import BIND, RESERVE
from stellwerk.framework.interface import BindPlugin, ReservePlugin
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.types import (
    OK,
    Code,
    CycleState,
    PluginFailure,
    Status,
    error,
    unschedulable,
)
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from tests.support.builders import pod_info

POD = pod_info("web")


class Measured(MetricsRecorder):
    """What was measured, in order; reads these times one after the other, then 7 each time."""

    def __init__(self, *times: float) -> None:
        self.plugins: list[tuple[str, str, Code, float]] = []
        self._times = iter(times)

    @override
    def started(self) -> float:
        return next(self._times, 7.0)

    @override
    def attempt(self, state: CycleState) -> None:
        raise AssertionError("an attempt is handed over by the scheduler")

    @override
    def point(self, label: str, code: Code, seconds: float) -> None:
        raise AssertionError("points are noted in the attempt")

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        self.plugins.append((plugin, label, code, started))


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
    *plugins: Reserving, metrics_recorder: MetricsRecorder | None = None
) -> PointRunner[ReservePlugin, Status]:
    return PointRunner(RESERVE, {ExtensionPoint.RESERVE: plugins}, metrics_recorder or Measured())


def reserve(
    state: CycleState, *plugins: Reserving, metrics_recorder: MetricsRecorder | None = None
) -> Status:
    at_points = {ExtensionPoint.RESERVE: plugins}
    points = BindingPoints(at_points, metrics_recorder or Measured())
    return points.reserve(state, POD, "n1")


def test_plugins_stand_in_calling_order() -> None:
    first, second, third = Reserving(OK), Reserving(unschedulable("", "full")), Reserving(OK)
    assert [plugin for plugin, _ in runner(first, second).calls] == [first, second]
    assert reserve(CycleState(), first, second, third) == unschedulable("Reserving", "full")
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


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
        reserve(CycleState(), Reserving(raised))


async def test_so_does_what_it_raises_while_it_waits() -> None:
    binding = PointRunner(BIND, {ExtensionPoint.BIND: [Binding()]}, Measured())
    ((plugin, call),) = binding.calls
    with pytest.raises(PluginFailure, match='running Bind plugin "Binding": ValueError'):
        await binding.wait(plugin, call, CycleState(), POD, "n1")


@pytest.mark.parametrize("sampled", [True, False])
def test_plugins_are_measured_in_sampled_attempts(*, sampled: bool) -> None:
    measured, state = Measured(), CycleState(sampled=sampled)
    full = unschedulable("Reserving", "full")
    assert reserve(state, Reserving(full), metrics_recorder=measured) == full
    expected = [("Reserving", "Reserve", Code.UNSCHEDULABLE, 7.0)]
    assert measured.plugins == (expected if sampled else [])


def test_a_run_is_noted_in_the_attempt_and_one_that_raises_as_an_error() -> None:
    point, state = runner(), CycleState()
    with point.timed(state) as timing:
        assert timing.noted(OK) is OK
        timing.skipped = {"Other"}
    with pytest.raises(ValueError, match="broken"), point.timed(state):
        raise ValueError("broken")
    assert state.point_runs == [
        ("Reserve", Code.SUCCESS, 0.0, {"Other"}),
        ("Reserve", Code.ERROR, 0.0, None),
    ]


def test_a_point_that_follows_another_begins_where_that_ended() -> None:
    point, state = runner(metrics_recorder=Measured(1.0, 3.0, 8.0)), CycleState()
    with point.timed(state) as timing:
        timing.code, timing.skipped = Code.SUCCESS, {"Other"}
        timing.go_on_with("Permit")
    assert state.point_runs == [
        ("Reserve", Code.SUCCESS, 2.0, {"Other"}),
        ("Permit", Code.ERROR, 5.0, None),
    ]


def test_a_rejection_keeps_its_plugin_and_an_error_gets_a_name() -> None:
    point, plugin = runner(), Reserving(OK)
    assert point.named(plugin, unschedulable("", "full")) == unschedulable("Reserving", "full")
    assert point.named(plugin, unschedulable("Other", "full")) == unschedulable("Other", "full")
    named = point.named(plugin, error("", "lost"))
    assert named == error("Reserving", 'running Reserve plugin "Reserving": lost')
