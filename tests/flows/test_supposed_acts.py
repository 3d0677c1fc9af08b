"""A supposed act changes what the real one does, once the controllers have acted.

Each real act is done on the embedded cluster, whose node lifecycle controller, ReplicaSets and
evictions answer it; the supposition is asked of the operator before.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from stellwerk.answers.what_if import Supposition
from stellwerk.explain.what_if import what_if
from stellwerk.models.node_acts import (
    cordoned,
    relabelled,
    settled,
    tainted,
    uncordoned,
    untainted,
)
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.node import NodeInfo, parse_node
from stellwerk_kube.taints import NO_SCHEDULE, Taint
from tests.support.answers import written
from tests.support.builders import make_node
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

CONTROLLED_SECONDS = 5.0
"""Virtual time in which the controllers have acted."""
MINE = Taint("mine", "yes", NO_SCHEDULE)
TAINT = {"key": "mine", "value": "yes", "effect": "NoSchedule"}
CORDON = {"spec": {"unschedulable": True}}


def play(flow: Callable[[VirtualCluster], Awaitable[None]], nodes: int = 3) -> None:
    async def run(clock: VirtualClock) -> None:
        made = [
            make_node(f"node-{n}", cpu="4", labels={"kubernetes.io/hostname": f"node-{n}"})
            for n in range(1, nodes + 1)
        ]
        async with open_virtual_cluster(clock, made) as world:
            await flow(world)

    run_skipping(run)


def node(world: VirtualCluster, name: str = "node-1") -> NodeInfo:
    return parse_node(world.api.find("nodes", "", name) or {})


@pytest.mark.parametrize(
    ("prepared", "act", "supposed"),
    [
        pytest.param([], CORDON, cordoned, id="cordon"),
        pytest.param([CORDON], {"spec": {"unschedulable": None}}, uncordoned, id="uncordon"),
        pytest.param(
            [],
            {"metadata": {"labels": {"disk": "ssd"}}},
            lambda before: relabelled(before, {"disk": "ssd"}),
            id="relabel",
        ),
        pytest.param(
            [CORDON],
            {"metadata": {"labels": {"disk": "ssd"}}},
            lambda before: relabelled(before, {"disk": "ssd"}),
            id="relabel a cordoned node",
        ),
        pytest.param(
            [],
            {"spec": {"taints": [TAINT]}},
            lambda before: tainted(before, [MINE]),
            id="taint",
        ),
        pytest.param(
            [{"spec": {"taints": [TAINT]}}],
            {"spec": {"taints": None}},
            lambda before: untainted(before, [MINE]),
            id="untaint",
        ),
        pytest.param(
            [CORDON],
            {"spec": {"taints": None}},
            lambda before: untainted(before, before.taints),
            id="untaint a cordoned node: the taint comes back",
        ),
    ],
)
def test_an_act_on_a_node_is_supposed_with_all_that_it_changes(
    prepared: list[Any], act: Any, supposed: Callable[[NodeInfo], NodeInfo]
) -> None:
    async def flow(world: VirtualCluster) -> None:
        for each in prepared:
            world.patch("nodes", "node-1", each)
            await asyncio.sleep(CONTROLLED_SECONDS)
        before = node(world)
        world.patch("nodes", "node-1", act)
        await asyncio.sleep(CONTROLLED_SECONDS)
        after, expected = node(world), supposed(before)
        assert set(after.taints) == set(expected.taints)
        assert after.unschedulable == expected.unschedulable
        assert dict(after.labels) == dict(expected.labels)

    play(flow, nodes=1)


def test_a_node_that_is_added_cordoned_gets_its_taint() -> None:
    async def flow(world: VirtualCluster) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "new"},
            "spec": {"unschedulable": True},
            "status": {
                "allocatable": {"cpu": "4", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        expected = settled(parse_node(manifest))
        world.apply(manifest)
        await asyncio.sleep(CONTROLLED_SECONDS)
        assert set(expected.taints) <= set(node(world, "new").taints)
        assert [each.key for each in expected.taints] == ["node.kubernetes.io/unschedulable"]

    play(flow, nodes=1)


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: spread, namespace: default}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: spread}}
  template:
    metadata: {labels: {app: spread}}
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          nodeTaintsPolicy: Honor
          labelSelector: {matchLabels: {app: spread}}
      containers:
        - {name: c, image: registry.example/x:1, resources: {requests: {cpu: 500m}}}
"""


