from collections.abc import Iterator

from stellwerk.backend.requeue_backlog import (
    MAX_PENDING_CHANGES,
    MAX_UNITS_PER_SLICE,
    RequeueBacklog,
)


class Log:
    """Work that notes its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.begun = 0

    def work(self, name: str, steps: int, units: int = 1) -> Iterator[int]:
        for step in range(steps):
            self.steps.append(f"{name}{step}")
            yield units

    def backlog(self) -> RequeueBacklog:
        backlog = RequeueBacklog(lambda: self.work("everything", 1))
        backlog.on_begun = self.note
        return backlog

    def note(self) -> None:
        self.begun += 1


def test_small_work_is_done_at_once() -> None:
    log = Log()
    backlog = log.backlog()
    backlog.begin(log.work("a", 3))
    assert log.steps == ["a0", "a1", "a2"]
    assert not backlog
    assert log.begun == 0


def test_large_work_is_cut_and_later_work_waits_for_its_turn() -> None:
    log = Log()
    backlog = log.backlog()
    backlog.begin(log.work("a", 3, MAX_UNITS_PER_SLICE))
    backlog.begin(log.work("b", 1))
    assert log.steps == ["a0"]
    assert log.begun
    slices = 1
    while backlog.work_off():
        slices += 1
    assert log.steps == ["a0", "a1", "a2", "b0"]
    assert slices >= 3, "each in a turn of its own"


def test_a_slice_may_be_made_shorter() -> None:
    log = Log()
    backlog = log.backlog()
    backlog.begin(log.work("a", 9, MAX_UNITS_PER_SLICE // 4))
    assert log.steps == ["a0", "a1", "a2", "a3"]
    assert backlog.work_off(MAX_UNITS_PER_SLICE // 4)
    assert log.steps[4:] == ["a4"]


def test_too_many_changes_that_wait_become_one_look_at_everything() -> None:
    log = Log()
    backlog = log.backlog()
    backlog.begin(log.work("timer", 2, MAX_UNITS_PER_SLICE))
    for _ in range(MAX_PENDING_CHANGES + 1):
        backlog.begin(log.work("change", 1), is_change=True)
    while backlog.work_off():
        pass
    assert log.steps == ["timer0", "timer1", "everything0"]


def test_what_is_never_worked_off_does_not_grow() -> None:
    log = Log()
    backlog = log.backlog()
    backlog.begin(log.work("timer", 2, MAX_UNITS_PER_SLICE))
    for _ in range(10 * MAX_PENDING_CHANGES):
        backlog.begin(log.work("change", 1), is_change=True)
    while backlog.work_off():
        pass
    assert log.steps.count("everything0") == 1
