"""The generator of the published experiment, draw by draw."""

from stellwerk_simulation.lagged_fibonacci import LaggedFibonacci


def test_published_draws_of_seed_1() -> None:
    numbers = LaggedFibonacci(1)
    assert [numbers.int63() for _ in range(2)] == [5577006791947779410, 8674665223082153551]
    numbers = LaggedFibonacci(1)
    assert [numbers.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_shuffles_and_permutations_keep_every_item() -> None:
    numbers, items = LaggedFibonacci(7), list(range(1000))
    numbers.shuffle(items)
    assert items != sorted(items) == list(range(1000))
    assert sorted(numbers.permutation(1213)) == list(range(1213))


def test_powers_of_two_are_drawn_within_bounds() -> None:
    numbers = LaggedFibonacci(3)
    assert {numbers.below(4) for _ in range(200)} == {0, 1, 2, 3}
    assert numbers.below(1) == 0
