from pathlib import Path

import pytest

from stellwerk_cluster.apimachinery.users import User
from stellwerk_cluster.identity.token_file import StaticToken, read_token_file
from stellwerk_kube.errors import ConfigurationError


def read(directory: Path, text: str) -> tuple[StaticToken, ...]:
    file = directory / "tokens.csv"
    file.write_text(text)
    return read_token_file(file)


def test_a_line_is_token_user_uid_and_groups(tmp_path: Path) -> None:
    text = 't1,alice,42,"dev, ops"\n\nt2,bob,43\nt3,carol,44,""\n'
    assert read(tmp_path, text) == (
        StaticToken("t1", User("alice", "42", ("dev", "ops"))),
        StaticToken("t2", User("bob", "43")),
        StaticToken("t3", User("carol", "44", ("",))),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("t1,a,1\nt2,b\n", "line 2: at least 3 columns", id="two columns"),
        pytest.param(",a,1\n", "line 1: the token is empty", id="no token"),
        pytest.param("t1,,1\n", "line 1: the user name is empty", id="no user"),
        pytest.param("t1,a,1\n\nt1,b,2\n", "line 3: .*that of user a", id="a token twice"),
        pytest.param('t1,a,1,"x" y\n', "line 1: ", id="text behind quotes"),
        pytest.param('t1,a,1\nt2,b,2,"x\n', "line 2: ", id="quotes that do not end"),
    ],
)
def test_what_is_no_token_is_refused_by_file_and_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"tokens.csv, {why}"):
        read(tmp_path, text)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.csv: No such file"):
        read_token_file(tmp_path / "missing.csv")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_bytes(b"t1,\xff,1\n")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_token_file(file)
