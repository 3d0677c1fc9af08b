"""`stellwerk simulate --sweep` on the processes of this machine, and on a local cluster of Dask."""

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stellwerk_cli.cli import main
from tests.unit.stellwerk_simulation.test_sweep import grid_of

distributed = pytest.importorskip("distributed")


@pytest.mark.long
def test_two_workers_of_dask_make_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        executor = f"dask:{cluster.scheduler_address}"
        command = ["simulate", "--sweep", str(grid_of(tmp_path)), "--executor", executor]
        assert main(command) == 0
        by_dask = capsys.readouterr().out
    results = str(tmp_path / "again.sqlite")
    here = ["--executor", "processes", "--jobs", "2", "--results", results]
    assert main(["simulate", "--sweep", str(tmp_path / "grid.yaml"), *here]) == 0
    assert capsys.readouterr().out == by_dask


def test_a_dask_that_cannot_be_reached_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stellwerk_simulation.sweep.CONNECT_SECONDS", 1)
    executor = "dask:127.0.0.1:1"
    assert main(["simulate", "--sweep", str(grid_of(tmp_path)), "--executor", executor]) == 3
    assert "--executor dask:127.0.0.1:1: cannot be reached" in capsys.readouterr().err


@pytest.mark.long
def test_an_interrupt_keeps_what_is_done_and_ends_the_processes(tmp_path: Path) -> None:
    file = grid_of(tmp_path, seeds={"from": 1, "to": 3000})
    command = [
        sys.executable,
        "-m",
        "stellwerk_cli",
        "simulate",
        "--sweep",
        str(file),
        "--jobs",
        "2",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    results, kept = tmp_path / "grid.sqlite", 0
    deadline = time.monotonic() + 60
    while kept < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
        if results.exists():
            database = sqlite3.connect(results)
            tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables >= 2:
                kept = database.execute("SELECT count(*) FROM runs").fetchone()[0]
            database.close()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "of 6000 runs are in" in said
    assert "Traceback" not in said
    database = sqlite3.connect(results)
    assert database.execute("SELECT count(*) FROM runs").fetchone()[0] >= 3
    database.close()
