"""Trials: what they refuse, what they show, and the corners that random changes seldom meet."""

from collections.abc import Callable

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.snapshot.columns import MAX_REQUESTED
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.snapshot.trial import Trial
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_node, make_pod, pod_info

GPU = "example.com/gpu"


def app_image(size_bytes: int) -> list[dict[str, object]]:
    return [{"names": ["app:1"], "sizeBytes": size_bytes}]


def requested(snapshot: Snapshot, resource: str, row: int = 0) -> int:
    index = snapshot.resource_index(resource)
    assert index is not None
    return int(snapshot.requested[index, row])


def place_two(trial: Trial, first: str, second: str) -> None:
    trial.add_pod(pod_info("p", cpu="1"), first)
    trial.add_pod(pod_info("q", cpu="1"), second)


def test_an_image_keeps_its_size_when_its_nodes_come_back() -> None:
    nodes = [make_node(name, images=app_image(size)) for name, size in (("n1", 5), ("n2", 7))]
    cache = make_cache(nodes)
    cache.remove_node("n1")
    images = cache.update_snapshot().images
    assert images.rows("app:1") == {1: 5}, "the first node's, until none holds it"
    with cache.trial() as trial:
        trial.set_node(parse_node(make_node("n2")))
        assert images.rows("app:1") == {}
        trial.remove_node("n2")
        trial.set_node(parse_node(make_node("n3", images=app_image(9))))
        assert list(images.rows("app:1").values()) == [9]
    assert images.rows("app:1") == {1: 5}


def test_a_resource_that_only_the_trial_requests_is_0_afterwards() -> None:
    cache = make_cache([make_node("n1", allocatable={GPU: "2"})])
    with cache.trial() as trial:
        trial.add_pod(pod_info("a", cpu="1"), "n1")
        trial.add_pod(pod_info("b", requests={GPU: "2"}), "n1")
        assert requested(cache.snapshot, GPU) == 2
    assert requested(cache.snapshot, GPU) == 0
    assert requested(cache.snapshot, "cpu") == 0


def test_sums_are_exact_beyond_what_columns_hold() -> None:
    pods = [make_pod(name, node_name="n1", memory="1Ei") for name in ("a", "b", "c")]
    cache = make_cache([make_node("n1")], pods)
    snapshot = cache.snapshot
    with cache.trial() as trial:
        assert requested(snapshot, "memory") == MAX_REQUESTED
        trial.remove_pods([pod_info("a", node_name="n1")])
        assert requested(snapshot, "memory") == MAX_REQUESTED == 2 << 60
        trial.remove_pods([pod_info("b", node_name="n1")])
        assert requested(snapshot, "memory") == 1 << 60
    assert requested(snapshot, "memory") == MAX_REQUESTED


def test_a_node_that_comes_back_brings_its_pods() -> None:
    cache = make_cache([make_node("n1")], [make_pod("p", node_name="n1", cpu="1")])
    snapshot = cache.snapshot
    with cache.trial() as trial:
        trial.remove_node("n1")
        trial.set_node(parse_node(make_node("n2")))
        trial.set_node(parse_node(make_node("n1", cpu="8")))
        assert snapshot.requested[0].tolist() == [0, 1000]
        assert [pod.name for pod in snapshot.pods[1].values()] == ["p"]
    assert list(snapshot.row_of) == ["n1"]
    assert snapshot.requested[0].tolist() == [1000, 0]


def test_a_cordoned_node_is_unschedulable_for_the_while() -> None:
    cache = make_cache([make_node("n1"), make_node("n2")])
    with cache.trial() as trial:
        trial.cordon("n2")
        assert cache.snapshot.unschedulable.tolist() == [False, True]
    assert cache.snapshot.unschedulable.tolist() == [False, False]


