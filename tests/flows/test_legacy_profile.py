"""The shipped profile legacy-v1.18 reproduces the log of the documents, line by line."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from stellwerk.framework.types import CycleState
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.fake_extender import fake_extender
from tests.support.in_process import InProcess, eventually, running
from tests.support.preemption_cases import make_arena
from tests.support.repository import ROOT

PROFILE = ROOT / "manifests" / "profiles" / "legacy-v1.18.yaml"
MEBIBYTE = 1024 * 1024
SILENT_CPU_MILLIS, SILENT_MEMORY_BYTES = 100, 200 * MEBIBYTE
"""What scoring counts for a container that requests nothing, such as nginx in the example."""
NGINX = {"names": ["nginx:latest"], "sizeBytes": 127_000_000}
WEIGHTS = {
    "ImageLocality": 1,
    "InterPodAffinity": 1,
    "LegacyBalancedAllocation": 1,
    "LegacyLeastAllocated": 1,
    "NodeAffinity": 1,
    "NodePreferAvoidPods": 10000,
    "SelectorSpread": 1,
    "TaintToleration": 1,
}


def profile(**more: Any) -> JsonObject:
    manifest: JsonObject = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))
    manifest["metadata"] |= {"uid": "legacy", "generation": 1}
    manifest["spec"] |= more
    return manifest


def worker(name: str) -> JsonObject:
    return make_node(name, cpu="47800m", memory="66054406144", images=[NGINX])


CONTROL_PLANE = make_node(
    "control-plane", taints=[{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}]
)
NODES = [worker("first"), worker("second"), CONTROL_PLANE]


def busy(node_name: str, cpu_millis: int, memory_bytes: int) -> JsonObject:
    """What runs on a node already, so that it requests so much together with nginx."""
    return make_pod(
        f"busy-{node_name}",
        node_name=node_name,
        cpu=f"{cpu_millis - SILENT_CPU_MILLIS}m",
        memory=str(memory_bytes - SILENT_MEMORY_BYTES),
    )


PODS = [busy("first", 7850, 6786383872), busy("second", 6950, 7627341824)]


def nginx(**spec: Any) -> JsonObject:
    pod = make_pod("nginx", labels={"app": "nginx"}, scheduler_name="legacy-v1.18", **spec)
    pod["spec"]["containers"][0]["image"] = "nginx"
    return pod


@pytest.fixture(scope="module")
def scores() -> Mapping[str, dict[str, int]]:
    """Weighted scores by plugin and node."""
    arena = make_arena(NODES, PODS, profile=profile()["spec"])
    fields = {key: value for key, value in nginx()["spec"].items() if key == "containers"}
    pod, state = pod_info("nginx", labels={"app": "nginx"}, **fields), CycleState()
    snapshot = arena.cache.snapshot
    found = arena.framework.filtering.find_feasible(pod, state)
    view = found.view()
    names = snapshot.names(view.row_numbers().tolist())
    made = arena.framework.scoring.prioritize(state, pod, view)
    return {
        score.plugin: dict(zip(names, (score.normalized * score.weight).tolist(), strict=True))
        for score in made.by_plugin
    }


def test_exactly_the_plugins_of_that_time_score() -> None:
    plugins = load_profile(profile(), known_plugins()).plugins
    weights = {name: plugins.weights[name] for name in plugins.at(ExtensionPoint.SCORE)}
    assert weights == WEIGHTS


@pytest.mark.parametrize(
    ("plugin", "first", "second"),
    [
        ("LegacyBalancedAllocation", 93, 97),
        ("LegacyLeastAllocated", 86, 86),
        ("SelectorSpread", 100, 100),
        ("TaintToleration", 100, 100),
        ("NodePreferAvoidPods", 1_000_000, 1_000_000),
        ("ImageLocality", 5, 5),
    ],
)
def test_scores_as_logged(
    scores: Mapping[str, dict[str, int]], plugin: str, first: int, second: int
) -> None:
    assert scores[plugin] == {"first": first, "second": second}


async def test_totals_with_the_extenders_scores() -> None:
    answer = [{"host": "first", "score": 2}, {"host": "second", "score": 5}]
    async with fake_extender({"prioritize": answer}) as extender, running() as world:
        called = {"urlPrefix": extender.url, "prioritizeVerb": "prioritize", "weight": 1}
        world.apply(*NODES, *PODS, profile(extenders=[{**called, "nodeCacheCapable": True}]))
        world.apply(nginx(schedulingGates=[{"name": "not yet"}]))
        assert await totals(world) == {"first": 1000404, "second": 1000438}
        world.apply(nginx())
        await eventually(lambda: world.node_of("nginx") == "second")


async def totals(world: InProcess) -> dict[str, int]:
    """What the cycle would compare."""
    profile = world.profiles.served["legacy-v1.18"]
    framework, extenders = profile.framework, profile.extenders
    pod = world.queue.pod("uid-default-nginx")
    assert extenders is not None
    assert pod is not None
    snapshot, state = world.cache.update_snapshot(), CycleState()
    view = framework.filtering.find_feasible(pod, state).view()
    names = snapshot.names(view.row_numbers().tolist())
    added = await extenders.prioritize(pod, names)
    total = framework.scoring.prioritize(state, pod, view).total + added
    return dict(zip(names, total.tolist(), strict=True))
