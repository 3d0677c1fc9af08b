"""What extenders refuse is looked for elsewhere."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.types import CycleState, Status, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.decide import Decision
from stellwerk.world.extenders import ExtenderFilterResult, Extenders
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod
from tests.support.preemption_cases import CROSS_NODE

NODES = 150
PERCENTAGE = {
    "percentageOfNodesToScore": 70,
    "extenders": [{"urlPrefix": "http://localhost:1", "filterVerb": "filter"}],
}
Q_ONLY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "topology.kubernetes.io/zone",
                "labelSelector": {"matchLabels": {"app": "q"}},
            }
        ]
    }
}


class Refusing(Extenders):
    """Wants to have nothing to do with one node."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.offered: Sequence[str] = ()

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        return node_name != self.refused

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        self.offered = node_names
        return ExtenderFilterResult([name for name in node_names if name != self.refused])

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        return np.zeros(len(node_names), np.int64)

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        left = tuple(each for each in found.candidates if each.node_name != self.refused)
        if left:
            return replace(found, candidates=left)
        return PostFilterResult(unschedulable("DefaultPreemption", "all struck"))

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return None


async def decided(case: JsonObject, extenders: Extenders) -> Decision:
    loaded = Case({"id": "case", **case})
    return await decide_with_extenders(
        loaded.world, loaded.pod, loaded.profile, extenders, CycleState()
    )


async def test_where_the_nominated_node_is_refused_the_others_are_searched_as_ever() -> None:
    extenders = Refusing("n7")
    nodes = [make_node(f"n{number}") for number in range(NODES)]
    pod = make_pod("p", nominated_node_name="n7")
    decision = await decided({"pod": pod, "nodes": nodes, "profile": PERCENTAGE}, extenders)
    assert len(extenders.offered) == NODES * 70 // 100
    assert decision.node_name not in {"", "n7"}
    assert decision.search.found.evaluated == NODES * 70 // 100


async def test_where_all_candidates_are_struck_out_the_next_plugin_is_asked() -> None:
    case = {
        "pod": make_pod("p", priority=9, affinity=Q_ONLY),
        "nodes": [make_node("n1", zone="a"), make_node("n2", zone="a")],
        "pods": [make_pod("q", node_name="n2", priority=1, labels={"app": "q"})],
        "profile": CROSS_NODE,
    }
    decision = await decided(case, Refusing("n2"))
    assert decision.candidate is not None
    assert decision.candidate.node_name == "n1"
    assert [victim.name for victim in decision.candidate.victims] == ["q"]


async def test_where_no_plugin_has_more_to_say_the_pod_is_told_why() -> None:
    case = {
        "pod": make_pod("p", cpu="1", priority=9),
        "nodes": [make_node("n1", cpu="1")],
        "pods": [make_pod("q", cpu="1", node_name="n1", priority=1)],
    }
    decision = await decided(case, Refusing("n1"))
    assert decision.candidate is None
    assert decision.failure is not None
    assert decision.failure.message.endswith("all struck")
