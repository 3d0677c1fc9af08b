"""Members placed one after the other on the World as it is, each seeing those before it.

Group decisions run it for one order of the members and one placement; what drives it makes the
decision of each member (`Ask`), so that extenders can answer and other work have its turn between
two of them. Invariant: a member that has a node is assumed and reserved there until `take_back`,
and each was decided on columns written right before.
"""

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import numpy as np

from stellwerk.framework.follow_up import FollowUp
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.default_preemption.plugin import LEFT_TO_GROUP
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import Decision, decide
from stellwerk.world.effects import release
from stellwerk.world.failure import Failure
from stellwerk.world.gangs.placements import EVERYWHERE, Placement
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

PREEMPTED_BY_GROUP: Final = "not eligible due to workload aware preemption enabled"
HAS_CONSTRAINTS: Final = "not eligible due to placement-based pod group scheduling limitation"


@dataclass(frozen=True, slots=True)
class Ask:
    """A member to be decided on the World as it is when the question is answered.

    Whatever makes the decision calls `prepare` before, without waiting for anything in between.
    """

    world: World
    profile: ServedProfile
    pod: PodInfo
    state: CycleState
    placement: Placement = EVERYWHERE
    node_name: str = ""
    """The only node that will do; empty: any of the placement's."""
    obstacle: str = ""
    """Why the member does not preempt by itself."""

    def prepare(self) -> None:
        """Write the columns, and into the state which of their rows there are."""
        snapshot, state = self.world.cache.update_snapshot(), self.state
        state.among = (
            _only(snapshot, self.node_name) if self.node_name else self.placement.rows(snapshot)
        )
        state.group = self.pod.group
        state.write(LEFT_TO_GROUP, self.obstacle)


def decided_at_once(ask: Ask) -> Decision:
    """The decision on a member, extenders aside.

    Raises:
        PluginFailure: a plugin raised.
    """
    ask.prepare()
    return decide(ask.world, ask.pod, ask.profile, ask.state)


@dataclass(slots=True)
class Verdict:
    """What became of a member: a node that it is assumed on, or a failure."""

    pod: PodInfo
    state: CycleState
    evaluated: int = 0
    """How many nodes were looked at; 0: none, as for a member that is like another."""
    feasible: int = 0
    """How many of them took the pod."""
    assumed: PodInfo | None = None
    failure: Failure | None = None
    plugin_failures: tuple[PluginFailure, ...] = ()
    follow_up: FollowUp | None = None
    """What PostFilter wants done in the cluster."""
    nominated_to: str = ""
    """The nomination that the assumption took the place of."""


@dataclass(slots=True)
class Attempt:
    """The verdicts on the members in one order, in one placement."""

    placement: Placement = EVERYWHERE
    verdicts: list[Verdict] = field(default_factory=list)
    broken: str = ""
    """What ended it before its time; empty: it went through."""

    @property
    def placed(self) -> int:
        """How many members have a node."""
        return sum(each.assumed is not None for each in self.verdicts)


Result = TypeVar("Result")
Steps: TypeAlias = Generator[Ask | None, Decision, Result]
"""Asks for decisions, and where it yields None only leaves a moment to others; gives a result."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where members are placed: the World, by which profile, and why they do not preempt."""

    world: World
    profile: ServedProfile
    obstacle: str = ""


def place(
    ground: Ground,
    members: Sequence[PodInfo],
    placement: Placement = EVERYWHERE,
    nodes: Mapping[str, str] | None = None,
) -> Steps[Attempt]:
    """Place members in this order; one without a node does not keep the next from being tried.

    `nodes` are those that members may be placed on, by uid, where only one will do.
    """
    attempt = Attempt(placement)
    try:
        yield from _place_each(ground, members, attempt, nodes)
    except BaseException:
        take_back(ground, attempt)
        raise
    return attempt


