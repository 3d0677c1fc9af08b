"""Files of bearer tokens in kube-apiserver's format: token,user,uid,"group1,group2".

Read once by the command. Invariant: a file that is read gives every token one user.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.users import User
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import read_small_file

if TYPE_CHECKING:
    from pathlib import Path

_MIN_COLUMNS: Final = 3
"""Columns of a line of the file: token, user name and uid."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A bearer token that a user shows, as long as the cluster runs."""

    token: str
    user: User


def read_token_file(file: Path) -> tuple[StaticToken, ...]:
    """The tokens of a file, in its order.

    Raises:
        ConfigurationError: the file cannot be read, or one of its lines is no token.
    """
    try:
        text = read_small_file(file).decode()
    except OSError as error:
        raise ConfigurationError(f"--token-auth-file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--token-auth-file {file}: not UTF-8: {error}") from error
    found: dict[str, StaticToken] = {}
    reader = csv.reader(text.splitlines(keepends=True), skipinitialspace=True, strict=True)
    try:
        for record in reader:
            if record:
                token = _static_token(file, reader.line_num, record)
                _check_new(file, reader.line_num, token, found)
                found[token.token] = token
    except csv.Error as error:
        raise _malformed(file, reader.line_num, str(error)) from error
    return tuple(found.values())


def _static_token(file: Path, line: int, record: list[str]) -> StaticToken:
    if len(record) < _MIN_COLUMNS:
        why = f"at least 3 columns (token, user name, user uid) expected, {len(record)} found"
        raise _malformed(file, line, why)
    token, name, uid, *rest = record
    if not token or not name:
        raise _malformed(file, line, f"the {'user name' if token else 'token'} is empty")
    # An empty column of groups is one group without a name, as in kube-apiserver.
    groups = tuple(group.strip() for group in rest[0].split(",")) if rest else ()
    return StaticToken(token, User(name, uid, groups))


def _check_new(file: Path, line: int, token: StaticToken, found: dict[str, StaticToken]) -> None:
    if token.token in found:
        other = found[token.token].user.name
        raise _malformed(file, line, f"the token is already that of user {other}")


def _malformed(file: Path, line: int, why: str) -> ConfigurationError:
    return ConfigurationError(f"{file}, line {line}: {why}")
