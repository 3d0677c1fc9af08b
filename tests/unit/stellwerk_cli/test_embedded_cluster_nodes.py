"""The commands that make nodes and pods fail, against a served cluster; the files of flags."""

import asyncio
from pathlib import Path

import pytest

from stellwerk_cli.cli import build_parser, main
from stellwerk_cli.embedded_cluster import kubelet_options
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.errors import ConfigurationError
from tests.support.node_driver import hollow_pod


def test_incidents_reach_a_served_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"

    def command(*words: str) -> int:
        return main(["cluster", "--kubeconfig", str(kubeconfig), *words])

    async def served() -> None:
        cluster = EmbeddedCluster(2, options=ClusterOptions(kubelet=None, heartbeats=False))
        pods = cluster.api.kinds.resource("pods")
        cluster.api.create(pods, "default", hollow_pod("web"))
        async with cluster:
            cluster.write_kubeconfig(kubeconfig)

            def annotations(plural: str, namespace: str, name: str) -> dict[str, str]:
                found = cluster.api.find(plural, namespace, name)
                assert found is not None
                return dict(found["metadata"].get("annotations") or {})

            assert await asyncio.to_thread(command, "cut-off", "node-2") == 0
            assert annotations("nodes", "", "node-2") == {"stellwerk.dev/machine": "cut-off"}
            assert await asyncio.to_thread(command, "fail", "node-2") == 0
            assert annotations("nodes", "", "node-2") == {"stellwerk.dev/machine": "failed"}
            assert await asyncio.to_thread(command, "restore", "node-2") == 0
            assert annotations("nodes", "", "node-2") == {}
            assert await asyncio.to_thread(command, "pod", "web", "--exit-code", "137") == 0
            assert annotations("pods", "default", "web") == {"stellwerk.dev/end-now": "137"}
            assert await asyncio.to_thread(command, "fail", "node-9") == 1

    asyncio.run(served())
    told = capsys.readouterr()
    assert 'nodes "node-9" not found' in told.err
    assert command("restore", "node-2") == 3
    assert "no cluster answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "No such file", id="there is none"),
        pytest.param("clusters: 3", "not a kubeconfig of this command", id="another file"),
        pytest.param("a: [", "not a kubeconfig of this command", id="no YAML"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, says: str
) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    assert main(["cluster", "--kubeconfig", str(file), "fail", "node-1"]) == 2
    assert says in capsys.readouterr().err


def test_without_a_command_the_cluster_is_served() -> None:
    options = build_parser().parse_args(["cluster", "--nodes", "5"])
    assert options.nodes == "5"
    assert not hasattr(options, "incident")


def test_files_of_stages_and_configuration_are_read(tmp_path: Path) -> None:
    stages, configuration = tmp_path / "stages.yaml", tmp_path / "kubelet.yaml"
    stages.write_text("stages: [{match: {owner: Job}, runSeconds: 60}]")
    configuration.write_text("{kind: KubeletConfiguration, evictionMaxPodGracePeriod: 7}")
    options = kubelet_options(stages, configuration)
    assert options.stages[0].values == {"run_seconds": 60.0}
    assert options.configuration is not None
    assert options.configuration.max_pod_grace_seconds == 7
    assert kubelet_options(None, None).configuration is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("stages: 3", "expected a list under `stages`"),
        ("stages: [3]", "expected a mapping"),
        ("stages: [{startSecond: 3}]", "startSecond is none of startSeconds"),
        ("stages: [{exitCode: 256}]", "between 0 and 255"),
        ("stages: [{runSeconds: -1}]", "not between 0"),
        ("stages: [{match: {name: x}}]", "expected namespace, owner or labels"),
        ("stages: [", "not YAML"),
    ],
)
def test_wrong_stages_are_refused(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        kubelet_options(file, None)
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        kubelet_options(None, tmp_path / "none.yaml")
