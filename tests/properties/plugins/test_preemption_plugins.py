"""The dry run equals one node at a time; the search over nodes equals trying every set."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.framework.interface import Candidate
from stellwerk.framework.types import CycleState, Status
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.default_preemption.dry_run import DryRun
from stellwerk.plugins.shared.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.shared.victims import by_importance, priority_sum
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.snapshot.trial import Trial
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.preemption_cases import (
    CROSS_NODE,
    Arena,
    costing,
    make_arena,
    make_budget,
    of_daemon_set,
    preempting,
    victim,
)

APPS = ("db", "web", "cache")
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def repelling(app: str, key: str) -> JsonObject:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spreading(app: str, key: str) -> list[JsonObject]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]


def wishing(keys: Sequence[str], apps: Sequence[str] = APPS) -> st.SearchStrategy[JsonObject]:
    """Required anti-affinity to an app, or a hard spread of it, over one of the keys."""
    return st.one_of(
        st.builds(
            lambda app, key: {"affinity": repelling(app, key)},
            st.sampled_from(apps),
            st.sampled_from(keys),
        ),
        st.builds(
            lambda app, key: {"topologySpreadConstraints": spreading(app, key)},
            st.sampled_from(apps),
            st.sampled_from(keys),
        ),
    )


wishes: st.SearchStrategy[JsonObject] = st.one_of(st.just({}), wishing([ZONE, HOST]))


@st.composite
def placed(draw: st.DrawFn, name: str, nodes: int) -> JsonObject:
    pod = victim(
        name,
        f"n{draw(st.integers(0, nodes - 1))}",
        cpu=draw(st.sampled_from(["1", "2"])),
        priority=draw(st.sampled_from([1, 2, 3, 50])),
        start=draw(st.one_of(st.none(), st.integers(10, 59).map(str))),
        labels={"app": draw(st.sampled_from(APPS))},
        **draw(wishes),
    )
    if draw(st.integers(0, 3)) == 0:
        ports = [{"containerPort": 1, "hostPort": draw(st.sampled_from([80, 81]))}]
        pod["spec"]["containers"][0]["ports"] = ports
    return pod


@dataclass
class Drawn:
    """A cluster and a pod that may preempt in it."""

    arena: Arena
    pod: PodInfo


@st.composite
def drawn(
    draw: st.DrawFn,
    *,
    most_pods: int,
    nominated_wishes: st.SearchStrategy[JsonObject] = wishes,
    profile: JsonObject | None = None,
) -> Drawn:
    count = draw(st.integers(1, 4))
    nodes = [make_node(f"n{i}", cpu="3", zone=f"z{i % 2}") for i in range(count)]
    pods = [draw(placed(f"p{i}", count)) for i in range(draw(st.integers(0, most_pods)))]
    budgets = [
        make_budget(app, {"app": app}, draw(st.integers(0, 2)))
        for app in draw(st.sets(st.sampled_from(APPS)))
    ]
    nominated = [
        parse_pod(
            make_pod(
                f"nominated-{i}",
                cpu="1",
                priority=draw(st.sampled_from([5, 10, 20])),
                nominated_node_name=f"n{draw(st.integers(0, count - 1))}",
                labels={"app": draw(st.sampled_from(APPS))},
                **draw(nominated_wishes),
            )
        )
        for i in range(draw(st.integers(0, 2)))
    ]
    new = make_pod(
        "new",
        cpu=draw(st.sampled_from(["1", "2", "3"])),
        priority=10,
        labels={"app": draw(st.sampled_from(APPS))},
        **draw(wishes),
    )
    if draw(st.booleans()):
        ports = [{"containerPort": 1, "hostPort": 80}]
        new["spec"]["containers"][0]["ports"] = ports
    arena = make_arena(nodes, pods, budgets=budgets, nominated=nominated, profile=profile)
    return Drawn(arena, parse_pod(new))


# --- the dry run --------------------------------------------------------------------------------


class OneNode:
    """`SelectVictimsOnNode` for one node, as written in kube-scheduler."""

    def __init__(self, case: Drawn, state: CycleState, row: int) -> None:
        self._framework = case.arena.framework
        self._pod = case.pod
        self._state = state
        snapshot = case.arena.cache.snapshot
        self.view = NodeView(snapshot, np.array([row])).with_overlay()
        self.pods = list(snapshot.pods[row].values())

    def fits(self) -> bool:
        verdicts = self._framework.filters.run_with_nominated_pods(
            self._state, self._pod, self.view
        )
        return bool(verdicts.fits[0])

    def remove(self, pod: PodInfo) -> None:
        self._framework.filters.remove_pods(self._state, self._pod, self.view, [(0, pod)])

    def add(self, pod: PodInfo) -> None:
        self._framework.filters.add_pods(self._state, self._pod, self.view, [(0, pod)])

    def select(self, budgets: DisruptionBudgets) -> tuple[list[str], int] | None:
        potential = [pod for pod in self.pods if pod.priority < self._pod.priority]
        for pod in potential:
            self.remove(pod)
        if not potential or not self.fits():
            return None
        ordered = by_importance(potential)
        violating = dict(zip([pod.uid for pod in ordered], budgets.violating(ordered), strict=True))
        victims, violations = [], 0
        for first in (True, False):
            for pod in ordered:
                if violating[pod.uid] is not first:
                    continue
                self.add(pod)
                if not self.fits():
                    self.remove(pod)
                    victims.append(pod)
                    violations += first
        return [pod.name for pod in by_importance(victims)], violations


@settings(max_examples=examples(150))
@given(case=drawn(most_pods=10))
def test_all_nodes_at_once_equals_one_after_the_other(case: Drawn) -> None:
    framework, snapshot = case.arena.framework, case.arena.cache.snapshot
    found = framework.filtering.find_feasible(case.pod, sample=False)
    rows = np.array(list(snapshot.row_of.values()))
    budgets = DisruptionBudgets(case.arena.objects)
    at_once = DryRun(framework.handle, found.state, case.pod, budgets).run(rows)
    for row, outcome in zip(rows.tolist(), at_once, strict=True):
        alone = OneNode(case, found.state, row).select(budgets)
        if alone is None or not alone[0]:
            assert isinstance(outcome, Status)
            continue
        assert isinstance(outcome, Candidate)
        assert ([pod.name for pod in outcome.victims], outcome.pdb_violations) == alone


# --- the search over several nodes --------------------------------------------------------------


def every_set(case: Drawn) -> tuple[int, int, int, int] | None:
    """The smallest loss of any set of lower pods that makes room somewhere, by trying them all."""
    arena, pod = case.arena, case.pod
    budgets = DisruptionBudgets(arena.objects)
    lower = by_importance(each for each in arena.cache.pods() if each.priority < pod.priority)
    losses = []
    for size in range(1, len(lower) + 1):
        for victims in combinations(lower, size):
            if any(budgets.violating(victims)) or not _makes_room(arena, pod, victims):
                continue
            losses.append((0, victims[0].priority, priority_sum(victims), size))
    return min(losses, default=None)


def _makes_room(arena: Arena, pod: PodInfo, victims: Sequence[PodInfo]) -> bool:
    with Trial(arena.cache.snapshot) as trial:
        trial.remove_pods(victims)
        return bool(arena.framework.filtering.find_feasible(pod, sample=False).fits.any())


ONLY_CROSS_NODE = {
    "plugins": {
        "postFilter": {
            "disabled": [{"name": "DefaultPreemption"}],
            "enabled": [{"name": "CrossNodePreemption"}],
        }
    }
}


@st.composite
def kept_out_of_zones(draw: st.DrawFn) -> Drawn:
    """Nodes with room, and pods all over the zones that keep the new one out."""
    nodes = [make_node(f"n{i}", cpu="4", zone=f"z{i % 2}") for i in range(draw(st.integers(2, 4)))]
    pods = [
        victim(
            f"p{i}",
            f"n{draw(st.integers(0, len(nodes) - 1))}",
            cpu=draw(st.sampled_from(["1", "2"])),
            priority=draw(st.sampled_from([1, 2, 3, 50])),
            labels={"app": draw(st.sampled_from(APPS[:2]))},
            **draw(st.one_of(st.just({}), wishing([ZONE], ["cache"]))),
        )
        for i in range(draw(st.integers(1, 8)))
    ]
    budgets = [
        make_budget(app, {"app": app}, draw(st.integers(0, 3)))
        for app in draw(st.sets(st.sampled_from(APPS[:2]), max_size=1))
    ]
    new = make_pod(
        "new",
        cpu=draw(st.sampled_from(["1", "3"])),
        priority=10,
        labels={"app": "cache"},
        **draw(wishing([ZONE], APPS[:2])),
    )
    return Drawn(make_arena(nodes, pods, budgets=budgets, profile=ONLY_CROSS_NODE), parse_pod(new))


# kube-scheduler heeds a nominated pod's anti-affinity only while some placed pod has a fitting term
# (else it skips InterPodAffinity). Trying every set would therefore take away pods that are in the
# way of nothing; the search does not, so here nominated pods repel nobody.
welcoming_nominations = drawn(most_pods=6, nominated_wishes=st.just({}), profile=ONLY_CROSS_NODE)


@settings(max_examples=examples(120), deadline=None)
@given(case=st.one_of(kept_out_of_zones(), welcoming_nominations))
def test_up_to_eight_pods_the_search_is_as_good_as_trying_every_set(case: Drawn) -> None:
    found = case.arena.framework.filtering.find_feasible(case.pod, sample=False)
    if found.fits.any():
        return
    result = case.arena.preempt(case.pod)
    if "on another node is in the way" in result.status.message:
        # A single node is DefaultPreemption's business.
        return
    best = every_set(case)
    if not result.candidates:
        assert best is None
        return
    victims = result.candidates[0].victims
    assert best == (0, victims[0].priority, priority_sum(victims), len(victims))


MIN_RUN_SECONDS = 600
HALF_PAST = VirtualClock(datetime(2026, 1, 1, 0, 30, tzinfo=UTC))
FAIR = {
    **CROSS_NODE,
    **preempting(minRunSeconds=MIN_RUN_SECONDS, spareDaemonSetPods=True, orderByDeletionCost=True),
}


def aged(draw: st.DrawFn, pod: JsonObject) -> JsonObject:
    """The pod with a start, perhaps a cost, and perhaps as a DaemonSet's."""
    minute = draw(st.sampled_from(["05", "15", "15", "25", None]))
    if minute is not None:
        pod["status"]["startTime"] = f"2026-01-01T00:{minute}:00Z"
    if draw(st.booleans()):
        costing(pod, draw(st.sampled_from(["-1", "1", "2"])))
    return of_daemon_set(pod) if draw(st.integers(0, 4)) == 0 else pod


