"""Old and new kubectls do on the embedded cluster what docs/embedded-cluster.md says they do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stellwerk_cluster.access_flags import AccessFlags
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.releases import DEFAULT_RELEASE, RELEASES, runtime_config
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.kubectl_tour import (
    ACCESS_STEPS,
    GROUP_FILE,
    document_with_table,
    release_steps,
    take,
)
from tests.support.kubectls import MINORS, Kubectl, installed, newest, program_of
from tests.support.repository import ROOT
from tests.support.served_cluster import served


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    with served(EmbeddedCluster(3, options=ClusterOptions(release=DEFAULT_RELEASE))) as cluster:
        cluster.write_kubeconfig(path)
        yield path


def toured(minor: int | None, kubeconfig: Path, home: Path, namespace: str) -> list[str]:
    program = program_of(minor)
    assert minor is not None
    Kubectl(program, home, kubeconfig)("create", "namespace", namespace)
    return take(Kubectl(program, home, kubeconfig, namespace), minor)


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("enforcing") / "kubeconfig"
    options = AccessFlags("rbac").applied(ClusterOptions())
    with served(EmbeddedCluster(1, options=options)) as cluster:
        cluster.write_kubeconfig(path)
        yield path


def access_toured(minor: int | None, kubeconfig: Path, home: Path) -> list[str]:
    program = program_of(minor)
    assert minor is not None
    namespace = f"access-{minor}"
    Kubectl(program, home, kubeconfig)("create", "namespace", namespace)
    return take(Kubectl(program, home, kubeconfig, namespace), minor, ACCESS_STEPS)


def skip_unless_installed(minor: int) -> None:
    if minor not in installed():
        pytest.skip(f"no kubectl 1.{minor} here")
    if minor == newest():
        pytest.skip("the newest one takes the tour in `make test`")


def test_the_newest_kubectl_meets_access_rules(enforcing: Path, tmp_path: Path) -> None:
    assert access_toured(newest(), enforcing, tmp_path) == []


@pytest.mark.all_versions
@pytest.mark.parametrize("minor", MINORS)
def test_every_kubectl_meets_access_rules(minor: int, enforcing: Path, tmp_path: Path) -> None:
    skip_unless_installed(minor)
    assert access_toured(minor, enforcing, tmp_path) == []


@pytest.fixture(scope="module", params=RELEASES)
def release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A cluster of a release that serves all it has, and its kubeconfig."""
    name: str = request.param
    versions = {kind.api_version for kind in kinds_of_release(name)}
    options = ClusterOptions(
        release=name,
        feature_gates=feature_gates("GenericWorkload=true", name),
        runtime_config=runtime_config("api/all=true", versions),
    )
    path = tmp_path_factory.mktemp("release") / "kubeconfig"
    with served(EmbeddedCluster(1, options=options)) as cluster:
        cluster.write_kubeconfig(path)
        yield name, path


def release_toured(minor: int | None, release: tuple[str, Path], home: Path) -> list[str]:
    program, (name, kubeconfig) = program_of(minor), release
    assert minor is not None
    namespace = f"release-{minor}"
    Kubectl(program, home, kubeconfig)("create", "namespace", namespace)
    version = {"1.36": "v1alpha2", "1.37": "v1beta1", "1.38": "v1"}[name]
    (home / "group.yaml").write_text(GROUP_FILE.format(version=version))
    return take(Kubectl(program, home, kubeconfig, namespace), minor, release_steps(name))


def test_the_newest_kubectl_works_with_each_release(
    release: tuple[str, Path], tmp_path: Path
) -> None:
    assert release_toured(newest(), release, tmp_path) == []


@pytest.mark.all_versions
@pytest.mark.parametrize("minor", MINORS)
def test_every_kubectl_works_with_each_release(
    minor: int, release: tuple[str, Path], tmp_path: Path
) -> None:
    skip_unless_installed(minor)
    assert release_toured(minor, release, tmp_path) == []


@pytest.mark.long
def test_the_newest_kubectl_does_what_the_table_says(kubeconfig: Path, tmp_path: Path) -> None:
    assert toured(newest(), kubeconfig, tmp_path, "newest") == []


@pytest.mark.all_versions
@pytest.mark.parametrize("minor", MINORS)
def test_every_kubectl_does_what_the_table_says(
    minor: int, kubeconfig: Path, tmp_path: Path
) -> None:
    skip_unless_installed(minor)
    assert toured(minor, kubeconfig, tmp_path, f"tour-{minor}") == []


def test_the_documented_table_is_the_one_that_is_tested() -> None:
    document = ROOT / "docs" / "embedded-cluster.md"
    assert document.read_text() == document_with_table(document)
