"""`python -m tests.benchmarks.bench_start`: from the start of the process to its first list.

The API is an embedded cluster in this process. Printed are CPU seconds of `stellwerk run`, imports
included, and wall-clock seconds, when its first list of pods arrives, and the memory that it has
used at most a few seconds later: the median of several starts.
"""

import argparse
import asyncio
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path

from aiohttp import web

from stellwerk_cluster.cluster import EmbeddedCluster
from tests.support.processes import running

_TICKS = os.sysconf("SC_CLK_TCK")
_SETTLED_SECONDS = 3.0
"""Everything has been listed by then, and absent kinds looked for again."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mib(pid: int) -> float:
    """The resident memory of a process at its highest."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) / 1024


async def first_list(cluster: EmbeddedCluster, directory: Path) -> tuple[float, float, float]:
    """(CPU, wall-clock) seconds and peak MiB of one start, on a cluster that is not yet open."""
    listed = asyncio.Event()
    server = cluster._server  # noqa: SLF001 the only place that sees every request
    handle = server.handle

    async def noted(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/api/v1/pods":
            listed.set()
        return await handle(request)

    server.handle = noted  # type: ignore[method-assign]
    kubeconfig = directory / "kubeconfig"
    async with cluster:
        cluster.write_kubeconfig(kubeconfig)
        arguments = ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0")
        started = time.monotonic()
        log = directory / "run.log"
        async with running(log, "run", *arguments, is_forked=False) as process:
            await asyncio.wait_for(listed.wait(), 60)
            seconds = cpu_seconds(process.process.pid), time.monotonic() - started
            await asyncio.sleep(_SETTLED_SECONDS)
            return *seconds, peak_mib(process.process.pid)


async def measure(times: int) -> None:
    """Print the medians."""
    with tempfile.TemporaryDirectory() as directory:
        seconds = [await first_list(EmbeddedCluster(3), Path(directory)) for _ in range(times)]
    cpu, wall, peak = (statistics.median(column) for column in zip(*seconds, strict=True))
    print(
        f"{times} starts: CPU {cpu:.2f} s, wall clock {wall:.2f} s to the first list of pods, "
        f"{peak:.1f} MiB at most"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="From the start to the first list.")
    parser.add_argument("--times", type=int, default=7)
    # Watches that end with the process are no news.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    asyncio.run(measure(parser.parse_args().times))
