"""Pools as partitions, by docs/scaling.md: a profile keeps to its pool, a label moves a pod.

One operator serves both profiles here; that each of several serves those of its own name alone is
tested where profiles are loaded.
"""

import asyncio
import re
from typing import Any

import yaml

from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

POOL = "example.com/pool"


def profiles() -> list[dict[str, Any]]:
    """Those of the page, for an operator without a name."""
    page = (ROOT / "docs/scaling.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    found = list(yaml.safe_load_all(block))
    for each in found:
        del each["metadata"]["labels"]
    return found


def pod(name: str, pool: str, cpu: str = "1") -> dict[str, Any]:
    made = make_pod(name, cpu=cpu, labels={POOL: pool}, schedulerName="default-scheduler")
    del made["metadata"]["uid"]
    return made


def node_of(world: VirtualCluster, name: str) -> str:
    return str(world.pods[name]["spec"].get("nodeName") or "")


def test_each_profile_keeps_to_its_pool_and_a_label_takes_a_pod_to_another_one() -> None:
    nodes = [make_node(f"{pool}1", cpu="2", labels={POOL: pool}) for pool in "ab"]

    async def flow(clock: VirtualClock) -> None:
        options = ClusterOptions(seed=1, heartbeats=False, kubelet=None, controllers=False)
        async with open_virtual_cluster(clock, nodes, options) as world:
            world.apply(*profiles())
            world.apply(*(pod(f"first{number}", "a") for number in range(2)))
            world.apply(pod("other", "b"), pod("late", "a"))
            await asyncio.sleep(5)
            assert [node_of(world, f"first{number}") for number in range(2)] == ["a1", "a1"]
            assert node_of(world, "other") == "b1"
            assert not node_of(world, "late")
            world.apply(pod("late", "b"))
            await asyncio.sleep(15)
            assert node_of(world, "late") == "b1"

    run_skipping(flow)
