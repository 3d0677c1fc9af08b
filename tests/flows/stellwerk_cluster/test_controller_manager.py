"""The embedded API answers what kube-controller-manager 1.36 asks for at its start.

There is no recording of it: discovery, lists and watches are those of its informers (its
`InformerFactory`, read in the source of 1.36.2), in the form of client-go 1.36. Those that it asks
for only with a feature gate, or for a kind that no API server serves by default, are left out.
"""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.repository import ROOT
from tests.support.served_cluster import send, send_for_headers, served

INFORMERS = {
    "api/v1": "configmaps endpoints namespaces nodes persistentvolumeclaims persistentvolumes pods "
    "replicationcontrollers resourcequotas secrets serviceaccounts services",
    "apis/admissionregistration.k8s.io/v1": "validatingadmissionpolicies",
    "apis/apps/v1": "controllerrevisions daemonsets deployments replicasets statefulsets",
    "apis/autoscaling/v2": "horizontalpodautoscalers",
    "apis/batch/v1": "cronjobs jobs",
    "apis/certificates.k8s.io/v1": "certificatesigningrequests",
    "apis/coordination.k8s.io/v1": "leases",
    "apis/discovery.k8s.io/v1": "endpointslices",
    "apis/networking.k8s.io/v1": "ipaddresses servicecidrs",
    "apis/policy/v1": "poddisruptionbudgets",
    "apis/rbac.authorization.k8s.io/v1": "clusterroles",
    "apis/resource.k8s.io/v1": "deviceclasses resourceclaims resourceclaimtemplates resourceslices",
    "apis/storage.k8s.io/v1": "csidrivers csinodes storageclasses volumeattachments "
    "volumeattributesclasses",
}
PATHS = [f"/{group}/{plural}" for group, plurals in INFORMERS.items() for plural in plurals.split()]
AGENT = "kube-controller-manager/v1.36.2 (linux/amd64) kubernetes/98b3519/shared-informers"
PROTOBUF = "application/vnd.kubernetes.protobuf,application/json"
METADATA = (
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)
LISTING = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    with served(EmbeddedCluster(1, options=options)) as cluster:
        yield cluster.url


def fetch(url: str, path: str, accept: str = "application/json") -> Any:
    status, body = send(url, "GET", path, headers={"Accept": accept, "User-Agent": AGENT})
    assert status == 200, (path, body)
    return json.loads(body)


