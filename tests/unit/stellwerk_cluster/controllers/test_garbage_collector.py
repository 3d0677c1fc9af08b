"""Owners and dependents: every propagation policy, owners that are gone, and several owners."""

from itertools import pairwise
from typing import Any

import pytest

from stellwerk_cluster.identity.service_accounts import ROOT_CERTIFICATE
from tests.support.cluster_driver import Driver


def make(driver: Driver, name: str, *owners: str, block: bool = False, **metadata: Any) -> None:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner,
            "uid": driver.get("configmaps", owner)["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
        }
        for owner in owners
    ]
    given = {"ownerReferences": references} if references else {}
    driver.create("configmaps", {"metadata": {"name": name, **given, **metadata}})


def names(driver: Driver) -> set[str]:
    """Names in the namespace default, without what every namespace has."""
    found = [each["metadata"]["name"] for each in driver.api.all("configmaps", "default")]
    return set(found) - {ROOT_CERTIFICATE}


def owners_of(driver: Driver, name: str) -> list[str]:
    metadata = driver.get("configmaps", name)["metadata"]
    return [each["name"] for each in metadata.get("ownerReferences") or ()]


@pytest.mark.parametrize("propagation", ["Background", "Foreground", ""])
def test_dependents_of_dependents_go_along(propagation: str) -> None:
    driver = Driver()
    make(driver, "a")
    make(driver, "b", "a", block=True)
    make(driver, "c", "b", block=True)
    driver.delete("configmaps", "a", propagation=propagation)
    assert names(driver) == set()


def test_orphans_stay_and_forget_their_owner() -> None:
    driver = Driver()
    make(driver, "a")
    make(driver, "b", "a")
    driver.delete("configmaps", "a", propagation="Orphan")
    assert names(driver) == {"b"}
    assert owners_of(driver, "b") == []


@pytest.mark.parametrize("block", [True, False])
def test_an_owner_in_the_foreground_waits_for_those_that_block_it(block: bool) -> None:  # noqa: FBT001
    driver = Driver()
    make(driver, "a")
    make(driver, "b", "a", block=block, finalizers=["example.com/hold"])
    driver.delete("configmaps", "a", propagation="Foreground")
    assert ("a" in names(driver)) is block
    assert "deletionTimestamp" in driver.get("configmaps", "b")["metadata"]
    driver.patch("configmaps", "b", {"metadata": {"finalizers": None}})
    assert names(driver) == set()


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_second_owner_keeps_a_dependent_which_forgets_the_first(propagation: str) -> None:
    driver = Driver()
    make(driver, "a")
    make(driver, "b")
    make(driver, "c", "a", "b", block=True)
    driver.delete("configmaps", "a", propagation=propagation)
    assert names(driver) == {"b", "c"}
    assert owners_of(driver, "c") == ["b"]


def test_an_object_whose_owner_never_existed_goes() -> None:
    driver = Driver()
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"}
    driver.create("configmaps", {"metadata": {"name": "c", "ownerReferences": [reference]}})
    assert names(driver) == set()


def test_an_owner_of_another_namespace_is_none() -> None:
    driver = Driver()
    driver.create("namespaces", {"metadata": {"name": "other"}})
    make(driver, "a")
    uid = driver.get("configmaps", "a")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid}
    body = {"metadata": {"name": "c", "ownerReferences": [reference]}}
    driver.create("configmaps", body, namespace="other")
    assert driver.get("configmaps", "c", "other") is None
    (event,) = driver.api.all("events", "other")
    assert event["reason"] == "OwnerRefInvalidNamespace"


def test_an_object_that_is_given_an_absent_owner_later_goes() -> None:
    driver = Driver()
    make(driver, "a")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-uid"}
    driver.patch("configmaps", "a", {"metadata": {"ownerReferences": [reference]}})
    assert names(driver) == set()


def test_a_circle_of_owners_goes_when_one_of_them_is_deleted() -> None:
    driver = Driver()
    make(driver, "a")
    make(driver, "b", "a")
    uid = driver.get("configmaps", "b")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": uid}
    driver.patch("configmaps", "a", {"metadata": {"ownerReferences": [reference]}})
    driver.delete("configmaps", "a", propagation="Foreground")
    assert names(driver) == set()


def test_the_pods_of_a_job_stay_unless_the_request_says_otherwise() -> None:
    driver = Driver()
    containers = [{"name": "c", "image": "i:1"}]
    pod = {"nodeName": "node-1", "restartPolicy": "Never", "containers": containers}
    driver.create("jobs", {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}, "batch")
    driver.delete("jobs", "j", "batch")
    driver.run(2)
    assert driver.get("jobs.batch", "j") is None
    assert len(driver.pods()) == 1


@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_circle_of_owners_that_block_each_other_goes(length: int) -> None:
    driver = Driver()
    circle = [f"p{place}" for place in range(length)]
    make(driver, circle[0])
    for before, name in pairwise(circle):
        make(driver, name, before, block=True)
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": circle[-1],
        "uid": driver.get("configmaps", circle[-1])["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    driver.patch("configmaps", circle[0], {"metadata": {"ownerReferences": [reference]}})
    driver.delete("configmaps", circle[0], propagation="Foreground")
    assert names(driver) == set()


@pytest.mark.parametrize("references", ["unblocked", "none"])
def test_an_owner_that_waits_goes_when_its_dependent_lets_it(references: str) -> None:
    driver = Driver()
    make(driver, "a")
    make(driver, "b", "a", block=True, finalizers=["example.com/hold"])
    driver.delete("configmaps", "a", propagation="Foreground")
    assert names(driver) == {"a", "b"}
    [owner] = driver.get("configmaps", "b")["metadata"]["ownerReferences"]
    left = [{**owner, "blockOwnerDeletion": False}] if references == "unblocked" else None
    driver.patch("configmaps", "b", {"metadata": {"ownerReferences": left}})
    assert names(driver) == {"b"}
