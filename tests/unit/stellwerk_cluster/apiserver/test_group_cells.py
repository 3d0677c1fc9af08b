from datetime import UTC, datetime
from typing import Any

import pytest

from stellwerk_cluster.apiserver.group_cells import PLACED, WAITING, group_policy, group_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def group(*conditions: tuple[str, str, str], policy: str = "gang") -> dict[str, Any]:
    listed = [dict(zip(("type", "status", "reason"), each, strict=True)) for each in conditions]
    return {"spec": {"schedulingPolicy": {policy: {}}}, "status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(group(), "Pending", id="nothing was said yet"),
        pytest.param(group(("PodGroupScheduled", "True", "Scheduled")), "Scheduled", id="placed"),
        pytest.param(
            group(("PodGroupScheduled", "False", "Unschedulable")), "Unschedulable", id="not placed"
        ),
        pytest.param(
            group(
                ("PodGroupScheduled", "True", "Scheduled"),
                ("DisruptionTarget", "True", "PreemptionByScheduler"),
            ),
            "PreemptionByScheduler",
            id="about to be disrupted",
        ),
        pytest.param(
            group(("PodGroupScheduled", "True", "Scheduled"), (WAITING, "True", "WaitingForPods")),
            "WaitingForPods",
            id="placed before, waiting again",
        ),
        pytest.param(
            group(("PodGroupScheduled", "True", "Scheduled"), (WAITING, "False", "Scheduled")),
            "Scheduled",
            id="placed again",
        ),
    ],
)
def test_the_status_is_one_word(obj: dict[str, Any], expected: str) -> None:
    assert group_status(obj, NOW) == expected


def test_the_status_says_how_many_pods_are_placed_where_a_condition_does() -> None:
    obj = group(("PodGroupScheduled", "False", "Unschedulable"), (PLACED, "False", "Waiting"))
    obj["status"]["conditions"][1]["message"] = "2/4 pods are placed, 3 exist"
    assert group_status(obj, NOW) == "Unschedulable (2/4)"


def test_the_policy_is_one_word() -> None:
    assert [group_policy(group(policy=each), NOW) for each in ("gang", "basic")] == [
        "Gang",
        "Basic",
    ]
