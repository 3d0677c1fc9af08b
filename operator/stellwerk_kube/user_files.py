"""Files of the user who runs a command: a user may have no home.

Kubeconfigs and the key of the page are found with it. A container runs by a number that
`/etc/passwd` may not know, and nothing sets HOME there. Invariant: a user without a home is no
error; the files below it are just not there.
"""

from pathlib import Path
from typing import Final

NO_HOME: Final = Path("/nonexistent")
"""The home of users who have none, by Debian's policy: no folder has this name."""


def expanded(path: str) -> Path:
    """Return a path with the home of a user in place of its `~`.

    The home is `NO_HOME` if the user, or the one whose name follows the `~`, has none.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return NO_HOME.joinpath(*Path(path).parts[1:])
