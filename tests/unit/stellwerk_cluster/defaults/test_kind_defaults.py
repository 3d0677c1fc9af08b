from typing import Any

import pytest

from stellwerk_cluster.apimachinery.conversion import from_storage, to_storage
from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
from stellwerk_cluster.registry.kind_strategy import strategy_of
from stellwerk_kube.schema.decoder import decode


def defaulted(type_name: str, body: dict[str, Any]) -> dict[str, Any]:
    obj, unknown = decode(type_name, body)
    assert unknown == []
    strategy_of(type_name).default(obj)
    return obj


def test_a_cron_job_keeps_what_it_says_and_gets_the_rest() -> None:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}
    spec = defaulted(
        "CronJob",
        {"spec": {"schedule": "@daily", "suspend": True, "jobTemplate": template}},
    )["spec"]
    assert (spec["suspend"], spec["concurrencyPolicy"]) == (True, "Allow")
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    assert spec["jobTemplate"]["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"podSelector": {}}, ["Ingress"], id="no rules"),
        pytest.param({"podSelector": {}, "egress": [{}]}, ["Ingress", "Egress"], id="outwards"),
        pytest.param(
            {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]}, ["Egress"], id="named"
        ),
    ],
)
def test_a_network_policy_is_about_the_directions_it_has_rules_for(
    spec: dict[str, Any], expected: list[str]
) -> None:
    assert defaulted("NetworkPolicy", {"spec": spec})["spec"]["policyTypes"] == expected


def test_users_and_groups_belong_to_the_group_of_access_rules_and_accounts_do_not() -> None:
    subjects = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]
    body = {"roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects}
    binding = defaulted("RoleBinding", body)
    assert binding["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    assert [each.get("apiGroup") for each in binding["subjects"]] == [
        "rbac.authorization.k8s.io",
        None,
    ]


def autoscalers(version: str) -> ResourceKind:
    found = KindTable().find("autoscaling", version, "horizontalpodautoscalers")
    assert found is not None
    return found


def test_an_autoscaler_in_version_1_keeps_its_target_through_the_store() -> None:
    body = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v1",
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70},
    }
    kind = autoscalers("v1")
    stored = to_storage(kind, decode(kind.type_name, body)[0])
    assert "targetCPUUtilizationPercentage" not in stored["spec"]
    shown = from_storage(kind, stored)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 70
    assert from_storage(autoscalers("v2"), stored) is stored