@pytest.mark.parametrize("replicas", [3, 6])
def test_a_drain_is_supposed_as_it_comes(replicas: int) -> None:
    async def flow(world: VirtualCluster) -> None:
        world.apply(yaml.safe_load(DEPLOYMENT.replace("REPLICAS", str(replicas))))
        await world.until(lambda: len(world.pods) == replicas)
        await world.settle()
        leaving = [name for name in world.pods if world.node_of(name) == "node-3"]
        answer = written(what_if(world.operator.world, Supposition(drain="node-3")))
        assert len(answer["placed"]) == len(leaving) == replicas // 3
        assert answer["unplaced"] == []
        world.patch("nodes", "node-3", CORDON)
        await asyncio.sleep(CONTROLLED_SECONDS)
        for name in leaving:
            world.delete("pods", name)
        await world.until(lambda: not set(leaving) & set(world.pods))
        await world.settle()
        assert {world.node_of(name) for name in world.pods} == {"node-1", "node-2"}

    play(flow)


def test_a_pod_that_is_being_deleted_need_not_move() -> None:
    async def flow(world: VirtualCluster) -> None:
        text = DEPLOYMENT.replace("REPLICAS", "3")
        deployment = yaml.safe_load(text)
        deployment["spec"]["template"]["metadata"]["finalizers"] = ["example.com/hold"]
        world.apply(deployment)
        await world.until(lambda: len(world.pods) == 3)
        await world.settle()
        [leaving] = [name for name in world.pods if world.node_of(name) == "node-3"]
        world.patch("nodes", "node-3", CORDON)
        world.delete("pods", leaving)
        await world.until(lambda: len(world.pods) == 4)
        await world.until(lambda: all(world.node_of(name) for name in world.pods))
        answer = written(what_if(world.operator.world, Supposition(drain="node-3")))
        assert (answer["placed"], answer["unplaced"]) == ([], [])
        world.patch("pods", leaving, {"metadata": {"finalizers": None}})

    play(flow)


# --- acts on pods and controllers: who ends, and where the new pods go --------------------------


def workload(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """A controller whose pods ask for half a CPU each."""
    pod_fields = spec.pop("pod", {})
    annotations = spec.pop("annotations", {})
    container = {"name": "c", "image": "registry.example/x:1"}
    container["resources"] = {"requests": {"cpu": spec.pop("cpu", "500m")}}  # type: ignore[assignment]
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"containers": [container], **pod_fields},
    }
    group = "batch/v1" if kind == "Job" else "apps/v1"
    selector = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**selector, "template": template, **spec},
    }


def bare(name: str, node_name: str, **requests: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node_name,
            "containers": [
                {
                    "name": "c",
                    "image": "registry.example/x:1",
                    "resources": {"requests": requests},
                }
            ],
        },
    }


SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
FOR_EVER = {"tolerations": [{"key": "mine", "operator": "Exists"}]}
FOR_A_WHILE = {
    "tolerations": [
        {"key": "mine", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}
    ]
}
HERE = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
SETTLED_SECONDS = 400.0
"""Virtual time in which the last pod is collected, made anew and told its node."""


async def compared(
    world: VirtualCluster, supposed: Supposition, act: Callable[[], object]
) -> dict[str, Any]:
    """The answer, after it was found equal to what the real act has made of the cluster.

    Equal are the pods that end, how many come, on which nodes, and the pods of each DaemonSet.
    """
    await world.settle()
    await asyncio.sleep(CONTROLLED_SECONDS)
    before = dict(world.pods)
    answer: dict[str, Any] = written(what_if(world.operator.world, supposed))
    act()
    await asyncio.sleep(SETTLED_SECONDS)
    after = dict(world.pods)
    gone = {name for name, pod in before.items() if not _is_same(pod, after.get(name))}
    come = {name for name, pod in after.items() if not _is_same(pod, before.get(name))}
    ended = {each["pod"].partition("/")[2] for each in answer.get("ended", ())}
    assert ended == gone, "other pods end"
    of_daemon_sets = {name for name in come if _owner(after[name]) == "DaemonSet"}
    decided = [each["node"] for each in answer["placed"]] + [None] * len(answer["unplaced"])
    assert Counter(world.node_of(name) for name in come - of_daemon_sets) == Counter(decided)
    assert len({_owner_name(after[name]) for name in of_daemon_sets}) == len(
        answer.get("daemonSets", ())
    )
    return answer


