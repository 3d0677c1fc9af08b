"""Paths of users who have a home, and of those who have none."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from stellwerk_kube.user_files import NO_HOME, expanded


def unknown(name: Any) -> NoReturn:
    raise KeyError(f"uid not found: {name}")


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_the_home_takes_the_place_of_the_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert expanded("~/.kube/config") == Path("/home/user/.kube/config")
    assert expanded("/etc/~/config") == Path("/etc/~/config")
    assert expanded("config") == Path("config")


@pytest.mark.usefixtures("nameless")
def test_without_a_home_a_file_below_it_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "~").mkdir()
    assert expanded("~/.kube/config") == NO_HOME / ".kube/config"
    assert expanded("~") == NO_HOME
    assert expanded(str(tmp_path)) == tmp_path


def test_the_home_of_a_user_that_the_system_does_not_know_is_not_there() -> None:
    assert expanded("~nobody-of-this-name/config") == NO_HOME / "config"
