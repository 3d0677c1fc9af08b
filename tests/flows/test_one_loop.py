"""The operator, a simulation and a rerun drive one scheduling loop: the same nodes, the same times.

Each story is told three times: by the operator on a virtual loop, by a simulation, and by a rerun
of what the operator recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.manifests import ARRIVES, RUNS
from tests.support.builders import make_node, make_pod
from tests.support.pod_groups import make_group
from tests.support.same_workload import Workload, operated_and_rerun, simulated

PRIORITIES = (1, 3, 5, 10)
UNTIL_SECONDS = 12.0
QUEUE = {"scheduling.stellwerk.dev/queue": "training"}
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


def gang(
    name: str,
    size: int,
    arrives: float,
    runs: float | None = None,
    *,
    group: str = "",
    **fields: Any,
) -> list[JsonObject]:
    """The members of a group, which has their name or another one."""
    members = [pod(f"{name}{n}", arrives, runs, cpu="1", **fields) for n in range(size)]
    for member in members:
        member["spec"]["schedulingGroup"] = {"podGroupName": group or name}
    return members


def group(
    name: str, size: int, annotations: Mapping[str, str] | None = None, **spec: Any
) -> JsonObject:
    made = make_group(name, size, annotations, **spec)
    del made["metadata"]["uid"]
    return made


GROUP_STORIES = [
    pytest.param(
        [group("g", 4)],
        [pod("a", runs=3, cpu="1"), *gang("g", 4, 0.5)],
        ["0.0000 a on n", *(f"3.0000 g{n} on n" for n in range(4))],
        id="a gang of four waits until it fits as a whole",
    ),
    pytest.param(
        [group("g", 4, priorityClassName="p10")],
        [*(pod(f"low{n}", cpu="2") for n in range(2)), *gang("g", 4, 1.5, priority=10)],
        [
            "0.0000 low0 on n",
            "0.0000 low1 on n",
            *(f"1.5000 g{n} on n" for n in range(4)),
            "1.5000 low0 preempted",
            "1.5000 low1 preempted",
        ],
        id="a gang evicts what it needs",
    ),
    pytest.param(
        [group("g", 3)],
        [*gang("g", 2, 0), *gang("late", 1, 2.25, group="g")],
        ["2.2500 g0 on n", "2.2500 g1 on n", "2.2500 late0 on n"],
        id="a gang waits for the last of its members",
    ),
    pytest.param(
        [group("first", 4, QUEUE), group("second", 1, QUEUE)],
        [
            pod("a", runs=3, cpu="2", activeDeadlineSeconds=60),
            *gang("first", 4, 0.5, 2),
            *gang("second", 1, 1),
        ],
        ["0.0000 a on n", *(f"3.0000 first{n} on n" for n in range(4)), "5.0000 second0 on n"],
        id="a gang of a queue is placed behind the first, and beside its room alone",
    ),
    pytest.param(
        [group("first", 8, QUEUE), group("second", 1, QUEUE)],
        [*gang("first", 8, 0.5), *gang("second", 1, 1)],
        [],
        id="a gang is held while no room can be kept for the first",
    ),
]


@pytest.mark.parametrize(("groups", "pods", "story"), GROUP_STORIES)
def test_each_driver_tells_the_same_story_of_groups(
    groups: Sequence[JsonObject], pods: Sequence[JsonObject], story: Sequence[str]
) -> None:
    room = {"maxNodes": "100%", "maxSeconds": 100_000}
    args = {"strictQueues": True, "reservation": room}
    spec = {
        "schedulerName": "gangs",
        "gangScheduling": True,
        "pluginConfig": [{"name": "GangScheduling", "args": args}],
    }
    workload = Workload(
        [make_node("n", cpu="4")],
        pods,
        [*CLASSES, *groups],
        {"spec": spec},
        feature_gates=GANGS,
    )
    simulation, _ = simulated(workload)
    operator, rerun = operated_and_rerun(workload, UNTIL_SECONDS)
    assert sorted(operator) == story
    assert sorted(simulation) == story
    # In the end the pods that wait are deleted, one after the other.
    assert sorted(each for each in rerun if float(each.split()[0]) < UNTIL_SECONDS) == story


DRIVER = "gpu.example.com"


def devices(node: str, count: int) -> JsonObject:
    """What the driver of a node's devices publishes."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        },
    }


