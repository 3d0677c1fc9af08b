"""The rights that the manifests give, and which of them a running operator uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.apimachinery.users import User
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.identity.authorizer import Decision, Union
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.identity.service_tokens import Issue
from tests.support.repository import ROOT

NAMESPACE = ACCOUNT = "stellwerk"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}

Right = tuple[str, str, str]
"""Group, resource and verb."""


def access_manifests() -> list[JsonObject]:
    """What `kubectl apply -f manifests/` applies before the Deployment."""
    texts = [
        (ROOT / "manifests" / name).read_text() for name in ("00-namespace.yaml", "10-rbac.yaml")
    ]
    return [each for text in texts for each in yaml.safe_load_all(text)]


def apply_access(cluster: EmbeddedCluster, manifests: list[JsonObject]) -> str:
    """Apply the manifests; returns a token of the operator's service account."""
    api = cluster.api
    for each in manifests:
        group = RBAC_GROUP if "rbac" in each["apiVersion"] else ""
        kind = api.kinds.resource(PLURALS[each["kind"]], group)
        api.create(kind, each["metadata"].get("namespace", ""), each)
    return token_of(cluster, ACCOUNT)


def token_of(cluster: EmbeddedCluster, name: str) -> str:
    """A token of a service account beside the operator's own."""
    account = cluster.api.find("serviceaccounts", NAMESPACE, name)
    assert account is not None
    tokens = cluster.identity.authenticator.tokens
    return tokens.issue(Issue(account, ("https://kubernetes.default.svc",), 3600))[0]


def rules_of_operator(manifest: JsonObject) -> list[JsonObject]:
    """The rules of the ClusterRole and the Role that the operator runs under; others have none."""
    rules: list[JsonObject] = manifest.get("rules", [])
    return rules if manifest["metadata"]["name"] == ACCOUNT else []


def granted() -> set[Right]:
    """Every right of the ClusterRole and the Role, one by one."""
    return {
        (group, resource, verb)
        for role in access_manifests()
        for rule in rules_of_operator(role)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Asked:
    """What the operator asked for: what it was allowed, and what it was refused."""

    def __init__(self) -> None:
        self.allowed: set[Right] = set()
        self.refused: set[Right] = set()


@contextmanager
def asked_rights(patches: pytest.MonkeyPatch) -> Iterator[Asked]:
    """Note every decision about the operator's service account."""
    asked, decide = Asked(), Union.decide

    def noting(self: Union, user: User, act: Attributes) -> Decision:
        decision = decide(self, user, act)
        if user.name == USER and not act.path:
            right = (act.group, act.full_resource, act.verb)
            (asked.allowed if decision.allowed else asked.refused).add(right)
        return decision

    with patches.context() as patched:
        patched.setattr(Union, "decide", noting)
        yield asked


def with_token(kubeconfig: str, token: str) -> str:
    """The text of a kubeconfig with another token."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig)
    config["users"][0]["user"] = {"token": token}
    return yaml.safe_dump(config)