def _is_same(pod: Any, other: Any) -> bool:
    return other is not None and pod["metadata"]["uid"] == other["metadata"]["uid"]


def _owner(pod: Any) -> str:
    return next((each["kind"] for each in pod["metadata"].get("ownerReferences") or ()), "")


def _owner_name(pod: Any) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


async def populate(world: VirtualCluster) -> None:
    """Pods of every kind on node-1: of controllers, tolerant or not, a bare one, a daemon's."""
    world.apply(
        workload("Deployment", "web", replicas=3, pod=SPREAD),
        workload("Deployment", "patient", replicas=1, pod={**HERE, **FOR_A_WHILE}),
        workload("Deployment", "tolerant", replicas=1, pod={**HERE, **FOR_EVER}),
        workload("DaemonSet", "agent"),
        bare("bare", "node-1"),
        # The node with the most room is node-2, so that no tie is drawn.
        bare("small", "node-3", cpu="250m"),
    )
    await world.until(lambda: len(world.pods) == 10)
    await world.settle()


def on(world: VirtualCluster, node_name: str, app: str) -> str:
    """The one pod of a controller on a node."""
    [found] = [
        name
        for name, pod in world.pods.items()
        if world.node_of(name) == node_name
        and (pod["metadata"].get("labels") or {}).get("app") == app
    ]
    return found


def test_a_taint_that_evicts_is_supposed_as_it_comes() -> None:
    async def flow(world: VirtualCluster) -> None:
        await populate(world)
        taint = {"key": "mine", "value": "yes", "effect": "NoExecute"}
        answer = await compared(
            world,
            Supposition(taint=["node-1 mine=yes:NoExecute"]),
            lambda: world.patch("nodes", "node-1", {"spec": {"taints": [taint]}}),
        )
        assert answer["lost"] == ["default/bare"]
        by_app = {each["pod"].split("/")[1].split("-")[0]: each for each in answer["ended"]}
        assert set(by_app) == {"web", "patient", "agent", "bare"}
        assert by_app["patient"]["afterSeconds"] == 20
        assert "afterSeconds" not in by_app["web"]
        assert [each["madeAnew"] for each in answer["ended"]].count(True) == 2

    play(flow)


def test_a_taint_that_keeps_others_away_ends_nothing() -> None:
    async def flow(world: VirtualCluster) -> None:
        await populate(world)
        answer = await compared(
            world,
            Supposition(taint=["node-1 mine=yes:NoSchedule"]),
            lambda: world.patch("nodes", "node-1", {"spec": {"taints": [TAINT]}}),
        )
        assert "ended" not in answer

    play(flow)


def test_labels_move_the_pods_of_daemon_sets_and_no_others() -> None:
    async def flow(world: VirtualCluster) -> None:
        for name in ("node-1", "node-2"):
            world.patch("nodes", name, {"metadata": {"labels": {"disk": "ssd"}}})
        ssd = {"nodeSelector": {"disk": "ssd"}}
        world.apply(
            workload("DaemonSet", "agent", pod=ssd),
            workload("Deployment", "web", replicas=1, pod={"nodeSelector": {"disk": "ssd"}}),
        )
        await world.until(lambda: len(world.pods) == 3)

        def act() -> None:
            world.patch("nodes", "node-1", {"metadata": {"labels": {"disk": None}}})
            world.patch("nodes", "node-2", {"metadata": {"labels": {"disk": None}}})
            world.patch("nodes", "node-3", {"metadata": {"labels": {"disk": "ssd"}}})

        relabel = ["node-1 disk-", "node-2 disk-", "node-3 disk=ssd"]
        answer = await compared(world, Supposition(relabel=relabel), act)
        assert len(answer["ended"]) == 2
        assert answer["daemonSets"] == ["default/agent"]

    play(flow)


def test_a_label_lets_a_waiting_pod_in() -> None:
    async def flow(world: VirtualCluster) -> None:
        world.apply(
            workload("Deployment", "web", replicas=1, pod={"nodeSelector": {"disk": "ssd"}})
        )
        await world.until(lambda: len(world.pods) == 1)
        await world.settle()
        [name] = world.pods
        supposed = Supposition(relabel=["node-2 disk=ssd"])
        answer = written(what_if(world.operator.world, supposed))
        assert [(it["pod"], it["node"]) for it in answer["placed"]] == [
            (f"default/{name}", "node-2")
        ]
        world.patch("nodes", "node-2", {"metadata": {"labels": {"disk": "ssd"}}})
        await world.until(lambda: world.node_of(name) == "node-2")

    play(flow)


