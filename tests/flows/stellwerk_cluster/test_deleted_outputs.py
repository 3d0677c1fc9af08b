"""What a controller keeps is put right when another client changes or deletes it."""

from typing import Any

from tests.support.cluster_driver import TEMPLATE, Driver

SERVICE = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


def with_service() -> Driver:
    driver = Driver()
    pod = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": TEMPLATE["spec"]}
    driver.create("pods", pod)
    driver.create("services", SERVICE)
    driver.run(3)
    return driver


def slices(driver: Driver) -> list[Any]:
    found = driver.api.all("endpointslices.discovery.k8s.io", "default")
    return [each for each in found if each["metadata"]["name"].startswith("web-")]


def test_endpoints_come_back() -> None:
    driver = with_service()
    before = driver.get("endpoints", "web")["subsets"]
    assert before[0]["addresses"]
    driver.delete("endpoints", "web")
    assert driver.get("endpoints", "web")["subsets"] == before
    driver.patch("endpoints", "web", {"subsets": None})
    assert driver.get("endpoints", "web")["subsets"] == before


def test_slices_come_back() -> None:
    driver = with_service()
    (before,) = slices(driver)
    driver.delete("endpointslices", before["metadata"]["name"], group="discovery.k8s.io")
    (after,) = slices(driver)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    assert after["endpoints"] == before["endpoints"]
    name = after["metadata"]["name"]
    driver.patch("endpointslices", name, {"endpoints": []}, group="discovery.k8s.io")
    (corrected,) = slices(driver)
    assert corrected["endpoints"] == before["endpoints"]


def test_what_was_kept_for_a_service_goes_with_it() -> None:
    driver = with_service()
    driver.delete("services", "web")
    assert driver.get("endpoints", "web") is None
    assert slices(driver) == []
    assert driver.cluster.work.busy == []


def test_a_namespace_with_a_service_is_emptied() -> None:
    driver = Driver()
    driver.create("namespaces", {"metadata": {"name": "n"}})
    driver.create("services", SERVICE, namespace="n")
    driver.delete("namespaces", "n")
    driver.run(10)
    assert driver.get("namespaces", "n", namespace="") is None


def test_the_claim_of_an_ephemeral_volume_comes_back() -> None:
    driver = Driver()
    request = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": request, "storageClassName": "none"}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    containers = TEMPLATE["spec"]["containers"]
    pod_spec = {"containers": containers, "volumes": [volume]}
    driver.create("pods", {"metadata": {"name": "p"}, "spec": pod_spec})
    before = driver.get("persistentvolumeclaims", "p-v")["metadata"]["uid"]
    driver.patch("persistentvolumeclaims", "p-v", {"metadata": {"finalizers": None}})
    driver.delete("persistentvolumeclaims", "p-v")
    assert driver.get("persistentvolumeclaims", "p-v")["metadata"]["uid"] != before


def test_the_claim_of_a_template_comes_back_under_another_name() -> None:
    driver = Driver()
    request = {"name": "r", "exactly": {"deviceClassName": "gold"}}
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    driver.create("resourceclaimtemplates", template, group="resource.k8s.io")
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    spec = {"resourceClaims": claims, "containers": TEMPLATE["spec"]["containers"]}
    driver.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    (before,) = driver.get("pods", "p")["status"]["resourceClaimStatuses"]
    driver.delete("resourceclaims", before["resourceClaimName"], group="resource.k8s.io")
    (after,) = driver.get("pods", "p")["status"]["resourceClaimStatuses"]
    assert after["resourceClaimName"] != before["resourceClaimName"]
    claim = driver.get("resourceclaims.resource.k8s.io", after["resourceClaimName"])
    assert claim is not None
