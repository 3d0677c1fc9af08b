"""A group that is deleted stays as long as pods use it."""

from typing import Any

from stellwerk_cluster.apimachinery.feature_gates import GANGS, feature_gates
from stellwerk_cluster.apimachinery.releases import runtime_config
from stellwerk_cluster.controllers.index import Index
from stellwerk_cluster.controllers.pod_group_protection import PodGroupProtectionController
from stellwerk_cluster.work import WorkLoop
from tests.support.cluster_driver import Driver

GROUP = "scheduling.k8s.io"
GANG: dict[str, Any] = {
    "metadata": {"name": "g"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


def member(name: str, group: str = "g") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node-1",
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i:1"}],
            "schedulingGroup": {"podGroupName": group},
        },
    }


def driver_with_gang() -> Driver:
    driver = Driver(feature_gates=GANGS, kubelet=None)
    driver.create("podgroups", GANG, GROUP)
    return driver


def groups(driver: Driver) -> list[str]:
    found = driver.api.all("podgroups.scheduling.k8s.io")
    return [each["metadata"]["name"] for each in found]


def test_an_unused_group_goes_at_once() -> None:
    driver = driver_with_gang()
    driver.create("pods", member("a", "another"))
    driver.delete("podgroups", "g", GROUP)
    assert groups(driver) == []


def test_a_group_stays_until_its_last_pod_has_ended() -> None:
    driver = driver_with_gang()
    for name in ("a", "b"):
        driver.create("pods", member(name))
    driver.delete("podgroups", "g", GROUP)
    assert groups(driver) == ["g"]
    driver.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    assert groups(driver) == ["g"]
    driver.delete("pods", "b", grace_period_seconds=0)
    assert groups(driver) == []


def test_a_group_of_that_name_in_another_namespace_is_another_one() -> None:
    driver = driver_with_gang()
    driver.create("namespaces", {"metadata": {"name": "other"}})
    driver.create("pods", member("a"), namespace="other")
    driver.delete("podgroups", "g", GROUP)
    assert groups(driver) == []


def test_pods_that_were_there_before_the_controller_count() -> None:
    driver = Driver(feature_gates=GANGS, controllers=False, kubelet=None)
    driver.create("podgroups", GANG, GROUP)
    driver.create("pods", member("a"))
    driver.delete("podgroups", "g", GROUP)
    loop = WorkLoop([PodGroupProtectionController(driver.api, Index(driver.api))])
    loop.settle()
    assert groups(driver) == ["g"]
    driver.delete("pods", "a", grace_period_seconds=0)
    loop.settle()
    assert groups(driver) == []


REFERENCE = {"workloadName": "w", "templateName": "t"}


def composite(name: str, parent: str = "", **spec: Any) -> dict[str, Any]:
    policy = {"gang": {"minGroupCount": 2}}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    own = {"schedulingPolicy": policy, "workloadRef": REFERENCE, **above, **spec}
    return {"metadata": {"name": name}, "spec": own}


def driver_with_tree() -> Driver:
    gates = feature_gates("CompositePodGroup=true,TopologyAwareWorkloadScheduling=true", "1.38")
    served = runtime_config("scheduling.k8s.io/v1beta1=true", {"scheduling.k8s.io/v1beta1"})
    driver = Driver(release="1.38", feature_gates=gates, runtime_config=served, kubelet=None)
    driver.create("compositepodgroups", composite("root"), GROUP)
    driver.create("compositepodgroups", composite("inner", "root"), GROUP)
    leaf = {**GANG["spec"], "workloadRef": REFERENCE, "parentCompositePodGroupName": "inner"}
    driver.create("podgroups", {"metadata": {"name": "leaf"}, "spec": leaf}, GROUP)
    return driver


def test_a_parent_goes_after_its_children() -> None:
    driver = driver_with_tree()

    def parents() -> list[str]:
        found = driver.api.all("compositepodgroups.scheduling.k8s.io")
        return sorted(each["metadata"]["name"] for each in found)

    root = driver.get("compositepodgroups.scheduling.k8s.io", "root")
    finalizers = root["metadata"]["finalizers"]
    assert finalizers == ["scheduling.k8s.io/compositepodgroup-protection"]
    driver.delete("compositepodgroups", "root", GROUP)
    driver.delete("compositepodgroups", "inner", GROUP)
    assert parents() == ["inner", "root"]
    driver.delete("podgroups", "leaf", GROUP)
    assert parents() == []


def test_a_parent_without_children_goes_at_once() -> None:
    driver = driver_with_tree()
    driver.create("compositepodgroups", composite("alone"), GROUP)
    driver.delete("compositepodgroups", "alone", GROUP)
    assert driver.api.find("compositepodgroups.scheduling.k8s.io", "default", "alone") is None
