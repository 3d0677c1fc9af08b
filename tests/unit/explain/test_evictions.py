"""Victims and preemptors find each other, as many as are kept."""

from random import Random

from stellwerk.cases.decide import Case
from stellwerk.explain.evictions import Evictions
from stellwerk.world.decide import Decision, decide
from tests.support.builders import make_node, make_pod


def preempting() -> Decision:
    """A decision for one of three nodes, on each of which a pod would have to go."""
    nodes = [make_node(name, cpu="1") for name in ("a", "b", "c")]
    pods = [
        make_pod(f"low-{name}", cpu="1", priority=number, node_name=name)
        for number, name in enumerate("abc", start=1)
    ]
    new = make_pod("new", cpu="1", priority=9)
    loaded = Case({"id": "p", "nodes": nodes, "pods": pods, "pod": new})
    return decide(loaded.world, loaded.pod, loaded.profile)


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
    evictions.keep(decide(fork, loaded.pod, loaded.profile), "now", 1.0)
    assert evictions.of_preemptor("default/new") is None
