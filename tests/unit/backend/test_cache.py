"""The cache: assume, forget, confirm, replace, and what the snapshot shows of it."""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_large_cache, make_node, make_pod, pod_info


@pytest.fixture
def cache() -> Cache:
    return make_cache([make_node("n1"), make_node("n2")])


def cpu(cache: Cache) -> dict[str, int]:
    """Requested millicores by node, as the next cycle sees it."""
    snapshot = cache.update_snapshot()
    row = snapshot.resource_row["cpu"]
    return {name: int(snapshot.requested[row, at]) for name, at in snapshot.row_of.items()}


def bound(node_name: str, name: str = "p", **fields: Any) -> PodInfo:
    return pod_info(name, node_name=node_name, **{"cpu": "1", **fields})


# --- assumed pods -------------------------------------------------------------------------------


def test_an_assumed_pod_counts_at_once(cache: Cache) -> None:
    pod = bound("n1")
    cache.assume_pod(pod)
    assert pod.uid in cache.assumed_pods
    assert cache.pod(pod.uid) is pod
    assert cpu(cache) == {"n1": 1000, "n2": 0}


def test_a_forgotten_one_no_more(cache: Cache) -> None:
    pod = bound("n1")
    cache.assume_pod(pod)
    cpu(cache)
    assert cache.forget_pod(pod.uid) is pod
    assert cache.forget_pod(pod.uid) is None
    assert cache.pod(pod.uid) is None
    assert cpu(cache) == {"n1": 0, "n2": 0}


def test_a_confirmed_one_cannot_be_forgotten(cache: Cache) -> None:
    assumed, seen = bound("n1"), bound("n1")
    cache.assume_pod(assumed)
    assert cache.set_pod(seen) is assumed
    assert seen.uid not in cache.assumed_pods
    assert cache.forget_pod(seen.uid) is None
    assert cache.pod(seen.uid) is seen
    assert cpu(cache) == {"n1": 1000, "n2": 0}


def test_the_watch_is_right_about_the_node(cache: Cache) -> None:
    cache.assume_pod(bound("n1"))
    cpu(cache)
    cache.set_pod(bound("n2"))
    assert cpu(cache) == {"n1": 0, "n2": 1000}
    assert not cache.assumed_pods


def test_a_pod_is_assumed_once(cache: Cache) -> None:
    cache.assume_pod(bound("n1"))
    with pytest.raises(ValueError, match="is in the cache, so can't be assumed"):
        cache.assume_pod(bound("n2"))
    assert cpu(cache) == {"n1": 1000, "n2": 0}


def test_an_assumed_pod_that_is_deleted_is_gone(cache: Cache) -> None:
    pod = bound("n1")
    cache.assume_pod(pod)
    assert cache.remove_pod(pod.uid) is pod
    assert not cache.assumed_pods
    assert cpu(cache) == {"n1": 0, "n2": 0}


# --- bound pods ---------------------------------------------------------------------------------


def test_a_resized_pod_counts_with_its_new_amounts_and_leaves_with_them(cache: Cache) -> None:
    obj = make_pod("p", cpu="1", node_name="n1")
    cache.set_pod(parse_pod(obj))
    cpu(cache)
    status = {"name": "main", "resources": {"requests": {"cpu": "3"}}}
    obj["status"]["containerStatuses"] = [status]
    cache.set_pod(parse_pod(obj))
    assert cpu(cache) == {"n1": 3000, "n2": 0}
    cache.remove_pod("uid-default-p")
    assert cpu(cache) == {"n1": 0, "n2": 0}


def test_a_change_that_nothing_counts_touches_no_row(cache: Cache) -> None:
    cache.set_pod(bound("n1"))
    cpu(cache)
    position = cache.snapshot.usage_changes.position
    newer = bound("n1")
    newer.resource_version, newer.details = "9", replace(newer.details, phase="Running")
    cache.set_pod(newer)
    cpu(cache)
    assert cache.pod(newer.uid) is newer
    assert cache.snapshot.usage_changes.position == position


def test_a_name_that_is_used_again_is_another_pod(cache: Cache) -> None:
    """The new pod's event may come before the old one's deletion."""
    cache.set_pod(bound("n1", uid="old"))
    cache.set_pod(bound("n2", uid="new"))
    assert cpu(cache) == {"n1": 1000, "n2": 1000}
    cache.remove_pod("old")
    assert cpu(cache) == {"n1": 0, "n2": 1000}


def test_an_unknown_pod_is_no_matter(cache: Cache) -> None:
    assert cache.remove_pod("unknown") is None
    assert cache.pod("unknown") is None
    assert cache.pods_on("nowhere") == {}


# --- nodes --------------------------------------------------------------------------------------


