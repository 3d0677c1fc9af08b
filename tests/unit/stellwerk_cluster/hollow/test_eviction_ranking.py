"""Who goes first, and whom the kernel kills."""

from typing import Any

import pytest

from stellwerk_cluster.hollow.eviction_ranking import (
    EvictionCandidate,
    oom_score_adjust,
    oom_victim,
    ranked,
)

GI = 1 << 30


def pod(
    name: str, used: int, requested: int = 0, priority: int = 0, **more: Any
) -> EvictionCandidate:
    usage = {"memory": used, "pids": used, "logs": used}
    requests = {"memory": requested, "ephemeral-storage": requested}
    return EvictionCandidate(name, priority, usage, requests, **more)


def names(signal: str, part: str, *pods: EvictionCandidate) -> list[str]:
    return [each.name for each in ranked(pods, signal, (part,))]


def test_of_memory_those_above_their_request_go_first_then_low_priority_then_the_greediest() -> (
    None
):
    pods = [
        pod("below-low", 1, 5, priority=-10),
        pod("below-high", 1, 5, priority=10),
        pod("above-high", 100, 5, priority=10),
        pod("above-low-little", 6, 5),
        pod("above-low-much", 50, 5),
        pod("critical", 900, 0, priority=2_000_000_000),
        pod("static", 900, 0, static=True),
    ]
    assert names("memory.available", "memory", *pods) == [
        "above-low-much",
        "above-low-little",
        "above-high",
        "below-low",
        "below-high",
    ]


def test_storage_is_ranked_as_memory_is() -> None:
    pods = [pod("below", 9, 10), pod("above", 3, 1)]
    assert names("nodefs.available", "logs", *pods) == ["above", "below"]


@pytest.mark.parametrize("signal", ["pid.available", "nodefs.inodesFree"])
def test_processes_and_inodes_have_no_requests_and_go_by_priority(signal: str) -> None:
    pods = [pod("high", 900, priority=10), pod("low-little", 1), pod("low-much", 5)]
    assert names(signal, "pids", *pods) == ["low-much", "low-little", "high"]


@pytest.mark.parametrize(
    ("qos", "asked", "score"),
    [
        pytest.param("Burstable", 0, 999, id="Burstable without a request"),
        pytest.param("Burstable", GI, 900, id="a tenth of the node"),
        pytest.param("Burstable", 5 * GI, 500, id="half of the node"),
        pytest.param("Burstable", 10 * GI, 3, id="all of the node"),
        pytest.param("BestEffort", 0, 1000, id="BestEffort"),
        pytest.param("Guaranteed", GI, -997, id="Guaranteed"),
    ],
)
def test_oom_score_adj_on_ten_gibibytes(qos: str, asked: int, score: int) -> None:
    assert oom_score_adjust(EvictionCandidate("p", qos=qos), asked, 10 * GI) == score


def test_the_kernel_kills_the_largest_share_of_memory_with_its_adjustment() -> None:
    burstable = pod("burstable", 6 * GI, 5 * GI, qos="Burstable")
    small = pod("best-effort", GI)
    guaranteed = pod("guaranteed", 9 * GI, 9 * GI, qos="Guaranteed")
    victim = oom_victim([burstable, small, guaranteed], 10 * GI)
    assert victim is burstable or victim is small
    # 600 + 500 and 100 + 1000 are equal: one process more decides.
    greedy = pod("greedy", 2 * GI)
    assert oom_victim([burstable, greedy, guaranteed], 10 * GI) is greedy
    assert oom_victim([guaranteed], 10 * GI) is guaranteed
    assert oom_victim([pod("idle", 0)], 10 * GI) is None
