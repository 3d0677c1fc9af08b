"""The rights that the manifests give, and which of them a running operator uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from stellwerk_cluster.apimachinery.users import User
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.identity.authorizer import AuthorizerDecision, Union
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.identity.service_tokens import TokenSpec
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject
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

ENFORCED: Final = IdentityOptions("rbac")
"""Of clusters on which the operator has the rights that the manifests give, and no other."""
TESTERS: Final[JsonObject] = {
    "metadata": {"name": "testers"},
    "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": "system:anonymous"}],
}
"""Clients of tests that show no credentials may do everything."""

_OF_NAMESPACE: Final = 2
"""Parts of a path that name a resource and an object, or a namespace."""

Right = tuple[str, str, str]
"""Group, resource and verb."""


def access_manifests() -> list[JsonObject]:
    """What `kubectl apply -f manifests/` applies before the Deployment."""
    manifests: list[JsonObject] = orjson.loads(_access_manifests())
    return manifests


@cache
def _access_manifests() -> bytes:
    """The same as JSON, which is read many times as fast."""
    texts = [
        (ROOT / "manifests" / name).read_text() for name in ("00-namespace.yaml", "10-rbac.yaml")
    ]
    return orjson.dumps([each for text in texts for each in yaml.safe_load_all(text)])


def apply_access(cluster: EmbeddedCluster, manifests: list[JsonObject]) -> str:
    """Apply the manifests; returns a token of the operator's service account."""
    api = cluster.api
    for each in manifests:
        group = RBAC_GROUP if "rbac" in each["apiVersion"] else ""
        kind = api.kinds.resource(PLURALS[each["kind"]], group)
        api.create(kind, each["metadata"].get("namespace", ""), each)
    return token_of(cluster, ACCOUNT)


def operator_token(cluster: EmbeddedCluster) -> str:
    """A token for the operator, whose service account and rights are there from the first call on.

    The cluster has to be ENFORCED: with any other, a flow would show nothing about rights.
    """
    assert cluster.options.identity.authorization == "rbac", "the flow shows nothing about rights"
    if cluster.api.find("serviceaccounts", NAMESPACE, ACCOUNT) is None:
        kind = cluster.api.kinds.resource("clusterrolebindings", RBAC_GROUP)
        cluster.api.create(kind, "", dict(TESTERS))
        apply_access(cluster, access_manifests())
    return token_of(cluster, ACCOUNT)


def write_operator_kubeconfig(cluster: EmbeddedCluster, path: Path) -> None:
    """The kubeconfig of the operator's service account."""
    cluster.write_kubeconfig(path)
    path.write_text(with_token(path.read_text(), operator_token(cluster)))


def token_of(cluster: EmbeddedCluster, name: str, namespace: str = NAMESPACE) -> str:
    """A token of a service account beside the operator's own."""
    account = cluster.api.find("serviceaccounts", namespace, name)
    assert account is not None
    tokens = cluster.identity.authenticator.tokens
    return tokens.issue(TokenSpec(account, ("https://kubernetes.default.svc",), 3600))[0]


def rules_of_operator(manifest: JsonObject) -> list[JsonObject]:
    """The rules of the ClusterRole and the Role that the operator runs under; others have none."""
    rules: list[JsonObject] = manifest.get("rules", [])
    return rules if manifest["metadata"]["name"] == ACCOUNT else []


@cache
def granted() -> frozenset[Right]:
    """Every right of the ClusterRole and the Role, one by one."""
    return rights_in(access_manifests())


def rights_in(manifests: list[JsonObject]) -> frozenset[Right]:
    """Every right that manifests give to the operator's account by a role of its name."""
    return frozenset(
        (group, resource, verb)
        for role in manifests
        for rule in rules_of_operator(role)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def check_granted(verb: str, path: str) -> None:
    """Refuse a request to a path that the manifests give no right to, as the API server would.

    Raises:
        ApiError: they do not (403).
    """
    if right_of(verb, path) not in granted():
        raise ApiError(f"{verb} {path}", 403, "Forbidden", "the manifests give no right to it")


@cache
def right_of(verb: str, path: str) -> Right:
    """The right that a request needs."""
    parts = path.partition("?")[0].strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > _OF_NAMESPACE:
        rest = rest[2:]
    resource = rest[0] if len(rest) <= _OF_NAMESPACE else f"{rest[0]}/{rest[2]}"
    return group, resource, verb


class Asked:
    """What the operator asked for: what it was allowed, and what it was refused."""

    def __init__(self) -> None:
        self.allowed: set[Right] = set()
        self.refused: set[Right] = set()
        self.paths: set[tuple[str, str]] = set()
        """(verb, path) of what is no resource, such as discovery."""


@contextmanager
def asked_rights(patches: pytest.MonkeyPatch, account: str = ACCOUNT) -> Iterator[Asked]:
    """Note every decision about a service account, by default the operator's."""
    name = f"system:serviceaccount:{NAMESPACE}:{account}"
    asked, decide = Asked(), Union.decide

    def noting(self: Union, user: User, act: Attributes) -> AuthorizerDecision:
        decision = decide(self, user, act)
        if user.name == name and act.path:
            asked.paths.add((act.verb, act.path))
        elif user.name == name:
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


READER: Final = "reader"
"""The service account of `kubeconfig_of_reader`."""


def list_rules(*groups_and_resources: tuple[str, list[str]]) -> list[JsonObject]:
    """Rules of a role that may only list."""
    return [
        {"apiGroups": [group], "resources": resources, "verbs": ["list"]}
        for group, resources in groups_and_resources
    ]


def kubeconfig_of_reader(cluster: EmbeddedCluster, path: Path, allowed: list[JsonObject]) -> str:
    """The kubeconfig of an account with these rights and no others."""
    api, metadata = cluster.api, {"name": READER}
    apply_access(cluster, access_manifests())
    role = {"kind": "ClusterRole", "name": READER, "apiGroup": RBAC_GROUP}
    account = {"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}
    api.create(api.kinds.resource("serviceaccounts"), NAMESPACE, {"metadata": dict(metadata)})
    for plural, fields in (
        ("clusterroles", {"rules": allowed}),
        ("clusterrolebindings", {"roleRef": role, "subjects": [account]}),
    ):
        kind = api.kinds.resource(plural, RBAC_GROUP)
        api.create(kind, "", {"metadata": dict(metadata), **fields})
    cluster.write_kubeconfig(path)
    path.write_text(with_token(path.read_text(), token_of(cluster, READER)))
    return str(path)


def observer_manifests() -> list[JsonObject]:
    """What `manifests/overlays/observe` leaves of the access manifests: its roles replace two."""
    folder = ROOT / "manifests" / "overlays" / "observe"
    roles = {
        each["kind"]: each
        for each in (
            yaml.safe_load((folder / f"{name}.yaml").read_text())
            for name in ("cluster-role", "role")
        )
    }
    return [roles[each["kind"]] if rules_of_operator(each) else each for each in access_manifests()]
