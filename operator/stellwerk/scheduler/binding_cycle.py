"""From an assumed pod to a bound one, or back to the queue.

`schedule_one` starts one task per decided pod (`BindingTasks`): Permit, where the pod may wait
(`WaitingPodsMap`), PreBind, Bind, PostBind. What fails is undone by `undo_binding`. Outcomes that
neither an answer nor the watch has told are asked of the API (`BindingOutcomes`): of a binding
whose answer was lost, of a pod that the watch has not shown bound in time, and of a bound one that
an event shows without a node. Invariants: when the task ends, the pod is bound or back in its place
in the queue, unless the process is ending; a pod has at most one task; a waiting pod gets exactly
one answer; until the API has said that a pod is not bound, or is gone, it counts on its node.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

from typing_extensions import override

from stellwerk.backend.queued_pod import BindingStage, QueuedPod
from stellwerk.client.paging import pages
from stellwerk.framework.handle import WaitingPods
from stellwerk.framework.services import ClusterClient, WaitingPod
from stellwerk.framework.types import OK, Code, CycleState, Status, error, unschedulable
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.metrics import Metrics, attempts_label
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_permit import GroupPermit
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.world.decide import Failure, release, undo_binding
from stellwerk.world.pod_status import NominatingInfo, nomination_patch
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import NotFound, SchedulerError, in_words
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

_FOR_THE_SERVER: Final = ("the API server to take the binding",)
"""What a binding waits for at the point Bind."""


@dataclass(slots=True)
class BindingAttempt:
    """An attempt that has come to a node; its Decision, whose columns are large, is not kept."""

    queued: QueuedPod
    profile: ServedProfile
    """The version with which it began, whatever is served meanwhile."""
    state: CycleState
    assumed: PodInfo
    """The pod on its node."""
    started_seconds: float
    evaluated: int
    """How many nodes were looked at."""
    feasible: int
    """How many of them took the pod."""
    waiting: "PermitWaitingPod | None" = None
    """Set when Permit has answered Wait."""
    permit: GroupPermit | None = None
    """What its binding waits for, if it is placed with others; None: nothing."""
    announced: bool = False
    """Whether the node has been written into the pod's status ahead of the binding."""


