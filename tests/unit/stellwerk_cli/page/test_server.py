"""The kept key of a page: the same at the next start, and nobody else's."""

import errno
import os
from pathlib import Path

import pytest

from stellwerk_cli.page.server import kept_key
from stellwerk_kube.errors import ConfigurationError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of keys."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")
    return tmp_path / "stellwerk"


def test_the_key_of_a_port_is_the_same_next_time(state: Path) -> None:
    key = kept_key(8080)
    assert (kept_key(8080), kept_key(8081) != key) == (key, True)
    file = state / "page-8080.key"
    assert (file.stat().st_mode & 0o777, state.stat().st_mode & 0o777) == (0o600, 0o700)
    assert sorted(each.name for each in state.iterdir()) == ["page-8080.key", "page-8081.key"]


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        pytest.param("x" * 32, 0o644, "others may read", id="others can read it"),
        pytest.param("x" * 32, 0o620, "others may read", id="others can write it"),
        pytest.param("short", 0o600, "holds no key", id="no key"),
        pytest.param("x" * 33, 0o600, "holds no key", id="too long"),
    ],
)
def test_what_is_no_private_key_is_refused(
    text: str, mode: int, complaint: str, state: Path
) -> None:
    state.mkdir()
    file = state / "page-8080.key"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=complaint):
        kept_key(8080)
    assert file.read_text() == text


def test_a_link_and_a_folder_are_refused(state: Path, tmp_path: Path) -> None:
    state.mkdir()
    (tmp_path / "elsewhere").write_text("x" * 32)
    (state / "page-1.key").symlink_to(tmp_path / "elsewhere")
    (state / "page-2.key").mkdir()
    for port in (1, 2):
        with pytest.raises(ConfigurationError, match="page"):
            kept_key(port)


def test_without_a_place_for_it_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path / 'file'}")
    with pytest.raises(ConfigurationError, match="cannot be kept in"):
        kept_key(8080)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_user_who_may_write_nowhere_gets_a_new_key_at_each_start(
    error: int,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The tests may run as root, who may write everywhere."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.mkdir", refuse)
        first, second = kept_key(8080), kept_key(8080)
    assert first != second
    assert len(first) == len(second) == 32
    assert f"it cannot be kept in {state / 'page-8080.key'}" in caplog.text
    assert not state.exists()


def test_a_key_that_is_there_and_cannot_be_read_is_not_replaced(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_key(8080)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        with pytest.raises(ConfigurationError, match="cannot be kept in"):
            kept_key(8080)
    assert (state / "page-8080.key").exists()
