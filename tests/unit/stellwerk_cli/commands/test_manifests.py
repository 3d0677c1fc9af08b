"""Manifests of options: every document used or refused by name, and no field dropped."""

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.answers.what_if import MAX_SUPPOSED_PODS
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk_cli.cli import main
from stellwerk_cli.commands.manifests import read_manifests, read_pods
from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import json_stream
from stellwerk_simulation import cluster_objects
from stellwerk_simulation.cases.case_files import USED
from stellwerk_simulation.pod_templates import POD_KINDS

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
    found = read_manifests("--pod", file, POD_KINDS)
    assert [pod["metadata"]["name"] for pod in found] == ["p", "p", "p"]
    assert {pod["spec"]["containers"][0]["image"] for pod in found} == {"i"}


def typed(monkeypatch: pytest.MonkeyPatch, *objects: object) -> None:
    content = io.BytesIO(yaml.safe_dump_all(objects).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, POD)
    [pod] = read_manifests("--pod", "-", POD_KINDS)
    assert pod["metadata"]["name"] == "p"


@pytest.mark.parametrize("kind", sorted({each.kind for each in built_in_kinds()} - set(POD_KINDS)))
def test_another_kind_is_counted_beside_pods_and_refused_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"kind": kind, "metadata": {"name": "x"}}
    [pod] = read_manifests("--pod", written(tmp_path / "f.yaml", POD, other), POD_KINDS)
    assert pod["metadata"]["name"] == "p"
    assert f"f.yaml: not used: 1 {kind}\n" in capsys.readouterr().err
    with pytest.raises(
        ConfigurationError, match=f"g.yaml: there is no Pod, Deployment.* but 1 {kind}"
    ):
        read_manifests("--pod", written(tmp_path / "g.yaml", other), POD_KINDS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it contains no manifest"),
        ("--- \n---\n", "it contains no manifest"),
        ("just text", "a document must be an object, not the text 'just text'"),
        ("metadata: {name: x}", "a manifest has no kind, Node is expected"),
        ("kind: Deployment", "there is no Node in it, but 1 Deployment"),
        ("- a", "a document must be an object, not a list of 1 part"),
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
def test_a_controller_is_asked_for_its_pods(
    obj: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    obj = {**obj, "apiVersion": "batch/v1"} if obj["kind"] == "Job" else obj
    (found,) = read_pods("--pod", written(tmp_path / "f.yaml", obj), "default")
    assert found.pods == found.template["count"] == len(names)
    assert found.template["template"]["spec"].keys() >= obj["spec"].keys()
    if names:
        assert found.only["metadata"]["name"] == names[0]
    for pod in (found.only, found.template["template"]["spec"]["template"]):
        assert pod["metadata"]["labels"].items() >= {("app", "web")}
        [container] = pod["spec"]["containers"]
        assert container["resources"] == CONTAINERS[0]["resources"]


def test_a_pod_without_a_namespace_is_in_the_one_of_the_context(tmp_path: Path) -> None:
    (found,) = read_pods("--pod", written(tmp_path / "f.yaml", POD), "team")
    assert found.only["metadata"] == {"name": "p", "namespace": "team"}


def test_more_pods_than_the_operator_looks_at_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "f.yaml", *[POD] * (MAX_SUPPOSED_PODS + 1))
    with pytest.raises(ConfigurationError, match=f"more than {MAX_SUPPOSED_PODS} pods"):
        read_pods("--pod", file, "default")
    assert (
        sum(each.pods for each in read_pods("--pod", file, "default", count=2)) > MAX_SUPPOSED_PODS
    )


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}
SIMULATED = cluster_objects.USED - {"CoschedulingPodGroup"}
"""Without the name that a PodGroup of another API group has inside: its kind is PodGroup, too."""
COMMANDS = {
    "simulate -f FILE": SIMULATED,
    "simulate --nodes FILE --pods FILE": SIMULATED,
    "plan fit --for FILE --shapes SHAPES --seconds 9": SIMULATED,
    "plan fit --for PODS --shapes FILE --seconds 9": {"Node"},
    "plan defrag FILE --free nodes=1": SIMULATED,
    "decide FILE": USED,
    "decide -f FILE -f SHAPES": USED,
}
"""Every command that reads manifests but what-if, and the kinds that it uses."""


