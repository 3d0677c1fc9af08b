"""What is kept of decisions: the best nodes, as many records as there is room for."""

import random
from random import Random
from typing import Any

import numpy as np
import pytest

from stellwerk.explain.records import (
    MAX_SHOWN_NODES,
    DecisionRecord,
    DecisionRecords,
    Evictions,
    score_at,
)
from stellwerk.world.decide import Decision
from stellwerk.world.decide import decide as decide_pod
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case, decide
from tests.support.builders import make_node, make_pod
from tests.support.corpus import SUITES, read_suite


def kept(case: dict[str, Any], room_bytes: int = 1 << 20) -> DecisionRecord | None:
    """What is kept of the decision for a case."""
    loaded = Case(case)
    decision = decide_pod(loaded.world, loaded.pod, loaded.profile)
    if not decision.node_name:
        return None
    records = DecisionRecords(room_bytes=room_bytes)
    records.keep(decision, attempts=1, now=0.0)
    return records.of(loaded.pod.uid)


@pytest.mark.parametrize("suite", SUITES)
def test_records_agree_with_decide(suite: str) -> None:
    for recording in list(read_suite(suite))[::15]:
        if recording.expected.get("error") or not recording.case.get("nodes"):
            continue
        record = kept(dict(recording.case))
        expected = decide(recording.case)
        if record is None:
            assert not expected["selected"]
            continue
        assert record.node_name in expected["selected"]
        for position in record.ranked():
            assert record.total is not None
            name = record.names[position]
            assert int(record.total[position]) == expected["total"][name]
            for score in record.scores:
                raw, normalized = score_at(score, position)
                theirs = expected["scores"][score[0]][name]
                assert (raw, normalized) == (theirs["raw"], theirs["normalized"])


def nodes(count: int) -> list[JsonObject]:
    """Nodes of many sizes."""
    sizes = random.Random(count)
    return [make_node(f"n{n}", cpu=f"{sizes.randint(2, 64)}") for n in range(count)]


def test_the_best_nodes_of_many_are_kept_and_no_others() -> None:
    case = {"id": "many", "nodes": nodes(400), "pod": make_pod("web", cpu="1")}
    record = kept(case)
    totals = sorted(decide(case)["total"].values(), reverse=True)
    assert record is not None
    assert record.total is not None
    shown = [int(record.total[position]) for position in record.ranked()]
    assert shown == totals[:MAX_SHOWN_NODES]


def test_the_floor_of_the_last_decision_finds_the_best_of_the_next() -> None:
    loaded = Case({"id": "many", "nodes": nodes(300), "pod": make_pod("web", cpu="1")})
    world, records = loaded.world, DecisionRecords()
    for number in range(100):
        world.cache.update_snapshot()
        decision = decide_pod(world, loaded.pod, loaded.profile)
        records.keep(decision, attempts=1, now=0.0)
        record = records.of(loaded.pod.uid)
        assert record is not None
        assert record.total is not None
        assert decision.total is not None
        best = np.sort(decision.total)[::-1][:MAX_SHOWN_NODES].tolist()
        assert [int(record.total[at]) for at in record.ranked()] == best
        placed = Case({"id": "p", "pod": make_pod(f"p{number}", cpu="1")}).pod
        world.cache.assume_pod(placed.with_node(decision.node_name))


def test_a_tie_of_many_keeps_some_of_them_and_counts_all() -> None:
    alike = [make_node(f"n{n}") for n in range(200)]
    record = kept({"id": "tie", "nodes": alike, "pod": make_pod("web", cpu="1")})
    assert record is not None
    assert record.tied == 200
    assert len(record.ranked()) == MAX_SHOWN_NODES


def test_the_oldest_records_make_room() -> None:
    loaded = Case({"id": "room", "nodes": nodes(50), "pod": make_pod("web", cpu="1")})
    records = DecisionRecords(room_bytes=20_000)
    uids = []
    for number in range(50):
        pod = Case({"id": "p", "pod": make_pod(f"p{number}", cpu="1")}).pod
        records.keep(decide_pod(loaded.world, pod, loaded.profile), attempts=1, now=0.0)
        uids.append(pod.uid)
        assert records.held_bytes <= 20_000
    assert records.of(uids[0]) is None
    assert records.of(uids[-1]) is not None
    records.keep(decide_pod(loaded.world, loaded.pod, loaded.profile), attempts=1, now=0.0)


def test_why_others_were_not_is_counted_by_first_rejection() -> None:
    tainted = make_node("b", taints=[{"key": "k", "effect": "NoSchedule"}])
    small = make_node("c", cpu="100m")
    record = kept(
        {"id": "w", "nodes": [make_node("a"), tainted, small], "pod": make_pod("web", cpu="1")}
    )
    assert record is not None
    assert record.rejections is not None
    counts = {status.plugin: nodes for status, nodes in record.rejections.counts.items()}
    assert counts == {"TaintToleration": 1, "NodeResourcesFit": 1}


def preempting() -> Decision:
    """A decision for one of three nodes, on each of which a pod would have to go."""
    nodes = [make_node(name, cpu="1") for name in ("a", "b", "c")]
    pods = [
        make_pod(f"low-{name}", cpu="1", priority=number, node_name=name)
        for number, name in enumerate("abc", start=1)
    ]
    new = make_pod("new", cpu="1", priority=9)
    loaded = Case({"id": "p", "nodes": nodes, "pods": pods, "pod": new})
    return decide_pod(loaded.world, loaded.pod, loaded.profile)


def test_the_chosen_candidate_and_the_others_are_kept() -> None:
    evictions = Evictions()
    evictions.keep(preempting(), "now", 1.0)
    kept = evictions.of_preemptor("default/new")
    assert kept is not None
    assert (kept.node, kept.candidates) == ("a", 3)
    assert {other.node for other in kept.others} == {"b", "c"}
    victim = evictions.of_victim("default/low-a")
    assert victim is not None
    assert (victim.by, victim.by_priority, victim.priority) == ("default/new", 9, 1)
    assert evictions.of_victim("default/low-b") is None


def test_what_was_nominated_to_the_same_node_later_is_known() -> None:
    evictions = Evictions()
    evictions.keep(preempting(), "first", 1.0)
    first = evictions.nomination_of("default/new")
    assert first is not None
    assert first.node_name == "a"
    assert list(evictions.later_on(first)) == []
    evictions.keep(preempting(), "again", 2.0)
    assert [each.decided_at_seconds for each in evictions.later_on(first)] == [2.0]


def test_a_decision_for_a_node_evicts_no_pod() -> None:
    case = {"id": "p", "nodes": [make_node("a")], "pod": make_pod("new")}
    loaded = Case(case)
    fork = loaded.world.fork(Random(0))
    evictions = Evictions()
    evictions.keep(decide_pod(fork, loaded.pod, loaded.profile), "now", 1.0)
    assert evictions.of_preemptor("default/new") is None


def test_the_chosen_node_of_a_large_tie_is_kept_and_is_the_first() -> None:
    case = {
        "id": "tie",
        "nodes": [make_node(f"n{number}") for number in range(300)],
        "pod": make_pod("web", cpu="1"),
    }
    loaded = Case(case)
    for _ in range(5):
        decision = decide_pod(loaded.world, loaded.pod, loaded.profile)
        records = DecisionRecords()
        records.keep(decision, attempts=1, now=0.0)
        record = records.of(loaded.pod.uid)
        assert record is not None
        assert record.tied == 300
        assert record.names[record.ranked()[0]] == record.node_name
