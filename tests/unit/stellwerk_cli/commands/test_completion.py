"""What may come next on a command line."""

from pathlib import Path

import pytest

from stellwerk_cli.cli import build_parser, main
from stellwerk_cli.commands import completion
from stellwerk_cli.commands.completion import candidates
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.releases import runtime_config
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.served_cluster import served

NAMES = {
    ("pod", None): ["web-0", "web-1", "hello"],
    ("pod", "team"): ["other"],
    ("pod", "ml"): ["big", "small"],
    ("namespace", None): ["default", "ml", "team"],
    ("node", None): ["node-1", "node-2"],
    ("deployment", None): ["web"],
    ("schedulerprofile", None): ["packing", "stellwerk"],
}


def names(kind: str, namespace: str | None) -> list[str]:
    return NAMES[kind, namespace]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param(["expl"], ["explain"], id="a command"),
        pytest.param(["explain", "dep"], ["deployment"], id="a kind"),
        pytest.param(["explain", "pod", "w"], ["web-0", "web-1"], id="a pod"),
        pytest.param(["explain", "pod/h"], ["pod/hello"], id="a pod behind its kind"),
        pytest.param(["explain", "-n", "team", "pod", ""], ["other"], id="of a namespace"),
        pytest.param(
            ["explain", "pod", "-n", "ml", ""], ["big", "small"], id="behind the namespace"
        ),
        pytest.param(["explain", "pod", "-n", "ml", "b"], ["big"], id="begun behind the namespace"),
        pytest.param(["explain", "pod", "--namespace=ml", "s"], ["small"], id="with a sign"),
        pytest.param(["explain", "pod", "-w", "-o", "json", "h"], ["hello"], id="behind options"),
        pytest.param(["explain", "pod", "-n", "m"], ["ml"], id="a namespace"),
        pytest.param(["queue", "-n", "m"], ["ml"], id="the namespace of a list"),
        pytest.param(["queue", "--namespace", "t"], ["team"], id="by the option's whole name"),
        pytest.param(["explain", "deploy", ""], ["web"], id="a deployment"),
        pytest.param(["what-if", "--drain", "node-2"], ["node-2"], id="a node behind an option"),
        pytest.param(["what-if", "--dr"], ["--drain"], id="an option"),
        pytest.param(["queue", "-o", "y"], ["yaml"], id="a choice of an option"),
        pytest.param(["profile", "roll"], ["rollback"], id="a command below a command"),
        pytest.param(["profile", "history", "p"], ["packing"], id="a profile"),
        pytest.param(["shadow", "diff", "s"], ["stellwerk"], id="a profile behind a choice"),
        pytest.param(["promote", "p"], ["packing"], id="a profile to promote"),
        pytest.param(["observe", "r"], ["report"], id="a report"),
        pytest.param(["observe", "report", "p"], ["packing"], id="a profile that observes"),
        pytest.param(["completion", "z"], ["zsh"], id="a choice"),
    ],
)
def test_what_may_come_next(words: list[str], found: list[str]) -> None:
    assert candidates(build_parser(), words, names) == found


def test_a_request_is_answered_as_kubectl_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "names_in_cluster", names)
    assert main(["__complete", "explain", "node", "node-1"]) == 0
    assert capsys.readouterr().out == "node-1\n:4\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_this_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert "stellwerk __complete" in capsys.readouterr().out


def test_without_a_cluster_there_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert completion.names_in_cluster("node", "default") == []


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_groups_are_named_in_the_version_that_the_cluster_has(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {kind.api_version for kind in kinds_of_release(release)}
    options = ClusterOptions(
        release=release,
        feature_gates=feature_gates("GenericWorkload=true", release),
        runtime_config=runtime_config("api/all=true", versions),
    )
    cluster = EmbeddedCluster(0, options=options)
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    kind = cluster.api.kinds.resource("podgroups", "scheduling.k8s.io")
    cluster.api.create(kind, "default", group)
    with served(cluster):
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        assert completion.names_in_cluster("podgroup", "default") == ["g"]
        assert completion.names_in_cluster("podgroup", None) == ["g"]
        assert completion.names_in_cluster("deployment", "default") == []
        assert "default" in completion.names_in_cluster("namespace", None)
