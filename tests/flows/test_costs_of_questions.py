"""The cost of a question about what is not there: no step of it holds the scheduler's loop."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import web

from stellwerk.answers.what_if import Supposition, WhatIf
from stellwerk.explain.steps import OutOfTime
from stellwerk.explain.what_if import what_if
from stellwerk.serving.http import LIMITS
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.listening.middleware import json_within
from tests.support.builders import make_node, make_pod
from tests.support.findings import hold
from tests.support.hostile_objects import OBJECTS
from tests.support.hostile_world import MIB, hostile_world
from tests.support.machine_speed import piece_of_work_seconds

NODES: Final = 5000
MOST_STEPS: Final = 300
"""Of one answer: what comes later is alike, and the port ends it after two seconds."""
_USUAL_PIECE_SECONDS: Final = 1e-3
"""CPU time of a piece of work on the machine whose milliseconds the bound counts."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node_terms(number: int, expression: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    terms = [{"matchExpressions": [expression(each)]} for each in range(number)]
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}


def pod_terms(kind: str, number: int, key: str) -> dict[str, Any]:
    terms = [
        {
            "topologyKey": key.format(each),
            "labelSelector": {"matchLabels": {"app": f"x{each}"}},
        }
        for each in range(number)
    ]
    return {"affinity": {kind: {_REQUIRED: terms}}}


def preferred(number: int, key: str) -> dict[str, Any]:
    terms = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": key, "labelSelector": {}}}
        for _ in range(number)
    ]
    return {"affinity": {"podAffinity": {_PREFERRED: terms}}}


def spread(number: int, key: str, when: str) -> dict[str, Any]:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key.format(each),
                "whenUnsatisfiable": when,
                "labelSelector": {"matchLabels": {"app": f"x{each}"}},
            }
            for each in range(number)
        ]
    }


PODS: Final[dict[str, dict[str, Any]]] = {
    "900 node terms": node_terms(900, lambda at: {"key": f"k{at}", "operator": "Exists"}),
    "600 numbers": node_terms(
        600, lambda at: {"key": _HOST, "operator": "Gt", "values": [str(at)]}
    ),
    "150 anti-affinity terms with keys of their own": pod_terms("podAntiAffinity", 150, "key{}"),
    "150 anti-affinity terms by host": pod_terms("podAntiAffinity", 150, _HOST),
    "150 affinity terms by zone": pod_terms("podAffinity", 150, _ZONE),
    "150 preferred affinity terms": preferred(150, _HOST),
    "150 spread constraints by host": spread(150, _HOST, "DoNotSchedule"),
    "150 soft spread constraints": spread(150, _HOST, "ScheduleAnyway"),
    "150 spread constraints with keys of their own": spread(150, "key{}", "DoNotSchedule"),
    "1,900 tolerations": {
        "tolerations": [{"key": f"k{each}", "operator": "Exists"} for each in range(1900)]
    },
}


def questions() -> dict[str, dict[str, Any]]:
    """The hostile shapes as a pod or a node that is supposed; and pods within the limits."""
    shape = make_node("x", labels={_HOST: "x", _ZONE: "zz"})
    labelled = [
        make_node(f"x{node}", labels={f"l{node}-{each}": "v" for each in range(60)})
        for node in range(20)
    ]
    resources = {f"example.com/r{each}": "5" for each in range(64)}
    extended = {**make_node("r"), "status": {"capacity": resources}}
    found: dict[str, dict[str, Any]] = {
        "nodes with labels of their own": {"pod": make_pod("p"), "addNodes": labelled, "count": 50},
        "nodes with resources of their own": {
            "pod": make_pod("p"),
            "addNodes": [extended],
            "count": 1000,
        },
    }
    labels = " ".join(f"k{each}=v" for each in range(7))
    names = [f"n{each}" for each in range(1000)]
    found |= {
        "nodes with other labels": {"relabel": [f"{each} {labels}" for each in names]},
        "nodes with other taints": {"taint": [f"{each} a=b:NoExecute" for each in names]},
        "nodes that are deleted": {"delete": [f"node/{each}" for each in names]},
    }
    for name, fields in PODS.items():
        found[name] = {"pod": make_pod("p", cpu="1", **fields)}
        alike = {"template": make_pod("p", cpu="1", **fields), "count": 15_000}
        found[f"{name}, 15,000 of them"] = {"templates": [alike]}
        found[f"{name}, no room"] = {
            "pod": make_pod("p", cpu="1000", **fields),
            "addNodes": [shape],
            "count": 1000,
        }
    for name, build in OBJECTS.items():
        obj = build()
        if obj["kind"] == "Pod":
            found[name] = {"pod": obj}
        elif obj["kind"] == "Node":
            found[name] = {"pod": make_pod("p"), "addNodes": [obj]}
    return found