@dataclass(slots=True)
class BindingCycle:
    """The points from Permit to PostBind, and the way back from each."""

    world: World
    dispatcher: APIDispatcher
    metrics: Metrics
    bindings: "BindingTasks"
    outcomes: "BindingOutcomes"
    waiting_pods: "WaitingPodsMap"
    preemption: PreemptionExecutor
    failures: FailureHandler

    async def run(self, attempt: BindingAttempt) -> None:
        """Bind the pod, or undo everything."""
        try:
            await self._run(attempt)
        finally:
            attempt.profile.framework.metrics_recorder.attempt(attempt.state)

    async def _run(self, attempt: BindingAttempt) -> None:
        assumed, profile = attempt.assumed, attempt.profile
        try:
            failure = await self._bind(attempt)
        except asyncio.CancelledError:
            reason = self.bindings.cancelled_because(assumed.uid)
            if not reason:
                # The process is ending: the next one finds the pod in the API, bound or not.
                self._release(attempt)
                raise
            failure = Failure.error(f"binding was cancelled: {reason}")
        except Exception as unexpected:  # noqa: BLE001 the top of the task
            failure = self.failures.unexpected(unexpected, assumed, profile)
        finally:
            if attempt.waiting is not None:
                self.waiting_pods.remove(assumed.uid)
        if failure is not None:
            if attempt.permit is not None:
                attempt.permit.lose(failure.message)
            self._undo(attempt, failure)
            return
        self._bound(attempt)
        points = profile.framework.binding
        for broken in await points.post_bind(attempt.state, assumed, assumed.node_name):
            logger.error("%s is bound; %s", assumed.key, broken, exc_info=broken)
            self.failures.count(broken, profile)
        if attempt.state.pods_to_activate:
            self._activate(attempt)

    async def _bind(self, attempt: BindingAttempt) -> Failure | None:  # noqa: C901 point after point
        """Run Permit, PreBind and Bind, in this order; returns what failed.

        What Permit turns away is a rejection, what fails later an error: a 409 of the API, which
        DefaultBinder answers as an error status, as well as a claim that could not be written.
        """
        profile, state, assumed = attempt.profile, attempt.state, attempt.assumed
        points = profile.framework.binding
        uid, node_name = assumed.uid, assumed.node_name
        self.bindings.stages[uid] = BindingStage("Bind", attempt.started_seconds, _FOR_THE_SERVER)
        reports = self.dispatcher.reports
        if uid in reports.pending or uid in reports.writing:
            # Why it was pending is history, and must not be written after what the binding writes.
            await reports.cancel_or_flush(uid)
        status, waits = await points.permit(state, assumed, node_name)
        if status.code is Code.WAIT:
            attempt.waiting = self.waiting_pods.add(assumed, waits)
        elif not status.ok:
            return Failure.not_permitted(status)
        if state.pods_to_activate:
            self._activate(attempt)
        flight = points.pre_bind_pre_flight(state, assumed, node_name)
        if not flight.ok and not flight.skip:
            return Failure.error(flight.message)
        if flight.ok or attempt.waiting is not None:
            # It may take long: say where the pod is bound to go, e.g. to a cluster autoscaler.
            await self._announce(attempt)
            status = await self._wait_on_permit(attempt.waiting)
            if not status.ok:
                return Failure.not_permitted(status)
        # Nothing after this can call the pod unschedulable: changes need not be remembered for it.
        self.world.queue.done(uid)
        if flight.ok:
            status = await self._pre_bind_cancellable(attempt)
        else:
            status = await points.pre_bind(state, assumed, node_name)
        if status.ok and attempt.permit is not None:
            status = await self._wait_for_group(attempt.permit, assumed)
        if not status.ok:
            return Failure.not_bound(status)
        if flight.ok or attempt.waiting is not None or attempt.permit is not None:
            # Another point was noted meanwhile; most pods come straight here.
            self._waits(uid, "Bind", *_FOR_THE_SERVER)
        extenders = profile.extenders
        by_extender = await extenders.bind(assumed, node_name) if extenders is not None else None
        status = by_extender or await points.bind(state, assumed, node_name)
        extended = by_extender is not None
        return None if status.ok else await self._not_bound(status, assumed, state, extended)

    async def _not_bound(
        self,
        status: Status,
        assumed: PodInfo,
        state: CycleState,
        by_extender: bool,  # noqa: FBT001
    ) -> Failure | None:
        """The failure; None if the API has the binding all the same."""
        unknown = by_extender or state.bind_outcome_unknown
        if unknown and await self.outcomes.is_bound(assumed):
            return None
        return Failure.not_bound(status)

    # --- how it ends ----------------------------------------------------------------------------

    def _bound(self, attempt: BindingAttempt) -> None:
        """The API has the binding: an event, metrics, and the watch is to confirm it."""
        assumed, profile, queued = attempt.assumed, attempt.profile, attempt.queued
        metrics, now = self.metrics, self.world.clock.monotonic()
        if assumed.uid in self.world.cache.assumed_pods:
            self.bindings.unconfirmed[assumed.uid] = now
        key = assumed.key
        logger.debug(
            "%s is bound to %s (%d nodes evaluated, %d feasible)",
            key,
            assumed.node_name,
            attempt.evaluated,
            attempt.feasible,
        )
        self.dispatcher.recorder.event(
            pod_reference(queued.pod),
            "Normal",
            "Scheduled",
            "Binding",
            f"Successfully assigned {key} to {assumed.node_name}",
            reporting_controller=profile.scheduler_name,
        )
        profile.activity.scheduled_pods += 1
        seconds = now - attempt.started_seconds
        attempts = attempts_label(queued.attempts)
        metrics.profile(profile.scheduler_name).attempt("scheduled", seconds)
        metrics.pod_scheduling_attempts.labels().observe(queued.attempts)
        if queued.was_flushed:
            metrics.pod_scheduled_after_flush.labels().inc()
        sli_seconds = now - (queued.initial_attempt_at or now)
        metrics.pod_scheduling_sli_duration.labels(attempts).observe(sli_seconds)

    def _undo(self, attempt: BindingAttempt, failure: Failure) -> None:
        """Undo a binding that failed, and report it (`handleBindingCycleError`).

        `undo_binding` has the order: Unreserve of each plugin, the cache forgets the pod, others
        are woken as by its end, and it goes to podErrorBackoffQ, or to the unschedulable ones where
        Permit rejected it. Then `FailureHandler.carry_out` records the event FailedScheduling and
        puts the condition PodScheduled=False, whose reason is SchedulerError after an error.
        """
        profile = attempt.profile
        failure.nomination = NominatingInfo("", in_any_case=attempt.announced)
        effects = undo_binding(
            self.world,
            attempt.queued,
            (profile.framework, attempt.state),
            attempt.assumed,
            failure,
            self.preemption.on_victim,
        )
        self.failures.carry_out(effects, attempt.queued, profile, attempt.started_seconds)

    def _release(self, attempt: BindingAttempt) -> None:
        """Undo Reserve and forget the pod, and nothing else: the process is ending."""
        profile, assumed = attempt.profile, attempt.assumed
        _, failures = release(self.world, profile.framework, attempt.state, assumed)
        for broken in failures:
            logger.error("undoing the reservation of %s: %s", assumed.key, broken, exc_info=broken)
            self.failures.count(broken, profile)

    def take_back(self, pod: PodInfo) -> None:
        """Undo a binding that was answered and that the API does not have, or has no more.

        Reserve is undone without the state of the attempt, which is not kept for so long.
        """
        world, uid = self.world, pod.uid
        self.bindings.confirmed(uid)
        queued, profile = world.queue.entries.get(uid), world.profiles.of(pod)
        if queued is not None and profile is not None and uid in world.cache.assumed_pods:
            now = world.clock.monotonic()
            attempt = BindingAttempt(queued, profile, CycleState(), pod, now, 0, 0)
            message = f"the binding to {pod.node_name} was accepted, and the pod is not bound"
            self._undo(attempt, Failure.error(message))
            return
        world.queue.delete(uid)
        if world.cache.remove_pod(uid) is not None:
            self.preemption.on_victim(uid)
            world.wake_after_forgetting(pod)

    # --- steps ----------------------------------------------------------------------------------

    async def _wait_for_group(self, permit: GroupPermit, assumed: PodInfo) -> Status:
        """OK as soon as enough of the group is ready to be bound."""
        if permit.is_decided:
            reason = await permit.arrive()
        else:
            uid, key = assumed.uid, assumed.group
            whose = f'the pod group "{key.name}"' if key is not None else "its pod group"
            self._waits(uid, "PreBind", f"enough members of {whose} to be ready to be bound")
            with self.bindings.slot_released(uid):
                reason = await permit.arrive()
        if not reason:
            return OK
        return Status(Code.ERROR, (f"cannot bind enough pods of the group: {reason}",))

    async def _wait_on_permit(self, waiting: "PermitWaitingPod | None") -> Status:
        """The answer to a waiting pod; OK for one that is not."""
        if waiting is None:
            return OK
        now = self.world.clock.monotonic
        waited_since = now()
        plugins = [f"the plugin {each} to allow it" for each in waiting.pending_plugins]
        self._waits(waiting.pod.uid, "Permit", *plugins)
        with self.bindings.slot_released(waiting.pod.uid):
            status = await waiting.answer()
        result = "Success" if status.ok else "Unschedulable" if status.rejected else "Error"
        self.metrics.permit_wait_duration.labels(result).observe(now() - waited_since)
        if status.code is Code.ERROR:
            reason = f"waiting on permit for pod: {status.message}"
            return Status(Code.ERROR, (reason,), status.plugin)
        return status

    def _waits(self, uid: str, point: Literal["Permit", "PreBind", "Bind"], *what: str) -> None:
        """Note the point that a binding is at from now on, for explanations."""
        self.bindings.stages[uid] = BindingStage(point, self.world.clock.monotonic(), what)

    async def _pre_bind_cancellable(self, attempt: BindingAttempt) -> Status:
        """PreBind where it has work to do, which takes its time and may be cancelled."""
        assumed, bindings = attempt.assumed, self.bindings
        points = attempt.profile.framework.binding
        self._waits(assumed.uid, "PreBind")
        with bindings.slot_released(assumed.uid), bindings.cancellable(assumed.uid):
            status = await points.pre_bind(attempt.state, assumed, assumed.node_name)
        reason = bindings.cancelled_because(assumed.uid)
        return Status(Code.ERROR, (f"binding was cancelled: {reason}",)) if reason else status

    async def _announce(self, attempt: BindingAttempt) -> None:
        pod, node_name = attempt.queued.pod, attempt.assumed.node_name
        patch = nomination_patch(pod, NominatingInfo(node_name))
        if not patch:
            return
        attempt.announced = True
        try:
            client = self.dispatcher.client
            await client.patch_pod_status(pod.namespace, pod.name, {"status": patch})
        except SchedulerError as failure:
            logger.warning("cannot nominate %s to %s: %s", pod.key, node_name, failure)

    def _activate(self, attempt: BindingAttempt) -> None:
        """Move the pods that plugins named to activeQ, once each."""
        named = attempt.state.pods_to_activate
        self.world.activate(list(named.values()))
        named.clear()


