"""Statuses and dry runs that are cached between cycles are those that asking anew would bring.

Long random histories of a full cluster with nominations and disruption budgets. In every step a
framework that has cached its results throughout is compared with one that was made just now.
"""

import random
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.default_preemption.plugin import DefaultPreemption, EveryCandidate
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, make_pod
from tests.support.preemption_cases import make_budget, victim

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.framework.interface import PostFilterResult


PROFILE = load_profile(dict(DEFAULT_PROFILE_MANIFEST), known_plugins())
STEPS = 150
MAX_NODES, MIN_PODS = 12, 80
APPS = ("db", "web")
TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


class History:
    """A full cluster that changes at random, and pods that want to preempt in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cache = Cache()
        self.objects = IndexedObjectStore()
        self.nominator = Nominator()
        self.numbers = count()
        self.nodes: list[str] = []
        self.bound: dict[str, JsonObject] = {}
        self.nominated: list[PodInfo] = []
        for _ in range(MAX_NODES):
            self.add_node()
        self.events: list[Callable[[], None]] = [
            *(
                self.bind,
                self.bind,
                self.bind,
                self.unbind,
                self.touch,
                self.add_node,
                self.remove_node,
            ),
            *(self.change_node, self.nominate, self.nominate, self.take_back, self.set_budget),
        ]

    def add_node(self) -> None:
        if len(self.nodes) >= MAX_NODES:
            return
        self.nodes.append(f"n{next(self.numbers)}")
        self._set_node(self.nodes[-1])

    def change_node(self) -> None:
        self._set_node(self.random.choice(self.nodes))

    def _set_node(self, name: str) -> None:
        choose = self.random.choice
        node = make_node(
            name,
            cpu=choose(("2", "3", "4")),
            zone=choose("ab"),
            taints=choose(((), (), (), (TAINT,))),
        )
        self.cache.set_node(parse_node(node))

    def remove_node(self) -> None:
        if len(self.nodes) <= 6:
            return
        node = self.nodes.pop(self.random.randrange(len(self.nodes)))
        self.cache.remove_node(node)
        for pod in [pod for pod in self.bound.values() if pod["spec"]["nodeName"] == node]:
            self._remove(pod)

    def bind(self) -> None:
        name, choose = f"p{next(self.numbers)}", self.random.choice
        self.bound[name] = victim(
            name,
            choose(self.nodes),
            cpu=choose(("500m", "1", "2")),
            priority=choose((1, 1, 2, 2, 2, 50)),
            labels={"app": choose(APPS)},
            start=choose((None, "10", "20")),
        )
        self.cache.set_pod(parse_pod(self.bound[name]))

    def touch(self) -> None:
        """A new version of a pod: a later start, or the beginning of its end."""
        if not self.bound:
            return
        pod = self.random.choice(list(self.bound.values()))
        pod["status"]["startTime"] = f"2026-01-01T00:{self.random.randint(10, 59)}:00Z"
        if self.random.random() < 0.3:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
        self.cache.set_pod(parse_pod(pod))

    def unbind(self) -> None:
        if len(self.bound) > MIN_PODS:
            self._remove(self.random.choice(list(self.bound.values())))

    def _remove(self, pod: JsonObject) -> None:
        del self.bound[pod["metadata"]["name"]]
        self.cache.remove_pod(pod["metadata"]["uid"])

    def nominate(self) -> None:
        pod = self.pending()
        self.nominated.append(pod)
        self.nominator.nominate(pod, self.random.choice(self.nodes))

    def take_back(self) -> None:
        if self.nominated:
            gone = self.nominated.pop(self.random.randrange(len(self.nominated)))
            self.nominator.nominate(gone, "")

    def set_budget(self) -> None:
        app = self.random.choice(APPS)
        budget = make_budget(app, {"app": app}, self.random.randint(0, 3))
        self.objects.set("PodDisruptionBudget", budget)

    def pending(self) -> PodInfo:
        """One of a few specs, most of which every filter judges row by row."""
        choose = self.random.choice
        spec: JsonObject = {}
        if self.random.random() < 0.2:
            term = {
                "topologyKey": "topology.kubernetes.io/zone",
                "labelSelector": {"matchLabels": {"app": "db"}},
            }
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
        pod = make_pod(
            f"pending-{next(self.numbers)}",
            cpu=choose(("1", "3")),
            priority=choose((10, 20)),
            labels={"app": "web"},
            **spec,
        )
        if self.random.random() < 0.2:
            port = {"containerPort": 80, "hostPort": 8080}
            pod["spec"]["containers"][0]["ports"] = [port]
        return parse_pod(pod)

    def framework(self) -> Framework:
        services = offline_services(
            self.cache.snapshot, self.objects, self.nominator, random.Random(1)
        )
        return Assembly(PROFILE, services).framework


def answers(framework: Framework, pod: PodInfo) -> tuple[list[bool], list[Any], Any]:
    """Which rows fit, every node's status, and the candidates for preemption if none does."""
    state = CycleState()
    state.write(DefaultPreemption.name, EveryCandidate())
    found = framework.filtering.find_feasible(pod, state, sample=False)
    diagnosis = framework.filtering.diagnose(found, pod)
    alive = framework.handle.snapshot.alive
    post: PostFilterResult | None = None
    if not found.fits.any():
        post = framework.run_post_filters(state, pod, diagnosis)
    return (
        (found.fits & alive).tolist(),
        list(diagnosis.statuses),
        post and (post.status, post.candidates),
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_is_cached_is_what_asking_anew_brings(seed: int) -> None:
    history = History(seed)
    for _ in range(MIN_PODS):
        history.bind()
    caching = history.framework()
    preempting = 0
    for _ in range(STEPS):
        for _ in range(history.random.randint(0, 2)):
            history.random.choice(history.events)()
        history.cache.update_snapshot()
        # Also a pod that is itself nominated: its own nomination does not count against it.
        again = bool(history.nominated) and history.random.random() < 0.4
        pod = history.random.choice(history.nominated) if again else history.pending()
        cached, anew = answers(caching, pod), answers(history.framework(), pod)
        assert cached == anew
        preempting += bool(cached[2] and cached[2][1])
    assert preempting > STEPS // 20, "a history without candidates shows little"
