"""Annotations of groups: what they say, and what is said where they cannot be used."""

from typing import Any

import pytest

from stellwerk.models.pod_group import parse_group_annotations, parse_pod_group
from tests.support.pod_groups import make_group

OURS = "scheduling.stellwerk.dev/"


def test_every_annotation_is_read() -> None:
    said = parse_group_annotations(
        {
            f"{OURS}topology": "example.com/block",
            f"{OURS}preferred-topology": "example.com/block, example.com/rack",
            f"{OURS}min-count-by-role": "launcher=1, worker=3",
            f"{OURS}give-back-seconds": "600",
            f"{OURS}reserves-room": "true",
            f"{OURS}queue": "training",
            "example.com/other": "anything",
        }
    )
    assert said.topology == ("example.com/block",)
    assert said.preferred_topology == ("example.com/block", "example.com/rack")
    assert said.min_count_by_role == {"launcher": 1, "worker": 3}
    assert (said.give_back_seconds, said.reserves_room, said.queue) == (600, True, "training")
    assert said.problems == ()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("topology", "not a key", "topology: 'not a key' is not a label key"),
        ("preferred-topology", "a,b,c,d,e", "at most 4 label keys, not 5"),
        ("min-count-by-role", "launcher", "'launcher' is not ROLE=NUMBER"),
        ("min-count-by-role", "worker=-1", "'worker=-1' is not ROLE=NUMBER"),
        pytest.param(
            "min-count-by-role",
            ",".join(f"r{number}=1" for number in range(40)),
            "at most 32 roles, not 40",
            id="many roles",
        ),
        ("give-back-seconds", "10m", "'10m' is not a number of seconds"),
        ("give-back-seconds", "0", "'0' is not a number of seconds"),
        pytest.param(
            "give-back-seconds", "9" * 5000, "is not a number of seconds", id="many digits"
        ),
        ("reserves-room", "yes", "'yes' is neither true nor false"),
        ("queue", "no/name", "'no/name' is not a name"),
        ("min-count-per-role", "a=1", 'did you mean "scheduling.stellwerk.dev/min-count-by-role"?'),
    ],
)
def test_what_cannot_be_used_changes_nothing_and_is_named(
    name: str, value: str, problem: str
) -> None:
    said = parse_group_annotations({f"{OURS}{name}": value})
    (found,) = said.problems
    assert found.startswith(f"{OURS}{name}: ")
    assert problem in found
    nothing = parse_group_annotations({})
    assert (said.topology, said.min_count_by_role) == (nothing.topology, nothing.min_count_by_role)
    assert (said.give_back_seconds, said.queue) == (None, "")


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        pytest.param({}, False, id="the same again"),
        pytest.param({"status": {"conditions": [{"type": "A"}]}}, False, id="a condition"),
        pytest.param(
            {"metadata": {"name": "g", "uid": "group-g", "resourceVersion": "9"}},
            False,
            id="a version",
        ),
        pytest.param({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}, True, id="fewer"),
        pytest.param({"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}, False, id="more"),
        pytest.param(
            {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}, "priority": 7}},
            True,
            id="more, and something else",
        ),
    ],
)
def test_a_group_is_tried_again_if_it_asks_for_fewer_or_something_else(
    change: dict[str, Any], *, helps: bool
) -> None:
    before = make_group("g", 3)
    after = before | change
    assert parse_pod_group(after).is_worth_retrying_after(parse_pod_group(before)) is helps
