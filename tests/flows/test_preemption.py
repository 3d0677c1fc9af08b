"""Preemption from the first failure to the binding, with victims that take seconds to end.

Cluster, kubelets and operator run in process and in skipped time; after each flow no nomination and
no preemption may be left over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.interface import PermitResult
from stellwerk.framework.types import OK, Code, Status
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.invariants import check_bound_once
from tests.support.scripted_plugins import Script, installed
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

Story = Callable[[VirtualCluster], Awaitable[None]]

PRIORITIES = {"lowest": 5, "low": 10, "high": 1000, "higher": 2000}
GRACE_SECONDS = 5
SOON_SECONDS = 1.0
"""Everything happens at once but kubelets and backoff."""


def play(nodes: Iterable[JsonObject], story: Story, *, heartbeats: bool = False) -> None:
    """Tell a story on a cluster whose pods use up their grace period.

    A node that comes later needs heartbeats to become ready.
    """

    async def flow(clock: VirtualClock) -> None:
        kubelet = KubeletOptions(respect_grace=True)
        options = ClusterOptions(seed=1, heartbeats=heartbeats, kubelet=kubelet)
        async with open_virtual_cluster(clock, nodes, options) as world:
            world.apply(*(priority_class(name) for name in PRIORITIES))
            await story(world)
            check_bound_once(world.notes.events)
            nothing_left_behind(world)

    run_skipping(flow)


def priority_class(name: str, **fields: Any) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": PRIORITIES.get(name, 1000),
        **fields,
    }


def pod(name: str, priority: str, cpu: str = "1", **fields: Any) -> JsonObject:
    fields.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    return make_pod(name, cpu=cpu, priorityClassName=priority, **fields)


def nomination(world: VirtualCluster, name: str) -> str | None:
    node: str | None = world.pods[name]["status"].get("nominatedNodeName")
    return node


def is_leaving(world: VirtualCluster, name: str) -> bool:
    """Whether a pod is gone, or has been told to go."""
    found = world.pods.get(name)
    return found is None or "deletionTimestamp" in found["metadata"]


def condition(world: VirtualCluster, name: str, type_: str) -> JsonObject | None:
    conditions = world.pods[name]["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == type_), None)


def place(world: VirtualCluster, name: str) -> Place | None:
    return world.operator.world.queue.place(world.pods[name]["metadata"]["uid"])


def nothing_left_behind(world: VirtualCluster) -> None:
    """Nominations are what statuses say, and no pod is gated by a preemption."""
    nominator = world.operator.world.nominator
    nominated = {
        pod.key: name for name in nominator.by_node for pod in nominator.pods_for_node(name)
    }
    written = {
        f"default/{name}": pod["status"]["nominatedNodeName"]
        for name, pod in world.pods.items()
        if pod["status"].get("nominatedNodeName") and not pod["spec"].get("nodeName")
    }
    assert nominated == written
    assert not world.operator.world.preempting


class HeldCalls:
    """Calls of the operator's client that a test holds back, by method and pod."""

    def __init__(self, world: VirtualCluster, method: str, *pods: str) -> None:
        client = world.client
        self.came: set[str] = set()
        self._go = asyncio.Event()
        self._call = getattr(client, method)
        self._pods = pods
        setattr(client, method, self._held)

    async def _held(self, namespace: str, name: str, *arguments: Any, **options: Any) -> Any:
        if name in self._pods:
            self.came.add(name)
            await self._go.wait()
        return await self._call(namespace, name, *arguments, **options)

    def release(self) -> None:
        self._go.set()


FULL_NODE = [make_node("n1", cpu="2")]
VICTIMS = [pod("v1", "low", node_name="n1"), pod("v2", "low", node_name="n1")]


async def nominated(world: VirtualCluster, name: str, node_name: str = "n1") -> None:
    await world.until(lambda: nomination(world, name) == node_name, SOON_SECONDS)


# --- victims take their time --------------------------------------------------------------------


