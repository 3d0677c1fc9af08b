"""Readiness says of which kinds nothing was heard for too long."""

from stellwerk.metrics import Metrics
from stellwerk.scheduler.observers.stale_watches import StaleWatches


def silent_for(**seconds: float) -> Metrics:
    metrics = Metrics()
    for kind, age in seconds.items():
        metrics.watch_silence.labels(kind).set(age)
    return metrics


def test_nothing_is_wrong_while_every_kind_is_heard_of() -> None:
    assert StaleWatches(silent_for(Pod=89, Node=25, Service=0))() is None


def test_the_kind_that_was_silent_longest_comes_first() -> None:
    wrong = StaleWatches(silent_for(Pod=91.4, Node=120.6, Service=89))()
    assert wrong == "nothing was heard of Node, Pod for 121 s"


def test_of_many_kinds_a_few_are_named() -> None:
    wrong = StaleWatches(silent_for(A=7, B=6, C=6, D=6, E=6), limit_seconds=5)()
    assert wrong == "nothing was heard of A, B, C and 2 more for 7 s"
