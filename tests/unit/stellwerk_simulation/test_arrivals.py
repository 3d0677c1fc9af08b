"""Arrival lists, ranks and typical pods: the published protocol."""

from itertools import pairwise

import pytest

from stellwerk_simulation.arrivals import gpu_capacity, inflated, typical_pods
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods
from tests.support.gpu_cluster import trace_file

NODES = [TraceNode(f"n{number}", 96_000, 1024, 8, "") for number in range(3)]


def pods(count: int, milli: int) -> list[TracePod]:
    return [TracePod(f"p{number:03}", 1000, 1, 1, milli, ()) for number in range(count)]


@pytest.mark.parametrize(("count", "arriving"), [(100, 62), (20, 62)])
def test_a_list_is_cut_or_filled_up_to_the_share(count: int, arriving: int) -> None:
    # 1.3 of 24 devices are 31.2; shares of a half make it 62.
    arrivals = inflated(NODES, pods(count, 500), 1.3, 42)
    assert len(arrivals.pods) == arriving
    assert len({pod.name for pod in arrivals.pods}) == arriving
    assert arrivals.pods == inflated(NODES, pods(count, 500), 1.3, 42).pods
    assert arrivals.pods != inflated(NODES, pods(count, 500), 1.3, 43).pods


def test_every_original_pod_comes_before_the_resampled_ones() -> None:
    names = [pod.name for pod in inflated(NODES, pods(20, 500), 1.3, 42).pods]
    assert sorted(names[:20]) == [pod.name for pod in pods(20, 500)]


def test_typical_pods_are_the_commonest_and_cover_95_percent() -> None:
    listed = [*pods(90, 500), *(TracePod(f"q{n}", n, 1, 0, 0, ()) for n in range(10))]
    typical = typical_pods(listed)
    assert [kind.count for kind in typical] == [90, 1, 1, 1, 1, 1]
    assert all(left.cpu_millis > right.cpu_millis for left, right in pairwise(typical[1:]))


@pytest.mark.parametrize(
    ("workload", "seed", "count", "demand", "ranks"),
    [
        ("default", 42, 10_866, 8_075_080, [601, 815, 450, 13, 731]),
        ("default", 43, 10_793, 8_074_900, [1072, 485, 626, 608, 606]),
        ("multigpu30", 42, 8496, 8_074_990, [783, 351, 692, 63, 988]),
    ],
)
def test_published_lists(
    workload: str, seed: int, count: int, demand: int, ranks: list[int]
) -> None:
    nodes = read_nodes(trace_file("openb_node_list_gpu_node.csv.xz"))
    listed = read_pods(trace_file(f"openb_pod_list_{workload}.csv.xz"))
    arrivals = inflated(nodes, listed, 1.3, seed)
    assert gpu_capacity(nodes) == 6_212_000
    assert len(arrivals.pods) == count
    assert sum(pod.total_milli for pod in arrivals.pods) == demand
    rank = {node.name: place for place, node in enumerate(arrivals.nodes)}
    assert [rank[node.name] for node in nodes[:5]] == ranks


@pytest.mark.parametrize(
    ("workload", "kinds"),
    [("default", 35), ("cpu100", 35), ("gpushare40", 36), ("gpuspec20", 102), ("multigpu30", 40)],
)
def test_published_numbers_of_typical_pods(workload: str, kinds: int) -> None:
    typical = typical_pods(read_pods(trace_file(f"openb_pod_list_{workload}.csv.xz")))
    assert len(typical) == kinds
