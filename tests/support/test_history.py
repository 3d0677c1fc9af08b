"""That the judge of runs under faults sees what may not be."""

from typing import TYPE_CHECKING, Any

from stellwerk_cluster.registry.store import Store
from tests.support.builders import make_node, make_pod
from tests.support.history import History

if TYPE_CHECKING:
    from stellwerk_cluster.registry.entries import Entry


class Recorded:
    def __init__(self) -> None:
        self.store = Store()
        self.store.create("nodes", make_node("n1", cpu="2"))
        self.store.create("nodes", make_node("n2", cpu="2"))
        self.history = History(self.store)
        self.pods: dict[str, Entry] = {}

    def put(self, name: str, node_name: str | None = None, **fields: Any) -> None:
        pod = make_pod(name, cpu="1", node_name=node_name, **fields)
        before = self.pods.get(name)
        self.pods[name] = (
            self.store.create("pods", pod)
            if before is None
            else self.store.replace("pods", pod, before)
        )

    def remove(self, name: str) -> None:
        self.store.remove("pods", self.pods.pop(name))


def test_what_is_bound_once_and_has_room_is_well() -> None:
    run = Recorded()
    for name in ("a", "b", "c"):
        run.put(name)
    run.put("a", "n1")
    run.put("b", "n1")
    run.remove("a")
    run.put("c", "n1")
    judged = run.history.judged()
    assert (judged.created, len(judged.delays_seconds)) == (3, 3)
    assert [judged.unbound, judged.doubled, judged.over_committed] == [[], [], []]


def test_a_pod_without_a_node_is_lost_unless_it_is_gone() -> None:
    run = Recorded()
    run.put("a")
    run.put("b")
    run.remove("b")
    assert run.history.judged().unbound == ["a"]


def test_a_node_that_had_promised_too_much_for_a_moment() -> None:
    run = Recorded()
    for name in ("a", "b", "c"):
        run.put(name)
        run.put(name, "n1")
    run.remove("a")
    (text,) = run.history.judged().over_committed
    assert text.startswith("n1 has 2000 cpu and promised 3000 when c was bound")


def test_a_pod_that_got_another_node() -> None:
    run = Recorded()
    run.put("a", "n1")
    run.put("a", "n2")
    assert run.history.judged().doubled == ["a"]


def test_a_return_to_an_older_state_is_no_fault_of_the_scheduler() -> None:
    run = Recorded()
    run.put("a")
    before = run.store.revision
    run.put("b")
    run.put("a", "n1")
    run.store.rewind(before)
    assert run.history.judged().unbound == ["a"]
    entry = run.store.collection("pods").entries()[0]
    run.store.replace("pods", make_pod("a", cpu="1", node_name="n2"), entry)
    judged = run.history.judged()
    assert [judged.unbound, judged.doubled, judged.over_committed] == [[], [], []]
