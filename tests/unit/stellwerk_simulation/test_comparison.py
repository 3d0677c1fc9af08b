"""Two profiles over the same seeds."""

from dataclasses import replace

from stellwerk_simulation.comparison import Difference, comparison, differences
from stellwerk_simulation.run_metrics import RunResult

RUN = RunResult("a", 1, 0, (), placed=10, nodes_in_use=5, allocated={"cpu": 0.5})


def runs(*nodes: int) -> list[RunResult]:
    return [replace(RUN, nodes_in_use=number) for number in nodes]


def of_nodes(found: list[Difference]) -> Difference:
    return next(each for each in found if each.figure.name == "nodes in use")


def test_pairs_tell_apart_what_means_would_not() -> None:
    found = of_nodes(differences(runs(10, 50, 90), runs(8, 47, 88)))
    assert (found.first, found.second) == (50, 143 / 3)
    assert found.half_width is not None
    assert 1.4 < found.half_width < 1.5
    assert found.verdict == "better"


def test_a_difference_within_the_interval_is_none() -> None:
    assert of_nodes(differences(runs(10, 12), runs(9, 13))).verdict == "equal"
    assert of_nodes(differences(runs(10, 12), runs(8, 13))).verdict == "no difference shown"


def test_one_seed_gives_no_interval() -> None:
    found = of_nodes(differences(runs(10), runs(8)))
    assert found.half_width is None
    assert found.verdict == "one seed shows nothing"


def test_figures_that_a_run_does_not_have_are_left_out() -> None:
    names = [line[0] for line in comparison("a", "b", differences(runs(1, 2), runs(1, 2)))]
    assert "cpu" in names
    assert not {"gpu", "cost", "gpu at 100 %", "fragmented of idle"} & set(names)
