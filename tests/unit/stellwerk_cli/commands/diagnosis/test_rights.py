"""The rights that doctor looks for are those of the manifests, and rules are read as RBAC does."""

import pytest

from stellwerk_cli.commands.diagnosis.rights import CALLER_RIGHTS, Rules, operator_rights
from stellwerk_cli.commands.diagnosis.survey import Right, right_of
from stellwerk_kube.json_values import JsonObject
from tests.support.rights import (
    access_manifests,
    observer_manifests,
    rights_in,
    rules_of_operator,
)

NAMESPACE = "stellwerk"
DELEGATED = {
    ("tokenreviews", "create"),
    ("subjectaccessreviews", "create"),
    ("configmaps", "get"),
}
"""Rights of roles that every cluster has, such as system:auth-delegator."""
CHOSEN = {("secrets", "get")}
"""Secrets of extenders: an installation may have none."""


@pytest.mark.parametrize("observes", [False, True], ids=["scheduler", "observer"])
def test_the_table_is_that_of_the_manifests(*, observes: bool) -> None:
    wanted = {
        (each.group, each.resource, each.verb)
        for each in operator_rights(NAMESPACE, (NAMESPACE, "stellwerk"), observes=observes)
    }
    granted = rights_in(observer_manifests() if observes else access_manifests())
    assert {each for each in wanted - granted if each[1:] not in DELEGATED} == set()
    assert {each for each in granted - wanted if each[1:] not in CHOSEN} == set()


def test_the_rules_of_the_manifests_allow_every_right() -> None:
    cluster: list[JsonObject] = []
    own: list[JsonObject] = []
    for role in access_manifests():
        place = cluster if role["kind"] == "ClusterRole" else own
        place += rules_of_operator(role)
    rules = Rules({"": cluster, NAMESPACE: own})
    wanted = operator_rights(NAMESPACE, (NAMESPACE, "stellwerk"))
    missing = {(each.resource, each.verb) for each in wanted if not rules.allow(each)}
    assert missing == DELEGATED


@pytest.mark.parametrize(
    ("rule", "right", "allowed"),
    [
        pytest.param({"resources": ["pods"]}, Right("get", "pods"), True, id="the resource"),
        pytest.param({"resources": ["pods"]}, Right("get", "pods/log"), False, id="no subresource"),
        pytest.param({"resources": ["*"]}, Right("get", "pods/log"), True, id="every resource"),
        pytest.param({"resources": ["*/log"]}, Right("get", "pods/log"), True, id="every log"),
        pytest.param({"resources": ["pods"]}, Right("list", "pods"), False, id="another verb"),
        pytest.param(
            {"resources": ["pods"], "verbs": ["*"]}, Right("list", "pods"), True, id="every verb"
        ),
        pytest.param(
            {"resources": ["leases"], "resourceNames": ["a"]},
            Right("get", "leases", name="b"),
            False,
            id="another name",
        ),
        pytest.param(
            {"resources": ["leases"], "resourceNames": ["a"]},
            Right("get", "leases", name="a"),
            True,
            id="the name",
        ),
        pytest.param(
            {"resources": ["pods"], "apiGroups": ["apps"]}, Right("get", "pods"), False, id="group"
        ),
    ],
)
def test_rules_are_read_as_rbac_reads_them(
    rule: JsonObject, right: Right, *, allowed: bool
) -> None:
    given = {"verbs": ["get"], "apiGroups": [""], **rule}
    assert Rules({"": [given]}).allow(right) == allowed


def test_rules_of_a_namespace_count_there_alone() -> None:
    rules = Rules({"a": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]})
    assert rules.allow(Right("get", "pods", namespace="a"))
    assert not rules.allow(Right("get", "pods", namespace="b"))
    assert not rules.allow(Right("get", "pods"))


def test_the_roles_that_are_advised_grant_their_paths() -> None:
    roles = {
        each["metadata"]["name"]: each
        for each in access_manifests()
        if each["kind"] == "ClusterRole"
    }
    for verb, path, role in CALLER_RIGHTS:
        granted = {
            (each, url)
            for rule in roles[role]["rules"]
            for each in rule["verbs"]
            for url in rule.get("nonResourceURLs", ())
        }
        assert (verb, path) in granted or (verb, f"/{path.split('/')[1]}/*") in granted


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/pods?fieldSelector=a%3Db", "list pods"),
        ("/api/v1/namespaces/team/pods/web/log?tailLines=1", "list pods/log web in namespace team"),
        ("/apis/apps/v1/namespaces/team/deployments", "list deployments in namespace team"),
        ("/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles", "list schedulerprofiles"),
        ("/apis/scheduling.stellwerk.dev/v1alpha1", "list /apis/scheduling.stellwerk.dev/v1alpha1"),
    ],
)
def test_a_right_is_named_by_its_request(path: str, words: str) -> None:
    assert str(right_of("list", path)) == words
