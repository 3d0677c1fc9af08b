"""Claims and volumes: matching, provisioning, waiting for a consumer, reclaiming, protection."""

from typing import Any

import pytest

from stellwerk_cluster.apimachinery.feature_gates import UNUSED_CLAIMS
from stellwerk_cluster.controllers.volume_matching import SELECTED_NODE
from tests.support.cluster_driver import Driver

STORAGE = "storage.k8s.io"
PROVISIONER = "disks.example.com"


def claim(driver: Driver, name: str = "c", size: str = "1Gi", **spec: Any) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    body = {"metadata": {"name": name}, "spec": {**wanted, **spec}}
    driver.create("persistentvolumeclaims", body)


def volume(driver: Driver, name: str, size: str = "1Gi", **spec: Any) -> None:
    given = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    body = {"metadata": {"name": name}, "spec": {**given, "hostPath": {"path": "/x"}, **spec}}
    driver.create("persistentvolumes", body)


def storage_class(driver: Driver, name: str = "fast", **fields: Any) -> None:
    body = {"metadata": {"name": name}, "provisioner": PROVISIONER, **fields}
    driver.create("storageclasses", body, STORAGE)


def phase(driver: Driver, name: str = "c") -> str:
    return str(driver.get("persistentvolumeclaims", name)["status"]["phase"])


def volumes(driver: Driver) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["status"]["phase"]
        for each in driver.api.all("persistentvolumes")
    }


def reasons(driver: Driver, name: str = "c") -> list[str]:
    return [each[1] for each in driver.events(name)]


def test_the_smallest_volume_that_suits_is_bound() -> None:
    driver = Driver()
    for name, size in (("large", "10Gi"), ("small", "1Gi"), ("right", "5Gi")):
        volume(driver, name, size)
    assert set(volumes(driver).values()) == {"Available"}
    claim(driver, size="2Gi")
    found = driver.get("persistentvolumeclaims", "c")
    assert found["spec"]["volumeName"] == "right"
    assert (found["status"]["phase"], found["status"]["capacity"]) == ("Bound", {"storage": "5Gi"})
    assert volumes(driver) == {"large": "Available", "small": "Available", "right": "Bound"}


@pytest.mark.parametrize(
    "spec",
    [
        {"storageClassName": "other"},
        {"accessModes": ["ReadOnlyMany"]},
        {"volumeMode": "Block"},
        {"capacity": {"storage": "1Mi"}},
        {"claimRef": {"namespace": "default", "name": "another"}},
    ],
)
def test_a_volume_that_does_not_suit_is_left(spec: dict[str, Any]) -> None:
    driver = Driver()
    volume(driver, "v", **spec)
    claim(driver)
    assert phase(driver) == "Pending"
    assert reasons(driver) == ["FailedBinding"]


def test_a_claim_waits_for_a_volume_and_gets_it() -> None:
    driver = Driver()
    claim(driver)
    assert phase(driver) == "Pending"
    volume(driver, "late")
    assert phase(driver) == "Bound"


def test_a_volume_kept_for_a_claim_is_taken_though_a_smaller_one_is_free() -> None:
    driver = Driver()
    volume(driver, "small")
    volume(driver, "kept", "9Gi", claimRef={"namespace": "default", "name": "c"})
    claim(driver)
    assert volumes(driver) == {"small": "Available", "kept": "Bound"}


def test_a_class_makes_a_volume_at_once_and_deletes_it_with_the_claim() -> None:
    driver = Driver()
    storage_class(driver)
    claim(driver, storageClassName="fast")
    assert phase(driver) == "Bound"
    assert list(volumes(driver).values()) == ["Bound"]
    assert "ProvisioningSucceeded" in reasons(driver)
    driver.delete("persistentvolumeclaims", "c")
    assert driver.get("persistentvolumeclaims", "c") is None
    assert volumes(driver) == {}


def test_a_volume_that_is_retained_is_released_and_given_to_no_other_claim() -> None:
    driver = Driver()
    storage_class(driver, reclaimPolicy="Retain")
    claim(driver, storageClassName="fast")
    driver.delete("persistentvolumeclaims", "c")
    assert list(volumes(driver).values()) == ["Released"]
    claim(driver, "second", storageClassName="fast")
    assert sorted(volumes(driver).values()) == ["Bound", "Released"]