def _place_each(
    ground: Ground, members: Sequence[PodInfo], attempt: Attempt, nodes: Mapping[str, str] | None
) -> Steps[None]:
    refused: dict[Hashable, Verdict] = {}
    for pod in members:
        state = CycleState()
        if pod.spec.too_complex:
            failure = Failure.too_complex(pod.spec)
            attempt.verdicts.append(Verdict(pod, state, failure=failure))
            continue
        key = None if nodes else _likeness(pod)
        known = refused.get(key) if key is not None else None
        if known is not None:
            attempt.verdicts.append(Verdict(pod, state, failure=known.failure))
            continue
        decision = yield Ask(
            ground.world,
            ground.profile,
            pod,
            state,
            attempt.placement,
            nodes.get(pod.uid, "") if nodes else "",
            ground.obstacle,
        )
        evaluated = decision.search.found.evaluated
        verdict = Verdict(pod, state, evaluated, decision.feasible, failure=decision.failure)
        if decision.post_filter is not None:
            verdict.follow_up = decision.post_filter.follow_up
        attempt.verdicts.append(verdict)
        if decision.failure is None:
            _assume(ground, verdict, decision)
            refused.clear()
        elif not decision.failure.rejected:
            attempt.broken = decision.failure.message
            return
        elif key is not None and _is_about_spec(decision):
            refused[key] = verdict


def answered(steps: Steps[Result]) -> Generator[None, None, Result]:
    """The steps with each question answered at once; what drives it has a moment between two."""
    try:
        ask = next(steps)
        while True:
            decision = None if ask is None else decided_at_once(ask)
            yield
            ask = next(steps) if decision is None else steps.send(decision)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    finally:
        steps.close()


def take_back(ground: Ground, attempt: Attempt) -> None:
    """Undo what an attempt has assumed, the last first; its verdicts stay."""
    take_back_each(ground, attempt.verdicts)


def take_back_each(ground: Ground, verdicts: Sequence[Verdict]) -> None:
    """Undo what led to some verdicts, the last first."""
    for verdict in reversed(verdicts):
        if verdict.assumed is not None:
            framework = ground.profile.framework
            _, failures = release(ground.world, framework, verdict.state, verdict.assumed)
            verdict.plugin_failures += tuple(failures)
            if verdict.nominated_to:
                ground.world.nominator.nominate(verdict.pod, verdict.nominated_to)


def nodes_of(attempt: Attempt) -> dict[str, str]:
    """The node name of each member that has one, by uid."""
    return {
        each.pod.uid: each.assumed.node_name
        for each in attempt.verdicts
        if each.assumed is not None
    }


def _assume(ground: Ground, verdict: Verdict, decision: Decision) -> None:
    world, framework = ground.world, ground.profile.framework
    assumed = verdict.pod.with_node(decision.node_name)
    try:
        world.cache.assume_pod(assumed)
    except ValueError as refused:
        verdict.failure = Failure.error(str(refused))
        return
    verdict.nominated_to = world.nominator.node_of(assumed.uid)
    if verdict.nominated_to:
        world.nominator.remove(assumed.uid)
    try:
        status = framework.binding.reserve(verdict.state, assumed, assumed.node_name)
        if status.ok:
            verdict.assumed = assumed
            return
        verdict.failure = Failure.not_permitted(status)
    except PluginFailure as raised:
        verdict.plugin_failures = (raised,)
        verdict.failure = Failure.error(str(raised))
    _, failures = release(world, framework, verdict.state, assumed)
    verdict.plugin_failures += tuple(failures)


def _only(snapshot: Snapshot, node_name: str) -> Mask:
    among: Mask = np.zeros(snapshot.size, np.bool_)
    row = snapshot.row_of.get(node_name)
    if row is not None:
        among[row] = True
    return among


def _likeness(pod: PodInfo) -> Hashable | None:
    """What members share of which one's rejection is the other's; None: nothing is known."""
    if pod.volumes or pod.spec.resource_claims:
        return None
    return pod.spec, pod.label_set, pod.node_names, pod.nominated_node_name


def _is_about_spec(decision: Decision) -> bool:
    """Whether each row was refused for the pod's spec alone, and by no extender."""
    search = decision.search
    if search.profile.extenders is not None:
        return False
    return search.profile.framework.filters.is_row_local(search.found.state, search.pod)