def test_victims_end_in_their_own_time_and_then_the_preemptor_takes_the_node() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS)
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await nominated(world, "p")
        began = world.clock.monotonic()
        assert world.why_pending("p") == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient cpu.",
        )
        for victim in ("v1", "v2"):
            assert is_leaving(world, victim)
            told = condition(world, victim, "DisruptionTarget")
            assert told is not None
            assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
        await world.until(lambda: world.node_of("p") == "n1")
        # The API tells deadlines in whole seconds.
        assert GRACE_SECONDS - 1 < world.clock.monotonic() - began <= GRACE_SECONDS + 1
        assert set(world.pods) == {"p"}
        assert not nomination(world, "p")
        uid = world.pods["p"]["metadata"]["uid"]
        preempted = ("Normal", "Preempted", f"Preempted by pod {uid} on node n1")
        assert world.notes.about("v1") == world.notes.about("v2") == [preempted]

    play(FULL_NODE, story)


def test_other_pods_go_on_being_scheduled_meanwhile() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS)
        await world.settle()
        world.apply(pod("p", "high", cpu="2", nodeSelector={"kubernetes.io/hostname": "n1"}))
        await nominated(world, "p")
        others = [f"other-{number}" for number in range(4)]
        world.apply(*(pod(name, "low") for name in others))
        await world.until(lambda: all(world.node_of(name) for name in others), SOON_SECONDS)
        assert world.node_of("p") is None
        await world.until(lambda: world.node_of("p") == "n1")
        assert {world.node_of(name) for name in others} == {"n2"}

    play([*FULL_NODE, make_node("n2", cpu="4")], story)


def test_a_lower_newcomer_does_not_take_the_room_that_victims_leave() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(pod("v1", "lowest", node_name="n1"))
        world.apply(
            pod("v2", "lowest", node_name="n1", terminationGracePeriodSeconds=4 * GRACE_SECONDS)
        )
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await nominated(world, "p")
        await world.until(lambda: "v1" not in world.pods)
        world.apply(pod("newcomer", "low"))
        await world.until(lambda: world.node_of("p") == "n1")
        assert world.node_of("newcomer") is None

    play(FULL_NODE, story)


def test_a_higher_newcomer_takes_the_place_and_the_nomination_is_cleared() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS)
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await nominated(world, "p")
        world.apply(pod("newcomer", "higher", cpu="2"))
        await nominated(world, "newcomer")
        await world.until(lambda: world.node_of("newcomer") == "n1")
        # As recorded of kube-scheduler: nobody new had to go, so it is told when it tries next.
        await world.until(lambda: not nomination(world, "p"), SOON_SECONDS)
        assert world.node_of("p") is None
        assert place(world, "p") is Place.UNSCHEDULABLE

    play(FULL_NODE, story)


def test_a_higher_newcomer_with_victims_of_its_own_clears_the_nomination_at_once() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS, pod("v3", "high", node_name="n1"))
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await nominated(world, "p")
        world.apply(pod("newcomer", "higher", cpu="3"))
        await nominated(world, "newcomer")
        await world.until(lambda: not nomination(world, "p"), SOON_SECONDS)
        assert is_leaving(world, "v3")
        assert {"v1", "v2"} < set(world.pods), "all of this while the first victims end"
        await world.until(lambda: world.node_of("newcomer") == "n1")

    play([make_node("n1", cpu="3")], story)


# --- who is spared ------------------------------------------------------------------------------


def test_a_node_whose_pods_a_budget_protects_is_avoided() -> None:
    async def story(world: VirtualCluster) -> None:
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        world.apply(budget)
        world.apply(pod("guarded", "lowest", node_name="n1", labels={"app": "guarded"}))
        world.apply(pod("free", "low", node_name="n2"))
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await world.until(lambda: world.node_of("p") == "n2")
        assert not is_leaving(world, "guarded")

    play([*FULL_NODE, make_node("n2", cpu="2")], story)


