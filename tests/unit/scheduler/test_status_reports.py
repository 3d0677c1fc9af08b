"""Reports on pods that wait: what is written, in which order, and what need not be."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.framework.offline import Offline
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.world.pod_status import LEAVE_NOMINATION, NominatingInfo, Report
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import NotFound, Unavailable
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running


class Api(Offline):
    """Takes patches; holds them back until it is told to answer."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Mapping[str, Any]]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.refuses: dict[str, Exception] = {}

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        assert namespace == "default"
        assert not urgent
        self.patches.append((name, patch["status"]))
        await self.open.wait()
        if name in self.refuses:
            raise self.refuses[name]


class Desk:
    """Reports on their way to an API."""

    def __init__(self) -> None:
        self.api = Api()
        self.observed: set[str] = set()
        """Names of pods that another scheduler serves."""
        self.reports = StatusReports(
            self.api, VirtualClock(), lambda pod: pod.name in self.observed
        )

    def put(
        self, name: str, message: str = "", nomination: NominatingInfo = LEAVE_NOMINATION
    ) -> None:
        reason = "Unschedulable" if message else ""
        self.reports.put(Report(pod_info(name), reason, message, nomination))

    async def idle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def hold(self, *names: str) -> None:
        """Have reports begun that are not answered."""
        self.api.open.clear()
        for name in names:
            self.put(name, "no room")
        await asyncio.sleep(0)
        assert [name for name, _ in self.api.patches] == list(names)

    async def jam(self) -> None:
        """Hold every writer up."""
        await self.hold(*(f"held-{number}" for number in range(4)))

    async def written(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Let the API answer; what is written about all but the pods that held it up."""
        self.api.open.set()
        await self.idle()
        return [(name, status) for name, status in self.api.patches if "held" not in name]


def says(status: Mapping[str, Any]) -> str:
    (condition,) = status["conditions"]
    assert condition["type"] == "PodScheduled"
    assert condition["status"] == "False"
    return str(condition["message"])


async def test_of_a_pod_that_is_observed_by_now_nothing_is_written() -> None:
    desk = Desk()
    await desk.jam()
    desk.put("mine", "no room")
    desk.put("others", "no room")
    desk.observed.add("others")
    assert [name for name, _ in await desk.written()] == ["mine"]
    desk.put("others", "no room")
    assert [name for name, _ in await desk.written()] == ["mine"]


async def test_a_report_is_written_in_the_background() -> None:
    desk = Desk()
    desk.put("web", "no room", NominatingInfo("n1"))
    ((name, status),) = await desk.written()
    assert name == "web"
    assert says(status) == "no room"
    assert status["nominatedNodeName"] == "n1"


async def test_of_several_that_wait_the_newest_of_everything_is_written() -> None:
    desk = Desk()
    await desk.jam()
    desk.put("web", "no room", NominatingInfo("n1"))
    desk.put("web", "still no room")
    desk.put("job", "no room", NominatingInfo("n2"))
    desk.put("job", nomination=NominatingInfo("", in_any_case=True))
    (web, web_status), (job, job_status) = await desk.written()
    assert (web, job) == ("web", "job")
    assert says(web_status) == "still no room"
    assert web_status["nominatedNodeName"] == "n1"
    assert says(job_status) == "no room"
    assert job_status["nominatedNodeName"] is None


async def test_what_is_cancelled_is_not_written() -> None:
    desk = Desk()
    await desk.jam()
    desk.put("web", "no room")
    await desk.reports.cancel_or_flush("uid-of-no-pod")
    await desk.reports.cancel_or_flush(pod_info("web").uid)
    assert await desk.written() == []


async def test_flushing_waits_for_what_is_being_written() -> None:
    desk = Desk()
    await desk.hold("web")
    desk.put("web", "still no room")
    flushing = asyncio.create_task(desk.reports.cancel_or_flush(pod_info("web").uid))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not flushing.done()
    desk.api.open.set()
    await flushing
    ((_, status),) = await desk.written()
    assert says(status) == "no room"


async def test_of_one_pod_one_report_is_written_at_a_time() -> None:
    desk = Desk()
    await desk.hold("web")
    desk.put("web", "still no room")
    desk.put("job", "no room")
    await asyncio.sleep(0)
    assert [name for name, _ in desk.api.patches] == ["web", "job"]
    written = await desk.written()
    assert [(name, says(status)) for name, status in written] == [
        ("web", "no room"),
        ("job", "no room"),
        ("web", "still no room"),
    ]


async def test_what_is_written_now_replaces_what_waits_and_comes_after_what_is_being_written() -> (
    None
):
    desk = Desk()
    await desk.hold("web")
    desk.put("web", "still no room")
    report = Report(pod_info("web"), "SchedulerError", "no profile")
    writing = asyncio.create_task(desk.reports.write(report))
    await asyncio.sleep(0)
    assert len(desk.api.patches) == 1
    written = await desk.written()
    await writing
    assert [says(status) for _, status in written] == ["no room", "no profile"]


async def test_after_a_flush_a_pod_may_be_reported_on_anew() -> None:
    desk = Desk()
    await desk.jam()
    desk.put("web", "no room", NominatingInfo("n1"))
    await desk.reports.cancel_or_flush(pod_info("web").uid)
    desk.put("web", "binding failed")
    ((_, status),) = await desk.written()
    assert says(status) == "binding failed"
    assert "nominatedNodeName" not in status


async def test_a_refusal_is_told_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.api.refuses = {
        "gone": NotFound("patch", 404, "NotFound", "no such pod"),
        "web": Unavailable("patch the status of default/web", 503, "", "away"),
    }
    for name in ("gone", "web", "job"):
        desk.put(name, "no room")
    assert [name for name, _ in await desk.written()] == ["gone", "web", "job"]
    (record,) = caplog.records
    assert "cannot report on default/web" in record.getMessage()


async def test_what_the_pod_says_already_is_not_written() -> None:
    desk = Desk()
    desk.put("web", nomination=NominatingInfo(""))
    assert await desk.written() == []


class HeldPatches:
    """Holds back what an operator writes into the status of pods."""

    def __init__(self, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.begun: list[str] = []
        self._send = world.client.patch_pod_status
        monkeypatch.setattr(world.client, "patch_pod_status", self._patch)

    async def _patch(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        self.begun.append(name)
        await self.open.wait()
        await self._send(namespace, name, patch, urgent=urgent)


async def report_that_waits(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> HeldPatches:
    """One about the pod web, behind those about pods that are too big."""
    held = HeldPatches(world, monkeypatch)
    world.apply(make_profile("default-scheduler"))
    world.apply(*(make_pod(f"big-{number}", cpu="64") for number in range(4)))
    await eventually(lambda: len(held.begun) == 4)
    world.apply(make_pod("web"))
    await eventually(lambda: world.notes.about("web"))
    return held


async def test_a_binding_waits_for_the_report_that_is_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(VirtualClock()) as world:
        held = HeldPatches(world, monkeypatch)
        world.apply(make_profile("default-scheduler"), make_pod("web"))
        await eventually(lambda: held.begun == ["web"])
        world.apply(make_node("n1"))
        world.clock.advance(60)
        world.queue.flush_backoff(world.clock.monotonic())
        await quiet()
        assert world.pod("web")["metadata"]["uid"] in world.cache.assumed_pods
        assert world.node_of("web") is None
        held.open.set()
        await eventually(lambda: world.node_of("web") == "n1")
        writes = [verb for verb, path in world.client.requests if "/pods/web" in path]
        assert writes == ["PATCH", "POST"]


async def test_a_binding_overtakes_the_report_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(VirtualClock()) as world:
        held = await report_that_waits(world, monkeypatch)
        world.apply(make_node("n1"))
        world.clock.advance(60)
        world.queue.flush_backoff(world.clock.monotonic())
        await eventually(lambda: world.node_of("web") == "n1")
        held.open.set()
        await eventually(lambda: world.condition("big-3"))
        assert "web" not in held.begun
        assert world.condition("web") is None


@pytest.mark.parametrize("how", ["deleted", "bound from outside"])
async def test_a_pod_that_no_longer_waits_is_not_reported_on(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with running(VirtualClock()) as world:
        held = await report_that_waits(world, monkeypatch)
        if how == "deleted":
            world.delete("Pod", "web")
        else:
            world.apply(make_pod("web", node_name="elsewhere"))
        held.open.set()
        await eventually(lambda: world.condition("big-3"))
        await quiet()
        assert "web" not in held.begun
