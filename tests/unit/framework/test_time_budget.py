"""What foreign code of a profile may take of the last ten seconds."""

from stellwerk.framework.time_budget import TimeBudget
from stellwerk_kube.clock import VirtualClock

SLEEPER = 'plugin "Sleeper"'


def test_a_fifth_of_ten_seconds_is_not_too_much_and_more_is() -> None:
    clock = VirtualClock()
    budget = TimeBudget(clock.monotonic)
    for _ in range(4):
        budget.spent("a", SLEEPER, 0.5)
    assert budget.exceeded("a") == ""
    budget.spent("a", "extender http://x", 0.25)
    assert budget.exceeded("a") == (
        'plugin "Sleeper" is too slow: with the other foreign plugins and extenders of a it took '
        "more than 20 % of the last 10 s of scheduling"
    )
    assert budget.exceeded("b") == ""


def test_what_was_spent_is_forgotten_slice_by_slice() -> None:
    clock = VirtualClock()
    budget = TimeBudget(clock.monotonic)
    for _ in range(8):
        budget.spent("a", SLEEPER, 0.5)
        clock.advance(1)
    assert budget.exceeded("a")
    clock.advance(4)
    assert budget.exceeded("a")
    clock.advance(2)
    assert not budget.exceeded("a")


def test_the_slowest_is_named_whoever_was_last() -> None:
    budget = TimeBudget(VirtualClock().monotonic)
    budget.spent("a", SLEEPER, 3.0)
    budget.spent("a", 'plugin "Quick"', 0.1)
    assert 'plugin "Sleeper" is too slow' in budget.exceeded("a")


def test_the_share_can_be_set_and_turned_off() -> None:
    clock = VirtualClock()
    half, all_of_it = TimeBudget(clock.monotonic, 0.5), TimeBudget(clock.monotonic, 1.0)
    for budget in (half, all_of_it):
        budget.spent("a", SLEEPER, 4.9)
        assert not budget.exceeded("a")
        budget.spent("a", SLEEPER, 9.0)
    assert "50 % of the last 10 s" in half.exceeded("a")
    assert not all_of_it.exceeded("a")


def test_a_million_calls_take_no_more_room_than_one() -> None:
    clock = VirtualClock()
    budget = TimeBudget(clock.monotonic)
    for _ in range(50_000):
        budget.spent("a", SLEEPER, 1e-6)
        clock.advance(0.01)
    assert len(budget._profiles["a"].slices) <= 21  # noqa: SLF001 what is kept is the point