# --- tasks ----------------------------------------------------------------------------------------

MAX_BINDINGS_IN_FLIGHT: Final = 512
"""Back-pressure.

Slots for bindings; without a free one the scheduling coroutine waits, so that memory and staleness
stay bounded. A binding that waits on Permit or PreBind needs none: the pod that it waits for may be
the next to be scheduled.
"""
_SLOTS_AT_ONCE: Final = 16
"""Once there was none, one in so many must be free before the scheduling coroutine goes on.

Where the API server sets the pace a slot comes back at a time, and decisions one by one, between
other work, cost much more than decisions in a row.
"""


class BindingTasks:
    """Tasks by the uid of their pod."""

    def __init__(self, limit: int = MAX_BINDINGS_IN_FLIGHT) -> None:
        self._limit = limit
        self._goes_on_at = limit - limit // _SLOTS_AT_ONCE
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._without_slot: set[str] = set()
        """Bindings that wait on Permit or PreBind."""
        self._cancellable: dict[str, str] = {}
        """Bindings that can be cancelled → why they have been ("": they have not)."""
        self.unconfirmed: dict[str, float] = {}
        """Pods that were bound (at that monotonic time), as the watch has yet to show."""
        self.doubted: set[str] = set()
        """Pods that count as bound, and that an event has shown without a node."""
        self.stages: dict[str, BindingStage] = {}
        """The point that each binding is at."""
        self._free = asyncio.Event()
        self._free.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, uid: str) -> bool:
        return uid in self._tasks

    def stage(self, uid: str) -> BindingStage | None:
        """Return how far a binding has come; None: there is none."""
        found = self.stages.get(uid)
        if found is not None or uid not in self.unconfirmed:
            return found
        return BindingStage("Bind", self.unconfirmed[uid], ("the watch to show the binding",))

    def confirmed(self, uid: str) -> None:
        """The pod is on its node, or has none any more: there is nothing to find out."""
        self.unconfirmed.pop(uid, None)
        self.doubted.discard(uid)

    def start(self, uid: str, binding: Coroutine[Any, Any, None]) -> None:
        """Run a binding."""
        task = asyncio.get_running_loop().create_task(binding, name=f"bind {uid}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))
        self._count()

    async def free_slot(self) -> None:
        """Wait until another binding may start."""
        await self._free.wait()

    @contextmanager
    def slot_released(self, uid: str) -> Iterator[None]:
        """While a binding waits on Permit or PreBind, another may have its slot."""
        self._without_slot.add(uid)
        self._count()
        try:
            yield
        finally:
            self._without_slot.discard(uid)
            self._count()

    @contextmanager
    def cancellable(self, uid: str) -> Iterator[None]:
        """While nothing has been asked of the API that could not be taken back."""
        self._cancellable[uid] = ""
        try:
            yield
        finally:
            if not self._cancellable[uid]:
                del self._cancellable[uid]

    def cancel(self, uid: str, reason: str) -> bool:
        """Cancel a binding; False if there is none, or if it has gone too far."""
        task = self._tasks.get(uid)
        if task is None or self._cancellable.get(uid) != "":
            return False
        self._cancellable[uid] = reason
        return task.cancel()

    def cancelled_because(self, uid: str) -> str:
        """The reason for which a binding was cancelled; empty if it was not, or by the shutdown."""
        return self._cancellable.get(uid, "")

    async def drain(self, timeout_seconds: float) -> None:
        """Let bindings in flight finish; those without a slot, and late ones, are cancelled."""
        for uid in self._without_slot:
            self._tasks[uid].cancel()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks.values(), timeout=timeout_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uid) is task:
            del self._tasks[uid]
            self._cancellable.pop(uid, None)
            self.stages.pop(uid, None)
        self._count()

    def _count(self) -> None:
        taken = len(self._tasks) - len(self._without_slot)
        if taken >= self._limit:
            self._free.clear()
        elif taken <= self._goes_on_at:
            self._free.set()


