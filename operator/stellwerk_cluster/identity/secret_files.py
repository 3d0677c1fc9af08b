"""The secrets behind credentials: the admin's token, the keys of service accounts and CA.

Asked by what signs and checks. Invariant: with a directory, each secret is made once and found
again by the next process; without one, it lives as long as this process and is never on disk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAX_SECRET_BYTES: Final = 1 << 16
"""Bytes of a file with a key or a token; a longer one is not ours."""


class SecretFiles:
    """The secrets of one cluster, by name."""

    def __init__(self, directory: Path | None = None) -> None:
        """Keep them in a directory, which only its user may read; None: in memory alone."""
        self._directory = directory

    def find(self, name: str) -> bytes | None:
        """A secret that an earlier process has made.

        Raises:
            ConfigurationError: its file cannot be read, or is no such file.
        """
        if self._directory is None:
            return None
        path = self._directory / name
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_SECRET_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(f"--data-dir: {path}: {error.strerror}") from error
        if not content or len(content) > _MAX_SECRET_BYTES:
            raise self.damaged(name)
        return content

    def find_or_make(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A secret, made and kept if there is none.

        Raises:
            ConfigurationError: its file cannot be read or written.
        """
        found = self.find(name)
        if found is None:
            found = make()
            self.keep(name, found)
        return found

    def keep(self, name: str, content: bytes) -> None:
        """Write a secret in the place of another one.

        Raises:
            ConfigurationError: it cannot be written.
        """
        if self._directory is None:
            return
        path = self._directory / name
        new = path.with_suffix(".new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as error:
            raise ConfigurationError(f"--data-dir: {path}: {error.strerror}") from error

    def damaged(self, name: str) -> ConfigurationError:
        """The complaint about a file that does not hold what its name says."""
        return ConfigurationError(
            f"--data-dir: {self._directory}/{name} is damaged. Remove the file to get a new "
            "one; credentials made with it become invalid"
        )
