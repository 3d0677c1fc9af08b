"""One run: pods arrive, each is decided as the operator decides, and leaves when its time is over.

Runs call it, in processes of their own. Invariant: every decision is the one of `world.decide`
(`world.equal_pods`, where pods are equal) and `world.apply` on the World's own queue; what is
recorded is read from the snapshot afterwards.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from typing import Final

from typing_extensions import override

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.framework.interface import APICall
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.dynamic_resources.claims import why_not_ready
from stellwerk.plugins.gpu.fragmentation import TypicalPod, TypicalPods
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.decide import Failure, apply
from stellwerk.world.equal_pods import EqualPodRuns
from stellwerk.world.gangs.queue_order import GroupGates
from stellwerk.world.world import World
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import LabelSelector, parse_label_selector
from stellwerk_simulation.arrivals import Arrivals
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world
from stellwerk_simulation.instant_claims import InstantClaims
from stellwerk_simulation.instant_cluster import InstantCluster, Pods
from stellwerk_simulation.instant_groups import InstantGroups
from stellwerk_simulation.manifest_errors import made
from stellwerk_simulation.node_usage import USAGE_SECONDS, NodeUsages
from stellwerk_simulation.run_metrics import RunMetrics, RunResult
from stellwerk_simulation.trace import TracePod
from stellwerk_simulation.virtual_time import VirtualTime


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Options of a run on time, and on pods that no node takes; the same for all of a trial."""

    timed: bool = False
    """Pods arrive and leave by the times of the trace; otherwise one by one, and stay."""
    queues: bool = False
    """A pod that no node takes waits in the queue; otherwise it is dropped for good."""
    plan_seconds: float = 0.0
    """Virtual time until a plan that was asked for is there."""


_SECONDS_APART: Final = 1.0
"""Pods without times of their own arrive one after the other."""