def test_a_static_volume_that_nothing_can_delete_fails() -> None:
    driver = Driver()
    volume(driver, "v", persistentVolumeReclaimPolicy="Delete")
    claim(driver)
    driver.delete("persistentvolumeclaims", "c")
    assert volumes(driver) == {"v": "Failed"}
    assert reasons(driver, "v") == ["VolumeFailedDelete"]


def test_a_claim_that_waits_for_its_consumer_is_bound_in_the_zone_of_the_chosen_node() -> None:
    driver = Driver()
    storage_class(driver, volumeBindingMode="WaitForFirstConsumer")
    claim(driver, storageClassName="fast")
    assert phase(driver) == "Pending"
    assert reasons(driver) == ["WaitForFirstConsumer"]
    chosen = {"metadata": {"annotations": {SELECTED_NODE: "node-2"}}}
    driver.patch("persistentvolumeclaims", "c", chosen)
    assert phase(driver) == "Bound"
    (made,) = driver.api.all("persistentvolumes")
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["zone-b"]


@pytest.mark.parametrize("mode", ["ReadWriteMany", "ReadOnlyMany"])
def test_a_volume_that_many_nodes_may_use_is_in_no_zone(mode: str) -> None:
    driver = Driver()
    storage_class(driver, volumeBindingMode="WaitForFirstConsumer")
    claim(driver, storageClassName="fast", accessModes=[mode])
    chosen = {"metadata": {"annotations": {SELECTED_NODE: "node-2"}}}
    driver.patch("persistentvolumeclaims", "c", chosen)
    (made,) = driver.api.all("persistentvolumes")
    assert (phase(driver), made["spec"].get("nodeAffinity")) == ("Bound", None)


def test_a_claim_of_a_class_that_comes_later_is_served_then() -> None:
    driver = Driver()
    claim(driver, storageClassName="fast")
    assert reasons(driver) == ["ProvisioningFailed"]
    storage_class(driver)
    assert phase(driver) == "Bound"


def test_a_claim_in_use_stays_until_its_pod_has_gone() -> None:
    driver = Driver()
    storage_class(driver)
    claim(driver, storageClassName="fast")
    mount = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [mount], "nodeName": "node-1"}
    driver.create("pods", {"metadata": {"name": "user"}, "spec": spec})
    driver.run(2)
    driver.delete("persistentvolumeclaims", "c")
    driver.run(2)
    assert "deletionTimestamp" in driver.get("persistentvolumeclaims", "c")["metadata"]
    driver.delete("pods", "user")
    driver.run(2)
    assert driver.get("persistentvolumeclaims", "c") is None


def test_a_volume_in_use_stays_until_its_claim_has_gone() -> None:
    driver = Driver()
    volume(driver, "v")
    claim(driver)
    driver.delete("persistentvolumes", "v")
    assert volumes(driver) == {"v": "Bound"}
    driver.delete("persistentvolumeclaims", "c")
    assert volumes(driver) == {}


def test_a_claim_whose_volume_is_torn_away_is_lost() -> None:
    driver = Driver()
    volume(driver, "v")
    claim(driver)
    driver.patch("persistentvolumes", "v", {"metadata": {"finalizers": None}})
    driver.delete("persistentvolumes", "v")
    status = driver.get("persistentvolumeclaims", "c")["status"]
    assert status == {"phase": "Lost"}
    assert "ClaimLost" in reasons(driver)


def test_a_status_that_somebody_else_writes_for_a_bound_claim_is_put_right() -> None:
    driver = Driver()
    volume(driver, "v")
    claim(driver)
    before = driver.get("persistentvolumeclaims", "c")["status"]
    wrong = {"phase": "Pending", "accessModes": None, "capacity": None}
    driver.patch("persistentvolumeclaims", "c", {"status": wrong}, subresource="status")
    assert driver.get("persistentvolumeclaims", "c")["status"] == before


