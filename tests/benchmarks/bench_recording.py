"""What recording costs: CPU of the loop's thread for a pod's entries, and whole runs in pairs.

    python -m tests.benchmarks.bench_recording --pods 4000 --nodes 1000 --pairs 7

The entries are those of a pod that comes, is decided, is seen bound and goes. Whole runs vary more
from one to the next than the entries cost.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.journal.entries import Head, SnapshotWritten
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.scheduler.observers.recording import Recording
from stellwerk.world.decide import decide
from stellwerk_kube.clock import SystemClock, VirtualClock
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod
from tests.support.in_process import eventually, make_profile, quiet, running


async def drain(pods: int, nodes: int, writer: JournalWriter | None) -> tuple[float, float]:
    """CPU seconds of (the loop's thread, the process) for so many pods, from event to binding."""
    clock = VirtualClock()
    recording = None if writer is None else Recording(writer, clock)
    async with running(clock, recording) as world:
        world.apply(make_profile("default-scheduler"))
        world.apply(*(make_node(f"n{number}", cpu="64") for number in range(nodes)))
        world.apply(make_pod("warm"))
        await quiet(50)
        manifests = [make_pod(f"p{number}", cpu="100m") for number in range(pods)]
        loop_seconds, process_seconds = time.thread_time(), time.process_time()
        for manifest in manifests:
            world.apply(manifest)
        await eventually(
            lambda: world.profiles.served["default-scheduler"].activity.scheduled_pods > pods
        )
        return time.thread_time() - loop_seconds, time.process_time() - process_seconds


def entries(pods: int, file: Path) -> float:
    """CPU microseconds of this thread for the entries of one pod."""
    writer = JournalWriter(JournalOptions(file), Head("bench", "2026-01-01T00:00:00Z"))
    case = Case({"id": "case", "pod": make_pod("p"), "nodes": [make_node("n1"), make_node("n2")]})
    decision = decide(case.world, case.pod, case.profile)
    queued = QueuedPod(case.pod, case.pod, "", 0.0)
    recording, manifest = Recording(writer, SystemClock()), make_pod("p")
    started = time.thread_time()
    for _ in range(pods):
        for event_type in ("ADDED", "MODIFIED", "DELETED"):
            recording.event("Pod", event_type, manifest)
        recording.put(SnapshotWritten())
        recording.decided(queued, decision)
    seconds = time.thread_time() - started
    writer.close()
    return 1e6 * seconds / pods


def run(pods: int, nodes: int, file: Path | None) -> tuple[float, float]:
    """One run; microseconds a pod."""
    writer = None
    if file is not None:
        writer = JournalWriter(JournalOptions(file), Head("bench", "2026-01-01T00:00:00Z"))
    try:
        loop, process = asyncio.run(drain(pods, nodes, writer))
    finally:
        if writer is not None:
            writer.close()
    return 1e6 * loop / pods, 1e6 * process / pods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=4000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "journal"
        alone = statistics.median(entries(options.pods, file) for _ in range(options.pairs))
        print(f"entries of one pod: {alone:.1f} µs of the loop's thread")
        run(500, options.nodes, file)
        differences: list[tuple[float, float]] = []
        for _ in range(options.pairs):
            without = run(options.pods, options.nodes, None)
            recorded = run(options.pods, options.nodes, file)
            differences.append((recorded[0] - without[0], recorded[1] - without[1]))
            print(
                f"without {without[0]:6.1f} µs a pod, recording {recorded[0]:6.1f}: "
                f"loop {differences[-1][0]:+5.1f}, process {differences[-1][1]:+5.1f}"
            )
        loop, process = (statistics.median(column) for column in zip(*differences, strict=True))
        size = file.stat().st_size / options.pods
        print(f"medians: loop {loop:+.1f} µs, process {process:+.1f} µs; {size:.0f} bytes a pod")


if __name__ == "__main__":
    main()
