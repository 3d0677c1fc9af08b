"""Several runs side by side, and the published curves where the traces are."""

import csv
import lzma
from pathlib import Path

import pytest

from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk_simulation.curve import curve
from stellwerk_simulation.experiment import Experiment
from tests.support.gpu_cluster import trace_file
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data" / "simulation"


def experiment(share: float | None = 1.3) -> Experiment:
    return Experiment.read(DATA / "nodes.csv", DATA / "pods.csv", share)


def test_processes_give_what_one_run_after_the_other_gives() -> None:
    serial = experiment().run(["random", "fgd"], [1, 2], jobs=1)
    assert experiment().run(["random", "fgd"], [1, 2], jobs=2) == serial
    assert [(run.profile, run.seed) for run in serial] == [
        ("random", 1),
        ("random", 2),
        ("fgd", 1),
        ("fgd", 2),
    ]


def test_a_list_that_is_not_inflated_comes_as_it_is() -> None:
    [run] = experiment(None).run(["best-fit"], [1], jobs=1)
    assert len(run.events) == 160
    assert run.placed <= 160
    used = [event.used for event in run.events]
    assert used == sorted(used)
    assert used[-1] <= run.capacity == 91_000


def test_an_unknown_profile_is_named_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match="best-fitt: there is no such profile"):
        experiment().run(["fgd", "best-fitt"], [1], jobs=2)


def test_a_profile_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "kind: SchedulerProfile\nmetadata: {name: own}\nspec:\n  schedulerName: own\n"
        "  tieBreak: NodeRank\n  plugins:\n    multiPoint: {enabled: [{name: GpuShare}]}\n"
    )
    [run] = experiment().run([str(path)], [1], jobs=1)
    assert run.profile == str(path)
    assert run.placed > 50
    path.write_text("kind: SchedulerProfile\nspec: {schedulerName: own, tieBreak: Best}\n")
    with pytest.raises(ConfigurationError, match=r"own\.yaml: spec\.tieBreak"):
        experiment().run([str(path)], [1], jobs=1)


def test_pods_that_fit_no_node_are_named(tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nbig,999000,1,0,0\nok,1,1,1,1\n")
    [remark] = Experiment.read(DATA / "nodes.csv", pods, None).remarks()
    assert remark == "1 of 2 pods fit no node even if it is empty and are dropped, big among them"
    assert experiment().remarks() == []


def test_inflating_needs_gpus(tmp_path: Path) -> None:
    empty = tmp_path / "nodes.csv"
    empty.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1000,1,0,\n")
    with pytest.raises(SchedulerError, match=r"no node in .*nodes\.csv has a GPU"):
        Experiment.read(empty, DATA / "pods.csv", 1.3)


PUBLISHED = {
    "dot-product": "02-DotProd",
    "gpu-clustering": "03-GpuClustering",
    "gpu-packing": "04-GpuPacking",
    "best-fit": "05-BestFit",
    "fgd": "06-FGD",
}
WORKLOADS = ("default", "cpu100", "gpushare40", "gpuspec20", "multigpu30")


def the_published_curve_comes_out(workload: str, profile: str, seed: int) -> None:
    """Allocation at every load from 0 to 130 %, of one seed."""
    pods = f"openb_pod_list_{workload}"
    run = Experiment.read(
        trace_file("openb_node_list_gpu_node.csv.xz"), trace_file(f"{pods}.csv.xz"), 1.3
    ).run_one(profile, seed, lambda _: None)
    with lzma.open(trace_file("allocation-curves.csv.xz"), "rt") as file:
        [expected] = [
            row
            for row in csv.DictReader(file)
            if (row["workload"], row["sc_policy"], row["seed"])
            == (pods, PUBLISHED[profile], str(seed))
        ]
    found = {str(point.arrived_pct): point.allocated_pct for point in curve(run, 130) if point}
    assert len(found) == 131
    # A mean that ends in five may have been rounded the other way.
    assert found == pytest.approx({k: float(expected[k]) for k in found}, abs=0.0101)


@pytest.mark.slow
def test_the_published_curve_of_a_seed_at_every_load() -> None:
    the_published_curve_comes_out("multigpu30", "fgd", 42)


@pytest.mark.long
@pytest.mark.parametrize("profile", PUBLISHED)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_published_curve_of_every_policy_on_every_workload(workload: str, profile: str) -> None:
    the_published_curve_comes_out(workload, profile, 43)
