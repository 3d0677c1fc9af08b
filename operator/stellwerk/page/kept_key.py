"""The key of a page with a port of its own, kept in a file, so that bookmarks outlive a restart.

The server reads it before it listens. Invariant: the file is the user's own and no other can read
it; what is not so is refused, and never overwritten.
"""

import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from stellwerk.errors import ConfigurationError

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{32}")
_PRIVATE: Final = 0o600


def kept_key(port: int) -> str:
    """The key of the page on a port: that of before, or a new one, which is kept.

    Raises:
        ConfigurationError: the file is not private, is no key, or cannot be written.
    """
    file = _folder() / f"page-{port}.key"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return _written(file)
        except FileExistsError:
            return _read(file)
    except OSError as error:
        raise ConfigurationError(f"the page's key cannot be kept in {file}: {error}") from error


def _folder() -> Path:
    """The place of what programs keep for a user."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local/state") / "stellwerk"


def _written(file: Path) -> str:
    """A new key, in a file that was not there; it appears whole."""
    key = secrets.token_urlsafe(24)
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as opened:
            opened.write(f"{key}\n")
        file.hardlink_to(new)
    finally:
        new.unlink(missing_ok=True)
    return key


def _read(file: Path) -> str:
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise ConfigurationError(f"the page's key {file} is not a file of yours")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise ConfigurationError(
                f"others may read the page's key {file}: remove it, so that a new one is made"
            )
        key = opened.read(64).strip()
    if not _KEY.fullmatch(key):
        raise ConfigurationError(f"{file} holds no key of the page: remove it")
    return key
