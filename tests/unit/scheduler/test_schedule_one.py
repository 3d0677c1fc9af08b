"""How the cycle chooses among feasible nodes."""

from collections import Counter

from stellwerk.metrics import Metrics
from stellwerk.serving.exposition import exposition
from tests.support.builders import make_node, make_pod
from tests.support.in_process import eventually, make_profile, running

SCORED = 'scheduler_framework_extension_point_duration_seconds_count{extension_point="Score"'


def times_scored(metrics: Metrics) -> float:
    lines = exposition(metrics).decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(SCORED))


async def test_a_single_feasible_node_is_taken_without_scoring() -> None:
    async with running() as world:
        world.apply(make_profile("a"), make_node("small", cpu="1"), make_node("large", cpu="4"))
        world.apply(make_pod("big", cpu="2", scheduler_name="a"))
        await eventually(lambda: world.node_of("big") == "large")
        assert times_scored(world.metrics) == 0
        world.apply(make_pod("small", cpu="500m", scheduler_name="a"))
        await eventually(lambda: world.node_of("small"))
        assert times_scored(world.metrics) == 1


async def test_equal_nodes_get_equal_shares_by_chance() -> None:
    none = {point: {"disabled": [{"name": "*"}]} for point in ("preScore", "score")}
    async with running() as world:
        world.apply(make_profile("a", tieBreakSeed=3, plugins=none))
        world.apply(*(make_node(f"n{number}") for number in range(4)))
        names = [f"p{number}" for number in range(200)]
        world.apply(*(make_pod(name, scheduler_name="a") for name in names))
        await eventually(lambda: all(map(world.node_of, names)))
        shares = Counter(map(world.node_of, names))
        # 200 draws of 4: more than 4 standard deviations (6.1) off 50 is no chance.
        assert all(abs(shares[f"n{number}"] - 50) <= 25 for number in range(4)), shares


def preemption_attempts(metrics: Metrics) -> float:
    lines = exposition(metrics).decode().splitlines()
    name = "scheduler_preemption_attempts_total "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


async def test_only_attempts_that_come_to_preemption_count_as_such() -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}
    async with running() as world:
        world.apply(make_profile("a"), make_node("n", cpu="1"))
        world.apply(make_pod("without-claim", scheduler_name="a", volumes=[claim]))
        await eventually(lambda: world.condition("without-claim"))
        assert preemption_attempts(world.metrics) == 0, "PreFilter made PostFilter stop before it"
        world.apply(make_pod("large", cpu="2", scheduler_name="a"))
        await eventually(lambda: world.condition("large"))
        assert preemption_attempts(world.metrics) == 1
