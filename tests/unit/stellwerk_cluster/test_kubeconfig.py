"""The kubeconfig that commands write: never over another file, never another file away."""

import os
from pathlib import Path

import pytest
import yaml

from stellwerk.errors import ConfigurationError
from stellwerk_cluster.kubeconfig import KubeconfigFile, kubeconfig, write_kubeconfig

CONTENT = kubeconfig("http://127.0.0.1:1234", "secret", b"PEM")
PRODUCTION = yaml.safe_dump(
    {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "production", "cluster": {"server": "https://example.com"}}],
        "users": [{"name": "me", "user": {"token": "mine"}}],
        "contexts": [{"name": "production", "context": {"cluster": "production", "user": "me"}}],
    }
).encode()


def with_another_context() -> bytes:
    """What kubectl leaves of a file of ours to which a user has added a cluster."""
    both = yaml.safe_load(CONTENT)
    for name, items in yaml.safe_load(PRODUCTION).items():
        if isinstance(items, list):
            both[name] += items
    return yaml.safe_dump(both).encode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(PRODUCTION, id="another kubeconfig"),
        pytest.param(with_another_context(), id="one with another context beside"),
        pytest.param(CONTENT.replace(b"token:", b"password:"), id="other credentials"),
        pytest.param(b"notes\n", id="notes"),
        pytest.param(b"", id="an empty file"),
        pytest.param(b"[" * 100_000, id="brackets"),
        pytest.param(b"\xff\x00", id="no text"),
    ],
)
def test_another_file_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"config is there and is none of this command"):
        KubeconfigFile(path)
    assert path.read_bytes() == content


def test_links_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(CONTENT)
    link.symlink_to(target)
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match=r"cannot write .*: it is a symbolic link"):
        KubeconfigFile(link)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigurationError, match="is there and is none"):
            KubeconfigFile(path)


def test_it_is_written_for_its_owner_alone_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config"
    file = KubeconfigFile(path)
    file.write(CONTENT)
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*path.parent.iterdir()] == [path]
    file.remove()
    assert [*path.parent.iterdir()] == []


def test_what_an_ended_process_has_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, CONTENT.replace(b"namespace: default", b"namespace: team"))
    file = KubeconfigFile(path)
    file.write(CONTENT)
    assert path.read_bytes() == CONTENT
    file.remove()
    assert not path.exists()


def test_the_file_of_a_running_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    first = KubeconfigFile(path)
    first.write(CONTENT)
    running = r"config leads to a cluster that is running at http://127\.0\.0\.1:1234: "
    with pytest.raises(ConfigurationError, match=running):
        KubeconfigFile(path)
    assert path.read_bytes() == CONTENT
    first.remove()
    KubeconfigFile(path).write(CONTENT)


def test_of_two_that_begin_together_one_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    first, second = KubeconfigFile(path), KubeconfigFile(path)
    first.write(CONTENT)
    with pytest.raises(FileExistsError, match="another file is there by now"):
        second.write(CONTENT + b"\n")
    second.remove()
    assert path.read_bytes() == CONTENT
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_was_changed_or_replaced_is_not_removed(tmp_path: Path) -> None:
    changed, replaced = tmp_path / "changed", tmp_path / "replaced"
    files = [KubeconfigFile(path) for path in (changed, replaced)]
    for file in files:
        file.write(CONTENT)
    changed.write_bytes(PRODUCTION)
    (tmp_path / "new").write_bytes(CONTENT)
    (tmp_path / "new").replace(replaced)
    for file in files:
        file.remove()
    assert changed.read_bytes() == PRODUCTION
    assert replaced.read_bytes() == CONTENT


def test_what_is_put_in_the_place_of_a_left_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, CONTENT)
    file = KubeconfigFile(path)
    (tmp_path / "new").write_bytes(PRODUCTION)
    (tmp_path / "new").replace(path)
    with pytest.raises(FileExistsError, match="it was replaced meanwhile"):
        file.write(CONTENT)
    assert path.read_bytes() == PRODUCTION
