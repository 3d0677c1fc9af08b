"""Of too many pods, those end that the controllers of the embedded cluster end."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from stellwerk.explain.supposed_changes import by_deletion
from stellwerk.models.pod import parse_pod
from stellwerk_cluster.controllers import workload
from stellwerk_kube.deletion_cost import DELETION_COST, deletion_cost
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def pod(number: int, random: Random) -> JsonObject:
    """A pod that was ready when it started, which is what a scheduler knows of it."""
    stamp = (NOW - timedelta(seconds=random.choice([1, 2, 3, 40, 50, 9000]))).isoformat()
    stamp = stamp.replace("+00:00", "Z")
    ready = random.random() < 0.7
    made = make_pod(f"p{number}", uid=f"{random.random()}")
    if random.random() < 0.8:
        made["spec"]["nodeName"] = random.choice("abc")
    else:
        ready = False
    if random.random() < 0.3:
        cost = random.choice(["-3", "0", "7", "+7", "07", "many", "99999999999", "-01"])
        made["metadata"]["annotations"] = {DELETION_COST: cost}
    made["metadata"]["creationTimestamp"] = stamp
    condition = {"type": "Ready", "status": f"{ready}", "lastTransitionTime": stamp}
    made["status"] = {
        "phase": "Running" if ready or random.random() < 0.5 else "Pending",
        "startTime": stamp,
        "conditions": [condition],
    }
    return made


@pytest.mark.parametrize("seed", range(50))
def test_pods_end_in_the_order_of_the_controllers(seed: int) -> None:
    random = Random(seed)
    pods = [pod(number, random) for number in range(12)]
    expected = [each["metadata"]["name"] for each in workload.by_deletion(pods, NOW)]
    assert [each.name for each in by_deletion([*map(parse_pod, pods)], NOW)] == expected


@pytest.mark.parametrize(
    ("written", "cost"),
    [
        ("5", 5),
        ("-5", -5),
        ("-05", -5),
        ("0", 0),
        ("05", 0),
        ("+5", 0),
        ("", 0),
        ("five", 0),
        ("2147483647", 2147483647),
        ("2147483648", 0),
        ("-2147483648", -2147483648),
        ("-2147483649", 0),
        ("9" * 100_000, 0),
    ],
)
def test_a_deletion_cost_is_read_as_kube_controller_manager_reads_it(
    written: str, cost: int
) -> None:
    assert deletion_cost({DELETION_COST: written}) == cost
    annotated = make_pod("p")
    annotated["metadata"]["annotations"] = {DELETION_COST: written}
    assert parse_pod(annotated).deletion_cost == cost
    assert deletion_cost(None) == 0
