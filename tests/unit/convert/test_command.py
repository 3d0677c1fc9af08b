"""`stellwerk convert`: what goes to standard output, to standard error, and the exit status."""

from pathlib import Path

import pytest
import yaml

from stellwerk.cli import main

POLICY = '{"kind": "Policy", "predicates": [{"name": "PodFitsResources"}], "priorities": []}'


def written(directory: Path, text: str) -> str:
    path = directory / "config.yaml"
    path.write_text(text)
    return str(path)


def test_manifests_go_to_standard_output_and_remarks_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "parallelism: 8\n"
        "profiles: [{schedulerName: packing}, {schedulerName: spreading}]\n",
    )
    assert main(["convert", path]) == 0
    captured = capsys.readouterr()
    manifests = list(yaml.safe_load_all(captured.out))
    assert [each["spec"]["schedulerName"] for each in manifests] == ["packing", "spreading"]
    assert captured.err.startswith(f"{path}: parallelism")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "the file is empty", id="an empty file"),
        pytest.param("a: [", "not valid YAML or JSON", id="broken YAML"),
        pytest.param("kind: Pod\napiVersion: v1\n", "cannot convert Pod of v1", id="another kind"),
        pytest.param(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "podMaxBackoffSeconds: -1\n",
            "podMaxBackoffSeconds",
            id="a value out of range",
        ),
    ],
)
def test_what_cannot_be_converted_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert main(["convert", written(tmp_path, text)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(tmp_path / "absent")]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("there", [True, False])
def test_the_policy_file_of_an_old_configuration_is_read_if_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, there: bool
) -> None:
    if there:
        (tmp_path / "policy.json").write_text(POLICY)
    path = written(
        tmp_path,
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\n"
        "kind: KubeSchedulerConfiguration\n"
        "algorithmSource: {policy: {file: {path: policy.json}}}\n",
    )
    assert main(["convert", path]) == 0
    captured = capsys.readouterr()
    assert ("convert policy.json" in captured.err) is not there
    (manifest,) = yaml.safe_load_all(captured.out)
    assert ("plugins" in manifest["spec"]) is there
