"""Resource filters and scores of a whole view are those of a node at a time."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stellwerk.models.pod import PodInfo
from stellwerk.plugins.legacy_balanced_allocation import LegacyBalancedAllocation
from stellwerk.plugins.legacy_least_allocated import LegacyLeastAllocated
from stellwerk.plugins.legacy_requested_to_capacity_ratio import LegacyRequestedToCapacityRatio
from stellwerk.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from stellwerk.plugins.node_resources_fit import NodeResourcesFit
from stellwerk.plugins.resources.amounts import free_percent, used_percent, used_within_offer
from stellwerk.snapshot.columns import MAX_EXACT_PERCENT_OPERAND, ScoredAmounts
from stellwerk_kube.node import NodeInfo
from tests.support.cluster_strategies import GPU, Cluster, clusters
from tests.support.plugin_runs import make_plugin, raw_scores, statuses

NATIVE = ("cpu", "memory", "ephemeral-storage")
Weights = dict[str, int]

weights = st.dictionaries(
    st.sampled_from([*NATIVE, GPU, "hugepages-2Mi", "nonsense"]),
    st.integers(1, 100),
    min_size=1,
    max_size=4,
)
shapes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point[0],
).map(sorted)


def requested(pods: Sequence[PodInfo]) -> Counter[str]:
    total: Counter[str] = Counter()
    for pod in pods:
        total.update(pod.amounts.requests)
    return total


def requested_nonzero(pods: Sequence[PodInfo]) -> Counter[str]:
    total = requested(pods)
    total["cpu"] = sum(pod.amounts.nonzero_cpu_millis for pod in pods)
    total["memory"] = sum(pod.amounts.nonzero_memory_bytes for pod in pods)
    return total


@given(
    cluster=clusters(),
    ignored=st.sampled_from([[], [GPU], ["cpu"]]),
    groups=st.sampled_from([[], ["example.com"]]),
)
def test_fit_names_every_resource_that_is_lacking(
    cluster: Cluster, ignored: list[str], groups: list[str]
) -> None:
    args = {"ignoredResources": ignored, "ignoredResourceGroups": groups}
    plugin = make_plugin(NodeResourcesFit, args=args)
    wanted = {
        name: amount
        for name, amount in cluster.pod.spec.amounts.requests.items()
        if amount and not (name == GPU and (GPU in ignored or groups))
    }
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            used = requested(pods)
            lacking = [
                resource
                for resource in (*NATIVE, *sorted(wanted.keys() - set(NATIVE)))
                if wanted.get(resource, 0) > 0
                and wanted[resource] > node.allocatable.get(resource, 0) - used[resource]
            ]
            reasons = [f"Insufficient {resource}" for resource in lacking]
            if len(pods) + 1 > node.allocatable.get("pods", 0):
                reasons.insert(0, "Too many pods")
            if reasons:
                hopeless = any(wanted[each] > node.allocatable.get(each, 0) for each in lacking)
                code = "UNSCHEDULABLE_AND_UNRESOLVABLE" if hopeless else "UNSCHEDULABLE"
                expected[name] = (code, tuple(reasons))
        found = statuses(plugin, cluster.pod, view)
        assert {name: (each.code.name, each.reasons) for name, each in found.items()} == expected


def one_free_percent(amount: int, capacity: int) -> int:
    return (capacity - amount) * 100 // capacity if amount <= capacity else 0


def one_used_percent(amount: int, capacity: int) -> int:
    return min(amount, capacity) * 100 // capacity


def interpolated(shape: Sequence[tuple[int, int]], percent: int) -> int:
    """Return the value of the broken line, each division truncated towards 0."""
    if percent <= shape[0][0]:
        return shape[0][1]
    for (left, low), (right, high) in pairwise(shape):
        if percent <= right:
            return low + math.trunc((high - low) * (percent - left) / (right - left))
    return shape[-1][1]


def shares(
    node: NodeInfo, used: Counter[str], requests: dict[str, int], names: Weights
) -> list[tuple[str, int, int]]:
    """Return (resource, usage with the pod, capacity) of the resources that v1.36 looks at."""
    found = []
    for name in names:
        request, capacity = requests.get(name, 0), node.allocatable.get(name, 0)
        if name != "nonsense" and capacity and (request or name in NATIVE):
            found.append((name, used[name] + request, capacity))
    return found


@pytest.mark.parametrize(
    ("strategy", "percent"),
    [("LeastAllocated", one_free_percent), ("MostAllocated", one_used_percent)],
)
@given(cluster=clusters(), names=weights)
def test_fit_scores_the_weighted_mean(
    cluster: Cluster, names: Weights, strategy: str, percent: Callable[[int, int], int]
) -> None:
    resources = [{"name": name, "weight": weight} for name, weight in names.items()]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    plugin = make_plugin(NodeResourcesFit, args=args)
    requests = dict(cluster.pod.spec.amounts.scoring_requests)
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            parts = shares(node, requested_nonzero(pods), requests, names)
            total = sum(percent(amount, size) * names[each] for each, amount, size in parts)
            expected[name] = total // (sum(names[each] for each, _, _ in parts) or 1)
        assert raw_scores(plugin, cluster.pod, view) == expected


@given(cluster=clusters(), names=weights, shape=shapes)
def test_fit_scores_by_a_shape(
    cluster: Cluster, names: Weights, shape: list[tuple[int, int]]
) -> None:
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": name, "weight": weight} for name, weight in names.items()],
        "requestedToCapacityRatio": {"shape": [{"utilization": u, "score": s} for u, s in shape]},
    }
    plugin = make_plugin(NodeResourcesFit, args={"scoringStrategy": strategy})
    requests = dict(cluster.pod.spec.amounts.scoring_requests)
    scaled = [(utilization, score * 10) for utilization, score in shape]
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            parts = shares(node, requested_nonzero(pods), requests, names)
            scores = {
                each: interpolated(scaled, one_used_percent(amount, size))
                for each, amount, size in parts
            }
            weight = sum(names[each] for each, score in scores.items() if score)
            total = sum(names[each] * score for each, score in scores.items())
            expected[name] = math.floor(total / weight + 0.5) if weight else 0
        assert raw_scores(plugin, cluster.pod, view) == expected


def balance(parts: Sequence[tuple[int, int]]) -> int:
    fractions = [min(float(amount) / float(size), 1.0) for amount, size in parts]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / float(len(fractions))
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / float(len(fractions)))
    return int((1 - deviation) * 100.0)


@given(cluster=clusters(), names=weights)
def test_balanced_allocation_scores_the_change_of_balance(cluster: Cluster, names: Weights) -> None:
    plugin = make_plugin(
        NodeResourcesBalancedAllocation, args={"resources": [{"name": name} for name in names]}
    )
    requests = dict(cluster.pod.amounts.requests)
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            parts = shares(node, requested(pods), requests, names)
            before = [(amount - requests.get(each, 0), size) for each, amount, size in parts]
            after = [(amount, size) for _, amount, size in parts]
            expected[name] = 50 + (50 + balance(after) - balance(before)) // 2
        best_effort = not any(requests.get(name) for name in names)
        found = raw_scores(plugin, cluster.pod, view)
        assert found == (None if best_effort else expected)


@given(cluster=clusters())
def test_legacy_balance_is_the_distance_of_two_fractions(cluster: Cluster) -> None:
    plugin = make_plugin(LegacyBalancedAllocation, cluster.snapshot)
    requests = cluster.pod.spec.amounts.scoring_requests
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            used = requested_nonzero(pods)
            cpu, memory = (
                (used[each] + requests[each]) / node.allocatable[each]
                if node.allocatable.get(each)
                else 1.0
                for each in ("cpu", "memory")
            )
            full = cpu >= 1 or memory >= 1
            expected[name] = 0 if full else int((1 - abs(cpu - memory)) * 100)
        assert raw_scores(plugin, cluster.pod, view) == expected


@given(cluster=clusters(), names=weights)
def test_legacy_least_allocated_keeps_the_weight_of_what_is_missing(
    cluster: Cluster, names: Weights
) -> None:
    resources = [{"name": name, "weight": weight} for name, weight in names.items()]
    plugin = make_plugin(LegacyLeastAllocated, args={"resources": resources})
    requests = cluster.pod.spec.amounts.scoring_requests
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            used = requested_nonzero(pods)
            total = 0
            for each, weight in names.items():
                size = node.allocatable.get(each, 0)
                amount = used[each] + requests.get(each, 0)
                total += weight * (one_free_percent(amount, size) if size else 0)
            expected[name] = total // sum(names.values())
        assert raw_scores(plugin, cluster.pod, view) == expected


@given(cluster=clusters(), names=weights, shape=shapes)
def test_legacy_ratio_rounds_down_each_resource(
    cluster: Cluster, names: Weights, shape: list[tuple[int, int]]
) -> None:
    args = {
        "resources": [{"name": name, "weight": weight} for name, weight in names.items()],
        "shape": [{"utilization": utilization, "score": score} for utilization, score in shape],
    }
    plugin = make_plugin(LegacyRequestedToCapacityRatio, args=args)
    requests = cluster.pod.spec.amounts.scoring_requests
    for view in cluster.views():
        expected = {}
        for name, (node, pods) in cluster.nodes(view).items():
            used = requested_nonzero(pods)
            total = weight_sum = 0
            for each, weight in names.items():
                size = node.allocatable.get(each, 0)
                free = max(0, size - used[each] - requests.get(each, 0))
                score = interpolated(shape, 100 - free * 100 // size if size else 100)
                total += weight * score
                weight_sum += weight if score else 0
            expected[name] = math.floor(total / weight_sum + 0.5) if weight_sum else 0
        assert raw_scores(plugin, cluster.pod, view) == expected


whole = st.one_of(
    st.integers(1, 1 << 50),
    st.integers(MAX_EXACT_PERCENT_OPERAND - 3, MAX_EXACT_PERCENT_OPERAND + 3),
)


@given(
    offers=st.lists(whole, min_size=1, max_size=4),
    present=st.integers(0, 1 << 61),
    percent=st.integers(0, 101),
    request=st.integers(-2, 2),
)
@example(offers=[MAX_EXACT_PERCENT_OPERAND - 1], present=0, percent=99, request=-1)
@example(offers=[MAX_EXACT_PERCENT_OPERAND], present=1 << 61, percent=100, request=1)
def test_percents_are_those_of_whole_numbers_however_large(
    offers: list[int], present: int, percent: int, request: int
) -> None:
    """Amounts beside a whole percent, where a quotient that is rounded would be another one."""
    offered = np.array(offers, np.int64)
    alive = np.ones(len(offers), np.bool_)
    for used in (np.full(len(offers), present), offered * percent // 100):
        asked = max(request, -int(used.min()))
        amounts = ScoredAmounts.of(offered, alive, used, used)
        assert (amounts.offers.dtype == np.float64) == (max(offers) < MAX_EXACT_PERCENT_OPERAND)
        within = [min(int(amount) + asked, size) for amount, size in zip(used, offers, strict=True)]
        assert used_within_offer(amounts, asked).tolist() == within
        of_offers = list(zip(within, offers, strict=True))
        assert used_percent(amounts, asked).tolist() == [
            part * 100 // size for part, size in of_offers
        ]
        assert free_percent(amounts, asked).tolist() == [
            (size - part) * 100 // size for part, size in of_offers
        ]
