"""The lives of hollow pods on a virtual clock: start, readiness, restarts, deadlines, ends."""

from typing import Any

import pytest

from stellwerk_cluster.apimachinery.objects import pick
from stellwerk_cluster.apimachinery.patching import STRATEGIC_PATCH
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.hollow.lifecycle import parse_stages
from stellwerk_kube.json_values import JsonObject
from tests.support.node_driver import ClusterDriver, hollow_pod


def driver(**kubelet: Any) -> ClusterDriver:
    return ClusterDriver(heartbeats=False, kubelet=KubeletOptions(**kubelet))


def statuses(pod: JsonObject) -> JsonObject:
    found: JsonObject = pod["status"]["containerStatuses"][0]
    return found


def test_a_pod_that_does_not_fit_is_failed_with_an_event() -> None:
    cluster = driver()
    cluster.create("pods", hollow_pod("large", requests={"cpu": "3"}))
    cluster.create("pods", hollow_pod("late", requests={"cpu": "2"}))
    cluster.advance(1)
    assert cluster.phase("large") == "Running"
    status = cluster.pod("late")["status"]
    text = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == f"Pod was rejected: {text}"
    assert cluster.events("late") == [("OutOfcpu", text)]


def test_a_pod_that_has_ended_leaves_its_room_to_the_next() -> None:
    cluster = driver()
    job = hollow_pod(
        "first", requests={"cpu": "3"}, restartPolicy="Never", annotations={"run-seconds": "5"}
    )
    cluster.create("pods", job)
    cluster.advance(7)
    assert cluster.phase("first") == "Succeeded"
    cluster.create("pods", hollow_pod("second", requests={"cpu": "4"}))
    cluster.advance(1)
    assert cluster.phase("second") == "Running"


def test_init_containers_run_one_after_the_other_beside_sidecars() -> None:
    cluster = driver()
    containers = [
        {"name": "one", "image": "i:1"},
        {"name": "side", "image": "i:1", "restartPolicy": "Always"},
        {"name": "two", "image": "i:1"},
    ]
    pod = hollow_pod("p", initContainers=containers, annotations={"init-seconds": "10"})
    cluster.create("pods", pod)

    def states() -> list[str]:
        found = cluster.pod("p")["status"]["initContainerStatuses"]
        return [next(iter(each["state"])) for each in found]

    cluster.advance(1)
    assert cluster.phase("p") == "Pending"
    assert states() == ["running", "waiting", "waiting"]
    cluster.advance(10)
    assert states() == ["terminated", "running", "running"]
    cluster.advance(10)
    assert cluster.phase("p") == "Running"
    assert states() == ["terminated", "running", "terminated"]


def test_an_init_container_that_fails_is_tried_again_or_fails_the_pod() -> None:
    cluster = driver()
    for policy in ("Always", "Never"):
        pod = hollow_pod(
            policy.lower(),
            initContainers=[{"name": "init", "image": "i:1"}],
            restartPolicy=policy,
            annotations={"init-exit-code": "3"},
        )
        cluster.create("pods", pod)
    cluster.advance(30)
    assert cluster.phase("never") == "Failed"
    assert cluster.phase("always") == "Pending"
    assert cluster.pod("always")["status"]["initContainerStatuses"][0]["restartCount"] >= 2


def test_a_readiness_probe_delays_readiness() -> None:
    cluster = driver()
    pod = hollow_pod("p")
    pod["spec"]["containers"][0]["readinessProbe"] = {
        "initialDelaySeconds": 20,
        "tcpSocket": {"port": 80},
    }
    cluster.create("pods", pod)
    cluster.advance(10)
    assert cluster.phase("p") == "Running"
    assert not statuses(cluster.pod("p"))["ready"]
    cluster.advance(12)
    assert statuses(cluster.pod("p"))["ready"]


def test_a_container_that_ends_again_and_again_is_backed_off() -> None:
    cluster = driver()
    pod = hollow_pod("p", annotations={"run-seconds": "1", "exit-code": "2"})
    cluster.create("pods", pod)
    cluster.advance(2)
    assert statuses(cluster.pod("p"))["restartCount"] == 1
    cluster.advance(1.5)
    waiting = statuses(cluster.pod("p"))
    assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert "back-off 10s restarting failed container=c pod=p_default(" in str(
        waiting["state"]["waiting"]["message"]
    )
    assert waiting["lastState"]["terminated"]["exitCode"] == 2
    cluster.advance(10)
    assert statuses(cluster.pod("p"))["restartCount"] == 2
    cluster.advance(21)
    assert statuses(cluster.pod("p"))["restartCount"] == 3
    (event,) = {reason for reason, _ in cluster.events("p")}
    assert event == "BackOff"


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", "0", "Succeeded"), ("Never", "7", "Failed"), ("OnFailure", "0", "Succeeded")],
)
def test_a_pod_that_is_not_restarted_ends(policy: str, code: str, phase: str) -> None:
    cluster = driver()
    annotations = {"run-seconds": "3", "exit-code": code}
    cluster.create("pods", hollow_pod("p", restartPolicy=policy, annotations=annotations))
    cluster.advance(5)
    assert cluster.phase("p") == phase
    assert pick(statuses(cluster.pod("p")), ("state", "terminated", "exitCode")) == int(code)


