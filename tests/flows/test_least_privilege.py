"""The operator lives with the rights that the manifests give, and uses every one of them.

RBAC is enforced, and the operator comes with a token of its own service account. One flow does all
that a scheduler does: binding, preemption, volumes, events and their series, profiles and their
status, the lease, an extender's Secret. Noted is what it asked for.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from stellwerk.app import RunOptions, run
from stellwerk.client.credentials import load_credentials
from stellwerk.client.election import LeaderElectionOptions
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.profiles.spec.revision import KEPT_REVISIONS
from stellwerk.serving.port import PortOptions
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.destinations import HOSTS_ANNOTATION
from stellwerk_kube.errors import NotFound
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.repository import ROOT
from tests.support.rights import (
    access_manifests,
    apply_access,
    asked_rights,
    granted,
    rules_of_operator,
    token_of,
    with_token,
)
from tests.support.running_operator import is_active, prompt, until

STORAGE = "storage.k8s.io"
DEVICES = "resource.k8s.io"
WORKLOADS = "scheduling.k8s.io"
COSCHEDULING = "scheduling.x-k8s.io"
UNSEEN = {
    ("", "pods/finalizers", "update"),
    (DEVICES, "resourceclaims/binding", "patch"),
    (DEVICES, "resourceclaims/binding", "update"),
}
"""Rights that admission of a real API server looks at, and no request names."""
LATER = {(DEVICES, "devicetaintrules", verb) for verb in ("list", "watch")}
"""Rights to kinds that this release does not serve: they are asked for from 1.37 on."""
LEASE = LeaderElectionOptions(
    leader_elect=True,
    lease_duration_seconds=6,
    renew_deadline_seconds=4,
    retry_period_seconds=1,
    resource_name="stellwerk",
    resource_namespace="stellwerk",
)


def enforced() -> EmbeddedCluster:
    return EmbeddedCluster(
        2,
        options=ClusterOptions(
            identity=IdentityOptions("rbac"),
            kubelet=KubeletOptions(respect_grace=False),
            feature_gates=feature_gates("GenericWorkload=true,GangScheduling=true"),
        ),
    )


def create(cluster: EmbeddedCluster, plural: str, obj: JsonObject, group: str = "") -> None:
    namespace = obj["metadata"].get("namespace", "")
    cluster.api.create(cluster.api.kinds.resource(plural, group), namespace, obj)


def pod(cluster: EmbeddedCluster, name: str) -> JsonObject:
    return cluster.api.find("pods", "default", name) or {}


def bound(cluster: EmbeddedCluster, name: str) -> bool:
    return bool(pod(cluster, name).get("spec", {}).get("nodeName"))


def active(cluster: EmbeddedCluster, profile: str) -> bool:
    known = cluster.api.find(f"{PLURAL}.{GROUP}", "", profile) is not None
    return known and is_active(cluster, profile)


def create_pod(cluster: EmbeddedCluster, name: str, **spec: Any) -> None:
    made = make_pod(name, **{"scheduler_name": "stellwerk", **spec})
    made["metadata"].pop("uid", None)
    create(cluster, "pods", made)


@asynccontextmanager
async def restricted_operator(
    cluster: EmbeddedCluster, token: str, directory: Path, address: str = "127.0.0.1:0"
) -> AsyncIterator[None]:
    kubeconfig = directory / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig)
    kubeconfig.write_text(with_token(kubeconfig.read_text(), token))
    options = RunOptions(
        kubeconfig=str(kubeconfig),
        port=PortOptions(address),
        leader_election=LEASE,
        history_namespace="stellwerk",
    )
    task = asyncio.create_task(run(options), name="operator")
    try:
        with prompt():
            yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def define_kinds(cluster: EmbeddedCluster) -> None:
    """The definitions that the manifests bring, the optional one included."""
    coscheduling = yaml.safe_load((ROOT / "manifests/coscheduling/podgroups.yaml").read_text())
    for definition in (crd_manifest(), coscheduling):
        create(cluster, "customresourcedefinitions", definition, "apiextensions.k8s.io")


async def schedule_everything(cluster: EmbeddedCluster) -> None:
    """All that the operator writes, once."""
    await until(lambda: active(cluster, "default"))
    # Of a name that no profile has, signs of another scheduler are looked for.
    create_pod(cluster, "nobodys", scheduler_name="nobody")
    create_pod(cluster, "small", cpu="100m")
    await until(lambda: bound(cluster, "small"))
    await use_volumes(cluster)
    await use_devices(cluster)
    await preempt(cluster)
    await repeat_an_event(cluster)
    await read_a_secret(cluster)
    await place_groups(cluster)
    await edit_a_profile_often(cluster)


async def edit_a_profile_often(cluster: EmbeddedCluster) -> None:
    """Once more than its history holds, and pods are counted for a revision of it."""
    kind = cluster.api.kinds.resource(PLURAL, GROUP)
    for weight in range(1, KEPT_REVISIONS + 2):
        weights = {"spec": {"weights": {"ImageLocality": weight}}}
        generation = cluster.api.patch(kind, ("", "default"), weights).obj["metadata"]["generation"]
        await until(functools.partial(is_active, cluster, "default", generation))

    def is_cut() -> bool:
        numbers = {
            each["revision"]
            for each in cluster.api.all("controllerrevisions.apps", "stellwerk")
            if each["data"]["profile"] == "default"
        }
        return KEPT_REVISIONS + 2 in numbers and len(numbers) == KEPT_REVISIONS

    await until(is_cut)


async def place_groups(cluster: EmbeddedCluster) -> None:
    """A group of each API; what became of it is written into its status."""
    spec = {"schedulerName": "gangs", "gangScheduling": True}
    create(cluster, PLURAL, {"metadata": {"name": "gangs"}, "spec": spec}, GROUP)
    await until(lambda: active(cluster, "gangs"))
    metadata = {"name": "pair", "namespace": "default"}
    policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    create(cluster, "podgroups", {"metadata": metadata, "spec": policy}, WORKLOADS)
    create(cluster, "podgroups", {"metadata": metadata, "spec": {"minMember": 1}}, COSCHEDULING)
    create_pod(
        cluster, "by-field", scheduler_name="gangs", schedulingGroup={"podGroupName": "pair"}
    )
    label = {"scheduling.x-k8s.io/pod-group": "pair"}
    create_pod(cluster, "by-label", scheduler_name="gangs", labels=label)
    for group, field in ((WORKLOADS, "conditions"), (COSCHEDULING, "phase")):

        def is_told(group: str = group, field: str = field) -> bool:
            found = cluster.api.find(f"podgroups.{group}", "default", "pair") or {}
            return bool(found.get("status", {}).get(field))

        await until(is_told)


async def use_volumes(cluster: EmbeddedCluster) -> None:
    waiting = {"provisioner": "registry.example/disks", "volumeBindingMode": "WaitForFirstConsumer"}
    for name in ("made", "found"):
        storage_class = {"metadata": {"name": name}, **waiting}
        create(cluster, "storageclasses", storage_class, STORAGE)
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        metadata = {"name": name, "namespace": "default"}
        create(cluster, "persistentvolumeclaims", {"metadata": metadata, "spec": spec})
    volume = {
        "metadata": {"name": "found"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": "found",
            "hostPath": {"path": "/found"},
        },
    }
    create(cluster, "persistentvolumes", volume)
    kind = cluster.api.kinds.resource("persistentvolumes")
    available = {"status": {"phase": "Available"}}
    cluster.api.patch(kind, ("", "found"), available, subresource="status")
    for name in ("made", "found"):
        claim = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        create_pod(cluster, f"with-{name}", volumes=[claim])
    await until(lambda: volume_of(cluster).get("claimRef", {}).get("name") == "found")
    await until(lambda: "volume.kubernetes.io/selected-node" in annotations_of_claim(cluster))


async def use_devices(cluster: EmbeddedCluster) -> None:
    """A binding that fails and is taken back, and a stale claim that is replaced."""
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    spec: JsonObject = {"selectors": selectors, "extendedResourceName": "example.com/gpu"}
    create(cluster, "deviceclasses", {"metadata": {"name": "gpu"}, "spec": spec}, DEVICES)
    node = next(iter(cluster.api.all("nodes", None)))["metadata"]["name"]
    late = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1", **late, "attributes": {"late": {"bool": True}}}]
    slice_spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    create(cluster, "resourceslices", {"metadata": {"name": "s"}, "spec": slice_spec}, DEVICES)
    wanted = [{"cel": {"expression": 'has(device.attributes["gpu.example.com"].late)'}}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": wanted}}
    metadata = {"name": "late", "namespace": "default"}
    claim = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
    create(cluster, "resourceclaims", claim, DEVICES)
    create_pod(cluster, "late", resourceClaims=[{"name": "c", "resourceClaimName": "late"}])
    await until(lambda: bool(claim_status(cluster).get("allocation")))
    condition = {
        "type": "failed",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {"driver": "gpu.example.com", "pool": "p", "device": "gpu-1"}
    status = {"status": {"devices": [{**device, "conditions": [condition]}]}}
    kind = cluster.api.kinds.resource("resourceclaims", DEVICES)
    cluster.api.patch(kind, ("default", "late"), status, subresource="status")
    await until(lambda: not claim_status(cluster).get("devices"))
    await replace_stale_claim(cluster)


async def replace_stale_claim(cluster: EmbeddedCluster) -> None:
    gates = [{"name": "example.com/wait"}]
    resources = {"limits": {"example.com/gpu": "1"}}
    container = {"name": "c", "image": "registry.example/c:1", "resources": resources}
    create_pod(cluster, "classic", containers=[container], schedulingGates=gates)
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "classic",
        "uid": pod(cluster, "classic")["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        "name": "stale",
        "namespace": "default",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    claim = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
    create(cluster, "resourceclaims", claim, DEVICES)
    kind = cluster.api.kinds.resource("pods")
    cluster.api.patch(kind, ("default", "classic"), {"spec": {"schedulingGates": None}})
    await until(lambda: bound(cluster, "classic"))
    await until(lambda: cluster.api.find(f"resourceclaims.{DEVICES}", "default", "stale") is None)


def claim_status(cluster: EmbeddedCluster) -> JsonObject:
    found = cluster.api.find(f"resourceclaims.{DEVICES}", "default", "late") or {}
    status: JsonObject = found.get("status") or {}
    return status


def volume_of(cluster: EmbeddedCluster) -> JsonObject:
    found = cluster.api.find("persistentvolumes", "", "found") or {}
    spec: JsonObject = found.get("spec", {})
    return spec


def annotations_of_claim(cluster: EmbeddedCluster) -> JsonObject:
    found = cluster.api.find("persistentvolumeclaims", "default", "made") or {}
    annotations: JsonObject = found.get("metadata", {}).get("annotations") or {}
    return annotations


async def preempt(cluster: EmbeddedCluster) -> None:
    high = {"metadata": {"name": "high"}, "value": 1000}
    create(cluster, "priorityclasses", high, "scheduling.k8s.io")
    pods = {"pods": "110"}
    node = {"metadata": {"name": "tight"}, "status": {"allocatable": {"cpu": "1", **pods}}}
    create(cluster, "nodes", node)
    here = {"nodeSelector": {"kubernetes.io/hostname": "tight"}}
    kind = cluster.api.kinds.resource("nodes")
    labels = {"metadata": {"labels": {"kubernetes.io/hostname": "tight"}}}
    cluster.api.patch(kind, ("", "tight"), labels)
    create_pod(cluster, "victim", cpu="800m", **here)
    await until(lambda: bound(cluster, "victim"))
    create_pod(cluster, "winner", cpu="800m", priorityClassName="high", **here)
    await until(lambda: bound(cluster, "winner"))


async def repeat_an_event(cluster: EmbeddedCluster) -> None:
    create_pod(cluster, "huge", cpu="500", nodeSelector={"chosen": "yes"})
    await until(lambda: refusals(cluster) != [])
    kind = cluster.api.kinds.resource("nodes")

    def is_series() -> bool:
        # Each time that a node is chosen, the pod is tried again, and is too large again.
        for label in (None, "yes"):
            labels = {"metadata": {"labels": {"chosen": label}}}
            cluster.api.patch(kind, ("", "tight"), labels)
        return any(event.get("series") for event in refusals(cluster))

    await until(is_series, 60)


def refusals(cluster: EmbeddedCluster) -> list[JsonObject]:
    return [
        event
        for event in cluster.api.all("events", "default")
        if (event.get("regarding") or event.get("involvedObject") or {}).get("name") == "huge"
        and event.get("reason") == "FailedScheduling"
    ]


async def read_a_secret(cluster: EmbeddedCluster) -> None:
    hosts = {HOSTS_ANNOTATION: "https://127.0.0.1:1"}
    metadata = {"name": "stellwerk-extenders", "namespace": "stellwerk", "annotations": hosts}
    secret = {"metadata": metadata, "data": {}}
    create(cluster, "secrets", secret)
    extender = {
        "urlPrefix": "https://127.0.0.1:1/scheduler",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "ignorable": True,
        "tlsConfig": {"secretRef": {"namespace": "stellwerk", "name": "stellwerk-extenders"}},
    }
    spec = {"schedulerName": "extended", "extenders": [extender]}
    profile = {"metadata": {"name": "extended"}, "spec": spec}
    create(cluster, PLURAL, profile, GROUP)
    await until(lambda: active(cluster, "extended"))
    create_pod(cluster, "extended", scheduler_name="extended")
    await until(lambda: bound(cluster, "extended"))


async def read_again(kubeconfig: Path) -> None:
    """Ask for one object of each kind, as is done when handling one has failed."""
    async with KubernetesClient(
        await load_credentials(str(kubeconfig)),
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=lambda: 0.0,
    ) as client:
        for watched in WATCHED:
            with pytest.raises(NotFound):
                await client.get(watched.object_path("default", "none"))


@pytest.mark.slow
async def test_every_right_of_the_manifests_is_used_and_no_other_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asked_rights(monkeypatch) as asked:
        async with enforced() as cluster:
            token = apply_access(cluster, access_manifests())
            define_kinds(cluster)
            async with restricted_operator(cluster, token, tmp_path):
                await schedule_everything(cluster)
                await read_again(tmp_path / "kubeconfig")
    assert asked.refused == set()
    assert sorted(granted() - asked.allowed - UNSEEN - LATER) == []


async def test_the_port_is_read_by_the_accounts_that_may(tmp_path: Path) -> None:
    """The operator asks the API who its callers are, by the right that the manifests give it."""
    address = free_address()
    async with enforced() as cluster:
        token = apply_access(cluster, access_manifests())
        create(cluster, "customresourcedefinitions", crd_manifest(), "apiextensions.k8s.io")
        for name in ("prometheus", "stranger"):
            account = {"metadata": {"name": name, "namespace": "stellwerk"}}
            create(cluster, "serviceaccounts", account)
        reader = {
            "metadata": {"name": "prometheus"},
            "roleRef": {"kind": "ClusterRole", "name": "stellwerk-metrics-reader"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "prometheus", "namespace": "stellwerk"}
            ],
        }
        create(cluster, "clusterrolebindings", reader, RBAC_GROUP)
        async with restricted_operator(cluster, token, tmp_path, address):
            await until(lambda: active(cluster, "default"))
            assert await answer(address, token_of(cluster, "prometheus")) == 200
            assert await answer(address, token_of(cluster, "stranger")) == 403
            assert await answer(address, "wrong") == 401


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def answer(address: str, token: str) -> int:
    """The status of the operator's metrics for a bearer of that token."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://{address}/metrics", headers=headers, ssl=context) as response,
    ):
        return response.status


RULES = [
    pytest.param(
        document, rule, id=f"{role['kind']}-{'-'.join(body['resources'])}-{body['verbs'][0]}"
    )
    for document, role in enumerate(access_manifests())
    for rule, body in enumerate(rules_of_operator(role))
    if body["resources"] != ["pods/finalizers"]
]


@pytest.mark.long
@pytest.mark.parametrize(("document", "rule"), RULES)
async def test_without_any_one_rule_something_is_refused(
    document: int, rule: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = access_manifests()
    del manifests[document]["rules"][rule]
    with asked_rights(monkeypatch) as asked:
        async with enforced() as cluster:
            token = apply_access(cluster, manifests)
            define_kinds(cluster)
            async with restricted_operator(cluster, token, tmp_path):
                flow = asyncio.create_task(schedule_everything(cluster))
                await until(lambda: asked.refused != set() or flow.done(), 180)
                flow.cancel()
                await asyncio.wait({flow})
    assert asked.refused != set(), str(flow)
