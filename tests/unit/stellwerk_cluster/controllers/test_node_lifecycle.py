"""Nodes that fail, are cut off and come back, in virtual time to the second."""

import pytest

from stellwerk_cluster.controllers.node_lifecycle import Zones, ZoneState
from tests.support.node_driver import ClusterDriver, hollow_pod

UNREACHABLE = "node.kubernetes.io/unreachable"
BOTH = {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
_UNKNOWN_WITHIN = 61
"""Seconds until a silent node is written off, at most: a renewal may just have been made."""


def until_unknown(cluster: ClusterDriver, node_name: str) -> None:
    for _ in range(_UNKNOWN_WITHIN):
        cluster.advance(1, step=1)
        if cluster.condition(node_name, "Ready") == "Unknown":
            return
    raise AssertionError(f"{node_name} is not written off")


def test_healthy_nodes_stay_ready_for_hours() -> None:
    cluster = ClusterDriver()
    cluster.advance(7200, step=5)
    assert all(cluster.condition(f"node-{n}", "Ready") == "True" for n in (1, 2, 3))
    assert not any(cluster.taints(f"node-{n}") for n in (1, 2, 3))


def test_a_cut_off_node_is_written_off_50_seconds_after_its_last_renewal() -> None:
    cluster = ClusterDriver()
    cluster.advance(31, step=1)
    lease = cluster.lease("node-3")
    cluster.annotate("nodes", "node-3", machine="cut-off")
    cluster.advance(39, step=1)
    assert cluster.condition("node-3", "Ready") == "True"
    until_unknown(cluster, "node-3")
    assert cluster.taints("node-3") == BOTH
    assert cluster.condition("node-3", "MemoryPressure") == "Unknown"
    assert cluster.lease("node-3") == lease
    reasons = [reason for reason, _ in cluster.events("node-3")]
    assert reasons == ["NodeNotReady"]


def test_pods_of_a_cut_off_node_are_evicted_after_their_toleration_to_the_second() -> None:
    cluster = ClusterDriver()
    toleration = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    cluster.create("pods", hollow_pod("default", "node-3"))
    cluster.create(
        "pods",
        hollow_pod("a-minute", "node-3", tolerations=[{**toleration, "tolerationSeconds": 60}]),
    )
    cluster.create("pods", hollow_pod("for-good", "node-3", tolerations=[toleration]))
    cluster.advance(5)
    cluster.annotate("nodes", "node-3", machine="cut-off")
    until_unknown(cluster, "node-3")
    assert cluster.pod("default")["status"]["conditions"][2]["status"] == "False"

    def leaves(name: str) -> bool:
        return "deletionTimestamp" in cluster.pod(name)["metadata"]

    cluster.advance(59, step=1)
    assert not leaves("a-minute")
    cluster.advance(1, step=1)
    assert leaves("a-minute")
    cluster.advance(239, step=1)
    assert not leaves("default")
    cluster.advance(1, step=1)
    assert leaves("default")
    assert ("TaintManagerEviction", "Marking for deletion Pod default/default") in cluster.events(
        "default"
    )
    cluster.advance(3600, step=10)
    assert not leaves("for-good")
    # Their kubelet does not hear of it: they stay until it does.
    assert not cluster.gone("default")
    cluster.annotate("nodes", "node-3", machine=None)
    cluster.advance(31)
    assert cluster.gone("default")
    assert cluster.phase("for-good") == "Running"
    assert cluster.pod("for-good")["status"]["conditions"][2]["status"] == "True"


def test_a_node_that_is_heard_of_again_in_time_keeps_its_pods() -> None:
    cluster = ClusterDriver()
    cluster.create("pods", hollow_pod("web", "node-3"))
    cluster.advance(5)
    cluster.annotate("nodes", "node-3", machine="cut-off")
    until_unknown(cluster, "node-3")
    cluster.advance(200, step=5)
    cluster.annotate("nodes", "node-3", machine=None)
    cluster.advance(2)
    assert cluster.condition("node-3", "Ready") == "True"
    assert cluster.taints("node-3") == set()
    cluster.advance(600, step=10)
    assert cluster.phase("web") == "Running"
    cancelled = ("TaintManagerEviction", "Cancelling deletion of Pod default/web")
    assert cancelled in cluster.events("web")


def test_a_machine_that_failed_starts_its_pods_anew_when_it_is_back() -> None:
    cluster = ClusterDriver()
    cluster.create("pods", hollow_pod("web", "node-3"))
    cluster.create("pods", hollow_pod("once", "node-3", restartPolicy="Never"))
    cluster.advance(5)
    cluster.annotate("nodes", "node-3", machine="failed")
    cluster.advance(30, step=5)
    cluster.annotate("nodes", "node-3", machine=None)
    cluster.advance(5)
    status = cluster.pod("web")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 255
    assert cluster.phase("once") == "Failed"


def test_nodes_of_a_zone_are_tainted_ten_seconds_apart() -> None:
    cluster = ClusterDriver(9, heartbeats=False)
    for name in ("node-1", "node-4"):
        unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        cluster.patch("nodes", name, unknown, subresource="status")
    assert cluster.taints("node-1") == BOTH
    assert cluster.taints("node-4") == {(UNREACHABLE, "NoSchedule")}
    cluster.advance(9)
    assert cluster.taints("node-4") == {(UNREACHABLE, "NoSchedule")}
    cluster.advance(1)
    assert cluster.taints("node-4") == BOTH


def test_while_no_node_is_heard_of_no_pod_is_evicted() -> None:
    cluster = ClusterDriver()
    cluster.create("pods", hollow_pod("web", "node-1"))
    cluster.advance(5)
    for number in (1, 2, 3):
        cluster.annotate("nodes", f"node-{number}", machine="cut-off")
    cluster.advance(1000, step=5)
    for number in (1, 2, 3):
        assert cluster.condition(f"node-{number}", "Ready") == "Unknown"
        assert cluster.taints(f"node-{number}") == {(UNREACHABLE, "NoSchedule")}
    assert cluster.phase("web") == "Running"
    assert "deletionTimestamp" not in cluster.pod("web")["metadata"]


def test_a_node_that_says_it_is_not_ready_gets_the_other_taint_and_changes_it_at_once() -> None:
    cluster = ClusterDriver(heartbeats=False)
    not_ready = "node.kubernetes.io/not-ready"

    def report(status: str) -> set[tuple[str, str]]:
        conditions = [{"type": "Ready", "status": status}]
        cluster.patch(
            "nodes", "node-1", {"status": {"conditions": conditions}}, subresource="status"
        )
        return cluster.taints("node-1")

    assert report("False") == {(not_ready, "NoSchedule"), (not_ready, "NoExecute")}
    assert report("Unknown") == BOTH
    assert report("True") == set()


def zones(ready: int, unready: int) -> Zones:
    counted = Zones()
    for number in range(ready + unready):
        counted.put(f"n{number}", "a", ready=number < ready)
    counted.put("elsewhere", "b", ready=True)
    return counted


@pytest.mark.parametrize(
    ("ready", "unready", "state", "rate"),
    [
        pytest.param(3, 0, ZoneState.NORMAL, 0.1, id="all ready"),
        pytest.param(1, 2, ZoneState.NORMAL, 0.1, id="two are too few for a disruption"),
        pytest.param(5, 5, ZoneState.NORMAL, 0.1, id="half is below the threshold"),
        pytest.param(4, 6, ZoneState.PARTIAL_DISRUPTION, 0.0, id="a small zone stops"),
        pytest.param(20, 31, ZoneState.PARTIAL_DISRUPTION, 0.01, id="a large zone slows down"),
        pytest.param(0, 1, ZoneState.FULL_DISRUPTION, 0.1, id="none ready, others elsewhere are"),
    ],
)
def test_state_and_rate_of_a_zone(ready: int, unready: int, state: ZoneState, rate: float) -> None:
    zone = zones(ready, unready)["a"]
    assert zone.state is state
    assert zone.rate == rate


def test_nodes_come_one_after_the_other_at_the_rate_of_their_zone() -> None:
    counted = zones(3, 2)
    zone = counted["a"]
    zone.waiting.update(dict.fromkeys(("n3", "n4")))
    assert counted.next_node("a", 100.0) == ("n3", 10.0)
    assert counted.next_node("a", 104.0) == (None, 6.0)
    assert counted.next_node("a", 110.0) == ("n4", 10.0)
    assert counted.next_node("a", 120.0) == (None, None)


def test_while_no_node_at_all_is_ready_none_is_named() -> None:
    counted = zones(0, 2)
    counted["a"].waiting["n0"] = None
    counted.put("elsewhere", "b", ready=False)
    assert counted.all_disrupted
    assert counted.next_node("a", 100.0) == (None, None)


def test_a_node_that_moves_or_goes_is_counted_where_it_is() -> None:
    counted = zones(1, 0)
    counted.put("n0", "b", ready=True)
    assert counted.names() == ["b"]
    counted.drop("n0")
    counted.drop("elsewhere")
    assert counted.names() == []
    assert not counted.all_disrupted
