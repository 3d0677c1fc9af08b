"""Recorder and shadow while disks and the API misbehave: no pod is lost, and none waits for them.

The short set runs in process; the long one under the fault table, and replays what was recorded.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stellwerk.journal import writer as journal_writer
from stellwerk.journal.entries import Head
from stellwerk.journal.reader import Journal
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.scheduler.observers.recording import Recording
from stellwerk_kube.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.fault_cases import CASES
from tests.support.fault_load import Load
from tests.support.fault_runs import Disruption, run_case
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.invariants import check_invariants
from tests.support.recorded_runs import STARTED, on_a_device, replayed
from tests.support.seeds import fault_seed

PODS = 120
TINY = 400
"""Bytes: a part holds a few decisions."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few entries each, so that the disk has its turn soon."""
    monkeypatch.setattr(journal_writer, "BLOCK_BYTES", 2000)


async def _run(options: JournalOptions, removed: Path | None = None) -> tuple[str, int]:
    """Pods come and end, a folder goes; (why the recording ended, what the shadow compared)."""
    numbers, clock = random.Random(5), VirtualClock()
    writer = JournalWriter(options, Head("test", STARTED))
    shadow = make_profile("next", created=5, shadowOf="default-scheduler", sampleOneIn=2)
    del shadow["spec"]["schedulerName"]
    try:
        async with running(clock, Recording(writer, clock)) as world:
            world.apply(make_profile("default-scheduler"), shadow)
            world.apply(*(make_node(f"n{number}", cpu="16") for number in range(12)))
            for number in range(PODS):
                world.apply(make_pod(f"p{number}", cpu="500m"))
                if number == PODS // 2 and removed is not None:
                    _take_away(removed)
                if number % 20 == 19:
                    await quiet(60)
                    world.delete("Pod", f"p{numbers.randrange(number - 19, number)}")
                    if options.most_bytes == TINY:
                        # Blocks that are full by now are written, so that parts begin meanwhile.
                        await eventually(partial(_is_written, writer, number + 1))
            await eventually(lambda: _are_bound(world))
            await check_invariants(world.operator, world.client)
            seen = world.operator.loader.shadows.by_name["next"].compared
    finally:
        writer.close()
    return writer.failure, seen


def _is_written(writer: JournalWriter, pods: int) -> bool:
    return writer.events["Pod"] >= pods or bool(writer.failure)


def _take_away(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def _are_bound(world: InProcess) -> bool:
    pods = [obj for obj in world.client.objects.values() if obj["kind"] == "Pod"]
    return all(pod["spec"].get("nodeName") for pod in pods)


async def test_parts_that_hold_a_few_entries_each(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    failure, seen = await _run(JournalOptions(file, most_bytes=TINY))
    assert next(iter(Journal([file]))).part > 2  # type: ignore[union-attr]
    assert (failure, seen > PODS // 3) == ("", True)
    replay, journal = replayed(file)
    assert (journal.damage, replay.result.differences) == ("", [])
    assert replay.result.decisions == replay.result.equal > 0


async def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_device(monkeypatch, Path("/dev/full"))
    failure, seen = await _run(JournalOptions(tmp_path / "journal"))
    assert (failure, seen > PODS // 3) == ("No space left on device", True)


async def test_a_folder_that_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    failure, seen = await _run(JournalOptions(folder / "journal", most_bytes=TINY), folder)
    assert "No such file or directory" in failure
    assert seen > PODS // 3


async def test_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "MAX_WAITING_ENTRIES", 100)
    monkeypatch.setattr(journal_writer, "CLOSE_SECONDS", 0.0)
    with _never_read(tmp_path / "pipe") as pipe:
        on_a_device(monkeypatch, pipe)
        failure, seen = await _run(JournalOptions(tmp_path / "journal"))
    assert (failure, seen > PODS // 3) == ("the disk is more than 100 entries behind", True)


@contextmanager
def _never_read(pipe: Path) -> Iterator[Path]:
    """A pipe that is full: whatever writes to it waits until the block ends."""
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                os.write(writing, bytes(4096))
            except BlockingIOError:
                break
        yield pipe
    finally:
        os.close(reading)
        os.close(writing)


async def test_it_is_said_where_a_recording_cannot_begin(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        JournalWriter(JournalOptions(tmp_path / "none" / "journal"), Head("test", STARTED))


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("disrupted", [False, True], ids=["at the API", "and killed"])
async def test_what_was_recorded_under_faults_is_decided_again(
    tmp_path: Path, *, disrupted: bool
) -> None:
    """In parts of a few dozen decisions; what a killed process leaves is replayed up to its end."""
    case = CASES["recorded-and-shadowed"]
    arguments = (*case.arguments, "--record-max-size", "64Ki")
    disruptions = (Disruption("kill", (4, 7)),) if disrupted else ()
    case = replace(case, arguments=arguments, disruptions=disruptions)
    load = Load(pods=600 if disrupted else 300, per_second=100)
    outcome = await run_case(case, fault_seed(1), tmp_path, load)
    assert not outcome.wrongs, str(outcome)
    replay, journal = replayed(tmp_path / "run.journal")
    assert journal.damage == ""
    assert replay.result.differences == []
    assert replay.result.decisions == replay.result.equal > 0
