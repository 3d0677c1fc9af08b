"""Carrying a preemption out: who is told what, in which order, and what is left when it fails."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.backend.queued_pod import Place
from stellwerk.clock import VirtualClock
from stellwerk.errors import ApiError, Conflict, Forbidden, NotFound, SchedulerError, Unavailable
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.status import OK
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.preemption.victim_order import best_candidates
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.preemption import RETRY_DELAYS_SECONDS, PreemptionExecutor, narrowed
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.scheduler.waiting_pods import WaitingPodsMap
from tests.support.builders import make_pod, pod_info
from tests.support.queue_driver import QueueDriver

if TYPE_CHECKING:
    from stellwerk.framework.runtime import Framework
    from stellwerk.framework.services import ClusterClient
    from stellwerk.scheduler.parts import Parts

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Api:
    """Records what it is asked; fails or holds back where a test says so."""

    cache: Cache
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(verb, pod)."""
    patches: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failures: dict[tuple[str, str], list[ApiError]] = field(default_factory=dict)
    held: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    watch_lags: bool = False
    goes_at_once: bool = False

    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        await self._answer("patch", name)
        assert namespace == "default"
        assert urgent == ("conditions" in patch["status"]), "lost nominations can wait"
        self.patches[name] = patch

    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        await self._answer("delete", name)
        pod = self.cache.pod(uid)
        assert pod is not None
        assert pod.namespace == namespace
        if not self.watch_lags:
            self.show_terminating(pod)
        return self.goes_at_once

    def show_terminating(self, pod: PodInfo) -> None:
        """As the watch does."""
        name = pod.name
        terminating = make_pod(name, node_name=pod.node_name, priority=pod.priority)
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
        self.cache.set_pod(parse_pod(terminating))

    async def _answer(self, verb: str, name: str) -> None:
        self.asked.append((verb, name))
        if (verb, name) in self.held:
            await self.held[verb, name].wait()
        if self.failures.get((verb, name)):
            raise self.failures[verb, name].pop(0)


@dataclass
class Events:
    """Records notes by the name of the pod they are about."""

    notes: dict[str, str] = field(default_factory=dict)

    def event(self, regarding: Any, *texts: str, reporting_controller: str) -> None:
        assert texts[:3] == ("Normal", "Preempted", "Preempting")
        assert reporting_controller == "default-scheduler"
        self.notes[regarding.name] = texts[3]


