"""The operator, a simulation and a rerun drive one scheduling loop: the same nodes, the same times.

Each story is told three times: by the operator on a virtual loop, by a simulation, and by a rerun
of what the operator recorded.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from stellwerk.models.json_values import JsonObject
from stellwerk_simulation.manifests import ARRIVES, RUNS
from tests.support.builders import make_node, make_pod
from tests.support.same_workload import Workload, operated_and_rerun, simulated

PRIORITIES = (1, 3, 5, 10)
CLASSES: Sequence[JsonObject] = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"p{value}"},
        "value": value,
    }
    for value in PRIORITIES
]


def pod(
    name: str,
    arrives: float = 0,
    runs: float | None = None,
    *,
    priority: int = 0,
    node: str = "",
    **fields: Any,
) -> JsonObject:
    if priority:
        fields["priorityClassName"] = f"p{priority}"
    if node:
        fields["nodeSelector"] = {"kubernetes.io/hostname": node}
    made = make_pod(name, **fields)
    del made["metadata"]["uid"]
    made["metadata"]["annotations"] = {ARRIVES: str(arrives)}
    if runs is not None:
        made["metadata"]["annotations"][RUNS] = str(runs)
    return made


def beside(app: str) -> JsonObject:
    """Affinity to the pods of an app, on their node."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


STORIES = [
    pytest.param(
        [make_node("n", cpu="1")],
        [pod("a", runs=0.1, cpu="1"), pod("b", cpu="1")],
        ["0.0000 a on n", "0.1000 b on n"],
        id="a pod in backoff is bound as soon as it fits, since activeQ is empty",
    ),
    pytest.param(
        [make_node("n", cpu="1")],
        [
            pod("a", runs=7.5, cpu="1"),
            pod("b", cpu="1"),
            *(pod(f"c{n}", 0.25 + n, cpu="2") for n in range(4)),
        ],
        ["0.0000 a on n", "7.5000 b on n"],
        id="others that fit nowhere do not hold it up",
    ),
    pytest.param(
        [make_node("n1", cpu="5"), make_node("n2", cpu="4")],
        [
            pod("low1", cpu="2", node="n1"),
            pod("low2", cpu="2", node="n1"),
            pod("batch", 0.1, cpu="4", priority=3),
            pod("high", 0.2, cpu="4", priority=10, affinity=beside("db")),
            pod("db", 0.2, cpu="1", priority=10, labels={"app": "db"}),
            pod("mid", 0.2, cpu="4", priority=5),
        ],
        [
            "0.0000 low1 on n1",
            "0.0000 low2 on n1",
            "0.1000 batch on n2",
            "0.2000 batch preempted",
            "0.2000 db on n1",
            "0.2000 high on n1",
            "0.2000 low1 preempted",
            "0.2000 low2 preempted",
            "0.2000 mid on n2",
        ],
        id="a pod of lower priority gives up its nomination and evicts on another node",
    ),
    pytest.param(
        [make_node("n", cpu="4")],
        [
            *(pod(f"low{n}", cpu="1") for n in range(4)),
            pod("high", 1.5, cpu="3", priority=10),
            pod("late", 1.5, cpu="1", priority=10),
            pod("small", 1.5, cpu="1"),
        ],
        [
            "0.0000 low0 on n",
            "0.0000 low1 on n",
            "0.0000 low2 on n",
            "0.0000 low3 on n",
            "1.5000 high on n",
            "1.5000 late on n",
            "1.5000 low0 preempted",
            "1.5000 low1 preempted",
            "1.5000 low2 preempted",
            "1.5000 low3 preempted",
        ],
        id="a preemptor is gated until its last victim is gone",
    ),
]


@pytest.mark.parametrize(("nodes", "pods", "story"), STORIES)
def test_each_driver_tells_the_same_story(
    nodes: Sequence[JsonObject], pods: Sequence[JsonObject], story: Sequence[str]
) -> None:
    workload = Workload(nodes, pods, CLASSES)
    simulation, ended_seconds = simulated(workload)
    operator, rerun = operated_and_rerun(workload, ended_seconds)
    # What happens at the same time is told in the order of the names.
    assert sorted(operator) == story
    assert sorted(simulation) == story
    assert sorted(rerun) == story