# --- pods that wait on Permit ---------------------------------------------------------------------

_UNITS: Final = ((3600, "h"), (60, "m"), (1, "s"))


class PermitWaitingPod(WaitingPod):
    """One waiting pod; its answer is a future."""

    def __init__(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        """`waits` are the seconds that each plugin grants, from now on."""
        loop = asyncio.get_running_loop()
        self._pod = pod
        self._answer: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(seconds, self._timed_out, plugin, seconds)
            for plugin, seconds in waits.items()
        }

    @property
    @override
    def pod(self) -> PodInfo:
        return self._pod

    @property
    @override
    def pending_plugins(self) -> Sequence[str]:
        return tuple(self._timers)

    @override
    def allow(self, plugin: str) -> None:
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._decide(OK)

    @override
    def reject(self, plugin: str, message: str) -> None:
        self._decide(unschedulable(plugin, message))

    def preempt(self, plugin: str, message: str) -> bool:
        """Send the pod back without calling it unschedulable; False if it is decided already."""
        return self._decide(error(plugin, message))

    async def answer(self) -> Status:
        """Wait for the answer."""
        return await asyncio.shield(self._answer)

    def close(self) -> None:
        """Stop the timers: the wait is over."""
        for timer in self._timers.values():
            timer.cancel()

    def _timed_out(self, plugin: str, seconds: float) -> None:
        waited = go_duration(seconds)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def _decide(self, status: Status) -> bool:
        if self._answer.done():
            return False
        self._answer.set_result(status)
        self.close()
        return True


