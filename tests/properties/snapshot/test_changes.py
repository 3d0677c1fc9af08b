"""Cursors against a plain model: any order of changes, lengths kept, growth and readers.

The model holds every change ever made and, for each reader, how many of them it has seen. This is
the one place where a stale cache could hide: everything that is kept between cycles asks a cursor.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stellwerk.snapshot.columns import ChangeCursor, Changes, RowCursor
from tests.support.examples import examples

READERS = st.integers(0, 3)


class Reader:
    """A cursor, and what the model knows of its reader."""

    def __init__(self, cursor: ChangeCursor[int], *, of_columns: bool) -> None:
        self.cursor = cursor
        self.of_columns = of_columns
        self.seen: int | None = None
        """How many changes it has looked at; None: it never looked."""
        self.size = 0
        """The rows there were when it looked."""


class CursorMachine(RuleBasedStateMachine):
    @initialize(before=st.lists(st.integers(0, 4), max_size=4))
    def begin(self, before: list[int]) -> None:
        self.size = 5
        self.log: Changes[int] = Changes()
        self.changes: list[int] = []
        self.held_from = 0
        for row in before:
            self.change(row)
        self.readers = [
            Reader(RowCursor(self, self.log), of_columns=True)
            if number % 2
            else Reader(ChangeCursor(self.log), of_columns=False)
            for number in range(4)
        ]

    @rule(row=st.integers(0, 8))
    def change(self, row: int) -> None:
        row %= self.size
        self.log.append(row)
        self.changes.append(row)
        if len(self.changes) - self.held_from > 2 * self.log.keep:
            self.held_from = len(self.changes) - self.log.keep

    @rule()
    def grow(self) -> None:
        """A new row is noted as changed, as the snapshot does."""
        self.size += 1
        self.change(self.size - 1)

    @rule(keep=st.integers(0, 3))
    def keep_fewer_or_more(self, keep: int) -> None:
        self.log.keep = keep

    @rule(number=READERS, at_most=st.none() | st.integers(0, 4))
    def ask(self, number: int, at_most: int | None) -> None:
        reader = self.readers[number]
        noted = self.expected(reader)
        if noted is not None and at_most is not None and len(noted) > at_most:
            noted = None
        assert reader.cursor.changed(at_most) == once(noted)

    @rule(number=READERS)
    def look(self, number: int) -> None:
        reader = self.readers[number]
        assert reader.cursor.advance() == once(self.expected(reader))
        reader.seen, reader.size = len(self.changes), self.size

    @rule(number=READERS)
    def catch_up(self, number: int) -> None:
        reader = self.readers[number]
        reader.cursor.catch_up()
        reader.seen, reader.size = len(self.changes), self.size

    @invariant()
    def current_means_that_nothing_is_to_be_looked_at(self) -> None:
        for reader in self.readers:
            assert reader.cursor.current == (self.expected(reader) == [])

    def expected(self, reader: Reader) -> list[int] | None:
        """Every change that the reader has not seen; None: it has to look at everything."""
        if reader.seen is None or reader.seen < self.held_from:
            return None
        if reader.of_columns and reader.size != self.size:
            return None
        return self.changes[reader.seen :]


def once(noted: list[int] | None) -> list[int] | None:
    return None if noted is None else sorted(set(noted), key=noted.index)


TestCursors = CursorMachine.TestCase
TestCursors.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
