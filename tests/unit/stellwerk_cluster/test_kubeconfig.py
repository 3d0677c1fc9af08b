"""The kubeconfig that commands write: never over another file, never another file away."""

import json
import os
import socket
from pathlib import Path

import pytest
import yaml

from stellwerk_cluster import kubeconfig as kubeconfigs
from stellwerk_cluster.kubeconfig import KubeconfigFile, kubeconfig, write_kubeconfig
from stellwerk_kube.errors import ConfigurationError

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


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"notes\n", id="notes"),
        pytest.param(b"", id="an empty file"),
        pytest.param(b"{}", id="an object of no kind"),
        pytest.param(b"kind: Pod\ncontexts: []", id="another kind"),
        pytest.param(b"clusters: {}\ncontexts: []", id="no lists"),
        pytest.param(b"[" * 100_000, id="brackets"),
        pytest.param(b"\xff\x00", id="no text"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"config exists and is not a kubeconfig: .*force"):
        KubeconfigFile(path)
    assert path.read_bytes() == content
    file = KubeconfigFile(path, force=True)
    file.write(CONTENT)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(CONTENT.replace(b"token:", b"password:"), id="other credentials"),
        pytest.param(CONTENT.replace(b"127.0.0.1", b"example.com"), id="another server"),
        pytest.param(CONTENT.replace(b"cluster: stellwerk", b"cluster: x"), id="another cluster"),
    ],
)
def test_entries_of_these_names_and_other_making_are_refused(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(
        ConfigurationError, match="has entries named stellwerk that this command did not write"
    ):
        KubeconfigFile(path)
    assert path.read_bytes() == content
    forced = KubeconfigFile(path, force=True)
    forced.write(CONTENT)
    assert yaml.safe_load(path.read_bytes())["users"] == yaml.safe_load(CONTENT)["users"]
    forced.remove()
    assert path.read_bytes() == content


def test_links_and_what_is_no_file_are_refused_also_with_force(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(PRODUCTION)
    link.symlink_to(target)
    os.mkfifo(pipe)
    for force in (False, True):
        with pytest.raises(ConfigurationError, match=r"cannot write .*: it is a symbolic link"):
            KubeconfigFile(link, force=force)
        for path in (pipe, tmp_path):
            with pytest.raises(ConfigurationError, match="it is not a regular file"):
                KubeconfigFile(path, force=force)
    assert target.read_bytes() == PRODUCTION


USERS = b"""\
# mine
apiVersion: v1
kind: Config
current-context: production
clusters:
- {name: production, cluster: {server: "https://example.com", insecure-skip-tls-verify: true}}
contexts:
- name: production
  context: {cluster: production, user: me}
users:
- name: me
  user: {token: 0123, username: 1:30}  # kept as written
preferences: {}
extensions: null
"""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(USERS, id="with comments and odd scalars"),
        pytest.param(PRODUCTION, id="as kubectl writes it"),
        pytest.param(json.dumps(yaml.safe_load(PRODUCTION)).encode(), id="JSON"),
        pytest.param(b"clusters: null\ncontexts:\nusers: []\n", id="without entries"),
    ],
)
def test_a_user_s_kubeconfig_is_as_it_was_but_for_the_cluster_s_entries(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    path.chmod(0o640)
    file = KubeconfigFile(path)
    assert file.is_shared
    file.write(CONTENT)
    while_running, own = yaml.safe_load(path.read_bytes()), yaml.safe_load(CONTENT)
    for section in ("clusters", "users", "contexts"):
        [entry] = own[section]
        assert while_running.pop(section) == [*(yaml.safe_load(content)[section] or ()), entry]
    assert while_running == {
        name: value
        for name, value in yaml.safe_load(content).items()
        if name not in {"clusters", "users", "contexts"}
    }
    assert path.stat().st_mode & 0o777 == 0o640
    file.remove()
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [path]


def test_what_a_killed_command_has_left_in_a_user_s_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(USERS)
    KubeconfigFile(path).write(CONTENT)  # and ends there
    file = KubeconfigFile(path)
    file.write(CONTENT.replace(b"secret", b"another"))
    assert [each["name"] for each in yaml.safe_load(path.read_bytes())["contexts"]] == [
        "production",
        "stellwerk",
    ]
    file.remove()
    assert yaml.safe_load(path.read_bytes()) == yaml.safe_load(USERS)
    assert b"token: 0123," in path.read_bytes(), "a scalar is written as it was"


def test_a_user_s_changes_meanwhile_stay(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(PRODUCTION + b"current-context: production\n")
    file = KubeconfigFile(path)
    file.write(CONTENT)
    changed = yaml.safe_load(path.read_bytes())
    changed["current-context"] = "stellwerk"
    changed["contexts"].append({"name": "staging", "context": {"cluster": "production"}})
    path.write_text(yaml.safe_dump(changed))
    file.remove()
    left = yaml.safe_load(path.read_bytes())
    assert left["current-context"] == "production", "the cluster of the other one is gone"
    assert [each["name"] for each in left["contexts"]] == ["production", "staging"]
    assert left["users"] == yaml.safe_load(PRODUCTION)["users"]


def test_a_file_that_another_program_is_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfigs, "_LOCK_SECONDS", 0.1)
    path = tmp_path / "config"
    path.write_bytes(PRODUCTION)
    file = KubeconfigFile(path)
    (tmp_path / "config.lock").touch()  # as kubectl locks it
    with pytest.raises(ConfigurationError, match="another program is writing it"):
        file.write(CONTENT)
    assert path.read_bytes() == PRODUCTION


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
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        content = CONTENT.replace(b"1234", str(port).encode())
        first = KubeconfigFile(path)
        first.write(content)
        running = rf"config leads to a cluster that is running at http://127\.0\.0\.1:{port}: "
        with pytest.raises(ConfigurationError, match=running):
            KubeconfigFile(path)
        assert path.read_bytes() == content
    first.remove()
    KubeconfigFile(path).write(CONTENT)


def test_of_two_that_begin_together_one_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    first, second = KubeconfigFile(path), KubeconfigFile(path)
    first.write(CONTENT)
    with pytest.raises(ConfigurationError, match="another file is there now"):
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
    another = CONTENT.replace(b"secret", b"another")
    (tmp_path / "new").write_bytes(another)
    (tmp_path / "new").replace(replaced)
    for file in files:
        file.remove()
    assert changed.read_bytes() == PRODUCTION
    assert replaced.read_bytes() == another


def test_what_is_put_in_the_place_of_a_left_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, CONTENT)
    file = KubeconfigFile(path)
    (tmp_path / "new").write_bytes(PRODUCTION)
    (tmp_path / "new").replace(path)
    with pytest.raises(ConfigurationError, match="another file is there now"):
        file.write(CONTENT)
    assert path.read_bytes() == PRODUCTION