def initial_events(url: str, path: str, accept: str) -> list[dict[str, Any]]:
    """The events of a watch up to the bookmark that ends the initial ones."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    query = f"{LISTING}&resourceVersion=0&timeout=7m11s&timeoutSeconds=431&watch=true"
    connection.request("GET", f"{path}?{query}", headers={"Accept": accept, "User-Agent": AGENT})
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.read())
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != "BOOKMARK":
        events.append(json.loads(answer.readline()))
    connection.close()
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    return events[:-1]


def test_it_waits_for_a_server_that_is_well_and_knows_its_groups(url: str) -> None:
    assert send(url, "GET", "/readyz")[0] == send(url, "GET", "/healthz")[0] == 200
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = {each["metadata"]["name"] for each in fetch(url, "/apis", aggregated)["items"]}
    named = {group.split("/")[1] for group in INFORMERS if group != "api/v1"}
    assert named <= groups
    assert {"apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"} <= groups


@pytest.mark.parametrize("path", PATHS)
def test_every_informer_lists_and_watches(url: str, path: str) -> None:
    status, _body = send(
        url, "GET", f"{path}?limit=500&resourceVersion=0", headers={"Accept": PROTOBUF}
    )
    assert status == 200
    listed = fetch(url, path)
    events = initial_events(url, path, "application/json")
    assert [event["object"]["metadata"]["name"] for event in events] == [
        each["metadata"]["name"] for each in listed["items"]
    ]


def test_metadata_of_everything_that_can_be_deleted_is_watched(url: str) -> None:
    """The garbage collector and quotas follow all that discovery names."""
    paths = [
        f"/{version}/{each['name']}"
        for version in ["api/v1", *_group_versions(url)]
        for each in fetch(url, f"/{version}")["resources"]
        if {"list", "watch", "delete"} <= set(each["verbs"]) and "/" not in each["name"]
    ]
    assert len(paths) > len(PATHS)
    for path in paths:
        for event in initial_events(url, path, METADATA):
            assert event["object"]["kind"] == "PartialObjectMetadata", path


def _group_versions(url: str) -> list[str]:
    groups = fetch(url, "/apis")["groups"]
    return [f"apis/{each['groupVersion']}" for group in groups for each in group["versions"]]


def test_its_authentication_is_configured_over_plain_http(url: str) -> None:
    data = fetch(url, AUTHENTICATION)["data"]
    assert json.loads(data["requestheader-username-headers"]) == ["X-Remote-User"]
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]
    for key in ("client-ca-file", "requestheader-client-ca-file"):
        assert data[key].startswith("-----BEGIN CERTIFICATE-----")


def test_its_cleaner_of_tokens_finds_since_when_their_use_is_noted(url: str) -> None:
    name = "kube-apiserver-legacy-service-account-token-tracking"
    data = fetch(url, f"/api/v1/namespaces/kube-system/configmaps/{name}")["data"]
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", data["since"])


def test_roles_of_controllers_are_there_whether_or_not_rights_are_enforced(url: str) -> None:
    roles = {each["metadata"]["name"] for each in fetch(url, f"{RBAC}/clusterroles")["items"]}
    assert {"cluster-admin", "system:kube-controller-manager"} <= roles
    assert "system:controller:job-controller" in roles
    binding = fetch(url, f"{RBAC}/clusterrolebindings/system:controller:job-controller")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "job-controller", "namespace": "kube-system"}
    ]
    role = fetch(url, f"{RBAC}/namespaces/kube-system/roles/system:controller:token-cleaner")
    assert role["rules"][0]["resources"] == ["secrets"]


# Kinds that are only stored.

SPECS: dict[str, dict[str, Any]] = {
    "apiservices": {
        "spec": {"group": "a.example", "version": "v1", "groupPriorityMinimum": 1000}
        | {"versionPriority": 15, "service": {"name": "s", "namespace": "default"}}
    },
    "certificatesigningrequests": {
        "spec": {"request": "YQ==", "signerName": "a.example/signer", "usages": ["client auth"]}
    },
    "flowschemas": {"spec": {"priorityLevelConfiguration": {"name": "x"}}},
    "ipaddresses": {"spec": {"parentRef": {"resource": "services", "name": "s"}}},
    "mutatingadmissionpolicies": {
        "spec": {
            "matchConstraints": {},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
            "reinvocationPolicy": "Never",
        }
    },
    "mutatingadmissionpolicybindings": {"spec": {"policyName": "p"}},
    "mutatingwebhookconfigurations": {"webhooks": []},
    "prioritylevelconfigurations": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "servicecidrs": {"spec": {"cidrs": ["10.96.0.0/16"]}},
    "validatingadmissionpolicies": {"spec": {"matchConstraints": {}}},
    "validatingadmissionpolicybindings": {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    "validatingwebhookconfigurations": {
        "webhooks": [
            {
                "name": "w.example.com",
                "clientConfig": {"service": {"name": "s", "namespace": "default"}},
                "rules": [
                    {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"]}
                    | {"resources": ["*"]}
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ]
    },
    "volumeattributesclasses": {"driverName": "d.example.com", "parameters": {"a": "b"}},
}
INERT = {kind.plural: kind for kind in built_in_kinds() if kind.inert}


def test_every_kind_that_is_only_stored_is_tried_and_documented() -> None:
    assert INERT.keys() == SPECS.keys()
    text = (ROOT / "docs/embedded-cluster.md").read_text()
    assert [kind.kind for kind in INERT.values() if f"`{kind.kind}`" not in text] == []


@pytest.mark.parametrize("plural", SPECS)
def test_each_write_of_a_kind_that_is_only_stored_says_so(url: str, plural: str) -> None:
    kind = INERT[plural]
    path = f"/apis/{kind.api_version}/{plural}"
    name = "10.0.7.7" if plural == "ipaddresses" else "stored"
    body = {"metadata": {"name": name}, **SPECS[plural]}
    headers = {"Content-Type": "application/json", "User-Agent": AGENT}
    for method, place, content in (
        ("POST", path, json.dumps(body).encode()),
        ("PATCH", f"{path}/{name}", b'{"metadata": {"labels": {"a": "b"}}}'),
        ("GET", f"{path}/{name}", None),
        ("DELETE", f"{path}/{name}", None),
    ):
        patch = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        status, answer, found = send_for_headers(url, method, place, content, headers | patch)
        assert status in (200, 201), answer
        warnings = found.get_all("Warning") or []
        assert (
            f'299 - "nothing in this cluster acts on {kind.qualified_resource}"' in warnings
        ) == (method != "GET")


@pytest.mark.parametrize(
    ("plural", "wrong", "field"),
    [
        ("certificatesigningrequests", {"spec": {"request": "YQ=="}}, "spec.signerName"),
        ("flowschemas", {"spec": {"matchingPrecedence": 10001}}, "spec.matchingPrecedence"),
        ("validatingadmissionpolicybindings", {"spec": {"policyName": "p"}}, "validationActions"),
        ("volumeattributesclasses", {"parameters": {"a": "b"}}, "driverName"),
        ("apiservices", {"spec": {"version": "v1", "groupPriorityMinimum": 1}}, "versionPriority"),
    ],
)
def test_what_the_tables_demand_is_demanded(
    url: str, plural: str, wrong: dict[str, Any], field: str
) -> None:
    body = json.dumps({"metadata": {"name": "wrong"}, **wrong}).encode()
    headers = {"Content-Type": "application/json"}
    status, answer = send(url, "POST", f"/apis/{INERT[plural].api_version}/{plural}", body, headers)
    assert status == 422
    assert any(each["field"].endswith(field) for each in json.loads(answer)["details"]["causes"])


def test_defaults_of_a_webhook_are_those_of_the_api_server(url: str) -> None:
    kind = INERT["validatingwebhookconfigurations"]
    body = {"metadata": {"name": "defaults"}, **SPECS[kind.plural]}
    headers = {"Content-Type": "application/json"}
    path = f"/apis/{kind.api_version}/{kind.plural}"
    _status, answer = send(url, "POST", path, json.dumps(body).encode(), headers)
    (webhook,) = json.loads(answer)["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["timeoutSeconds"] == 10
    assert webhook["namespaceSelector"] == webhook["objectSelector"] == {}
    assert webhook["rules"][0]["scope"] == "*"
    assert webhook["clientConfig"]["service"]["port"] == 443