def test_an_active_deadline_fails_the_pod() -> None:
    cluster = driver()
    cluster.create("pods", hollow_pod("p", activeDeadlineSeconds=60))
    cluster.advance(59)
    assert cluster.phase("p") == "Running"
    cluster.advance(3)
    status = cluster.pod("p")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert statuses(cluster.pod("p"))["state"]["terminated"]["exitCode"] == 137


def test_pre_stop_and_stop_times_are_bounded_by_the_grace_period() -> None:
    cluster = driver()
    for name, sleep in (("short", 10), ("long", 100)):
        pod = hollow_pod(name, annotations={"stop-seconds": "5"})
        pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": sleep}}}
        pod["spec"]["terminationGracePeriodSeconds"] = 120 if sleep == 10 else 110
        cluster.create("pods", pod)
    cluster.advance(1)
    cluster.delete("pods", "short")
    cluster.delete("pods", "long", grace_period_seconds=30)
    cluster.advance(14)
    assert not cluster.gone("short")
    cluster.advance(2)
    assert cluster.gone("short")
    assert not cluster.gone("long")
    cluster.advance(15)
    assert cluster.gone("long")


def test_an_exit_code_that_is_asked_for_ends_the_containers_once() -> None:
    cluster = driver()
    cluster.create("pods", hollow_pod("p"))
    cluster.advance(1)
    cluster.annotate("pods", "p", end_now="137")
    cluster.advance(2)
    status = statuses(cluster.pod("p"))
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert "stellwerk.dev/end-now" not in cluster.pod("p")["metadata"]["annotations"]


def test_a_resize_is_given_put_off_or_impossible() -> None:
    cluster = driver()
    cluster.create("pods", hollow_pod("p", requests={"cpu": "1"}))
    cluster.create("pods", hollow_pod("other", requests={"cpu": "2"}))
    cluster.advance(1)

    def resize(cpu: str) -> JsonObject:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        kind = cluster.api.kinds.resource("pods")
        cluster.api.patch(
            kind,
            ("default", "p"),
            {"spec": {"containers": containers}},
            "application/strategic-merge-patch+json",
            subresource="resize",
        )
        cluster.advance(1)
        return cluster.pod("p")

    def pending(pod: JsonObject) -> list[str]:
        conditions = pod["status"]["conditions"]
        return [each["reason"] for each in conditions if each["type"] == "PodResizePending"]

    assert statuses(resize("2"))["resources"]["requests"] == {"cpu": "2"}
    assert pending(resize("9")) == ["Infeasible"]
    assert pending(resize("3")) == ["Deferred"]
    cluster.delete("pods", "other", grace_period_seconds=0)
    cluster.advance(1)
    assert statuses(cluster.pod("p"))["resources"]["requests"] == {"cpu": "3"}
    assert pending(cluster.pod("p")) == []


def test_stages_of_a_file_say_how_pods_live_and_annotations_come_first() -> None:
    document = {
        "stages": [
            {"match": {"namespace": "other"}, "startSeconds": 500},
            {"match": {"labels": {"app": "slow"}}, "startSeconds": 20, "readySeconds": 10},
        ]
    }
    cluster = driver(stages=tuple(parse_stages(document, "f")))
    for name in ("slow", "hurried"):
        pod = hollow_pod(name)
        pod["metadata"]["labels"] = {"app": "slow"}
        if name == "hurried":
            pod["metadata"]["annotations"] = {"stellwerk.dev/start-seconds": "1"}
        cluster.create("pods", pod)
    cluster.advance(2)
    assert (cluster.phase("slow"), cluster.phase("hurried")) == ("Pending", "Running")
    cluster.advance(20)
    assert cluster.phase("slow") == "Running"
    assert not statuses(cluster.pod("slow"))["ready"]
    cluster.advance(10)
    assert statuses(cluster.pod("slow"))["ready"]


def test_each_container_that_starts_has_its_own_events_where_they_are_asked_for() -> None:
    cluster = driver(tells_of_containers=True)
    containers = [{"name": name, "image": f"{name}:1"} for name in ("one", "two")]
    cluster.create("pods", hollow_pod("p", containers=containers))
    cluster.advance(1)
    told = {
        (each["reason"], each["involvedObject"].get("fieldPath"), each["message"])
        for each in cluster.api.all("events")
        if each["source"]["component"] == "kubelet"
    }
    assert told == {
        (reason, f"spec.containers{{{name}}}", message)
        for name in ("one", "two")
        for reason, message in (
            ("Pulled", f'Container image "{name}:1" already present on machine'),
            ("Created", "Container created"),
            ("Started", "Container started"),
        )
    }


