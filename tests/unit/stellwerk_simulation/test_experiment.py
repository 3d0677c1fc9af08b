"""Several runs side by side, and the published curves where the traces are."""

import csv
import io
import lzma
from pathlib import Path

import pytest
from typing_extensions import override

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_simulation.experiment import Experiment, Progress, pods_that_never_fit
from stellwerk_simulation.figures import curve
from stellwerk_simulation.manifests import node_of, pod_of
from stellwerk_simulation.trace import TraceNode, TracePod
from tests.support.builders import make_node, make_pod
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
    assert remark == (
        "1 of 2 pods fit on no node, not even an empty one, and are dropped, big among them"
    )
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


@pytest.mark.long
def test_the_published_curve_of_a_seed_at_every_load() -> None:
    the_published_curve_comes_out("multigpu30", "fgd", 42)


@pytest.mark.long
@pytest.mark.parametrize("profile", PUBLISHED)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_published_curve_of_every_policy_on_every_workload(workload: str, profile: str) -> None:
    the_published_curve_comes_out(workload, profile, 43)


SMALL = TraceNode("small", 4000, 8192, 2, "T4")
LARGE = TraceNode("large", 96_000, 1024, 0, "")


def names(pods: list[TracePod], nodes: list[TraceNode]) -> list[str]:
    return [pod.name for pod in pods_that_never_fit(pods, nodes)]


def test_no_node_has_enough_of_everything() -> None:
    pods = [
        TracePod("fits", 4000, 8192, 2, 1000, ("T4", "G2")),
        TracePod("cpu", 97_000, 1, 0, 0, ()),
        TracePod("cpu-and-memory", 5000, 2048, 0, 0, ()),
        TracePod("devices", 1, 1, 3, 1000, ()),
        TracePod("model", 1, 1, 1, 500, ("G2",)),
    ]
    assert names(pods, [SMALL, LARGE]) == ["cpu", "cpu-and-memory", "devices", "model"]


def test_extended_resources_of_manifests_count() -> None:
    resource = "example.com/card"
    nodes = [node_of(make_node("n", allocatable={resource: "2"}))]
    pods = [pod_of(make_pod(f"p{number}", requests={resource: str(number)})) for number in (2, 3)]
    assert names(pods, nodes) == ["default/p3"]


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def test_the_line_has_share_rate_and_time_left() -> None:
    clock, terminal = VirtualClock(), Terminal()
    progress = Progress(200, terminal, clock)
    assert progress.line(0).endswith("0 pods/s  …")
    clock.advance(5)
    progress.show(40, 10)
    assert "[#######                       ]  25 %  10 pods/s  15 s left" in terminal.getvalue()
    progress.end()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_written_to_a_file() -> None:
    output = io.StringIO()
    progress = Progress(200, output, VirtualClock())
    progress.show(10)
    progress.end()
    assert output.getvalue() == ""
