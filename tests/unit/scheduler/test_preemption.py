"""Carrying a preemption out: what is asked of the API in which order, and what a failure leaves."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.queued_pod import Place
from stellwerk.framework.interface import Candidate
from stellwerk.framework.offline import Offline
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.preemption import (
    RETRY_DELAYS_SECONDS,
    EvictionReason,
    PreemptionExecutor,
)
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.scheduler.waiting_pods_map import WaitingPodsMap
from stellwerk.world.decide import Eviction, VictimOutcome
from stellwerk.world.profiles import Profiles, RecordedRandom
from stellwerk.world.world import World
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from tests.support.builders import make_pod, pod_info
from tests.support.in_process import Notes
from tests.support.queue_driver import QueueDriver

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Api(Offline):
    """Records what it is asked; fails or holds back where a test says so."""

    cache: Cache
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(verb, pod)."""
    patches: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failures: dict[tuple[str, str], list[Exception]] = field(default_factory=dict)
    held: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    watch_lags: bool = False
    goes_at_once: bool = False

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        await self._answer("patch", name)
        assert namespace == "default"
        assert urgent == ("conditions" in patch["status"]), "lost nominations can wait"
        self.patches[name] = patch

    @override
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


class Scene:
    """A preemptor in flight and its victims."""

    def __init__(self, *victims: str) -> None:
        self.cache = Cache()
        self.clock = VirtualClock(START)
        self.driver = QueueDriver()
        self.api = Api(self.cache)
        self.events = Notes()
        self.metrics = Metrics()
        self.waiting = WaitingPodsMap()
        self.bindings = BindingTasks()
        self.slept: list[float] = []
        self.victims = [self._victim(name, terminating=False) for name in victims]
        self.world = World(
            self.cache,
            IndexedObjectStore(),
            PriorityClasses(),
            self.driver.queue.nominator,
            self.driver.queue,
            Profiles(),
            self.clock,
            RecordedRandom(Random(0)),
        )
        self.executor = PreemptionExecutor(
            self.world,
            APIDispatcher(self.api, self.events, StatusReports(self.api, self.clock)),
            self.metrics,
            self.bindings,
            self.waiting,
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

    def gated(self) -> bool:
        """Whether PreEnqueue keeps the preemptor out of the queue."""
        return self.pod.uid in self.world.preempting

    def start(self, *, node_name: str = "n1") -> None:
        """What applying a decision does, and carrying out its effects."""
        self.world.preempting.add(self.pod.uid)
        self.driver.fail(self.entry, "NodeResourcesFit")
        self.driver.queue.nominate(self.pod, node_name)
        victims = tuple(self.victims)
        candidate = Candidate(node_name, victims, 0)
        self.executor.start(Eviction(self.pod, candidate, victims, "default-scheduler"))

    def asked_gates(self) -> list[str]:
        """The pods whose PreEnqueue is run again from now on, noted as it happens."""
        asked: list[str] = []
        rerun_pre_enqueue = self.driver.queue.rerun_pre_enqueue

        def noted(uid: str, place: Place = Place.GATED) -> None:
            asked.append(uid)
            rerun_pre_enqueue(uid, place)

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
    scene.start()
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
    note = f"Preempted by pod {scene.pod.uid} on node n1"
    assert scene.events.events == [("v1", "Normal", "Preempted", note)]
    assert scene.executions("success") == 1


async def test_the_last_victim_is_evicted_when_all_others_are() -> None:
    scene = Scene("v1", "v2", "v3")
    hold = scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    await scene.finish()
    assert ("patch", "v3") not in scene.api.asked
    hold.set()
    await scene.finish()
    assert scene.api.asked[-2:] == [("patch", "v3"), ("delete", "v3")]


async def test_a_victim_waiting_on_permit_is_rejected_instead() -> None:
    scene = Scene("v1")
    waiting = scene.waiting.add(scene.victims[0], {"Gang": 60.0})
    scene.start()
    await scene.finish()
    assert scene.api.asked == []
    status = await waiting.answer()
    assert (status.plugin, status.message) == ("DefaultPreemption", "preempted")
    ((_, _, note),) = scene.events.about("v1")
    assert note.endswith("on node n1 (in kube-scheduler memory).")


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


async def test_events_of_victims_on_other_nodes_say_so() -> None:
    scene = Scene("v1")
    scene.start(node_name="n2")
    await scene.finish()
    ((_, _, note),) = scene.events.about("v1")
    assert note == (
        f"Preempted by pod {scene.pod.uid} on node n2 (cross-node preemption of 1 pod(s) on n1)"
    )


# --- the preemptor meanwhile --------------------------------------------------------------------


async def test_the_preemptor_is_held_back_until_the_last_victim_is_on_its_way() -> None:
    scene = Scene("v1", "v2")
    hold = scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    assert scene.gated()
    await scene.finish()
    assert scene.gated()
    hold.set()
    await scene.finish()
    assert not scene.gated()


async def test_the_news_of_the_last_victims_end_may_come_before_the_answer() -> None:
    scene = Scene("v1", "v2")
    scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    await scene.finish()
    scene._victim("v2", terminating=True)  # noqa: SLF001 the watch shows it so
    assert scene.gated()
    scene.cache.remove_pod(scene.victims[1].uid)
    scene.executor.on_victim(scene.victims[1].uid)
    assert not scene.gated()
    await scene.executor.close()


async def test_the_gate_is_asked_when_the_last_victim_is_gone_and_when_all_is_done() -> None:
    scene = Scene("v1", "v2")
    asked = scene.asked_gates()
    hold = scene.api.held["delete", "v2"] = asyncio.Event()
    scene.start()
    await scene.finish()
    for victim in scene.victims:
        scene.executor.on_victim(victim.uid)
    assert asked == []
    gone = scene.cache.remove_pod(scene.victims[1].uid)
    assert gone is not None
    scene.executor.on_victim(gone.uid)
    assert asked == [scene.pod.uid]
    scene.api.failures["delete", "v2"] = [NotFound("delete", 404, "NotFound", "gone")]
    hold.set()
    await scene.finish()
    assert asked == [scene.pod.uid] * 2
    scene.executor.on_victim(gone.uid)
    assert asked == [scene.pod.uid] * 2


async def test_the_preemptor_is_held_back_until_the_watch_shows_the_last_victim_leaving() -> None:
    scene = Scene("v1", "v2")
    scene.api.watch_lags = True
    scene.start()
    await scene.finish()
    assert scene.gated()
    for victim in scene.victims:
        scene.api.show_terminating(victim)
        scene.executor.on_victim(victim.uid)
    assert not scene.gated()


async def test_a_last_victim_that_goes_at_once_has_to_be_gone() -> None:
    scene = Scene("v1", "v2")
    scene.api.goes_at_once = True
    scene.start()
    await scene.finish()
    assert scene.gated()
    scene.cache.remove_pod(scene.victims[1].uid)
    scene.executor.on_victim(scene.victims[1].uid)
    assert scene.place is Place.UNSCHEDULABLE
    assert not scene.gated()


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
    assert scene.events.events == []


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


async def test_for_a_group_it_is_asked_again_as_late_as_it_says() -> None:
    scene = Scene("v1")
    scene.api.failures["delete", "v1"] = [refusal(), refusal(retry_after_seconds=7.0)]
    reason = EvictionReason("stellwerk", "podgroup", "Preempted by podgroup g on node cluster")
    outcome = await scene.executor.evictor.evict(scene.victims[0], reason)
    assert outcome is VictimOutcome.TERMINATING
    assert scene.slept == [RETRY_DELAYS_SECONDS[0], 7.0]


@pytest.mark.parametrize(
    ("failures", "tries"),
    [
        pytest.param([refusal()] * 10, len(RETRY_DELAYS_SECONDS) + 1, id="the API stays away"),
        pytest.param([refusal(Forbidden)], 1, id="we may not delete pods"),
    ],
)
async def test_a_preemption_that_fails_clears_the_nomination(
    failures: list[ApiError], tries: int
) -> None:
    scene = Scene("v1", "v2")
    scene.api.failures["delete", "v1"] = list(failures)
    scene.start()
    await scene.finish()
    assert scene.api.asked.count(("delete", "v1")) == tries
    assert ("delete", "v2") not in scene.api.asked
    assert scene.executions("error") == 1
    assert not scene.gated()
    assert scene.api.patches["preemptor"] == {"status": {"nominatedNodeName": None}}
    assert scene.driver.queue.nominator.pods_for_node("n1") == ()
    assert scene.place is Place.ACTIVE


async def test_an_unforeseen_failure_clears_the_nomination_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene("v1")
    scene.api.failures["delete", "v1"] = [ZeroDivisionError("oops")]
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


async def test_a_preemptor_deleted_in_its_cycle_sends_no_victim_back() -> None:
    scene = Scene("waiting", "binding")
    permit = scene.waiting.add(scene.victims[0], {"Gang": 60.0})
    scene.driver.queue.delete(scene.pod.uid)
    scene.start()
    await scene.finish()
    assert scene.waiting.get_waiting(scene.victims[0].uid) is permit
    assert scene.api.asked == []
    assert scene.events.events == []
    assert not scene.gated()


async def test_abandoned_work_leaves_nothing_behind() -> None:
    scene = Scene("v1", "v2")
    scene.api.held["patch", "v1"] = asyncio.Event()
    scene.start()
    await scene.finish()
    scene.executor.abandon(scene.pod.uid)
    await scene.finish()
    assert not scene.gated()
    assert scene.api.asked == [("patch", "v1")]


async def test_closing_stops_everything_under_way() -> None:
    scene = Scene("v1")
    scene.api.held["patch", "v1"] = asyncio.Event()
    scene.start()
    await scene.finish()
    await scene.executor.close()
    assert len(asyncio.all_tasks()) == 1
