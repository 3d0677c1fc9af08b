"""What-if forms: what they say, and what is refused before it costs anything."""

import re

import pytest

from stellwerk.errors import ConfigurationError
from stellwerk.page.supposition_form import MOST_BYTES, supposition

NODE = "kind: Node\nmetadata: {name: big}\n"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\n"


def test_a_form_becomes_a_question() -> None:
    form = {"nodes": f"{NODE}---\n{NODE}", "count": "3", "drain": " node-1 ", "pod": "  "}
    assert supposition(form) == {
        "addNodes": [{"kind": "Node", "metadata": {"name": "big"}}] * 2,
        "count": 3,
        "drain": "node-1",
    }


def test_a_list_of_kubectl_is_taken_apart() -> None:
    listed = '{"kind": "List", "items": [{"kind": "Node"}, {"kind": "Node"}]}'
    assert len(supposition({"nodes": listed})["addNodes"]) == 2


def test_dates_become_texts() -> None:
    pod = supposition({"pod": "metadata: {creationTimestamp: 2026-01-01T00:00:00Z}"})["pod"]
    assert isinstance(pod["metadata"]["creationTimestamp"], str)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        pytest.param({}, "nothing is supposed", id="an empty form"),
        pytest.param({"pod": "a: [1"}, "pod: not YAML: line 2, column 1: ", id="broken YAML"),
        pytest.param({"pod": BOMB}, "pod: aliases", id="a text that grows"),
        pytest.param({"pod": "[" * 5000}, "pod: nested", id="deeply nested"),
        pytest.param({"pod": f"a: {'[' * 60}{']' * 60}"}, "pod: nested", id="nested"),
        pytest.param({"pod": "just a text"}, "pod: a manifest", id="a text"),
        pytest.param({"nodes": "- 1\n- 2"}, "nodes: a manifest", id="numbers"),
        pytest.param({"pod": f"{NODE}---\n{NODE}"}, "pod: one object", id="two pods"),
        pytest.param({"nodes": NODE, "count": "1e3"}, "count: ", id="no number"),
        pytest.param({"nodes": NODE, "count": "0"}, "count: ", id="none"),
        pytest.param({"nodes": NODE, "count": "9" * 9999}, "count: ", id="a huge number"),
        pytest.param({"pod": "a: !!binary aGVsbG8="}, "no JSON", id="bytes"),
        pytest.param({"pod": "a: !!python/object/new:os.system [ls]"}, "not YAML", id="objects"),
        pytest.param({"pod": f"a: {10**40}"}, "no JSON", id="a number that JSON cannot hold"),
        pytest.param({"pod": "1: a"}, "no JSON", id="a key that is no text"),
        pytest.param({"pod": "\x00"}, "not YAML", id="a control character"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(form: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as raised:
        supposition(form)
    assert "\n" not in str(raised.value)


def test_the_largest_form_is_read() -> None:
    text = "metadata:\n  annotations:\n" + "".join(f"    a{n}: b\n" for n in range(15_000))
    assert len(text) < MOST_BYTES
    assert len(supposition({"pod": text})["pod"]["metadata"]["annotations"]) == 15_000