def line_of(command: str, folder: Path, *objects: object) -> list[str]:
    """A command; its FILE holds a node, a pod and these, or these alone where one kind is read."""
    whole = [*objects] if {"SHAPES", "PODS"} & {*command.split()} else [NODE, POD, *objects]
    files = {
        "FILE": written(folder / "f.yaml", *whole),
        "SHAPES": written(folder / "shapes.yaml", NODE),
        "PODS": written(folder / "pods.yaml", POD),
    }
    return [files.get(word, word) for word in command.split()]


def minimal(kind: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": f"x-{kind.lower()}"}}


@pytest.mark.parametrize("command", COMMANDS)
def test_kinds_that_a_command_does_not_use_are_counted_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {each.kind for each in built_in_kinds()}
    assert kinds > COMMANDS[command] - {PROFILE}
    unused = sorted(kinds - COMMANDS[command])
    foreign = [
        {**minimal("Job"), "apiVersion": "batch.volcano.sh/v1alpha1", "spec": {"tasks": []}},
        {**minimal("Service"), "apiVersion": "serving.knative.dev/v1", "spec": {"template": {}}},
    ]
    objects = [*map(minimal, unused), *foreign]
    if command.startswith("plan fit --for PODS"):
        objects.append(NODE)
    line = line_of(command, tmp_path, *objects)
    if "plan fit --for FILE" in command:
        (tmp_path / "f.yaml").write_text(yaml.safe_dump_all([POD, *objects]))
    main(line)
    said = capsys.readouterr().err.splitlines()
    [counted] = [each for each in said if "1 Ingress," in each and "no pod is pending" not in each]
    assert "1 Job.batch.volcano.sh" in counted
    assert "1 Service.serving.knative.dev" in counted
    for kind in unused:
        assert f"1 {kind}" in counted, kind


@pytest.mark.parametrize("command", COMMANDS)
def test_a_field_that_a_used_kind_does_not_have_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in sorted(COMMANDS[command]):
        line = line_of(command, tmp_path, {**minimal(kind), "sepc": {}})
        assert main(line) == 2, kind
        where = f"f.yaml, {kind} x-{kind.lower()}: "
        assert f'{where}unknown field "sepc"' in capsys.readouterr().err, kind


@pytest.mark.parametrize("command", [*COMMANDS, "what-if --pod FILE", "what-if --add-nodes FILE"])
def test_an_equals_sign_is_a_text_for_every_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = line_of(command, tmp_path)
    for file in ("f.yaml", "shapes.yaml", "pods.yaml"):
        path = tmp_path / file
        if path.exists():
            signed = path.read_text().replace("metadata:", "metadata:\n  annotations: {a: =, =: b}")
            path.write_text(signed if "annotations" in signed else f"a: =\n{signed}")
    main([*files, "--url", "http://127.0.0.1:1"] if "what-if" in command else files)
    said = capsys.readouterr().err
    assert not re.search("YAML|unmarshal|unknown field|no object", said), said


def test_kinds_of_another_group_are_not_those_of_kubernetes(tmp_path: Path) -> None:
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 2},
    }
    with pytest.raises(
        ConfigurationError, match=r"there is no Pod.* but 1 Job\.batch\.volcano\.sh"
    ):
        read_manifests("--pod", written(tmp_path / "f.yaml", job), POD_KINDS)


