"""What is cached between cycles changes no result, and ties are broken evenly.

Long random histories of a cluster, decided by a framework that caches its columns throughout;
before every decision, each plugin is asked plainly, for all nodes, as if nothing were cached.
"""

import asyncio
import random
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework import runtime
from stellwerk.framework.extension_points import (
    FILTER,
    NORMALIZE_SCORE,
    PRE_FILTER,
    PRE_SCORE,
    SCORE,
)
from stellwerk.framework.offline import offline_services
from stellwerk.framework.result_cache import MAX_CACHE_BYTES, ResultCache
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile, running

DEFAULT_PROFILE = load_profile(dict(DEFAULT_PROFILE_MANIFEST), known_plugins())
DECISIONS = 400
NODES = 60
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NO_SCHEDULE = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
PREFER_NOT = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}


class History:
    """A cluster that changes at random, and what is decided in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cache = Cache()
        self.numbers = count()
        self.bound: list[PodInfo] = []
        self.nodes: list[str] = []
        for _ in range(NODES):
            self.add_node()

    def add_node(self) -> None:
        self.nodes.append(f"node-{next(self.numbers)}")
        self.change_node(self.nodes[-1])

    def change_node(self, name: str) -> None:
        """Give a node labels, taints and a size, whatever it had before."""
        choose = self.random.choice
        node = make_node(
            name,
            cpu=choose(("2", "4", "8")),
            labels={"disk": choose(("ssd", "hdd"))},
            zone=choose(("a", "b", "c", None)),
            taints=choose(((), (), (NO_SCHEDULE,), (PREFER_NOT,))),
            unschedulable=self.random.random() < 0.1,
            images=choose(((), [{"names": ["registry.example/app:1"], "sizeBytes": 400 << 20}])),
        )
        self.cache.set_node(parse_node(node))

    def happen(self) -> None:
        """Something changes: mostly nothing, often a pod goes, at times a node."""
        drawn = self.random.random()
        if drawn < 0.3 and self.bound:
            gone = self.bound.pop(self.random.randrange(len(self.bound)))
            self.cache.remove_pod(gone.uid)
        elif drawn < 0.4:
            self.change_node(self.random.choice(self.nodes))
        elif drawn < 0.43:
            self.add_node()
        elif drawn < 0.46 and len(self.nodes) > NODES // 2:
            gone_node = self.nodes.pop(self.random.randrange(len(self.nodes)))
            self.cache.remove_node(gone_node)

    def bind(self, pod: PodInfo, node_name: str) -> None:
        bound = pod.with_node(node_name)
        self.cache.assume_pod(bound)
        self.bound.append(bound)


def pod_of(template: int, number: int) -> JsonObject:
    """A pod of a template; the template decides everything but the name."""
    choice = random.Random(template)
    labels = {"app": f"app-{template % 11}", "template": str(template)}
    alike = {"labelSelector": {"matchLabels": {"app": labels["app"]}}}
    spec: JsonObject = {}
    match choice.randrange(6):
        case 0:
            when = choice.choice(("DoNotSchedule", "ScheduleAnyway"))
            key = choice.choice((ZONE, HOSTNAME))
            constraint = {"maxSkew": 2, "topologyKey": key, "whenUnsatisfiable": when, **alike}
            spec["topologySpreadConstraints"] = [constraint]
        case 1:
            side = choice.choice(("podAffinity", "podAntiAffinity"))
            term = {"topologyKey": choice.choice((ZONE, HOSTNAME)), **alike}
            weighted = {"weight": choice.randint(1, 100), "podAffinityTerm": term}
            preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {side: choice.choice((preferred, required))}
        case 2:
            spec["nodeSelector"] = {"disk": choice.choice(("ssd", "hdd"))}
        case 3:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        case _:
            pass
    pod = make_pod(
        f"pod-{number}",
        cpu=f"{choice.choice((50, 100, 300)) + template % 97}m",
        memory=f"{100 + template % 193}Mi",
        labels=labels,
        **spec,
    )
    if choice.random() < 0.1:
        port = {"containerPort": 80, "hostPort": 8000 + template % 3}
        pod["spec"]["containers"][0]["ports"] = [port]
    return pod


def make_framework(cache: Cache) -> Framework:
    services = offline_services(cache.snapshot, IndexedObjectStore(), Nominator(), random.Random(1))
    return Assembly(DEFAULT_PROFILE, services).framework


def plain_fits(framework: Framework, state: CycleState, pod: PodInfo, view: NodeView) -> Any:
    """(n,) bool by asking every filter for the whole view."""
    for plugin in framework.plugins[ExtensionPoint.PRE_FILTER]:
        assert PRE_FILTER.implemented_by(plugin)
        result = plugin.pre_filter(state, pod, view)
        assert result.node_names is None
        if result.status.skip:
            state.skipped_filters.add(plugin.name)
    fits = np.ones(len(view), np.bool_)
    for plugin in framework.plugins[ExtensionPoint.FILTER]:
        assert FILTER.implemented_by(plugin)
        if plugin.name not in state.skipped_filters:
            fits &= plugin.filter(state, pod, view).codes == 0
    return fits


def plain_scores(
    framework: Framework, state: CycleState, pod: PodInfo, view: NodeView
) -> dict[str, tuple[list[int], list[int]]]:
    """Raw and normalised scores by plugin, by asking every plugin for the feasible rows."""
    scores = {}
    for plugin in framework.plugins[ExtensionPoint.PRE_SCORE]:
        assert PRE_SCORE.implemented_by(plugin)
        if plugin.pre_score(state, pod, view).skip:
            state.skipped_scores.add(plugin.name)
    for plugin in framework.plugins[ExtensionPoint.SCORE]:
        assert SCORE.implemented_by(plugin)
        if plugin.name not in state.skipped_scores:
            raw = plugin.score(state, pod, view).copy()
            normalized = raw
            if NORMALIZE_SCORE.implemented_by(plugin):
                normalized = plugin.normalize(state, pod, raw.copy())
            scores[plugin.name] = (raw.tolist(), normalized.tolist())
    return scores


def decide(history: History, framework: Framework, pod: PodInfo) -> bool:
    """One decision, checked against the plain path; True if there was a choice."""
    snapshot = history.cache.update_snapshot()
    alive = np.flatnonzero(snapshot.alive)
    plain_state = CycleState()
    fits = plain_fits(framework, plain_state, pod, NodeView(snapshot, alive))
    found = framework.filtering.find_feasible(pod)
    assert found.fits[alive].tolist() == fits.tolist()
    assert not found.fits[~snapshot.alive].any()
    if not fits.any():
        return False
    feasible = NodeView(snapshot, alive[fits])
    expected = plain_scores(framework, plain_state, pod, feasible)
    view = found.view()
    scores = framework.scoring.prioritize(found.state, pod, view)
    assert view.row_numbers().tolist() == alive[fits].tolist()
    assert {
        score.plugin: (score.raw.tolist(), score.normalized.tolist()) for score in scores.by_plugin
    } == expected
    weights = DEFAULT_PROFILE.plugins.weights
    totals = [0] * len(feasible)
    for name, (_, normalized) in expected.items():
        totals = [
            total + weights[name] * one for total, one in zip(totals, normalized, strict=True)
        ]
    assert scores.total.tolist() == totals
    best = scores.best_positions()
    chosen = int(best[history.random.randrange(len(best))])
    history.bind(pod, snapshot.node_at(int(feasible.row_numbers()[chosen])).name)
    return True


@pytest.fixture(params=[MAX_CACHE_BYTES, 1], ids=["room for all columns", "room for four specs"])
def _room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(ResultCache, max_bytes=request.param)
    monkeypatch.setattr(runtime, "ResultCache", small)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("templates", [5, 300, None], ids=["5 specs", "300 specs", "unique pods"])
@pytest.mark.parametrize("seed", [1, 2])
def test_cached_columns_change_no_result(seed: int, templates: int | None) -> None:
    history = History(seed)
    framework = make_framework(history.cache)
    decided = 0
    for number in range(DECISIONS):
        template = number if templates is None else history.random.randrange(templates)
        decided += decide(history, framework, parse_pod(pod_of(template, number)))
        history.happen()
    assert decided > DECISIONS // 2, "a history in which little fits shows little"


async def test_ties_are_broken_evenly_among_the_best_nodes() -> None:
    best, worse, rounds = 8, 4, 1600
    counts = dict.fromkeys([f"best-{index}" for index in range(best)], 0)
    async with running() as world:
        world.apply(make_profile("stellwerk", tieBreakSeed=7))
        world.apply(*(make_node(name) for name in counts))
        # Used nodes score below empty ones.
        world.apply(*(make_node(f"worse-{index}") for index in range(worse)))
        for index in range(worse):
            name = f"filler-{index}"
            world.apply(make_pod(name, cpu="2", memory="1Gi", node_name=f"worse-{index}"))
        for index in range(rounds):
            name = f"pod-{index}"
            world.apply(make_pod(name, cpu="100m", memory="1Gi", scheduler_name="stellwerk"))
            while (node_name := world.node_of(name)) is None:  # noqa: ASYNC110 nothing else runs
                await asyncio.sleep(0)
            counts[node_name] += 1
            world.delete("Pod", name)
    expected = rounds / best
    chi_square = sum((seen - expected) ** 2 / expected for seen in counts.values())
    assert chi_square < 24.3, f"p < 0.001 with 7 degrees of freedom: {counts}"
