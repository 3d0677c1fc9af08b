"""A pod that is being bound is explained by its binding, and never counts against itself."""

import asyncio
import io
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.what_if import Supposition
from stellwerk.explain.report import explain_on, held_gpus
from stellwerk.explain.steps import finished
from stellwerk.explain.what_if import what_if
from stellwerk.framework.interface import PermitResult
from stellwerk.framework.types import Code, Status
from stellwerk.models.pod import parse_pod
from stellwerk_cli.commands.explained_pod import print_explanation
from stellwerk_cli.commands.printer import Printer
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.answers import written
from tests.support.builders import make_node, make_pod
from tests.support.gpu_cluster import gpu_pod_info
from tests.support.in_process import InProcess, eventually, make_profile, running
from tests.support.scripted_plugins import Script, installed
from tests.support.skipped_time import run_skipping

TAINT = {"key": "kept", "effect": "NoSchedule"}
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


@pytest.fixture
def script() -> Iterator[Script]:
    with installed() as script:
        yield script


def explanation(world: InProcess, name: str) -> PodExplanation:
    found = world.operator.explanations.pod("default", name)
    assert found is not None
    return finished(found)


def assumed(world: InProcess, name: str) -> bool:
    return f"uid-default-{name}" in world.cache.assumed_pods


def late_claim(world: InProcess, name: str, modes: tuple[str, ...] = ("ReadWriteOnce",)) -> None:
    """A claim that waits for its first consumer, and that nothing provisions."""
    storage_class = {
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    world.client.put("/apis/storage.k8s.io/v1/storageclasses/late", storage_class)
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {
            "storageClassName": "late",
            "accessModes": list(modes),
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }
    world.client.put(f"{CLAIMS}/{name}", claim)


def with_claim(name: str, **fields: Any) -> JsonObject:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
    return make_pod(name, scheduler_name="stellwerk", volumes=[volume], **fields)


async def test_a_pod_in_pre_bind_names_its_node_and_the_claim_that_it_waits_for() -> None:
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"))
        late_claim(world, "v")
        world.apply(with_claim("v", cpu="2"))
        await eventually(lambda: assumed(world, "v"))
        await eventually(lambda: explanation(world, "v").binding is not None)
        await eventually(lambda: getattr(explanation(world, "v").binding, "point", "") == "PreBind")
        found = explanation(world, "v")
        assert (found.state, found.node, found.verdicts) == ("scheduling", "a", None)
        assert found.binding is not None
        assert found.binding.waits_for == ["the claim default/v to be bound to a volume"]
        assert found.would_fit is None


async def test_a_pod_at_permit_names_the_plugins_that_have_to_allow_it(script: Script) -> None:
    script.answers["First.permit"] = PermitResult(Status(Code.WAIT), 60.0)
    async with running() as world:
        profile = make_profile("stellwerk", plugins={"permit": {"enabled": [{"name": "First"}]}})
        world.apply(profile, make_node("a", cpu="2"))
        world.apply(make_pod("p", scheduler_name="stellwerk", cpu="2"))
        await eventually(lambda: assumed(world, "p"))
        await eventually(lambda: getattr(explanation(world, "p").binding, "point", "") == "Permit")
        found = explanation(world, "p").binding
        assert found is not None
        assert (found.node, found.waits_for) == ("a", ["the plugin First to allow it"])
        waiting = world.operator.waiting_pods.get_waiting("uid-default-p")
        assert waiting is not None
        waiting.allow("First")
        await eventually(lambda: world.node_of("p") == "a")
        assert explanation(world, "p").binding is None


async def test_a_binding_that_the_api_server_has_not_answered_says_so(script: Script) -> None:
    held = asyncio.Event()

    async def wait(*_: object) -> Status:
        await held.wait()
        return Status(Code.SKIP)

    script.answers["First.bind"] = wait
    async with running() as world:
        binds = [{"name": "First"}, {"name": "DefaultBinder"}]
        disabled = [{"name": "DefaultBinder"}]
        plugins = {"bind": {"enabled": binds, "disabled": disabled}}
        world.apply(make_profile("stellwerk", plugins=plugins), make_node("a", cpu="2"))
        world.apply(make_pod("p", scheduler_name="stellwerk"))
        await eventually(lambda: assumed(world, "p"))
        await eventually(lambda: bool(explanation(world, "p").binding))
        found = explanation(world, "p").binding
        assert found is not None
        assert (found.point, found.waits_for) == ("Bind", ["the API server to accept the binding"])
        held.set()
        await eventually(lambda: world.node_of("p") == "a")


ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "v"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
PORT = {"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cpu": "2"}, id="its requests"),
        pytest.param({"containers": [PORT]}, id="its host port"),
        pytest.param({"labels": {"app": "v"}, "affinity": ANTI}, id="its labels"),
        pytest.param({}, id="its claim, ReadWriteOncePod"),
    ],
)
async def test_an_assumed_pod_does_not_count_against_itself(fields: dict[str, Any]) -> None:
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"))
        late_claim(world, "v", ("ReadWriteOncePod",))
        world.apply(with_claim("v", **fields))
        await eventually(lambda: assumed(world, "v"))
        live = world.operator.world
        pod = next(iter(world.queue.entries.values())).newest
        fork = live.fork(Random(0))
        profile = fork.profiles.of(pod)
        assert profile is not None
        assert written(explain_on(fork, pod, profile, live))["wouldGetNode"] == "a"
        asked = written(what_if(live, Supposition(pod=world.pod("v"))))
        assert asked["placed"] == [{"pod": "default/v", "node": "a"}]
        drained = written(what_if(live, Supposition(drain="a")))
        assert drained["lost"] == ["default/v"]


