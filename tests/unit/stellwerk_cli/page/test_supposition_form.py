"""What-if forms: what they say, and what is refused before it costs anything."""

import re
from typing import Any

import pytest
import yaml

from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_cli.page.supposition_form import MAX_FORM_BYTES, as_shadow, supposition, with_weights
from stellwerk_kube.errors import ConfigurationError

NODE = "kind: Node\nmetadata: {name: big}\n"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\n"


def test_a_form_becomes_a_question() -> None:
    form = {"nodes": f"{NODE}---\n{NODE}", "count": "3", "drain": " node-1 ", "pod": "  "}
    assert supposition(form) == {
        "addNodes": [{"kind": "Node", "metadata": {"name": "big"}}] * 2,
        "count": 3,
        "drain": "node-1",
    }


def test_a_field_of_acts_has_one_a_line() -> None:
    form = {"relabel": " n1 a=b \r\n\r\nn2 a-\n", "scale": "deployment/web=3", "taint": "\n"}
    assert supposition(form) == {"relabel": ["n1 a=b", "n2 a-"], "scale": ["deployment/web=3"]}


def test_a_list_of_kubectl_is_taken_apart() -> None:
    listed = '{"kind": "List", "items": [{"kind": "Node"}, {"kind": "Node"}]}'
    assert len(supposition({"nodes": listed})["addNodes"]) == 2


def test_dates_become_texts() -> None:
    pod = supposition({"pod": "metadata: {creationTimestamp: 2026-01-01T00:00:00Z}"})["pod"]
    assert isinstance(pod["metadata"]["creationTimestamp"], str)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        pytest.param({}, "nothing to decide", id="an empty form"),
        pytest.param({"pod": "a: [1"}, "pod: not YAML: line 2, column 1: ", id="broken YAML"),
        pytest.param({"pod": BOMB}, "pod: aliases", id="a text that grows"),
        pytest.param({"pod": "[" * 5000}, "pod: nested", id="deeply nested"),
        pytest.param({"pod": f"a: {'[' * 60}{']' * 60}"}, "pod: nested", id="nested"),
        pytest.param({"pod": "just a text"}, "pod: a manifest", id="a text"),
        pytest.param({"nodes": "- 1\n- 2"}, "nodes: a manifest", id="numbers"),
        pytest.param({"pod": NODE, "copies": "15001"}, "copies: a number from 1", id="too many"),
        pytest.param({"pod": NODE, "copies": "x"}, "copies: a number from 1", id="no number"),
        pytest.param({"nodes": NODE, "count": "1e3"}, "count: ", id="no number"),
        pytest.param({"nodes": NODE, "count": "0"}, "count: ", id="none"),
        pytest.param({"nodes": NODE, "count": "9" * 9999}, "count: ", id="a huge number"),
        pytest.param({"pod": "a: !!binary /w=="}, "not YAML", id="bytes"),
        pytest.param({"pod": "a: !!python/object/new:os.system [ls]"}, "not YAML", id="objects"),
        pytest.param(
            {"pod": f"a: {10**40}"}, "JSON cannot hold", id="a number that JSON cannot hold"
        ),
        pytest.param({"pod": "? [a]\n: b"}, "not YAML", id="a key that is a list"),
        pytest.param({"pod": "\x00"}, "not YAML", id="a control character"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(form: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as raised:
        supposition(form)
    assert "\n" not in str(raised.value)


def test_the_largest_form_is_read() -> None:
    text = "metadata:\n  annotations:\n" + "".join(f"    a{n}: b\n" for n in range(15_000))
    assert len(text) < MAX_FORM_BYTES
    assert len(supposition({"pod": text})["pod"]["metadata"]["annotations"]) == 15_000


def test_other_weights_are_written_beside_those_of_the_spec() -> None:
    weights = {"ImageLocality": 2, "NodeResourcesFit": 3}
    spec = {"schedulerName": "s", "mode": "Observe", "weights": weights}
    profile = with_weights(spec, "packing", {"NodeResourcesFit": "9"})
    assert profile["spec"]["weights"] == {"ImageLocality": 2, "NodeResourcesFit": 9}
    assert weights == {"ImageLocality": 2, "NodeResourcesFit": 3}
    shadow: Any = yaml.safe_load(as_shadow(profile))
    assert shadow["metadata"] == {"name": "packing-next"}
    assert shadow["spec"] == {"shadowOf": "packing", "weights": profile["spec"]["weights"]}
    loaded = load_profile({**shadow, "metadata": {"name": "n", "uid": "u"}}, known_plugins())
    assert loaded.plugins.weights["NodeResourcesFit"] == 9


@pytest.mark.parametrize("text", ["", "0", "101", "-1", "1.5", "x", "1000"])
def test_a_weight_is_a_number_that_a_profile_may_have(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a weight is a number from 1 to 100"):
        with_weights({}, "packing", {"NodeResourcesFit": text})


def test_no_other_weight_is_nothing_to_try() -> None:
    with pytest.raises(ConfigurationError, match="no weight was changed"):
        with_weights({}, "packing", {})


def test_pods_are_asked_for_by_template_if_they_are_several() -> None:
    pod, job = "kind: Pod\nmetadata: {name: p}\n", "kind: Job\nmetadata: {name: j}\n"
    assert supposition({"pod": pod, "copies": "1"}) == {"pod": {"kind": "Pod", **NAMED}}
    many = supposition({"pod": pod, "copies": "10000"})
    assert many == {"templates": [{"template": {"kind": "Pod", **NAMED}, "count": 10_000}]}
    (written,) = supposition({"pod": job})["templates"]
    assert written == {"template": {"kind": "Job", "metadata": {"name": "j"}}}
    assert len(supposition({"pod": f"{pod}---\n{job}"})["templates"]) == 2


NAMED = {"metadata": {"name": "p"}}