def test_every_change_and_every_undoing_is_in_the_logs() -> None:
    cache = make_cache([make_node("n1"), make_node("n2")])
    snapshot = cache.snapshot
    usage, nodes = snapshot.usage_changes.position, snapshot.node_changes.position
    with cache.trial() as trial:
        trial.add_pod(pod_info("p", cpu="1"), "n2")
        assert snapshot.usage_changes.since(usage) == [1]
        trial.remove_node("n1")
        assert snapshot.node_changes.since(nodes) == [0]
    assert set(snapshot.usage_changes.since(usage + 1) or ()) == {0, 1}
    assert snapshot.node_changes.since(nodes) == [0, 0]


def test_a_row_that_a_trial_added_goes_to_the_next_new_node() -> None:
    cache = make_cache(make_node(f"n{index}") for index in range(16))
    with cache.trial() as trial:
        trial.set_node(parse_node(make_node("tried")))
        assert cache.snapshot.size == 17, "one more than there was capacity for"
    assert cache.snapshot.node_count == 16
    cache.set_node(parse_node(make_node("new")))
    assert cache.update_snapshot().row_of["new"] == 16


def test_a_failure_within_is_undone_too() -> None:
    cache = make_cache([make_node("n1")])
    with pytest.raises(KeyError), cache.trial() as trial:
        place_two(trial, "n1", "no such node")
    assert requested(cache.snapshot, "cpu") == 0
    cache.set_node(parse_node(make_node("n2")))
    assert "n2" in cache.update_snapshot().row_of


def test_a_trial_sees_what_the_cache_had_not_yet_written() -> None:
    cache = make_cache([make_node("n1")])
    cache.set_pod(pod_info("p", cpu="1", node_name="n1"))
    with cache.trial() as trial:
        trial.remove_pods([pod_info("p", node_name="n1")])
        assert requested(cache.snapshot, "pods") == 0
    assert requested(cache.snapshot, "pods") == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cache: cache.set_node(parse_node(make_node("n2"))), id="set_node"),
        pytest.param(lambda cache: cache.remove_node("n1"), id="remove_node"),
        pytest.param(lambda cache: cache.assume_pod(pod_info("q", node_name="n1")), id="assume"),
        pytest.param(lambda cache: cache.forget_pod("uid-default-p"), id="forget"),
        pytest.param(lambda cache: cache.set_pod(pod_info("q", node_name="n1")), id="set_pod"),
        pytest.param(lambda cache: cache.remove_pod("uid-default-p"), id="remove_pod"),
        pytest.param(lambda cache: cache.set_namespace("prod", {}), id="set_namespace"),
        pytest.param(lambda cache: cache.update_snapshot(), id="update_snapshot"),
        pytest.param(lambda cache: cache.fork(), id="fork"),
    ],
)
def test_the_cache_does_not_change_meanwhile(change: Callable[[Cache], object]) -> None:
    cache = make_cache([make_node("n1")])
    cache.assume_pod(pod_info("p", node_name="n1"))
    with cache.trial(), pytest.raises(RuntimeError, match="while a trial is open"):
        change(cache)
    assert [pod.name for pod in cache.pods()] == ["p"]
    assert "uid-default-p" in cache.assumed_pods
    change(cache)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(lambda trial: trial.add_pod(pod_info("q"), "n9"), KeyError, id="no such node"),
        pytest.param(
            lambda trial: trial.add_pod(pod_info("p"), "n1"), ValueError, id="there already"
        ),
        pytest.param(
            lambda trial: trial.remove_pods([pod_info("q", node_name="n1")]), KeyError, id="no pod"
        ),
        pytest.param(lambda trial: trial.cordon("n9"), KeyError, id="cordon no node"),
        pytest.param(lambda trial: trial.remove_node("n9"), KeyError, id="remove no node"),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[Trial], None], error: type[Exception]) -> None:
    cache = make_cache([make_node("n1")], [make_pod("p", node_name="n1")])
    with cache.trial() as trial, pytest.raises(error):
        change(trial)
    assert requested(cache.snapshot, "pods") == 1
