"""A cache of compiled expressions and patterns, limited by bytes.

Expressions and patterns are written by tenants, and what is compiled of one may take hundreds of
times as much memory as its text: a number of entries is no bound. Invariant: all entries
together stay within `most_bytes`, unless there is only one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_KEPT_BYTES: Final = 64 * 1024
"""Bytes of the expressions whose trees, or programs, are kept. A tree takes up to 130 times as much
memory as its text, a program 220 times."""
_MAX_KEPT_EXPRESSIONS: Final = 512
"""Expressions that are kept, however short they are: any number of short ones would fill the
memory."""

Written = TypeVar("Written", bound="str | bytes")
Made = TypeVar("Made")


class RecentlyMade(Generic[Written, Made]):
    """Values of the texts that were asked for last."""

    def __init__(
        self,
        make: Callable[[Written], Made],
        most_bytes: int = MAX_KEPT_BYTES,
        most: int = _MAX_KEPT_EXPRESSIONS,
        size: Callable[[Made], int] | None = None,
    ) -> None:
        """Keep what `make` makes.

        Args:
            make: the value of a text.
            most_bytes: how many bytes are kept in all.
            most: how many values.
            size: the bytes of a value; without it, those of its text.
        """
        self._make, self._size = make, size
        self._most_bytes, self._most = most_bytes, most
        self._made: OrderedDict[Written, tuple[Made, int]] = OrderedDict()
        self._bytes = 0

    def of(self, text: Written) -> Made:
        """The value of a text, made if it is not kept."""
        found = self._made.get(text)
        if found is not None:
            self._made.move_to_end(text)
            return found[0]
        made = self._make(text)
        size = len(text) if self._size is None else self._size(made)
        self._made[text] = made, size
        self._bytes += size
        while len(self._made) > 1 and (
            self._bytes > self._most_bytes or len(self._made) > self._most
        ):
            self._bytes -= self._made.popitem(last=False)[1][1]
        return made

    def __len__(self) -> int:
        return len(self._made)
