"""Which pods of too many go first."""

from datetime import UTC, datetime, timedelta

import pytest

from stellwerk_cluster.apimachinery.objects import timestamp
from stellwerk_cluster.controllers.workload import by_deletion
from stellwerk_kube.json_values import JsonObject

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def pod(
    name: str,
    *,
    node: str = "a",
    phase: str = "Running",
    ready: int | None = 1000,
    cost: str | None = None,
    restarts: int = 0,
    age: int = 1000,
) -> JsonObject:
    """`ready` and `age` are seconds ago."""
    condition = {"type": "Ready", "status": "False" if ready is None else "True"}
    condition["lastTransitionTime"] = timestamp(NOW - timedelta(seconds=ready or 0))
    key = "controller.kubernetes.io/pod-deletion-cost"
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "annotations": {} if cost is None else {key: cost},
            "creationTimestamp": timestamp(NOW - timedelta(seconds=age)),
        },
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": [condition],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(pod("z", node=""), pod("a", phase="Pending"), id="unbound before pending"),
        pytest.param(pod("z", phase="Pending"), pod("a", ready=None), id="pending before running"),
        pytest.param(pod("z", ready=None), pod("a", cost="-5"), id="not ready before any cost"),
        pytest.param(pod("z", cost="-5"), pod("a"), id="the lower cost"),
        pytest.param(pod("z"), pod("a", cost="7"), id="no cost is 0"),
        pytest.param(pod("z", cost="-1"), pod("a", cost="much"), id="what is no number is 0"),
        pytest.param(pod("z", ready=10), pod("a", restarts=9), id="ready for a shorter time"),
        pytest.param(pod("z", restarts=3), pod("a", restarts=1), id="restarted more often"),
        pytest.param(pod("z", age=10, ready=9), pod("a", ready=9), id="the younger one"),
        pytest.param(pod("a", ready=600), pod("z", ready=1000), id="of one magnitude, by the uid"),
    ],
)
def test_what_goes_first(first: JsonObject, second: JsonObject) -> None:
    assert by_deletion([second, first], NOW) == [first, second]
    assert by_deletion([first, second], NOW) == [first, second]


def test_pods_on_fuller_nodes_go_first() -> None:
    pods = [pod("1", node="b"), pod("2", node="a"), pod("3", node="a")]
    assert [each["metadata"]["name"] for each in by_deletion(pods, NOW)] == ["2", "3", "1"]
