"""Pods that came lately: when they came is kept, and nothing else."""

import pytest

from stellwerk.models.pod import parse_pod
from stellwerk_plugins.load.recent_pods import RecentPods
from tests.support.builders import make_pod, pod_info


def times(book: RecentPods) -> dict[str, int]:
    return {
        arrival.pod.name: arrival.at_seconds
        for pods in book.by_row.values()
        for arrival in pods.values()
    }


@pytest.fixture
def book() -> RecentPods:
    """A book that has been looked at, with nothing in it."""
    book = RecentPods()
    book.look("default", 1_000.0, 0.0)
    return book


def test_a_pod_came_when_it_was_first_looked_at(book: RecentPods) -> None:
    book.count_pod(3, pod_info("web"), 1)
    book.look("default", 1_010.7, 0.0)
    book.look("default", 1_050.0, 0.0)
    assert times(book) == {"web": 1_010}


def test_pods_that_were_there_before_came_when_they_started() -> None:
    book = RecentPods()
    started = {**make_pod("new"), "status": {"startTime": "1970-01-01T00:15:00Z"}}
    book.count_pod(0, parse_pod(started), 1)
    book.count_pod(0, pod_info("unknown"), 1)
    book.look("default", 1_000.0, 0.0)
    assert times(book) == {"new": 900}


def test_a_trial_that_takes_pods_away_and_back_changes_no_time(book: RecentPods) -> None:
    old, new = pod_info("old"), pod_info("new")
    book.count_pod(0, old, 1)
    book.look("default", 1_010.0, 0.0)
    book.look("default", 2_000.0, 1_500.0)  # the old one is swept away
    book.count_pod(0, new, 1)
    book.look("default", 2_001.0, 1_500.0)
    for pod in (old, new):
        book.count_pod(0, pod, -1)
    for pod in (new, old):
        book.count_pod(0, pod, 1)
    book.look("default", 2_002.0, 1_500.0)
    assert times(book) == {"new": 2_001}


def test_what_some_reader_may_still_ask_for_is_kept(book: RecentPods) -> None:
    book.count_pod(0, pod_info("web"), 1)
    book.look("default", 1_010.0, 0.0)
    book.look("other", 9_000.0, 8_000.0)
    assert times(book) == {"web": 1_010}
    book.look("default", 9_100.0, 8_000.0)
    book.look("default", 9_200.0, 8_000.0)
    assert times(book) == {}


def test_a_fork_and_its_origin_do_not_see_each_other(book: RecentPods) -> None:
    fork = book.fork()
    fork.count_pod(0, pod_info("web"), 1)
    fork.look("default", 1_010.0, 0.0)
    book.look("default", 1_010.0, 0.0)
    assert times(fork) == {"web": 1_010}
    assert times(book) == {}


def test_a_pod_that_leaves_is_forgotten(book: RecentPods) -> None:
    pod = pod_info("web")
    book.count_pod(0, pod, 1)
    book.look("default", 1_010.0, 0.0)
    book.count_pod(0, pod, -1)
    assert times(book) == {}
