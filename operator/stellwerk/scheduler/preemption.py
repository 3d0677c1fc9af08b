"""Carries preemptions out: sends victims away while the scheduling coroutine goes on.

The choice of victims is the plugins'; the cycle hands the result in and gets the nominated node
back, which the failure path writes into the preemptor's status. Invariant: at most one preemption
per preemptor is under way, and however it ends (done, failed, preemptor gone, shut down) nothing of
it is left behind; the preemptor is then woken by its victims' leaving, or at once if none of that
is still to come.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Protocol, TypeVar

from stellwerk.errors import ApiError, Conflict, NotFound, SchedulerError, Throttled, Unavailable
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.runtime import Framework
from stellwerk.framework.services import pod_reference
from stellwerk.framework.status import error, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.pod_status import NominatingInfo, disruption_patch
from stellwerk.scheduler.status_reports import Report

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_DELAYS_SECONDS: Final = (0.5, 1.0, 2.0)
"""Beyond the client's own retries, which end within one request's patience."""
_PLUGIN: Final = "DefaultPreemption"
_REASON: Final = "PreemptionByScheduler"


class PreemptionExtender(Protocol):
    """What preemption needs to know of an extender."""

    @property
    def name(self) -> str:
        """What logs call it."""
        ...

    @property
    def ignorable(self) -> bool:
        """Whether scheduling goes on without it when it fails."""
        ...

    @property
    def supports_preemption(self) -> bool:
        """Whether it has a preempt verb."""
        ...

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether the pod uses a resource that the extender manages, or any pod will do."""
        ...

    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that remain, perhaps with other victims.

        Raises:
            SchedulerError: the extender failed.
        """
        ...


async def narrowed(
    pod: PodInfo, found: PostFilterResult, extenders: Sequence[PreemptionExtender]
) -> PostFilterResult:
    """Let extenders strike candidates off, one extender after the other (`callExtenders`)."""
    candidates: Sequence[Candidate] = found.candidates
    for extender in extenders:
        if not candidates:
            break
        if not extender.supports_preemption or not extender.is_interested(pod):
            continue
        try:
            answer = await extender.preempt(pod, candidates)
        except SchedulerError as failure:
            if extender.ignorable:
                logger.warning("ignoring extender %s: %s", extender.name, failure)
                continue
            return PostFilterResult(error(_PLUGIN, f"preemption: {failure}"))
        empty = [candidate.node_name for candidate in answer if not candidate.victims]
        if empty and not extender.ignorable:
            message = f'expected at least one victim pod on node "{empty[0]}"'
            return PostFilterResult(error(_PLUGIN, f"preemption: {message}"))
        candidates = [candidate for candidate in answer if candidate.victims]
    if not candidates:
        nothing_left = "preemption: no candidate node for preemption"
        return PostFilterResult(unschedulable(_PLUGIN, *found.earlier_reasons, nothing_left))
    return replace(found, candidates=tuple(candidates))


class PreemptorDeleted(SchedulerError):  # noqa: N818 named for what happened
    """The pod for which room is made was deleted meanwhile."""


class _Answer(Enum):
    """What came of sending a victim away."""

    LEAVES = auto()
    """It was told, and takes its time."""
    WENT = auto()
    """It was told, and went at once."""
    GONE = auto()
    """It was gone before it was told."""
    TURNED_BACK = auto()
    """It was not on its node yet, and never will be."""


@dataclass(slots=True)
class _UnderWay:
    """A preemption whose end the cache has not shown yet."""

    task: asyncio.Task[None]
    last_victim: str = ""
    """The uid of the last victim, once only that one is still to be told."""
    last_answer: _Answer | None = None
    """What came of telling it."""


class PreemptionExecutor:
    """See the module docstring."""

    def __init__(
        self, parts: Parts, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._parts = parts
        self._sleep = sleep
        self._under_way: dict[str, _UnderWay] = {}
        """By the preemptor's uid."""
        self._waiting_for: dict[str, set[str]] = {}
        """Uid of a last victim → uids of its preemptors, mostly one."""

    # --- what the cycle asks --------------------------------------------------------------------

    def start(self, pod: PodInfo, found: PostFilterResult, framework: Framework) -> str:
        """Choose among the best candidates and begin; returns the node to nominate the pod to.

        Empty if there is nothing to choose from.
        """
        best = found.best(found.candidates) if found.best and found.candidates else ()
        if not best:
            return ""
        chosen = best[framework.handle.random(len(best))] if len(best) > 1 else best[0]
        # Who is going already needs no telling; then there is nothing to wait for but their end.
        to_tell = [victim for victim in chosen.victims if not victim.terminating]
        if to_tell:
            self._parts.metrics.preemption_victims.labels().observe(len(chosen.victims))
            self.abandon(pod.uid)
            task = asyncio.get_running_loop().create_task(
                self._carry_out(pod, chosen, to_tell), name=f"preempt for {pod.key}"
            )
            self._under_way[pod.uid] = _UnderWay(task)
            task.add_done_callback(lambda done: self._ended(pod.uid, done))
        return chosen.node_name

    def is_preempting(self, uid: str) -> bool:
        """Whether victims are still to be told to leave for a pod; until then it is not tried.

        The news of the last one's end may come before the API call's answer, and must not be
        missed. Its termination is enough where it takes its time; a victim that goes at once
        terminates for a moment, in which every other change would cause a needless attempt.
        """
        under_way = self._under_way.get(uid)
        return under_way is not None and not self._is_over(under_way)

    def abandon(self, uid: str) -> None:
        """The preemptor is gone or chooses anew: victims that were not told yet may stay."""
        task = self._end(uid)
        if task is not None:
            task.cancel()

    def on_leaving(self, uid: str) -> None:
        """A pod is terminating or gone in the cache; who waited for just that may be tried."""
        for preemptor in tuple(self._waiting_for.get(uid, ())):
            under_way = self._under_way[preemptor]
            if self._is_over(under_way):
                if under_way.last_answer is None:
                    self._parts.queue.rerun_pre_enqueue(preemptor)
                else:
                    self._end(preemptor)

    async def close(self) -> None:
        """Stop everything under way and wait for it."""
        tasks = [under_way.task for under_way in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        under_way = self._under_way.get(uid)
        if under_way is not None and under_way.task is task and under_way.last_answer is None:
            self._end(uid)

    # --- carrying out ---------------------------------------------------------------------------

    async def _carry_out(self, pod: PodInfo, chosen: Candidate, victims: Sequence[PodInfo]) -> None:
        """One preemption from beginning to end; the top of its task."""
        parts, started_seconds = self._parts, self._parts.clock.monotonic()
        result = "error"
        try:
            answers = await self._send_all_away(pod, chosen, victims)
            result = "success"
        except Exception as failure:
            unforeseen = not isinstance(failure, SchedulerError)
            logger.warning(
                "preemption for %s on %s: %s",
                pod.key,
                chosen.node_name,
                failure,
                exc_info=unforeseen,
            )
            self._end(pod.uid)
            self._withdraw(pod)
        else:
            self._told(pod.uid, answers[-1])
            if _Answer.GONE in answers:
                # Some were gone before they were told: their end may have been overlooked while
                # the pod was kept out of the queue, and nothing else may wake it.
                parts.queue.activate([pod], parts.clock.monotonic())
        finally:
            metrics = parts.metrics
            seconds = parts.clock.monotonic() - started_seconds
            metrics.preemption_goroutines_duration.labels(result).observe(seconds)
            metrics.preemption_goroutines_execution.labels(result).inc()

    def _is_over(self, under_way: _UnderWay) -> bool:
        """Whether the last victim has gone, or begun to, as the cache has it.

        Before the cache has it, its room is not there for any attempt.
        """
        if not under_way.last_victim:
            return False
        victim = self._parts.cache.pod(under_way.last_victim)
        if victim is None or under_way.last_answer is _Answer.TURNED_BACK:
            return True
        return under_way.last_answer is _Answer.LEAVES and victim.terminating

    def _told(self, uid: str, last: _Answer) -> None:
        """Every victim knows."""
        under_way = self._under_way.get(uid)
        if under_way is not None:
            under_way.last_answer = last
            if self._is_over(under_way):
                self._end(uid)

    def _end(self, uid: str) -> asyncio.Task[None] | None:
        """From here on the pod may be tried again; returns the task of what was under way."""
        under_way = self._under_way.pop(uid, None)
        if under_way is None:
            return None
        if under_way.last_victim:
            waiting = self._waiting_for[under_way.last_victim]
            waiting.remove(uid)
            if not waiting:
                del self._waiting_for[under_way.last_victim]
        self._parts.queue.rerun_pre_enqueue(uid)
        return under_way.task

    async def _send_all_away(
        self, pod: PodInfo, chosen: Candidate, victims: Sequence[PodInfo]
    ) -> Sequence[_Answer]:
        """Tell every victim, the last one when all others know; returns what came of it, in order.

        Raises:
            SchedulerError: somebody could not be told; then the last one is left alone.
        """
        self._clear_lower_nominations(pod, chosen.node_name)
        *others, last = victims
        answers = await asyncio.gather(
            *(self._send_away(pod, chosen, victim) for victim in others),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        under_way = self._under_way.get(pod.uid)
        if under_way is not None:
            under_way.last_victim = last.uid
            self._waiting_for.setdefault(last.uid, set()).add(pod.uid)
        told = [answer for answer in answers if isinstance(answer, _Answer)]
        return [*told, await self._send_away(pod, chosen, last)]

    def _clear_lower_nominations(self, pod: PodInfo, node_name: str) -> None:
        """Pods of lower priority that were promised the node look for another one now."""
        parts = self._parts
        lower = [
            other
            for other in parts.queue.nominator.pods_for_node(node_name)
            if other.priority < pod.priority
        ]
        for other in lower:
            parts.queue.nominate(other, "")
        parts.queue.activate(lower, parts.clock.monotonic())
        for other in lower:
            self._remove_nomination(other)

    def _remove_nomination(self, pod: PodInfo) -> None:
        self._parts.reports.put(Report(pod, nomination=NominatingInfo("", in_any_case=True)))

    def _withdraw(self, pod: PodInfo) -> None:
        """The room will not be made: take the promise back and let the pod try again."""
        parts = self._parts
        if pod.uid in parts.queue:
            parts.queue.nominate(pod, "")
            self._remove_nomination(pod)
            parts.queue.activate([pod], parts.clock.monotonic())

    # --- one victim -----------------------------------------------------------------------------

    async def _send_away(self, pod: PodInfo, chosen: Candidate, victim: PodInfo) -> _Answer:
        """Make one victim leave.

        Raises:
            SchedulerError: it could not be told, in spite of retries.
        """
        if self._turned_back(victim):
            self._report(pod, chosen, victim, " (in kube-scheduler memory).")
            return _Answer.TURNED_BACK
        client = self._parts.client
        try:
            await self._patiently(pod, lambda: self._mark(pod, victim))
            went = await self._patiently(
                pod, lambda: client.delete_pod(victim.namespace, victim.name, victim.uid)
            )
        except (NotFound, Conflict):
            logger.debug("victim %s is gone already", victim.key)
            return _Answer.GONE
        self._report(pod, chosen, victim, "")
        return _Answer.WENT if went else _Answer.LEAVES

    def _turned_back(self, victim: PodInfo) -> bool:
        """Whether the victim was not on its node yet, and has been kept from getting there."""
        waiting = self._parts.waiting.get_waiting(victim.uid)
        if waiting is not None:
            return waiting.preempt(_PLUGIN, "preempted")
        return self._parts.bindings.cancel(victim.uid, f"preempted by {_PLUGIN}")

    async def _mark(self, pod: PodInfo, victim: PodInfo) -> None:
        """Say in the victim's status why it has to go."""
        patch = disruption_patch(
            victim,
            self._parts.clock.now(),
            reason=_REASON,
            message=f"{pod.spec.scheduler_name}: preempting to accommodate a higher priority pod",
        )
        if patch is not None:
            await self._parts.client.patch_pod_status(victim.namespace, victim.name, patch)

    async def _patiently(self, pod: PodInfo, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, again after a while if the API is overloaded or away.

        Raises:
            PreemptorDeleted: nobody needs the room any more.
        """
        for delay_seconds in RETRY_DELAYS_SECONDS:
            if pod.uid not in self._parts.queue:
                raise PreemptorDeleted(f"{pod.key} is gone, the other victims may stay")
            try:
                return await call()
            except (Throttled, Unavailable) as failure:
                await self._sleep(max(delay_seconds, _asked_delay(failure)))
        return await call()

    def _report(self, pod: PodInfo, chosen: Candidate, victim: PodInfo, suffix: str) -> None:
        note = f"Preempted by pod {pod.uid} on node {chosen.node_name}{_scope(chosen)}{suffix}"
        self._parts.recorder.event(
            pod_reference(victim),
            "Normal",
            "Preempted",
            "Preempting",
            note,
            reporting_controller=pod.spec.scheduler_name,
        )


def _asked_delay(failure: ApiError) -> float:
    """How long the server wants to be left alone."""
    return failure.retry_after_seconds or 0.0


def _scope(chosen: Candidate) -> str:
    """What an event adds when victims are taken from other nodes than the one that is made free."""
    nodes = sorted({victim.node_name for victim in chosen.victims})
    if nodes == [chosen.node_name]:
        return ""
    count = len(chosen.victims)
    return f" (cross-node preemption of {count} pod(s) on {', '.join(nodes)})"