def test_a_pod_that_never_preempts_waits_for_room() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(priority_class("patient", preemptionPolicy="Never"), *VICTIMS)
        await world.settle()
        world.apply(pod("p", "patient", cpu="2"))
        await asyncio.sleep(60)
        why = world.why_pending("p")
        assert why is not None
        assert why[1].endswith("preemption: not eligible due to preemptionPolicy=Never.")
        assert not any(is_leaving(world, victim) for victim in ("v1", "v2"))
        world.delete("pods", "v1")
        world.delete("pods", "v2")
        await world.until(lambda: world.node_of("p") == "n1")

    play(FULL_NODE, story)


# --- what goes wrong halfway --------------------------------------------------------------------


def test_a_preemptor_deleted_halfway_leaves_nothing_behind() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS, pod("last", "lowest", node_name="n1"))
        await world.settle()
        held = HeldCalls(world, "delete_pod", "v1")
        world.apply(pod("p", "high", cpu="3"))
        await world.until(lambda: held.came)
        await world.until(lambda: is_leaving(world, "v2"), SOON_SECONDS)
        world.delete("pods", "p")
        held.release()
        await asyncio.sleep(60)
        assert set(world.pods) == {"v1", "last"}, "who was not told lives on"
        assert not is_leaving(world, "v1")
        assert not is_leaving(world, "last")
        world.apply(pod("next", "low"))
        await world.until(lambda: world.node_of("next") == "n1")

    play([make_node("n1", cpu="3")], story)


def test_a_preemptor_deleted_while_victims_end_gives_the_room_to_others() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS)
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await nominated(world, "p")
        world.apply(pod("next", "low", cpu="2"))
        await world.until(lambda: place(world, "next") is Place.UNSCHEDULABLE, SOON_SECONDS)
        world.delete("pods", "p")
        await world.until(lambda: world.node_of("next") == "n1")

    play(FULL_NODE, story)


def test_a_victim_that_vanishes_before_it_is_told_is_not_waited_for() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(pod("v1", "low", cpu="2", node_name="n1", terminationGracePeriodSeconds=0))
        await world.settle()
        held = HeldCalls(world, "delete_pod", "v1")
        world.apply(pod("p", "high", cpu="2"))
        await world.until(lambda: held.came)
        world.delete("pods", "v1")
        held.release()
        await world.until(lambda: world.node_of("p") == "n1", SOON_SECONDS)

    play(FULL_NODE, story)


def test_a_node_that_disappears_with_its_victims_is_forgotten() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*VICTIMS)
        await world.settle()
        world.apply(pod("p", "high", cpu="2"))
        await nominated(world, "p")
        world.delete("nodes", "n1")
        world.apply(make_node("n2", cpu="2"))
        await world.until(lambda: world.node_of("p") == "n2")
        assert not nomination(world, "p")
        for victim in ("v1", "v2"):
            # As the collector of pods without a node does.
            at_once = DeleteOptions(grace_period_seconds=0)
            delete(world.api, world.api.kinds.resource("pods"), ("default", victim), at_once)

    play(FULL_NODE, story, heartbeats=True)


# --- victims that are not on their node yet -----------------------------------------------------


@pytest.fixture
def script() -> Iterator[Script]:
    with installed("First") as script:
        yield script


async def with_first(world: VirtualCluster) -> None:
    plugins = {"multiPoint": {"enabled": [{"name": "First"}]}}
    world.patch(PLURAL, "default-scheduler", {"spec": {"plugins": plugins}}, GROUP)
    await asyncio.sleep(0)


def for_pod(name: str, answer: Any, otherwise: Any) -> Callable[..., Any]:
    """An answer for one pod, another for all others."""
    return lambda _, pod, *__: answer() if pod.name == name else otherwise


def reasons(world: VirtualCluster, name: str) -> list[str]:
    return [reason for _, reason, _ in world.notes.about(name)]


