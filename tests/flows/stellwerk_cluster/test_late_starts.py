"""Controllers that start late find the work that was begun before: after a restart, for example."""

from typing import Any

import pytest

from stellwerk_cluster.controllers.catalogue import make_controllers
from stellwerk_cluster.work import WorkLoop
from tests.support.cluster_driver import TEMPLATE, Driver

HELD = ["example.com/hold"]
TRACKING = ["batch.kubernetes.io/job-tracking"]


def start_controllers(driver: Driver) -> None:
    """Start every controller on what is in the store, and let them work."""
    WorkLoop(make_controllers(driver.api)).settle()


@pytest.fixture
def driver() -> Driver:
    return Driver(controllers=(), kubelet=None)


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
def test_an_owner_whose_deletion_had_begun_goes(driver: Driver, propagation: str) -> None:
    driver.create("configmaps", config_map("owner"))
    uid = driver.get("configmaps", "owner")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    driver.create("configmaps", config_map("dependent", ownerReferences=[reference]))
    driver.delete("configmaps", "owner", propagation=propagation)
    assert "deletionTimestamp" in driver.get("configmaps", "owner")["metadata"]
    start_controllers(driver)
    assert driver.get("configmaps", "owner") is None
    assert (driver.get("configmaps", "dependent") is not None) is (propagation == "Orphan")


def test_an_owner_that_waits_for_nothing_goes(driver: Driver) -> None:
    driver.create("configmaps", config_map("owner"))
    driver.delete("configmaps", "owner", propagation="Foreground")
    start_controllers(driver)
    assert driver.get("configmaps", "owner") is None


def test_pods_get_the_claims_of_their_templates(driver: Driver) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gold"}}
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    driver.create("resourceclaimtemplates", template, group="resource.k8s.io")
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    spec = {"resourceClaims": claims, "containers": TEMPLATE["spec"]["containers"]}
    driver.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    start_controllers(driver)
    (status,) = driver.get("pods", "p")["status"]["resourceClaimStatuses"]
    assert driver.get("resourceclaims.resource.k8s.io", status["resourceClaimName"]) is not None


def test_a_claim_that_no_pod_uses_any_more_is_given_up(driver: Driver) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gold"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    driver.create("resourceclaims", claim, group="resource.k8s.io")
    reserved = [{"resource": "pods", "name": "gone", "uid": "gone"}]
    status = {"status": {"allocation": {}, "reservedFor": reserved}}
    driver.patch("resourceclaims", "c", status, group="resource.k8s.io", subresource="status")
    start_controllers(driver)
    claim = driver.get("resourceclaims.resource.k8s.io", "c")
    assert "reservedFor" not in (claim.get("status") or {})


def test_the_job_controller_alone_lets_go_of_a_pod_whose_job_is_gone(driver: Driver) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "gone"}
    owner = {**job, "controller": True}
    metadata = {"name": "p", "finalizers": TRACKING, "ownerReferences": [owner]}
    driver.create("pods", {"metadata": metadata, "spec": TEMPLATE["spec"]})
    WorkLoop(make_controllers(driver.api, ["job-controller"])).settle()
    assert "finalizers" not in driver.get("pods", "p")["metadata"]


def test_a_namespace_that_was_being_deleted_is_emptied(driver: Driver) -> None:
    driver.create("namespaces", {"metadata": {"name": "n"}})
    driver.create("configmaps", config_map("c"), namespace="n")
    driver.delete("namespaces", "n")
    start_controllers(driver)
    assert driver.get("namespaces", "n", namespace="") is None


def test_a_deployment_gets_its_pods_and_a_service_its_endpoints(driver: Driver) -> None:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    driver.create("deployments", {"metadata": {"name": "web"}, "spec": spec}, group="apps")
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    driver.create("services", {"metadata": {"name": "web"}, "spec": service})
    start_controllers(driver)
    assert len(driver.pods()) == 1
    assert driver.get("endpoints", "web") is not None


def test_a_bare_pod_is_adopted(driver: Driver) -> None:
    driver.create(
        "pods", {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": TEMPLATE["spec"]}
    )
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    driver.create("replicasets", {"metadata": {"name": "web"}, "spec": spec}, group="apps")
    start_controllers(driver)
    assert driver.names() == ["p"]
