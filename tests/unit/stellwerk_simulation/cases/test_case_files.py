"""Cases from lines, from kubectl's lists and from YAML."""

import json
from typing import Any

import pytest
import yaml

from stellwerk_kube.errors import AbsentError, ConfigurationError
from stellwerk_simulation.cases.case_files import read_cases
from stellwerk_simulation.cases.decide import decide
from tests.support.builders import make_node, make_pod

OBJECTS: list[dict[str, Any]] = [
    {"kind": "Node", "apiVersion": "v1", **make_node("a", cpu="2")},
    make_pod("bound", cpu="1", node_name="a"),
    make_pod("one", cpu="1"),
    make_pod("two", cpu="2"),
    {
        "kind": "SchedulerProfile",
        "metadata": {"name": "p"},
        "spec": {"schedulerName": "default-scheduler"},
    },
]
LIST = {"kind": "List", "apiVersion": "v1", "items": OBJECTS}


def cases(text: str, pod: str = "") -> list[Any]:
    return [case for _, case in read_cases(text.encode().splitlines(keepends=True), pod)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(LIST), id="JSON in one line"),
        pytest.param(json.dumps(LIST, indent=2), id="JSON as kubectl prints it"),
        pytest.param(yaml.safe_dump(LIST), id="a list in YAML"),
        pytest.param(yaml.safe_dump_all(OBJECTS), id="documents in YAML"),
    ],
)
def test_every_pending_pod_of_a_cluster_is_a_case(text: str) -> None:
    found = {case["id"]: decide(case)["selected"] for case in cases(text)}
    assert found == {"default/one": ["a"], "default/two": []}


def test_one_pod_is_decided_as_if_it_had_no_node() -> None:
    (case,) = cases(json.dumps(LIST), "default/bound")
    assert decide(case)["selected"] == ["a"]


def test_items_of_a_list_of_one_kind_have_that_kind() -> None:
    node = {key: value for key, value in OBJECTS[0].items() if key != "kind"}
    text = yaml.safe_dump_all([{"kind": "NodeList", "items": [node]}, OBJECTS[2]])
    assert [len(case["nodes"]) for case in cases(text)] == [1]


def test_a_pretty_printed_case_is_a_case() -> None:
    case = {"id": "a", "nodes": [make_node("a")], "pod": make_pod("web")}
    assert [each["id"] for each in cases(json.dumps(case, indent=2))] == ["a"]
    assert [each["id"] for each in cases(yaml.safe_dump(case))] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "line 1: not JSON", id="broken JSON"),
        pytest.param("a: [", "neither JSON nor YAML", id="broken YAML"),
        pytest.param("[]", "not a case", id="no object"),
        pytest.param("kind: Node\n---\n3\n", "an object, not 3", id="a number among manifests"),
        pytest.param(json.dumps(OBJECTS[0]), "no pod is pending beside 1 Node", id="no pod"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cases(text)


def test_an_export_of_the_simulator_in_one_line_is_no_case() -> None:
    nodes, pods = ([each for each in OBJECTS if each["kind"] == kind] for kind in ("Node", "Pod"))
    export = {"nodes": nodes, "pods": pods, "storageClasses": [], "pvs": None}
    line = json.dumps(export)
    assert "\n" not in line
    assert cases(line) == cases(yaml.safe_dump_all([*nodes, *pods]))
    record = {"time": "2024-01-01T00:00:00Z", "event": "Add", "resource": OBJECTS[0]}
    with pytest.raises(ConfigurationError, match="a record of kube-scheduler-simulator"):
        cases("\n".join([json.dumps(record)] * 2))


def test_an_unknown_pod_is_refused() -> None:
    with pytest.raises(AbsentError, match="default/none is not there"):
        cases(json.dumps(LIST), "default/none")


BATCH = {
    "kind": "SchedulerProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "schedulerName": "batch",
        "selector": {"namespaceSelector": {"matchLabels": {"team": "batch"}}},
        "plugins": {"filter": {"disabled": [{"name": "NodeResourcesFit"}]}},
    },
}


def with_namespace(**labels: str) -> str:
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
    return yaml.safe_dump_all([*OBJECTS, BATCH, namespace])


def test_a_selector_chooses_the_profile_as_in_the_operator() -> None:
    def nodes(text: str) -> Any:
        (case,) = cases(text, "default/two")
        return decide(case)["selected"]

    assert nodes(with_namespace(team="batch")) == ["a"], "the filter that refuses is disabled"
    assert nodes(with_namespace(team="web")) == []


def test_a_namespace_that_decides_must_be_among_the_objects() -> None:
    with pytest.raises(ConfigurationError, match="depends on the labels of the namespace default"):
        cases(yaml.safe_dump_all([*OBJECTS, BATCH]))
    broken = {**BATCH, "spec": {"schedulerName": "batch", "selector": {}}}
    with pytest.raises(ConfigurationError, match=r"SchedulerProfile batch: spec.selector: needs"):
        cases(yaml.safe_dump_all([*OBJECTS, broken]))


def _controller(kind: str, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": make_pod("a")["spec"]}
    spec |= {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "c"}, "spec": spec}


def test_a_daemon_set_has_a_pod_on_each_node_however_many_there_are() -> None:
    nodes = [{"kind": "Node", "apiVersion": "v1", **make_node(f"n{at}")} for at in range(1200)]
    objects = json.dumps({"kind": "List", "items": [*nodes, _controller("DaemonSet")]})
    assert len({case["id"] for case in cases(objects)}) == len(nodes)


def test_each_pod_of_a_large_controller_can_be_named() -> None:
    objects = {"kind": "List", "items": [OBJECTS[0], _controller("StatefulSet", replicas=1500)]}
    [case] = cases(json.dumps(objects), "default/c-1400")
    assert case["id"] == "default/c-1400"
    objects["items"] = [_controller("StatefulSet", replicas=15_001)]
    with pytest.raises(ConfigurationError, match="a StatefulSet of more than 15,000 pods"):
        cases(json.dumps(objects), "default/c-1400")


def test_a_pod_that_is_listed_twice_is_decided_once_as_the_last_one_says() -> None:
    objects = [OBJECTS[0], make_pod("one", cpu="4"), make_pod("one", cpu="1")]
    [case] = cases(yaml.safe_dump_all(objects))
    assert decide(case)["selected"] == ["a"]


@pytest.mark.parametrize("before", ["", "\n\n"])
def test_a_mistake_in_yaml_is_named_by_its_line_in_the_file(before: str) -> None:
    text = f"{before}kind: Pod\n\nmetadata: [a}}\n"
    with pytest.raises(ConfigurationError, match=rf"line {3 + len(before)}, column 13"):
        cases(text)
