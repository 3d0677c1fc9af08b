"""Preemptions under way: victims are evicted while the scheduling coroutine goes on.

The choice of victims is a decision's, the nomination is written into the preemptor's status where
attempts fail; here comes what takes time. `Evictor` evicts a victim, also for groups. The evictions
stop if one fails, or if the preemptor is bound or gone; they go on if its node goes, or if room
appears elsewhere. Invariant: at most one preemption per preemptor is under way, a preemptor is in
`World.preempting` for as long as victims are to be evicted for it, and however it ends (done,
failed, preemptor gone, shut down) nothing of it is left behind; the preemptor is then woken by its
victims' end, or at once if none of that is still to come. If a victim never ends, the preemptor is
tried again as any rejected pod is (`backend.unschedulable_pods`). While the victim is leaving its
nominated node, it preempts nothing else (`DefaultPreemption`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import ObjectReference, pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.world.decide import (
    Eviction,
    VictimOutcome,
    clear_lower_nominations,
    last_victim_ended,
    open_gate,
    wake_preemptor,
    withdraw_nomination,
)
from stellwerk.world.pod_status import disruption_patch
from stellwerk.world.world import World
from stellwerk_kube.errors import (
    Conflict,
    NotFound,
    SchedulerError,
    Throttled,
    Unavailable,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_DELAYS_SECONDS: Final = (0.5, 1.0, 2.0)
"""Pauses before the second and each further try of an eviction. They come on top of the client's
own retries, which end within the time limit of one request."""
_PLUGIN: Final = "DefaultPreemption"
"""The plugin under whose name a victim that waits on Permit is sent back."""
_REASON: Final = "PreemptionByScheduler"
"""The reason of a victim's condition DisruptionTarget, as kube-scheduler writes it."""


class PreemptorDeleted(SchedulerError):  # noqa: N818 named for what happened
    """The pod that preempts was deleted meanwhile."""


class CancellableBindings(Protocol):
    """The bindings under way."""

    def cancel(self, uid: str, reason: str) -> bool:
        """Cancel a binding; False if there is none, or if it has gone too far."""
        ...


class PreemptiblePod(Protocol):
    """A pod that waits on Permit."""

    def preempt(self, plugin: str, message: str) -> bool:
        """Send the pod back without calling it unschedulable; False if it is decided already."""
        ...


class PreemptiblePods(Protocol):
    """The pods that wait on Permit."""

    def get_waiting(self, uid: str) -> PreemptiblePod | None:
        """One of them; None: it does not wait."""
        ...


@dataclass(frozen=True, slots=True)
class EvictionReason:
    """The preemptor of a victim, as the victim's condition and its event name it."""

    profile_name: str
    """The schedulerName under which both are written."""
    preemptor_kind: str
    """`pod` or `podgroup`."""
    note: str
    """The text of the event."""
    preemptor: PodInfo | None = None
    """A pod; once it is gone, victims may stay. None: a group."""
    related: ObjectReference | None = None
    """A group, as the event's related object."""


