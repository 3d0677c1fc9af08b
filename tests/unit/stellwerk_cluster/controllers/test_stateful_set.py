"""StatefulSets: order, ordinals, partitions, claims and who they go with."""

from typing import Any

import pytest

from tests.support.cluster_driver import TEMPLATE, Driver

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def start(driver: Driver, replicas: int = 3, **spec: Any) -> None:
    body = {
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "web"}},
            "template": TEMPLATE,
            **spec,
        },
    }
    driver.create("statefulsets", body, "apps")


def change(driver: Driver, **spec: Any) -> None:
    driver.patch("statefulsets", "db", {"spec": spec}, "apps")


def set_image(driver: Driver, image: str) -> None:
    change(driver, template={"spec": {"containers": [{"name": "c", "image": image}]}})


def images(driver: Driver) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in driver.pods()}


def test_pods_come_one_after_the_other_and_go_from_the_end() -> None:
    driver = Driver()
    start(driver)
    assert driver.names() == ["db-0"]
    driver.run(3)
    assert driver.names() == ["db-0", "db-1", "db-2"]
    change(driver, replicas=1)
    driver.advance(0.6)
    assert driver.names() == ["db-0", "db-1"]
    driver.run(2)
    assert driver.names() == ["db-0"]
    assert driver.get("statefulsets.apps", "db")["status"]["replicas"] == 1


def test_parallel_pods_come_at_once() -> None:
    driver = Driver()
    start(driver, podManagementPolicy="Parallel")
    assert driver.names() == ["db-0", "db-1", "db-2"]


def test_ordinals_begin_where_the_set_says() -> None:
    driver = Driver()
    start(driver, 2, ordinals={"start": 5})
    driver.run(3)
    assert driver.names() == ["db-5", "db-6"]


def test_a_rolling_update_goes_down_to_the_partition_and_no_further() -> None:
    driver = Driver()
    start(driver, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    driver.run(4)
    old = TEMPLATE["spec"]["containers"][0]["image"]
    set_image(driver, "i:2")
    driver.run(6)
    assert images(driver) == {"db-0": old, "db-1": old, "db-2": "i:2"}
    driver.delete("pods", "db-0")
    driver.run(4)
    assert images(driver)["db-0"] == old
    status = driver.get("statefulsets.apps", "db")["status"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    assert status["currentRevision"] != status["updateRevision"]
    change(driver, updateStrategy={"rollingUpdate": {"partition": 0}})
    driver.run(10)
    assert set(images(driver).values()) == {"i:2"}
    status = driver.get("statefulsets.apps", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def test_a_pod_that_is_not_ready_holds_up_the_update() -> None:
    driver = Driver()
    start(driver, 2)
    driver.run(4)
    change(driver, template={"spec": {"containers": [{"name": "c", "image": "i:2"}]}})
    driver.advance(0.6)
    changes = [name for name, image in images(driver).items() if image == "i:2"]
    assert changes == ["db-1"]
    assert len(images(driver)) == 2


def test_each_pod_has_claims_of_its_own_that_outlive_it() -> None:
    driver = Driver()
    start(driver, 2, volumeClaimTemplates=[CLAIM], podManagementPolicy="Parallel")
    driver.run(2)
    assert driver.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]
    volumes = driver.get("pods", "db-1")["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"]["claimName"] == "data-db-1"
    change(driver, replicas=0)
    driver.run(3)
    driver.delete("statefulsets", "db", "apps")
    driver.run(2)
    assert driver.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]


def kept_claims(driver: Driver) -> list[str]:
    return [
        claim["metadata"]["name"]
        for claim in driver.api.all("persistentvolumeclaims")
        if "deletionTimestamp" not in claim["metadata"]
    ]


@pytest.mark.parametrize(
    ("policy", "after_scaling", "after_deletion"),
    [
        ({"whenScaled": "Delete"}, ["data-db-0"], ["data-db-0"]),
        ({"whenDeleted": "Delete"}, ["data-db-0", "data-db-1"], []),
        ({"whenScaled": "Delete", "whenDeleted": "Delete"}, ["data-db-0"], []),
    ],
)
def test_claims_go_with_what_the_retention_policy_says(
    policy: dict[str, str], after_scaling: list[str], after_deletion: list[str]
) -> None:
    driver = Driver()
    parallel = {"podManagementPolicy": "Parallel", "volumeClaimTemplates": [CLAIM]}
    start(driver, 2, persistentVolumeClaimRetentionPolicy=policy, **parallel)
    driver.run(2)
    change(driver, replicas=1)
    driver.run(3)
    assert kept_claims(driver) == after_scaling
    driver.delete("statefulsets", "db", "apps")
    driver.run(3)
    assert kept_claims(driver) == after_deletion
