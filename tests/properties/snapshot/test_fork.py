"""A fork says and decides what its original does, and neither sees the other's later changes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo
from tests.support.cluster_changes import Change, ClusterModel, histories, pending_pods
from tests.support.decisions import Decider
from tests.support.examples import examples
from tests.support.snapshot_contents import contents, layout

pending = st.lists(pending_pods(), min_size=1, max_size=2)


def make_all(model: ClusterModel, cache: Cache, history: list[Change]) -> None:
    for change in history:
        model.make(cache, change)


def known(cache: Cache) -> object:
    """What a cache knows besides its snapshot, in its orders."""
    return (
        [(node.name, node) for node in cache.nodes()],
        [(pod.uid, id(pod)) for pod in cache.pods()],
        {name: list(cache.pods_on(name)) for name in {pod.node_name for pod in cache.pods()}},
        list(cache.assumed_pods),
    )


@settings(max_examples=examples(60))
@given(history=histories, ours=histories, theirs=histories, pods=pending)
def test_a_fork_is_the_same_and_then_goes_its_own_way(
    history: list[Change], ours: list[Change], theirs: list[Change], pods: list[PodInfo]
) -> None:
    cache, model = Cache(), ClusterModel()
    decider = Decider(cache)
    make_all(model, cache, history)
    fork, forked = cache.fork(), model.copy()
    assert known(fork) == known(cache)
    assert contents(fork.snapshot) == contents(cache.snapshot), "what waits is not written early"
    cache.update_snapshot()
    fork.update_snapshot()
    assert contents(fork.snapshot) == contents(cache.snapshot)
    assert layout(fork.snapshot) == layout(cache.snapshot)
    other = Decider(fork)
    for pod in pods:
        assert other.answers(pod) == decider.answers(pod)
    before = known(fork), contents(fork.snapshot), layout(fork.snapshot)
    make_all(model, cache, ours)
    cache.update_snapshot()
    assert (known(fork), contents(fork.snapshot), layout(fork.snapshot)) == before
    before = known(cache), contents(cache.snapshot), layout(cache.snapshot)
    make_all(forked, fork, theirs)
    fork.update_snapshot()
    assert (known(cache), contents(cache.snapshot), layout(cache.snapshot)) == before
    for side, truth, kept in ((cache, model, decider), (fork, forked, other)):
        rebuilt = truth.rebuilt()
        assert contents(side.snapshot) == contents(rebuilt.snapshot)
        for pod in pods:
            assert kept.answers(pod) == Decider(side).answers(pod)


@settings(max_examples=examples(30))
@given(history=histories, ours=histories, theirs=histories)
def test_a_fork_of_a_fork_is_as_good(
    history: list[Change], ours: list[Change], theirs: list[Change]
) -> None:
    cache, model = Cache(), ClusterModel()
    make_all(model, cache, history)
    first, of_first = cache.fork(), model.copy()
    make_all(of_first, first, ours)
    second, of_second = first.fork(), of_first.copy()
    third, of_third = first.fork(), of_first.copy()
    make_all(of_second, second, theirs)
    make_all(of_first, first, theirs[::-1])
    for side, truth in (
        (cache, model),
        (first, of_first),
        (second, of_second),
        (third, of_third),
    ):
        rebuilt = truth.rebuilt()
        assert contents(side.update_snapshot()) == contents(rebuilt.snapshot)
