"""Extenders strike candidates for preemption off, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from stellwerk.errors import SchedulerError
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.status import OK
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.preemption.victim_order import best_candidates
from stellwerk.scheduler.extenders.profile_extenders import call_extenders
from tests.support.builders import pod_info


@dataclass
class Extender:
    """Keeps the nodes that a test names."""

    keeps: Sequence[str] = ()
    fails: bool = False
    ignorable: bool = False
    supports_preemption: bool = True
    interested: bool = True
    victims: bool = True
    name: str = "extender"

    def is_interested(self, pod: PodInfo) -> bool:
        assert pod.name == "preemptor"
        return self.interested

    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        assert pod.name == "preemptor"
        if self.fails:
            raise SchedulerError("extender: no answer")
        return [
            each if self.victims else Candidate(each.node_name, (), 0)
            for each in candidates
            if each.node_name in self.keeps
        ]


FOUND = PostFilterResult(
    OK,
    tuple(Candidate(name, (pod_info("v", node_name=name),), 0) for name in ("n1", "n2", "n3")),
    best_candidates,
)


@pytest.mark.parametrize(
    ("extenders", "left"),
    [
        pytest.param([], ["n1", "n2", "n3"], id="none"),
        pytest.param([Extender(["n1", "n2"]), Extender(["n2", "n3"])], ["n2"], id="one by one"),
        pytest.param(
            [Extender(supports_preemption=False), Extender(interested=False)],
            ["n1", "n2", "n3"],
            id="those that are not concerned are not asked",
        ),
        pytest.param(
            [Extender(fails=True, ignorable=True)], ["n1", "n2", "n3"], id="an ignorable failure"
        ),
        pytest.param(
            [Extender(["n1"], victims=False, ignorable=True)], [], id="ignorable and no victims"
        ),
    ],
)
async def test_extenders_strike_candidates_off(
    extenders: Sequence[Extender], left: list[str]
) -> None:
    result = await call_extenders(pod_info("preemptor"), FOUND, extenders)
    assert [each.node_name for each in result.candidates] == left
    if not left:
        assert result.status.message == "preemption: no candidate node for preemption"


@pytest.mark.parametrize(
    ("extender", "message"),
    [
        pytest.param(Extender(fails=True), "preemption: extender: no answer", id="a failure"),
        pytest.param(
            Extender(["n2"], victims=False),
            'preemption: expected at least one victim pod on node "n2"',
            id="a node without victims",
        ),
    ],
)
async def test_an_extender_that_cannot_be_ignored_ends_the_attempt(
    extender: Extender, message: str
) -> None:
    result = await call_extenders(pod_info("preemptor"), FOUND, [extender])
    assert (result.status.message, result.candidates) == (message, ())