class Simulation(Pods):
    """A cluster of a trace under one profile, to which pods arrive."""

    def __init__(
        self,
        arrivals: Arrivals,
        profile: LoadedProfile,
        typical: Sequence[TypicalPod],
        seed: int,
        run_options: SimulationOptions | None = None,
    ) -> None:
        self._options = run_options or SimulationOptions()
        active, self._clock = ActivePods(), VirtualClock()
        self._claims = InstantClaims(IndexedObjectStore(), self._show_claim)
        self._world = make_world(
            arrivals.nodes,
            profile,
            seed,
            active,
            arrivals.cluster_objects,
            self._clock,
            self._options.plan_seconds,
            self._make_usages,
            client=self._claims,
            write_later=self._write_later,
        )
        self._claims.objects = self._world.objects
        self._runs = EqualPodRuns(self._world)
        self._cluster = InstantCluster(self._world, self, self._claims)
        self._time = VirtualTime(
            self._world, self._clock, active, self._schedule_one, self._cluster
        )
        self._groups = InstantGroups(self._world, self._cluster, self._time, self._note_refused)
        self._gates = GroupGates(self._world)
        self._shared_claims = arrivals.cluster_objects.load_groups(
            self._world, self._gates, self._claims
        )
        self._budgets = Budgets(self._world, arrivals.cluster_objects.source)
        self._pods = PodMaker(profile.scheduler_name, self._world.priority_classes.resolve)
        self._arrived: dict[str, TracePod] = {}
        """By uid; those that are waiting or running."""
        self._bound: dict[str, str] = {}
        """The node of each running pod, by uid."""
        self._arriving, self._is_measured = True, False
        self._metrics = RunMetrics(
            arrivals.nodes, self._world.cache, TypicalPods(typical), profile.name, seed
        )

    def _write_later(self, api_call: APICall) -> None:
        """Have happen what a plugin does not wait for."""
        self._cluster.write(api_call)

    @property
    def world(self) -> World:
        """The state that is decided on."""
        return self._world

    def _make_usages(self, world: World) -> NodeUsages:
        self.usages = NodeUsages(world.clock, world.objects, world.cache.snapshot)
        return self.usages

    def run(self, pods: Sequence[TracePod], tick: Callable[[int], None]) -> RunResult:
        """Let these pods arrive; `tick` is called with their number now and then.

        Raises:
            PluginFailure: a plugin raised.
        """
        arrived = 0
        for at_once in self._by_moment(pods):
            self._arrive(at_once)
            before, arrived = arrived, arrived + len(at_once)
            if arrived // 100 > before // 100 or arrived == len(pods):
                tick(arrived)
        self._arriving = False
        while (until := min(self._time.next_event(), self._time.next_due())) < inf:
            self._time.pass_until(until)
            self._time.run()
        self._note_gated()
        [served] = self._world.profiles.served.values()
        result = self._metrics.result(self._clock.monotonic(), self.usages.measured)
        return replace(result, compatibility=str(served.compatibility.version))

    def arrive(self, pod: TracePod) -> str:
        """Schedule one pod; returns the node that it runs on from now on; empty: none took it.

        Raises:
            PluginFailure: a plugin raised.
        """
        (uid,) = self._arrive([pod])
        return self._bound.get(uid, "")

    def _by_moment(self, pods: Sequence[TracePod]) -> Sequence[Sequence[TracePod]]:
        """The pods that come together, in the order in which they come."""
        if not self._options.timed:
            return [[pod] for pod in pods]
        ordered = sorted(pods, key=_arrives_seconds)
        return [list(group) for _, group in groupby(ordered, _arrives_seconds)]

    def _arrive(self, pods: Sequence[TracePod]) -> list[str]:
        """Schedule pods that come at the same time; returns their uids."""
        now = self._clock.monotonic()
        self._time.pass_until(
            pods[0].arrives_seconds if self._options.timed else now + _SECONDS_APART
        )
        now = self._clock.monotonic()
        uids = []
        for pod in pods:
            made = self._pods.pod(pod)
            uids.append(made.uid)
            self._arrived[made.uid] = pod
            self._metrics.arrived(pod, now)
            self._budgets.arrived(made)
            if made.group is not None:
                # Before the queue: its members count when PreEnqueue is asked.
                self._gates.put_pod(made)
            self._world.queue.add(made, now)
        for pod in pods:
            # The controller of claims follows the pods; those that come together do not wait.
            claimed = self._pods.with_claims(pod, self._claims_for)
            if claimed is not None:
                if claimed.group is not None:
                    self._gates.put_pod(claimed)
                self._world.queue.update(claimed, now)
        self._time.run()
        for _ in pods:
            self._metrics.note_load()
        return uids

    async def _schedule_one(self, queued: QueuedPod) -> None:
        world, pod = self._world, queued.pod
        profile = world.profiles.of(pod)
        if profile is None:
            raise LookupError(f"no profile of the simulation serves {pod.key}")
        self.usages.read_what_is_due()
        if pod.group is not None and profile.places_groups:
            self._groups.schedule(queued, profile)
            return
        world.cache.update_snapshot()
        decision = self._runs.decide(pod, profile)
        if decision.failure is not None:
            self._note_refused(queued, decision.failure)
        self._cluster.carry_out(queued, decision, apply(world, queued, decision))

    def _note_refused(self, queued: QueuedPod, failure: Failure) -> None:
        if queued.pod.uid in self._arrived:
            self._metrics.refused(self._arrived[queued.pod.uid], failure.message)

    def _note_gated(self) -> None:
        """Say of pods that were never tried what they wait for."""
        world = self._world
        for queued in world.queue.entries.values():
            pod = queued.pod
            if queued.place is Place.GATED:
                shared = world.pod_groups.claims_with(pod)
                reason = world.pod_groups.why_gated(pod) or why_not_ready(
                    world.objects, pod, shared
                )
                self._metrics.refused(
                    self._arrived[pod.uid], reason or f"{queued.gating_plugin} keeps it back"
                )

    # --- claims for devices -----------------------------------------------------------------------

    def _claims_for(self, pod: JsonObject) -> list[JsonObject]:
        """The resourceClaimStatuses of a pod that comes, once its claims are made."""
        metadata, spec = pod["metadata"], pod["spec"]
        group = (spec.get("schedulingGroup") or {}).get("podGroupName") or ""
        shared = self._shared_claims.get((metadata.get("namespace") or "default", group), {})
        return self._claims.made_for(pod, shared=shared)

    def _show_claim(self, event_type: str, claim: JsonObject) -> None:
        """Show a claim to the scheduler, as its watch does."""
        world, metadata = self._world, claim["metadata"]
        objects, namespace = world.objects, metadata.get("namespace") or ""
        before = objects.get(RESOURCE_CLAIM, namespace, metadata["name"])
        gone = event_type == "DELETED"
        if gone:
            objects.remove(RESOURCE_CLAIM, claim)
        else:
            objects.set(RESOURCE_CLAIM, claim)
        now = self._clock.monotonic()
        world.wake_after_object(RESOURCE_CLAIM, before, None if gone else claim, now)

    # --- what becomes of pods ---------------------------------------------------------------------

    @override
    def bind(self, assumed: PodInfo) -> None:
        """The binding is confirmed, and the kubelet has started the pod."""
        world, now = self._world, self._clock.monotonic()
        bound = assumed.with_node(assumed.node_name)
        # As kubelets write it: whole seconds.
        bound.started_seconds = world.clock.now().replace(microsecond=0).timestamp()
        if bound.group is not None:
            self._gates.put_pod(bound)
        world.cache.set_pod(bound)
        world.queue.delete(bound.uid)
        world.cache.update_snapshot()
        arrived = self._arrived[bound.uid]
        self._bound[bound.uid] = bound.node_name
        self.usages.bound(bound.uid, arrived, bound.node_name)
        if self.usages.is_declared and not self._is_measured:
            self._is_measured = True
            self._measure("")
        self._budgets.bound(bound)
        self._metrics.bound(arrived, bound.amounts.requests, bound.node_name, now)
        if self._options.timed and arrived.runs_seconds is not None:
            self._time.call_at(now + arrived.runs_seconds, bound.uid, self._end)
        if world.queue.entries:
            self._changed(Action.ADD, bound)

    def _measure(self, _: str) -> None:
        """Measure what nodes use, now and for as long as something may happen."""
        self.usages.measure()
        if self._arriving or self._time.next_event() < inf:
            self._time.call_at(self._clock.monotonic() + USAGE_SECONDS, "", self._measure)

    @override
    def delete(self, victim: PodInfo) -> None:
        arrived = self._arrived.get(victim.uid)
        self._end(victim.uid)
        if arrived is not None:
            self._metrics.evicted(arrived)

    def _end(self, uid: str) -> None:
        """A pod leaves its node, if it is on one."""
        world = self._world
        removed = world.cache.pod(uid)
        if removed is None:
            return
        if removed.group is not None:
            self._gates.take_pod(uid)
        world.cache.remove_pod(uid)
        world.cache.update_snapshot()
        arrived = self._arrived.pop(uid)
        self._budgets.gone(removed)
        node_name, now = self._bound.pop(uid), self._clock.monotonic()
        self.usages.left(uid, node_name)
        self._metrics.left(arrived, removed.amounts.requests, node_name, now)
        self._changed(Action.DELETE, removed)
        self._claims.given_up(uid)

    @override
    def nominate(self, pod: PodInfo, node_name: str) -> None:
        shown = pod.with_node("")
        shown.details = replace(shown.details, nominated_node_name=node_name)
        if shown.group is not None:
            self._gates.put_pod(shown)
        self._world.queue.update(shown, self._clock.monotonic())
        self._nomination_changed(pod)

    @override
    def preempt(self, victims: Sequence[PodInfo]) -> None:
        self._metrics.preempted(len(victims))

    @override
    def refuse(self, uid: str) -> None:
        """Give up a pod that no node takes, where none waits in the queue."""
        pending = None if self._options.queues else self._world.queue.delete(uid)
        if pending is not None:
            if pending.group is not None:
                self._gates.take_pod(uid)
            self._claims.given_up(uid)
            self._budgets.gone(pending)
            del self._arrived[uid]
            self._nomination_changed(pending)

    def _nomination_changed(self, before: PodInfo) -> None:
        """Pods that a lower or equal nomination stood in the way of may fit now."""
        if before.nominated_node_name:
            self._changed(Action.DELETE, before, before.priority)

    def _changed(self, action: Action, pod: PodInfo, max_priority: int | None = None) -> None:
        """Requeue the pods that it may help that a pod has come to a node, or has left it."""
        old, new = (None, pod) if action is Action.ADD else (pod, None)
        self._world.queue.move_all_to_active_or_backoff(
            ClusterChange(Resource.ASSIGNED_POD, action, old, new),
            self._clock.monotonic(),
            max_priority=max_priority,
        )


