"""Plans for a few nodes, whose best patterns are known."""

import pytest

from stellwerk.plugins.gpu.pattern_plan import PatternPlan, PlanProblem, plan_patterns
from stellwerk.plugins.gpu.pattern_pricing import NodeShape, PlannedKind


def kind(
    milli: int, devices: int = 1, cpu: int = 1000, models: tuple[str, ...] = ()
) -> PlannedKind:
    return PlannedKind(cpu, 1024.0, milli, devices if milli else 0, models)


def shape(devices: int, cpu: int = 64_000, model: str = "", memory: int = 262_144) -> NodeShape:
    return NodeShape(cpu, memory, devices, (), model)


def planned(plan: PatternPlan) -> list[dict[int, int]]:
    """Slots by kind, of each shape."""
    found = []
    for patterns in plan.patterns:
        counts: dict[int, int] = {}
        for times, slots in patterns:
            for slot in slots:
                counts[slot.kind] = counts.get(slot.kind, 0) + times
        found.append(counts)
    return found


def solve(
    kinds: list[PlannedKind], demand: list[float], *shapes: NodeShape
) -> list[dict[int, int]]:
    return planned(plan_patterns(PlanProblem(kinds, demand, shapes, [1] * len(shapes)), 10))


def test_shares_that_fill_a_device_together_are_planned_together() -> None:
    kinds = [kind(700), kind(300), kind(500)]
    (counts,) = solve(kinds, [2, 2, 2], shape(3))
    assert sum(kinds[number].gpu_milli * count for number, count in counts.items()) == 3000


def test_a_pod_of_several_devices_gets_the_node_that_has_them() -> None:
    kinds = [kind(1000, devices=4), kind(1000)]
    assert solve(kinds, [1, 2], shape(4), shape(2)) == [{0: 1}, {1: 2}]


def test_pods_that_admit_one_model_get_its_nodes() -> None:
    kinds = [kind(1000, models=("T4",)), kind(1000)]
    assert solve(kinds, [2, 2], shape(2, model="T4"), shape(2, model="G2")) == [{0: 2}, {1: 2}]


def test_cpu_is_not_planned_twice() -> None:
    kinds = [kind(1000, cpu=12_000), kind(1000, cpu=2000)]
    assert solve(kinds, [2, 2], shape(2, cpu=14_000), shape(2, cpu=14_000)) == [
        {0: 1, 1: 1},
        {0: 1, 1: 1},
    ]


def test_memory_is_not_planned_twice() -> None:
    heavy = PlannedKind(1000, 8192.0, 1000, 1, ())
    (counts,) = solve([heavy, kind(1000)], [4, 4], shape(4, memory=18_000))
    assert counts.get(0, 0) <= 2
    assert sum(counts.values()) == 4


def test_what_is_free_of_devices_in_use_is_filled() -> None:
    kinds = [kind(190), kind(500)]
    plan = plan_patterns(
        PlanProblem(kinds, [3, 3], [NodeShape(8000, 65_536, 0, (50, 19), "")], [1]), 10
    )
    assert sorted(plan.patterns[0][0][1]) == [(0, (1,)), (1, (0,))]


def test_a_problem_gives_the_same_plan_every_time() -> None:
    kinds = [kind(milli, cpu=cpu) for milli in (250, 330, 480, 1000) for cpu in (1000, 7000)]
    problem = PlanProblem(kinds, [9.5] * 8, [shape(8), shape(4, cpu=20_000)], [3, 5])
    assert plan_patterns(problem, 10) == plan_patterns(problem, 10)


@pytest.mark.parametrize("demand", [0.0, 1e-9])
def test_without_demand_nothing_is_planned(demand: float) -> None:
    assert solve([kind(1000)], [demand], shape(2)) == [{}]
