"""A scheduler as a process of its own: started by command line, watched from outside.

What it costs is read from /proc for its whole process group, so that a scheduler in several
processes, or behind a shell, is measured alike.
"""

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS: Final = 20.0
_REST_SECONDS: Final = 0.5
_REST_TRIES: Final = 60
_RESTING: Final = 0.1
"""Of a core: so little is nothing."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process group has used so far."""

    cpu_seconds: float
    peak_mib: float
    """The largest peak resident size (VmHWM) among its processes."""


class SchedulerProcess:
    """A running scheduler."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def group(self) -> int:
        """The process group that the scheduler leads."""
        return self._process.pid

    def usage(self) -> Usage:
        """CPU time and peak memory up to now."""
        return _usage(self._process.pid)

    def resident_mib(self) -> float:
        """The resident size of its first process now."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    async def usage_at_rest(self) -> Usage:
        """The usage when nothing more is done: events are written after the last binding, too."""
        usage = self.usage()
        for _ in range(_REST_TRIES):
            await asyncio.sleep(_REST_SECONDS)
            before, usage = usage, self.usage()
            if usage.cpu_seconds - before.cpu_seconds <= _RESTING * _REST_SECONDS:
                break
        return usage

    def check_alive(self) -> None:
        """Raise with the end of its log if it has ended."""
        if self._process.poll() is not None:
            text = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"the scheduler ended with {self._process.returncode}:\n{text}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        if self._process.poll() is not None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def running(command: str, log: Path) -> Iterator[SchedulerProcess]:
    """Run a command line for as long as the block lasts, its output in `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            shlex.split(command), stdout=output, stderr=output, start_new_session=True
        )
    scheduler = SchedulerProcess(process, log)
    try:
        yield scheduler
    finally:
        scheduler.stop()


def processes_of_group(group: int) -> list[int]:
    """The ids of a group's processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[2]) == group:
                found.append(int(entry.name))
    return found


def cpu_seconds_of(pid: int) -> float:
    """The CPU time that a process has used so far; 0 if it has ended."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND if fields else 0.0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if it has ended."""
    try:
        # The command's name is in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return []


def _usage(group: int) -> Usage:
    cpu_seconds, peak_mib = 0.0, 0.0
    for pid in processes_of_group(group):
        cpu_seconds += cpu_seconds_of(pid)
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            continue  # it has just ended
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                peak_mib = max(peak_mib, int(line.split()[1]) / 1024)
    return Usage(cpu_seconds, peak_mib)
