"""What is compiled of tenants' texts is kept within a number of bytes, not of entries alone."""

from itertools import count

from stellwerk_kube.cel.bounded_cache import MAX_KEPT_BYTES, RecentlyMade
from stellwerk_kube.cel.environment import _trees, device_program
from stellwerk_kube.cel.library.patterns import _patterns, compiled_pattern


def test_what_is_made_of_texts_is_kept_within_a_number_of_bytes() -> None:
    numbers = count(1)
    cache = RecentlyMade[str, int](lambda _: next(numbers), 100, 8)
    for _ in range(2):
        assert [cache.of(letter * 30) for letter in "abc"] == [1, 2, 3]
    assert cache.of("d" * 30) == 4
    assert [cache.of(letter * 30) for letter in "bcd"] == [2, 3, 4]
    assert cache.of("a" * 30) == 5  # it had to go
    assert cache.of("x" * 1000) == 6  # more than all that may be kept
    assert cache.of("x" * 1000) == 6
    assert (cache.of("b" * 30), len(cache)) == (7, 1)
    for number in range(20):
        cache.of(str(number))
    assert len(cache) == 8


def test_large_expressions_of_tenants_take_each_others_place() -> None:
    chain = "||1==1" * 1500
    for number in range(10):
        device_program(f"device.driver=='{number}'{chain}")
    assert len(_trees) == MAX_KEPT_BYTES // len(chain)


def test_patterns_are_kept_by_the_memory_that_they_take() -> None:
    for number in range(40):
        compiled_pattern(rf"(?:\pL\pN){{100}}{number}")  # 20 characters, 2.2 MiB
    assert len(_patterns) == 7
