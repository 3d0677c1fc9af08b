"""A turn ends after its time, and what is left of the work goes on from there."""

from collections.abc import Iterator

from stellwerk.framework.turn import Turn


def test_work_is_left_where_the_time_is_over_and_goes_on_there() -> None:
    done: list[int] = []
    seconds = 0.0

    def work() -> Iterator[None]:
        nonlocal seconds
        for step in range(5):
            done.append(step)
            seconds += 1.0
            yield

    turn = Turn(lambda: seconds, until_seconds=2.5)
    assert not turn.completes(work())
    assert done == [0, 1, 2]
    assert turn.unfinished is not None
    assert list(turn.unfinished) == [None, None]
    assert done == [0, 1, 2, 3, 4]


def test_work_that_is_done_in_time_leaves_nothing() -> None:
    turn = Turn(lambda: 0.0, until_seconds=0.0)
    assert turn.completes(iter([None, None]))
    assert turn.unfinished is None
