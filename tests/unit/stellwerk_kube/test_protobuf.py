"""Bodies in protobuf, read by the protobuf library that the embedded cluster uses."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.clock import rfc3339_microseconds
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.protobuf import (
    PROTOBUF,
    event_body,
    fields,
    raw_message,
    read_status,
)
from tests.support.examples import examples
from tests.support.fake_api import object_in, scheduled_event

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=300)
TIMES = st.integers(0, 7_000_000_000_000_000).map(
    lambda after: rfc3339_microseconds(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, after))
)
REFERENCES = st.fixed_dictionaries(
    {"apiVersion": NAMES, "kind": NAMES, "name": NAMES, "uid": NAMES},
    optional={"namespace": NAMES, "resourceVersion": NAMES},
)
EVENTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("events.k8s.io/v1"),
        "kind": st.just("Event"),
        "metadata": st.fixed_dictionaries({"name": NAMES, "namespace": NAMES}),
        "regarding": REFERENCES,
        "eventTime": TIMES,
        "reportingController": NAMES,
        "reportingInstance": NAMES,
        "action": NAMES,
        "reason": NAMES,
        "note": NAMES,
        "type": NAMES,
    },
    optional={
        "related": REFERENCES,
        "series": st.fixed_dictionaries(
            {"count": st.integers(1, 2**31 - 1), "lastObservedTime": TIMES}
        ),
    },
)


@settings(max_examples=examples(100))
@given(EVENTS)
def test_an_event_says_in_protobuf_what_it_says_in_json(event: JsonObject) -> None:
    assert object_in(event_body(event), PROTOBUF) == event


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"deprecatedCount": 1}, id="event"),
        pytest.param({"metadata": {"labels": ""}}, id="metadata"),
        pytest.param({"regarding": {"node": "n"}}, id="reference"),
    ],
)
def test_a_field_that_would_be_lost_is_an_error(more: JsonObject) -> None:
    with pytest.raises(KeyError):
        event_body(scheduled_event() | more)


@settings(max_examples=examples(100))
@given(st.binary(max_size=60))
def test_bytes_of_a_proxy_are_read_or_are_a_value_error(content: bytes) -> None:
    assert read_status(content) is None or content.startswith(b"k8s\0")
    try:
        read_status(b"k8s\0" + content)
        list(fields(content))
    except ValueError:
        pass


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x0a\x05abc", id="a text that is longer than its message"),
        pytest.param(b"\x0a", id="a field without a value"),
        pytest.param(b"\x0b", id="a group, which Kubernetes does not use"),
        pytest.param(b"\x08" + 10 * b"\xff", id="a number of more than 64 bits"),
    ],
)
def test_what_is_no_message_is_a_value_error(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|number"):
        list(fields(message))


def test_numbers_and_fixed_sizes_are_passed_over() -> None:
    message = b"\x08\x96\x01" + b"\x11" + 8 * b"x" + b"\x1d" + 4 * b"y" + b"\x22\x01z"
    assert list(fields(message)) == [(1, 150), (2, 8 * b"x"), (3, 4 * b"y"), (4, b"z")]


def test_a_body_without_an_envelope_is_a_value_error() -> None:
    for body in (b"{}", b"k8s\0\x10\x01"):
        with pytest.raises(ValueError, match="it"):
            raw_message(body)
