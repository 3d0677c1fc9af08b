"""An API server that becomes another release under a running operator, or is one of the future."""

import asyncio
import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from stellwerk.metrics import Metrics
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.releases import runtime_config
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.pod_groups import make_member
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, operator_on, profile_status, until
from tests.support.served_cluster import send
from tests.support.storage import claim_volume, make_claim, make_class, make_volume

GROUP = "scheduling.k8s.io"
DEVICES = "resource.k8s.io"
PROFILE: JsonObject = {
    "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": "stellwerk"},
    "spec": {"schedulerName": "stellwerk", "gangScheduling": True},
}
HIGH: dict[str, Any] = {"priorityClassName": "high"}


def cluster_of(
    release: str,
    directory: DataDirectory | None = None,
    port: int = 0,
    nodes: Sequence[JsonObject] = (),
    served: str = "",
) -> EmbeddedCluster:
    """A cluster that serves every version that the release has, but for what `served` says."""
    versions = {kind.api_version for kind in kinds_of_release(release)}
    gates = "GenericWorkload=true" + (",GangScheduling=true" if release == "1.36" else "")
    options = ClusterOptions(
        release=release,
        feature_gates=feature_gates(gates, release),
        runtime_config=runtime_config(f"api/all=true,{served}", versions),
        data_directory=directory,
        identity=ENFORCED,
        kubelet=None,
        chosen_controllers=("persistentvolume-binder-controller",),
    )
    return EmbeddedCluster(nodes, port=port, options=options)


async def post(cluster: EmbeddedCluster, path: str, body: JsonObject) -> None:
    """Create an object as clients do, in the version of the path."""
    body["metadata"].pop("uid", None)
    body["metadata"].pop("resourceVersion", None)
    headers = {"Content-Type": "application/json"}
    content = json.dumps(body).encode()
    status, answer = await asyncio.to_thread(send, cluster.url, "POST", path, content, headers)
    assert status == HTTPStatus.CREATED, answer


async def post_pods(cluster: EmbeddedCluster, *pods: JsonObject) -> None:
    for each in pods:
        each["spec"].pop("priority", None)
        await post(cluster, "/api/v1/namespaces/default/pods", each)


async def post_group(cluster: EmbeddedCluster, version: str, name: str, count: int) -> None:
    spec: JsonObject = {"schedulingPolicy": {"gang": {"minCount": count}}}
    if version == "v1beta1":
        spec |= HIGH
    path = f"/apis/{GROUP}/{version}/namespaces/default/podgroups"
    await post(cluster, path, {"metadata": {"name": name}, "spec": spec})


def member(name: str, group: str, cpu: str, **spec: Any) -> JsonObject:
    return make_member(name, group, cpu=cpu, **{**HIGH, **spec})


