"""The defaults of the tables, on types that have them."""

from typing import Any

from stellwerk_kube.schema.defaults import fill_defaults, has_defaults


def test_what_is_missing_is_filled_in_and_the_rest_is_kept() -> None:
    spec: dict[str, Any] = {"replicas": 0, "strategy": {}}
    fill_defaults("DeploymentSpec", spec)
    assert spec == {
        "replicas": 0,
        "strategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }


def test_the_parts_of_lists_and_of_structs_are_filled_in() -> None:
    pod: dict[str, Any] = {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}
    fill_defaults("PodSpec", pod)
    (container,) = pod["containers"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert pod["securityContext"] == {}


def test_a_struct_that_is_a_default_is_fresh_and_filled_in_itself() -> None:
    sets: list[dict[str, Any]] = [{}, {}]
    for each in sets:
        fill_defaults("StatefulSetSpec", each)
    policies = [each["persistentVolumeClaimRetentionPolicy"] for each in sets]
    assert policies[0] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert policies[0] is not policies[1]


def test_fields_are_filled_in_by_their_numbers() -> None:
    spec: dict[str, Any] = {}
    fill_defaults("CronJobSpec", spec)
    assert list(spec) == [
        "concurrencyPolicy",
        "suspend",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ]


def test_a_second_pass_changes_nothing() -> None:
    spec: dict[str, Any] = {}
    fill_defaults("StatefulSetSpec", spec)
    again = {**spec}
    fill_defaults("StatefulSetSpec", again)
    assert again == spec


def test_a_type_has_defaults_if_one_that_it_leads_to_has() -> None:
    assert has_defaults("Deployment")
    assert not has_defaults("Namespace")
