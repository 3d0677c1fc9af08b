"""A trial shows its changes as if they had happened, and leaves nothing behind."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo
from tests.support.cluster_changes import (
    Change,
    ClusterModel,
    histories,
    make_in_both,
    pending_pods,
    trials,
)
from tests.support.decisions import Decider
from tests.support.examples import examples
from tests.support.snapshot_contents import OTHER_SELECTIONS, USUAL_SELECTIONS, contents, layout

EVERY_SELECTION = (*USUAL_SELECTIONS, *OTHER_SELECTIONS)
pending = st.lists(pending_pods(), min_size=1, max_size=2)


def after(history: list[Change]) -> tuple[Cache, ClusterModel]:
    cache, model = Cache(), ClusterModel()
    for change in history:
        model.make(cache, change)
    cache.update_snapshot()
    return cache, model


@settings(max_examples=examples(60))
@given(history=histories, tried=trials, later=histories, pods=pending)
def test_a_trial_answers_as_if_it_had_happened_and_leaves_no_trace(
    history: list[Change], tried: list[Change], later: list[Change], pods: list[PodInfo]
) -> None:
    cache, model = after(history)
    snapshot, decider = cache.snapshot, Decider(cache)
    control, changed = cache.fork(), cache.fork()
    said, laid_out = contents(snapshot), layout(snapshot)
    answers = [decider.answers(pod) for pod in pods]
    with cache.trial() as trial:
        for change in tried:
            make_in_both(trial, changed, change)
            assert contents(snapshot, EVERY_SELECTION) == contents(
                changed.snapshot, EVERY_SELECTION
            )
            fresh = Decider(changed)
            assert [decider.answers(pod) for pod in pods] == [fresh.answers(pod) for pod in pods]
    assert contents(snapshot) == said
    assert layout(snapshot) == laid_out
    assert [decider.answers(pod) for pod in pods] == answers
    # What happens later finds the same rows, and the same counts of what the trial asked for.
    for change in later:
        model.copy().make(control, change)
        model.make(cache, change)
    assert contents(cache.update_snapshot(), EVERY_SELECTION) == contents(
        control.update_snapshot(), EVERY_SELECTION
    )
    assert layout(snapshot) == layout(control.snapshot)
    assert [decider.answers(pod) for pod in pods] == [Decider(control).answers(pod) for pod in pods]


@settings(max_examples=examples(40))
@given(history=histories, outer=trials, inner=trials)
def test_a_trial_within_a_trial_is_undone_first(
    history: list[Change], outer: list[Change], inner: list[Change]
) -> None:
    cache, _ = after(history)
    snapshot, changed = cache.snapshot, cache.fork()
    before = contents(snapshot), layout(snapshot)
    with cache.trial() as trial:
        for change in outer:
            make_in_both(trial, changed, change)
        between = contents(snapshot), layout(snapshot)
        innermost = changed.fork()
        with cache.trial() as nested:
            for change in inner:
                make_in_both(nested, innermost, change)
        assert (contents(snapshot), layout(snapshot)) == between
    assert (contents(snapshot), layout(snapshot)) == before
