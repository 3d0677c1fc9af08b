"""A Job whose pods run all at once is a gang, where the gate WorkloadWithJob is on."""

from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.feature_gates import GANGS, JOBS
from tests.support.cluster_driver import Driver

WORKLOADS = "workloads.scheduling.k8s.io"
POD_GROUPS = "podgroups.scheduling.k8s.io"


def job(name: str = "j", size: int = 3, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i:1"}
    return {
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": size,
            "completions": size,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }


@pytest.fixture
def driver() -> Driver:
    return Driver(feature_gates=GANGS | {JOBS}, kubelet=None)


def groups_of_pods(driver: Driver) -> set[str | None]:
    pods = driver.api.all("pods")
    return {(pod["spec"].get("schedulingGroup") or {}).get("podGroupName") for pod in pods}


def test_a_gang_gets_a_workload_a_group_and_pods_that_name_it(driver: Driver) -> None:
    driver.create("jobs", job(), "batch")
    (workload,), (group,) = driver.api.all(WORKLOADS), driver.api.all(POD_GROUPS)
    policy = {"gang": {"minCount": 3}}
    assert workload["metadata"]["name"].startswith("j-")
    assert workload["spec"]["controllerRef"] == {"apiGroup": "batch", "kind": "Job", "name": "j"}
    (template,) = workload["spec"]["podGroupTemplates"]
    assert (template["name"], template["schedulingPolicy"]) == ("j-pgt-0", policy)
    assert group["spec"]["schedulingPolicy"] == policy
    owners = group["metadata"]["ownerReferences"]
    assert [(each["kind"], each.get("controller", False)) for each in owners] == [
        ("Job", True),
        ("Workload", False),
    ]
    assert groups_of_pods(driver) == {group["metadata"]["name"]}
    reasons = [each["reason"] for each in driver.api.all("events")]
    assert reasons.count("WorkloadCreated") == 1


def test_a_pod_that_is_made_anew_belongs_to_the_same_group(driver: Driver) -> None:
    driver.create("jobs", job(), "batch")
    pods = list(driver.api.all("pods"))
    driver.patch(
        "pods", pods[0]["metadata"]["name"], {"status": {"phase": "Failed"}}, subresource="status"
    )
    driver.run(15)
    assert len(list(driver.api.all("pods"))) == 4
    assert len(groups_of_pods(driver)) == 1
    assert len(list(driver.api.all(POD_GROUPS))) == 1


def test_deleting_the_job_takes_workload_and_group_along(driver: Driver) -> None:
    driver.create("jobs", job(), "batch")
    driver.delete("jobs", "j", "batch", propagation="Background")
    driver.run(5)
    assert [*driver.api.all(WORKLOADS), *driver.api.all(POD_GROUPS)] == []


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(job(size=1), id="one pod is no gang"),
        pytest.param(job(completions=5), id="not all pods run at once"),
        pytest.param(job(completionMode="NonIndexed"), id="pods without index"),
    ],
)
def test_other_jobs_have_no_group(driver: Driver, made: dict[str, Any]) -> None:
    driver.create("jobs", made, "batch")
    assert groups_of_pods(driver) == {None}
    assert list(driver.api.all(WORKLOADS)) == []


def test_a_group_in_the_template_is_left_alone(driver: Driver) -> None:
    made = job()
    made["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    driver.create("jobs", made, "batch")
    assert groups_of_pods(driver) == {"mine"}
    assert list(driver.api.all(WORKLOADS)) == []


def test_a_workload_that_names_the_job_and_is_not_its_own_keeps_it_ungrouped(
    driver: Driver,
) -> None:
    template = {"name": "t", "schedulingPolicy": {"basic": {}}}
    reference = {"apiGroup": "batch", "kind": "Job", "name": "j"}
    foreign = {
        "metadata": {"name": "w"},
        "spec": {"controllerRef": reference, "podGroupTemplates": [template]},
    }
    driver.create("workloads", foreign, "scheduling.k8s.io")
    driver.create("jobs", job(), "batch")
    assert groups_of_pods(driver) == {None}


def test_the_size_of_a_gang_does_not_change(driver: Driver) -> None:
    driver.create("jobs", job(), "batch")
    with pytest.raises(StatusError, match=r"forbidden: spec\.parallelism: field is immutable"):
        driver.patch("jobs", "j", {"spec": {"parallelism": 2}}, "batch")


def test_without_the_gate_a_job_is_as_ever() -> None:
    driver = Driver(feature_gates=GANGS, kubelet=None)
    driver.create("jobs", job(), "batch")
    assert groups_of_pods(driver) == {None}
    driver.patch("jobs", "j", {"spec": {"parallelism": 2}}, "batch")


def test_a_long_name_is_cut(driver: Driver) -> None:
    driver.create("jobs", job("j" * 60), "batch")
    (group,) = driver.api.all(POD_GROUPS)
    assert groups_of_pods(driver) == {group["metadata"]["name"]}
