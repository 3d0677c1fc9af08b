"""What-if by template: thousands of pods that are alike are decided one by one, and counted."""

from typing import Any

import pytest

from stellwerk.answers.what_if import MAX_PODS_ONE_BY_ONE, MAX_TEMPLATE_PODS, Supposition
from stellwerk.explain.steps import OutOfTime
from stellwerk.explain.what_if import what_if
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from tests.support.answers import written
from tests.support.builders import make_node, make_pod, owned
from tests.support.in_process import InProcess, make_profile

TYPE = "node.kubernetes.io/instance-type"
MANY = MAX_PODS_ONE_BY_ONE + 1


def cluster(*objects: JsonObject) -> InProcess:
    """An operator that decides nothing by itself."""
    world = InProcess()
    world.apply(make_profile("default-scheduler"), *objects)
    return world


def nodes(number: int, cpu: str = "4", kind: str = "") -> list[JsonObject]:
    labels = {TYPE: kind} if kind else {}
    return [
        make_node(f"{kind or 'n'}-{each}", cpu=cpu, labels=labels, zone=f"z{each % 3}")
        for each in range(number)
    ]


def template(cpu: str = "1", **fields: Any) -> JsonObject:
    pod = make_pod("work", cpu=cpu, **fields)
    return {"metadata": {"labels": {"app": "work"}}, "spec": pod["spec"]}


def controller(kind: str, replicas: int, **fields: Any) -> JsonObject:
    field = "parallelism" if kind == "Job" else "replicas"
    spec: JsonObject = {field: replicas, "template": template(**fields)}
    if kind != "Job":
        spec["selector"] = {"matchLabels": {"app": "work"}}
    api = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "work"}, "spec": spec}


def asked(world: InProcess, *templates: JsonObject, **more: Any) -> Any:
    supposed = Supposition.of({"templates": list(templates), **more})
    return written(what_if(world.operator.world, supposed))


def test_the_answer_has_counts_by_node_and_by_kind_of_node_and_the_reasons_of_the_rest() -> None:
    world = cluster(*nodes(20, kind="small"), *nodes(4, cpu="8", kind="large"))
    answer = asked(world, {"template": controller("Job", 150)})
    (found,) = answer["templates"]
    assert answer["placed"] == answer["unplaced"] == []
    assert {key: found[key] for key in ("template", "pods", "placed", "unplaced", "nodes")} == {
        "template": "default/Job/work",
        "pods": 150,
        "placed": 112,
        "unplaced": 38,
        "nodes": 24,
    }
    assert found["byKind"] == [
        {"kind": "small", "nodes": 20, "pods": 80},
        {"kind": "large", "nodes": 4, "pods": 32},
    ]
    assert found["byNode"][:5] == [
        *({"node": f"large-{each}", "pods": 8} for each in range(4)),
        {"node": "small-0", "pods": 4},
    ]
    message = "0/24 nodes are available: 24 Insufficient cpu."
    assert [(each["pods"], message in each["message"]) for each in found["reasons"]] == [(38, True)]


def test_nodes_without_an_instance_type_are_named_by_their_shape() -> None:
    gpus = [make_node(f"g{each}", allocatable={"example.com/gpu": "8"}) for each in range(2)]
    answer = asked(cluster(*gpus), {"template": template(), "count": 2})
    assert [each["kind"] for each in answer["templates"][0]["byKind"]] == [
        "4 CPU, 32 GiB, 8 example.com/gpu"
    ]


def test_few_pods_of_templates_are_listed_as_well() -> None:
    answer = asked(cluster(*nodes(3)), {"template": controller("Deployment", 14)})
    (found,) = answer["templates"]
    assert found["listed"]
    assert found["template"] == "default/Deployment/work"
    assert len(answer["placed"]) == found["placed"] == 12
    assert len(answer["unplaced"]) == found["unplaced"] == 2
    assert answer["placed"][0]["pod"] == "default/work-0"
    assert {each["controller"] for each in answer["placed"]} == {"Deployment/work"}


def test_several_templates_share_the_nodes_in_their_order() -> None:
    world = cluster(*nodes(30))
    first, second = asked(
        world,
        {"template": controller("Job", 100)},
        {"template": make_pod("other", cpu="1"), "count": 40},
    )["templates"]
    assert (first["placed"], first["unplaced"]) == (100, 0)
    assert (second["template"], second["placed"], second["unplaced"]) == ("default/other", 20, 20)


def test_a_template_is_decided_as_its_pods_one_by_one() -> None:
    world = cluster(*nodes(7, cpu="20"), make_pod("there", cpu="3", node_name="n-1"))
    pods = []
    for number in range(MANY):
        pod = make_pod(f"work-{number}", cpu="1", uid=f"default/work-{number}")
        pod["metadata"]["labels"] = {"app": "work"}
        pods.append(pod)
    one_by_one = written(what_if(world.operator.world, Supposition(pods=pods)))
    (found,) = asked(world, {"template": make_pod("work", cpu="1", labels={"app": "work"}),
                             "count": MANY})["templates"]  # fmt: skip
    by_node: dict[str, int] = {}
    for each in one_by_one["placed"]:
        by_node[each["node"]] = by_node.get(each["node"], 0) + 1
    assert {each["node"]: each["pods"] for each in found["byNode"]} == by_node


