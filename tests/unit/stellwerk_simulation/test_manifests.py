"""Clusters in Kubernetes' own words, as input of a simulation."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk_cli.cli import main
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import read_objects
from stellwerk_simulation.manifests import ARRIVES, RUNS, nodes_of, pods_of
from tests.support.builders import make_node, make_pod


def listed(kind: str, *objects: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "items": [{**each, "kind": kind} for each in objects]}


def a_cluster(tmp_path: Path) -> Path:
    """What `kubectl get nodes,pods -o json` prints: six nodes that three would do for."""
    nodes = [make_node(f"n{number}", cpu="4", memory="8Gi") for number in range(6)]
    pods = [
        make_pod(f"p{number}", cpu="1", memory="1Gi", node_name=f"n{number}") for number in range(6)
    ]
    agents = [
        make_pod(f"agent-{number}", cpu="100m", node_name=f"n{number}") for number in range(6)
    ]
    for number, agent in enumerate(agents):
        agent["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "uid": "a"}]
        named = {"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}
        terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        agent["spec"]["affinity"] = {"nodeAffinity": required}
    path = tmp_path / "cluster.json"
    items = listed("Node", *nodes)["items"] + listed("Pod", *pods, *agents)["items"]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def test_a_cluster_as_kubectl_prints_it(tmp_path: Path) -> None:
    objects = read_objects(a_cluster(tmp_path))
    assert len(nodes_of(objects, "x")) == 6
    assert len(pods_of(objects, "x")) == 12


def test_pods_at_their_end_are_left_out() -> None:
    done, going = make_pod("done"), make_pod("going")
    done["status"]["phase"] = "Succeeded"
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects = listed("Pod", done, going, make_pod("stays"))["items"]
    assert [pod.name for pod in pods_of(objects, "x")] == ["default/stays"]


def test_yaml_that_is_none_is_named_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("kind: Pod\nmetadata: [\n")
    with pytest.raises(ConfigurationError, match=r"pods\.yaml, line 3, column 1: not YAML: "):
        read_objects(path)


def test_yaml_that_would_end_the_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigurationError, match=r"pods\.yaml: nested more than 400 deep, in"):
        read_objects(path)


def test_two_profiles_on_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(a_cluster(tmp_path))
    packing = tmp_path / "packing.yaml"
    fit = {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    }
    profile = {
        "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": "packing"},
        "spec": {
            "schedulerName": "packing",
            "plugins": {
                "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}
            },
            "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
        },
    }
    packing.write_text(yaml.safe_dump(profile))
    arguments = ["--nodes", path, "--pods", path, "--compare", "default", str(packing)]
    assert main(["simulate", *arguments, "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (nodes,) = [line for line in lines if line.startswith("nodes in use")]
    assert nodes.split()[3:6] == ["6", "2", "-4.0"]


def test_arrivals_and_departures_of_manifests(tmp_path: Path) -> None:
    late = make_pod("late")
    late["metadata"]["annotations"] = {ARRIVES: "90", RUNS: "30.5"}
    early = make_pod("early")
    early["metadata"]["annotations"] = {ARRIVES: "60"}
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([{**pod, "kind": "Pod"} for pod in (late, early)]))
    pods = pods_of(read_objects(path), "pods.yaml")
    assert [(pod.arrives_seconds, pod.runs_seconds) for pod in pods] == [(0, None), (30, 30.5)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", r"pods\.json, line 1, column 2: not JSON"),
        ('{"kind": "List", "items": []}', r"pods\.json: there is no Pod"),
        ('{"kind": "List", "items": [4]}', r"an item of a List is not an object"),
        (
            '{"kind": "Pod", "metadata": {"name": "a", "annotations": {"'
            + RUNS
            + '": "long"}}, "spec": {"containers": []}}',
            r"pods\.json, Pod a: annotation .*'long' is not a number",
        ),
        ('{"kind": "Pod", "metadata": {"name": "a"}}', r"pods\.json, Pod a: "),
        ('{"kind": "Pod", "metadata": "a"}', r"pods\.json, Pod without a name: "),
        ("[" * 100_000, r"pods\.json: nested too deeply"),
        ("\udcff", r"pods\.json, line 1: not UTF-8"),
        (
            '{"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "now"}, "spec": {}}',
            r"Pod a: creationTimestamp: 'now' is not a time",
        ),
        (
            json.dumps({"kind": "PodList", "items": [make_pod("a"), make_pod("a")]}),
            r"pods\.json: Pod default/a occurs twice",
        ),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "pods.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match=problem) as found:
        pods_of(read_objects(path), str(path))
    assert "\n" not in str(found.value)