def test_a_node_that_is_deleted_takes_its_pods_with_it() -> None:
    async def flow(world: VirtualCluster) -> None:
        await populate(world)
        answer = await compared(
            world,
            Supposition(delete=["node/node-1"]),
            lambda: world.delete("nodes", "node-1"),
        )
        assert answer["lost"] == ["default/bare"]
        assert len(answer["placed"]) == 1, "the others select the node that is gone"
        assert len(answer["unplaced"]) == 2

    play(flow)


@pytest.mark.parametrize("app", ["web", "agent", "bare"])
def test_a_pod_that_is_deleted_is_made_anew_by_its_controller(app: str) -> None:
    async def flow(world: VirtualCluster) -> None:
        await populate(world)
        name = "bare" if app == "bare" else on(world, "node-1", app)
        supposed = Supposition(delete=[f"pod/{name}"])
        if app == "agent":
            answer = written(what_if(world.operator.world, supposed))
            world.delete("pods", name)
            await asyncio.sleep(SETTLED_SECONDS)
            assert on(world, "node-1", "agent"), "it is made anew in its place"
            assert "ended" not in answer
            return
        answer = await compared(world, supposed, lambda: world.delete("pods", name))
        assert "lost" not in answer, "the user asked for it"
        assert len(answer["placed"]) == (app == "web")

    play(flow)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "Job"])
@pytest.mark.parametrize(("first", "second"), [(6, 2), (3, 6), (3, 0)])
def test_a_controller_is_scaled_as_it_scales(kind: str, first: int, second: int) -> None:
    async def flow(world: VirtualCluster) -> None:
        field = "parallelism" if kind == "Job" else "replicas"
        more: dict[str, Any] = {"pod": SPREAD}
        if kind == "Job":
            more = {"completions": 50, "pod": {**SPREAD, "restartPolicy": "Never"}}
            more["annotations"] = {"stellwerk.dev/run-seconds": "100000"}
        world.apply(workload(kind, "web", **{field: first}, **more))
        await world.until(lambda: len(world.pods) == first)
        await world.settle()
        # Of different ages, readiness aside: a cost decides, and then the node with most of them.
        await asyncio.sleep(100)
        if kind != "StatefulSet":
            spared = min(world.pods)
            cost = {"controller.kubernetes.io/pod-deletion-cost": "5"}
            world.patch("pods", spared, {"metadata": {"annotations": cost}})
        plural, group = ("jobs", "batch") if kind == "Job" else (f"{kind.lower()}s", "apps")
        answer = await compared(
            world,
            Supposition(scale=[f"{kind.lower()}/web={second}"]),
            lambda: world.patch(plural, "web", {"spec": {field: second}}, group),
        )
        assert len(answer.get("ended", ())) == max(first - second, 0)
        assert len(answer["placed"]) == max(second - first, 0)
        assert not any(each["madeAnew"] for each in answer.get("ended", ()))

    play(flow)


def test_a_stateful_set_makes_its_pods_one_after_the_other_with_their_claims() -> None:
    async def flow(world: VirtualCluster) -> None:
        world.apply(workload("StatefulSet", "web", replicas=1, cpu="3"))
        await world.until(lambda: len(world.pods) == 1)
        answer = await compared_counts(world)
        assert [each["node"] is not None for each in answer["placed"]] == [True, True]
        [blocked, behind] = answer["unplaced"]
        assert blocked["pod"] == "default/web-3"
        assert "Insufficient cpu" in blocked["message"]
        assert behind == {
            "pod": "default/web-4",
            "message": "its StatefulSet creates it once default/web-3 runs",
            "heldBack": True,
            "controller": "StatefulSet/web",
        }

    async def compared_counts(world: VirtualCluster) -> dict[str, Any]:
        await world.settle()
        supposed = Supposition(scale=["statefulset/web=5"])
        answer: dict[str, Any] = written(what_if(world.operator.world, supposed))
        world.patch("statefulsets", "web", {"spec": {"replicas": 5}}, "apps")
        await asyncio.sleep(SETTLED_SECONDS)
        assert set(world.pods) == {"web-0", "web-1", "web-2", "web-3"}
        assert world.node_of("web-3") is None
        return answer

    play(flow)