def _arrives_seconds(pod: TracePod) -> float:
    return pod.arrives_seconds


# --- PodDisruptionBudgets -------------------------------------------------------------------------


_KIND: Final = "PodDisruptionBudget"


_PERCENT: Final = "%"


_FULL_PCT: Final = 100


class Budgets:
    """Every budget of a World, with the pods that it speaks of.

    As in a cluster whose disruption controller is never late, and where every pod with a node is
    healthy, `status.disruptionsAllowed` is true whenever preemption reads it.
    """

    def __init__(self, world: World, source: str) -> None:
        """Begin without pods.

        Raises:
            ConfigurationError: a budget is wrong; names it and the source.
        """
        self._objects = world.objects
        self._budgets = [made(_Budget, obj, source) for obj in world.objects.list(_KIND)]
        for budget in self._budgets:
            self._write(budget)

    def arrived(self, pod: PodInfo) -> None:
        """There is a pod more, without a node."""
        self._count(pod, expected=1)

    def bound(self, pod: PodInfo) -> None:
        """It has a node."""
        self._count(pod, healthy=1)

    def gone(self, pod: PodInfo) -> None:
        """There is one less, which had a node or not."""
        self._count(pod, expected=-1, healthy=-1 if pod.node_name else 0)

    def _count(self, pod: PodInfo, expected: int = 0, healthy: int = 0) -> None:
        for budget in self._of(pod):
            budget.counts["expected"] += expected
            budget.counts["healthy"] += healthy
            self._write(budget)

    def _of(self, pod: PodInfo) -> Iterator["_Budget"]:
        return (budget for budget in self._budgets if budget.speaks_of(pod))

    def _write(self, budget: "_Budget") -> None:
        status = {"disruptionsAllowed": budget.allowed()}
        self._objects.set(_KIND, {**budget.obj, "status": status})


