"""Service accounts of namespaces and pods, and roles that sum up others, on a whole cluster."""

from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject

RBAC = "rbac.authorization.k8s.io"
PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def cluster() -> EmbeddedCluster:
    identity = IdentityOptions("rbac", service_accounts=True)
    made = EmbeddedCluster(
        1, clock=VirtualClock(), options=ClusterOptions(identity=identity, tls=True)
    )
    made.work.settle()
    return made


def create(cluster: EmbeddedCluster, plural: str, name: str, group: str = "", **fields: Any) -> Any:
    kind = cluster.api.kinds.resource(plural, group)
    namespace = "default" if kind.namespaced else ""
    return cluster.api.create(kind, namespace, {"metadata": {"name": name}, **fields}).obj


def create_pod(cluster: EmbeddedCluster, **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    pod: JsonObject = create(cluster, "pods", "p", spec={"containers": containers, **spec})
    return pod


def test_every_namespace_has_an_account_and_the_certificate(cluster: EmbeddedCluster) -> None:
    create(cluster, "namespaces", "new")
    cluster.work.settle()
    for namespace in ("default", "kube-system", "new"):
        assert cluster.api.find("serviceaccounts", namespace, "default") is not None
        published = cluster.api.find("configmaps", namespace, "kube-root-ca.crt")
        assert published is not None
        assert published["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


def test_what_is_taken_away_comes_back(cluster: EmbeddedCluster) -> None:
    kind = cluster.api.kinds.resource("configmaps")
    cluster.api.patch(kind, ("default", "kube-root-ca.crt"), {"data": {"ca.crt": "x"}})
    cluster.work.settle()
    published = cluster.api.find("configmaps", "default", "kube-root-ca.crt")
    assert published is not None
    assert published["data"]["ca.crt"] != "x"


def test_a_pod_gets_the_default_account_and_its_token(cluster: EmbeddedCluster) -> None:
    spec = create_pod(cluster)["spec"]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": volume["name"], "readOnly": True, "mountPath": PATH}


def test_the_account_is_there_for_the_first_pod_of_a_namespace(cluster: EmbeddedCluster) -> None:
    create(cluster, "namespaces", "new")
    kind = cluster.api.kinds.resource("pods")
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    assert cluster.api.create(kind, "new", pod).obj["spec"]["serviceAccountName"] == "default"


@pytest.mark.parametrize("of_pod", [True, False], ids=["by the pod", "by the account"])
def test_no_token_is_mounted_where_none_is_wanted(
    cluster: EmbeddedCluster, *, of_pod: bool
) -> None:
    unwanted: dict[str, Any] = {"automountServiceAccountToken": False}
    create(cluster, "serviceaccounts", "robot", **({} if of_pod else unwanted))
    spec = create_pod(cluster, serviceAccountName="robot", **(unwanted if of_pod else {}))["spec"]
    assert "volumes" not in spec


def test_a_mount_of_ones_own_stays_alone(cluster: EmbeddedCluster) -> None:
    own = {"name": "own", "mountPath": PATH}
    container = {"name": "c", "image": "registry.example/app:1", "volumeMounts": [own]}
    volume = {"name": "own", "emptyDir": {}}
    spec = create_pod(cluster, containers=[container], volumes=[volume])["spec"]
    assert [each["name"] for each in spec["volumes"]] == ["own"]


def test_a_pod_of_no_account_is_refused(cluster: EmbeddedCluster) -> None:
    expected = (
        'pods "p" is forbidden: error looking up service account default/nope: serviceaccount '
        '"nope" not found'
    )
    with pytest.raises(StatusError) as caught:
        create_pod(cluster, serviceAccountName="nope")
    assert (caught.value.code, caught.value.message) == (403, expected)


def test_roles_are_summed_up_as_they_come_and_go(cluster: EmbeddedCluster) -> None:
    storage = f"clusterroles.{RBAC}"
    widgets = {"verbs": ["get"], "apiGroups": ["x.example"], "resources": ["widgets"]}

    def has_widgets(name: str) -> bool:
        cluster.work.settle()
        role = cluster.api.find(storage, "", name) or {}
        return widgets in (role.get("rules") or [])

    kind = cluster.api.kinds.resource("clusterroles", RBAC)
    create(cluster, "clusterroles", "widgets", RBAC, rules=[widgets])
    assert not has_widgets("view")
    labels = {f"{RBAC}/aggregate-to-view": "true"}
    cluster.api.patch(kind, ("", "widgets"), {"metadata": {"labels": labels}})
    assert [has_widgets(name) for name in ("view", "edit", "admin")] == [True, True, True]
    cluster.api.patch(kind, ("", "widgets"), {"metadata": {"labels": None}})
    assert [has_widgets(name) for name in ("view", "edit", "admin")] == [False, False, False]
