"""`--set` reaches any field of the pod, and refuses what is no path."""

from pathlib import Path
from typing import Any

import pytest

from stellwerk.answers.what_if import Supposition
from stellwerk_cli.cli import build_parser
from stellwerk_cli.commands.what_if_request import set_field, what_if_request
from stellwerk_kube.errors import AbsentError, ConfigurationError, NotFound


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        pytest.param("spec.priority=1000", {"spec": {"priority": 1000}}, id="a number"),
        pytest.param(
            "spec.nodeSelector.disk=ssd",
            {"spec": {"nodeSelector": {"disk": "ssd"}}},
            id="a field of a field that is not there",
        ),
        pytest.param(
            "spec.tolerations=[{key: a, operator: Exists}]",
            {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
            id="a list",
        ),
    ],
)
def test_a_field_is_set(assignment: str, expected: dict[str, Any]) -> None:
    pod: dict[str, Any] = {}
    set_field(pod, assignment)
    assert pod == expected


@pytest.mark.parametrize("path", ["spec.containers.0.image", "spec.containers[0].image"])
def test_an_entry_of_a_list_is_set(path: str) -> None:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "a"}]}}
    set_field(pod, f"{path}=b")
    assert pod["spec"]["containers"] == [{"name": "a", "image": "b"}]


@pytest.mark.parametrize(
    "path", [r"metadata.labels.example\.com/tier", "metadata.labels['example.com/tier']"]
)
def test_dots_in_a_key_are_escaped_as_for_kubectl(path: str) -> None:
    pod: dict[str, Any] = {}
    set_field(pod, f"{path}=web")
    assert pod == {"metadata": {"labels": {"example.com/tier": "web"}}}


def test_another_priority_class_brings_its_own_priority() -> None:
    pod: dict[str, Any] = {"spec": {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}}
    set_field(pod, "spec.priorityClassName=high")
    assert pod == {"spec": {"priorityClassName": "high"}}
    set_field(pod, "spec.priority=7")
    assert pod["spec"]["priority"] == 7


def request(*arguments: str) -> dict[str, Any]:
    return what_if_request(build_parser().parse_args(["what-if", *arguments]))


POD = "{kind: Pod, metadata: {name: p, namespace: n}, spec: {containers: []}}"


@pytest.fixture
def pod_file(tmp_path: Path) -> str:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    return str(file)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("spec.nodeSelektor.disk=ssd", '--set: unknown field "spec.nodeSelektor"'),
        ("spec.priority=high", "--set: .*cannot unmarshal"),
    ],
)
def test_a_field_that_pods_do_not_have_is_refused(
    assignment: str, message: str, pod_file: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        request("--pod", pod_file, "--set", assignment)


def test_one_pod_is_explained_and_several_are_decided_in_turn(pod_file: str) -> None:
    assert request("--pod", pod_file)["pod"]["metadata"]["name"] == "p"
    several = request("--pod", pod_file, "--pod", pod_file)
    assert len(several["pods"]) == 2
    assert "pod" not in several


JOB = """{kind: Job, apiVersion: batch/v1, metadata: {name: train}, spec: {parallelism: 3,
template: {metadata: {labels: {app: train}}, spec: {restartPolicy: Never,
containers: [{name: c}]}}}}
"""


def test_controllers_and_counted_pods_are_asked_for_by_template(
    pod_file: str, tmp_path: Path
) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB)
    asked = request("--pod", f"{pod_file}=500", "--pod", f"{job_file}", "-n", "batch")
    assert "pods" not in asked
    counted, job = asked["templates"]
    assert (counted["count"], job["count"]) == (500, 3)
    assert counted["template"]["metadata"]["name"] == "p"
    assert job["template"]["kind"] == "Job"
    assert job["template"]["metadata"] == {"name": "train", "namespace": "batch"}
    many = request("--pod", f"{job_file}=10000", "--set", "spec.priority=7", "-n", "batch")
    (job,) = many["templates"]
    assert job["count"] == 10_000
    template = job["template"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "train"}
    assert template["spec"]["priority"] == 7
    Supposition.of(many)


def test_a_controller_of_one_pod_is_explained(tmp_path: Path) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB.replace("parallelism: 3", "parallelism: 1"))
    asked = request("--pod", f"{job_file}", "-n", "batch")
    assert asked["pod"]["metadata"]["name"] == "train-0"
    assert "templates" not in asked


@pytest.mark.parametrize("count", ["0", "15001", "many", "-1"])
def test_a_count_out_of_its_range_is_refused(count: str, pod_file: str) -> None:
    with pytest.raises(ConfigurationError, match="a whole number from 1 to 15000"):
        request("--pod", f"{pod_file}={count}")


def test_more_pods_than_one_answer_covers_are_refused(pod_file: str) -> None:
    with pytest.raises(ConfigurationError, match="20,000 pods; one answer covers at most 15,000"):
        request("--pod", f"{pod_file}=10000", "--pod", f"{pod_file}=10000")


@pytest.mark.parametrize(
    ("arguments", "drain"),
    [(["--drain", "a"], "a"), (["--drain", "a", "--drain", "b"], ["a", "b"])],
)
def test_every_drained_node_is_asked_for(arguments: list[str], drain: object) -> None:
    assert request(*arguments) == {"count": 1, "drain": drain}


@pytest.mark.parametrize(
    "assignment", ["spec", "=1", "a..b=1", "list.9.a=1", "text.a.b=1", "a=[", "list.x=1"]
)
def test_what_is_no_path_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError, match="--set"):
        set_field({"list": [], "text": "t"}, assignment)


def test_acts_are_written_with_the_namespace_of_their_objects() -> None:
    words = "--relabel n1 a=b c- --relabel n2 a=b --taint n1 x:NoExecute -n shop"
    words += " --delete pod/web --delete no/n3 --scale deploy/web=3 --scale sts/other/db=0"
    assert request(*words.split()) == {
        "count": 1,
        "relabel": ["n1 a=b c-", "n2 a=b"],
        "taint": ["n1 x:NoExecute"],
        "delete": ["pod/shop/web", "node/n3"],
        "scale": ["deployment/shop/web=3", "statefulset/other/db=0"],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--relabel n1", "--relabel 'n1': expected the name of a node"),
        ("--taint n1 a=b", "--taint 'n1 a=b': \"\" is not a taint effect"),
        ("--delete web", "--delete 'web': expected node/NAME"),
        ("--scale web=3", "--scale 'web=3': expected KIND/NAMESPACE/NAME=REPLICAS"),
    ],
)
def test_an_act_is_refused_before_anything_is_asked(arguments: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        request(*arguments.split())
    assert message in f"{raised.value}"


@pytest.mark.parametrize(
    ("name", "reason"), [("folder", "this is a directory: name its files"), ("web", "no such file")]
)
def test_a_name_of_no_pod_and_of_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    async def without_pods(*_: object) -> None:
        raise NotFound("get", 404, "NotFound", "no pod")

    class Client:
        get = without_pods

    async def with_client(_config: object, _context: object, act: Any) -> Any:
        return await act(Client())

    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stellwerk_cli.commands.what_if_request.with_client", with_client)
    options = build_parser().parse_args(["what-if", "--pod", name, "-n", "team"])
    with pytest.raises(AbsentError, match=f"there is no pod team/{name}, and {reason}"):
        what_if_request(options)
