"""The account of devices: what pods leave free, by row."""

import pytest

from stellwerk.models.gpu import GpuRequest
from stellwerk.plugins.gpu.node_gpus import GpuDevices, best_fit
from stellwerk.snapshot.snapshot import NodeView
from tests.support.builders import make_cache
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod, gpu_pod_info


def free(cache_nodes: NodeView, devices: int = 4) -> list[list[int]]:
    rows: list[list[int]] = cache_nodes.snapshot.book(GpuDevices).free_milli(cache_nodes).tolist()
    return [row[:devices] for row in rows]


def test_pods_take_from_the_devices_that_they_name() -> None:
    cache = gpu_cache(
        [gpu_node("n", 4)],
        [
            gpu_pod("share", milli=460, on="n", ids="2"),
            gpu_pod("whole", devices=2, on="n", ids="0,3"),
        ],
    )
    assert free(NodeView(cache.snapshot)) == [[0, 1000, 540, 0]]


def test_pods_that_name_none_take_what_fits_best_after_the_others() -> None:
    pods = [gpu_pod("a", milli=300, on="n"), gpu_pod("z", milli=600, on="n", ids="1")]
    cache = gpu_cache([gpu_node("n", 2)], pods)
    assert free(NodeView(cache.snapshot), 2) == [[1000, 100]]


def test_a_device_is_never_left_with_less_than_nothing() -> None:
    pods = [gpu_pod(name, milli=600, on="n", ids="0") for name in ("a", "b")]
    assert free(NodeView(gpu_cache([gpu_node("n", 2)], pods).snapshot), 2) == [[0, 1000]]


def test_devices_follow_pods_that_leave_and_nodes_that_change() -> None:
    cache = gpu_cache([gpu_node("n", 2)], [gpu_pod("p", devices=1, on="n", ids="1")])
    cache.remove_pod(next(cache.pods()).uid)
    cache.update_snapshot()
    assert free(NodeView(cache.snapshot), 2) == [[1000, 1000]]
    cache.remove_node("n")
    cache.update_snapshot()
    assert free(NodeView(cache.snapshot), 2) == [[0, 0]]


def test_a_node_that_gets_more_devices_keeps_what_its_pods_hold() -> None:
    cache = gpu_cache([gpu_node("n", 2)], [gpu_pod("p", milli=250, on="n", ids="1")])
    grown = make_cache([gpu_node("n", 12)])
    node = grown.node("n")
    assert node is not None
    cache.set_node(node)
    cache.update_snapshot()
    assert free(NodeView(cache.snapshot), 12) == [[1000, 750, *[1000] * 10]]


def test_an_overlay_adds_and_removes_pods() -> None:
    cache = gpu_cache([gpu_node("n", 2)], [gpu_pod("p", devices=1, on="n", ids="0")])
    view = NodeView(cache.snapshot).with_overlay()
    assert view.overlay is not None
    view.overlay.remove_pod(0, next(cache.pods()))
    view.overlay.add_pod(0, gpu_pod_info("q", milli=100))
    row = int(cache.snapshot.row_of["n"])
    assert free(view, 2)[row] == [900, 1000]
    assert free(NodeView(cache.snapshot), 2)[row] == [0, 1000]


def test_a_fork_and_its_origin_do_not_see_each_other() -> None:
    cache = gpu_cache([gpu_node("n", 2)])
    fork = cache.fork()
    fork.assume_pod(gpu_pod_info("p", devices=2).with_node("n"))
    fork.update_snapshot()
    assert free(NodeView(fork.snapshot), 2) == [[0, 0]]
    assert free(NodeView(cache.snapshot), 2) == [[1000, 1000]]


def test_a_trial_undoes_what_it_placed() -> None:
    cache = gpu_cache([gpu_node("n", 2)])
    with cache.trial() as trial:
        trial.add_pod(gpu_pod_info("p", devices=2), "n")
        assert free(NodeView(cache.snapshot), 2) == [[0, 0]]
    assert free(NodeView(cache.snapshot), 2) == [[1000, 1000]]


@pytest.mark.parametrize(
    ("request_", "devices"),
    [
        (GpuRequest(1, 300), (2,)),
        (GpuRequest(1, 500), (0,)),
        (GpuRequest(2, 1000), (1, 3)),
        (GpuRequest(3, 1000), ()),
    ],
)
def test_best_fit_takes_the_fullest_devices_that_fit(
    request_: GpuRequest, devices: tuple[int, ...]
) -> None:
    assert best_fit([500, 1000, 300, 1000], request_) == devices