def asked(count: int) -> JsonObject:
    exactly = {"deviceClassName": DRIVER, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def template(name: str, count: int) -> JsonObject:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": asked(count)},
    }


def claim(name: str, count: int) -> JsonObject:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": asked(count),
    }


def of_template(pods: Sequence[JsonObject], name: str) -> list[JsonObject]:
    for each in pods:
        reference = {"name": "gpus", "resourceClaimTemplateName": name}
        each["spec"]["resourceClaims"] = [reference]
    return list(pods)


def of_claim(pods: Sequence[JsonObject], name: str) -> list[JsonObject]:
    for each in pods:
        each["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
    return list(pods)


DEVICES: Sequence[JsonObject] = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    },
    devices("n1", 2),
    devices("n2", 1),
    template("one", 1),
    template("two", 2),
    claim("shared", 2),
]

CLAIM_STORIES = [
    pytest.param(
        [
            *of_template([pod("a", runs=3, cpu="1"), pod("b", 0.25, cpu="1")], "two"),
            *of_template([pod("c", 0.5, cpu="1"), pod("d", 0.75, cpu="1")], "one"),
        ],
        ["0.0000 a on n1", "0.5000 c on n2", "3.0000 b on n1"],
        id="claims from templates hold devices until their pods have gone",
    ),
    pytest.param(
        of_claim([pod(f"p{n}", n / 2, runs=2, cpu="1") for n in range(3)], "shared"),
        ["0.0000 p0 on n1", "0.5000 p1 on n1", "1.0000 p2 on n1"],
        id="pods that share a claim share a node",
    ),
    pytest.param(
        [
            *of_template([pod("low", cpu="4", priority=1, node="n1")], "one"),
            *of_template([pod("high", 1.5, 1, cpu="4", priority=10, node="n1")], "one"),
            *of_template([pod("late", 2, cpu="1", node="n1")], "two"),
        ],
        ["0.0000 low on n1", "1.5000 high on n1", "1.5000 low preempted", "2.5000 late on n1"],
        id="a victim gives its devices back",
    ),
    pytest.param(
        [
            *of_template([pod("a", runs=3, cpu="1")], "two"),
            *of_template(gang("g", 3, 0.5), "one"),
        ],
        ["0.0000 a on n1", "3.0000 g0 on n1", "3.0000 g1 on n2", "3.0000 g2 on n1"],
        id="a gang whose members each ask for a device waits for all of them",
    ),
    pytest.param(
        [
            *of_template([pod("a", runs=3, cpu="1")], "two"),
            *of_template(gang("s", 3, 0.5), "two"),
        ],
        ["0.0000 a on n1", *(f"3.0000 s{n} on n1" for n in range(3))],
        id="a gang shares the claim that is made for it",
    ),
]


@pytest.mark.parametrize(("pods", "story"), CLAIM_STORIES)
def test_each_driver_tells_the_same_story_of_claims(
    pods: Sequence[JsonObject], story: Sequence[str]
) -> None:
    nodes = [make_node("n1", cpu="4"), make_node("n2", cpu="4")]
    spec = {"schedulerName": "gangs", "gangScheduling": True, "tieBreak": "NodeRank"}
    reference = {"name": "gpus", "resourceClaimTemplateName": "two"}
    groups = [group("g", 3), group("s", 3, resourceClaims=[reference])]
    others = [*CLASSES, *groups, *DEVICES]
    gates = GANGS | {CLAIMS}
    workload = Workload(nodes, pods, others, {"spec": spec}, feature_gates=gates)
    simulation, _ = simulated(workload)
    operator, rerun = operated_and_rerun(workload, UNTIL_SECONDS)
    assert sorted(operator) == story
    assert sorted(simulation) == story
    assert sorted(each for each in rerun if float(each.split()[0]) < UNTIL_SECONDS) == story
