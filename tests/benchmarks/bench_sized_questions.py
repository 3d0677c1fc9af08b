"""What questions about thousands of pods cost: `python -m tests.benchmarks.bench_sized_questions`.

An operator's World of 5,000 nodes with 30,000 pods answers `POST /what-if` for templates of several
sizes, from the body to the bytes of the answer. CPU time of this process, the least of some
repetitions; the longest step is what the next decision waits for at most. Slices and pauses of the
port are left out: they cost other work nothing.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from stellwerk.answers.answer import codec
from stellwerk.answers.what_if import Supposition, WhatIf
from stellwerk.explain.what_if import what_if
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import node_name
from tests.benchmarks.workloads import make_node, make_pod
from tests.support.in_process import InProcess, make_profile

PODS_PER_NODE: Final = 6
SIZES: Final = (100, 1000, 10_000, 15_000)
_REPEATED: Final = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one answer."""

    cpu_seconds: float
    longest_step_seconds: float
    answer_bytes: int
    answer: WhatIf


def filled_world(nodes: int) -> World:
    """A World that has decided before, its snapshot up to date."""
    operator = InProcess()
    operator.apply(make_profile("stellwerk"), *map(make_node, range(nodes)))
    bound = (
        make_pod("basic", index, node_name(index % nodes)) for index in range(PODS_PER_NODE * nodes)
    )
    operator.apply(*bound)
    operator.operator.world.cache.update_snapshot()
    return operator.operator.world


def _pod_spec(**more: Any) -> JsonObject:
    spec = {**make_pod("basic", 0)["spec"], **more}
    spec.pop("priority", None)
    return spec


def _controller(kind: str, **spec: Any) -> JsonObject:
    labels = {"app": "sized"}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(**spec)}
    obj: JsonObject = {"kind": kind, "metadata": {"name": "sized"}, "spec": {"template": template}}
    if kind == "Deployment":
        obj["spec"]["selector"] = {"matchLabels": labels}
    return obj


def _spread(when: str) -> JsonObject:
    selector = {"labelSelector": {"matchLabels": {"app": "sized"}}}
    zone = {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when}
    return {"topologySpreadConstraints": [{**zone, **selector}]}


def _apart() -> JsonObject:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "sized"}},
    }
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def _large() -> JsonObject:
    """Pods of which half of the nodes hold none, and the others one."""
    requests = {"cpu": "3400m", "memory": "500Mi"}
    container = {"name": "pause", "image": "pause:1", "resources": {"requests": requests}}
    return {"containers": [container]}


TEMPLATES: Final[dict[str, Callable[[], JsonObject]]] = {
    "Job": lambda: _controller("Job"),
    "Deployment, default spreading": lambda: _controller("Deployment"),
    "Job, spread over zones (DoNotSchedule)": lambda: _controller(
        "Job", **_spread("DoNotSchedule")
    ),
    "Job, apart by host (required)": lambda: _controller("Job", **_apart()),
    "Job, one pod a node": lambda: _controller("Job", **_large()),
}


def steps_of(world: World, body: bytes) -> Iterator[WhatIf | None]:
    """The steps of an answer, and in the end the answer."""
    steps = what_if(world, Supposition.of(orjson.loads(body)))
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            answer: WhatIf = ended.value
            yield answer
            return
        yield None


def asked(world: World, template: JsonObject, count: int) -> Cost:
    """Ask once, and say what that cost."""
    body = orjson.dumps({"templates": [{"template": template, "count": count}]})
    longest, answer = 0.0, None
    began = before = time.process_time()
    for each in steps_of(world, body):
        now = time.process_time()
        longest, before, answer = max(longest, now - before), now, each
    assert answer is not None
    written = codec(WhatIf).as_bytes(answer)
    ended = time.process_time()
    return Cost(ended - began, max(longest, ended - before), len(written), answer)


def measured(world: World, template: JsonObject, count: int, repeated: int = _REPEATED) -> Cost:
    """The cheapest of some answers, with the shortest of their longest steps."""
    gc.collect()
    costs = [asked(world, template, count) for _ in range(repeated)]
    best = min(costs, key=lambda cost: cost.cpu_seconds)
    longest = min(cost.longest_step_seconds for cost in costs)
    return Cost(best.cpu_seconds, longest, best.answer_bytes, best.answer)


def main() -> None:
    """Measure each template at each size, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--repeated", type=int, default=_REPEATED)
    parser.add_argument("--only", default="", help="a part of a template's name")
    options = parser.parse_args()
    world = filled_world(options.nodes)
    asked(world, _controller("Job"), 1)
    for name, make in TEMPLATES.items():
        if options.only not in name:
            continue
        for size in options.sizes:
            cost = measured(world, make(), size, options.repeated)
            (outcome,) = cost.answer.templates or ()
            figures = {
                "template": name,
                "pods": size,
                "placed": outcome.placed,
                "cpu_ms": round(1e3 * cost.cpu_seconds, 1),
                "longest_step_ms": round(1e3 * cost.longest_step_seconds, 1),
                "answer_bytes": cost.answer_bytes,
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
