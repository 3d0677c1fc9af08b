"""Runs of equal pods are single decisions, tie for tie and draw for draw, over all plugins.

Two Worlds that are the same at first get the same pods. In one each is decided by itself, in the
other by `EqualPodRuns`. Between two pods something else may happen, to both.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.framework.types import PluginFailure
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.world.decide import Decision, decide
from stellwerk.world.equal_pods import EqualPodRuns
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod, owned
from tests.support.examples import examples

GPU, ZONE, HOST = "example.com/gpu", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APP = {"app": "web"}
SELECTOR = {"matchLabels": APP}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TAINT = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}


def _loads(name: str) -> bool:
    spec = {"schedulerName": "s", "plugins": {"score": {"enabled": [{"name": name}]}}}
    try:
        load_profile({"metadata": {"name": "p"}, "spec": spec}, known_plugins())
    except ProfileError:
        return False
    return True


SCORERS = sorted(
    name
    for name, plugin in known_plugins().items()
    if plugin.name == name and ExtensionPoint.SCORE in plugin.extension_points and _loads(name)
)
"""The plugins that score and need no arguments, those beside the core among them."""


class Pair:
    """The same cluster twice; `single` decides pod by pod, `run` in runs."""

    def __init__(self, case: JsonObject) -> None:
        self.single, self.run = Case(case), Case(case)
        self.runs = EqualPodRuns(self.run.world)

    def both(self, change: Callable[[Case], object]) -> None:
        for case in (self.single, self.run):
            change(case)
            case.world.cache.update_snapshot()

    def decide(self, name: str, manifest: JsonObject, *, placed: bool = True) -> str:
        """Decide on the next pod in both, compare, and place it; returns its node."""
        first = _decided(self.single, name, manifest, decide_with=None)
        second = _decided(self.run, name, manifest, decide_with=self.runs)
        assert _shown(second) == _shown(first)
        if isinstance(first, PluginFailure) or isinstance(second, PluginFailure):
            return ""
        if first.node_name and placed:
            for case, decision in ((self.single, first), (self.run, second)):
                _place(case, decision)
        return first.node_name


def _decided(
    case: Case, name: str, manifest: JsonObject, decide_with: EqualPodRuns | None
) -> Decision | PluginFailure:
    pod = _named(case, name, manifest)
    try:
        if decide_with is None:
            return decide(case.world, pod, case.profile)
        return decide_with.decide(pod, case.profile)
    except PluginFailure as failure:
        return failure


def _named(case: Case, name: str, manifest: JsonObject) -> PodInfo:
    """A copy of the manifest's pod, which shares its parts as copies of a template do."""
    pod = _parsed(case, manifest).with_node("")
    pod.name = name
    pod.uid = f"{pod.namespace}/{name}"
    return pod


def _parsed(case: Case, manifest: JsonObject) -> PodInfo:
    known: dict[int, PodInfo] = case.__dict__.setdefault("parsed", {})
    if id(manifest) not in known:
        known[id(manifest)] = parse_pod(manifest)
    return known[id(manifest)]


def _place(case: Case, decision: Decision) -> None:
    """Assume and reserve, as what-if does."""
    assumed = decision.search.pod.with_node(decision.node_name)
    case.world.cache.assume_pod(assumed)
    state = decision.search.found.state
    status = case.profile.framework.binding.reserve(state, assumed, decision.node_name)
    if not status.ok:
        case.profile.framework.binding.unreserve(state, assumed, decision.node_name)
        case.world.cache.forget_pod(assumed.uid)
    case.world.cache.update_snapshot()


def _shown(decision: Decision | PluginFailure) -> Any:
    """Everything that a decision says to those who decide on many pods."""
    if isinstance(decision, PluginFailure):
        return str(decision)
    search, best, scores = decision.search, decision.best, decision.scores
    tied: list[str] = []
    if best is not None and scores is not None:
        rows = scores.nodes.row_numbers()[best]
        tied = list(search.snapshot.names(rows.tolist()))
    candidate = decision.candidate
    return {
        "node": decision.node_name,
        "feasible": decision.feasible,
        "tied": tied,
        "total": None if scores is None or best is None else int(scores.total[best[0]]),
        "draws": list(decision.draws),
        "message": decision.failure.message if decision.failure else "",
        "plugins": sorted(decision.failure.unschedulable_plugins) if decision.failure else [],
        "candidate": candidate
        and (candidate.node_name, [victim.key for victim in candidate.victims]),
    }