class WaitingPodsMap(WaitingPods):
    """All waiting pods, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, PermitWaitingPod] = {}

    def add(self, pod: PodInfo, waits: Mapping[str, float]) -> PermitWaitingPod:
        """Let a pod wait."""
        waiting = self._pods[pod.uid] = PermitWaitingPod(pod, waits)
        return waiting

    def remove(self, uid: str) -> None:
        """The pod waits no more."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.close()

    @override
    def all(self) -> Iterable[WaitingPod]:
        return list(self._pods.values())

    @override
    def get_waiting(self, uid: str) -> PermitWaitingPod | None:
        return self._pods.get(uid)


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, which is how kube-scheduler words its timeouts: 1m30s, 500ms."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    text, rest = "", seconds
    for size, unit in _UNITS:
        if unit == "s":
            return f"{text}{round(rest, 9):g}s"
        count, left = divmod(rest, size)
        if count or text:
            text += f"{count:g}{unit}"
        rest = left
    return text


# --- outcomes that are not known ------------------------------------------------------------------

CONFIRMATION_SECONDS: Final = 10.0
"""How long the watch may take to show a pod bound before the pod is read from the API."""
LOOK_SECONDS: Final = 1.0
"""How often it is looked whether there is anything to ask."""
_FIRST_DELAY_SECONDS: Final = 0.2
_LONGEST_DELAY_SECONDS: Final = 10.0
_READ_SECONDS: Final = 10.0
"""How long a read may take, so that one that hangs holds up no others for long."""
_AT_ONCE: Final = 16
"""Pods of a namespace that are read one by one, at the same time; more of them as a list."""
_PAGE_ITEMS: Final = 500
_GETS_PER_PAGE: Final = 8
"""A page of a list costs about as much as so many reads of one pod."""

