"""Random clusters in which each pod is explained right before the scheduler tries it.

Invariant: what is compared is said before the attempt, and read from the cache after it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from stellwerk.answers.pod import PodExplanation
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.steps import finished
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, owned
from tests.support.in_process import InProcess, make_profile, running
from tests.support.pod_groups import make_group, make_member
from tests.support.scripted_plugins import Script
from tests.support.skipped_time import run_skipping

_PROFILES = ("stellwerk", "first", "slow")


class Compared:
    """The attempts that were explained, and those of which the explanation was not true."""

    def __init__(self) -> None:
        self.placed = 0
        self.refused = 0
        self.tied = 0
        self.of_groups = 0
        self.wrong: list[str] = []

    def note(self, said: PodExplanation, node_name: str, *, grouped: bool) -> None:
        """One attempt: what was said before, and the node that came of it."""
        self.placed += bool(node_name)
        self.refused += not node_name
        self.tied += said.tied is not None
        self.of_groups += grouped
        told = said.would_get_node or ""
        # One tie among the members of a group may move the others.
        drawn = bool(said.tied_nodes) and (grouped or node_name in (said.tied_nodes or ()))
        if told != node_name and not (node_name and drawn):
            why = said.would_wait or (said.verdicts.message if said.verdicts else "")
            self.wrong.append(f"{said.pod}: told {told or why!r}, got {node_name or 'none'}")


def compare(seed: int, script: Script, compared: Compared) -> None:
    """Let the scheduler work through a random cluster, and compare each attempt."""

    async def run(clock: VirtualClock) -> None:
        numbers = Random(seed)
        script.answers["First.score"] = _sleeping(clock)
        async with running(clock) as world:
            with _explaining(world, compared):
                world.apply(*_profiles(numbers), *_nodes(numbers))
                for _ in range(3):
                    world.apply(*_workload(numbers, f"w{numbers.randrange(10**6)}"))
                    await asyncio.sleep(numbers.choice((1, 15, 40)))

    run_skipping(run)


@contextmanager
def _explaining(world: InProcess, compared: Compared) -> Iterator[None]:
    attempt = ScheduleOne.schedule_one

    async def explained(schedule_one: ScheduleOne, queued: QueuedPod) -> None:
        pod, operator = queued.newest, world.operator
        steps = operator.explanations.pod(pod.namespace, pod.name)
        said = finished(steps) if steps is not None else None
        await attempt(schedule_one, queued)
        if said is not None:
            after = operator.world.cache.pod(pod.uid)
            profile = operator.world.profiles.of(pod)
            grouped = pod.group is not None and profile is not None and profile.places_groups
            compared.note(said, after.node_name if after else "", grouped=grouped)

    with patch.object(ScheduleOne, "schedule_one", explained):
        yield


def _sleeping(clock: VirtualClock) -> Any:
    def score(_: Any, __: Any, nodes: Any) -> Any:
        clock.advance(0.4)
        return np.zeros(len(nodes), np.int64)

    return score


def _profiles(numbers: Random) -> Iterator[JsonObject]:
    gangs = numbers.random() < 0.8
    yield make_profile("stellwerk", gangScheduling=gangs)
    yield make_profile("first", tieBreak="NodeRank", gangScheduling=gangs)
    scoring = {"score": {"enabled": [{"name": "First"}]}}
    yield make_profile("slow", plugins=scoring, gangScheduling=gangs)


def _nodes(numbers: Random) -> Iterator[JsonObject]:
    for number in range(numbers.randint(2, 7)):
        zone = {"zone": numbers.choice("ab"), "kubernetes.io/hostname": f"n{number}"}
        yield make_node(f"n{number}", cpu=f"{numbers.randint(1, 6)}", pods="20", labels=zone)


def _workload(numbers: Random, prefix: str) -> Iterator[JsonObject]:
    if numbers.random() < 0.5:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": prefix, "namespace": "default", "uid": prefix},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"disruptionsAllowed": numbers.randint(0, 2)},
        }
    for number in range(numbers.randint(1, 6)):
        gates = [{"name": "wait"}] if numbers.random() < 0.1 else []
        yield owned(
            make_pod(
                f"{prefix}-{number}",
                cpu=f"{numbers.choice((500, 1000, 2000, 3000))}m",
                priority=numbers.choice((0, 0, 10, 100)),
                labels={"app": numbers.choice("ab")},
                scheduler_name=numbers.choice(_PROFILES),
                schedulingGates=gates,
            )
        )
    if numbers.random() < 0.6:
        group, count = f"{prefix}-g", numbers.randint(2, 4)
        yield make_group(group, min_count=numbers.randint(1, count))
        name = numbers.choice(_PROFILES[:2])
        for number in range(count):
            cpu = f"{numbers.choice((500, 1000, 2000))}m"
            name = numbers.choice(_PROFILES[:2]) if numbers.random() < 0.05 else name
            yield make_member(f"{group}-{number}", group, cpu=cpu, scheduler_name=name)
