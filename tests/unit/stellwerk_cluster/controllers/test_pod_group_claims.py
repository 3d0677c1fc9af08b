"""Claims of a group: made once, shared by its pods, given up with the group."""

from pathlib import Path
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS, feature_gates
from stellwerk_cluster.registry.data_directory import DataDirectory
from tests.support.cluster_driver import Driver

OFF = {"1.36": "GenericWorkload=true,GangScheduling=true", "1.37": "GenericWorkload=true"}
ON = {release: f"{gates},DRAWorkloadResourceClaims=true" for release, gates in OFF.items()}
GROUP, DEVICES = "scheduling.k8s.io", "resource.k8s.io"
REFERENCE = {"name": "gpus", "resourceClaimTemplateName": "t"}
SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
TEMPLATE = {"metadata": {"name": "t"}, "spec": {"spec": SPEC}}


def group(*claims: dict[str, str]) -> dict[str, Any]:
    policy = {"gang": {"minCount": 2}}
    return {
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": policy, "resourceClaims": list(claims)},
    }


def member(name: str, *claims: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "i:1"}],
            "schedulingGroup": {"podGroupName": "g"},
            "resourceClaims": list(claims),
        },
    }


@pytest.fixture
def driver() -> Driver:
    made = Driver(feature_gates=GANGS | {CLAIMS}, kubelet=None)
    made.create("resourceclaimtemplates", TEMPLATE, DEVICES)
    return made


def claims(driver: Driver) -> list[str]:
    found = driver.api.all("resourceclaims.resource.k8s.io")
    return [each["metadata"]["name"] for each in found]


def claim_of(driver: Driver, pod: str) -> str:
    (status,) = driver.get("pods", pod)["status"]["resourceClaimStatuses"]
    return str(status["resourceClaimName"])


@pytest.mark.parametrize("group_first", [True, False])
def test_pods_with_the_group_s_reference_share_its_claim(
    driver: Driver, *, group_first: bool
) -> None:
    if group_first:
        driver.create("podgroups", group(REFERENCE), GROUP)
    for name in ("a", "b"):
        driver.create("pods", member(name, REFERENCE))
    if not group_first:
        # Without the group each pod has had a claim made for itself, and keeps it.
        assert len(claims(driver)) == 2
        return
    (name,) = claims(driver)
    assert name.startswith("g-gpus-")
    assert {claim_of(driver, each) for each in ("a", "b")} == {name}


def test_a_reference_of_another_name_is_the_pod_s_own(driver: Driver) -> None:
    driver.create("podgroups", group(REFERENCE), GROUP)
    driver.create("pods", member("a", {**REFERENCE, "name": "other"}))
    assert len(claims(driver)) == 2
    assert claim_of(driver, "a").startswith("a-other-")


def test_the_claim_follows_when_its_template_is_made(driver: Driver) -> None:
    driver.delete("resourceclaimtemplates", "t", DEVICES)
    driver.create("podgroups", group(REFERENCE), GROUP)
    driver.create("pods", member("a", REFERENCE))
    assert claims(driver) == []
    driver.create("resourceclaimtemplates", TEMPLATE, DEVICES)
    driver.run(5)
    assert claims(driver) == [claim_of(driver, "a")]


def test_what_the_group_has_reserved_is_given_up_with_it(driver: Driver) -> None:
    named = {"name": "gpus", "resourceClaimName": "shared"}
    driver.create("resourceclaims", {"metadata": {"name": "shared"}, "spec": SPEC}, DEVICES)
    driver.create("podgroups", group(named), GROUP)
    uid = driver.get("podgroups.scheduling.k8s.io", "g")["metadata"]["uid"]
    consumer = {"apiGroup": GROUP, "resource": "podgroups", "name": "g", "uid": uid}
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    driver.patch("resourceclaims", "shared", {"status": status}, DEVICES, subresource="status")
    assert driver.get("resourceclaims.resource.k8s.io", "shared")["status"]["reservedFor"] == [
        consumer
    ]
    driver.delete("podgroups", "g", GROUP)
    assert driver.get("resourceclaims.resource.k8s.io", "shared")["status"] == {}


def test_a_made_claim_goes_with_the_group(driver: Driver) -> None:
    driver.create("podgroups", group(REFERENCE), GROUP)
    driver.delete("podgroups", "g", GROUP)
    driver.run(5)
    assert claims(driver) == []


@pytest.mark.parametrize(("release", "made"), [("1.36", True), ("1.37", False)])
def test_without_the_gate_a_pod_gets_no_claim_of_its_own_for_one_of_its_group(
    release: str, tmp_path: Path, *, made: bool
) -> None:
    on, off = feature_gates(ON[release], release), feature_gates(OFF[release], release)
    directory = DataDirectory(tmp_path)
    before = Driver(release=release, feature_gates=on, kubelet=None, data_directory=directory)
    before.create("resourceclaimtemplates", TEMPLATE, DEVICES)
    before.create("podgroups", group(REFERENCE), GROUP)
    directory.close()
    directory = DataDirectory(tmp_path)
    after = Driver(release=release, feature_gates=off, kubelet=None, data_directory=directory)
    own = {"name": "own", "resourceClaimTemplateName": "t"}
    after.create("pods", member("a", REFERENCE, own))
    statuses = after.get("pods", "a")["status"].get("resourceClaimStatuses") or []
    assert {each["name"] for each in statuses} == ({"gpus", "own"} if made else {"own"})
    directory.close()
