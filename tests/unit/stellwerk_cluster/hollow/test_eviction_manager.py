"""Node-pressure eviction in virtual time: every signal, hard and soft, with and without imagefs."""

from typing import Any

import pytest

from stellwerk_cluster.hollow.eviction_manager import (
    EvictionCandidate,
    oom_score_adjust,
    oom_victim,
    ranked,
)
from stellwerk_cluster.hollow.eviction_thresholds import parse_configuration
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_kube.json_values import JsonObject
from tests.support.node_driver import ClusterDriver, hollow_pod

CAPACITY = {"cpu": "4", "memory": "10Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def node(name: str) -> JsonObject:
    return {"metadata": {"name": name}, "status": {"capacity": CAPACITY}}


def driver(fields: dict[str, Any] | None = None) -> ClusterDriver:
    configuration = parse_configuration({"kind": "KubeletConfiguration", **(fields or {})}, "f")
    options = KubeletOptions(configuration=configuration)
    return ClusterDriver([node("node-1")], heartbeats=False, kubelet=options)


def run(cluster: ClusterDriver, name: str, usage: str, **spec: Any) -> None:
    cluster.create("pods", hollow_pod(name, annotations={"usage": usage}, **spec))
    cluster.advance(1)


def threshold(signal: str, amount: str, *, soft: bool) -> dict[str, Any]:
    if not soft:
        return {"evictionHard": {signal: amount}}
    return {
        "evictionHard": {"memory.available": "1"},
        "evictionSoft": {signal: amount},
        "evictionSoftGracePeriod": {signal: "90s"},
        "evictionMaxPodGracePeriod": 20,
    }


MEMORY = ("memory.available", "1Gi", "", "memory=9.5Gi", "memory", "MemoryPressure")
PIDS = ("pid.available", "100", "pids=1000", "pids=950", "pids", "PIDPressure")
NODEFS = ("nodefs.available", "10Gi", "", "logs=60Gi,writable=35Gi", "ephemeral-storage")
INODES = ("nodefs.inodesFree", "1k", "nodefs-inodes=10k", "inodes=9500", "inodes")
NODEFS_APART = ("nodefs.available", "10Gi", "imagefs=50Gi", "logs=95Gi", "ephemeral-storage")
IMAGEFS = ("imagefs.available", "10Gi", "imagefs=50Gi", "writable=45Gi", "ephemeral-storage")
CONTAINERFS = ("containerfs.available", *IMAGEFS[1:])
IMAGE_INODES = (
    "imagefs.inodesFree",
    "1k",
    "imagefs=50Gi,imagefs-inodes=10k",
    "writable-inodes=9500",
    "inodes",
)
CONTAINER_INODES = ("containerfs.inodesFree", *IMAGE_INODES[1:])
DISK = "DiskPressure"
SCENARIOS = [
    pytest.param(MEMORY, id="memory"),
    pytest.param(PIDS, id="processes"),
    pytest.param((*NODEFS, DISK), id="nodefs, with images on it"),
    pytest.param((*INODES, DISK), id="inodes of nodefs"),
    pytest.param((*NODEFS_APART, DISK), id="nodefs beside imagefs"),
    pytest.param((*IMAGEFS, DISK), id="imagefs"),
    pytest.param((*IMAGE_INODES, DISK), id="inodes of imagefs"),
    pytest.param((*CONTAINERFS, DISK), id="containerfs"),
    pytest.param((*CONTAINER_INODES, DISK), id="inodes of containerfs"),
]


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_signal_evicts_what_uses_most(scenario: tuple[str, ...], *, soft: bool) -> None:
    signal, amount, capacity, usage, resource, condition = scenario
    cluster = driver(threshold(signal, amount, soft=soft))
    cluster.annotate("nodes", "node-1", capacity=capacity or None)
    run(cluster, "modest", usage.partition("=")[0] + "=1")
    run(cluster, "greedy", usage)
    cluster.advance(10)
    assert cluster.condition("node-1", condition) == "True"
    assert "NoSchedule" in {effect for _, effect in cluster.taints("node-1")}
    if soft:
        assert cluster.phase("greedy") == "Running"
        cluster.advance(95)
    cluster.advance(5)
    status = cluster.pod("greedy")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert status["message"].startswith(f"The node was low on resource: {resource}. Threshold")
    target = [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    assert [each["reason"] for each in target] == ["TerminationByKubelet"]
    assert cluster.events("greedy")[-1] == ("Evicted", status["message"])
    assert cluster.phase("modest") == "Running"
    assert cluster.condition("node-1", condition) == "True"
    cluster.advance(310, step=5)
    assert cluster.condition("node-1", condition) == "False"
    assert cluster.taints("node-1") == set()
    assert cluster.phase("modest") == "Running"


def test_the_message_says_what_a_container_used() -> None:
    cluster = driver({"evictionHard": {"memory.available": "1Gi"}})
    run(cluster, "greedy", "memory=9.5Gi", requests={"memory": "1Gi"})
    cluster.advance(20)
    assert cluster.pod("greedy")["status"]["message"] == (
        "The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. "
        "Container c was using 9728Mi, request is 1Gi, has larger consumption of memory. "
    )


def test_a_pod_goes_after_its_grace_within_the_limit_of_soft_thresholds() -> None:
    cluster = driver(threshold("memory.available", "1Gi", soft=True))
    stubborn = hollow_pod("p", annotations={"usage": "memory=9.5Gi", "stop-seconds": "300"})
    cluster.create("pods", stubborn)
    cluster.advance(110)
    assert cluster.phase("p") == "Running"
    cluster.advance(8)
    assert cluster.phase("p") == "Running"
    cluster.advance(5)
    assert cluster.phase("p") == "Failed"


def test_usage_that_falls_within_the_grace_period_evicts_nothing() -> None:
    cluster = driver(threshold("memory.available", "1Gi", soft=True))
    run(cluster, "p", "memory=9.5Gi")
    cluster.advance(60)
    cluster.annotate("pods", "p", usage="memory=1Gi")
    cluster.advance(120)
    assert cluster.phase("p") == "Running"
    assert cluster.condition("node-1", "MemoryPressure") == "True"
    cluster.advance(250)
    assert cluster.condition("node-1", "MemoryPressure") == "False"


@pytest.mark.parametrize(
    ("capacity", "signal", "goes"),
    [
        pytest.param("", "nodefs.available", {"dead-containers", "unused-images"}, id="one disk"),
        pytest.param(
            "imagefs=50Gi", "nodefs.available", {"dead-containers"}, id="nodefs beside imagefs"
        ),
        pytest.param("imagefs=50Gi", "imagefs.available", {"unused-images"}, id="imagefs"),
    ],
)
def test_the_node_gives_back_what_it_can_before_a_pod_goes(
    capacity: str, signal: str, goes: set[str]
) -> None:
    cluster = driver({"evictionHard": {signal: "10Gi"}})
    run(cluster, "p", "logs=5Gi,writable=5Gi")
    usage = {"dead-containers": "50Gi", "unused-images": "42Gi"}
    if capacity and signal.startswith("nodefs"):
        usage["dead-containers"] = "90Gi"
    if not capacity:
        usage["dead-containers"] = "5Gi"
        usage["unused-images"] = "82Gi"
    text = ",".join(f"{name}={amount}" for name, amount in usage.items())
    cluster.annotate("nodes", "node-1", capacity=capacity or None, usage=text)
    cluster.advance(25)
    left = cluster.node("node-1")["metadata"]["annotations"]["stellwerk.dev/usage"]
    assert {name for name in usage if name not in left} == goes
    assert cluster.phase("p") == "Running"


def test_the_minimum_reclaim_goes_on_until_so_much_more_is_free() -> None:
    cluster = driver(
        {
            "evictionHard": {"memory.available": "1Gi"},
            "evictionMinimumReclaim": {"memory.available": "2Gi"},
        }
    )
    for name in ("one", "two"):
        run(cluster, name, "memory=1Gi")
    run(cluster, "third", "memory=1.5Gi")
    cluster.annotate("nodes", "node-1", usage="memory=6Gi")
    cluster.advance(30)
    phases = sorted(cluster.phase(name) for name in ("one", "two", "third"))
    assert phases == ["Failed", "Failed", "Running"]
    assert cluster.phase("third") == "Failed"


def test_critical_pods_stay() -> None:
    cluster = driver({"evictionHard": {"memory.available": "1Gi"}})
    run(cluster, "critical", "memory=9.5Gi", priorityClassName="system-node-critical")
    cluster.advance(60)
    assert cluster.phase("critical") == "Running"


def test_under_memory_pressure_best_effort_pods_are_refused() -> None:
    cluster = driver({"evictionHard": {"memory.available": "1Gi"}})
    cluster.annotate("nodes", "node-1", usage="memory=9.5Gi")
    cluster.advance(15)
    cluster.create("pods", hollow_pod("best-effort"))
    cluster.create("pods", hollow_pod("burstable", requests={"memory": "1Mi"}))
    cluster.advance(1)
    status = cluster.pod("best-effort")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert status["message"] == "Pod was rejected: The node had condition: [MemoryPressure]. "
    assert cluster.phase("burstable") == "Running"


def test_a_kernel_that_runs_out_of_memory_kills_before_the_kubelet_looks() -> None:
    cluster = driver()
    run(cluster, "modest", "memory=1Gi", requests={"memory": "1Gi"}, limits={"memory": "1Gi"})
    run(cluster, "greedy", "memory=9.5Gi")
    cluster.advance(1)
    status = cluster.pod("greedy")["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert cluster.phase("modest") == "Running"
    assert "SystemOOM" in [reason for reason, _ in cluster.events("node-1")]


def test_memory_notification_needs_no_round() -> None:
    fields = {"evictionHard": {"memory.available": "1Gi"}, "kernelMemcgNotification": True}
    cluster = driver(fields)
    run(cluster, "greedy", "memory=9.5Gi")
    cluster.advance(1)
    assert cluster.phase("greedy") == "Failed"


def test_thresholds_and_reservations_show_in_allocatable() -> None:
    fields = {
        "evictionHard": {"memory.available": "500Mi"},
        "systemReserved": {"memory": "1.5Gi"},
    }
    cluster = driver(fields)
    assert cluster.node("node-1")["status"]["allocatable"]["memory"] == "8204Mi"
    run(cluster, "p", "memory=9.6Gi")
    cluster.advance(15)
    assert cluster.phase("p") == "Failed"


def test_a_hard_threshold_gives_a_pod_one_second() -> None:
    cluster = driver({"evictionHard": {"memory.available": "1Gi"}})
    annotations = {"usage": "memory=9.5Gi", "stop-seconds": "300", "start-seconds": "0"}
    cluster.create("pods", hollow_pod("p", annotations=annotations))
    cluster.advance(10.5)
    assert cluster.events("p")[-1][0] == "Evicted"
    assert cluster.phase("p") == "Running"
    cluster.advance(1)
    assert cluster.phase("p") == "Failed"


def test_a_pod_below_its_request_goes_after_all_others() -> None:
    cluster = driver({"evictionHard": {"memory.available": "1Gi"}})
    run(cluster, "below", "memory=4Gi", requests={"memory": "5Gi"})
    run(cluster, "above", "memory=2Gi", requests={"memory": "1Gi"})
    cluster.annotate("nodes", "node-1", usage="memory=3.5Gi")
    cluster.advance(12)
    assert (cluster.phase("above"), cluster.phase("below")) == ("Failed", "Running")
    cluster.annotate("nodes", "node-1", usage="memory=5.5Gi")
    cluster.advance(12)
    assert cluster.phase("below") == "Failed"


GIBI = {"ephemeral-storage": "1Gi"}


def evicted(usage: str, **spec: Any) -> tuple[str, str]:
    """Phase and message of a pod after the kubelet has looked."""
    cluster = ClusterDriver(1, heartbeats=False)
    cluster.create("pods", hollow_pod("p", annotations={"usage": usage}, **spec))
    cluster.advance(15)
    status = cluster.pod("p")["status"]
    assert "DisruptionTarget" not in [each["type"] for each in status["conditions"]]
    return status["phase"], status.get("message", "")


def scratch(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "scratch", "emptyDir": source}]}


@pytest.mark.parametrize(
    ("usage", "spec", "message"),
    [
        pytest.param(
            "volume/scratch=1025Mi",
            scratch(sizeLimit="1Gi"),
            'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
            id="a volume",
        ),
        pytest.param(
            "logs=600Mi,writable=600Mi",
            {"limits": GIBI},
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            id="its only container",
        ),
        pytest.param(
            "logs=100Mi,volume/scratch=1Gi",
            {"limits": GIBI, **scratch()},
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            id="volumes count for the pod",
        ),
    ],
)
def test_a_pod_above_a_limit_of_its_own_is_evicted(
    usage: str, spec: dict[str, Any], message: str
) -> None:
    assert evicted(usage, **spec) == ("Failed", message)


def test_one_container_with_a_limit_beside_one_without() -> None:
    cluster = ClusterDriver(1, heartbeats=False)
    pod = hollow_pod("p", annotations={"usage": "logs=3Gi"}, limits=GIBI)
    pod["spec"]["containers"].append({"name": "free", "image": "i:1"})
    cluster.create("pods", pod)
    cluster.advance(15)
    message = 'Container c exceeded its local ephemeral storage limit "1Gi". '
    assert cluster.pod("p")["status"]["message"] == message
    assert ("Evicted", message) in cluster.events("p")


@pytest.mark.parametrize(
    ("usage", "spec"),
    [
        pytest.param("volume/scratch=1Gi", scratch(sizeLimit="1Gi"), id="up to the limit"),
        pytest.param("volume/other=2Gi", scratch(sizeLimit="1Gi"), id="in another volume"),
        pytest.param("volume/scratch=2Gi", scratch(), id="without a limit"),
        pytest.param(
            "volume/scratch=2Gi",
            scratch(sizeLimit="1Gi", medium="Memory"),
            id="in memory, which is no storage",
        ),
        pytest.param("logs=1Gi", {"limits": GIBI}, id="up to the limit of the container"),
    ],
)
def test_other_pods_stay(usage: str, spec: dict[str, Any]) -> None:
    assert evicted(usage, **spec) == ("Running", "")


def test_several_go_one_after_the_other() -> None:
    cluster = ClusterDriver(1, heartbeats=False)
    for name in ("one", "two"):
        usage = {"usage": "logs=2Gi"}
        cluster.create("pods", hollow_pod(name, annotations=usage, limits=GIBI))
    cluster.advance(20)
    assert {cluster.phase(name) for name in ("one", "two")} == {"Failed"}
    assert cluster.condition("node-1", "DiskPressure") == "False"


GI = 1 << 30


def pod(
    name: str, used: int, requested: int = 0, priority: int = 0, **more: Any
) -> EvictionCandidate:
    usage = {"memory": used, "pids": used, "logs": used}
    requests = {"memory": requested, "ephemeral-storage": requested}
    return EvictionCandidate(name, priority, usage, requests, **more)


def names(signal: str, part: str, *pods: EvictionCandidate) -> list[str]:
    return [each.name for each in ranked(pods, signal, (part,))]


def test_of_memory_those_above_their_request_go_first_then_low_priority_then_the_greediest() -> (
    None
):
    pods = [
        pod("below-low", 1, 5, priority=-10),
        pod("below-high", 1, 5, priority=10),
        pod("above-high", 100, 5, priority=10),
        pod("above-low-little", 6, 5),
        pod("above-low-much", 50, 5),
        pod("critical", 900, 0, priority=2_000_000_000),
        pod("static", 900, 0, static=True),
    ]
    assert names("memory.available", "memory", *pods) == [
        "above-low-much",
        "above-low-little",
        "above-high",
        "below-low",
        "below-high",
    ]


def test_storage_is_ranked_as_memory_is() -> None:
    pods = [pod("below", 9, 10), pod("above", 3, 1)]
    assert names("nodefs.available", "logs", *pods) == ["above", "below"]


@pytest.mark.parametrize("signal", ["pid.available", "nodefs.inodesFree"])
def test_processes_and_inodes_have_no_requests_and_go_by_priority(signal: str) -> None:
    pods = [pod("high", 900, priority=10), pod("low-little", 1), pod("low-much", 5)]
    assert names(signal, "pids", *pods) == ["low-much", "low-little", "high"]


@pytest.mark.parametrize(
    ("qos", "asked", "score"),
    [
        pytest.param("Burstable", 0, 999, id="Burstable without a request"),
        pytest.param("Burstable", GI, 900, id="a tenth of the node"),
        pytest.param("Burstable", 5 * GI, 500, id="half of the node"),
        pytest.param("Burstable", 10 * GI, 3, id="all of the node"),
        pytest.param("BestEffort", 0, 1000, id="BestEffort"),
        pytest.param("Guaranteed", GI, -997, id="Guaranteed"),
    ],
)
def test_oom_score_adj_on_ten_gibibytes(qos: str, asked: int, score: int) -> None:
    assert oom_score_adjust(EvictionCandidate("p", qos=qos), asked, 10 * GI) == score


def test_the_kernel_kills_the_largest_share_of_memory_with_its_adjustment() -> None:
    burstable = pod("burstable", 6 * GI, 5 * GI, qos="Burstable")
    small = pod("best-effort", GI)
    guaranteed = pod("guaranteed", 9 * GI, 9 * GI, qos="Guaranteed")
    victim = oom_victim([burstable, small, guaranteed], 10 * GI)
    assert victim is burstable or victim is small
    # 600 + 500 and 100 + 1000 are equal: one process more decides.
    greedy = pod("greedy", 2 * GI)
    assert oom_victim([burstable, greedy, guaranteed], 10 * GI) is greedy
    assert oom_victim([guaranteed], 10 * GI) is guaranteed
    assert oom_victim([pod("idle", 0)], 10 * GI) is None