def without_finalizers(obj: JsonObject) -> JsonObject:
    """The object without what keeps it while it has members."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": metadata}


def found(cluster: EmbeddedCluster, plural: str, name: str, group: str = "") -> JsonObject:
    kind = cluster.api.kinds.resource(plural, group)
    obj: JsonObject = cluster.api.get(kind, "default", name).obj
    return obj


def uids_of(cluster: EmbeddedCluster) -> dict[str, str]:
    """The uid of each pod, by name."""
    pods = cluster.api.all("pods", None)
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods}


def node_of(cluster: EmbeddedCluster, *names: str) -> list[str]:
    return [found(cluster, "pods", name)["spec"].get("nodeName", "") for name in names]


def said(cluster: EmbeddedCluster, name: str) -> str:
    conditions: list[Any] = found(cluster, "pods", name).get("status", {}).get("conditions") or []
    return " ".join(each.get("message", "") for each in conditions)


def devices_of(cluster: EmbeddedCluster, claim: str) -> list[str]:
    status = found(cluster, "resourceclaims", claim, DEVICES).get("status") or {}
    allocation = status.get("allocation") or {"devices": {}}
    return [each["device"] for each in allocation["devices"].get("results", ())]


def claiming(name: str, claim: str) -> JsonObject:
    references = [{"name": "c", "resourceClaimName": claim}]
    return make_pod(name, scheduler_name="stellwerk", resourceClaims=references, **HIGH)


def storing(name: str, claim: str) -> JsonObject:
    return make_pod(name, scheduler_name="stellwerk", volumes=claim_volume(claim), **HIGH)


async def set_up_devices(cluster: EmbeddedCluster) -> None:
    """Two devices, a claim that is served, and one of a class that does not exist yet."""
    path = f"/apis/{DEVICES}/v1beta1"
    await post(cluster, f"{path}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "basic": {}} for name in ("gpu-0", "gpu-1")],
    }
    await post(cluster, f"{path}/resourceslices", {"metadata": {"name": "n"}, "spec": spec})
    for name, device_class in (("held", "gpu"), ("wanted", "later")):
        requests = [{"name": "r", "deviceClassName": device_class}]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        await post(cluster, f"{path}/namespaces/default/resourceclaims", claim)
    await post_pods(cluster, claiming("holds", "held"), claiming("wants", "wanted"))


async def set_up_volumes(cluster: EmbeddedCluster) -> None:
    """A claim that a volume fits, and one that waits for a volume."""
    await post(
        cluster,
        "/apis/storage.k8s.io/v1/storageclasses",
        make_class(provisioner="kubernetes.io/no-provisioner"),
    )
    await post(cluster, "/api/v1/persistentvolumes", make_volume("first"))
    for name in ("kept", "awaited"):
        claim = make_claim(name)
        claim.pop("status")
        claim["metadata"].pop("annotations")
        await post(cluster, "/api/v1/namespaces/default/persistentvolumeclaims", claim)
    await post_pods(cluster, storing("stores", "kept"), storing("waits", "awaited"))


async def set_up_gangs(cluster: EmbeddedCluster) -> None:
    """Gangs that are placed, too small, too large, preempting, placed in part, and gated."""
    for name, count in (("done", 2), ("few", 3), ("full", 2), ("evicts", 2), ("half", 2)):
        await post_group(cluster, "v1alpha2", name, count)
    await post_group(cluster, "v1alpha2", "gated", 2)
    await post_pods(cluster, make_pod("low", cpu="3", scheduler_name="stellwerk"))
    await post_pods(cluster, *(member(f"done-{n}", "done", "1") for n in range(2)))
    await until(lambda: node_of(cluster, "low", "done-0", "done-1") == ["n"] * 3)
    await post_pods(
        cluster,
        *(member(f"few-{n}", "few", "100m") for n in range(2)),
        *(member(f"full-{n}", "full", "7") for n in range(2)),
        *(member(f"evicts-{n}", "evicts", "2") for n in range(2)),
        member("half-0", "half", "100m", nodeName="n"),
        member("half-1", "half", "7"),
        *(member(f"gated-{n}", "gated", "100m", schedulingGates=[{"name": "g"}]) for n in range(2)),
    )
    await until(lambda: "deletionTimestamp" in found(cluster, "pods", "low")["metadata"])
    await until(lambda: "Insufficient cpu" in said(cluster, "full-0") + said(cluster, "full-1"))
    await until(lambda: "few" in said(cluster, "few-0"))


ON_NODES = ("done-0", "done-1", "half-0", "holds", "stores", "low")
WAITING = ("few-0", "few-1", "full-0", "full-1", "evicts-0", "evicts-1", "half-1")


async def delete_groups(cluster: EmbeddedCluster) -> None:
    """As upstream demands before an upgrade: no object of v1alpha2 may be left."""
    podgroups = cluster.api.kinds.resource("podgroups", GROUP)
    for name in ("done", "few", "full", "evicts", "half", "gated"):
        cluster.api.modify(podgroups, ("default", name), without_finalizers)
        delete(cluster.api, podgroups, ("default", name), DeleteOptions())
    for name in WAITING:
        await until(lambda name=name: "to exist" in said(cluster, name))  # type: ignore[misc]


async def carry_on(cluster: EmbeddedCluster) -> None:
    """Make the groups anew, and give each that waits what it lacks."""
    for name, count in (("done", 2), ("few", 3), ("full", 2), ("evicts", 2), ("half", 2)):
        await post_group(cluster, "v1beta1", name, count)
    await post_group(cluster, "v1beta1", "gated", 2)
    pods = cluster.api.kinds.resource("pods")
    delete(cluster.api, pods, ("default", "low"), DeleteOptions(grace_period_seconds=0))
    await post_pods(cluster, member("few-2", "few", "100m"))
    for name in ("gated-0", "gated-1"):
        cluster.api.modify(
            pods,
            ("default", name),
            lambda obj: {**obj, "spec": {**obj["spec"], "schedulingGates": None}},
        )
    later = {"metadata": {"name": "later"}, "spec": {}}
    await post(cluster, f"/apis/{DEVICES}/v1/deviceclasses", later)
    await post(cluster, "/api/v1/persistentvolumes", make_volume("second"))


@pytest.mark.long
async def test_a_cluster_becomes_1_37_with_claims_volumes_and_gangs_in_every_state(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    directory = DataDirectory(data)
    nodes, devices = [make_node("n", cpu="8")], f"{DEVICES}/v1=false,{DEVICES}/v1beta2=false"
    old = cluster_of("1.36", directory, nodes=nodes, served=devices)
    install(old, PROFILE)
    await old.start()
    port = int(old.url.rpartition(":")[2])
    async with operator_on(old, tmp_path):
        await post(
            old, f"/apis/{GROUP}/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000}
        )
        await set_up_devices(old)
        await set_up_volumes(old)
        await set_up_gangs(old)
        await until(lambda: node_of(old, *ON_NODES) == ["n"] * len(ON_NODES))
        held = devices_of(old, "held")
        assert len(held) == 1
        assert "later" in said(old, "wants")
        assert said(old, "waits")
        await delete_groups(old)
        uids = uids_of(old)
        await old.stop()
        directory.close()
        (data / "release").write_text("1.37\n")
        directory = DataDirectory(data)
        new = cluster_of("1.37", directory, port)
        await new.start()
        assert node_of(new, *ON_NODES) == ["n"] * len(ON_NODES)
        assert node_of(new, *WAITING) == [""] * len(WAITING)
        await carry_on(new)
        placed = ("few-0", "few-1", "few-2", "evicts-0", "evicts-1", "gated-0", "gated-1")
        await until(lambda: node_of(new, *placed, "wants", "waits") == ["n"] * 9)
        # What was bound stays and counts: there is no room for more, and no gang is placed in part.
        assert node_of(new, *ON_NODES[:-1]) == ["n"] * 5
        assert devices_of(new, "held") == held
        assert devices_of(new, "wanted") not in ([], held)
        await until(lambda: "Insufficient cpu" in said(new, "full-0") + said(new, "full-1"))
        assert node_of(new, "full-0", "full-1", "half-1") == ["", "", ""]
        assert uids_of(new) == {name: uid for name, uid in uids.items() if name != "low"} | {
            "few-2": uids_of(new)["few-2"]
        }
        conditions = found(new, "podgroups", "few", GROUP)["status"]["conditions"]
        states = {each["type"]: each["status"] for each in conditions}
        assert states["PodGroupInitiallyScheduled"] == "True"
        await new.stop()
    directory.close()


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(f"{GROUP}/v1beta1=false", id="v1beta1 is gone"),
        pytest.param("", id="v1beta1 stays beside v1", marks=pytest.mark.long),
    ],
)
async def test_groups_go_on_when_the_cluster_becomes_1_38_and_back(
    served: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The version in use goes while gangs wait: they are read in the other one, by their uids."""
    data, beta = tmp_path / "data", f"{GROUP}/v1alpha3=false"
    directory = DataDirectory(data)
    old = cluster_of("1.37", directory, nodes=[make_node("n", cpu="8")], served=beta)
    install(old, PROFILE)
    await old.start()
    port = int(old.url.rpartition(":")[2])
    caplog.set_level(logging.INFO, "stellwerk.handlers.delivery")
    high = {"metadata": {"name": "high"}, "value": 1000}
    async with operator_on(old, tmp_path):
        await post(old, f"/apis/{GROUP}/v1/priorityclasses", high)
        for name in ("first", "second"):
            await post_group(old, "v1beta1", name, 2)
            await post_pods(old, member(f"{name}-0", name, "1"))
        await until(lambda: "second" in said(old, "second-0"))
        uid = found(old, "podgroups", "first", GROUP)["metadata"]["uid"]
        cluster = old
        for release, name, off in (("1.38", "first", f"{beta},{served}"), ("1.37", "second", beta)):
            await cluster.stop()
            directory.close()
            (data / "release").write_text(f"{release}\n")
            directory = DataDirectory(data)
            cluster = cluster_of(release, directory, port, served=off)
            await cluster.start()
            await post_pods(cluster, member(f"{name}-1", name, "1"))
            await until(lambda: node_of(cluster, f"{name}-0", f"{name}-1") == ["n", "n"])  # noqa: B023

            def is_placed(name: str = name, cluster: EmbeddedCluster = cluster) -> bool:
                status = found(cluster, "podgroups", name, GROUP).get("status") or {}
                states = {each["type"]: each["status"] for each in status.get("conditions") or ()}
                return states.get("PodGroupInitiallyScheduled") == "True"

            # The condition is written in the version that is read now.
            await until(is_placed)
        assert found(cluster, "podgroups", "first", GROUP)["metadata"]["uid"] == uid
    await cluster.stop()
    directory.close()
    changes = [each.getMessage() for each in caplog.records if "is watched in" in each.getMessage()]
    expected = ["PodGroup is watched in version v1, no longer in v1beta1"] if served else []
    back = ["PodGroup is watched in version v1beta1, no longer in v1"] if served else []
    assert changes == [*expected, *back]