class Scene:
    """A preemptor in flight and its victims."""

    def __init__(self, *victims: str, terminating: Sequence[str] = ()) -> None:
        self.cache = Cache()
        self.clock = VirtualClock(START)
        self.driver = QueueDriver()
        self.api = Api(self.cache)
        self.events = Events()
        self.metrics = Metrics()
        self.waiting = WaitingPodsMap()
        self.bindings = BindingTasks()
        self.slept: list[float] = []
        self.victims = [self._victim(name, terminating=name in terminating) for name in victims]
        self.preemptor = PreemptionExecutor(
            cast(
                "Parts",
                SimpleNamespace(
                    cache=self.cache,
                    clock=self.clock,
                    client=self.api,
                    recorder=self.events,
                    metrics=self.metrics,
                    waiting=self.waiting,
                    bindings=self.bindings,
                    reports=StatusReports(cast("ClusterClient", self.api), self.clock),
                    queue=self.driver.queue,
                ),
            ),
            sleep=self._sleep,
        )
        self.pod = pod_info("preemptor", priority=1000)
        self.driver.add(self.pod)
        self.entry = self.driver.pop_named("preemptor")

    def _victim(self, name: str, *, terminating: bool, node_name: str = "n1") -> PodInfo:
        pod = make_pod(name, node_name=node_name, priority=1)
        if terminating:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
        info = parse_pod(pod)
        self.cache.set_pod(info)
        return info

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def start(self, *, node_name: str = "n1") -> str:
        found = PostFilterResult(
            OK, (Candidate(node_name, tuple(self.victims), 0),), best_candidates
        )
        chosen = self.preemptor.start(self.pod, found, cast("Framework", None))
        self.driver.fail(self.entry, "NodeResourcesFit")
        self.driver.queue.nominate(self.pod, chosen)
        return chosen

    def asked_gates(self) -> list[str]:
        """The pods whose gates the queue is told to ask from now on, noted as it happens."""
        asked: list[str] = []
        rerun_pre_enqueue = self.driver.queue.rerun_pre_enqueue

        def noted(uid: str) -> None:
            asked.append(uid)
            rerun_pre_enqueue(uid)

        self.driver.queue.rerun_pre_enqueue = noted  # type: ignore[method-assign]
        return asked

    async def finish(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    @property
    def place(self) -> Place | None:
        return self.driver.queue.place(self.pod.uid)

    def executions(self, result: str) -> float:
        return self.metrics.preemption_goroutines_execution.labels(result).value


def refusal(kind: type[ApiError] = Unavailable, **fields: Any) -> ApiError:
    return kind("delete", 503, "ServiceUnavailable", "not now", **fields)


# --- victims ------------------------------------------------------------------------------------


async def test_a_victim_is_marked_then_deleted_and_the_event_names_the_preemptor() -> None:
    scene = Scene("v1")
    assert scene.start() == "n1"
    await scene.finish()
    assert scene.api.asked == [("patch", "v1"), ("delete", "v1")]
    (condition,) = scene.api.patches["v1"]["status"]["conditions"]
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastProbeTime": None,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert scene.events.notes == {"v1": f"Preempted by pod {scene.pod.uid} on node n1"}
    assert scene.executions("success") == 1


async def test_the_last_victim_is_told_when_all_others_know() -> None:
    scene = Scene("v1", "v2", "v3")
    hold = scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    await scene.finish()
    assert ("patch", "v3") not in scene.api.asked
    hold.set()
    await scene.finish()
    assert scene.api.asked[-2:] == [("patch", "v3"), ("delete", "v3")]


async def test_a_victim_that_is_terminating_already_is_left_alone() -> None:
    scene = Scene("going", "v1", terminating=["going"])
    scene.start()
    await scene.finish()
    assert {name for _, name in scene.api.asked} == {"v1"}


async def test_with_nobody_left_to_tell_the_node_is_only_promised() -> None:
    scene = Scene("going", terminating=["going"])
    assert scene.start() == "n1"
    assert not scene.preemptor.is_preempting(scene.pod.uid)
    await scene.finish()
    assert scene.api.asked == []
    assert [pod.name for pod in scene.driver.queue.nominator.pods_for_node("n1")] == ["preemptor"]


async def test_a_victim_waiting_on_permit_is_rejected_instead() -> None:
    scene = Scene("v1")
    held = scene.waiting.hold(scene.victims[0], {"Gang": 60.0})
    scene.start()
    await scene.finish()
    assert scene.api.asked == []
    status = await held.answer()
    assert (status.plugin, status.message) == ("DefaultPreemption", "preempted")
    assert scene.events.notes["v1"].endswith("on node n1 (in kube-scheduler memory).")


async def test_a_victim_being_bound_is_cancelled_instead() -> None:
    scene = Scene("v1")
    cancelled = asyncio.Event()

    async def binding() -> None:
        with scene.bindings.cancellable(scene.victims[0].uid):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    scene.bindings.start(scene.victims[0].uid, binding())
    await asyncio.sleep(0)
    scene.start()
    await scene.finish()
    assert cancelled.is_set()
    assert scene.api.asked == []


async def test_victims_taken_from_other_nodes_are_told_why() -> None:
    scene = Scene("v1")
    scene.start(node_name="n2")
    await scene.finish()
    assert scene.events.notes["v1"] == (
        f"Preempted by pod {scene.pod.uid} on node n2 (cross-node preemption of 1 pod(s) on n1)"
    )


# --- the preemptor meanwhile --------------------------------------------------------------------


async def test_the_preemptor_is_held_back_until_the_last_victim_is_on_its_way() -> None:
    scene = Scene("v1", "v2")
    hold = scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    assert scene.preemptor.is_preempting(scene.pod.uid)
    await scene.finish()
    assert scene.preemptor.is_preempting(scene.pod.uid)
    hold.set()
    await scene.finish()
    assert not scene.preemptor.is_preempting(scene.pod.uid)


async def test_the_news_of_the_last_victims_end_may_come_before_the_answer() -> None:
    scene = Scene("v1", "v2")
    scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    await scene.finish()
    scene._victim("v2", terminating=True)  # noqa: SLF001 the watch shows it so
    assert scene.preemptor.is_preempting(scene.pod.uid)
    scene.cache.remove_pod(scene.victims[1].uid)
    assert not scene.preemptor.is_preempting(scene.pod.uid)
    await scene.preemptor.close()


async def test_the_gate_is_asked_when_the_last_victim_is_gone_and_when_all_is_done() -> None:
    scene = Scene("v1", "v2")
    asked = scene.asked_gates()
    hold = scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    await scene.finish()
    for victim in scene.victims:
        scene.preemptor.on_leaving(victim.uid)
    assert asked == []
    gone = scene.cache.remove_pod(scene.victims[1].uid)
    assert gone is not None
    scene.preemptor.on_leaving(gone.uid)
    assert asked == [scene.pod.uid]
    scene.api.failures["delete", "v2"] = [NotFound("delete", 404, "NotFound", "gone")]
    hold.set()
    await scene.finish()
    assert asked == [scene.pod.uid] * 2
    scene.preemptor.on_leaving(gone.uid)
    assert asked == [scene.pod.uid] * 2


async def test_the_preemptor_is_held_back_until_the_watch_shows_the_last_victim_leaving() -> None:
    scene = Scene("v1", "v2")
    scene.api.watch_lags = True
    scene.start()
    await scene.finish()
    assert scene.preemptor.is_preempting(scene.pod.uid)
    for victim in scene.victims:
        scene.api.show_terminating(victim)
        scene.preemptor.on_leaving(victim.uid)
    assert not scene.preemptor.is_preempting(scene.pod.uid)


async def test_a_last_victim_that_goes_at_once_has_to_be_gone() -> None:
    scene = Scene("v1", "v2")
    scene.api.goes_at_once = True
    scene.start()
    await scene.finish()
    assert scene.preemptor.is_preempting(scene.pod.uid)
    scene.cache.remove_pod(scene.victims[1].uid)
    scene.preemptor.on_leaving(scene.victims[1].uid)
    assert scene.place is Place.UNSCHEDULABLE
    assert not scene.preemptor.is_preempting(scene.pod.uid)


async def test_other_pods_learn_of_it_through_their_own_rejections_only() -> None:
    scene = Scene("v1")
    scene.start()
    await scene.finish()
    assert scene.place is Place.UNSCHEDULABLE


@pytest.mark.parametrize("answer", [NotFound, Conflict])
async def test_a_preemptor_whose_victim_was_gone_already_is_tried_again(
    answer: type[ApiError],
) -> None:
    """Its end was seen while the preemptor was held back: no other event will come."""
    scene = Scene("v1")
    scene.api.failures["delete", "v1"] = [refusal(answer)]
    scene.start()
    await scene.finish()
    assert scene.place is Place.ACTIVE
    assert scene.executions("success") == 1
    assert scene.events.notes == {}


async def test_lower_nominations_on_the_node_are_cleared_and_their_pods_tried() -> None:
    scene = Scene("v1")
    lower = pod_info("lower", priority=10, nominated_node_name="n1")
    equal = pod_info("equal", priority=1000, nominated_node_name="n1")
    for pod in (lower, equal):
        scene.driver.reject(pod, "NodeResourcesFit")
    scene.start()
    await scene.finish()
    assert scene.api.patches["lower"] == {"status": {"nominatedNodeName": None}}
    assert "equal" not in scene.api.patches
    assert scene.driver.queue.place(lower.uid) is Place.ACTIVE
    nominated = scene.driver.queue.nominator.pods_for_node("n1")
    assert {pod.name for pod in nominated} == {"equal", "preemptor"}


# --- failures -----------------------------------------------------------------------------------


async def test_an_api_that_is_away_is_asked_again() -> None:
    scene = Scene("v1")
    scene.api.failures["delete", "v1"] = [refusal(), refusal(retry_after_seconds=7.0)]
    scene.start()
    await scene.finish()
    assert scene.slept == [RETRY_DELAYS_SECONDS[0], 7.0]
    assert scene.executions("success") == 1


@pytest.mark.parametrize(
    ("failures", "tries"),
    [
        pytest.param([refusal()] * 10, len(RETRY_DELAYS_SECONDS) + 1, id="the API stays away"),
        pytest.param([refusal(Forbidden)], 1, id="we may not delete pods"),
    ],
)
async def test_a_preemption_that_fails_takes_the_promise_back(
    failures: list[ApiError], tries: int
) -> None:
    scene = Scene("v1", "v2")
    scene.api.failures["delete", "v1"] = list(failures)
    scene.start()
    await scene.finish()
    assert scene.api.asked.count(("delete", "v1")) == tries
    assert ("delete", "v2") not in scene.api.asked
    assert scene.executions("error") == 1
    assert not scene.preemptor.is_preempting(scene.pod.uid)
    assert scene.api.patches["preemptor"] == {"status": {"nominatedNodeName": None}}
    assert scene.driver.queue.nominator.pods_for_node("n1") == ()
    assert scene.place is Place.ACTIVE


async def test_what_nobody_foresaw_takes_the_promise_back_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene("v1")
    scene.api.failures["delete", "v1"] = [cast("ApiError", ZeroDivisionError("oops"))]
    scene.start()
    await scene.finish()
    assert scene.place is Place.ACTIVE
    assert "ZeroDivisionError" in caplog.text


async def test_a_preemptor_deleted_halfway_spares_the_other_victims() -> None:
    scene = Scene("v1", "v2")
    hold = scene.api.held["patch", "v1"] = asyncio.Event()
    scene.start()
    await scene.finish()
    scene.driver.queue.delete(scene.pod.uid)
    hold.set()
    await scene.finish()
    assert scene.api.asked == [("patch", "v1")]
    assert "preemptor" not in scene.api.patches


async def test_abandoned_work_leaves_nothing_behind() -> None:
    scene = Scene("v1", "v2")
    scene.api.held["patch", "v1"] = asyncio.Event()
    scene.start()
    await scene.finish()
    scene.preemptor.abandon(scene.pod.uid)
    await scene.finish()
    assert not scene.preemptor.is_preempting(scene.pod.uid)
    assert scene.api.asked == [("patch", "v1")]


async def test_closing_stops_everything_under_way() -> None:
    scene = Scene("v1")
    scene.api.held["patch", "v1"] = asyncio.Event()
    scene.start()
    await scene.finish()
    await scene.preemptor.close()
    assert len(asyncio.all_tasks()) == 1


# --- extenders ----------------------------------------------------------------------------------


@dataclass
class Extender:
    """Keeps the nodes that a test names."""

    keeps: Sequence[str] = ()
    fails: bool = False
    ignorable: bool = False
    supports_preemption: bool = True
    interested: bool = True
    victims: bool = True
    name: str = "extender"

    def is_interested(self, pod: PodInfo) -> bool:
        assert pod.name == "preemptor"
        return self.interested

    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        assert pod.name == "preemptor"
        if self.fails:
            raise SchedulerError("extender: no answer")
        return [
            each if self.victims else Candidate(each.node_name, (), 0)
            for each in candidates
            if each.node_name in self.keeps
        ]


FOUND = PostFilterResult(
    OK,
    tuple(Candidate(name, (pod_info("v", node_name=name),), 0) for name in ("n1", "n2", "n3")),
    best_candidates,
)


@pytest.mark.parametrize(
    ("extenders", "left"),
    [
        pytest.param([], ["n1", "n2", "n3"], id="none"),
        pytest.param([Extender(["n1", "n2"]), Extender(["n2", "n3"])], ["n2"], id="one by one"),
        pytest.param(
            [Extender(supports_preemption=False), Extender(interested=False)],
            ["n1", "n2", "n3"],
            id="those that are not concerned are not asked",
        ),
        pytest.param(
            [Extender(fails=True, ignorable=True)], ["n1", "n2", "n3"], id="an ignorable failure"
        ),
        pytest.param(
            [Extender(["n1"], victims=False, ignorable=True)], [], id="ignorable and no victims"
        ),
    ],
)
async def test_extenders_strike_candidates_off(
    extenders: Sequence[Extender], left: list[str]
) -> None:
    result = await narrowed(pod_info("preemptor"), FOUND, extenders)
    assert [each.node_name for each in result.candidates] == left
    if not left:
        assert result.status.message == "preemption: no candidate node for preemption"


@pytest.mark.parametrize(
    ("extender", "message"),
    [
        pytest.param(Extender(fails=True), "preemption: extender: no answer", id="a failure"),
        pytest.param(
            Extender(["n2"], victims=False),
            'preemption: expected at least one victim pod on node "n2"',
            id="a node without victims",
        ),
    ],
)
async def test_an_extender_that_cannot_be_ignored_ends_the_attempt(
    extender: Extender, message: str
) -> None:
    result = await narrowed(pod_info("preemptor"), FOUND, [extender])
    assert (result.status.message, result.candidates) == (message, ())