async def test_a_manifest_of_a_running_pod_stands_for_that_pod() -> None:
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"))
        world.apply(make_pod("p", scheduler_name="stellwerk", cpu="2"))
        await eventually(lambda: world.node_of("p") == "a")
        manifest = make_pod("p", scheduler_name="stellwerk", cpu="1500m")
        del manifest["metadata"]["uid"]
        assert parse_pod(manifest).uid != "uid-default-p"
        answer = written(what_if(world.operator.world, Supposition(pod=manifest)))
        assert answer["placed"] == [{"pod": "default/p", "node": "a"}]


def test_a_preemptor_that_got_its_node_names_whom_it_evicted() -> None:
    async def flow(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("stellwerk"), make_node("n", cpu="1"))
            world.apply(make_node("tainted", cpu="1", taints=[TAINT]))
            world.apply(make_pod("low", scheduler_name="stellwerk", cpu="1"))
            await eventually(lambda: world.node_of("low") == "n")
            victim = world.pod("low")
            world.apply(make_pod("high", scheduler_name="stellwerk", cpu="1", priority=9))
            path = "/api/v1/namespaces/default/pods/low"
            await eventually(lambda: path not in world.client.objects)
            world.operator.handlers.on_pod("DELETED", victim)
            await eventually(lambda: world.node_of("high") == "n", 60.0)
            found = explanation(world, "high")
            assert found.decision is not None
            assert found.decision.nominated
            last = found.last_preemption
            assert last is not None
            assert [each.pod for each in last.victims] == ["default/low"]
            assert last.nominated_node == last.node == "n"
            assert found.decision.others is None, "no other node was looked at"
            output = io.StringIO()
            print_explanation(found, Printer(output, width=200))
            _, evicted, decided, *rest = output.getvalue().splitlines()
            assert evicted.startswith("It preempted default/low (0) on n ")
            assert re.match(
                r"Decided \w+ ago, attempt \d+: it got n, the node of its "
                r"nomination",
                decided,
            )
            assert rest == [f"decisions follow Kubernetes {found.decision.compatibility}"]

    run_skipping(flow)


def test_a_pod_with_a_node_names_its_gpus() -> None:
    held = held_gpus(gpu_pod_info("p", devices=2, on="n", ids="1,3"))
    assert held is not None
    assert list(held.lines()) == ["It holds 2 whole GPUs: number 1, 3."]
    assert held_gpus(gpu_pod_info("p")) is None