@pytest.mark.parametrize(
    "text",
    [
        "kind: Node\nmetadata: {name: n}\nspec: {taints: {{ .Values.taints }}}\n",
        'kind: Node\nmetadata: {name: "{{ .Release.Name }}-n"}\n',
        'kind: Node\nmetadata: {name: n}\nspec: {unschedulable: "{{ .Values.off }}"}\n',
        "kind: Node\n{% if x %}\nmetadata: {name: n}\n{% endif %}\n",
    ],
)
def test_a_template_is_called_one(text: str, tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="render it first, as with `helm template`"):
        read_manifests("--add-nodes", str(file), ["Node"])


def test_what_was_read_from_a_cluster_is_counted_where_it_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = {"kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "ofTomorrow": 1}
    for command in ("decide FILE", "plan defrag FILE --free nodes=1", "simulate -f FILE"):
        main(line_of(command, tmp_path, read))
        assert "1 ConfigMap" in capsys.readouterr().err, command


def test_standard_input_and_several_files_are_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = written(tmp_path / "nodes.yaml", NODE)
    for line in (
        f"decide -f - -f {nodes} -o name",
        f"decide - {nodes} -o name",
        f"simulate -f {nodes} -f - -o json",
    ):
        typed(monkeypatch, POD)
        assert main(line.split()) == 0, line
        assert "default/p" in capsys.readouterr().out, line
    for line in ("decide -", "simulate -f -", "plan fit --for - --shapes x.yaml"):
        typed(monkeypatch, {**POD, "sepc": {}}, NODE)
        assert main(line.split()) == 2, line
        assert 'unknown field "sepc"' in capsys.readouterr().err, line


ADMITTED = """
kind: LimitRange
metadata: {name: l}
spec: {limits: [{type: Container, defaultRequest: {cpu: 2}}]}
---
{kind: RuntimeClass, metadata: {name: kata}, handler: kata, overhead: {podFixed: {cpu: 1}},
 scheduling: {tolerations: [{key: kata, operator: Exists}]}}
---
{kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: "1"}}}
---
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template: {spec: {runtimeClassName: kata, containers: [{name: c, image: i}]}}
"""
"""Two pods of 3 CPUs each, for nodes with a taint."""
TAINTED = {**NODE, "spec": {"taints": [{"key": "kata", "effect": "NoSchedule"}]}}


def test_every_command_admits_pods_by_what_stands_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, nodes = tmp_path / "f.yaml", written(tmp_path / "nodes.yaml", TAINTED)
    file.write_text(ADMITTED)

    def answer(line: str) -> Any:
        assert main(line.replace("FILE", str(file)).replace("NODES", nodes).split()) == 0
        shown = capsys.readouterr()
        assert "1 ResourceQuota" in shown.err
        assert "LimitRange" not in shown.err
        return json_stream(shown.out)

    for line in ("-f FILE -f NODES", "--nodes NODES --pods FILE"):
        [simulated] = answer(f"simulate {line} -o json")
        assert (simulated["runs"][0]["placed"], simulated["runs"][0]["leftOut"]) == (1, 1)
    [plan] = answer("plan fit --for FILE --shapes NODES --seconds 9 -o json")
    assert (plan["nodes"], plan["placed"]) == ({"n": 2}, 2)
    assert [each["selected"] for each in answer("decide FILE NODES -o json")] == [["n"], ["n"]]
    for found in read_pods("--pod", str(file), "team"):
        pod = found.only
        assert pod["spec"]["overhead"] == {"cpu": "1"}
        assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}


def test_limits_in_the_file_of_the_nodes_count_too(tmp_path: Path) -> None:
    limit = {"type": "Container", "defaultRequest": {"cpu": "3"}}
    limits = {"kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limit]}}
    pods = [{**POD, "metadata": {"name": name}, "spec": BARE} for name in ("a", "b")]
    line = ["simulate", "--nodes", written(tmp_path / "n.yaml", NODE, limits)]
    line += ["--pods", written(tmp_path / "p.yaml", *pods), "-o", "json"]
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert main(line) == 0
    assert json.loads(shown.getvalue())["runs"][0]["placed"] == 1


BARE = {"containers": [{"name": "c", "image": "i"}]}