class _Budget:
    """One budget, and how many pods it speaks of."""

    def __init__(self, obj: JsonObject) -> None:
        """Read it.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is wrong.
        """
        self.obj = obj
        self._namespace = obj["metadata"].get("namespace") or "default"
        spec = obj.get("spec") or {}
        self._selector: LabelSelector | None = parse_label_selector(spec.get("selector"))
        self._least, self._most_away = spec.get("minAvailable"), spec.get("maxUnavailable")
        self.counts: Counter[str] = Counter()
        """Counts of its pods: all of them are expected, those with a node are healthy."""
        self.allowed()

    def speaks_of(self, pod: PodInfo) -> bool:
        """Whether it protects the pod."""
        if self._selector is None or pod.namespace != self._namespace:
            return False
        return self._selector.matches(pod.labels)

    def allowed(self) -> int:
        """The number of its pods that may be disrupted now."""
        expected, healthy = self.counts["expected"], self.counts["healthy"]
        if self._most_away is None:
            desired = _absolute(1 if self._least is None else self._least, expected)
        else:
            desired = max(0, expected - _absolute(self._most_away, expected))
        return max(0, healthy - desired)


def _absolute(value: object, total: int) -> int:
    """A number of pods, or a percentage of them, rounded up.

    Raises:
        ValueError: it is neither.
    """
    text = str(value)
    share = text.removesuffix(_PERCENT)
    if not (share.isascii() and share.isdecimal()) or len(share) > len(str(1 << 31)):
        raise ValueError(f"{text[:40]!r} is neither a number of pods nor a percentage")
    return int(share) if share == text else -(-int(share) * total // _FULL_PCT)
