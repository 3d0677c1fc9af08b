"""The scheduling queue against a plain model: any order of events, failures and ticks of the clock.

The model is a dict of pods that evaluates every hint of every pod for every change, and sorts when
it has to choose. Order is compared by what it is documented to depend on; ties may fall either way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.backend.namespace_fairness import RETRY_DELAY_SECONDS
from stellwerk.backend.queued_pod import ActiveItem, Place, QueuedPod
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.models.pod import PodInfo
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, pod_info
from tests.support.examples import examples
from tests.support.queue_driver import Policy, QueueDriver

if TYPE_CHECKING:
    from collections.abc import Callable

PROFILES = ("default-scheduler", "second")
MAX_UNSCHEDULABLE_SECONDS = 300


def fits_new_node(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    assert isinstance(change.new, NodeInfo)
    return queue_if(pod.amounts.requests.get("cpu", 0) <= change.new.allocatable["cpu"])


def has_tier_of_deleted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    assert isinstance(change.old, PodInfo)
    return queue_if(pod.labels.get("tier") == change.old.labels.get("tier"))


def is_own(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return queue_if(isinstance(change.new, PodInfo) and change.new.uid == pod.uid)


HINTS = {
    "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD, fits_new_node)],
    "Spread": [
        ClusterEventWithHint(
            Resource.POD, Action.DELETE, has_tier_of_deleted, HintScope.SPEC_AND_LABELS
        )
    ],
    "Own": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_LABEL, is_own, HintScope.POD)],
    "Gate": [ClusterEventWithHint(Resource.NODE, Action.DELETE)],
    "Deaf": [],
}
"""Extender is missing on purpose: every event requeues its pods."""
BACKLOG = 5
NAMESPACES = 16
"""So many that none has more pods than count as having come when they came."""
PLUGINS = ("Fit", "Spread", "Own", "Deaf", "Extender")


@dataclass
class ModelPod:
    """What the documents say about one pod."""

    pod: PodInfo
    newest: PodInfo
    queued_at: float
    sorted_at: float = 0.0
    attempts: int = 0
    place: Place = Place.ABSENT
    unschedulable: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gating: bool = False
    rejections: int = 0
    errors: int = 0
    backoff_expiration: float = 0
    flushed_at: float = -math.inf
    missed: list[ClusterChange | None] | None = None
    """Changes during the attempt (None: everything); None: not in flight."""


def registrations(plugin: str) -> list[ClusterEventWithHint] | None:
    found = HINTS.get(plugin)
    if plugin == "Fit":
        # New nodes are watched, taints are not: upstream's workaround adds them without a hint.
        return [*HINTS["Fit"], ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE_TAINT)]
    return found


def registered(plugin: str, change: ClusterChange) -> list[ClusterEventWithHint]:
    hints = registrations(plugin)
    if hints is None:
        return [ClusterEventWithHint(Resource.WILDCARD, Action.ALL)]
    kinds = {change.resource}
    if change.resource in {Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}:
        kinds.add(Resource.POD)
    return [hint for hint in hints if hint.resource in kinds and hint.action & change.action]


def is_current(item: ActiveItem) -> bool:
    """Whether the item is its entry's own, judged by what the entry would push again."""
    entry = item.entry
    return entry is not None and item == ActiveItem(entry.sort_key, entry.sequence, entry)


class SchedulingQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = QueueDriver(Policy(registered=HINTS, backoffs=Backoff(1, 10)))
        self.pods: dict[str, ModelPod] = {}
        self.popped: dict[str, QueuedPod] = {}
        self.made = 0

    # --- the model's rules ------------------------------------------------------------------------

    def strategy_for(self, model: ModelPod, change: ClusterChange) -> int:
        """0 stay, 1 after backoff, 2 immediately."""
        strategy = 0
        for plugin in model.unschedulable | model.pending:
            for hint in registered(plugin, change):
                function = hint.queueing_hint_fn
                if function is None or function(model.pod, change) is QueueingHint.QUEUE:
                    strategy = max(strategy, 2 if plugin in model.pending else 1)
        return strategy

    def requeue(self, model: ModelPod, strategy: int) -> None:
        if model.pod.uid in self.driver.policy.gates:
            model.place, model.gating = Place.GATED, True
            model.unschedulable = model.unschedulable | {"Gate"}
            return
        model.gating = False
        if strategy == 0:
            model.place = Place.UNSCHEDULABLE
        else:
            waits = model.backoff_expiration and model.backoff_expiration >= math.floor(
                self.driver.now
            )
            if strategy == 1 and waits:
                broken = not (model.unschedulable or model.pending)
                model.place = Place.ERROR_BACKOFF if broken else Place.BACKOFF
            else:
                self.make_active(model)

    def make_active(self, model: ModelPod) -> None:
        """First attempts pass retries for a while."""
        now = self.driver.now
        model.place = Place.ACTIVE
        model.sorted_at = now + RETRY_DELAY_SECONDS if model.attempts else model.queued_at

    def happens(self, change: ClusterChange, max_priority: int = 1000) -> None:
        for model in self.pods.values():
            if model.missed is not None:
                model.missed.append(change)
            waits = model.place in {Place.UNSCHEDULABLE, Place.GATED}
            deaf = model.gating and not registered("Gate", change)
            if waits and not deaf and model.pod.priority <= max_priority:
                strategy = self.strategy_for(model, change)
                if strategy:
                    self.requeue(model, strategy)
        self.driver.queue.move_all_to_active_or_backoff(
            change, self.driver.now, max_priority=None if max_priority == 1000 else max_priority
        )

    def choose(self, pick: int, wanted: Callable[[ModelPod], bool]) -> ModelPod | None:
        found = [model for model in self.pods.values() if wanted(model)]
        return found[pick % len(found)] if found else None

    # --- pods come, change and go -----------------------------------------------------------------

    @initialize()
    def backlog(self) -> None:
        for number in range(BACKLOG):
            self.add(1 + number % 3, "web" if number % 2 else "db", number % 2, PROFILES[0])

    @rule(
        cpu=st.integers(1, 3),
        tier=st.sampled_from(["web", "db"]),
        priority=st.integers(0, 2),
        profile=st.sampled_from(PROFILES),
        gated=st.booleans(),
    )
    def add(self, cpu: int, tier: str, priority: int, profile: str, *, gated: bool = False) -> None:
        self.made += 1
        pod = pod_info(
            f"p{self.made}",
            namespace=f"ns-{self.made % NAMESPACES}",
            cpu=str(cpu),
            labels={"tier": tier},
            priority=priority,
            scheduler_name=profile,
        )
        if gated:
            self.driver.policy.gates[pod.uid] = "Gate"
        self.driver.add(pod)
        model = self.pods[pod.uid] = ModelPod(pod, pod, self.driver.now)
        self.requeue(model, 2)

    @rule(pick=st.integers(0, 99), gated=st.booleans())
    def set_gate(self, pick: int, *, gated: bool) -> None:
        model = self.choose(pick, lambda _: True)
        if model is not None:
            gates = self.driver.policy.gates
            gates.pop(model.pod.uid, None)
            if gated:
                gates[model.pod.uid] = "Gate"

    @rule(pick=st.integers(0, 99))
    def rerun_pre_enqueue(self, pick: int) -> None:
        model = self.choose(pick, lambda _: True)
        if model is not None:
            self.driver.queue.rerun_pre_enqueue(model.pod.uid)
            if model.place is Place.GATED:
                self.requeue(model, 0)

    @rule(
        pick=st.integers(0, 99),
        cpu=st.integers(1, 3),
        tier=st.sampled_from(["web", "db"]),
        priority=st.integers(0, 2),
    )
    def update(self, pick: int, cpu: int, tier: str, priority: int) -> None:
        model = self.choose(pick, lambda _: True)
        if model is None:
            return
        before = model.newest
        pod = pod_info(
            before.name,
            namespace=before.namespace,
            cpu=str(cpu),
            labels={"tier": tier},
            priority=priority,
            scheduler_name=before.spec.scheduler_name,
        )
        self.driver.queue.update(pod, self.driver.now)
        changes = []
        if tier != before.labels["tier"]:
            changes.append(Action.UPDATE_POD_LABEL)
        if pod.amounts.requests["cpu"] < before.amounts.requests["cpu"]:
            changes.append(Action.UPDATE_POD_SCALE_DOWN)
        model.newest = pod
        own = [
            ClusterChange(Resource.UNSCHEDULED_POD, action, before, pod)
            for action in changes or [Action.UPDATE_POD_OTHER]
        ]
        if model.missed is not None:
            model.missed += own
        if model.place in {Place.IN_FLIGHT, Place.BINDING}:
            return
        model.pod = pod
        if model.place in {Place.UNSCHEDULABLE, Place.GATED}:
            place = model.place
            for change in own:
                strategy = self.strategy_for(model, change)
                if strategy:
                    self.requeue(model, strategy)
                if model.place is not place:
                    break

    @precondition(lambda self: len(self.pods) > BACKLOG)
    @rule(pick=st.integers(0, 99))
    def delete(self, pick: int) -> None:
        model = self.choose(pick, lambda _: True)
        if model is not None:
            assert self.driver.queue.delete(model.pod.uid) is model.newest
            del self.pods[model.pod.uid]

    # --- attempts ---------------------------------------------------------------------------------

    @rule()
    def pop(self) -> None:
        entry = self.driver.pop()
        models = self.pods.values()
        active = [model for model in models if model.place is Place.ACTIVE]
        backing_off = [model for model in models if model.place is Place.BACKOFF]

        def active_order(model: ModelPod) -> tuple[float, ...]:
            priority = model.pod.priority
            reverse = self.driver.policy.reversed_sort
            waits = model.place is Place.ACTIVE
            return (
                priority if reverse else -priority,
                model.sorted_at if waits else model.queued_at,
            )

        def backoff_order(model: ModelPod) -> tuple[float, ...]:
            return (model.backoff_expiration, *active_order(model))

        if entry is None:
            assert not active
            assert not backing_off
            return
        model = self.pods[entry.pod.uid]
        if active:
            assert model in active
            assert active_order(model) == min(map(active_order, active))
        else:
            assert model in backing_off
            assert backoff_order(model) == min(map(backoff_order, backing_off))
        assert entry.pod is model.pod
        model.place, model.missed = Place.IN_FLIGHT, []
        model.attempts += 1
        model.unschedulable, model.pending = set(), set()
        self.popped[entry.pod.uid] = entry

    @precondition(lambda self: self.popped)
    @rule(
        pick=st.integers(0, 99),
        unschedulable=st.sets(st.sampled_from(PLUGINS), max_size=3),
        pending=st.sets(st.sampled_from(PLUGINS), max_size=1),
        error=st.booleans(),
    )
    def fail(self, pick: int, unschedulable: set[str], pending: set[str], *, error: bool) -> None:
        uid = list(self.popped)[pick % len(self.popped)]
        entry = self.popped.pop(uid)
        place = self.driver.queue.add_unschedulable_if_not_present(
            entry, unschedulable, pending, error=error, now=self.driver.now
        )
        model = self.pods.get(uid)
        if model is None:
            assert place is None
            return
        missed, model.missed = model.missed, None
        model.pod, model.queued_at = model.newest, self.driver.now
        model.unschedulable, model.pending = (set(), set()) if error else (unschedulable, pending)
        if model.unschedulable or model.pending:
            model.rejections, model.errors = model.rejections + 1, 0
            failures = model.rejections
        else:
            model.errors += 1
            failures = model.errors
        model.backoff_expiration = math.floor(self.driver.now + min(10, 2 ** (failures - 1)))
        if not (model.unschedulable or model.pending) or missed is None:
            strategy = 1
        else:
            answers = [
                1 if change is None else self.strategy_for(model, change) for change in missed
            ]
            strategy = max(answers, default=0)
        self.requeue(model, strategy)
        assert place is model.place

    @rule(
        unschedulable=st.sets(st.sampled_from(PLUGINS), min_size=1, max_size=2),
        pending=st.sets(st.sampled_from(PLUGINS), max_size=1),
    )
    def reject_everything(self, unschedulable: set[str], pending: set[str]) -> None:
        """Schedule until the line is empty, without success: what makes queues long."""
        for _ in range(len(self.pods)):
            before = len(self.popped)
            self.pop()
            if len(self.popped) > before:
                self.fail(before, unschedulable, pending, error=False)

    @precondition(lambda self: self.popped)
    @rule(pick=st.integers(0, 99))
    def done(self, pick: int) -> None:
        uid = list(self.popped)[pick % len(self.popped)]
        self.driver.queue.done(uid)
        if uid in self.pods:
            self.pods[uid].place, self.pods[uid].missed = Place.BINDING, None

    @precondition(lambda self: self.popped)
    @rule(pick=st.integers(0, 99))
    def bind(self, pick: int) -> None:
        uid = list(self.popped)[pick % len(self.popped)]
        del self.popped[uid]
        self.driver.queue.done(uid)
        self.driver.queue.delete(uid)
        self.pods.pop(uid, None)

    # --- the world changes ------------------------------------------------------------------------

    @rule(cpu=st.integers(1, 3))
    def add_node(self, cpu: int) -> None:
        node = parse_node(make_node("n", cpu=str(cpu)))
        self.happens(ClusterChange(Resource.NODE, Action.ADD, None, node))

    @rule(action=st.sampled_from([Action.DELETE, Action.UPDATE_NODE_TAINT]))
    def change_node(self, action: Action) -> None:
        node = parse_node(make_node("n"))
        self.happens(ClusterChange(Resource.NODE, action, node, node))

    @rule(tier=st.sampled_from(["web", "db"]), max_priority=st.sampled_from([0, 1, 1000]))
    def delete_bound_pod(self, tier: str, max_priority: int) -> None:
        pod = pod_info("gone", labels={"tier": tier}, node_name="n")
        change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, pod, None)
        self.happens(change, max_priority)

    @rule(pick=st.integers(0, 99))
    def activate(self, pick: int) -> None:
        model = self.choose(pick, lambda _: True)
        if model is None:
            return
        self.driver.queue.activate([model.pod], self.driver.now)
        if model.missed is not None:
            model.missed.append(None)
        elif model.place in {Place.BACKOFF, Place.ERROR_BACKOFF}:
            self.make_active(model)
        elif model.place in {Place.UNSCHEDULABLE, Place.GATED}:
            self.requeue(model, 2)

    @rule(profile=st.sampled_from(PROFILES))
    def reload(self, profile: str) -> None:
        self.driver.queue.retry_profile(profile, self.driver.now)
        for model in self.pods.values():
            if model.pod.spec.scheduler_name == profile:
                if model.missed is not None:
                    model.missed.append(None)
                elif model.place in {Place.UNSCHEDULABLE, Place.GATED}:
                    self.requeue(model, 1)

    # --- time passes ------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 11.0]))
    def advance(self, seconds: float) -> None:
        self.driver.now += seconds
        self.driver.queue.flush_backoff(self.driver.now)
        for model in self.pods.values():
            over = model.backoff_expiration < math.floor(self.driver.now)
            if over and model.place in {Place.BACKOFF, Place.ERROR_BACKOFF}:
                self.make_active(model)

    @rule(seconds=st.sampled_from([100.0, 400.0]))
    def flush_leftovers(self, seconds: float) -> None:
        self.advance(seconds)
        self.driver.queue.flush_unschedulable(self.driver.now)
        for model in self.pods.values():
            waited = self.driver.now - max(model.queued_at, model.flushed_at)
            waits = model.place in {Place.UNSCHEDULABLE, Place.GATED}
            if waits and waited > MAX_UNSCHEDULABLE_SECONDS:
                model.flushed_at = self.driver.now
                self.requeue(model, 1)

    # --- activeQ is sorted anew -------------------------------------------------------------------

    @precondition(lambda self: self.driver.active)
    @rule(pick=st.integers(0, 99))
    def pop_a_stale_item(self, pick: int) -> None:
        item = self.driver.active[pick % len(self.driver.active)]
        if not is_current(item):
            assert self.driver.queue.pop(item) is None

    @rule()
    def reverse_the_sort(self) -> None:
        self.driver.policy.reversed_sort = not self.driver.policy.reversed_sort
        self.driver.queue.reorder()

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def every_pod_is_where_it_belongs_and_nowhere_else(self) -> None:
        queue = self.driver.queue
        assert {entry.pod.uid: entry.place for entry in queue.entries.values()} == {
            uid: model.place for uid, model in self.pods.items()
        }
        current = [item.entry for item in self.driver.active if is_current(item)]
        in_active_q = [each for each in queue.entries.values() if each.place is Place.ACTIVE]
        assert sorted(map(id, current)) == sorted(map(id, in_active_q))

    @invariant()
    def counts_agree_with_a_recount(self) -> None:
        places = [model.place for model in self.pods.values()]
        assert self.driver.queue.pending() == {
            "active": places.count(Place.ACTIVE),
            "backoff": places.count(Place.BACKOFF) + places.count(Place.ERROR_BACKOFF),
            "unschedulable": places.count(Place.UNSCHEDULABLE),
            "gated": places.count(Place.GATED),
        }

    @invariant()
    def pods_count_for_exactly_the_plugins_that_rejected_them(self) -> None:
        wanted: dict[tuple[str, str], int] = {}
        for model in self.pods.values():
            for plugin in model.unschedulable | model.pending:
                key = (plugin, model.pod.spec.scheduler_name)
                wanted[key] = wanted.get(key, 0) + 1
        counted = self.driver.observed.rejected_pods
        assert {key: count for key, count in counted.items() if count} == wanted

    @invariant()
    def nothing_is_remembered_while_no_pod_is_in_flight(self) -> None:
        counts = dict(self.driver.queue.in_flight_event_counts())
        in_flight = counts.pop("PodPopped")
        assert in_flight >= sum(model.missed is not None for model in self.pods.values())
        if not in_flight:
            assert not counts


TestSchedulingQueueMachine = pytest.mark.slow(SchedulingQueueMachine.TestCase)
SchedulingQueueMachine.TestCase.settings = settings(
    max_examples=examples(300), stateful_step_count=60, deadline=None
)
