"""The record of fragmentation says what measuring after each placement would have said."""

from random import Random

from stellwerk.plugins.gpu.fragmentation import Fragmentation, TypicalPod, TypicalPods
from stellwerk_simulation.run_metrics import FragmentationRecord
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod_info

TYPICAL = TypicalPods(
    [
        TypicalPod(3152, 810, 1, (), 13),
        TypicalPod(11_300, 1000, 1, ("T4",), 11),
        TypicalPod(8000, 0, 1, (), 4),
    ]
)


def test_blocks_give_what_one_after_the_other_gives() -> None:
    numbers = Random(1)
    nodes = [gpu_node(f"n{n}", 8, cpu="96", model=("T4", "G2")[n % 2]) for n in range(40)]
    cache = gpu_cache(nodes)
    record, followed = (
        FragmentationRecord(cache.snapshot, TYPICAL),
        Fragmentation(cache.snapshot, TYPICAL),
    )
    record.begin()
    measured = [float(followed.column().sum())]
    for number in range(600):
        node_name = f"n{numbers.randrange(40)}"
        milli, cpu = numbers.choice([100, 460, 810]), numbers.randrange(4)
        pod = gpu_pod_info(f"p{number}", milli=milli, cpu=str(cpu))
        cache.assume_pod(pod.with_node(node_name))
        cache.update_snapshot()
        record.note(node_name)
        measured.append(float(followed.column().sum()))
    assert list(record.totals()) == measured