def test_a_bound_claim_grows_where_its_class_allows() -> None:
    driver = Driver()
    storage_class(driver, allowVolumeExpansion=True)
    claim(driver, storageClassName="fast")
    more = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    driver.patch("persistentvolumeclaims", "c", more)
    status = driver.get("persistentvolumeclaims", "c")["status"]
    assert status["capacity"] == {"storage": "3Gi"}


def test_an_ephemeral_volume_has_a_claim_that_goes_with_its_pod() -> None:
    driver = Driver()
    storage_class(driver)
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    own = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [own], "nodeName": "node-1"}
    driver.create("pods", {"metadata": {"name": "user"}, "spec": spec})
    assert phase(driver, "user-scratch") == "Bound"
    driver.run(2)
    driver.delete("pods", "user")
    driver.run(3)
    assert driver.names("persistentvolumeclaims") == []
    assert volumes(driver) == {}


def user_of(driver: Driver, name: str) -> None:
    source = {"persistentVolumeClaim": {"claimName": "c"}}
    spec = {
        "containers": [{"name": "c", "image": "i:1"}],
        "volumes": [{"name": "v", **source}],
        "schedulerName": "none",
    }
    driver.create("pods", {"metadata": {"name": name}, "spec": spec})


def unused(driver: Driver) -> dict[str, Any]:
    """The condition that says whether a pod uses the claim; empty: there is none."""
    conditions = driver.get("persistentvolumeclaims", "c")["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Unused"), {})


def test_a_bound_claim_says_since_when_no_pod_uses_it() -> None:
    driver = Driver(release="1.37", kubelet=None)
    claim(driver)
    assert not unused(driver)
    volume(driver, "v")
    assert phase(driver) == "Bound"
    bound_at = driver.get("persistentvolumeclaims", "c")["metadata"]["creationTimestamp"]
    assert unused(driver) == {
        "type": "Unused",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": bound_at,
        "reason": "NoPodsUsingPVC",
        "message": "No pods are currently referencing this PVC",
    }
    driver.advance(10)
    for name in ("a", "b"):
        user_of(driver, name)
    used = unused(driver)
    assert (used["status"], used["reason"]) == ("False", "PodUsingPVC")
    driver.advance(10)
    driver.report("a", "Succeeded")
    assert unused(driver) == used  # the other one waits for a node, and counts
    driver.delete("pods", "b", grace_period_seconds=0)
    again = unused(driver)
    assert (again["status"], again["reason"]) == ("True", "NoPodsUsingPVC")
    assert again["lastTransitionTime"] > used["lastTransitionTime"]


@pytest.mark.parametrize(
    ("release", "gate"), [("1.36", False), ("1.36", True), ("1.37", True), ("1.37", False)]
)
def test_the_gate_turns_the_condition_on(release: str, *, gate: bool) -> None:
    gates = frozenset({UNUSED_CLAIMS}) if gate else frozenset[str]()
    driver = Driver(release=release, feature_gates=gates, kubelet=None)
    claim(driver)
    volume(driver, "v")
    assert phase(driver) == "Bound"
    assert bool(unused(driver)) == gate


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_a_node_that_is_gone_is_chosen_anew(mode: str) -> None:
    driver = Driver()
    driver.create("persistentvolumeclaims", claim_for("node-9"))
    storage_class(driver, volumeBindingMode=mode)
    driver.run(1)
    found = driver.get("persistentvolumeclaims", "c")
    assert SELECTED_NODE not in (found["metadata"].get("annotations") or {})
    text = 'failed to get target node: node "node-9" not found'
    assert ("Warning", "ProvisioningFailed", text) in driver.events("c")
    waits = mode == "WaitForFirstConsumer"
    assert phase(driver) == ("Pending" if waits else "Bound")
    chosen = {"metadata": {"annotations": {SELECTED_NODE: "node-2"}}}
    driver.patch("persistentvolumeclaims", "c", chosen)
    assert phase(driver) == "Bound"


def claim_for(node_name: str) -> dict[str, Any]:
    spec = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": "c", "annotations": {SELECTED_NODE: node_name}}, "spec": spec}
