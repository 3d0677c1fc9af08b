"""What PodDisruptionBudgets allow while pods of a simulation come and go."""

from typing import Any

import pytest

from stellwerk.errors import ConfigurationError
from stellwerk.models.json_values import JsonObject
from stellwerk_simulation.budgets import Budgets
from stellwerk_simulation.cluster import ActivePods, make_world
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.ready_profiles import profile_of
from tests.support.builders import pod_info


def budget(**spec: Any) -> JsonObject:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"disruptionsAllowed": 99},
    }


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        pytest.param({"minAvailable": 2}, 1, id="a number that must be there"),
        pytest.param({"minAvailable": "60%"}, 0, id="a share of the expected, rounded up"),
        pytest.param({"maxUnavailable": 2}, 1, id="one is missing anyway"),
        pytest.param({"maxUnavailable": "25%"}, 0, id="a share that may be away, rounded up"),
        pytest.param({}, 2, id="one must be there if nothing is said"),
    ],
)
def test_what_is_allowed_with_three_of_four_pods_on_nodes(
    spec: dict[str, Any], allowed: int
) -> None:
    cluster_objects = ClusterObjects((budget(**spec),), "x")
    world = make_world([], profile_of("default", []), 0, ActivePods(), cluster_objects)
    budgets = Budgets(world, "x")
    others = (
        pod_info("other", labels={"app": "db"}),
        pod_info("w", namespace="b", labels={"app": "web"}),
    )
    for pod in others:
        budgets.arrived(pod)
        budgets.bound(pod)
    pods = [pod_info(f"p{number}", labels={"app": "web"}) for number in range(5)]
    for pod in pods:
        budgets.arrived(pod)
    for pod in pods[:4]:
        budgets.bound(pod)
    budgets.gone(pods[0].with_node("n"))
    [shown] = world.objects.list("PodDisruptionBudget")
    assert shown["status"]["disruptionsAllowed"] == allowed


def test_a_budget_that_is_wrong_is_named() -> None:
    cluster_objects = ClusterObjects((budget(minAvailable="some"),), "x.yaml")
    world = make_world([], profile_of("default", []), 0, ActivePods(), cluster_objects)
    message = r"x\.yaml, PodDisruptionBudget web: 'some' is neither a number of pods nor a perc"
    with pytest.raises(ConfigurationError, match=message):
        Budgets(world, "x.yaml")
