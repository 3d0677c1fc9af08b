"""A cluster that carries out what is decided as soon as the scheduling loop lets others go on.

Simulations and reruns have one each; what it does with pods, they do to their World. Invariant:
everything happens in the order in which an API server and its watch would have it reach the
operator, and takes no time.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.interface import APICall
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import (
    Decision,
    Effects,
    Eviction,
    Failure,
    VictimOutcome,
    clear_lower_nominations,
    open_gate,
    undo_binding,
    wake_preemptor,
)
from stellwerk.world.pod_status import POD_SCHEDULED, NominatingMode, Report
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_simulation.instant_claims import InstantClaims


class Pods(Protocol):
    """The pods of the cluster: what is written about them is shown to the scheduler at once."""

    def bind(self, assumed: PodInfo) -> None:
        """Put a pod on the node that it is assumed on."""
        ...

    def delete(self, victim: PodInfo) -> None:
        """Take a pod from its node; it may be gone already."""
        ...

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Write the nomination of a pod that waits into its status; empty: remove it."""
        ...

    def preempt(self, victims: Sequence[PodInfo]) -> None:
        """Note that pods will be deleted for another one."""
        ...

    def refuse(self, uid: str) -> None:
        """Note that no node takes a pod, and that none is deleted for it."""
        ...


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod that is assumed on its node and reserved there, to be bound."""

    queued: QueuedPod
    assumed: PodInfo
    framework: Framework
    state: CycleState


class InstantCluster:
    """Carries out the Effects of decisions."""

    def __init__(self, world: World, pods: Pods, claims: InstantClaims) -> None:
        self._world, self._pods, self._claims = world, pods, claims
        self._due: deque[Callable[[], None]] = deque()
        """Acts that are decided and have not happened yet."""

    def carry_out(self, queued: QueuedPod, decision: Decision, effects: Effects) -> None:
        """Have the effects of a decision on a pod happen."""
        if effects.bind is None:
            self.put_back(queued.pod, effects)
            return
        search = decision.search
        binding = Binding(queued, effects.bind, search.profile.framework, search.found.state)
        self._due.append(partial(self._bind_together, [binding], 1))

    def bind_together(self, bindings: Sequence[Binding], needed: int) -> None:
        """Bind the members of a group, so many of them or none."""
        self._due.append(partial(self._bind_together, bindings, needed))

    def put_back(self, pod: PodInfo, effects: Effects) -> None:
        """Have the effects happen of a decision by which a pod was requeued."""
        if effects.evict is not None:
            self._due.append(partial(self._evict, effects.evict))
        else:
            self._due.append(partial(self._pods.refuse, pod.uid))
        if effects.api_call is not None:
            self.write(effects.api_call)
        if effects.patch is not None:
            self._due.append(partial(self._write, effects.patch))

    def write(self, api_call: APICall) -> None:
        """Have happen what a plugin wants done in the cluster."""
        self._due.append(partial(self._claims.carry_out, api_call))

    def happen(self) -> bool:
        """Let happen what is due by now; returns whether anything was."""
        due, self._due = self._due, deque()
        for act in due:
            act()
        return bool(due)

    def _bind_together(self, bindings: Sequence[Binding], needed: int) -> None:
        """Write the claims of pods and bind them, if enough of them can be."""
        failures: list[Failure | None] = []
        for each in bindings:
            # From Permit on nothing calls the pod unschedulable.
            self._world.queue.done(each.assumed.uid)
            status = self._claims.bound(each.framework, each.state, each.assumed)
            failures.append(None if status.ok else Failure.not_bound(status))
        why = next((each for each in failures if each is not None), None)
        if why is not None and failures.count(None) < min(needed, len(failures)):
            failures = [each or why for each in failures]
        for binding, failure in zip(bindings, failures, strict=True):
            if failure is None:
                self._pods.bind(binding.assumed)
            else:
                self._undo(binding, failure)

    def _undo(self, binding: Binding, failure: Failure) -> None:
        reserved = binding.framework, binding.state
        undone = undo_binding(
            self._world, binding.queued, reserved, binding.assumed, failure, lambda _: None
        )
        self.put_back(binding.queued.pod, undone)

    def _write(self, report: Report) -> None:
        """Let the pod's status show the nomination, or that it has none any more.

        It also shows since when the pod waits, where its profile reads that.
        """
        pod, nomination = self._world.queue.pod(report.pod.uid), report.nomination
        if pod is not None and report.reason:
            pod = self._with_condition(pod, report)
        if pod is None or nomination.mode is not NominatingMode.OVERRIDE:
            return
        if pod.nominated_node_name != nomination.node_name:
            self._pods.nominate(pod, nomination.node_name)

    def _with_condition(self, pod: PodInfo, report: Report) -> PodInfo:
        """Let the pod's status say that it was refused, and since when."""
        world = self._world
        profile = world.profiles.of(pod)
        is_read = profile is not None and profile.framework.reads_time
        if not is_read or pod.unscheduled_since_seconds is not None:
            return pod
        condition = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": report.reason,
            "lastTransitionTime": rfc3339_seconds(world.clock.now()),
        }
        others = (each for each in pod.conditions if each["type"] != POD_SCHEDULED)
        shown = pod.with_node("")
        shown.details = replace(shown.details, conditions=(*others, condition))
        if shown.group is not None:
            world.pod_groups.put_pod(shown, shown.group)
        world.queue.update(shown, world.clock.monotonic())
        return shown

    # --- evictions --------------------------------------------------------------------------------

    def _evict(self, eviction: Eviction) -> None:
        """Evict the victims, the last one when the others are gone."""
        preemptor = eviction.preemptor
        node_name = eviction.candidate.node_name
        for cleared in clear_lower_nominations(self._world, preemptor, node_name):
            self._due.append(partial(self._write, cleared))
        self._pods.preempt(eviction.victims)
        *others, last = eviction.victims
        outcomes: list[VictimOutcome] = []
        evict_last = partial(self._evict_last, preemptor, last, outcomes)
        if others:
            self._due.append(partial(self._evict_others, others, outcomes, evict_last))
        else:
            evict_last()

    def evict_for_group(self, members: Sequence[PodInfo], victims: Sequence[PodInfo]) -> None:
        """Have victims deleted for the members of a group, which are gated until that is done."""
        self._pods.preempt(victims)
        let_go = partial(self._end_group_eviction, members, victims)
        self._due.append(partial(self._evict_others, victims, [], let_go))

    def _end_group_eviction(self, members: Sequence[PodInfo], victims: Sequence[PodInfo]) -> None:
        world = self._world
        for pod in members:
            open_gate(world, pod.uid)
        if all(world.cache.pod(victim.uid) is None for victim in victims):
            world.activate(members)

    def _evict_others(
        self,
        victims: Sequence[PodInfo],
        outcomes: list[VictimOutcome],
        then: Callable[[], None],
    ) -> None:
        outcomes += [self._delete(victim) for victim in victims]
        # The preemption hears of their ends while others go on, and continues the next time.
        self._due.append(partial(self._due_next, then))

    def _due_next(self, act: Callable[[], None]) -> None:
        self._due.append(act)

    def _evict_last(
        self, preemptor: PodInfo, victim: PodInfo, outcomes: list[VictimOutcome]
    ) -> None:
        """With the last victim gone, the preemptor is worth another attempt."""
        open_gate(self._world, preemptor.uid)
        outcomes.append(self._delete(victim))
        wake_preemptor(self._world, preemptor, outcomes)

    def _delete(self, victim: PodInfo) -> VictimOutcome:
        gone = self._world.cache.pod(victim.uid) is None
        self._pods.delete(victim)
        return VictimOutcome.ALREADY_GONE if gone else VictimOutcome.DELETED