def test_pods_of_a_deployment_are_spread_over_zones_by_default() -> None:
    uneven = [make_node(f"n{each}", cpu="100", zone="a" if each else "b") for each in range(4)]
    world = cluster(*uneven)
    deployed = asked(world, {"template": controller("Deployment", 120, cpu="10m")})
    queued = asked(world, {"template": controller("Job", 120, cpu="10m")})
    (alone,) = [e["pods"] for e in deployed["templates"][0]["byNode"] if e["node"] == "n0"]
    (even,) = [e["pods"] for e in queued["templates"][0]["byNode"] if e["node"] == "n0"]
    assert even < 35
    assert alone > 40


def test_the_pods_of_a_stateful_set_come_one_after_the_other() -> None:
    answer = asked(cluster(*nodes(2)), {"template": controller("StatefulSet", MANY, cpu="2")})
    (found,) = answer["templates"]
    assert (found["placed"], found["unplaced"]) == (4, MANY - 4)
    reasons = {each["message"]: each["pods"] for each in found["reasons"]}
    assert sum(reasons.values()) + found["otherReasons"] == MANY - 4
    assert reasons["its StatefulSet creates it once default/work-4 runs"] == 1


def test_a_stateful_set_that_runs_is_decided_anew_with_claims_of_its_own() -> None:
    volumes = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "absent"}}]
    obj = controller("StatefulSet", 3, cpu="4")
    there = [
        {**owned(make_pod(f"work-{each}", cpu="4", node_name=f"n-{each}"), "work", "StatefulSet")}
        for each in range(2)
    ]
    world = cluster(*nodes(3), *there)
    assert asked(world, {"template": obj})["templates"][0]["placed"] == 3
    obj["spec"]["volumeClaimTemplates"] = volumes
    (found,) = asked(world, {"template": obj})["templates"]
    assert found["placed"] == 0
    assert "unbound immediate PersistentVolumeClaims" in found["reasons"][0]["message"]


def test_a_preemption_is_shown_once_for_all_that_would_preempt() -> None:
    low = [make_pod(f"low-{each}", cpu="4", node_name=f"n-{each}") for each in range(3)]
    world = cluster(*nodes(3), *low)
    urgent = template(cpu="4", priority=10)
    (found,) = asked(world, {"template": urgent, "count": MANY})["templates"]
    (reason,) = found["reasons"]
    assert reason["pods"] == found["unplaced"] == MANY
    assert reason["wouldPreempt"]["victims"][0].startswith("default/low-")


def test_an_answer_that_is_cut_off_says_how_many_pods_are_left() -> None:
    world = cluster(*nodes(3, cpu="1000")).operator.world
    supposed = Supposition.of({"templates": [{"template": template(), "count": 1000}]})
    steps = what_if(world, supposed)
    for _ in range(100):
        next(steps)
    try:
        steps.throw(OutOfTime("enough"))
        while True:
            next(steps)
    except StopIteration as ended:
        answer = ended.value
    (found,) = answer.templates
    assert answer.stopped == "enough"
    assert 0 < found.placed < 1000
    assert found.left_out == answer.left_out == 1000 - found.placed


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        pytest.param([{"template": {}, "count": 10**9}], "a number from 0 to 15,000", id="huge"),
        pytest.param([{"template": {}, "count": True}], "a number from 0", id="no number"),
        pytest.param(
            [{"template": {}, "count": 9000}, {"template": {}, "count": 6001}],
            "15,001 pods; one answer covers at most 15,000",
            id="huge together",
        ),
        pytest.param(
            [{"template": controller("Deployment", 10**12)}],
            "at most 15,000",
            id="a controller's own number",
        ),
        pytest.param([{"template": {}}] * 101, "at most 100", id="many templates"),
        pytest.param([{"templat": {}}], "a list of", id="no template"),
        pytest.param([{"template": {}, "cuont": 1}], 'did you mean "count"', id="misspelt"),
        pytest.param(
            [{"template": {"kind": "DaemonSet"}}], "this is a DaemonSet", id="another kind"
        ),
        pytest.param(
            [{"template": {"kind": "Job", "spec": {"parallelsim": 2}}}],
            '"spec.parallelsim"; did you mean "parallelism"?',
            id="a misspelt field of a controller",
        ),
        pytest.param([7], "a list of", id="no object"),
    ],
)
def test_what_is_malformed_or_too_much_is_refused_at_the_door(
    templates: list[Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match="templates") as refused:
        Supposition.of({"templates": templates})
    assert message in str(refused.value)


def test_two_templates_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two of the pods have the name default/work-0"):
        asked(cluster(*nodes(1)), *[{"template": controller("Job", 2)}] * 2)


def test_no_step_grows_with_the_number_of_pods() -> None:
    """Every pod is a step of its own; nothing is done for all of them at once."""
    world = cluster(*nodes(3, cpu="100000")).operator.world
    numbers = []
    for count in (500, 1000):
        supposed = Supposition.of({"templates": [{"template": template(cpu="1m"), "count": count}]})
        numbers.append(sum(1 for _ in what_if(world, supposed)))
    assert numbers[1] - numbers[0] >= 500
    assert MAX_TEMPLATE_PODS == 15_000
