"""Group decisions on a small World, driven as the group cycle drives them."""

from collections.abc import Sequence
from random import Random
from typing import Any

from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.world.gangs.group_attempt import GroupContext, GroupRequest, answered, undo_attempt
from stellwerk.world.gangs.group_decision import Deciding, GroupDecision, decide_group
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.in_process import InProcess, make_profile


class GroupWorld(InProcess):
    """An operator that decides nothing by itself; groups are decided on what it was shown."""

    def __init__(
        self,
        *objects: JsonObject,
        compatibility: str = "auto",
        plugins: JsonObject | None = None,
        clock: VirtualClock | None = None,
        **profile: Any,
    ) -> None:
        """`profile`: further fields of the profile's spec."""
        # Ties are broken in the same way in each run.
        super().__init__(clock, numbers=lambda _: Random(1))
        # The profile last: without one, groups are nothing to write about.
        spec = {"compatibility": compatibility, "plugins": plugins or {}, **profile}
        profile = make_profile("stellwerk", gangScheduling=True, **spec)
        self.apply(*objects, profile)
        self.world = self.operator.world
        self.served = self.world.profiles.served["stellwerk"]

    def decide(
        self,
        group: JsonObject,
        members: Sequence[JsonObject],
        scheduled: Sequence[PodInfo] = (),
        budget_seconds: float = 1.0,
        max_complexity: int | None = None,
    ) -> GroupDecision:
        """The decision, undone: nothing stays assumed."""
        pods = [parse_pod(member, None, max_complexity) for member in members]
        request = GroupRequest(
            parse_pod_group(group), pods, scheduled, budget_seconds=budget_seconds
        )
        decision = driven(decide_group(self.world, self.served, request))
        assert decision.placed == bool(self.cache.assumed_pods)
        if decision.placed:
            undo_attempt(GroupContext(self.world, self.served), decision.attempt)
        assert not self.cache.assumed_pods
        return decision


def driven(deciding: Deciding) -> GroupDecision:
    """The end of a decision whose questions are answered at once."""
    steps = answered(deciding)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: GroupDecision = ended.value
            return result


def nodes_of(decision: GroupDecision) -> dict[str, str]:
    """Where each member goes, by name."""
    return {
        each.pod.name: each.assumed.node_name
        for each in decision.attempt.results
        if each.assumed is not None
    }
