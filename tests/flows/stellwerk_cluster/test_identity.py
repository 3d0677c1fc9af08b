"""Users, tokens and rights on a served cluster, as clients meet them."""

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.users import User
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.identity.token_file import StaticToken
from stellwerk_kube.clock import VirtualClock
from tests.support.served_cluster import send, send_for_headers, served

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authorization.k8s.io/v1"
TOKENS = (
    StaticToken("admin", User("admin", "1", ("system:masters",))),
    StaticToken("alice", User("alice", "2", ("dev",))),
    StaticToken("node-1", User("system:node:node-1", "3", ("system:nodes",))),
)
ADMIN = "admin"
SPEC = {"containers": [{"name": "c", "image": "registry.example/app:1"}]}


class Client:
    """Sends JSON as one user or another."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str = ADMIN, **headers: str
    ) -> tuple[int, Any]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = send(
            self.cluster.url, method, path, content, {"Content-Type": kind, **sent}
        )
        return status, json.loads(answer)

    def make(self, path: str, body: Any) -> Any:
        status, answer = self.ask("POST", path, body)
        assert status == 201, answer
        return answer

    def grant(self, *rules: dict[str, Any], user: str = "alice", name: str = "granted") -> None:
        self.make(ROLES, {"metadata": {"name": name}, "rules": list(rules)})
        subject = {"kind": "User", "name": user}
        reference = {"kind": "Role", "name": name}
        self.make(
            BINDINGS, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        )

    def token(self, account: str = "robot", **spec: Any) -> str:
        status, answer = self.ask("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
        assert status == 201, answer
        return str(answer["status"]["token"])


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> dict[str, Any]:
    found = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": [group]}
    return {**found, "resourceNames": names.split()} if names else found


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def client(clock: VirtualClock) -> Iterator[Client]:
    options = ClusterOptions(
        controllers=False,
        kubelet=None,
        heartbeats=False,
        identity=IdentityOptions("rbac", tokens=TOKENS),
    )
    with served(EmbeddedCluster(2, clock=clock, options=options)) as cluster:
        yield Client(cluster)


# Authorization.


def test_each_verb_and_resource_is_a_right_of_its_own(client: Client) -> None:
    client.grant(rule("get", "pods", names="x"), rule("patch", "pods/status"))
    client.make(PODS, {"metadata": {"name": "x"}, "spec": SPEC})
    client.make(PODS, {"metadata": {"name": "y"}, "spec": SPEC})
    codes = [
        client.ask("GET", f"{PODS}/x", token="alice")[0],
        client.ask("PATCH", f"{PODS}/y/status", {"status": {}}, token="alice")[0],
        client.ask("GET", f"{PODS}/y", token="alice")[0],
        client.ask("GET", PODS, token="alice")[0],
        client.ask("GET", f"{PODS}/x/status", token="alice")[0],
        client.ask("DELETE", PODS, token="alice")[0],
        client.ask("GET", "/api/v1/namespaces/kube-system/pods/x", token="alice")[0],
    ]
    assert codes == [200, 200, 403, 403, 403, 403, 403]


def test_a_list_of_one_name_is_a_right_to_that_name(client: Client) -> None:
    client.grant(rule("list watch", "pods", names="x"))
    assert client.ask("GET", f"{PODS}?fieldSelector=metadata.name=x", token="alice")[0] == 200
    assert client.ask("GET", f"{PODS}?fieldSelector=metadata.name=y", token="alice")[0] == 403


def test_a_right_ends_with_its_binding(client: Client) -> None:
    client.grant(rule("list", "pods"))
    assert client.ask("GET", PODS, token="alice")[0] == 200
    client.ask("DELETE", f"{BINDINGS}/granted")
    assert client.ask("GET", PODS, token="alice")[0] == 403


def test_a_role_that_is_missing_is_named_in_the_refusal(client: Client) -> None:
    subject = {"kind": "Group", "name": "dev"}
    for name, kind in (("one", "Role"), ("two", "ClusterRole")):
        reference = {"kind": kind, "name": "nope"}
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        client.make(BINDINGS, body)
    message = client.ask("GET", PODS, token="alice")[1]["message"]
    assert message.startswith('pods is forbidden: User "alice" cannot list resource "pods" in API')
    assert 'role.rbac.authorization.k8s.io "nope" not found' in message
    assert 'clusterrole.rbac.authorization.k8s.io "nope" not found' in message


def test_an_update_that_creates_needs_the_right_to_create(client: Client) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    client.grant(rule("update", "leases", "coordination.k8s.io"))
    lease = {"metadata": {"name": "x"}, "spec": {"holderIdentity": "a"}}
    status, answer = client.ask("PUT", f"{leases}/x", lease, token="alice")
    assert status == 403
    assert 'cannot create resource "leases"' in answer["message"]


def test_an_apply_that_creates_needs_the_right_to_create(client: Client) -> None:
    client.grant(rule("patch", "configmaps"))
    path = "/api/v1/namespaces/default/configmaps/x"
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    headers = {"Authorization": "Bearer alice", "Content-Type": "application/apply-patch+yaml"}
    url = f"{path}?fieldManager=alice"
    status, answer = send(client.cluster.url, "PATCH", url, body.encode(), headers)
    assert status == 403
    assert b"cannot create resource" in answer
    client.make("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "x"}})
    assert send(client.cluster.url, "PATCH", url, body.encode(), headers)[0] == 200


def test_the_right_to_a_path_is_checked_before_the_path(client: Client) -> None:
    assert client.ask("GET", "/apis/a.example/v1/nosuch", token="alice")[0] == 403
    assert client.ask("OPTIONS", PODS, token="alice")[0] == 403


# Giving rights away.


def test_a_user_gives_no_right_that_it_lacks(client: Client) -> None:
    client.grant(
        rule("create update patch", "roles rolebindings", "rbac.authorization.k8s.io"),
        rule("get", "pods"),
    )
    mine = {"metadata": {"name": "mine"}, "rules": [rule("get", "pods")]}
    assert client.ask("POST", ROLES, mine, token="alice")[0] == 201
    more = {"metadata": {"name": "more"}, "rules": [rule("get list", "pods nodes")]}
    status, answer = client.ask("POST", ROLES, more, token="alice")
    assert status == 403
    assert answer["message"] == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "alice" (groups=["dev" '
        '"system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}'
    )
    patch = {"rules": [rule("*", "*")]}
    assert client.ask("PATCH", f"{ROLES}/mine", patch, token="alice")[0] == 403


def test_a_role_is_bound_by_who_holds_it_or_may_bind_it(client: Client) -> None:
    client.grant(rule("create", "rolebindings", "rbac.authorization.k8s.io"))
    view = {
        "metadata": {"name": "bound"},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
    }
    assert client.ask("POST", BINDINGS, view, token="alice")[0] == 403
    missing = {"metadata": {"name": "m"}, "roleRef": {"kind": "Role", "name": "none"}}
    assert client.ask("POST", BINDINGS, missing, token="alice")[0] == 404
    right = {**rule("bind", "clusterroles", "rbac.authorization.k8s.io", "cluster-admin")}
    client.make(f"{RBAC}/clusterroles", {"metadata": {"name": "binder"}, "rules": [right]})
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    everywhere = {
        "metadata": {"name": "binder"},
        "roleRef": {"kind": "ClusterRole", "name": "binder"},
        "subjects": [subject],
    }
    client.make(f"{RBAC}/clusterrolebindings", everywhere)
    assert client.ask("POST", BINDINGS, view, token="alice")[0] == 201


def test_who_may_escalate_gives_what_it_likes(client: Client) -> None:
    client.grant(rule("create escalate", "roles", "rbac.authorization.k8s.io"))
    all_of_it = {"metadata": {"name": "all"}, "rules": [rule("*", "*", "*")]}
    assert client.ask("POST", ROLES, all_of_it, token="alice")[0] == 201


# Impersonation.


def whoami(client: Client, **headers: str) -> tuple[int, Any]:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    status, answer = client.ask("POST", path, {}, **headers)
    return status, answer["status"]["userInfo"] if status == 201 else answer["message"]


def test_the_admin_acts_as_others(client: Client) -> None:
    assert whoami(client, Impersonate_User="bob") == (
        201,
        {"username": "bob", "groups": ["system:authenticated"]},
    )
    _status, robot = whoami(client, Impersonate_User="system:serviceaccount:default:robot")
    assert robot["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    _status, detailed = whoami(
        client,
        Impersonate_User="bob",
        Impersonate_Group="ops",
        Impersonate_Uid="7",
        Impersonate_Extra_Team="red",
    )
    assert detailed == {
        "username": "bob",
        "uid": "7",
        "groups": ["ops", "system:authenticated"],
        "extra": {"team": ["red"]},
    }
    assert client.ask("GET", PODS, Impersonate_User="bob")[0] == 403


def test_each_part_of_an_impersonation_is_a_right(client: Client) -> None:
    name = "impersonator"
    role = {"metadata": {"name": name}, "rules": [rule("impersonate", "users", "", "bob")]}
    client.make(f"{RBAC}/clusterroles", role)
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    client.make(f"{RBAC}/clusterrolebindings", binding)
    assert whoami(client, token="alice", Impersonate_User="bob")[0] == 201
    status, message = whoami(client, token="alice", Impersonate_User="carol")
    assert status == 403
    assert message == (
        'users "carol" is forbidden: User "alice" cannot impersonate resource "users" in API group '
        '"" at the cluster scope'
    ), "the mode that worked last is the one whose refusal is shown"
    for more in (
        {"Impersonate_Group": "x"},
        {"Impersonate_Uid": "1"},
        {"Impersonate_Extra_a": "b"},
    ):
        assert whoami(client, token="alice", Impersonate_User="bob", **more)[0] == 403
    status, message = whoami(client, Impersonate_Group="x")
    assert status == 400
    assert message.endswith(
        'Groups:[]string{"x"}, Extra:map[string][]string(nil)} without impersonating a user name'
    )


def test_a_constrained_impersonation_is_for_one_act(client: Client) -> None:
    status, answer = client.ask("GET", PODS, token="alice", Impersonate_User="bob")
    assert status == 403
    assert answer["message"] == (
        'pods is forbidden: User "alice" cannot impersonate-on:user-info:list resource "pods" in '
        'API group "" in the namespace "default"'
    )
    users = rule("impersonate:user-info", "users", "authentication.k8s.io", "bob")
    body = {
        "metadata": {"name": "c"},
        "rules": [users, rule("impersonate-on:user-info:list", "pods")],
    }
    client.make(f"{RBAC}/clusterroles", body)
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": "c"}
    binding = {"metadata": {"name": "c"}, "roleRef": reference, "subjects": [subject]}
    client.make(f"{RBAC}/clusterrolebindings", binding)
    client.grant(rule("list get", "pods"), user="bob")
    assert client.ask("GET", PODS, token="alice", Impersonate_User="bob")[0] == 200
    assert client.ask("GET", f"{PODS}/x", token="alice", Impersonate_User="bob")[0] == 403


def test_accounts_and_nodes_have_modes_of_their_own(client: Client) -> None:
    for user, mode in (
        ("system:serviceaccount:default:robot", "serviceaccount"),
        ("system:node:node-1", "arbitrary-node"),
    ):
        _status, answer = client.ask("GET", PODS, token="alice", Impersonate_User=user)
        assert f"cannot impersonate-on:{mode}:list" in answer["message"]


# Tokens of service accounts.


def test_a_token_is_its_account(client: Client) -> None:
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    token = client.token()
    status, user = whoami(client, token=token)
    assert status == 201
    assert user["username"] == "system:serviceaccount:default:robot"
    review = client.make("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert review["status"]["user"]["username"] == user["username"]
    client.ask("DELETE", f"{ACCOUNTS}/robot")
    assert whoami(client, token=token)[0] == 401
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert whoami(client, token=token)[0] == 401, "the name alone is not the account"


def test_a_token_expires(client: Client, clock: VirtualClock) -> None:
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    token = client.token(expirationSeconds=600)
    assert whoami(client, token=token)[0] == 201
    clock.advance(timedelta(seconds=601).total_seconds())
    assert whoami(client, token=token)[0] == 401


def test_a_token_is_good_for_its_audience_alone(client: Client) -> None:
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    token = client.token(audiences=["vault"])
    assert whoami(client, token=token)[0] == 401
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    for audiences, good in (["vault"], True), (["other"], False):
        review = client.make(path, {"spec": {"token": token, "audiences": audiences}})
        assert review["status"].get("authenticated", False) is good


def test_a_token_ends_with_its_pod(client: Client) -> None:
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    pod = {"metadata": {"name": "p"}, "spec": {**SPEC, "serviceAccountName": "robot"}}
    client.make(PODS, pod)
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = client.token(boundObjectRef=reference)
    _status, user = whoami(client, token=token)
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    client.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert whoami(client, token=token)[0] == 401


def test_only_what_exists_is_bound_to(client: Client) -> None:
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    client.make(PODS, {"metadata": {"name": "p"}, "spec": SPEC})
    path = f"{ACCOUNTS}/robot/token"
    for kind, name, uid, expected in (
        ("Pod", "none", "", 404),
        ("Pod", "p", "", 400),
        ("Node", "node-1", "x", 409),
        ("Dog", "p", "", 400),
    ):
        reference = {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}
        body = {"spec": {"boundObjectRef": reference}}
        assert client.ask("POST", path, body)[0] == expected, kind


def test_forged_tokens_open_nothing(client: Client) -> None:
    client.make(ACCOUNTS, {"metadata": {"name": "robot"}})
    head, claims, signature = client.token().split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    for forged in (
        f"{none}.{claims}.",
        f"{head}.{claims}.{signature[:-4]}AAAA",
        "a.b.c",
        "..",
        "x",
    ):
        assert whoami(client, token=forged)[0] == 401


# Kubelets.


def test_a_kubelet_reads_what_its_pods_refer_to(client: Client) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    for name in ("mine", "other"):
        client.make(secrets, {"metadata": {"name": name}})
    volume = {"name": "v", "secret": {"secretName": "mine"}}
    spec = {**SPEC, "nodeName": "node-1", "volumes": [volume]}
    client.make(PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert client.ask("GET", f"{secrets}/mine", token="node-1")[0] == 200
    status, answer = client.ask("GET", f"{secrets}/other", token="node-1")
    assert status == 403
    assert "no relationship found between node 'node-1' and this object" in answer["message"]
    assert client.ask("GET", secrets, token="node-1")[0] == 403


@pytest.mark.parametrize(
    ("verb", "subject"), [("delete", '"node-1"'), ("evict", "node-1")], ids=["delete", "evict"]
)
def test_a_kubelet_ends_the_pods_of_its_own_node(client: Client, verb: str, subject: str) -> None:
    answers = []
    for name in ("node-2", "node-1"):
        client.make(PODS, {"metadata": {"name": name}, "spec": {**SPEC, "nodeName": name}})
        path = f"{PODS}/{name}"
        if verb == "delete":
            answers.append(client.ask("DELETE", path, token="node-1"))
        else:
            eviction = {"metadata": {"name": name}}
            answers.append(client.ask("POST", f"{path}/eviction", eviction, token="node-1"))
    (refused, refusal), (ended, _pod) = answers
    assert refused == 403
    assert refusal["message"] == (
        f'pods "node-2" is forbidden: node {subject} can only {verb} pods '
        "with spec.nodeName set to itself"
    )
    assert ended in {200, 201}
    assert "deletionTimestamp" not in client.ask("GET", f"{PODS}/node-2")[1]["metadata"]


def test_a_kubelet_makes_the_lease_and_the_csi_node_of_its_name_alone(client: Client) -> None:
    client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    codes = [
        client.ask("POST", path, {"metadata": {"name": name}, "spec": spec}, token="node-1")[0]
        for path, spec in (
            (leases, {"holderIdentity": "node-1"}),
            ("/apis/storage.k8s.io/v1/csinodes", {"drivers": []}),
        )
        for name in ("another", "node-1")
    ]
    assert codes == [403, 201, 403, 201]


def test_a_kubelet_writes_about_its_own_node(client: Client) -> None:
    patch: dict[str, Any] = {"status": {"nodeInfo": {}}}
    for name, expected in (("node-1", 200), ("node-2", 403)):
        path = f"/api/v1/nodes/{name}/status"
        assert client.ask("PATCH", path, patch, token="node-1")[0] == expected
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert client.ask("PATCH", "/api/v1/nodes/node-1", taint, token="node-1")[0] == 403


# Neighbours.


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        pytest.param("Host", "rebound.example", 403, id="a name that was led here"),
        pytest.param("Host", "rebound.example:80", 403, id="with a port"),
        pytest.param("Host", "", 403, id="no host"),
        pytest.param("Host", "localhost:1", 200, id="this machine"),
        pytest.param("Host", "[::1]:1", 200, id="an address"),
        pytest.param("Origin", "https://page.example", 403, id="a page of another site"),
        pytest.param("Origin", "null", 403, id="a page of nowhere"),
    ],
)
def test_web_pages_are_not_served(client: Client, header: str, value: str, expected: int) -> None:
    headers = {"Authorization": "Bearer admin", header: value}
    assert send(client.cluster.url, "GET", "/version", None, headers)[0] == expected


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_what_forms_can_send_is_not_read(client: Client, media_type: str) -> None:
    headers = {"Authorization": "Bearer admin", "Content-Type": media_type}
    body = json.dumps({"metadata": {"name": "x"}, "spec": SPEC}).encode()
    for method, path in (
        ("POST", PODS),
        ("PUT", f"{PODS}/x"),
        ("PATCH", "/api/v1/nodes/node-1"),
        ("DELETE", "/api/v1/nodes/node-1"),
        ("POST", f"{PODS}/x/binding"),
    ):
        assert send(client.cluster.url, method, path, body, headers)[0] == 415, method


def test_without_rules_clients_show_their_token() -> None:
    options = ClusterOptions(identity=IdentityOptions(anonymous=False, tokens=TOKENS))
    with served(EmbeddedCluster(1, options=options)) as cluster:
        client = Client(cluster)
        assert client.ask("GET", PODS, token="alice")[0] == 200
        assert client.ask("GET", PODS, token=cluster.identity.admin_token)[0] == 200
        assert client.ask("GET", PODS, token="wrong")[0] == 401
        status, body, headers = send_for_headers(cluster.url, "GET", PODS)
        assert (status, json.loads(body)["reason"]) == (401, "Unauthorized")
        assert headers["Content-Type"] == "application/json"


# --- devices ------------------------------------------------------------------------------------


def test_devices_are_given_by_those_who_may_bind_claims(client: Client) -> None:
    group = "resource.k8s.io"
    claims = f"/apis/{group}/v1/namespaces/default/resourceclaims"
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "r", "exactly": exactly}]
    spec = {"devices": {"requests": requests}}
    client.make(claims, {"metadata": {"name": "c"}, "spec": spec})
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}
    given = {"status": {"allocation": {"devices": {"results": [result]}}}}
    client.grant(rule("get patch", "resourceclaims/status", group))
    status, answer = client.ask("PATCH", f"{claims}/c/status", given, token="alice")
    assert status == 403
    assert "requires the right to update or patch resourceclaims/binding" in answer["message"]
    client.grant(rule("patch", "resourceclaims/binding", group), name="binding")
    status, answer = client.ask("PATCH", f"{claims}/c/status", given, token="alice")
    assert status == 200, answer
