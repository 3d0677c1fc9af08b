"""The random numbers of the published experiment, draw by draw.

Inflation draws from it. It is an additive lagged Fibonacci generator over 64-bit words with lags
607 and 273, seeded as Go's math/rand seeds it, so that arrival lists and node ranks of a seed are
those that the authors published results for. Invariant: equal seeds give equal draws, on any
machine and in any version.
"""

from collections.abc import Callable, MutableSequence
from functools import cache
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")
Words = npt.NDArray[np.uint64]

_LONG_LAG: Final = 607
_SHORT_LAG: Final = 273
_FEED: Final = _LONG_LAG - _SHORT_LAG
_STEPS_BEFORE: Final = 7_800_000_000_000
"""Steps that the table has behind it with which seeds are mixed."""
_MULTIPLIER: Final = 48271
_MODULUS: Final = (1 << 31) - 1
_DROPPED: Final = 20
_MASK_64: Final = (1 << 64) - 1
_MASK_63: Final = (1 << 63) - 1
_MASK_32: Final = (1 << 32) - 1
_LARGEST_31: Final = (1 << 31) - 1


class LaggedFibonacci:
    """A seeded generator."""

    def __init__(self, seed: int) -> None:
        """`seed`: from 1 to 2**31 − 2."""
        self._words: list[int] = [
            word ^ mixed for word, mixed in zip(_seed_words(seed, (40, 20)), _table(), strict=True)
        ]
        self._tap, self._feed = 0, _FEED

    def int63(self) -> int:
        """The next word without its top bit."""
        return self._next() & _MASK_63

    def below(self, bound: int) -> int:
        """A number from 0 to bound − 1, by rejection and remainder."""
        if bound & (bound - 1) == 0:
            return (self.int63() >> 32) & (bound - 1)
        last = _LARGEST_31 - (1 << 31) % bound
        value = self.int63() >> 32
        while value > last:
            value = self.int63() >> 32
        return value % bound

    def shuffle(self, items: MutableSequence[Item]) -> None:
        """Put items in a random order, from the last place down."""
        for place in range(len(items) - 1, 0, -1):
            other = self._below_by_product(place + 1)
            items[place], items[other] = items[other], items[place]

    def permutation(self, size: int) -> list[int]:
        """The numbers from 0 to size − 1 in a random order."""
        numbers = [0] * size
        for place in range(size):
            other = self.below(place + 1)
            numbers[place] = numbers[other]
            numbers[other] = place
        return numbers

    def _below_by_product(self, bound: int) -> int:
        """A number from 0 to bound − 1: the upper half of a product."""
        product = self._uint32() * bound
        if product & _MASK_32 < bound:
            least = (-bound & _MASK_32) % bound
            while product & _MASK_32 < least:
                product = self._uint32() * bound
        return product >> 32

    def _uint32(self) -> int:
        return (self.int63() >> 31) & _MASK_32

    def _next(self) -> int:
        words = self._words
        self._tap = (self._tap or _LONG_LAG) - 1
        self._feed = (self._feed or _LONG_LAG) - 1
        word = words[self._feed] = (words[self._feed] + words[self._tap]) & _MASK_64
        return word


def _seed_words(seed: int, shifts: tuple[int, int]) -> list[int]:
    """The words that a linear congruential generator fills the array with."""
    value = seed

    def step() -> int:
        nonlocal value
        value = value * _MULTIPLIER % _MODULUS
        return value

    for _ in range(_DROPPED):
        step()
    return [_mixed(step, shifts) for _ in range(_LONG_LAG)]


def _mixed(step: Callable[[], int], shifts: tuple[int, int]) -> int:
    high, middle, low = step(), step(), step()
    return ((high << shifts[0]) ^ (middle << shifts[1]) ^ low) & _MASK_64


@cache
def _table() -> list[int]:
    """The array after very many steps, from a power of x modulo the recurrence's polynomial."""
    start = _seed_words(1, (20, 10))
    # In the order in which the recurrence reads them: output k goes into place 333 − k.
    order = [(_FEED - 1 - step) % _LONG_LAG for step in range(_LONG_LAG)]
    sequence = [start[place] for place in order]
    for _ in range(_LONG_LAG):
        sequence.append((sequence[-_LONG_LAG] + sequence[-_SHORT_LAG]) & _MASK_64)
    power = _power_of_x(_STEPS_BEFORE)
    known: Words = np.array(sequence, np.uint64)
    table = [0] * _LONG_LAG
    for step in range(_LONG_LAG):
        place = (_FEED - 1 - _STEPS_BEFORE - step) % _LONG_LAG
        table[place] = int((power * known[step : step + _LONG_LAG]).sum(dtype=np.uint64))
    return table


def _power_of_x(exponent: int) -> Words:
    """(607,) coefficients of x to that power, modulo x^607 − x^334 − 1 and 2^64."""
    power: Words = np.zeros(_LONG_LAG, np.uint64)
    power[0] = 1
    for bit in f"{exponent:b}":
        power = _reduced(np.convolve(power, power))
        if bit == "1":
            power = _reduced(np.concatenate([np.zeros(1, np.uint64), power]))
    return power


def _reduced(product: Words) -> Words:
    """The remainder: x^607 is x^334 + 1."""
    words = product.tolist()
    for place in range(len(words) - 1, _LONG_LAG - 1, -1):
        words[place - _LONG_LAG] += words[place]
        words[place - _LONG_LAG + _FEED] += words[place]
    remainder: Words = np.array([word & _MASK_64 for word in words[:_LONG_LAG]], np.uint64)
    return np.pad(remainder, (0, _LONG_LAG - len(remainder)))
