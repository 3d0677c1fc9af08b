"""A registered book follows every change, whenever it was registered."""

from collections import Counter
from typing import Self

from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.node import NodeInfo
from tests.support.cluster_changes import Change, ClusterModel, histories, make_in_both, trials
from tests.support.examples import examples


class NaiveBook(Book):
    """Nodes and pods by row, each call checked against those before."""

    def __init__(self) -> None:
        self.capacity = 0
        self.nodes: dict[int, NodeInfo] = {}
        self.pods: dict[int, Counter[str]] = {}

    @override
    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        assert row < self.capacity
        assert (before is None) == (row not in self.nodes)
        self.nodes[row] = node

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        assert self.nodes.pop(row).name == node.name
        assert not +self.pods.pop(row, Counter()), "its pods have been taken out before"

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        assert row in self.nodes
        pods = self.pods.setdefault(row, Counter())
        pods[pod.uid] += change
        assert pods[pod.uid] in {0, 1}

    @override
    def grow(self, capacity: int) -> None:
        assert capacity >= self.capacity
        self.capacity = capacity

    @override
    def fork(self) -> Self:
        fork = type(self)()
        fork.capacity, fork.nodes = self.capacity, self.nodes.copy()
        fork.pods = {row: pods.copy() for row, pods in self.pods.items()}
        return fork


def agrees(snapshot: Snapshot) -> None:
    book = snapshot.book(NaiveBook)
    assert book is snapshot.book(NaiveBook)
    assert {row: node.name for row, node in book.nodes.items()} == {
        row: name for name, row in snapshot.row_of.items()
    }
    for name, row in snapshot.row_of.items():
        assert book.nodes[row].uid == snapshot.node_at(row).uid, name
        assert set(+book.pods.get(row, Counter())) == set(snapshot.pods[row]), name
        assert book.nodes[row].labels == snapshot.node_at(row).labels


@settings(max_examples=examples(100))
@given(before=histories, later=histories, forked=histories, tried=trials, late=st.booleans())
def test_a_book_agrees_with_the_rows(
    *,
    before: list[Change],
    later: list[Change],
    forked: list[Change],
    tried: list[Change],
    late: bool,
) -> None:
    cache, model = Cache(), ClusterModel()
    if not late:
        cache.snapshot.book(NaiveBook)
    for change in before:
        model.make(cache, change)
    cache.snapshot.book(NaiveBook)  # Late, and perhaps with changes that are not written yet.
    unwritten = cache.fork()
    agrees(unwritten.update_snapshot())
    for change in later:
        model.make(cache, change)
        agrees(cache.update_snapshot())
    fork, truth = cache.fork(), model.copy()
    for change in forked:
        truth.make(fork, change)
        agrees(fork.update_snapshot())
    with cache.trial() as trial:
        changed = cache.snapshot.fork()
        assert changed.book(NaiveBook).nodes == cache.snapshot.book(NaiveBook).nodes
        real = model.rebuilt()
        for change in tried:
            make_in_both(trial, real, change)
            agrees(cache.snapshot)
    agrees(cache.snapshot)
    assert set(cache.snapshot.row_of) == set(model.nodes)
