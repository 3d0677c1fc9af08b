"""What an extender answers is read as what it promises, or refused in words that may be shown."""

from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.client.extender_answers import MAX_INT32, ExtenderAnswer, FilterAnswer
from stellwerk_kube.errors import ExtenderError
from stellwerk_kube.untrusted_text import SHOWN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

OFFERED: Final = ("n1", "n2", "n3")
NAMES: Final = st.one_of(st.sampled_from([*OFFERED, "elsewhere", "", "\x1b[31m"]), st.text())
KEYS: Final = st.one_of(
    st.sampled_from(
        [
            *("nodenames", "NodeNames", "nodes", "items", "metadata", "name", "failedNodes"),
            *("failedAndUnresolvableNodes", "Host", "score", "pods", "uid", "numPDBViolations"),
            *("nodeNameToMetaVictims", "error"),
        ]
    ),
    NAMES,
)
SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    NAMES,
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.just("x" * 5000),
)
ANYTHING: Final = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)
"""JSON that is seldom an answer."""
VICTIMS: Final = st.fixed_dictionaries(
    {},
    optional={
        "pods": st.one_of(ANYTHING, st.lists(st.fixed_dictionaries({"uid": ANYTHING}), max_size=3)),
        "numPDBViolations": SCALARS,
    },
)
ANSWERS: Final = st.one_of(
    ANYTHING,
    st.fixed_dictionaries(
        {},
        optional={
            "nodenames": st.one_of(ANYTHING, st.lists(NAMES, max_size=4)),
            "nodes": ANYTHING,
            "failedNodes": st.one_of(ANYTHING, st.dictionaries(NAMES, NAMES)),
            "failedAndUnresolvableNodes": st.dictionaries(NAMES, SCALARS),
            "error": SCALARS,
            "nodeNameToMetaVictims": st.dictionaries(NAMES, VICTIMS, max_size=3),
        },
    ),
    st.lists(st.fixed_dictionaries({}, optional={"host": NAMES, "score": SCALARS}), max_size=4),
    st.integers(200, 1000).map(lambda depth: orjson.loads("[" * depth + "]" * depth)),
    st.integers(200, 1000).map(lambda depth: orjson.loads('{"a":' * depth + "1" + "}" * depth)),
)


def read(purpose: str, answer: Any) -> Any:
    """What the reader makes of it; None: it refuses it, in words that may be shown."""
    reader = ExtenderAnswer("http://extender", purpose)
    readers: dict[str, Callable[[], Any]] = {
        "filter": lambda: reader.filter(answer, OFFERED),
        "prioritize": lambda: reader.scores(answer),
        "bind": lambda: reader.bound(answer),
        "preempt": lambda: reader.victims(answer),
    }
    try:
        return readers[purpose]()
    except ExtenderError as refused:
        message = str(refused)
        assert message.isprintable()
        assert len(message.encode()) <= 2 * SHOWN_BYTES
        return None


@given(ANSWERS)
def test_of_filter_only_offered_nodes_remain(answer: Any) -> None:
    found = read("filter", answer)
    if found is None:
        return
    assert isinstance(found, FilterAnswer)
    assert set(found.node_names) <= set(OFFERED)
    assert len(set(found.node_names)) == len(found.node_names)
    for reason in (*found.failed.values(), *found.unresolvable.values()):
        assert reason.isprintable()
        assert len(reason.encode()) <= SHOWN_BYTES


@given(ANSWERS)
def test_scores_are_numbers_of_nodes_named_once(answer: Any) -> None:
    scores = read("prioritize", answer) or []
    assert len(dict(scores)) == len(scores)
    assert all(abs(score) <= MAX_INT32 for _, score in scores)


@given(ANSWERS)
def test_a_binding_is_made_or_not(answer: Any) -> None:
    assert read("bind", answer) is None


@given(ANSWERS)
def test_victims_are_pods_named_once(answer: Any) -> None:
    for victims in (read("preempt", answer) or {}).values():
        assert all(isinstance(uid, str) for uid in victims.uids)
        assert len(set(victims.uids)) == len(victims.uids)
        assert 0 <= victims.pdb_violations <= MAX_INT32


@pytest.mark.parametrize("purpose", ["filter", "bind"])
def test_an_answer_that_is_too_deep_to_be_quoted_is_refused(purpose: str) -> None:
    answer = orjson.loads('["a"' + ',["a"' * 300 + "]" * 301)
    deep = {"nodenames": answer} if purpose == "filter" else answer
    reader = ExtenderAnswer("http://extender", purpose)
    with pytest.raises(ExtenderError, match="too deeply to be shown"):
        (reader.filter(deep, OFFERED) if purpose == "filter" else reader.bound(deep))
