"""A session of kubectl that a newcomer types into a shell, and what a real cluster said.

`tests/data/sessions/newcomer.json` has each line with the output and exit status that kubectl 1.36
gave on kube-apiserver, kube-controller-manager 1.36 and Stellwerk; what only a kubelet knows came
from a stand-in. `shown` takes away what differs between two runs on one cluster.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

RECORDING: Final = ROOT / "tests" / "data" / "sessions" / "newcomer.json"

_ID: Final = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_AGE: Final = r"(?:<invalid>|<unknown>|\d+[smhd](?:\d+[smhd])?)"
_CHANGES: Final = (
    (r"https?://127\.0\.0\.1:\d+", "<server>"),
    (r"https?://(\d+\.){3}\d+:\d+", "<server>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+]0000", "<time>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+]0000", "<time>"),
    (r"\"?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\"?", "<time>"),
    (r"\b(10|172)(\.\d+){3}\b", "<address>"),
    (rf"\b([a-z]+)-[0-9a-z]{{8,10}}-{_ID}\b", r"\1-<hash>-<id>"),
    (r"\b(web|api|shop|hello)-(?=\w*\d)[0-9a-z]{8,10}\b", r"\1-<hash>"),
    (r"(pod-template-hash[=:] ?)\w+", r"\1<hash>"),
    (rf"\b([a-z]+)-{_ID}\b(?![-:])", r"\1-<id>"),
    (r"(resourceVersion: )\"\d+\"", r"\1<version>"),
    (r"/\S+/(LIVE|MERGED)-\d+", r"<folder>/\1"),
    (r"\bzone-[abc]\b", "<zone>"),
    (rf"(?<=\s){_AGE}( ago)?(?=\s|$)( \(x\d+ over [^)]*\))?", "<age>"),
    (r" \(x\d+ over <age>\)", ""),
)
"""What differs between two runs, and what stands for it."""

_CHOSEN_NODE: Final = re.compile("pod hello|pod/hello|kubectl (drain|uncordon)")
"""Lines whose answers name the node that one pod was given, where several are equal."""
_PROGRESS: Final = re.compile("rollout status|kubectl (drain|uncordon)")
_PASSING: Final = re.compile(r"Waiting for|evicting pod|pod/\S+-<id> evicted")
"""What is said on the way, as often as it was looked at."""


@dataclass(frozen=True)
class Line:
    """One line of the session."""

    typed: str
    exit: int
    printed: str


def recorded() -> list[Line]:
    """The whole session."""
    return [Line(**each) for each in json.loads(RECORDING.read_text(encoding="utf-8"))]


def typed(lines: Iterable[str], kubectl: Path, home: Path, kubeconfig: Path) -> Iterable[Line]:
    """Type the lines one after the other into a shell that finds this kubectl."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "kubectl").unlink(missing_ok=True)
    (folder / "kubectl").symlink_to(kubectl)
    environment = {
        "PATH": f"{folder}:{os.defpath}",
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        "GOGC": "off",
    }
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            check=False,
        )
        yield Line(line, done.returncode, done.stdout)


def shown(line: Line) -> list[str]:
    """The lines that it printed, without what differs from run to run.

    Rows of tables have one blank between their columns; events, whose order within a second is
    chance, are in order of their text; of the progress of a rollout the end remains.
    """
    text = "\n".join(" ".join(row.split()) for row in line.printed.splitlines())
    if _CHOSEN_NODE.search(line.typed):
        text = re.sub(r"\bnode-\d\b", "<node>", text)
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    rows = text.splitlines()
    if _PROGRESS.search(line.typed):
        return sorted(row for row in rows if not _PASSING.match(row))
    events = 0 if " events" in line.typed else rows.index("Events:") if "Events:" in rows else None
    return rows if events is None else [*rows[:events], *sorted(rows[events:])]