# --- random cases ---------------------------------------------------------------------------------


def _nodes(choose: random.Random) -> list[JsonObject]:
    found = []
    for index in range(choose.randint(1, 9)):
        node = make_node(
            f"n{index}",
            cpu=choose.choice(("2", "4", "4", "16")),
            memory=choose.choice(("8Gi", "32Gi")),
            pods=choose.choice(("2", "110", "110")),
            zone=choose.choice(("a", "b", None)),
            labels=choose.choice(({}, {}, {"disk": "ssd"})),
            taints=choose.choice(((), (), (TAINT,))),
            unschedulable=choose.random() < 0.1,
            allocatable={GPU: "4"} if choose.random() < 0.3 else None,
            images=choose.choice(
                ((), ({"names": ["registry.example/app:1"], "sizeBytes": 10**9},))
            ),
        )
        found.append(node)
    return found


def _affinity(choose: random.Random) -> JsonObject:
    term = {"topologyKey": choose.choice((ZONE, HOST)), "labelSelector": SELECTOR}
    weighted = [{"weight": choose.randint(1, 100), "podAffinityTerm": term}]
    disk = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    kinds: list[JsonObject] = [
        {"podAntiAffinity": {REQUIRED: [term]}},
        {"podAffinity": {PREFERRED: weighted}},
        {"podAntiAffinity": {PREFERRED: weighted}},
        {"nodeAffinity": {PREFERRED: [{"weight": 7, "preference": disk}]}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [disk]}}},
    ]
    return choose.choice(kinds)


def _pod(choose: random.Random, name: str, node_name: str | None = None) -> JsonObject:
    fields: JsonObject = {}
    if choose.random() < 0.3:
        fields["affinity"] = _affinity(choose)
    if choose.random() < 0.25:
        fields["topologySpreadConstraints"] = [
            {
                "maxSkew": choose.randint(1, 2),
                "topologyKey": choose.choice((ZONE, HOST)),
                "whenUnsatisfiable": choose.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": SELECTOR,
            }
        ]
    if choose.random() < 0.3:
        fields["tolerations"] = [{"operator": "Exists"}]
    requests = {GPU: "1"} if choose.random() < 0.15 else {}
    pod = make_pod(
        name,
        cpu=choose.choice((None, "100m", "500m", "1", "3")),
        memory=choose.choice((None, "1Gi")),
        requests=requests,
        labels=choose.choice((APP, APP, {"app": "db"})),
        priority=choose.choice((0, 0, 0, 10)),
        node_name=node_name,
        **fields,
    )
    if choose.random() < 0.15:
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return owned(pod) if choose.random() < 0.5 else pod


def _profile(choose: random.Random) -> JsonObject:
    spec: JsonObject = {"tieBreak": choose.choice(("Random", "Random", "NodeRank"))}
    if choose.random() < 0.6:
        names = choose.sample(SCORERS, min(len(SCORERS), choose.randint(1, 4)))
        score: JsonObject = {"enabled": [{"name": each} for each in names]}
        if choose.random() < 0.5:
            score["disabled"] = [{"name": "*"}]
        spec["plugins"] = {"score": score}
        spec["weights"] = {each: choose.randint(1, 5) for each in names}
    return spec


def _case(choose: random.Random) -> JsonObject:
    nodes = _nodes(choose)
    names = [node["metadata"]["name"] for node in nodes]
    replica_set = {"metadata": {"name": "web"}, "spec": {"selector": SELECTOR}}
    return {
        "id": "case",
        "profile": _profile(choose),
        "nodes": nodes,
        "pods": [_pod(choose, f"b{each}", choose.choice(names)) for each in range(6)],
        "pod": make_pod("unused"),
        "replicasets": [replica_set] if choose.random() < 0.7 else [],
    }


def _disturb(choose: random.Random, pair: Pair, number: int) -> None:
    """Something else happens between two pods."""
    what = choose.randrange(6)
    names = [node.name for node in pair.single.world.cache.nodes()]
    name = choose.choice(names)
    if what == 0:
        bound = sorted(pair.single.world.cache.pods_on(name))
        if bound:
            pair.both(lambda case: case.world.cache.remove_pod(bound[0]))
    elif what == 1:
        node = make_node(name, cpu="8", zone="c")
        pair.both(lambda case: case.world.cache.set_node(parse_node(node)))
    elif what == 2:
        other = _pod(choose, f"other{number}", name)
        pair.both(lambda case: case.world.cache.set_pod(parse_pod(other)))
    elif what == 3:
        service = {"metadata": {"name": f"s{number}"}, "spec": {"selector": APP}}
        pair.both(lambda case: case.world.objects.set("Service", service))
    elif what == 4:
        waiting = make_pod(f"nominated{number}", cpu="1", priority=100)
        pair.both(lambda case: case.world.nominator.nominate(parse_pod(waiting), name))
    else:
        pair.decide(f"else{number}", _pod(choose, f"else{number}"))


