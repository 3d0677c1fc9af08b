from typing import Any

import pytest

from stellwerk_cluster.apimachinery.names import path_segment_errors
from stellwerk_cluster.validation.access_rules import (
    validate_cluster_role,
    validate_cluster_role_binding,
    validate_role,
    validate_role_binding,
    validate_role_binding_update,
)

GROUP = "rbac.authorization.k8s.io"
READ = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


def binding(kind: str = "Role", name: str = "r", *subjects: Any) -> dict[str, Any]:
    reference = {"apiGroup": GROUP, "kind": kind, "name": name}
    return {"roleRef": reference, "subjects": list(subjects)}


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        pytest.param(READ, [], id="a right"),
        pytest.param({**READ, "verbs": []}, ["verbs"], id="no verb"),
        pytest.param({"verbs": ["get"]}, ["apiGroups", "resources"], id="of nothing"),
        pytest.param({"verbs": ["get"], "nonResourceURLs": ["/"]}, ["nonResourceURLs"], id="a URL"),
    ],
)
def test_rules_of_roles(rule: dict[str, Any], fields: list[str]) -> None:
    found = [error.field for error in validate_role({"rules": [rule]})]
    assert found == [f"rules[0].{field}" for field in fields]


def test_cluster_roles_may_speak_of_urls_alone() -> None:
    url = {"verbs": ["get"], "nonResourceURLs": ["/"]}
    assert validate_cluster_role({"rules": [url]}) == []
    (error,) = validate_cluster_role({"rules": [{**READ, **url}]})
    assert "both regular resources and non-resource URLs" in error.message


def test_a_sum_names_what_it_sums_up() -> None:
    (error,) = validate_cluster_role({"aggregationRule": {}})
    assert error.field == "aggregationRule.clusterRoleSelectors"


@pytest.mark.parametrize(
    ("subject", "fields"),
    [
        pytest.param({"kind": "User", "name": "a", "apiGroup": GROUP}, [], id="a user"),
        pytest.param({"kind": "ServiceAccount", "name": "a"}, [], id="an account beside it"),
        pytest.param({"kind": "User", "name": "a", "apiGroup": ""}, ["apiGroup"], id="no group"),
        pytest.param({"kind": "Dog", "name": "a"}, ["kind"], id="no such kind"),
        pytest.param({"kind": "Group", "apiGroup": GROUP}, ["name"], id="no name"),
        pytest.param({"kind": "ServiceAccount", "name": "A"}, ["name"], id="no account's name"),
    ],
)
def test_subjects_of_bindings(subject: dict[str, Any], fields: list[str]) -> None:
    found = [error.field for error in validate_role_binding(binding("Role", "r", subject))]
    assert found == [f"subjects[0].{field}" for field in fields]


def test_bindings_of_the_cluster_name_cluster_roles_and_namespaces() -> None:
    account = {"kind": "ServiceAccount", "name": "a"}
    errors = validate_cluster_role_binding(binding("Role", "r", account))
    assert [error.field for error in errors] == ["roleRef.kind", "subjects[0].namespace"]


def test_a_binding_keeps_its_role() -> None:
    (error,) = validate_role_binding_update(binding(name="new"), binding(name="old"), "")
    assert error.field == "roleRef"
    assert '"Name":"new"' in error.message


@pytest.mark.parametrize("name", [".", "..", "a/b", "a%b"])
def test_names_are_segments_of_a_path(name: str) -> None:
    assert path_segment_errors(name)
    assert not path_segment_errors("system:Node:x.y")
