"""Sweeps: a grid is read strictly, runs are made once, and what is in the file stays."""

import lzma
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typing_extensions import override

from stellwerk_cli.cli import main
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_simulation import sweep as module
from stellwerk_simulation.experiment import Progress
from stellwerk_simulation.sweep import Sweep, SweepTask, read_grid, run_task
from stellwerk_simulation.sweep_results import SweepResults
from tests.support.builders import make_node, make_pod

THREADS = "tests.unit.stellwerk_simulation.test_sweep:threads"
COUNTED: list[str] = []


class Threads(ThreadPoolExecutor):
    """An executor that is no pool of processes, and counts what it is given."""

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        COUNTED.append(args[0].run.profile)
        return super().submit(fn, *args, **kwargs)


def threads() -> Threads:
    return Threads(2)


def no_executor() -> object:
    return object()


def unreachable() -> Threads:
    raise OSError("connection refused")


@pytest.fixture(autouse=True)
def counted() -> None:
    COUNTED.clear()


def grid_of(folder: Path, **fields: Any) -> Path:
    """A grid over a small cluster, with these fields in place of its own."""
    nodes = [make_node(f"n{number}", cpu="4") for number in range(3)]
    pods = [make_pod(f"p{number}", cpu="1") for number in range(5)]
    cluster = folder / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all([*nodes, *pods]))
    (folder / "packing.yaml").write_text(
        "kind: SchedulerProfile\nmetadata: {name: packing}\nspec:\n  schedulerName: packing\n"
        "  pluginConfig:\n  - name: NodeResourcesFit\n"
        "    args: {scoringStrategy: {type: MostAllocated}}\n"
    )
    grid = {
        "clusters": [{"name": "small", "nodes": "cluster.yaml", "pods": "cluster.yaml"}],
        "profiles": ["default", "packing.yaml"],
        "seeds": {"from": 1, "to": 3},
        **fields,
    }
    file = folder / "grid.yaml"
    file.write_text(yaml.safe_dump(grid))
    return file


def sweep(file: Path, *arguments: str) -> int:
    return main(["simulate", "--sweep", str(file), "--executor", THREADS, *arguments])


def test_every_profile_runs_with_every_seed_and_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert sweep(grid_of(tmp_path), "--html", str(page)) == 0
    printed = capsys.readouterr().out
    assert "small: packing.yaml against default" in printed
    assert "95 % interval" in printed
    assert "packing.yaml places as many pods as default" in printed
    assert "small: packing.yaml" in page.read_text()
    assert sorted(COUNTED) == ["default"] * 3 + ["packing.yaml"] * 3


def test_the_answer_has_means_with_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(grid_of(tmp_path), "-o", "json") == 0
    answer = orjson.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["runs"], answer["missing"]) == ("SweepAnswer", 6, 0)
    (cluster,) = answer["clusters"]
    default, packing = cluster["profiles"]
    assert (default["seeds"], packing["seeds"]) == (3, 3)
    assert default["means"]["nodes in use"] > packing["means"]["nodes in use"] == 2
    assert packing["halfWidths"]["nodes in use"] == 0
    nodes = next(each for each in cluster["comparisons"] if each["figure"] == "nodes in use")
    assert (nodes["first"], nodes["second"], nodes["verdict"]) == (
        "default",
        "packing.yaml",
        "better",
    )


def test_what_was_run_is_not_run_again_and_further_seeds_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(grid_of(tmp_path)) == 0
    COUNTED.clear()
    assert sweep(grid_of(tmp_path)) == 0
    assert COUNTED == []
    assert "6 of 6 runs are in" in capsys.readouterr().err
    assert sweep(grid_of(tmp_path, seeds={"from": 2, "to": 4})) == 0
    assert sorted(COUNTED) == ["default", "packing.yaml"]


def test_a_run_is_known_by_what_goes_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids(**fields: Any) -> list[str]:
        return [run.id for run in Sweep.of(read_grid(grid_of(tmp_path, **fields))).runs]

    before = ids()
    assert len(set(before)) == 6
    assert ids(profiles=["packing.yaml", "default"], seeds=[1]) == [before[3], before[0]]
    cluster = {"name": "other name", "nodes": "cluster.yaml", "pods": "cluster.yaml"}
    assert ids(clusters=[cluster]) == before
    assert not set(before) & set(ids(clusters=[{**cluster, "arrivals": "trace"}]))
    monkeypatch.setattr(module, "__version__", "another")
    assert not set(before) & set(ids())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"seed": [1]}, "'seed' is not known; did you mean \"seeds\"?", id="key"),
        pytest.param(
            {"clusters": [{"name": "a", "nodes": "x", "pods": "y", "inflat": 2}]},
            "clusters[0]: 'inflat' is not known; did you mean \"inflate\"?",
            id="key of a cluster",
        ),
        pytest.param({"clusters": [{"name": "a"}]}, "clusters[0]: nodes is missing", id="missing"),
        pytest.param({"clusters": []}, "clusters: expected a list", id="empty list"),
        pytest.param({"profiles": ["fgdd"]}, "no profile 'fgdd'; did you mean \"fgd\"?", id="name"),
        pytest.param({"profiles": ["fgd", "fgd"]}, "'fgd' occurs twice", id="twice"),
        pytest.param({"profiles": ["gone.yaml"]}, "gone.yaml: No such file", id="no file"),
        pytest.param({"seeds": ["one"]}, "seeds: 'one' is not a number from 1 to", id="no number"),
        pytest.param({"seeds": {"from": 5, "to": 2}}, "seeds: 5 to 2 is empty", id="no range"),
        pytest.param({"compare": [["default", "x"]]}, "compare: 'x' is none of", id="compare"),
        pytest.param(
            {"clusters": [{"name": "a", "nodes": "x.csv", "pods": "x.csv"}]},
            "x.csv: No such file",
            id="no cluster",
        ),
        pytest.param(
            {"clusters": [{"name": "a", "nodes": "c", "pods": "c", "arrivals": "trce"}]},
            "arrivals: 'trce' is none of fast, trace; did you mean \"trace\"?",
            id="word",
        ),
    ],
)
def test_a_mistake_in_a_grid_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], said: str
) -> None:
    assert sweep(grid_of(tmp_path, **fields)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "grid.sqlite").exists()