@st.composite
def full_zones(draw: st.DrawFn) -> Drawn:
    """Zones of a node that others fill, and of one with a pod that keeps the new one out.

    Nothing on a single node makes room: in each zone pods of both have to go.
    """
    nodes, pods = [], []
    for zone in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        nodes += [make_node(f"{zone}{cpu}", cpu=str(cpu), zone=zone) for cpu in (1, 3)]
        places = [(f"{zone}1", "db"), *[(f"{zone}3", "web")] * 3]
        for number, (node_name, app) in enumerate(places):
            priority = draw(st.sampled_from([1, 1, 2]))
            pod = victim(
                f"{zone}-{number}", node_name, cpu="1", priority=priority, labels={"app": app}
            )
            pods.append(aged(draw, pod))
    cpu = draw(st.sampled_from(["2", "3"]))
    new = make_pod("new", cpu=cpu, priority=10, affinity=repelling("db", ZONE))
    return Drawn(make_arena(nodes, pods, profile=FAIR, clock=HALF_PAST), parse_pod(new))


def fair_loss(victims: Sequence[PodInfo]) -> tuple[int, ...]:
    """What is compared, without budgets: these are not overdrawn."""
    highest = max(pod.priority for pod in victims)
    begins = HALF_PAST.now().timestamp() - MIN_RUN_SECONDS
    young = [pod for pod in victims if pod.started_seconds is None or pod.started_seconds > begins]
    return (
        highest,
        sum(pod.owner is not None for pod in victims),
        len(young),
        priority_sum(victims),
        len(victims),
        max(pod.deletion_cost for pod in victims if pod.priority == highest),
    )


