"""The memory of this process beside what it may take: a container's limit, or the machine's.

Lists ask before they take in more. Invariant: the answer costs microseconds, and where nothing says
what there is, everything is allowed.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

_PROC: Final = Path("/proc/self")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_CGROUP_FILES: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""Files of a control group that hold its limit, of version 2 and 1, from the folder of groups."""


class MemoryUse(NamedTuple):
    """The memory that is taken, and the most that may be."""

    taken_bytes: int
    limit_bytes: int

    @property
    def share(self) -> float:
        """The taken share of the limit, at least 0."""
        return self.taken_bytes / self.limit_bytes

    @override
    def __str__(self) -> str:
        return f"{self.taken_bytes >> 20} of {self.limit_bytes >> 20} MiB of memory"


def memory_use() -> MemoryUse:
    """Return the use that is nearest to its limit: of resident memory, or of address space."""
    try:
        size, resident = (_PROC / "statm").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return MemoryUse(0, 1)
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    use = MemoryUse(int(resident) * page_bytes, resident_limit_bytes())
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space == resource.RLIM_INFINITY:
        return use
    return max(use, MemoryUse(int(size) * page_bytes, address_space), key=lambda each: each.share)


@cache
def resident_limit_bytes() -> int:
    """Return the smallest limit of this process's control groups, or the machine's memory."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    folders = [_CGROUPS]
    try:
        # The container's own group is the root of what it sees; elsewhere its path is named here.
        group = (_PROC / "cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
    except OSError:
        group = ""
    folders += [_CGROUPS / each.lstrip("/") for each in (group, *map(str, Path(group).parents))]
    for file in (folder / name for folder in folders for name in _CGROUP_FILES):
        try:
            text = file.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text.isdecimal() and int(text):
            limits.append(int(text))
    return min(limits)