@pytest.mark.parametrize("name", ["cut.json", "cut.csv.xz", "cut.journal"])
def test_a_cluster_file_that_is_cut_off_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = tmp_path / name
    content = orjson.dumps({"kind": "List", "items": [make_node("n"), make_pod("p")]})
    if file.suffix == ".xz":
        content = lzma.compress(b"sn,cpu_milli,memory_mib,gpu,model\nn,1000,1000,0,\n")
    file.write_bytes(content[:-20])
    clusters = [{"name": "cut", "nodes": name, "pods": name}]
    assert sweep(grid_of(tmp_path, clusters=clusters)) == 2
    error = capsys.readouterr().err
    assert name in error
    assert error.count("\n") == 1
    assert not (tmp_path / "grid.sqlite").exists()


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        ("nothing", "is neither processes, nor dask:ADDRESS, nor the MODULE:NAME"),
        ("no.such.module:name", "ModuleNotFoundError"),
        (THREADS.replace(":threads", ":no_executor"), "has no submit"),
        (THREADS.replace(":threads", ":unreachable"), "OSError: connection refused"),
    ],
)
def test_an_executor_that_cannot_be_had_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], executor: str, said: str
) -> None:
    assert main(["simulate", "--sweep", str(grid_of(tmp_path)), "--executor", executor]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    made = Sweep.of(read_grid(grid_of(tmp_path)))
    task = SweepTask(made.runs[0], made.experiments["small"], version="9.9")
    with pytest.raises(
        ConfigurationError,
        match=r"a worker has Stellwerk .*but the sweep was "
        r"started with 9\.9",
    ):
        run_task(task)


def test_a_file_of_another_grid_or_of_something_else_is_refused_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "grid.sqlite"
    assert sweep(grid_of(tmp_path)) == 0
    before = results.read_bytes()
    capsys.readouterr()
    assert sweep(grid_of(tmp_path, profiles=["default"])) == 2
    assert "has the results of another grid" in capsys.readouterr().err
    assert results.read_bytes() == before
    other = tmp_path / "other"
    other.write_text("no database at all, but long enough to be looked at" * 20)
    assert sweep(grid_of(tmp_path), "--results", str(other)) == 2
    assert "file is not a database" in capsys.readouterr().err
    with closing(sqlite3.connect(other.with_suffix(".db"))) as database:
        database.executescript("CREATE TABLE mine (a)")
    assert sweep(grid_of(tmp_path), "--results", str(other.with_suffix(".db"))) == 2
    assert "is not a results file of a sweep" in capsys.readouterr().err


def test_runs_before_a_broken_one_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = module.run_task

    def breaks(task: SweepTask) -> Any:
        if (task.run.profile, task.run.seed) == ("packing.yaml", 3):
            raise SchedulerError("a plugin raised")
        return run(task)

    monkeypatch.setattr(module, "run_task", breaks)
    assert sweep(grid_of(tmp_path)) == 1
    assert "small, packing.yaml, seed 3: a plugin raised" in capsys.readouterr().err
    monkeypatch.setattr(module, "run_task", run)
    COUNTED.clear()
    assert sweep(grid_of(tmp_path)) == 0
    assert COUNTED == ["packing.yaml"]


def test_what_was_made_before_an_interrupt_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        put(*_)
        raise KeyboardInterrupt

    put = SweepResults.put
    monkeypatch.setattr(SweepResults, "put", interrupted)
    assert sweep(grid_of(tmp_path)) == 130
    assert "stopped: 1 of 6 runs are in" in capsys.readouterr().err
    monkeypatch.setattr(SweepResults, "put", put)
    assert sweep(grid_of(tmp_path)) == 0
    assert "1 of 6 runs are in" in capsys.readouterr().err


def test_options_that_the_grid_says_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--seed", "1"], ["--profile", "fgd"], ["--curve", "x.csv"]):
        assert sweep(grid_of(tmp_path), *arguments) == 2
        assert "with --sweep" in capsys.readouterr().err
    assert main(["simulate", "--executor", "processes"]) == 2
    assert "--executor needs --sweep" in capsys.readouterr().err


def test_the_progress_counts_runs_and_not_those_that_were_there_before() -> None:
    clock = VirtualClock()
    progress = Progress(10, clock=clock, unit="runs", done=4)
    clock.advance(4.0)
    assert progress.line(6).endswith(" 60 %  0.50 runs/s  8 s left")
