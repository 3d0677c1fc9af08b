"""Decisions on pods that come one after the other, cheap where they are equal.

What-if, plans, groups and simulations decide with an `EqualPodRuns`; the scheduling loop does not
(a decision is a fifth of what a pod costs there). Invariant: each decision is the one that `decide`
would make then, tie for tie and draw for draw, whether a run goes on or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stellwerk.framework.equal_pods import EqualPodRun, begin_run
from stellwerk.framework.plugin_isolation import is_trusted
from stellwerk.framework.types import CycleState, Feasibility
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import Decision, NoNode, Search, choose, decide, reject
from stellwerk.world.profiles import MOMENT, Draw, ServedProfile
from stellwerk.world.world import World

_MIN_EQUAL_PODS: Final = 2
"""Equal pods in a row after which a run begins: its columns cost about as much as a decision."""


@dataclass(slots=True)
class _Latest:
    """The latest decision, and where the World stood then."""

    pod: PodInfo
    profile: ServedProfile
    decision: Decision
    equal: int
    """Pods equal to this one that were decided in a row."""
    run: EqualPodRun | None
    usage: int = 0
    """Positions in the logs of changed rows and objects, up to which the decision has read."""
    nodes: int = 0
    objects: int = 0
    size: int = 0
    """Rows of the snapshot."""
    row: int | None = None
    """The row of the node that it got."""
    others: Mapping[str, PodInfo] = field(default_factory=dict)
    """The pods on that row before, by uid."""

    def is_alone(self, snapshot: Snapshot, row: int) -> bool:
        """Whether nothing but this pod has come to its row, or gone from it, since."""
        others = {uid: pod for uid, pod in snapshot.pods[row].items() if uid != self.pod.uid}
        return others == self.others


class EqualPodRuns:
    """Decides on pods of one World; remembers the latest decision."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._latest: _Latest | None = None
        self.decided_in_runs = 0
        """Pods that were decided without a decision of their own, for tests and benchmarks."""

    def decide(
        self, pod: PodInfo, profile: ServedProfile, state: CycleState | None = None
    ) -> Decision:
        """The decision for a pod, on the snapshot as it is; scores by plugin may be left out.

        `state` is used if the pod is decided by itself.

        Raises:
            PluginFailure: a plugin raised.
        """
        latest = self._latest
        self._latest = None  # a plugin that raises ends a run
        equal = 1
        if latest is not None and latest.profile is profile and are_equal(latest.pod, pod):
            decision = self._without_plugins(latest, pod)
            if decision is not None:
                self.decided_in_runs += 1
                latest.decision = decision
                self._remember(latest)
                return decision
            equal = latest.equal + 1
        decision = decide(self._world, pod, profile, state)
        run = None
        if equal >= _MIN_EQUAL_PODS and decision.scores is not None and self._allows_run(decision):
            run = begin_run(profile.framework, pod, decision.search.found, decision.scores)
        self._remember(_Latest(pod, profile, decision, equal, run))
        return decision

    def _remember(self, latest: _Latest) -> None:
        """Note where the World stands after a decision."""
        snapshot = latest.decision.search.snapshot
        latest.usage = snapshot.usage_changes.position
        latest.nodes = snapshot.node_changes.position
        latest.objects = self._world.objects.position
        latest.size = snapshot.size
        latest.row = row = snapshot.row_of.get(latest.decision.node_name)
        latest.others = {} if row is None else dict(snapshot.pods[row])
        self._latest = latest

    def _allows_run(self, decision: Decision) -> bool:
        """Whether a pod by itself got one of several nodes, with no nomination in the way."""
        return (
            bool(decision.node_name)
            and not decision.search.nominated
            and not self._world.nominator.by_node
            and decision.search.pod.group is None
        )

    def _without_plugins(self, latest: _Latest, pod: PodInfo) -> Decision | None:
        """The decision that follows from the latest one; None: the pod is to be decided alone."""
        world, snapshot = self._world, latest.decision.search.snapshot
        is_elsewhere = (
            world.nominator.by_node
            or latest.objects != world.objects.position
            or latest.nodes != snapshot.node_changes.position
            or latest.size != snapshot.size
        )
        usage = None if is_elsewhere else snapshot.usage_changes.since(latest.usage)
        if usage is None:
            return None
        if latest.decision.failure is not None:
            return None if usage else self._rejected_again(latest, pod)
        row, run = latest.row, latest.run
        if run is None or row is None or any(each != row for each in usage):
            return None
        if usage and not (latest.is_alone(snapshot, row) and run.follow(pod, row)):
            return None
        latest.pod = pod
        return choose(_search(latest, pod, run.found), run.scores)

    def _rejected_again(self, latest: _Latest, pod: PodInfo) -> Decision | None:
        """The rejection of an equal pod, where nothing has changed since the one before."""
        before, framework = latest.decision, latest.profile.framework
        failure, diagnosis, post = before.failure, before.diagnosis, before.post_filter
        if failure is None or not failure.rejected or diagnosis is None or pod.group is not None:
            return None
        if not all(is_trusted(plugin) for each in framework.plugins.values() for plugin in each):
            return None
        candidates = () if post is None else post.candidates
        if candidates or (post is not None and post.api_call is not None):
            # The search for victims begins at a random node, and may find others next time.
            return None
        if any(stop == MOMENT for _, stop in before.draws):
            return None  # it depends on the time
        search = _search(latest, pod, before.search.found)
        latest.pod = pod
        for _, stop in before.draws:
            # Where no node has victims, it is the same wherever the search begins.
            framework.handle.random(stop)
        return reject(search, NoNode(diagnosis, post))


def _search(latest: _Latest, pod: PodInfo, found: Feasibility) -> Search:
    """The search of the latest decision for another pod, with draws of its own."""
    draws: list[Draw] = []
    profile = latest.profile
    profile.random.draws = draws
    snapshot = latest.decision.search.snapshot
    return Search(pod, profile, snapshot, found, draws, thorough=False, nominated=False)


def are_equal(one: PodInfo, other: PodInfo) -> bool:
    """Whether two pods without a node differ in their names alone.

    Their parts are interned, so that identity is enough; a pod that is nominated to a node has
    details of its own.
    """
    return (
        one.spec is other.spec
        and one.label_set is other.label_set
        and one.amounts is other.amounts
        and one.details is other.details
        and one.owner == other.owner
        and not one.node_name
        and not other.node_name
        and not other.terminating
        and not other.details.nominated_node_name
    )
