"""`stellwerk simulate`: its output, its files, and its one-line mistakes."""

import contextlib
import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stellwerk_cli.cli import main
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data" / "simulation"
TRACE = ("--nodes", str(DATA / "nodes.csv"), "--pods", str(DATA / "pods.csv"))
LOADS = re.compile(r"src=|href=|<script|<link|url\(|@import")
COMMAND = (sys.executable, "-m", "stellwerk_cli", "simulate")


def simulate(*arguments: str) -> int:
    return main(["simulate", *TRACE, "--jobs", "1", *arguments])


def test_a_table_and_a_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.csv"
    assert simulate("--profile", "fgd", "--inflate", "1.3", "--curve", str(path)) == 0
    printed = capsys.readouterr()
    head, line, _, *left_out = printed.out.splitlines()
    assert left_out[0].startswith("fgd, seed 42: ")
    assert printed.err.splitlines()[-1] == "stellwerk: decisions follow Kubernetes 1.37.1"
    assert head.split()[:3] == ["profile", "seed", "pods"]
    assert line.split()[:2] == ["fgd", "42"]
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["arrived_pct"] for row in rows] == [str(percent) for percent in range(131)]
    assert list(rows[0])[:4] == [
        "arrived_pct",
        "allocated_pct",
        "fragmented_pct",
        "fragmentation_ratio_pct",
    ]
    assert 80 < float(rows[-1]["allocated_pct"]) <= 100
    assert [each.name for each in tmp_path.iterdir()] == ["out.csv"]


def test_several_profiles_and_seeds_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    runs = ("--profile", "best-fit", "--profile", "gpu-packing", "--seed", "1", "--seed", "2")
    assert simulate(*runs, "--inflate", "0.5", "--curve", str(path)) == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines[:6] == [
        [profile, seed] for profile in ("best-fit", "gpu-packing") for seed in ("1", "2", "mean")
    ]
    points = json.loads(path.read_text())
    assert len(points) == 4 * 51
    assert {(point["profile"], point["seed"]) for point in points} == {
        ("best-fit", 1),
        ("best-fit", 2),
        ("gpu-packing", 1),
        ("gpu-packing", 2),
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--profile", "fdg"), "--profile fdg: there is no such profile"),
        (("--profile", "fgd", "--curve", "out.txt"), "the name must end in .csv or .json"),
        (("--profile", "fgd", "--curve", "/absent/out.csv"), "cannot be written there"),
        (("--profile", "absent.yaml"), "cannot read absent.yaml: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*arguments) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--inflate", "0"),
        ("--inflate", "nan"),
        ("--seed", "0"),
        ("--seed", "9" * 99),
        ("--jobs", "x"),
    ],
)
def test_numbers_are_checked(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        simulate("--profile", "fgd", *arguments)
    assert f"argument {arguments[0]}" in capsys.readouterr().err


def test_bars_for_a_cluster_without_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, nodes, pods = (tmp_path / name for name in ("out.html", "nodes.csv", "pods.csv"))
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\n<n>,4000,64,0,\nm,4000,64,0,\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1,0,0\n")
    trace = ("--nodes", str(nodes), "--pods", str(pods), "--jobs", "1")
    command = ["simulate", *trace, "--compare", "default", "best-fit"]
    assert main([*command, "--html", str(path)]) == 0
    text = path.read_text()
    assert "<dt>nodes in use</dt>" in text
    assert "<dt>preempted</dt>" not in text
    assert text.count("<meter max=1 value=1>") == 4
    capsys.readouterr()
    assert main([*command, "--curve", str(tmp_path / "out.csv")]) == 2
    assert "--curve shows loads of GPUs, and these pods ask for none" in capsys.readouterr().err


def test_what_is_read_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_bytes((DATA / "pods.csv").read_bytes())
    command = ["simulate", "--nodes", str(DATA / "nodes.csv"), "--pods", str(pods)]
    assert (
        main([*command, "--profile", "fgd", "--curve", f"{tmp_path}/../{tmp_path.name}/pods.csv"])
        == 2
    )
    assert "would overwrite what is read" in capsys.readouterr().err
    assert pods.read_bytes() == (DATA / "pods.csv").read_bytes()


def test_extenders_are_not_asked_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "kind: SchedulerProfile\nmetadata: {name: own}\nspec:\n  schedulerName: own\n"
        "  extenders: [{urlPrefix: 'http://127.0.0.1:1', filterVerb: filter}]\n"
    )
    assert simulate("--profile", str(path)) == 0
    assert f"--profile {path}: its extenders are not asked" in capsys.readouterr().err


def test_a_page_that_loads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.html"
    arguments = ("--compare", "best-fit", "fgd", "--inflate", "0.5", "--html", str(path))
    assert simulate(*arguments) == 0
    text = path.read_text()
    assert text.count('<path class="c') == 4
    assert "fgd against best-fit" in text
    assert "18 nodes and 160 pods, inflated to 50% of all GPUs." in text
    assert not LOADS.search(text), text
    assert "nodes in use" in capsys.readouterr().out


def test_without_a_profile_it_is_the_default_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate() == 0
    unnamed = capsys.readouterr().out
    assert simulate("--profile", "default") == 0
    assert capsys.readouterr().out.split()[:-1] == unnamed.split()[:-1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("--profile", "fgd", "--inflate", "1", "--arrivals", "trace"),
            "cannot be used with --arrivals",
        ),
        (("--profile", "fgd", "--html", "out.pdf"), "the name must end in .html"),
    ],
)
def test_what_does_not_go_together(
    arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*arguments) == 2
    assert problem in capsys.readouterr().err


def test_an_output_that_takes_no_more_is_one_line(tmp_path: Path) -> None:
    curve = ("--curve", str(tmp_path / "out.csv"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *TRACE, "--profile", "best-fit", "--jobs", "1", *curve],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "stellwerk: cannot write the output: No space left on device\n"
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_run_leaves_nothing_behind(jobs: str, tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    head, *rows = (DATA / "pods.csv").read_text().splitlines()
    pods.write_text("\n".join([head, *(f"x{n}{row}" for n in range(300) for row in rows)]))
    trace = ("--nodes", str(DATA / "nodes.csv"), "--pods", str(pods), "--profile", "fgd")
    files = ("--curve", str(tmp_path / "out.csv"), "--html", str(tmp_path / "out.html"))
    terminal, error = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, *trace, "--seed", "1", "--seed", "2", "--jobs", jobs, *files],
        stdout=subprocess.PIPE,
        stderr=error,
        process_group=0,
    )
    os.close(error)
    while "pods/s" not in (shown := os.read(terminal, 4096).decode()):
        pass
    os.killpg(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=300)
    with contextlib.suppress(OSError):  # what a terminal says when the last process has left it
        while said := os.read(terminal, 4096):
            shown += said.decode()
    os.close(terminal)
    assert "Traceback" not in shown
    assert (output, running.returncode) == (b"", 130)
    assert [each.name for each in tmp_path.iterdir()] == ["pods.csv"]
