"""`stellwerk plan`: profiles that it prints do what the ready ones do; plans name their release."""

import json
from pathlib import Path

import pytest

from stellwerk_cli.cli import main
from stellwerk_kube.compatibility import release_named
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data" / "simulation"
PODS = str(DATA / "pods.csv")


@pytest.mark.parametrize("name", ["fgd", "best-fit"])
def test_what_is_printed_schedules_as_the_ready_profile(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "profile", name, "--for", PODS]) == 0
    path = tmp_path / f"{name}.yaml"
    path.write_text(capsys.readouterr().out)
    trace = ("--nodes", str(DATA / "nodes.csv"), "--pods", PODS, "--inflate", "1.3")
    assert main(["simulate", *trace, "--jobs", "1", "--profile", name, "--profile", str(path)]) == 0
    _, ready, printed = capsys.readouterr().out.splitlines()[:3]
    assert ready.split()[1:] == printed.split()[1:]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("bestfit", "--for", PODS), 'no ready profile bestfit; did you mean "best-fit"?\n'),
        (("fgd",), "no kubeconfig at missing: name one with --kubeconfig"),
        (
            ("fgd", "--for", PODS, "--kubeconfig", "x"),
            "either with --for FILE or with --kubeconfig",
        ),
        (("fgd", "--for", "absent.csv"), "cannot read absent.csv: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "missing")
    assert main(["plan", "profile", *arguments]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "release"),
    [
        pytest.param(None, "1.37.1", id="none"),
        pytest.param("auto", "1.37.1", id="auto"),
        pytest.param("1.37", str(release_named("1.37")), id="a minor release"),
        pytest.param("1.36.1", "1.36.1", id="a patch release"),
    ],
)
def test_plans_and_simulations_name_the_release_that_they_follow(
    setting: str | None, release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = make_profile("p", "stellwerk")
    if setting is not None:
        profile["spec"]["compatibility"] = setting
    nodes = [{"kind": "Node", **make_node(name, cpu="4")} for name in "ab"]
    pod = {"kind": "Pod", **make_pod("p", cpu="1")}
    big, small = (
        {"kind": "Pod", **make_pod(name, cpu=cpu, node_name=node)}
        for name, cpu, node in (("big", "2", "a"), ("small", "1", "b"))
    )
    files = {}
    for name, items in (("nodes", nodes), ("pods", [pod]), ("cluster", [*nodes, big, small])):
        files[name] = str(tmp_path / f"{name}.json")
        Path(files[name]).write_text(json.dumps({"kind": "List", "items": items}))
    with_profile = ("--profile", str(tmp_path / "profile.json"))
    Path(with_profile[1]).write_text(json.dumps(profile))
    fit = ("fit", "--for", files["pods"], "--shapes", files["nodes"])
    defrag = ("defrag", files["cluster"], "--free", "nodes=1", "--bare-pods", "--cordon")
    page = tmp_path / "page.html"
    simulate = ("--nodes", files["nodes"], "--pods", files["pods"], "--html", str(page))
    for command in (
        ("plan", *fit, "--seconds", "1"),
        ("plan", *defrag),
        ("simulate", *simulate, "--jobs", "1"),
    ):
        assert main([*command, *with_profile, "-o", "json"]) == 0, capsys.readouterr().err
        printed = capsys.readouterr()
        answer = json.loads(printed.out)
        [followed] = {each["compatibility"] for each in answer.get("runs", [answer])}
        assert followed == release
        assert printed.err.endswith(f"stellwerk: decisions follow Kubernetes {release}\n")
    assert f"decisions follow Kubernetes {release}" in page.read_text()


def test_pods_of_one_controller_that_fit_nowhere_share_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": "9"}}}
    template = {"metadata": {"labels": {"app": "flood"}}, "spec": {"containers": [container]}}
    flood = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "flood", "namespace": "shop"},
        "spec": {
            "replicas": 30,
            "selector": {"matchLabels": {"app": "flood"}},
            "template": template,
        },
    }
    shape = {"apiVersion": "v1", "kind": "Node", **make_node("small", cpu="1")}
    for name, content in (("pods", flood), ("shapes", shape)):
        (tmp_path / name).with_suffix(".json").write_text(json.dumps(content))
    files = ("--for", str(tmp_path / "pods.json"), "--shapes", str(tmp_path / "shapes.json"))
    words = ("plan", "fit", *files)
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "  30 pods of shop/deployment/flood: Insufficient cpu"
    assert main((*words, "-o", "wide")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  shop/flood-") for line in lines) == 30
