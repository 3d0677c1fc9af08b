"""Controllers and hollow kubelets on a virtual clock, without sockets."""

import asyncio
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import RUN_SECONDS_ANNOTATION, KubeletOptions
from stellwerk_cluster.registry.binding import bind
from stellwerk_cluster.registry.eviction import evict
from tests.support.cluster_driver import TEMPLATE, Driver
from tests.support.skipped_time import clock_of_loop


@pytest.fixture
def driver() -> Driver:
    return Driver()


def deployment(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": TEMPLATE,
            **spec,
        },
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec},
    }


def test_new_nodes_are_ready_and_untainted(driver: Driver) -> None:
    nodes = list(driver.api.all("nodes"))
    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2", "node-3"]
    assert all("taints" not in node["spec"] for node in nodes)


def test_a_bound_pod_runs_after_a_short_time_and_goes_after_its_deletion(driver: Driver) -> None:
    driver.create("pods", pod("a"))
    driver.advance(5)
    assert driver.phases() == ["Pending"]
    bind(
        driver.api,
        driver.api.kinds.resource("pods"),
        ("default", "a"),
        {"metadata": {"name": "a"}, "target": {"name": "node-2"}},
    )
    driver.advance(1)
    running = driver.get("pods", "a")
    assert running["status"]["phase"] == "Running"
    assert running["status"]["hostIP"] == "10.1.0.2"
    assert running["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-b"
    driver.delete("pods", "a")
    assert driver.get("pods", "a")["metadata"]["deletionGracePeriodSeconds"] == 30
    driver.advance(1)
    assert driver.pods() == []


def test_a_kubelet_that_respects_grace_uses_all_of_it() -> None:
    driver = Driver(kubelet=KubeletOptions(respect_grace=True))
    driver.create("pods", pod("a", nodeName="node-1"))
    driver.advance(1)
    driver.delete("pods", "a")
    driver.advance(29)
    assert len(driver.pods()) == 1
    driver.advance(2)
    assert driver.pods() == []


def test_a_deployment_keeps_its_number_of_pods(driver: Driver) -> None:
    driver.create("deployments", deployment(3), "apps")
    driver.advance(1)
    assert driver.phases() == ["Running"] * 3
    driver.delete("pods", driver.pods()[0]["metadata"]["name"])
    driver.advance(2)
    driver.advance(1)
    assert driver.phases() == ["Running"] * 3
    driver.patch("deployments", "web", {"spec": {"replicas": 1}}, "apps")
    driver.advance(2)
    assert driver.phases() == ["Running"]
    assert driver.get("deployments.apps", "web")["status"]["readyReplicas"] == 1


def test_a_roll_over_never_goes_below_the_available_minimum(driver: Driver) -> None:
    driver.create("deployments", deployment(4), "apps")
    driver.advance(1)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    driver.patch("deployments", "web", image, "apps")
    for _ in range(20):
        ready = [each for each in driver.pods() if "deletionTimestamp" not in each["metadata"]]
        ready = [each for each in ready if each["status"]["phase"] == "Running"]
        assert len(ready) >= 3
        driver.advance(0.6)
    assert [each["spec"]["containers"][0]["image"] for each in driver.pods()] == ["i:2"] * 4


def test_deleting_a_deployment_takes_everything_it_owns_along(driver: Driver) -> None:
    driver.create("deployments", deployment(2), "apps")
    driver.advance(1)
    driver.delete("deployments", "web", "apps")
    driver.advance(1)
    assert driver.pods() == []
    assert list(driver.api.all("replicasets.apps")) == []


def test_orphaned_pods_stay(driver: Driver) -> None:
    driver.create("deployments", deployment(2), "apps")
    driver.advance(1)
    (replica_set,) = driver.api.all("replicasets.apps")
    driver.delete("deployments", "web", "apps", propagation="Orphan")
    driver.delete("replicasets", replica_set["metadata"]["name"], "apps", propagation="Orphan")
    driver.advance(1)
    assert len(driver.pods()) == 2
    assert all("ownerReferences" not in each["metadata"] for each in driver.pods())


def test_an_owner_in_foreground_deletion_waits_for_its_pods(driver: Driver) -> None:
    driver.create("deployments", deployment(2), "apps")
    driver.advance(1)
    driver.delete("deployments", "web", "apps", propagation="Foreground")
    assert driver.get("deployments.apps", "web") is not None
    driver.advance(1)
    assert driver.get("deployments.apps", "web") is None


def test_a_stateful_set_starts_one_pod_after_the_other(driver: Driver) -> None:
    body = {
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "web"}},
            "template": TEMPLATE,
        },
    }
    driver.create("statefulsets", body, "apps")
    assert [each["metadata"]["name"] for each in driver.pods()] == ["db-0"]
    driver.advance(1)
    assert [each["metadata"]["name"] for each in driver.pods()] == ["db-0", "db-1"]


