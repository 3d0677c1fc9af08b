"""Victims of a group against brute force: they are enough, and none of them could be spared.

With little to count on, too: members that differ, that are spread, that pods of others keep away.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.group_decisions import GroupWorld
from tests.support.pod_groups import make_group, make_member

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
PRIORITY = 100
MOST_PODS = 7
SELECTOR = {"matchLabels": {"app": "g"}}


def apart(key: str) -> JsonObject:
    term = {"labelSelector": SELECTOR, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def together(key: str) -> JsonObject:
    term = {"labelSelector": SELECTOR, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": SELECTOR,
    }
]
MEMBERS: dict[str, dict[str, Any]] = {
    "alike": {},
    "unlike": {},
    "spread": {"topologySpreadConstraints": SPREAD},
    "apart": {"affinity": apart(HOST)},
    "together": {"affinity": together(ZONE)},
    "kept away": {},
    "beside a group": {},
    "with a port": {},
}


class Case:
    """A few nodes, what runs on them, and a gang of a higher priority."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._random = kind, Random(seed)
        count = self._random.randint(1, 4)
        self._sizes = [self._random.randint(1, 4) for _ in range(count)]
        self.nodes = [
            make_node(f"n{n}", cpu=str(cpu), zone=f"z{n % 2}") for n, cpu in enumerate(self._sizes)
        ]
        self.pods = list(self._running())
        self.members = [self._member(n) for n in range(self._random.randint(1, 4))]
        self.groups = []
        if kind == "beside a group":
            priority = self._random.choice([0, 10, 2 * PRIORITY])
            self.groups = [make_group("w", 1, disruptionMode="PodGroup", priority=priority)]

    def decide(self, without: frozenset[str] = frozenset(), priority: int = PRIORITY) -> Any:
        """The decision on the gang where some pods are gone."""
        pods = [pod for pod in self.pods if pod["metadata"]["name"] not in without]
        world = GroupWorld(*self.nodes, *self.groups, *pods)
        group = make_group("g", len(self.members), priority=priority)
        return world.decide(group, self.members)

    def fits_without(self, names: frozenset[str]) -> bool:
        placed: bool = self.decide(names, priority=-PRIORITY).placed
        return placed

    def units(self, names: frozenset[str]) -> list[frozenset[str]]:
        """Which of these pods go together."""
        whole = frozenset(
            pod["metadata"]["name"] for pod in self.pods if "schedulingGroup" in pod["spec"]
        )
        single = [frozenset({name}) for name in names - whole]
        return [*single, names & whole] if names & whole else single

    def _running(self) -> Any:
        random, made = self._random, 0
        for number, size in enumerate(self._sizes):
            free = size
            while free and made < MOST_PODS:
                cpu = random.randint(1, min(2, free))
                free -= cpu
                spec: dict[str, Any] = {
                    "cpu": str(cpu),
                    "node_name": f"n{number}",
                    "priority": random.choice([0, 0, 10, 10, 20, 2 * PRIORITY]),
                    "labels": {"app": random.choice("gx")},
                }
                if self._kind == "kept away" and random.random() < 0.5:
                    spec["affinity"] = apart(random.choice([HOST, ZONE]))
                in_group = self._kind == "beside a group" and random.random() < 0.5
                name = f"v{made}"
                yield make_member(name, "w", **spec) if in_group else make_pod(name, **spec)
                made += 1
                if random.random() < 0.3:
                    break

    def _member(self, number: int) -> JsonObject:
        cpu = self._random.randint(1, 3) if self._kind == "unlike" else 1
        spec = {"cpu": str(cpu), "priority": PRIORITY, "labels": {"app": "g"}}
        member = make_member(f"p{number}", "g", **spec, **MEMBERS[self._kind])
        if self._kind == "with a port":
            port = {"containerPort": 80, "hostPort": 80}
            member["spec"]["containers"][0]["ports"] = [port]
        return member


def check(kind: str, seed: int) -> None:
    case = Case(kind, seed)
    decision = case.decide()
    if decision.placed:
        return
    lower = frozenset(
        pod["metadata"]["name"]
        for pod in case.pods
        if pod["spec"]["priority"] < PRIORITY and "schedulingGroup" not in pod["spec"]
    )
    if decision.preemption is None:
        assert kind == "beside a group" or not lower or not case.fits_without(lower)
        return
    victims = frozenset(pod.name for pod in decision.preemption.victims)
    assert len(decision.preemption.nodes) == len(case.members)
    assert case.fits_without(victims)
    for unit in case.units(victims):
        assert not case.fits_without(victims - unit), f"{sorted(unit)} of {sorted(victims)}"


@pytest.mark.parametrize("kind", MEMBERS)
@settings(max_examples=3)
@given(seed=st.integers(0, 1 << 16))
def test_victims_are_enough_and_none_can_be_spared(kind: str, seed: int) -> None:
    check(kind, seed)


@pytest.mark.long
@pytest.mark.parametrize("kind", MEMBERS)
@settings(max_examples=examples(100))
@given(seed=st.integers(0, 1 << 30))
def test_victims_are_enough_and_none_can_be_spared_in_many_cases(kind: str, seed: int) -> None:
    check(kind, seed)