# --- a version of the future ---------------------------------------------------------------------


def definition(*versions: str) -> JsonObject:
    """PodGroups in made-up versions, whose objects may say anything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {
            "name": f"podgroups.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, made up"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "podgroups", "kind": "PodGroup"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": {"openAPIV3Schema": anything},
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


@pytest.mark.long
async def test_a_version_of_the_future_is_said_and_never_taken_for_an_empty_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()
    monkeypatch.setattr("stellwerk.app.Metrics", lambda: metrics)
    off = ",".join(f"{GROUP}/{version}=false" for version in ("v1beta1", "v1alpha3"))
    cluster = cluster_of("1.37", nodes=[make_node("n", cpu="4")], served=off)
    install(cluster, PROFILE)
    await cluster.start()
    definitions = cluster.api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    cluster.api.create(definitions, "", definition("v9"))
    pods = cluster.api.kinds.resource("pods")
    for name in ("g-0", "g-1"):
        cluster.api.create(pods, "default", make_member(name, "g", cpu="1"))
    cluster.api.create(pods, "default", make_pod("plain", scheduler_name="stellwerk"))
    why = f"the API serves podgroups of {GROUP} in v9, and this version of Stellwerk reads"

    def stated() -> JsonObject:
        conditions = profile_status(cluster, "stellwerk").get("conditions", ())
        return next((each for each in conditions if each["type"] == "ObjectsSeen"), {})

    with caplog.at_level(logging.WARNING):
        async with operator_on(cluster, tmp_path):
            await post(
                cluster,
                f"/apis/{GROUP}/v9/namespaces/default/podgroups",
                {"metadata": {"name": "g"}, "spec": {"quorum": 2}},
            )
            await until(lambda: node_of(cluster, "plain") == ["n"])
            await until(lambda: all(why in said(cluster, name) for name in ("g-0", "g-1")))
            await until(lambda: stated().get("reason") == "VersionUnknown")
            assert stated()["status"] == "False"
            assert why in stated()["message"]
            assert metrics.kind_unreadable.labels("PodGroup").value == 1
            assert node_of(cluster, "g-0", "g-1") == ["", ""]
            # What the future serves in a version that is known is taken, unknown fields and all.
            cluster.api.modify(
                definitions,
                ("", f"podgroups.{GROUP}"),
                lambda obj: {**obj, "spec": definition("v9", "v1beta1")["spec"]},
            )
            spec = {"schedulingPolicy": {"gang": {"minCount": 2, "spread": "made-up"}}, "era": 2027}
            path = f"/apis/{GROUP}/v1beta1/namespaces/default/podgroups"
            cluster_path = f"{path}/g"
            await until_served(cluster, path)
            await patch(cluster, cluster_path, {"spec": spec})
            await until(lambda: node_of(cluster, "g-0", "g-1") == ["n", "n"])
            await until(lambda: stated().get("status") == "True")
            assert metrics.kind_unreadable.labels("PodGroup").value == 0
    await cluster.stop()
    assert caplog.text.count("PodGroup is not watched") == 1
    assert caplog.text.count("pods name groups of") == 1


async def until_served(cluster: EmbeddedCluster, path: str) -> None:
    """Wait until the definition's new version answers."""
    for _ in range(200):
        if (await asyncio.to_thread(send, cluster.url, "GET", path))[0] == HTTPStatus.OK:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{path} is not served")


async def patch(cluster: EmbeddedCluster, path: str, body: JsonObject) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    content = json.dumps(body).encode()
    status, answer = await asyncio.to_thread(send, cluster.url, "PATCH", path, content, headers)
    assert status == HTTPStatus.OK, answer