def test_a_daemon_set_wants_each_node_that_it_tolerates(driver: Driver) -> None:
    driver.patch("nodes", "node-2", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    selector = {"matchLabels": {"app": "web"}}
    body = {"metadata": {"name": "agent"}, "spec": {"selector": selector, "template": template}}
    driver.create("daemonsets", body, "apps")
    assert len(driver.pods()) == 2
    assert driver.get("daemonsets.apps", "agent")["status"]["desiredNumberScheduled"] == 2
    driver.patch("nodes", "node-2", {"spec": {"taints": None}})
    assert len(driver.pods()) == 3


def test_a_daemon_set_wants_no_node_that_its_affinity_excludes(driver: Driver) -> None:
    driver.patch("nodes", "node-2", {"metadata": {"labels": {"disk": "hdd"}}})
    expression = {"key": "disk", "operator": "NotIn", "values": ["hdd"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": TEMPLATE["spec"]["containers"], "affinity": affinity},
    }
    selector = {"matchLabels": {"app": "web"}}
    body = {"metadata": {"name": "agent"}, "spec": {"selector": selector, "template": template}}
    driver.create("daemonsets", body, "apps")
    assert len(driver.pods()) == 2
    driver.patch("nodes", "node-2", {"metadata": {"labels": {"disk": "ssd"}}})
    assert len(driver.pods()) == 3


def test_a_job_ends_when_enough_pods_have_succeeded(driver: Driver) -> None:
    template = {
        "metadata": {"annotations": {RUN_SECONDS_ANNOTATION: "2"}},
        "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"},
    }
    driver.create(
        "jobs",
        {"metadata": {"name": "j"}, "spec": {"completions": 2, "template": template}},
        "batch",
    )
    for _ in range(4):
        driver.advance(3)
    assert driver.phases() == ["Succeeded", "Succeeded"]
    status = driver.get("jobs.batch", "j")["status"]
    assert status["succeeded"] == 2
    assert [each["type"] for each in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]


def test_a_budget_lets_only_as_many_pods_go_as_it_can_spare(driver: Driver) -> None:
    driver.create("deployments", deployment(3), "apps")
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    driver.create("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": budget}, "policy")
    driver.advance(1)
    status = driver.get("poddisruptionbudgets.policy", "b")["status"]
    assert (status["disruptionsAllowed"], status["currentHealthy"], status["desiredHealthy"]) == (
        1,
        3,
        2,
    )
    names = [each["metadata"]["name"] for each in driver.pods()]
    pods = driver.api.kinds.resource("pods")
    evict(driver.api, pods, ("default", names[0]), {}, {})
    with pytest.raises(StatusError) as caught:
        evict(driver.api, pods, ("default", names[1]), {}, {})
    assert caught.value.code == 429
    for _ in range(3):
        driver.advance(1)
    assert driver.get("poddisruptionbudgets.policy", "b")["status"]["disruptionsAllowed"] == 1


def test_a_namespace_goes_with_everything_in_it(driver: Driver) -> None:
    driver.create("namespaces", {"metadata": {"name": "team"}})
    driver.create("pods", pod("a", nodeName="node-1"), namespace="team")
    driver.create("configmaps", {"metadata": {"name": "c"}}, namespace="team")
    driver.delete("namespaces", "team")
    for _ in range(3):
        driver.advance(1)
    assert driver.get("namespaces", "team", "") is None
    assert driver.pods() == []


def test_cordoning_taints_and_uncordoning_lifts_it(driver: Driver) -> None:
    driver.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
    taints = driver.get("nodes", "node-1", "")["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["node.kubernetes.io/unschedulable"]
    driver.patch("nodes", "node-1", {"spec": {"unschedulable": None}})
    assert "taints" not in driver.get("nodes", "node-1", "")["spec"]


def test_pods_leave_an_unreachable_node_when_their_toleration_ends(driver: Driver) -> None:
    driver.create("pods", pod("a", nodeName="node-1"))
    driver.advance(1)
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    driver.patch("nodes", "node-1", unknown, subresource="status")
    driver.advance(299)
    assert len(driver.pods()) == 1
    driver.advance(2)
    driver.advance(1)
    assert driver.pods() == []


def test_a_node_that_somebody_creates_becomes_a_ready_hollow_node() -> None:
    driver = Driver(heartbeats=True)
    driver.create("nodes", {"metadata": {"name": "extra"}})
    driver.advance(1)
    node = driver.get("nodes", "extra", "")
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]}[
        "Ready"
    ] == "True"
    assert "taints" not in node["spec"]
    assert node["status"]["allocatable"]["pods"] == "110"


@pytest.mark.skips_time
async def test_versions_older_than_a_period_are_compacted() -> None:
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, compaction_seconds=300
    )
    async with EmbeddedCluster(1, clock=clock_of_loop(), options=options) as cluster:
        nodes = cluster.store.collection("nodes")
        first = cluster.store.revision
        await asyncio.sleep(299)
        assert nodes.compacted < first
        await asyncio.sleep(2)
        assert nodes.compacted == first
        cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod("a"))
        await asyncio.sleep(300)
        assert nodes.compacted == first, "it is not a whole period old"
        await asyncio.sleep(300)
        assert nodes.compacted == cluster.store.revision > first