def steps_of(world: World, body: bytes) -> tuple[list[float], WhatIf | None]:
    """CPU seconds of each step of an answer as the port computes it; None: it was refused."""
    took, began = list[float](), time.thread_time()
    try:
        supposed = Supposition.of(json_within(LIMITS, body))
        steps = what_if(world, supposed)
        while True:
            took.append(time.thread_time() - began)
            began = time.thread_time()
            if len(took) == MOST_STEPS:
                steps.throw(OutOfTime("here"))
            next(steps)
    except (ConfigurationError, OutOfTime, web.HTTPBadRequest):
        return [*took, time.thread_time() - began], None
    except StopIteration as ended:
        answer: WhatIf = ended.value
        return [*took, time.thread_time() - began], answer


def ms_of_steps(world: World, body: bytes) -> tuple[list[float], WhatIf | None]:
    """`steps_of` in ms of a machine of usual speed, as fast as this one was before and after."""
    before = piece_of_work_seconds()
    took, answer = steps_of(world, body)
    slowness = max(1.0, max(before, piece_of_work_seconds()) / _USUAL_PIECE_SECONDS)
    return [1000 * seconds / slowness for seconds in took], answer


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / MIB


@pytest.mark.long
async def test_no_step_of_an_answer_takes_long_at_5000_nodes() -> None:
    asked, long, large, answered = questions(), dict[str, float](), dict[str, float](), 0
    async with hostile_world(NODES) as hostile:
        world = hostile.world.operator.world
        gc.collect()
        gc.freeze()
        try:
            for name, question in asked.items():
                body = orjson.dumps(question)
                if len(body) > 256 << 10:
                    continue  # the port refuses it by its length
                gc.collect()
                before = resident_mib()
                took, answer = ms_of_steps(world, body)
                answered += answer is not None
                large[name] = resident_mib() - before
                turns = [took]
                while max(map(min, zip(*turns, strict=True))) > 5 and len(turns) < 3:
                    # Others may have had the processor's caches, or garbage was collected.
                    turns.append(ms_of_steps(world, body)[0])
                long[name] = max(map(min, zip(*turns, strict=True)))
        finally:
            gc.unfreeze()
    slowest = sorted(long, key=lambda name: -long[name])[:5]
    for name in slowest:
        print(f"{name}: {long[name]:.1f} ms, {large[name]:+.0f} MiB")  # noqa: T201 figures
    assert answered > len(PODS)
    hold("question step", max(long.values()))
    hold("question memory", max(large.values()))


def eight_bodies() -> list[dict[str, Any]]:
    """The questions that once stopped the leader."""

    def labelled(nodes: int, labels: int) -> dict[str, Any]:
        manifests = [
            make_node(f"x{node}", labels={f"l{node}-{each}": "v" for each in range(labels)})
            for node in range(nodes)
        ]
        return {"pod": make_pod("p"), "addNodes": manifests}

    resources = [
        {
            "metadata": {"name": f"n{node}"},
            "status": {"capacity": {f"r{node}-{at}": 1 for at in range(53)}},
        }
        for node in range(1000)
    ]
    return [
        {"pod": make_pod("p", **spread(10_900, "key{}", "DoNotSchedule"))},
        {"pod": make_pod("p", **spread(2_000, _HOST, "DoNotSchedule"))},
        labelled(1000, 78),
        labelled(1, 78_000),
        {"pod": make_pod("p"), "addNodes": resources},
        {"pod": make_pod("p", **pod_terms("podAntiAffinity", 23_000, "key{}"))},
        {
            "pod": make_pod(
                "p", **node_terms(14_000, lambda at: {"key": f"k{at}", "operator": "Exists"})
            )
        },
        {"pod": make_pod("p"), "addNodes": [make_node("x")], "count": 1001},
    ]


async def test_eight_bodies_that_once_stopped_the_leader_are_refused_or_answered_in_time() -> None:
    async with hostile_world(20) as hostile:
        for body in eight_bodies():
            took, answer = steps_of(hostile.world.operator.world, orjson.dumps(body))
            hold("eight bodies", 1000 * sum(took))
            assert answer is None or answer.unplaced[0].message.startswith("too complex")