@settings(max_examples=examples(90), deadline=None)
@given(case=full_zones())
def test_the_search_spares_pods_as_trying_every_set_of_a_zone_does(case: Drawn) -> None:
    arena, pod = case.arena, case.pod
    result = arena.preempt(pod)
    assert result.plugin == "CrossNodePreemption"
    of_zones: dict[str, list[PodInfo]] = {}
    for each in arena.cache.pods():
        of_zones.setdefault(each.node_name[0], []).append(each)
    best = min(
        fair_loss(victims)
        for pods in of_zones.values()
        for size in range(1, len(pods) + 1)
        for victims in combinations(pods, size)
        if _makes_room(arena, pod, victims)
    )
    assert fair_loss(result.candidates[0].victims) == best


@settings(max_examples=examples(60))
@given(case=drawn(most_pods=10, profile=dict(CROSS_NODE)))
def test_a_question_about_absent_pods_leaves_no_trace(case: Drawn) -> None:
    snapshot, framework = case.arena.cache.snapshot, case.arena.framework
    before = framework.filtering.find_feasible(case.pod, sample=False).fits.copy()
    columns = [snapshot.requested.copy(), snapshot.nonzero_requested.copy()]
    pods = [dict(each) for each in snapshot.pods]
    with Trial(snapshot) as trial:
        trial.remove_pods(list(case.arena.cache.pods()))
        framework.filtering.find_feasible(case.pod, sample=False)
        assert not snapshot.requested.any()
        assert not any(snapshot.pods)
    assert (framework.filtering.find_feasible(case.pod, sample=False).fits == before).all()
    assert (snapshot.requested == columns[0]).all()
    assert (snapshot.nonzero_requested == columns[1]).all()
    assert [dict(each) for each in snapshot.pods] == pods
