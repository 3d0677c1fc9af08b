"""The queue's rules one by one: order, places, requeueing, gates, updates, timers."""

import gc
import logging
import math
from dataclasses import replace

import pytest

from stellwerk.backend.backoff_queue import Backoff
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
from tests.support.builders import pod_info
from tests.support.queue_driver import Policy, QueueDriver

NODE_ADDED = ClusterChange(Resource.NODE, Action.ADD)
NODE_LABELLED = ClusterChange(Resource.NODE, Action.UPDATE_NODE_LABEL)
POD_DELETED = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE)
FIT = {"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}


@pytest.fixture
def driver() -> QueueDriver:
    return QueueDriver(Policy(registered=FIT))


def own_gates_gone(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return queue_if(isinstance(change.new, PodInfo) and change.new.uid == pod.uid)


# --- order --------------------------------------------------------------------------------------


def test_higher_priority_comes_first_then_the_pod_queued_first(driver: QueueDriver) -> None:
    driver.add(pod_info("early"))
    driver.now += 1
    driver.add(pod_info("late"), pod_info("important", priority=10), pod_info("last"))
    assert driver.drain() == ["important", "early", "late", "last"]


def test_a_failed_pod_queues_behind_its_equals(driver: QueueDriver) -> None:
    driver.policy.backoffs = Backoff(1, 0)
    driver.add(pod_info("failed"))
    entry = driver.pop_named("failed")
    driver.now += 0.1
    driver.add(pod_info("newer"))
    driver.now += 0.1
    driver.fail(entry)
    assert driver.drain() == ["newer", "failed"]


def test_a_pod_without_priority_counts_as_zero(driver: QueueDriver) -> None:
    driver.add(pod_info("unset"), pod_info("below", priority=-1), pod_info("above", priority=1))
    assert driver.drain() == ["above", "unset", "below"]


# --- popping ------------------------------------------------------------------------------------


def test_a_pod_deleted_from_activeq_is_stale(driver: QueueDriver) -> None:
    driver.add(pod_info("a"), pod_info("b"))
    driver.queue.delete("uid-default-a")
    assert driver.drain() == ["b"]


def test_an_item_is_stale_once_its_entry_was_sorted_anew(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    (before,) = driver.active
    entry = driver.queue.entries.get("uid-default-a")
    driver.queue.update(pod_info("a", priority=7), driver.now)
    assert driver.queue.entries.get("uid-default-a") is entry
    assert driver.queue.pop(before) is None
    assert driver.queue.position("uid-default-a") == 0
    assert driver.drain() == ["a"]


def test_an_item_is_stale_once_its_entry_was_popped(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    (item,) = driver.active
    entry = driver.pop_named("a")
    assert driver.queue.pop(item) is None
    driver.queue.activate([entry.pod], driver.now)
    driver.policy.backoffs = Backoff(1, 0)
    assert driver.fail(entry) is Place.ACTIVE
    assert driver.queue.pop(item) is None, "back in activeQ, but by another item"
    assert driver.drain() == ["a"]


def test_a_signal_is_no_pod(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    assert driver.queue.pop(ActiveItem((), -1, None)) is None
    assert driver.drain() == ["a"]


def test_popping_counts_the_attempt_and_puts_the_pod_in_flight(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    assert (entry.attempts, entry.place) == (1, Place.IN_FLIGHT)
    assert driver.queue.in_flight_event_counts()["PodPopped"] == 1


def test_done_ends_what_can_still_be_rejected(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.queue.done(entry.pod.uid)
    assert entry.place is Place.BINDING
    assert not driver.queue.in_flight_event_counts()["PodPopped"]


def test_the_first_way_into_activeq_starts_the_latency_clock(driver: QueueDriver) -> None:
    driver.policy.gates["uid-default-a"] = "SchedulingGates"
    driver.add(pod_info("a"))
    entry = driver.queue.entries.get("uid-default-a")
    assert entry is not None
    assert entry.initial_attempt_at is None
    driver.policy.gates.clear()
    driver.now += 60
    driver.queue.activate([entry.pod], driver.now)
    driver.now += 1
    driver.fail(driver.pop_named("a"))
    assert entry.initial_attempt_at == driver.now - 1


# --- failing ------------------------------------------------------------------------------------


def test_a_rejected_pod_stays_until_a_change(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("a"), "Fit")
    assert entry.place is Place.UNSCHEDULABLE
    driver.advance(60)
    assert driver.pop() is None


def test_a_pod_in_error_backs_off_and_is_not_popped_early(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    assert driver.fail(entry) is Place.ERROR_BACKOFF
    assert driver.pop() is None
    driver.advance(2)
    driver.pop_named("a")


def test_an_error_outweighs_the_plugins_that_rejected(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    place = driver.queue.add_unschedulable_if_not_present(
        entry, ["Fit"], error=True, now=driver.now
    )
    assert place is Place.ERROR_BACKOFF
    assert not entry.rejector_plugins


def test_giving_back_twice_is_refused(
    driver: QueueDriver, caplog: pytest.LogCaptureFixture
) -> None:
    entry = driver.reject(pod_info("a"), "Fit")
    assert driver.fail(entry, "Fit") is None
    assert "already in the queue" in caplog.text
    assert entry.unschedulable_count == 1


@pytest.mark.parametrize("after_done", [False, True])
def test_a_pod_deleted_during_its_attempt_does_not_come_back(
    driver: QueueDriver, *, after_done: bool
) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    if after_done:
        driver.queue.done(entry.pod.uid)
    driver.queue.delete(entry.pod.uid)
    assert driver.fail(entry, "Fit") is None
    assert len(driver.queue.entries) == 0
    assert not driver.queue.in_flight_event_counts()["PodPopped"]


def test_a_binding_that_fails_goes_to_error_backoff(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.queue.done(entry.pod.uid)
    assert driver.fail(entry) is Place.ERROR_BACKOFF


def test_a_pod_comes_back_as_it_is_by_then(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    newer = pod_info("a", labels={"tier": "web"})
    driver.queue.update(newer, driver.now)
    assert entry.pod is not newer, "the attempt goes on with the pod it began with"
    driver.fail(entry, "Fit")
    assert entry.pod is newer


# --- changes during the attempt -----------------------------------------------------------------


def test_a_change_during_the_attempt_is_not_missed(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.change(NODE_ADDED)
    assert driver.fail(entry, "Fit") is Place.BACKOFF


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(NODE_ADDED, None, id="a change before the attempt is in its snapshot"),
        pytest.param(None, NODE_LABELLED, id="a change that no plugin registered"),
    ],
)
def test_other_changes_do_not_bring_it_back(
    driver: QueueDriver, before: ClusterChange | None, after: ClusterChange | None
) -> None:
    driver.add(pod_info("a"))
    if before is not None:
        driver.change(before)
    entry = driver.pop_named("a")
    if after is not None:
        driver.change(after)
    assert driver.fail(entry, "Fit") is Place.UNSCHEDULABLE


def test_a_pending_plugin_is_answered_without_backoff(driver: QueueDriver) -> None:
    driver.policy.registered = {**FIT, "Gang": [ClusterEventWithHint(Resource.POD, Action.DELETE)]}
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.change(NODE_ADDED)
    driver.change(POD_DELETED)
    assert driver.fail(entry, "Fit", pending=["Gang"]) is Place.ACTIVE


def test_an_own_update_during_the_attempt_requeues_no_other_pod(driver: QueueDriver) -> None:
    driver.policy.registered = {
        "Fit": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_LABEL)]
    }
    driver.add(pod_info("a"), pod_info("b"))
    first, second = driver.pop_named("a"), driver.pop_named("b")
    driver.queue.update(pod_info("a", labels={"tier": "web"}), driver.now)
    assert driver.fail(first, "Fit") is Place.BACKOFF
    assert driver.fail(second, "Fit") is Place.UNSCHEDULABLE


def test_activation_during_the_attempt_retries_only_that_pod(driver: QueueDriver) -> None:
    driver.add(pod_info("a"), pod_info("b"))
    first, second = driver.pop_named("a"), driver.pop_named("b")
    driver.queue.activate([first.pod], driver.now)
    assert driver.fail(first, "Fit") is Place.BACKOFF
    assert driver.fail(second, "Fit") is Place.UNSCHEDULABLE


# --- changes in the cluster ---------------------------------------------------------------------


def test_a_requeued_pod_backs_off_but_is_popped_when_activeq_is_empty(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("a"), "Fit")
    driver.now += 0.4
    assert driver.change(NODE_ADDED) == 1
    assert entry.place is Place.BACKOFF
    assert driver.wakes == 1
    driver.pop_named("a")
    assert driver.observed.moves["active", "PopFromBackoffQ"] == 1


def test_backoff_is_kept_while_activeq_has_pods(driver: QueueDriver) -> None:
    driver.reject(pod_info("a"), "Fit")
    driver.add(pod_info("b"))
    driver.change(NODE_ADDED)
    assert driver.queue.pop_from_backoff() is None
    assert driver.wakes == 0


def test_a_pod_past_its_backoff_goes_straight_to_activeq(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("a"), "Fit")
    driver.advance(2)
    driver.change(NODE_ADDED)
    assert entry.place is Place.ACTIVE
    assert driver.observed.moves["active", "NodeAdd"] == 1


def test_an_idle_queue_pops_the_earliest_window_then_activeq_order(driver: QueueDriver) -> None:
    driver.policy.registered = {"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}
    pods = [pod_info("low"), pod_info("high", priority=5), pod_info("later", priority=9)]
    driver.add(*pods)
    popped = [driver.pop_named(name) for name in ("later", "high", "low")]
    for entry in popped[1:]:
        driver.fail(entry, "Fit")
    driver.now += 1
    driver.fail(popped[0], "Fit")
    driver.change(NODE_ADDED)
    assert driver.drain() == ["high", "low", "later"]


def test_a_nomination_frees_only_pods_of_at_most_its_priority(driver: QueueDriver) -> None:
    driver.policy.registered = {"Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE)]}
    low = driver.reject(pod_info("low", priority=1), "Fit")
    high = driver.reject(pod_info("high", priority=3), "Fit")
    assert driver.queue.move_all_to_active_or_backoff(POD_DELETED, driver.now, max_priority=2) == 1
    assert (low.place, high.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)


def test_a_pod_is_not_requeued_by_the_capacity_that_it_freed_itself(driver: QueueDriver) -> None:
    driver.policy.registered = {"Fit": [ClusterEventWithHint(Resource.POD, Action.DELETE)]}
    leaving = driver.reject(pod_info("leaving"), "Fit")
    other = driver.reject(pod_info("other"), "Fit")
    uid = leaving.pod.uid
    assert driver.queue.move_all_to_active_or_backoff(POD_DELETED, driver.now, except_uid=uid) == 1
    assert (leaving.place, other.place) == (Place.UNSCHEDULABLE, Place.BACKOFF)


def test_a_change_of_everything_requeues_the_rejected_but_not_the_gated(
    driver: QueueDriver,
) -> None:
    rejected = driver.reject(pod_info("a"), "Deaf")
    driver.policy.gates["uid-default-b"] = "SchedulingGates"
    driver.add(pod_info("b"))
    driver.change(ClusterChange(Resource.WILDCARD, Action.ALL, label="Reload"))
    assert rejected.place is Place.BACKOFF
    assert driver.queue.place("uid-default-b") is Place.GATED


# --- gates --------------------------------------------------------------------------------------


def gated_driver() -> QueueDriver:
    hints = {
        "SchedulingGates": [
            ClusterEventWithHint(
                Resource.POD,
                Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                own_gates_gone,
                HintScope.POD,
            )
        ],
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
    }
    driver = QueueDriver(Policy(registered=hints))
    driver.policy.gates["uid-default-a"] = "SchedulingGates"
    return driver


def gated_pod(*gates: str) -> PodInfo:
    return pod_info("a", schedulingGates=[{"name": gate} for gate in gates])


def test_a_gated_pod_is_counted_apart() -> None:
    driver = gated_driver()
    driver.add(gated_pod("x/one"))
    assert driver.queue.pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    assert driver.observed.moves["unschedulable", "UnschedulablePodAdd"] == 1
    assert driver.observed.rejected_pods["SchedulingGates", "default-scheduler"] == 1


def test_only_the_last_gate_lets_it_in() -> None:
    driver = gated_driver()
    driver.add(gated_pod("x/one", "x/two"))
    driver.queue.update(gated_pod("x/two"), driver.now)
    assert driver.queue.place("uid-default-a") is Place.GATED
    driver.policy.gates.clear()
    driver.queue.update(gated_pod(), driver.now)
    driver.pop_named("a")


def test_the_gating_plugin_runs_first() -> None:
    driver = gated_driver()
    driver.add(gated_pod("x/one"))
    driver.queue.update(gated_pod(), driver.now)
    assert driver.policy.ran_first == ["", "SchedulingGates"]


def test_pre_enqueue_runs_on_the_way_into_backoff_and_not_on_the_way_out() -> None:
    driver = gated_driver()
    driver.policy.gates.clear()
    driver.reject(gated_pod(), "Fit")
    driver.policy.gates["uid-default-a"] = "Preemption"
    driver.change(NODE_ADDED)
    assert driver.queue.place("uid-default-a") is Place.GATED
    driver.policy.gates.clear()
    driver.queue.activate([gated_pod()], driver.now)
    driver.fail(driver.pop_named("a"), "Fit")
    driver.change(NODE_ADDED)
    asked = len(driver.policy.ran_first)
    driver.advance(5)
    assert driver.queue.place("uid-default-a") is Place.ACTIVE
    assert len(driver.policy.ran_first) == asked


def test_changes_that_the_gating_plugin_did_not_register_pass_by() -> None:
    driver = gated_driver()
    driver.policy.gates.clear()
    driver.reject(gated_pod(), "Fit")
    driver.policy.gates["uid-default-a"] = "SchedulingGates"
    driver.change(NODE_ADDED)
    driver.policy.gates.clear()
    asked = len(driver.policy.ran_first)
    assert driver.change(NODE_ADDED) == 0
    assert len(driver.policy.ran_first) == asked


def test_pre_enqueue_of_a_gated_pod_runs_for_what_its_gating_plugin_registered() -> None:
    driver = QueueDriver(Policy(registered={"Preemption": ()}))
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.policy.gates["uid-default-a"] = "Preemption"
    assert driver.fail(entry, "Fit") is Place.GATED
    asked = len(driver.policy.ran_first)
    assert driver.change(NODE_ADDED) == 0
    assert len(driver.policy.ran_first) == asked
    driver.queue.rerun_pre_enqueue("uid-default-a")
    assert driver.queue.place("uid-default-a") is Place.GATED
    driver.policy.gates.clear()
    driver.queue.rerun_pre_enqueue("uid-default-a")
    assert driver.queue.place("uid-default-a") is Place.UNSCHEDULABLE
    assert driver.change(NODE_ADDED) == 1


def test_pre_enqueue_is_run_again_for_gated_pods_alone() -> None:
    driver = QueueDriver()
    driver.add(pod_info("a"))
    driver.queue.rerun_pre_enqueue("uid-default-a")
    driver.queue.rerun_pre_enqueue("uid-default-unknown")
    assert driver.queue.place("uid-default-a") is Place.ACTIVE


# --- updates and deletes in every queue ---------------------------------------------------------


def test_an_unknown_pod_that_is_updated_becomes_active(driver: QueueDriver) -> None:
    assert driver.queue.update(pod_info("a"), driver.now) is None
    assert driver.observed.moves["active", "UnschedulablePodUpdate"] == 1
    driver.pop_named("a")


def test_an_update_in_activeq_stays_there_with_its_new_order(driver: QueueDriver) -> None:
    driver.add(pod_info("a"), pod_info("b"))
    driver.queue.update(pod_info("b", priority=7), driver.now)
    assert driver.queue.counted(Place.ACTIVE) == 2
    taken = driver.pop_named("b")
    assert taken.pod.priority == 7
    assert driver.drain() == ["a"]


def test_an_update_in_backoff_stays_there(driver: QueueDriver) -> None:
    driver.reject(pod_info("a"), "Fit")
    driver.reject(pod_info("b"), "Fit")
    driver.change(NODE_ADDED)
    driver.queue.update(pod_info("b", priority=7), driver.now)
    assert driver.queue.place("uid-default-b") is Place.BACKOFF
    assert driver.drain() == ["b", "a"]


def test_an_update_in_error_backoff_does_not_shorten_it(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    driver.fail(driver.pop_named("a"))
    driver.queue.update(pod_info("a", labels={"tier": "web"}), driver.now)
    assert driver.pop() is None


def _with_condition(pod: PodInfo) -> PodInfo:
    return replace(pod, details=replace(pod.details, conditions=({"type": "PodScheduled"},)))


def test_a_status_update_does_not_requeue_a_rejected_pod(driver: QueueDriver) -> None:
    driver.policy.registered = {
        "Fit": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_LABEL)]
    }
    entry = driver.reject(pod_info("a"), "Fit")
    driver.queue.update(_with_condition(pod_info("a")), driver.now)
    assert entry.place is Place.UNSCHEDULABLE


def test_a_status_update_leaves_the_order_of_pods_rejected_in_one_moment(
    driver: QueueDriver,
) -> None:
    driver.reject(pod_info("a", cpu="1"), "Fit")
    driver.reject(pod_info("b", cpu="2"), "Fit")
    driver.queue.update(_with_condition(pod_info("a", cpu="1")), driver.now)
    driver.change(NODE_ADDED)
    assert driver.drain() == ["a", "b"]


@pytest.mark.parametrize("seconds", [0, 2], ids=["through backoffQ", "straight to activeQ"])
def test_pods_that_different_plugins_rejected_in_one_moment_are_tried_in_that_order(
    driver: QueueDriver, seconds: int
) -> None:
    driver.policy.registered = {**FIT, "Other": FIT["Fit"]}
    driver.queue.delete(driver.reject(pod_info("known"), "Fit").pod.uid)
    driver.reject(pod_info("a"), "Other")
    driver.reject(pod_info("b"), "Fit")
    driver.advance(seconds)
    driver.change(NODE_ADDED)
    assert driver.drain() == ["a", "b"]


def test_a_pod_rejected_by_an_extender_is_requeued_by_its_own_status(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("a"), "Extender")
    driver.queue.update(_with_condition(pod_info("a")), driver.now)
    assert entry.place is Place.BACKOFF


def test_a_rejected_pod_stays_under_its_new_spec(driver: QueueDriver) -> None:
    needs_two = ClusterEventWithHint(
        Resource.NODE, Action.ADD, lambda pod, _: queue_if(pod.amounts.requests["cpu"] <= 2000)
    )
    driver.policy.registered = {"Fit": [needs_two]}
    entry = driver.reject(pod_info("a", cpu="4"), "Fit")
    assert driver.change(NODE_ADDED) == 0
    driver.queue.update(pod_info("a", cpu="2"), driver.now)
    assert driver.change(NODE_ADDED) == 1
    assert entry.place is Place.BACKOFF


def test_an_echo_of_the_same_version_changes_nothing(driver: QueueDriver) -> None:
    driver.policy.registered = {"Fit": [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD)]}
    pod = replace(pod_info("a"), resource_version="7")
    entry = driver.reject(pod, "Fit")
    driver.queue.update(replace(pod), driver.now)
    assert entry.place is Place.UNSCHEDULABLE


def test_a_pod_added_twice_is_kept_once(
    driver: QueueDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.reject(pod_info("a"), "Fit")
    driver.add(pod_info("a"))
    assert "was added, but is in the queue: UNSCHEDULABLE" in caplog.text
    assert driver.drain() == ["a"]
    driver.add(pod_info("a"))
    assert driver.drain() == [], "a pod that is being scheduled is not scheduled a second time"


@pytest.mark.parametrize("place", ["active", "backoff", "error backoff", "rejected", "gated"])
def test_a_pod_can_be_deleted_wherever_it_is(driver: QueueDriver, place: str) -> None:
    pod = pod_info("a")
    if place == "gated":
        driver.policy.gates[pod.uid] = "SchedulingGates"
    driver.add(pod)
    if place in {"backoff", "rejected"}:
        driver.fail(driver.pop_named("a"), "Fit")
    if place == "backoff":
        driver.change(NODE_ADDED)
    if place == "error backoff":
        driver.fail(driver.pop_named("a"))
    assert driver.queue.delete(pod.uid) is pod
    driver.change(NODE_ADDED)
    driver.advance(1000)
    assert driver.pop() is None
    assert not any(driver.queue.pending().values())
    assert not any(driver.observed.rejected_pods.values())
    assert driver.queue.delete(pod.uid) is None


# --- activation, reloads ------------------------------------------------------------------------


def test_activation_skips_backoff(driver: QueueDriver) -> None:
    rejected = driver.reject(pod_info("a"), "Fit")
    driver.add(pod_info("b"))
    in_error = driver.pop_named("b")
    driver.fail(in_error)
    driver.queue.activate([rejected.pod, in_error.pod, pod_info("unknown")], driver.now)
    assert driver.queue.counted(Place.ACTIVE) == 2
    assert driver.observed.moves["active", "ForceActivate"] == 2


def test_a_changed_profile_gets_its_pods_back(driver: QueueDriver) -> None:
    rejected = driver.reject(pod_info("a"), "Removed")
    other = driver.reject(pod_info("b", scheduler_name="other"), "Removed")
    driver.policy.gates["uid-default-c"] = "RemovedGate"
    driver.add(pod_info("c"))
    driver.policy.gates.clear()
    driver.add(pod_info("d", priority=1))
    in_flight = driver.pop_named("d")
    driver.queue.retry_profile("default-scheduler", driver.now)
    assert rejected.place is Place.BACKOFF
    assert driver.queue.place("uid-default-c") is Place.ACTIVE
    assert other.place is Place.UNSCHEDULABLE
    assert driver.fail(in_flight, "Fit") is Place.BACKOFF


def test_pods_that_stay_are_requeued_by_what_the_new_plugins_registered(
    driver: QueueDriver,
) -> None:
    driver.policy.gates["uid-default-a"] = "Gate"
    driver.policy.registered = {"Gate": []}
    driver.add(pod_info("a"))
    driver.policy.registered = {"Gate": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}
    driver.queue.retry_profile("default-scheduler", driver.now)
    driver.policy.gates.clear()
    assert driver.change(NODE_ADDED) == 1


def test_a_new_queue_sort_reorders_activeq(driver: QueueDriver) -> None:
    driver.add(pod_info("a"), pod_info("b", priority=1))
    driver.policy.reversed_sort = True
    driver.queue.reorder()
    assert driver.drain() == ["a", "b"]


# --- timers -------------------------------------------------------------------------------------


def test_attempts_that_end_in_errors_are_made_at_the_recorded_times(driver: QueueDriver) -> None:
    """kube-scheduler: 0, 1.7, 4.7, 9.7, 18.7, 29.7 s; its clock ticked at .7 of ours."""
    driver.now = start = 1000.3
    driver.add(pod_info("a"))
    attempts: list[float] = []
    while len(attempts) < 6:
        entry = driver.pop()
        if entry is None:
            driver.advance(driver.now // 1 + 1 - driver.now)
            continue
        attempts.append(round(driver.now - start, 1))
        driver.fail(entry)
    assert attempts == [0.0, 1.7, 4.7, 9.7, 18.7, 29.7]


def test_an_idle_queue_retries_at_each_change(driver: QueueDriver) -> None:
    driver.reject(pod_info("a"), "Fit")
    for attempt in range(2, 8):
        driver.now += 0.4
        driver.change(NODE_ADDED)
        entry = driver.pop_named("a")
        assert entry.attempts == attempt
        driver.fail(entry, "Fit")


def test_without_a_maximum_there_is_no_backoff(driver: QueueDriver) -> None:
    driver.policy.backoffs = Backoff(1, 0)
    driver.add(pod_info("a"))
    assert driver.fail(driver.pop_named("a")) is Place.ACTIVE


def test_a_rejection_ends_a_row_of_errors(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.fail(entry)
    driver.advance(5)
    driver.fail(driver.pop_named("a"))
    assert entry.consecutive_errors == 2
    driver.advance(5)
    driver.fail(driver.pop_named("a"), "Fit")
    assert (entry.consecutive_errors, entry.unschedulable_count) == (0, 1)


def test_a_pod_unschedulable_for_more_than_five_minutes_is_tried_again(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("a"), "Deaf")
    driver.policy.registered = {"Deaf": []}
    driver.queue.flush_unschedulable(driver.now + 300)
    assert driver.queue.counted(Place.UNSCHEDULABLE) == 1
    driver.queue.flush_unschedulable(driver.now + 300.1)
    assert driver.queue.counted(Place.ACTIVE) == 1
    assert entry.was_flushed
    assert driver.observed.moves["active", "UnschedulableTimeout"] == 1
    driver.fail(driver.pop_named("a"), "Deaf")
    assert not entry.was_flushed


def test_a_pod_is_tried_again_when_its_rejection_ends_by_itself(driver: QueueDriver) -> None:
    pod = pod_info("a")
    driver.policy.due = {pod.uid: 5000.0}
    driver.reject(pod, "Timed")
    assert driver.queue.next_due == 5000
    driver.queue.flush_due(4999.9, driver.now + 20)
    assert driver.queue.counted(Place.UNSCHEDULABLE) == 1
    driver.queue.flush_due(5000.0, driver.now + 20)
    assert driver.queue.counted(Place.ACTIVE) == 1
    assert driver.observed.moves["active", "RejectionEnded"] == 1
    assert driver.queue.next_due == math.inf


def test_it_is_tried_once_for_that_time_whatever_comes_of_it(driver: QueueDriver) -> None:
    pod = pod_info("a")
    driver.policy.due = {pod.uid: 5000.0}
    driver.reject(pod, "Timed")
    driver.queue.flush_due(5000.0, driver.now + 20)
    driver.fail(driver.pop_named("a"), "Timed")
    assert driver.queue.next_due == math.inf
    driver.policy.due = {pod.uid: 6000.0}
    driver.queue.update(pod_info("a", priority=1), driver.now)
    assert driver.queue.next_due == 6000


def test_an_attempt_that_began_before_that_time_is_made_again(driver: QueueDriver) -> None:
    pod = pod_info("a")
    driver.policy.due = {pod.uid: 5000.0}
    driver.reject(pod, "Timed")
    driver.queue.activate([pod], driver.now)
    entry = driver.pop_named("a")
    driver.queue.flush_due(5000.0, driver.now)
    driver.fail(entry, "Timed")
    assert driver.queue.counted(Place.BACKOFF, Place.ACTIVE) == 1


def test_a_pod_that_is_gone_or_waits_for_its_turn_is_not_moved(driver: QueueDriver) -> None:
    gone, active = pod_info("gone"), pod_info("active")
    driver.policy.due = {gone.uid: 5000.0, active.uid: 5000.0}
    for pod in (gone, active):
        driver.reject(pod, "Timed")
    driver.queue.delete(gone.uid)
    driver.queue.activate([active], driver.now)
    driver.queue.flush_due(5000.0, driver.now)
    assert driver.observed.moves["active", "RejectionEnded"] == 0
    assert driver.drain() == ["active"]


def test_pods_that_are_gone_are_not_kept_until_their_rejection_would_have_ended(
    driver: QueueDriver,
) -> None:
    stays = pod_info("stays")
    driver.policy.due = {stays.uid: 6000.0}
    driver.reject(stays, "Timed")
    for number in range(500):
        pod = pod_info(f"gone-{number}")
        driver.policy.due[pod.uid] = 5000.0
        driver.reject(pod, "Timed")
        driver.queue.delete(pod.uid)
    kept = [each for each in gc.get_objects() if isinstance(each, QueuedPod)]
    assert sum(each.pod.name.startswith("gone-") for each in kept) < 100
    driver.queue.flush_due(5000.0, driver.now)
    assert driver.queue.next_due == 6000


def test_a_gated_pod_is_asked_again_as_often_as_others_are_tried(driver: QueueDriver) -> None:
    pod = pod_info("a")
    driver.policy.gates[pod.uid] = "Gate"
    driver.add(pod)
    entry = driver.queue.entries[pod.uid]
    driver.advance(330)
    assert not entry.was_flushed
    assert driver.observed.moves["unschedulable", "UnschedulableTimeout"] == 0
    del driver.policy.gates[pod.uid]
    driver.advance(270)
    assert driver.queue.counted(Place.GATED) == 1, "it was asked less than five minutes ago"
    driver.advance(60)
    assert driver.queue.counted(Place.ACTIVE) == 1
    assert entry.was_flushed


def test_a_gated_pod_that_the_timeout_did_not_help_is_not_counted_as_flushed(
    driver: QueueDriver,
) -> None:
    pod = pod_info("a")
    driver.policy.gates[pod.uid] = "Gate"
    driver.add(pod)
    driver.advance(330)
    del driver.policy.gates[pod.uid]
    driver.queue.activate([pod], driver.now)
    assert not driver.pop_named("a").was_flushed


def test_a_gated_preemptor_keeps_its_place_in_the_order(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("a"), "Deaf")
    queued_at = entry.queued_at
    driver.policy.gates[entry.pod.uid] = "Gate"
    driver.advance(330)
    assert entry.place is Place.GATED
    assert entry.queued_at == queued_at


# --- what it reports ----------------------------------------------------------------------------


def test_pods_count_by_plugin_until_they_are_popped(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    driver.fail(driver.pop_named("a"), "Fit", "NodePorts")
    counted = driver.observed.rejected_pods
    assert counted == {
        ("Fit", "default-scheduler"): 1,
        ("NodePorts", "default-scheduler"): 1,
    }
    driver.change(NODE_ADDED)
    assert counted["Fit", "default-scheduler"] == 1, "in backoffQ it is not scheduled either"
    driver.pop_named("a")
    assert not any(counted.values())


def test_moves_are_logged_at_debug(driver: QueueDriver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "stellwerk.backend.scheduling_queue")
    driver.add(pod_info("a"))
    assert "pod default/a moved to active by UnschedulablePodAdd" in caplog.text


def test_the_flush_of_the_forgotten_is_no_news_to_pods_in_flight(driver: QueueDriver) -> None:
    driver.reject(pod_info("forgotten"), "Deaf")
    driver.policy.registered = {"Deaf": []}
    driver.add(pod_info("in-flight"))
    entry = driver.pop_named("in-flight")
    driver.queue.flush_unschedulable(driver.now + 301)
    assert driver.queue.place("uid-default-forgotten") is Place.ACTIVE
    assert driver.fail(entry, "Deaf") is Place.UNSCHEDULABLE


# --- profiles -----------------------------------------------------------------------------------


def test_a_rejected_pod_of_another_profile_now_is_tried_by_it_after_its_backoff(
    driver: QueueDriver,
) -> None:
    entry = driver.reject(pod_info("p"), "Fit")
    driver.queue.move_to_profile(entry, "other", driver.now)
    assert (entry.place, entry.profile_name) == (Place.BACKOFF, "other")
    assert +driver.observed.rejected_pods == {("Fit", "other"): 1}
    driver.advance(5)
    assert driver.drain() == ["p"]
    assert not +driver.observed.rejected_pods


def test_a_pod_that_its_former_profile_gated_is_asked_about_anew(driver: QueueDriver) -> None:
    driver.policy.gates["uid-default-p"] = "Gate"
    driver.add(pod_info("p"))
    entry = driver.queue.entries["uid-default-p"]
    assert entry.place is Place.GATED
    driver.policy.gates.clear()
    driver.queue.move_to_profile(entry, "other", driver.now)
    assert (entry.place, entry.rejector_plugins) == (Place.ACTIVE, frozenset())


def test_a_pod_in_activeq_is_gated_where_its_new_profile_gates_it(driver: QueueDriver) -> None:
    driver.add(pod_info("p"))
    driver.policy.gates["uid-default-p"] = "Gate"
    driver.queue.move_to_profile(driver.queue.entries["uid-default-p"], "other", driver.now)
    assert driver.drain() == []
    assert driver.queue.place("uid-default-p") is Place.GATED


def test_a_pod_whose_profile_changed_during_its_attempt_is_tried_again(driver: QueueDriver) -> None:
    driver.add(pod_info("p"))
    entry = driver.pop_named("p")
    driver.policy.profiles["uid-default-p"] = "other"
    driver.fail(entry, "Fit")
    assert (entry.place, entry.profile_name) == (Place.BACKOFF, "other")