async def unbound_victim_makes_way(world: VirtualCluster) -> None:
    world.apply(pod("p", "high", cpu="2"))
    await world.until(lambda: world.node_of("p") == "n1", SOON_SECONDS)
    assert not is_leaving(world, "v"), "it was turned back, not deleted"
    assert world.node_of("v") is None
    notes = [note for _, reason, note in world.notes.about("v") if reason == "Preempted"]
    assert len(notes) == 1
    assert notes[0].endswith("on node n1 (in kube-scheduler memory).")


def test_a_victim_waiting_on_permit_is_turned_back(script: Script) -> None:
    wait = PermitResult(Status(Code.WAIT), 600)
    script.answers["First.permit"] = for_pod("v", lambda: wait, PermitResult())

    async def story(world: VirtualCluster) -> None:
        await with_first(world)
        world.apply(pod("v", "low", cpu="2"))
        await world.until(lambda: len(list(world.operator.waiting_pods.all())) == 1)
        await unbound_victim_makes_way(world)
        assert not world.operator.waiting_pods.all()

    play(FULL_NODE, story)


def test_a_victim_in_pre_bind_is_turned_back(script: Script) -> None:
    async def for_ever() -> Status:
        await asyncio.Event().wait()
        return OK

    script.answers["First.pre_bind"] = for_pod("v", for_ever, OK)

    async def story(world: VirtualCluster) -> None:
        await with_first(world)
        world.apply(pod("v", "low", cpu="2"))
        await world.until(lambda: "First.pre_bind" in script.of("v"))
        await unbound_victim_makes_way(world)

    play(FULL_NODE, story)


def test_a_victim_whose_binding_is_on_its_way_is_deleted() -> None:
    async def story(world: VirtualCluster) -> None:
        held = HeldCalls(world, "bind", "v")
        world.apply(pod("v", "low", cpu="2"))
        await world.until(lambda: held.came)
        world.apply(pod("p", "high", cpu="2"))
        await world.until(lambda: "v" not in world.pods, SOON_SECONDS)
        held.release()
        await world.until(lambda: world.node_of("p") == "n1")
        assert "Preempted" in reasons(world, "v")

    play(FULL_NODE, story)


# --- many at once -------------------------------------------------------------------------------


def low_pods(nodes: int) -> Iterator[JsonObject]:
    """Four pods fill a node; an arrival needs the room of three of them."""
    for number in range(4 * nodes):
        node_name = f"n{number // 4}"
        yield pod(f"low-{number}", "low", "900m", node_name=node_name)


def post_filter_seconds(world: VirtualCluster) -> float:
    """What one run of PostFilter took on average."""
    name = "scheduler_framework_extension_point_duration_seconds"
    sums = {"sum": 0.0, "count": 0.0}
    for line in world.metrics().decode().splitlines():
        for kind in sums:
            if line.startswith(f"{name}_{kind}{{") and 'extension_point="PostFilter"' in line:
                sums[kind] += float(line.split()[-1])
    return sums["sum"] / sums["count"]


@pytest.mark.parametrize(
    ("nodes", "arrivals"),
    [
        pytest.param(100, 50, id="100 nodes, 50 arrivals"),
        pytest.param(1000, 500, id="1,000 nodes, 500 arrivals", marks=pytest.mark.long),
    ],
)
def test_each_arrival_is_bound_and_no_more_victims_die_than_needed(
    nodes: int, arrivals: int
) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*low_pods(nodes))
        names = [f"high-{number}" for number in range(arrivals)]
        world.apply(*(pod(name, "high", "3") for name in names))
        await world.until(lambda: _all_bound(world.pods, names), 120)
        survivors = [name for name in world.pods if name.startswith("low")]
        assert 4 * nodes - len(survivors) == 3 * arrivals
        assert post_filter_seconds(world) < 0.010

    play([make_node(f"n{number}", cpu="4") for number in range(nodes)], story)


def _all_bound(pods: Mapping[str, JsonObject], names: Iterable[str]) -> bool:
    return all(pods[name]["spec"].get("nodeName") for name in names)
