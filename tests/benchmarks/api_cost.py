"""What a scheduler costs the API server: its CPU and etcd's, requests by kind, bytes.

`drain` takes a reading when the scheduler starts, when the first pod is bound, and at rest. CPU
time comes from /proc, requests from the API server's own counters, and bytes from the kernel's
counters of the scheduler's connections (`ss`). Invariant: what comes before the first binding
(lists, connections of a start) is in no figure of a pod, except for requests, whose lists and
watches are shown apart.
"""

import asyncio
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from tests.benchmarks.scheduler_process import cpu_seconds_of, processes_of_group

_SOCKET_BYTES: Final = re.compile(r"\bbytes_(sent|received):(\d+)")
_SOCKET_PID: Final = re.compile(r"\bpid=(\d+)\b")
_TOUCHED_BYTES: Final = 2 << 20
"""Bytes of memory that the measure of the machine's speed reads: more than one core's own cache."""
_ADDITIONS: Final = 20_000
_PASS_SECONDS: Final = 0.05
_SET_UP: Final = frozenset({"LIST", "WATCH"})
"""Requests of a start; their number does not follow the number of pods."""

Requests = Mapping[str, int]
"""Number of requests by what they do, as in "POST pods/binding 201"."""


class MachineSpeed:
    """CPU time of the same piece of work, again and again while something else is measured.

    On a machine that others use, the CPU time of one piece of work differs by half from minute to
    minute: caches, the memory and the second thread of a core are shared. Work that is done beside
    what is measured slows down with it, so a ratio of figures can be corrected by it.
    """

    def __init__(self) -> None:
        self._buffer = bytes(_TOUCHED_BYTES)
        self._seconds = 0.0
        self._passes = 0

    async def run(self) -> None:
        """Do a piece of work, of about a millisecond, twenty times a second; until cancelled."""
        while True:
            began = time.thread_time()
            crc32(self._buffer)
            sum(range(_ADDITIONS))
            self._seconds += time.thread_time() - began
            self._passes += 1
            await asyncio.sleep(_PASS_SECONDS)

    def forget(self) -> None:
        """Begin again."""
        self._seconds, self._passes = 0.0, 0

    @property
    def pass_ms(self) -> float:
        """Average CPU time of a piece of work, in milliseconds; 0 if there was none."""
        return 1000 * self._seconds / self._passes if self._passes else 0.0


class ApiProcesses(NamedTuple):
    """The processes of a control plane on this machine."""

    api_server: int
    etcd: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What control plane and connections have spent so far."""

    api_server_seconds: float
    etcd_seconds: float
    sent_bytes: int
    """Bytes that the scheduler has sent on connections that are open."""
    received_bytes: int


def spent(processes: ApiProcesses, scheduler_group: int) -> Spent:
    """Read it now; a connection that has closed is counted no more."""
    counts: Counter[str] = Counter()
    pids = {str(pid) for pid in processes_of_group(scheduler_group)}
    for line in _sockets():
        if pids.intersection(_SOCKET_PID.findall(line)):
            for direction, number in _SOCKET_BYTES.findall(line):
                counts[direction] += int(number)
    return Spent(
        cpu_seconds_of(processes.api_server),
        cpu_seconds_of(processes.etcd),
        counts["sent"],
        counts["received"],
    )


def figures_per_pod(first: Spent, last: Spent, pods: int) -> dict[str, float]:
    """Milliseconds of CPU and bytes for each pod, between two readings."""
    return {
        "api_cpu_ms_per_pod": round(
            1000 * (last.api_server_seconds - first.api_server_seconds) / pods, 3
        ),
        "etcd_cpu_ms_per_pod": round(1000 * (last.etcd_seconds - first.etcd_seconds) / pods, 3),
        "sent_bytes_per_pod": round((last.sent_bytes - first.sent_bytes) / pods),
        "received_bytes_per_pod": round((last.received_bytes - first.received_bytes) / pods),
    }


def requests_between(before: Requests, after: Requests, pods: int) -> dict[str, dict[str, float]]:
    """Return requests per pod by kind, and apart from them the number of lists and watches."""
    per_pod: dict[str, float] = {}
    set_up: dict[str, float] = {}
    for kind, count in sorted(after.items()):
        added = count - before.get(kind, 0)
        if added <= 0:
            continue
        if kind.split(" ")[0] in _SET_UP:
            set_up[kind] = added
        elif added >= pods / 1000:
            per_pod[kind] = round(added / pods, 3)
    return {"requests_per_pod": per_pod, "lists_and_watches": set_up}


def _sockets() -> Sequence[str]:
    """Return a line for each TCP connection of this machine, with its process and its counters."""
    program = shutil.which("ss")
    if program is None:
        raise RuntimeError("bytes per pod need ss: install iproute2")
    told = subprocess.run(
        (program, "--tcp", "--numeric", "--processes", "--info", "--no-header", "--oneline"),
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.splitlines()