def test_a_heartbeat_touches_no_row(cache: Cache) -> None:
    position = cache.snapshot.node_changes.position
    obj = make_node("n1")
    obj["metadata"]["resourceVersion"] = "9"
    assert cache.set_node(parse_node(obj)) is not None
    cache.update_snapshot()
    assert cache.snapshot.node_changes.position == position


def test_pods_may_be_seen_before_their_node() -> None:
    cache = Cache()
    cache.set_pod(bound("late"))
    assert cpu(cache) == {}
    cache.set_node(parse_node(make_node("late")))
    assert cpu(cache) == {"late": 1000}


def test_pods_outlive_their_node(cache: Cache) -> None:
    pod = bound("n1")
    cache.set_pod(pod)
    cpu(cache)
    assert cache.remove_node("n1") is not None
    assert cpu(cache) == {"n2": 0}
    assert cache.pod(pod.uid) is pod
    cache.set_node(parse_node(make_node("n1")))
    assert cpu(cache) == {"n2": 0, "n1": 1000}
    cache.remove_node("n1")
    cache.remove_pod(pod.uid)
    cpu(cache)
    cache.set_node(parse_node(make_node("n1")))
    assert cpu(cache) == {"n2": 0, "n1": 0}


def test_the_late_deletion_of_an_old_node_leaves_the_new_one(cache: Cache) -> None:
    again = make_node("n1", cpu="8")
    again["metadata"]["uid"] = "again"
    cache.set_node(parse_node(again))
    assert cache.remove_node("n1", "node-n1") is None
    assert cache.node("n1") == parse_node(again)
    assert cache.remove_node("n1", "again") is not None
    assert [node.name for node in cache.nodes()] == ["n2"]


def test_an_unknown_node_is_no_matter(cache: Cache) -> None:
    assert cache.remove_node("unknown") is None
    assert cache.node("unknown") is None


# --- forks --------------------------------------------------------------------------------------


def test_a_fork_has_logs_that_begin_with_it(cache: Cache) -> None:
    cache.set_pod(bound("n1"))
    original = cache.update_snapshot()
    snapshot = cache.fork().snapshot
    for ours, theirs in (
        (original.node_changes, snapshot.node_changes),
        (original.usage_changes, snapshot.usage_changes),
    ):
        assert theirs.since(0) is None, "who looks for the first time looks at every row"
        assert theirs.since(ours.position) == []


def test_a_fork_and_its_original_assume_and_forget_apart(cache: Cache) -> None:
    pod = bound("n1")
    cache.assume_pod(pod)
    fork = cache.fork()
    assert fork.forget_pod(pod.uid) is pod
    assert (cpu(cache)["n1"], cpu(fork)["n1"]) == (1000, 0)
    cache.set_pod(bound("n1", "q"))
    assert (cpu(cache)["n1"], cpu(fork)["n1"]) == (2000, 0)


def median_seconds(act: Callable[[], object]) -> float:
    """CPU time: what others do on the machine does not count."""
    seconds = []
    for _ in range(9):
        gc.collect(0)
        started = time.process_time()
        act()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def test_a_fork_costs_a_fraction_of_the_cluster() -> None:
    cache = make_large_cache(5_000, 50_000)
    one_pass, fork_seconds = (
        median_seconds(act) for act in (lambda: {pod.uid for pod in cache.pods()}, cache.fork)
    )
    assert fork_seconds < 2 * one_pass, "a pass over the pods, which says how fast the machine is"
    tracemalloc.start()
    fork = cache.fork()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 25 << 20
    assert fork.snapshot.node_count == 5_000


def test_rows_that_are_written_ahead_in_steps_are_those_that_one_update_writes() -> None:
    def listed() -> Cache:
        cache = Cache()
        for index in range(10):
            cache.set_pod(bound(f"n{index % 7}", name=f"p{index}"))
        for index in range(9):
            cache.set_node(parse_node(make_node(f"n{index}", cpu="4")))
        return cache

    at_once, in_steps = listed(), listed()
    at_once.update_snapshot()
    steps = 1
    while in_steps.write_ahead(2):
        steps += 1
    assert (steps, in_steps.is_dirty) == (5, False)
    assert in_steps.snapshot.row_of == at_once.snapshot.row_of
    assert cpu(in_steps) == cpu(at_once)
    assert [list(pods) for pods in in_steps.snapshot.pods] == [
        list(pods) for pods in at_once.snapshot.pods
    ]


def test_pods_that_come_before_their_node_is_written_wait_in_no_list(cache: Cache) -> None:
    for index in range(3):
        cache.set_pod(bound("n9", name=f"p{index}"))
    assert not cache._records.get("n9").uncounted  # type: ignore[union-attr]  # noqa: SLF001
    cache.set_node(parse_node(make_node("n9", cpu="4")))
    assert cpu(cache)["n9"] == sum(pod.amounts.requests["cpu"] for pod in cache.pods())
