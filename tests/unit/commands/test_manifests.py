"""Manifests of options: every document used or refused by name, and no field dropped."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.commands.manifests import pods_of, read_manifests
from stellwerk.errors import ConfigurationError
from stellwerk.models.answers.what_if import MOST_PODS
from stellwerk.models.pod_templates import POD_KINDS
from stellwerk_cluster.apimachinery.kinds import built_in_kinds

CONTAINERS = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": CONTAINERS},
}


def controller(kind: str, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": template, **spec},
    }


def written(path: Path, *objects: object) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_every_document_is_used(tmp_path: Path) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": [POD, POD]}
    file = written(tmp_path / "pods.yaml", POD, None, items)
    assert read_manifests("--pod", file, POD_KINDS) == [POD, POD, POD]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(POD)))
    assert read_manifests("--pod", "-", POD_KINDS) == [POD]


@pytest.mark.parametrize("kind", sorted({each.kind for each in built_in_kinds()} - set(POD_KINDS)))
def test_another_kind_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    file = written(tmp_path / "f.yaml", POD, {"kind": kind, "metadata": {"name": "x"}})
    with pytest.raises(ConfigurationError, match=f"--pod .*f.yaml: a {kind} is no Pod, Deployment"):
        read_manifests("--pod", file, POD_KINDS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there is no manifest in it"),
        ("--- \n---\n", "there is no manifest in it"),
        ("just text", "a manifest has no kind, Node is expected"),
        ("metadata: {name: x}", "a manifest has no kind, Node is expected"),
        ("kind: Deployment", "a Deployment is no Node"),
        ("[", "not YAML"),
        ("{kind: Node, spec: {taintz: []}, foo: 1}", 'unknown field "spec.taintz", "foo"'),
        ("{kind: Node, spec: {taints: 5}}", "cannot unmarshal"),
    ],
)
def test_what_is_no_node_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_manifests("--add-nodes", str(file), ["Node"])
    assert "\n" not in str(caught.value)
    assert "node.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("obj", "names"),
    [
        (controller("Deployment", replicas=3), ["web-0", "web-1", "web-2"]),
        (controller("StatefulSet"), ["web-0"]),
        (controller("ReplicaSet", replicas=0), []),
        (controller("Job", parallelism=4, completions=2), ["web-0", "web-1"]),
        (controller("Job"), ["web-0"]),
        (controller("Job", completions=3), ["web-0"]),
        (controller("Deployment", replicas=None), ["web-0"]),
    ],
    ids=[
        "Deployment",
        "one without a number",
        "none",
        "a Job's completions",
        "a Job of one",
        "a Job one by one",
        "null",
    ],
)
def test_a_controller_is_asked_for_its_pods(obj: dict[str, Any], names: list[str]) -> None:
    pods = pods_of("--pod", [obj], "default")
    assert [pod["metadata"]["name"] for pod in pods] == names
    for pod in pods:
        assert pod["metadata"]["namespace"] == "shop"
        assert pod["metadata"]["labels"] == {"app": "web"}
        assert pod["spec"]["containers"] == CONTAINERS


def test_a_pod_without_a_namespace_is_in_the_one_of_the_context() -> None:
    (pod,) = pods_of("--pod", [POD], "team")
    assert pod["metadata"] == {"name": "p", "namespace": "team"}


def test_more_pods_than_the_operator_looks_at_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=f"more than {MOST_PODS} pods"):
        pods_of("--pod", [controller("Deployment", replicas=10**9)], "default")