def _history(seed: int, *, pods: int, share: float) -> int:
    """Decide on equal pods of a few templates; returns how many runs decided."""
    choose = random.Random(seed)
    pair = Pair(_case(choose))
    for template in range(2):
        manifest = _pod(choose, f"t{template}")
        for number in range(pods):
            if choose.random() < share:
                _disturb(choose, pair, 100 * template + number)
            pair.decide(f"t{template}-{number}", manifest, placed=choose.random() < 0.95)
    return pair.runs.decided_in_runs


@settings(max_examples=examples(90), deadline=None)
@given(st.integers(0, 10**9))
def test_a_run_is_what_single_decisions_are(seed: int) -> None:
    _history(seed, pods=12, share=0.04)


@settings(max_examples=examples(45), deadline=None)
@given(st.integers(0, 10**9))
def test_whatever_happens_between_two_pods_counts(seed: int) -> None:
    _history(seed, pods=12, share=0.4)


@pytest.mark.long
def test_two_thousand_histories_hold() -> None:
    in_runs = sum(_history(seed, pods=14, share=0.4 if seed % 3 == 0 else 0.04)
                  for seed in range(2000))  # fmt: skip
    assert in_runs > 10_000


@pytest.mark.parametrize("name", SCORERS)
def test_runs_with_every_plugin_that_scores_are_single_decisions(name: str) -> None:
    choose = random.Random(name)
    case = _case(choose) | {"profile": {"plugins": {"score": {"enabled": [{"name": name}]}}}}
    pair = Pair(case)
    for template in range(3):
        manifest = _pod(choose, f"t{template}")
        for number in range(8):
            pair.decide(f"t{template}-{number}", manifest)


# --- runs take place ------------------------------------------------------------------------------

WEIGHTED = [{"weight": 9, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": SELECTOR}}]
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": SELECTOR}


@pytest.mark.parametrize(
    ("fields", "in_runs"),
    [
        pytest.param({}, 38, id="plain"),
        pytest.param({"affinity": {"podAffinity": {PREFERRED: WEIGHTED}}}, 38, id="preferring"),
        pytest.param(
            {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
            38,
            id="spread softly",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
            0,
            id="spread strictly: one by one",
        ),
    ],
)
def test_runs_take_place_where_plugins_allow_them(fields: JsonObject, in_runs: int) -> None:
    nodes = [make_node(f"n{each}", cpu="32", zone="ab"[each % 2]) for each in range(6)]
    pair = Pair({"id": "x", "nodes": nodes, "pod": make_pod("unused"), "pods": []})
    manifest = make_pod("t", cpu="100m", labels=APP, **fields)
    for number in range(40):
        pair.decide(f"t-{number}", manifest)
    assert pair.runs.decided_in_runs == in_runs


def test_nodes_that_fill_up_leave_a_run_and_rejections_are_a_run_too() -> None:
    nodes = [make_node(f"n{each}", cpu="2", zone="ab"[each % 2]) for each in range(6)]
    pair = Pair({"id": "x", "nodes": nodes, "pod": make_pod("unused"), "pods": []})
    manifest = owned(make_pod("t", cpu="1", labels=APP))
    got = [pair.decide(f"t-{number}", manifest) for number in range(30)]
    assert got.count("") == 18
    # By themselves: the first two pods, the last that has one node left, and the first rejection.
    assert pair.runs.decided_in_runs >= 25


def test_a_plugin_of_others_ends_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [make_node(f"n{each}", cpu="32") for each in range(3)]
    pair = Pair({"id": "x", "nodes": nodes, "pod": make_pod("unused"), "pods": []})
    monkeypatch.setattr("stellwerk.framework.equal_pods.is_trusted", lambda _: False)
    for number in range(5):
        pair.decide(f"t-{number}", make_pod("t", cpu="1"))
    assert pair.runs.decided_in_runs == 0