def test_an_init_container_that_has_succeeded_is_ready() -> None:
    cluster = driver()
    pod = hollow_pod(
        "p",
        initContainers=[
            {"name": "init", "image": "i:1"},
            {"name": "side", "image": "i:1", "restartPolicy": "Always"},
        ],
        annotations={"init-seconds": "10"},
    )
    cluster.create("pods", pod)

    def flags() -> list[tuple[bool, bool]]:
        found = cluster.pod("p")["status"]["initContainerStatuses"]
        return [(each["ready"], each["started"]) for each in found]

    cluster.advance(1)
    assert flags() == [(False, True), (False, False)]
    cluster.advance(10)
    assert flags() == [(True, False), (True, True)]
    assert cluster.phase("p") == "Running"


def test_a_sidecar_ends_with_its_pod() -> None:
    cluster = driver()
    side = {"name": "side", "image": "i:1", "restartPolicy": "Always"}
    pod = hollow_pod(
        "p", initContainers=[side], restartPolicy="Never", annotations={"run-seconds": "5"}
    )
    cluster.create("pods", pod)
    cluster.advance(1)
    cluster.advance(6)
    [status] = cluster.pod("p")["status"]["initContainerStatuses"]
    assert (cluster.phase("p"), status["ready"]) == ("Succeeded", False)
    assert status["state"]["terminated"]["exitCode"] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({}, 143, id="it stops when it is told to"),
        pytest.param({"grace_period_seconds": 0}, 137, id="it is killed"),
    ],
)
@pytest.mark.parametrize("policy", ["Always", "Never"])
def test_a_stopped_pod_whose_object_has_to_stay_takes_no_room(
    policy: str, options: dict[str, Any], code: int
) -> None:
    cluster = driver()
    held = hollow_pod("held", requests={"cpu": "3"}, restartPolicy=policy)
    held["metadata"]["finalizers"] = ["example.com/keep"]
    cluster.create("pods", held)
    cluster.advance(1)
    cluster.delete("pods", "held", **options)
    cluster.advance(2)
    assert cluster.phase("held") == "Failed"
    assert statuses(cluster.pod("held"))["state"]["terminated"]["exitCode"] == code
    cluster.create("pods", hollow_pod("next", requests={"cpu": "3"}))
    cluster.advance(1)
    assert cluster.phase("next") == "Running"
    cluster.patch("pods", "held", {"metadata": {"finalizers": None}})
    assert cluster.api.find("pods", "default", "held") is None


def test_a_pod_that_is_deleted_before_it_starts_and_has_to_stay_has_failed() -> None:
    cluster = driver(start_seconds=60)
    held = hollow_pod("held")
    held["metadata"]["finalizers"] = ["example.com/keep"]
    cluster.create("pods", held)
    cluster.delete("pods", "held")
    cluster.advance(2)
    assert cluster.phase("held") == "Failed"


def test_nothing_is_not_too_much_where_more_is_promised_than_there_is() -> None:
    cluster = driver()
    device, amounts = "example.com/gpu", ("capacity", "allocatable")

    def publish(amount: str) -> None:
        given = {each: {device: amount} for each in amounts}
        cluster.patch("nodes", "node-1", {"status": given}, "", "status")

    publish("4")
    cluster.create("pods", hollow_pod("user", requests={device: "4"}, limits={device: "4"}))
    cluster.advance(1)
    publish("0")
    for name, asked in (("none", "0"), ("some", "1")):
        cluster.create("pods", hollow_pod(name, requests={device: asked}, limits={device: asked}))
    cluster.advance(1)
    assert (cluster.phase("none"), cluster.phase("some")) == ("Running", "Failed")
    assert cluster.pod("some")["status"]["reason"] == f"OutOf{device}"


def test_a_resize_to_nothing_is_given_where_more_is_promised_than_there_is() -> None:
    cluster = driver()
    pod = hollow_pod("p", requests={"cpu": "1", "memory": "1Gi"})
    cluster.create("pods", pod)
    cluster.create("pods", hollow_pod("other", requests={"cpu": "3"}))
    cluster.advance(1)
    small = {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}}
    cluster.patch("nodes", "node-1", {"status": small}, "", "status")
    resources = {"requests": {"cpu": "0", "memory": "2Gi"}}
    change = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    kind = cluster.api.kinds.resource("pods")
    key = ("default", "p")
    cluster.api.patch(kind, key, change, STRATEGIC_PATCH, subresource="resize")
    cluster.advance(1)
    types = {each["type"] for each in cluster.pod("p")["status"]["conditions"]}
    assert "PodResizePending" not in types


def test_a_kubelet_says_which_generation_of_a_pod_it_has_seen() -> None:
    cluster = driver()
    pod = hollow_pod("p", initContainers=[{"name": "i", "image": "i:1"}])
    cluster.create("pods", pod)
    cluster.advance(1)

    def generations() -> tuple[int, int]:
        found = cluster.pod("p")
        return found["metadata"]["generation"], found["status"]["observedGeneration"]

    assert generations() == (1, 1)
    cluster.patch("pods", "p", {"spec": {"activeDeadlineSeconds": 5000}})
    assert generations() == (2, 2)
    cluster.patch("pods", "p", {"metadata": {"labels": {"a": "b"}}})
    assert generations() == (2, 2)
    cluster.delete("pods", "p")
    assert generations() == (3, 3)
