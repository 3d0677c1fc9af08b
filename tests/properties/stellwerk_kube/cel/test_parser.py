"""Random expressions of the grammar get the tree that they were written for; others a place."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.cel.errors import CompileError
from stellwerk_kube.cel.parser import parse
from tests.support.cel_texts import spoilt, written
from tests.support.examples import examples

SEEDS = st.integers(0, 1 << 32)
SIZES = st.sampled_from([1, 3, 6, 12, 25])


@settings(max_examples=examples(1_500))
@given(SEEDS, SIZES)
def test_a_written_expression_has_the_tree_it_was_written_for(seed: int, size: int) -> None:
    expression = written(random.Random(seed), size)
    try:
        tree = parse(expression.text)
    except CompileError as error:
        assert "expression recursion limit exceeded" in str(error)  # noqa: PT017  (a large one may be deep)
        return
    # As text, in which 1 differs from true and from 1u, and -0.0 from 0.0.
    assert repr(tree) == repr(expression.tree)


@settings(max_examples=examples(600))
@given(SEEDS, SIZES)
def test_a_spoilt_expression_is_parsed_or_refused_at_a_place_within_it(
    seed: int, size: int
) -> None:
    chance = random.Random(seed)
    text = spoilt(chance, written(chance, size))
    try:
        parse(text)
    except CompileError as error:
        found = re.match(r"ERROR: <input>:(\d+):(\d+): .", str(error))
        assert found is not None
        line, column = map(int, found.groups())
        assert 0 < column <= len(text.split("\n")[line - 1]) + 1
