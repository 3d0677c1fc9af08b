"""The date, commit, machine and command of figures, as a dictionary and as a table's caption.

Every benchmark whose figures are kept in docs/ prints it under them.
"""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from stellwerk_kube.json_values import JsonObject
from tests.support.repository import ROOT


def provenance(command: str | None = None) -> JsonObject:
    """Where, when and at which commit figures are made, from now on.

    `command`: what makes them again; by default the command line of this process.
    """
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "command": command or _command(),
    }


def caption(measured: JsonObject) -> str:
    """A line for the foot of a table."""
    return (
        f"{measured['date']}, commit {measured['commit']}, {measured['cores']} cores of "
        f"{measured['cpu']}, load average {measured['load']} before, Python "
        f"{measured['python']}: `{measured['command']}`"
    )


def _commit() -> str:
    """The commit that is checked out; with a plus sign if files differ from it."""
    asked = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _command() -> str:
    module = ".".join(Path(sys.argv[0]).with_suffix("").relative_to(ROOT).parts)
    return " ".join(["python -m", module, *sys.argv[1:]])