TakeBack = Callable[[PodInfo], None]
"""Undoes what counts of a pod that is not bound, and has it scheduled again."""


@dataclass(slots=True, eq=False)
class _Question:
    """A pod whose binding is to be found out."""

    pod: PodInfo
    """On the node on which it counts."""
    due_seconds: float
    delay_seconds: float = _FIRST_DELAY_SECONDS
    answers: list[asyncio.Future[bool]] = field(default_factory=list)
    """Whether the pod is bound to that node, for the binding task that waits; none: none does."""


class BindingOutcomes:
    """Open questions by uid, and the coroutine that puts them to the API."""

    def __init__(self, world: World, bindings: BindingTasks, client: ClusterClient) -> None:
        self._world = world
        self._bindings = bindings
        self._client = client
        self._open: dict[str, _Question] = {}
        self._asked = asyncio.Event()

    def __contains__(self, uid: str) -> bool:
        """Whether a binding task waits for the outcome of its binding."""
        question = self._open.get(uid)
        return question is not None and bool(question.answers)

    async def is_bound(self, assumed: PodInfo) -> bool:
        """Whether the API has the pod on the node it is assumed on; waits until the API says so."""
        logger.warning("%s may be bound to %s: asking", assumed.key, assumed.node_name)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ask(assumed).answers.append(answer)
        self._asked.set()
        return await answer

    async def run(self, handlers: WatchHandlers, take_back: TakeBack) -> None:
        """Ask until cancelled.

        Args:
            handlers: take the pods as they were read.
            take_back: takes a pod that turns out not to be bound, and for which no task waits.
        """
        while True:
            self._ask_about_overdue()
            now = self._world.clock.monotonic()
            due = [each for each in self._open.values() if each.due_seconds <= now]
            unknown = [each.pod for each in due if not self._answered_from_memory(each)]
            for uid, obj in (await self._read(unknown)).items():
                try:
                    self._take(uid, obj, handlers, take_back)
                except ValueError as malformed:
                    logger.error("cannot see whether a pod is bound: %s", malformed)  # noqa: TRY400 one line
            self._put_off(due)
            await self._pause()

    # --- what is asked --------------------------------------------------------------------------

    def _ask(self, pod: PodInfo) -> _Question:
        question = self._open.get(pod.uid)
        if question is None:
            question = self._open[pod.uid] = _Question(pod, self._world.clock.monotonic())
        return question

    def _ask_about_overdue(self) -> None:
        bindings, cache = self._bindings, self._world.cache
        overdue_seconds = self._world.clock.monotonic() - CONFIRMATION_SECONDS
        overdue = [uid for uid, at in bindings.unconfirmed.items() if at <= overdue_seconds]
        for uid in (*overdue, *bindings.doubted):
            pod = cache.pod(uid)
            if pod is None:
                bindings.confirmed(uid)
            else:
                self._ask(pod)

    def _answered_from_memory(self, question: _Question) -> bool:
        """Whether an event has given the answer meanwhile."""
        if self._is_doubtful(question):
            return False
        counted = self._world.cache.pod(question.pod.uid)
        same = counted is not None and counted.node_name == question.pod.node_name
        self._close(question.pod.uid, bound=same)
        return True

    def _is_doubtful(self, question: _Question) -> bool:
        uid = question.pod.uid
        if question.answers:
            return uid in self._world.cache.assumed_pods
        # One that is assumed and in neither is being bound anew.
        return uid in self._bindings.unconfirmed or uid in self._bindings.doubted

    async def _pause(self) -> None:
        self._asked.clear()
        now = self._world.clock.monotonic()
        due = min((each.due_seconds for each in self._open.values()), default=now + LOOK_SECONDS)
        seconds = min(max(due - now, 0.0), LOOK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            pass

    def _put_off(self, asked: Iterable[_Question]) -> None:
        """Read again later what could not be read, less and less often."""
        now = self._world.clock.monotonic()
        for question in asked:
            question.due_seconds = now + question.delay_seconds
            question.delay_seconds = min(2 * question.delay_seconds, _LONGEST_DELAY_SECONDS)

    def _close(self, uid: str, *, bound: bool) -> None:
        question = self._open.pop(uid, None)
        for answer in question.answers if question is not None else ():
            if not answer.done():  # cancelled with its task
                answer.set_result(bound)

    # --- what the API says ----------------------------------------------------------------------

    async def _read(self, pods: Iterable[PodInfo]) -> dict[str, JsonObject | None]:
        """The pods as the API has them (None: gone) by uid; without those that it did not tell."""
        by_namespace: dict[str, dict[str, PodInfo]] = {}
        for pod in pods:
            by_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        told: dict[str, JsonObject | None] = {}
        for namespace, wanted in by_namespace.items():
            if len(wanted) > _AT_ONCE:
                await self._list(namespace, wanted, told)
            missing = [pod for uid, pod in wanted.items() if uid not in told]
            for start in range(0, len(missing), _AT_ONCE):
                batch = missing[start : start + _AT_ONCE]
                answers = await asyncio.gather(*(self._get(pod) for pod in batch))
                told.update(answer for answer in answers if answer is not None)
                if not any(answers):
                    # The API is away: the others have their turn in the next round.
                    return told
        return told

    async def _list(
        self, namespace: str, wanted: Mapping[str, PodInfo], told: dict[str, JsonObject | None]
    ) -> None:
        """Look through pages of the namespace, as long as that is cheaper than single reads."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        left = len(wanted) // _GETS_PER_PAGE
        try:
            async with asyncio.timeout(_READ_SECONDS):
                async for page in pages(self._client.get, path, limit=_PAGE_ITEMS):
                    for obj in page.get("items") or ():
                        if obj["metadata"]["uid"] in wanted:
                            told[obj["metadata"]["uid"]] = obj
                    left -= 1
                    if not left or len(told) == len(wanted):
                        return
        except (SchedulerError, TimeoutError) as failure:
            logger.debug("cannot list the pods of %s: %s", namespace, in_words(failure))

    async def _get(self, pod: PodInfo) -> tuple[str, JsonObject | None] | None:
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        try:
            async with asyncio.timeout(_READ_SECONDS):
                obj = await self._client.get(path)
        except NotFound:
            return pod.uid, None
        except (SchedulerError, TimeoutError) as failure:
            logger.debug(
                "cannot read %s to see whether it is bound: %s", pod.key, in_words(failure)
            )
            return None
        # The name may belong to another pod by now.
        return pod.uid, obj if obj["metadata"]["uid"] == pod.uid else None

    def _take(
        self, uid: str, obj: JsonObject | None, handlers: WatchHandlers, take_back: TakeBack
    ) -> None:
        question = self._open[uid]
        pod = question.pod
        if self._answered_from_memory(question):
            return
        node_name = None if obj is None else obj["spec"].get("nodeName")
        if obj is None:
            handlers.on_pod("DELETED", _tombstone(pod))
        elif node_name:
            handlers.on_pod("MODIFIED", obj)
        elif not question.answers:
            logger.error("%s counted on %s and is not bound", pod.key, pod.node_name)
            take_back(pod)
            handlers.on_pod("MODIFIED", obj)
        self._close(uid, bound=node_name == pod.node_name)


def _tombstone(pod: PodInfo) -> JsonObject:
    """The last that is known of a pod that was deleted unseen."""
    return {"metadata": {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}}
