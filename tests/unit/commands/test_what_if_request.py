"""`--set` reaches any field of the pod, and refuses what is no path."""

from typing import Any

import pytest

from stellwerk.commands.what_if_request import set_field
from stellwerk.errors import ConfigurationError


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        pytest.param("spec.priority=1000", {"spec": {"priority": 1000}}, id="a number"),
        pytest.param(
            "spec.nodeSelector.disk=ssd",
            {"spec": {"nodeSelector": {"disk": "ssd"}}},
            id="a field of a field that is not there",
        ),
        pytest.param(
            "spec.tolerations=[{key: a, operator: Exists}]",
            {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
            id="a list",
        ),
    ],
)
def test_a_field_is_set(assignment: str, expected: dict[str, Any]) -> None:
    pod: dict[str, Any] = {}
    set_field(pod, assignment)
    assert pod == expected


def test_an_entry_of_a_list_is_set() -> None:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "a"}]}}
    set_field(pod, "spec.containers.0.image=b")
    assert pod["spec"]["containers"] == [{"name": "a", "image": "b"}]


@pytest.mark.parametrize(
    "assignment", ["spec", "=1", "a..b=1", "list.9.a=1", "text.a.b=1", "a=[", "list.x=1"]
)
def test_what_is_no_path_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError, match="--set"):
        set_field({"list": [], "text": "t"}, assignment)