@dataclass(frozen=True, slots=True)
class Evictor:
    """Evicts victims one at a time, for pods and for groups.

    No victim goes any other way. What is to be counted of each that leaves its node, or is kept
    from it, belongs into `_record_preempted`.
    """

    world: World
    dispatcher: APIDispatcher
    metrics: Metrics
    bindings: CancellableBindings
    waiting_pods: PreemptiblePods
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def observe_preemption(self, victims: Sequence[PodInfo]) -> None:
        """Observe the number of victims of one preemption; each by itself goes through `evict`."""
        self.metrics.preemption_victims.labels().observe(len(victims))

    async def evict(self, victim: PodInfo, reason: EvictionReason) -> VictimOutcome:
        """Say in the victim's status why it has to go, delete it, and record the event.

        Raises:
            PreemptorDeleted: the pod that preempts is gone, also if it was deleted in its cycle.
            SchedulerError: it could not be evicted, in spite of retries.
        """
        # kube-scheduler (`Executor.PreemptPod`) does not look, and evicts for a deleted pod.
        self._check_preemptor(reason)
        if self._keep_from_node(victim):
            self._record_preempted(victim, reason, " (in kube-scheduler memory).")
            return VictimOutcome.BINDING_CANCELLED
        client = self.dispatcher.client
        try:
            await self._retrying(reason, lambda: self._mark(victim, reason))
            gone = await self._retrying(
                reason, lambda: client.delete_pod(victim.namespace, victim.name, victim.uid)
            )
        except (NotFound, Conflict):
            logger.debug("victim %s is gone already", victim.key)
            return VictimOutcome.ALREADY_GONE
        self._record_preempted(victim, reason, "")
        return VictimOutcome.DELETED if gone else VictimOutcome.TERMINATING

    def _keep_from_node(self, victim: PodInfo) -> bool:
        """Keep a victim from its node if it is not on it yet; returns whether that is so."""
        waiting = self.waiting_pods.get_waiting(victim.uid)
        if waiting is not None:
            return waiting.preempt(_PLUGIN, "preempted")
        return self.bindings.cancel(victim.uid, f"preempted by {_PLUGIN}")

    async def _mark(self, victim: PodInfo, reason: EvictionReason) -> None:
        """Write the condition DisruptionTarget into the victim's status.

        The patch has no uid, as kube-scheduler's has none. A retry comes seconds later: then the
        name may be another pod's, as the watch has shown.
        """
        if self.world.cache.pod(victim.uid) is None:
            return
        kind = reason.preemptor_kind
        patch = disruption_patch(
            victim,
            self.world.clock.now(),
            reason=_REASON,
            message=f"{reason.profile_name}: preempting to accommodate a higher priority {kind}",
        )
        if patch is not None:
            await self.dispatcher.client.patch_pod_status(victim.namespace, victim.name, patch)

    async def _retrying(self, reason: EvictionReason, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, again after a while if the API is overloaded or away.

        Raises:
            PreemptorDeleted: the pod that preempts is gone.
        """
        for delay_seconds in RETRY_DELAYS_SECONDS:
            self._check_preemptor(reason)
            try:
                return await call()
            except (Throttled, Unavailable) as failure:
                await self.sleep(max(delay_seconds, failure.retry_after_seconds or 0.0))
        return await call()

    def _check_preemptor(self, reason: EvictionReason) -> None:
        pod = reason.preemptor
        if pod is not None and pod.uid not in self.world.queue.entries:
            raise PreemptorDeleted(f"{pod.key} is gone, the other victims may stay")

    def _record_preempted(self, victim: PodInfo, reason: EvictionReason, suffix: str) -> None:
        self.dispatcher.recorder.event(
            pod_reference(victim),
            "Normal",
            "Preempted",
            "Preempting",
            f"{reason.note}{suffix}",
            reporting_controller=reason.profile_name,
            related=reason.related,
        )


@dataclass(slots=True)
class _UnderWay:
    """A preemption whose end the cache has not shown yet."""

    task: asyncio.Task[None]
    last_victim: str = ""
    """The uid of the last victim, once only that one is still to be evicted."""
    last_outcome: VictimOutcome | None = None
    """The outcome of its eviction; None: it is not known yet."""


class PreemptionExecutor:
    """One task per preemptor, which evicts the victims, the last one when all others are."""

    def __init__(
        self,
        world: World,
        dispatcher: APIDispatcher,
        metrics: Metrics,
        bindings: CancellableBindings,
        waiting_pods: PreemptiblePods,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._metrics = metrics
        self.evictor = Evictor(world, dispatcher, metrics, bindings, waiting_pods, sleep)
        """Evicts for pods; groups that preempt use the same one."""
        self._under_way: dict[str, _UnderWay] = {}
        """By the preemptor's uid."""
        self._preemptors_of: dict[str, set[str]] = {}
        """The uids of the preemptors, mostly one, by uid of their last victim."""

    def start(self, eviction: Eviction) -> None:
        """Evict the victims, in place of whatever is under way for the same preemptor."""
        pod = eviction.preemptor
        self.evictor.observe_preemption(eviction.candidate.victims)
        replaced = self._forget(pod.uid)
        if replaced is not None:
            replaced.cancel()
        task = asyncio.get_running_loop().create_task(
            self._carry_out(eviction), name=f"preempt for {pod.key}"
        )
        self._under_way[pod.uid] = _UnderWay(task)
        task.add_done_callback(lambda done: self._ended(pod.uid, done))

    def abandon(self, uid: str) -> None:
        """Stop evicting for a preemptor that is gone: its other victims may stay."""
        task = self._end(uid)
        if task is not None:
            task.cancel()

    def abandon_all(self, is_given_up: Callable[[PodInfo], bool]) -> None:
        """Stop evicting for these of the preemptors; the victims that are left may stay."""
        entries = self._world.queue.entries
        for uid in tuple(self._under_way):
            entry = entries.get(uid)
            if entry is not None and is_given_up(entry.newest):
                self.abandon(uid)

    def on_victim(self, uid: str) -> None:
        """Let the preemptors be tried whose last victim is this pod, terminating or gone now."""
        for preemptor in tuple(self._preemptors_of.get(uid, ())):
            under_way = self._under_way[preemptor]
            if self._is_over(under_way):
                if under_way.last_outcome is None:
                    open_gate(self._world, preemptor)
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
        if under_way is not None and under_way.task is task and under_way.last_outcome is None:
            self._end(uid)

    # --- which preemptors are gated -------------------------------------------------------------

    def _is_over(self, under_way: _UnderWay) -> bool:
        """Return whether the last victim is terminating or gone; False while it is not known."""
        last, outcome = under_way.last_victim, under_way.last_outcome
        return bool(last) and last_victim_ended(self._world, last, outcome)

    def _end(self, uid: str) -> asyncio.Task[None] | None:
        """End what is under way for a pod and open its gate; returns the task."""
        task = self._forget(uid)
        if task is not None:
            open_gate(self._world, uid)
        return task

    def _forget(self, uid: str) -> asyncio.Task[None] | None:
        under_way = self._under_way.pop(uid, None)
        if under_way is None:
            return None
        if under_way.last_victim:
            preemptors = self._preemptors_of[under_way.last_victim]
            preemptors.remove(uid)
            if not preemptors:
                del self._preemptors_of[under_way.last_victim]
        return under_way.task

    # --- carrying out ---------------------------------------------------------------------------

    async def _carry_out(self, eviction: Eviction) -> None:
        """One preemption from beginning to end; the top of its task."""
        world, pod = self._world, eviction.preemptor
        started_seconds = world.clock.monotonic()
        result = "error"
        try:
            outcomes = await self._evict_all(eviction)
            result = "success"
        except Exception as failure:
            unforeseen = not isinstance(failure, SchedulerError)
            logger.warning(
                "preemption for %s on %s: %s",
                pod.key,
                eviction.candidate.node_name,
                failure,
                exc_info=unforeseen,
            )
            self._end(pod.uid)
            cleared = withdraw_nomination(world, pod)
            if cleared is not None:
                self._dispatcher.reports.put(cleared)
        else:
            under_way = self._under_way.get(pod.uid)
            if under_way is not None:
                under_way.last_outcome = outcomes[-1]
                if self._is_over(under_way):
                    self._end(pod.uid)
            wake_preemptor(world, pod, outcomes)
        finally:
            metrics = self._metrics
            seconds = world.clock.monotonic() - started_seconds
            metrics.preemption_goroutines_duration.labels(result).observe(seconds)
            metrics.preemption_goroutines_execution.labels(result).inc()

    async def _evict_all(self, eviction: Eviction) -> Sequence[VictimOutcome]:
        """Evict every victim, the last one when all others are; returns the outcomes, in order.

        Raises:
            SchedulerError: a victim could not be evicted; then the last one is left alone.
        """
        pod = eviction.preemptor
        for cleared in clear_lower_nominations(self._world, pod, eviction.candidate.node_name):
            self._dispatcher.reports.put(cleared)
        reason = _reason(eviction)
        *others, last = eviction.victims
        answers = await asyncio.gather(
            *(self.evictor.evict(victim, reason) for victim in others), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        under_way = self._under_way.get(pod.uid)
        if under_way is not None:
            under_way.last_victim = last.uid
            self._preemptors_of.setdefault(last.uid, set()).add(pod.uid)
            if self._is_over(under_way):
                # It went while the others were evicted; a gate that opens here needs no rerun.
                self._world.preempting.discard(pod.uid)
        outcomes = [answer for answer in answers if isinstance(answer, VictimOutcome)]
        return [*outcomes, await self.evictor.evict(last, reason)]


def _reason(eviction: Eviction) -> EvictionReason:
    pod, chosen = eviction.preemptor, eviction.candidate
    note = f"Preempted by pod {pod.uid} on node {chosen.node_name}"
    nodes = sorted({victim.node_name for victim in chosen.victims})
    if nodes != [chosen.node_name]:
        count = len(chosen.victims)
        note += f" (cross-node preemption of {count} pod(s) on {', '.join(nodes)})"
    if eviction.decided_by:
        note += f": {eviction.decided_by}"
    return EvictionReason(eviction.profile_name, "pod", note, preemptor=pod)
