"""What is behind a Service: ready pods, others, terminating ones, ports, and many."""

from typing import Any

from stellwerk_cluster.hollow.kubelet import KubeletOptions
from tests.support.cluster_driver import Driver


def pod(driver: Driver, name: str, *, node: str = "node-1", **spec: Any) -> None:
    ports = [{"name": "http", "containerPort": 8080}]
    containers = [{"name": "c", "image": "i", "ports": ports}]
    body = {"metadata": {"name": name, "labels": {"app": "web"}}}
    driver.create("pods", {**body, "spec": {"containers": containers, "nodeName": node, **spec}})


def service(driver: Driver, **spec: Any) -> None:
    ports = [{"port": 80, "targetPort": "http"}]
    given = {"selector": {"app": "web"}, "ports": ports, **spec}
    body = {"metadata": {"name": "web"}, "spec": given}
    driver.create("services", body)


def addresses(driver: Driver) -> list[str]:
    found = driver.get("endpoints", "web").get("subsets") or []
    return [each["targetRef"]["name"] for subset in found for each in subset.get("addresses") or ()]


def endpoints(driver: Driver) -> dict[str, dict[str, bool]]:
    return {
        each["targetRef"]["name"]: each["conditions"]
        for found in driver.api.all("endpointslices.discovery.k8s.io")
        for each in found["endpoints"]
    }


def test_running_pods_are_behind_their_service() -> None:
    driver = Driver()
    service(driver)
    pod(driver, "a")
    pod(driver, "b", node="node-2")
    driver.run(3)
    assert addresses(driver) == ["a", "b"]
    (subset,) = driver.get("endpoints", "web")["subsets"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
    (found,) = driver.api.all("endpointslices.discovery.k8s.io")
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert [each["zone"] for each in found["endpoints"]] == ["zone-a", "zone-b"]
    good = {"ready": True, "serving": True, "terminating": False}
    assert endpoints(driver) == {"a": good, "b": good}


def test_a_terminating_pod_leaves_the_endpoints_before_it_is_gone() -> None:
    driver = Driver(kubelet=KubeletOptions(respect_grace=True))
    service(driver)
    pod(driver, "a")
    driver.run(3)
    driver.delete("pods", "a")
    driver.run(1)
    assert driver.names() == ["a"]
    assert addresses(driver) == []
    assert endpoints(driver)["a"] == {"ready": False, "serving": True, "terminating": True}


def test_a_pod_that_is_not_ready_is_listed_apart() -> None:
    driver = Driver()
    service(driver)
    pod(driver, "a")
    driver.run(3)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    driver.patch("pods", "a", unready, subresource="status")
    driver.run(1)
    (subset,) = driver.get("endpoints", "web")["subsets"]
    assert [each["targetRef"]["name"] for each in subset["notReadyAddresses"]] == ["a"]
    assert endpoints(driver)["a"]["ready"] is False


def test_more_than_a_hundred_pods_need_a_second_slice() -> None:
    driver = Driver()
    service(driver)
    for number in range(105):
        pod(driver, f"p{number:03}")
    driver.run(3)
    sizes = [len(each["endpoints"]) for each in driver.api.all("endpointslices.discovery.k8s.io")]
    assert sorted(sizes) == [5, 100]


def test_what_was_made_for_a_service_goes_with_it() -> None:
    driver = Driver()
    service(driver)
    pod(driver, "a")
    driver.run(3)
    driver.delete("services", "web")
    driver.run(1)
    assert driver.get("endpoints", "web") is None
    assert endpoints(driver) == {}


def test_the_endpoints_of_a_service_without_selector_are_the_users() -> None:
    driver = Driver()
    service(driver, selector=None)
    own = {"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]}
    driver.create("endpoints", own)
    driver.run(2)
    assert driver.get("endpoints", "web")["subsets"][0]["addresses"] == [{"ip": "192.0.2.1"}]
    driver.delete("services", "web")
    driver.run(1)
    assert driver.get("endpoints", "web") is not None
