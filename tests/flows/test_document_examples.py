"""The examples of the Kubernetes documentation (docs/examples), each in its own cluster.

Cluster, controllers, kubelets and operator run in process and in virtual time. A table holds the
examples whose whole story is where their pods end; those with a second act have a test each.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stellwerk.models.pod import parse_pod
from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster, read_manifests

EXAMPLES = ROOT / "docs" / "examples"
ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
DEDICATED = {"key": "dedicated", "value": "groupName", "effect": "NoSchedule"}
KEY1 = {"key": "key1", "value": "value1", "effect": "NoSchedule"}
KEY1_EXECUTE = {**KEY1, "effect": "NoExecute"}
KEY2 = {"key": "key2", "value": "value2", "effect": "NoSchedule"}

Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(nodes: Iterable[JsonObject], story: Story, options: ClusterOptions | None = None) -> None:
    """Tell a story on a new cluster of these nodes."""

    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, nodes, options) as world:
            await story(world)

    run_skipping(flow)


def nodes_for(examples: str, *, without: str = "") -> list[JsonObject]:
    """The nodes that lie beside the examples for them."""
    nodes = read_manifests(EXAMPLES / "nodes" / f"{examples}.yaml")
    return [each for each in nodes if each["metadata"]["name"] != without]


def pods_for(examples: str) -> list[JsonObject]:
    """The pods that some examples find on their nodes."""
    return read_manifests(EXAMPLES / "pods" / f"{examples}.yaml")


FOUR_NODES = nodes_for("four-nodes")
FIVE_NODES = nodes_for("with-zone-c")
THREE_PODS = pods_for("to-spread-from")
CONFLICT_NODES = nodes_for("conflict")
CONFLICT_PODS = pods_for("in-conflict")


def secured(level: str, node_name: str) -> JsonObject:
    return make_pod(f"{level.lower()}-{node_name}", labels={"security": level}, node_name=node_name)


def zoned(name: str, zone: str, key: str = ZONE) -> JsonObject:
    return make_node(name, labels={key: zone})


# --- examples whose whole story is where their pods end ---------------------------------------


@dataclass(frozen=True)
class Placement:
    """A file on a cluster, and the nodes that its pod may end on; none: it stays pending."""

    file: str
    nodes: list[JsonObject]
    pod: str
    expected: set[str]
    running: list[JsonObject]
    reason: str = ""

    async def tell(self, world: VirtualCluster) -> None:
        world.apply(*self.running)
        await world.settle()
        world.apply_file(EXAMPLES / self.file)
        await world.settle()
        if self.expected:
            assert world.node_of(self.pod) in self.expected
            assert world.phase_of(self.pod) == "Running"
        else:
            assert world.node_of(self.pod) is None
            why = world.why_pending(self.pod)
            assert why is not None
            assert why[0] == "Unschedulable"
            assert self.reason in why[1]


def placed(
    file: str,
    nodes: list[JsonObject],
    pod: str,
    *expected: str,
    running: Iterable[JsonObject] = (),
    reason: str = "",
) -> Placement:
    return Placement(file, nodes, pod, set(expected), list(running), reason)


ZONES_OF_THE_SOUTH = nodes_for("antarctica", without="preferred")
PACKING_NODES = nodes_for("packing")
FULLER = pods_for("on-the-fuller-node")

PLACEMENTS = [
    pytest.param(
        placed("node-affinity.yaml", ZONES_OF_THE_SOUTH, "with-node-affinity", "east", "west"),
        id="node affinity keeps a pod in the listed zones",
    ),
    pytest.param(
        placed(
            "node-affinity.yaml",
            nodes_for("antarctica"),
            "with-node-affinity",
            "preferred",
        ),
        id="of the listed zones, the node with the preferred label",
    ),
    pytest.param(
        placed(
            "node-affinity.yaml",
            [zoned("north", "arctic-1")],
            "with-node-affinity",
            reason="1 node(s) didn't match Pod's node affinity/selector",
        ),
        id="without a listed zone the pod waits",
    ),
    pytest.param(
        placed(
            "node-affinity-e2e-az.yaml",
            nodes_for("e2e-az"),
            "with-node-affinity",
            "preferred",
        ),
        id="the older form of the same affinity",
    ),
    pytest.param(
        placed(
            "node-affinity-weights.yaml",
            nodes_for("two-labels"),
            "with-affinity-anti-affinity",
            "two",
        ),
        id="weight 50 outweighs weight 1, and only linux counts",
    ),
    pytest.param(
        placed(
            "pod-affinity.yaml",
            nodes_for("zones-v-r-x"),
            "with-pod-affinity",
            *("v1", "v2"),
            running=pods_for("s1-and-s2"),
        ),
        id="pod affinity goes to a zone of S1, away from S2",
    ),
    pytest.param(
        placed(
            "pod-affinity.yaml",
            [zoned("r1", "R"), zoned("r2", "R"), zoned("x1", "X")],
            "with-pod-affinity",
            *("r1", "r2"),
            running=[secured("S1", "r1"), secured("S2", "r1")],
        ),
        id="S2 is only to be avoided: its zone will do where it is the only one of S1",
    ),
    pytest.param(
        placed(
            "pod-affinity.yaml",
            [zoned("v1", "V")],
            "with-pod-affinity",
            reason="1 node(s) didn't match pod affinity rules",
        ),
        id="without any pod of S1 the pod waits",
    ),
    pytest.param(
        placed(
            "pod-affinity-beta-zone.yaml",
            nodes_for("zones-v-r-beta"),
            "with-pod-affinity",
            "v1",
            running=pods_for("s1-and-s2"),
        ),
        id="the beta zone label is a topology key like any other",
    ),
    pytest.param(
        placed(
            "node-name.yaml",
            [*nodes_for("kube-01"), make_node("kube-02")],
            "nginx",
            "kube-01",
        ),
        id="nodeName bypasses the scheduler",
    ),
    pytest.param(
        placed("one-constraint.yaml", FOUR_NODES, "mypod", "node3", "node4", running=THREE_PODS),
        id="one constraint leaves zone B",
    ),
    pytest.param(
        placed("two-constraints.yaml", FOUR_NODES, "mypod", "node4", running=THREE_PODS),
        id="two constraints leave node4",
    ),
    pytest.param(
        placed(
            "one-constraint.yaml",
            FIVE_NODES,
            "mypod",
            "node5",
            running=THREE_PODS,
        ),
        id="an empty zone C takes the pod",
    ),
    pytest.param(
        placed(
            "one-constraint-with-node-affinity.yaml",
            FIVE_NODES,
            "mypod",
            *("node3", "node4"),
            running=THREE_PODS,
        ),
        id="unless affinity excludes zone C, which then does not count either",
    ),
    pytest.param(
        placed(
            "one-constraint.yaml",
            [*FOUR_NODES[:3], make_node("node5", labels={"node": "node5", "zone-typo": "zoneC"})],
            "mypod",
            "node3",
            running=THREE_PODS,
        ),
        id="a mistyped zone label is no zone",
    ),
    pytest.param(
        placed(
            "two-constraints.yaml",
            CONFLICT_NODES,
            "mypod",
            running=CONFLICT_PODS,
            reason="3 node(s) didn't match pod topology spread constraints",
        ),
        id="constraints in conflict leave no node",
    ),
    pytest.param(
        placed(
            "toleration-example-key.yaml",
            nodes_for("tainted"),
            "nginx",
            reason="1 node(s) had untolerated taint(s)",
        ),
        id="a toleration of another key does not help",
    ),
    pytest.param(
        placed(
            "dedicated-nodes.yaml",
            nodes_for("dedicated"),
            "of-the-group",
            "dedicated",
        ),
        id="toleration and label together keep a group on its nodes",
    ),
    pytest.param(
        placed(
            "special-hardware.yaml",
            nodes_for("special-hardware"),
            "uses-special-hardware",
            "special",
        ),
        id="a pod for special hardware finds it behind its taint",
    ),
    pytest.param(
        placed(
            "bin-packed-pod.yaml",
            [PACKING_NODES[1], make_node("without")],
            "wants-foo",
            reason="2 Insufficient intel.com/foo",
            running=[make_pod("user", node_name="fuller", requests={"intel.com/foo": "4"})],
        ),
        id="an extended resource that is used up",
    ),
]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_an_example_ends(placement: Placement) -> None:
    play(placement.nodes, placement.tell)


# --- examples with a second act ---------------------------------------------------------------


def test_a_pod_with_a_node_selector_waits_for_the_label() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "node-selector.yaml")
        await world.settle()
        assert world.node_of("nginx") is None
        world.patch("nodes", "node-2", {"metadata": {"labels": {"disktype": "ssd"}}})
        await world.until(lambda: world.node_of("nginx"))
        assert world.node_of("nginx") == "node-2"

    play(nodes_for("three"), story)


def test_added_affinity_holds_together_with_the_pods_own() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "added-affinity.config.yaml")
        world.apply_file(EXAMPLES / "added-affinity-pod.yaml")
        world.apply(make_pod("of-foo", scheduler_name="foo-scheduler", cpu="100m"))
        await world.settle()
        assert world.node_of("with-added-affinity") == "foo-ssd"
        assert world.node_of("of-foo") in {"foo-ssd", "foo-disk"}
        world.apply(make_pod("other", nodeSelector={"scheduler-profile": "bar"}))
        await world.settle()
        assert world.node_of("other") == "bar-ssd"

    play(nodes_for("foo-and-bar"), story)


def test_a_cache_and_a_web_server_on_each_of_three_nodes() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "web-server.yaml")
        await world.until(lambda: len(world.pods) == 3)
        await world.settle()
        assert not any(map(world.node_of, world.pods)), "there is no cache to be near to yet"
        world.apply_file(EXAMPLES / "redis-cache.yaml")
        await world.until(lambda: len(world.pods) == 6 and all(map(world.node_of, world.pods)))
        for app in ("store", "web-store"):
            nodes = [
                pod["spec"]["nodeName"]
                for pod in world.pods.values()
                if pod["metadata"]["labels"]["app"] == app
            ]
            assert sorted(nodes) == ["node-1", "node-2", "node-3"]

    play(nodes_for("three"), story)


def test_a_pod_with_a_node_name_is_no_business_of_the_scheduler() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "node-name.yaml")
        await world.until(lambda: world.phase_of("nginx") == "Running")
        assert world.node_of("nginx") == "kube-01"
        assert world.notes.about("nginx") == []

    play([make_node("kube-01", taints=[KEY1])], story)


def test_overhead_counts_with_the_containers() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "pod-overhead.yaml")
        await world.settle()
        pod = world.pods["test-pod"]
        assert pod["spec"]["overhead"] == {"cpu": "250m", "memory": "120Mi"}
        requests = parse_pod(pod).amounts.requests
        assert requests["cpu"] == 2250
        assert requests["memory"] == 335544320
        assert world.node_of("test-pod") == "fits"

    just_short = make_node("just-short", cpu="2249m")
    play([just_short, make_node("fits", cpu="2250m", memory="320Mi")], story)


def test_a_gated_pod_is_scheduled_when_its_gates_are_gone() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "scheduling-gates.yaml")
        await world.settle()
        assert world.why_pending("test-pod") == (
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
        )
        assert b'scheduler_pending_pods{queue="gated"} 1.0' in world.metrics()
        more = {"spec": {"schedulingGates": [{"name": "foo"}, {"name": "bar"}, {"name": "baz"}]}}
        with pytest.raises(StatusError) as refused:
            world.patch("pods", "test-pod", more)
        assert refused.value.code == 422
        world.apply_file(EXAMPLES / "scheduling-gates-removed.yaml")
        await world.until(lambda: world.phase_of("test-pod") == "Running")
        assert world.node_of("test-pod") == "node-1"
        assert b'scheduler_pending_pods{queue="gated"} 0.0' in world.metrics()

    play([make_node("node-1")], story)


def relaxed(constraint: int, **change: Any) -> JsonObject:
    """The example with two constraints, one of them changed."""
    (pod,) = read_manifests(EXAMPLES / "two-constraints.yaml")
    pod["spec"]["topologySpreadConstraints"][constraint] |= change
    return pod


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(relaxed(0, maxSkew=2), {"node2"}, id="zone with skew 2"),
        pytest.param(relaxed(1, maxSkew=2), {"node3"}, id="node with skew 2"),
        pytest.param(
            relaxed(0, whenUnsatisfiable="ScheduleAnyway"), {"node2"}, id="zone only preferred"
        ),
        pytest.param(
            relaxed(1, whenUnsatisfiable="ScheduleAnyway"), {"node3"}, id="node only preferred"
        ),
    ],
)
def test_a_relaxed_constraint_ends_the_conflict(pod: JsonObject, expected: set[str]) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*CONFLICT_PODS, pod)
        await world.settle()
        assert world.node_of("mypod") in expected

    play(CONFLICT_NODES, story)


def test_so_does_deleting_a_pod() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*CONFLICT_PODS)
        world.apply_file(EXAMPLES / "two-constraints.yaml")
        await world.settle()
        assert world.node_of("mypod") is None
        world.delete("pods", "p5")
        await world.until(lambda: world.node_of("mypod"))
        assert world.node_of("mypod") == "node3"

    play(CONFLICT_NODES, story)


def test_each_revision_of_a_roll_out_is_spread_by_itself() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "match-label-keys.yaml")
        await world.until(lambda: len(world.pods) == 3 and all(map(world.node_of, world.pods)))
        before = set(world.pods)
        assert nodes_of(world, before) == ["node-1", "node-2", "node-3"]
        image = {"name": "web", "image": "nginx:1.17-alpine"}
        template = {"spec": {"template": {"spec": {"containers": [image]}}}}
        world.patch("deployments", "web", template, "apps")
        await world.until(lambda: len(before & set(world.pods)) == 0)
        assert nodes_of(world, world.pods) == ["node-1", "node-2", "node-3"]

    play(nodes_for("three"), story)


def nodes_of(world: VirtualCluster, names: Iterable[str]) -> list[str]:
    return sorted(str(world.node_of(name)) for name in names)


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        pytest.param("default-constraints.config.yaml", "busy-b", id="a list: zones are preferred"),
        pytest.param("no-default-constraints.config.yaml", "idle-a", id="an empty list: nothing"),
        pytest.param(None, "busy-b", id="built in: hosts and zones"),
    ],
)
def test_default_constraints_spread_the_pods_of_a_service(
    configuration: str | None, expected: str
) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }

    async def story(world: VirtualCluster) -> None:
        if configuration:
            world.apply_file(EXAMPLES / configuration)
        world.apply(
            service,
            make_pod("first", node_name="idle-a", labels={"app": "web"}),
            make_pod("other", node_name="busy-b", cpu="1"),
        )
        await world.settle()
        world.apply(make_pod("second", labels={"app": "web"}))
        await world.settle()
        assert world.node_of("second") == expected

    play([make_node("idle-a", zone="a"), make_node("busy-b", zone="b")], story)


def test_a_taint_keeps_off_whoever_does_not_tolerate_it_until_it_goes() -> None:
    async def story(world: VirtualCluster) -> None:
        for file in ("toleration-equal.yaml", "toleration-exists.yaml"):
            world.apply_file(EXAMPLES / file)
        world.apply_file(EXAMPLES / "toleration-example-key.yaml")
        await world.settle()
        assert world.node_of("tolerates-equal") == "node1"
        assert world.node_of("tolerates-exists") == "node1"
        assert world.node_of("nginx") is None
        world.patch("nodes", "node1", {"spec": {"taints": None}})
        await world.until(lambda: world.node_of("nginx") == "node1")

    play(nodes_for("tainted"), story)


def test_three_taints_and_two_tolerations_keep_new_pods_off_and_let_old_ones_stay() -> None:
    async def story(world: VirtualCluster) -> None:
        (manifest,) = read_manifests(EXAMPLES / "two-tolerations.yaml")
        world.apply(manifest, make_pod("tolerates-nothing"))
        await world.settle()
        world.patch("nodes", "node1", {"spec": {"taints": [KEY1, KEY1_EXECUTE, KEY2]}})
        world.apply({**manifest, "metadata": {"name": "latecomer"}})
        await world.until(lambda: "tolerates-nothing" not in world.pods)
        await asyncio.sleep(600)
        assert world.phase_of("two-tolerations") == "Running"
        why = world.why_pending("latecomer")
        assert why is not None
        assert "1 node(s) had untolerated taint(s)" in why[1]

    play(nodes_for("one"), story)


@pytest.mark.parametrize("taint_goes", [False, True], ids=["the taint stays", "the taint goes"])
def test_toleration_seconds_bound_the_stay(*, taint_goes: bool) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "toleration-seconds.yaml")
        await world.settle()
        world.patch("nodes", "node1", {"spec": {"taints": [KEY1_EXECUTE]}})
        await asyncio.sleep(3598)
        assert not leaving(world, "stays-an-hour")
        if taint_goes:
            world.patch("nodes", "node1", {"spec": {"taints": None}})
        await asyncio.sleep(4)
        assert leaving(world, "stays-an-hour") is not taint_goes

    play(nodes_for("one"), story)


@pytest.mark.parametrize("recovers", [False, True], ids=["it stays away", "it comes back"])
def test_pods_wait_for_an_unreachable_node_as_long_as_they_say(*, recovers: bool) -> None:
    def ready(status: str) -> JsonObject:
        return {"status": {"conditions": [{"type": "Ready", "status": status}]}}

    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "toleration-unreachable.yaml")
        world.apply(make_pod("with-defaults", scheduler_name="default-scheduler"))
        await world.settle()
        world.patch_status("nodes", "node1", ready("Unknown"))
        await asyncio.sleep(298)
        assert not leaving(world, "with-defaults")
        await asyncio.sleep(4)
        assert leaving(world, "with-defaults")
        await asyncio.sleep(6000 - 304)
        assert not leaving(world, "waits-for-the-network")
        if recovers:
            world.patch_status("nodes", "node1", ready("True"))
        await asyncio.sleep(6)
        assert leaving(world, "waits-for-the-network") is not recovers

    # A second node is heard of: where none is, no node is written off.
    play([make_node("node1"), make_node("node2", taints=[DEDICATED])], story)


def leaving(world: VirtualCluster, name: str) -> bool:
    """Whether the pod is gone or being deleted."""
    pod = world.pods.get(name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def test_the_dedicated_nodes_are_for_the_group_alone() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_pod("stranger"))
        await world.settle()
        assert world.node_of("stranger") is None

    play(nodes_for("dedicated", without="free"), story)


def test_half_of_the_nodes_are_enough_where_the_configuration_says_so() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "percentage-of-nodes-to-score.config.yaml")
        world.apply(make_pod("web", cpu="100m"))
        await world.settle()
        assert world.node_of("web")
        profile = world.operator.world.profiles.served["default-scheduler"]
        found = profile.framework.filtering.find_feasible(parse_pod(make_pod("next", cpu="100m")))
        assert found.evaluated == 150
        assert int(found.fits.sum()) == 150

    play([make_node(f"node-{number}") for number in range(300)], story)


@pytest.mark.parametrize(
    "configuration",
    [
        "most-allocated.config.yaml",
        "requested-to-capacity-ratio.config.yaml",
        "requested-to-capacity-ratio.policy.json",
    ],
)
def test_bin_packing_prefers_the_fuller_node(configuration: str) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*FULLER)
        world.apply_file(EXAMPLES / configuration)
        world.apply_file(EXAMPLES / "bin-packed-pod.yaml")
        await world.settle()
        assert world.node_of("wants-foo") == "fuller"

    play(PACKING_NODES, story)


def test_a_high_priority_takes_the_place_of_a_lower_one() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_pod("low"))
        await world.settle()
        world.apply_file(EXAMPLES / "high-priority.yaml")
        await world.until(lambda: world.node_of("nginx"))
        assert world.pods["nginx"]["spec"]["priority"] == 1000000
        assert "low" not in world.pods
        reasons = [reason for _, reason, _ in world.notes.about("low")]
        assert reasons == ["Scheduled", "Preempted"]

    play(nodes_for("room-for-one-pod"), story)


def test_a_non_preempting_pod_waits_its_turn_at_the_head() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_pod("low"))
        await world.settle()
        world.apply(make_pod("earlier"))
        world.apply_file(EXAMPLES / "high-priority-nonpreempting.yaml")
        await asyncio.sleep(600)
        assert world.phase_of("low") == "Running"
        assert world.node_of("earlier") is None
        assert world.node_of("patient") is None
        world.delete("pods", "low")
        await world.until(lambda: world.node_of("patient"))
        assert world.node_of("earlier") is None

    play(nodes_for("room-for-one-pod"), story)


NODES_N_AND_M = nodes_for("node-n-and-m")


def test_pod_p_waits_for_pod_q_by_default() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "pods-p-and-q.yaml")
        await asyncio.sleep(600)
        assert world.phase_of("pod-q") == "Running"
        assert world.node_of("pod-p") is None

    play(NODES_N_AND_M, story)


def test_cross_node_preemption_makes_room_for_pod_p() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "cross-node-preemption.yaml")
        world.apply_file(EXAMPLES / "pods-p-and-q.yaml")
        await world.until(lambda: world.node_of("pod-p"))
        assert world.node_of("pod-p") == "node-n"
        assert "pod-q" not in world.pods
        notes = [note for _, reason, note in world.notes.about("pod-p")]
        assert any("cross-node preemption: default/pod-q on node-m will leave" in n for n in notes)

    play(NODES_N_AND_M, story)


def test_a_pod_for_special_hardware_may_leave_its_toleration_to_admission() -> None:
    async def story(world: VirtualCluster) -> None:
        (pod,) = read_manifests(EXAMPLES / "special-hardware.yaml")
        del pod["spec"]["tolerations"]
        world.apply(pod)
        await world.settle()
        assert world.node_of("uses-special-hardware") == "special"

    plugins = DEFAULT_PLUGINS | {"ExtendedResourceToleration"}
    options = ClusterOptions(seed=1, heartbeats=False, admission_plugins=plugins)
    nodes = nodes_for("special-hardware")
    nodes[1]["spec"]["taints"][0] |= {"key": "example.com/special", "value": ""}
    play(nodes, story, options)


def flows() -> str:
    """The text of all flows."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_every_example_has_a_row_in_the_table_and_a_flow() -> None:
    table, told = (EXAMPLES / "README.md").read_text(encoding="utf-8"), flows()
    for path in sorted(EXAMPLES.iterdir()):
        if path.is_file() and path.name != "README.md":
            # The package of a plugin has flows of its own: test_example_plugin.py.
            assert f"`{path.name}`" in table
            assert f'"{path.name}"' in told


def test_the_nodes_and_pods_beside_the_examples_are_those_of_the_table_and_of_the_flows() -> None:
    table, told = (EXAMPLES / "README.md").read_text(encoding="utf-8"), flows()
    for path in (*(EXAMPLES / "nodes").iterdir(), *(EXAMPLES / "pods").iterdir()):
        assert f"`{path.stem}`" in table, path
        assert f'_for("{path.stem}"' in told, path
    for row in table.splitlines():
        if row.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", row.split(" | ")[1]):
                assert any(
                    (EXAMPLES / kind / f"{name}.yaml").is_file() for kind in ("nodes", "pods")
                )
