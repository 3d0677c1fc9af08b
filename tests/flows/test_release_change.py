"""An API server that becomes another release under a running operator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.releases import runtime_config
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from tests.support.builders import make_node
from tests.support.pod_groups import make_member
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, operator_on, until

GROUP = "scheduling.k8s.io"
PROFILE: JsonObject = {
    "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": "stellwerk"},
    "spec": {"schedulerName": "stellwerk", "gangScheduling": True},
}


def cluster_of(
    release: str, directory: DataDirectory, port: int = 0, nodes: Sequence[JsonObject] = ()
) -> EmbeddedCluster:
    """A cluster that serves groups in every version that the release has."""
    versions = {kind.api_version for kind in kinds_of_release(release)}
    gates = "GenericWorkload=true" + (",GangScheduling=true" if release == "1.36" else "")
    options = ClusterOptions(
        release=release,
        feature_gates=feature_gates(gates, release),
        runtime_config=runtime_config("api/all=true", versions),
        data_directory=directory,
        identity=ENFORCED,
        controllers=False,
    )
    return EmbeddedCluster(nodes, port=port, options=options)


def make(cluster: EmbeddedCluster, plural: str, obj: JsonObject, group: str = "") -> None:
    cluster.api.create(cluster.api.kinds.resource(plural, group), "default", obj)


def gang(name: str, count: int) -> JsonObject:
    policy = {"gang": {"minCount": count}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}


def without_finalizers(obj: JsonObject) -> JsonObject:
    """The object without what keeps it while it has members."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": metadata}


def pod(cluster: EmbeddedCluster, name: str) -> JsonObject:
    found: JsonObject = cluster.api.get(cluster.api.kinds.resource("pods"), "default", name).obj
    return found


def node_of(cluster: EmbeddedCluster, *names: str) -> list[str]:
    return [pod(cluster, name)["spec"].get("nodeName", "") for name in names]


def said(cluster: EmbeddedCluster, name: str) -> str:
    conditions: list[Any] = pod(cluster, name).get("status", {}).get("conditions") or []
    return " ".join(each.get("message", "") for each in conditions)


@pytest.mark.long
async def test_groups_go_and_come_again_as_the_cluster_becomes_1_37(tmp_path: Path) -> None:
    data = tmp_path / "data"
    directory = DataDirectory(data)
    old = cluster_of("1.36", directory, nodes=[make_node("n", cpu="4")])
    install(old, PROFILE)
    make(old, "podgroups", gang("done", 2), GROUP)
    for name in ("a0", "a1"):
        make(old, "pods", make_member(name, "done", cpu="1"))
    await old.start()
    port = int(old.url.rpartition(":")[2])
    async with operator_on(old, tmp_path):
        await until(lambda: node_of(old, "a0", "a1") == ["n", "n"])
        make(old, "pods", make_member("b0", "later", cpu="1"))
        # As upstream demands: no object of v1alpha2 may be left.
        podgroups = old.api.kinds.resource("podgroups", GROUP)
        old.api.modify(podgroups, ("default", "done"), without_finalizers)
        delete(old.api, podgroups, ("default", "done"), DeleteOptions())
        await until(lambda: '"later" to exist' in said(old, "b0"))
        await old.stop()
        directory.close()
        (data / "release").write_text("1.37\n")
        directory = DataDirectory(data)
        new = cluster_of("1.37", directory, port)
        await new.start()
        assert node_of(new, "a0", "a1", "b0") == ["n", "n", ""]
        make(new, "podgroups", gang("later", 2), GROUP)
        make(new, "pods", make_member("b1", "later", cpu="1"))
        await until(lambda: node_of(new, "b0", "b1") == ["n", "n"])
        found = new.api.get(new.api.kinds.resource("podgroups", GROUP), "default", "later").obj
        assert found["apiVersion"] == f"{GROUP}/v1beta1"
        await until(
            lambda: (
                "PodGroupInitiallyScheduled"
                in {
                    each["type"]
                    for each in new.api.get(
                        new.api.kinds.resource("podgroups", GROUP), "default", "later"
                    ).obj["status"]["conditions"]
                }
            )
        )
        # Bound members stay, and count: there is room for none of a third gang.
        make(new, "podgroups", gang("full", 2), GROUP)
        for name in ("c0", "c1"):
            make(new, "pods", make_member(name, "full", cpu="1"))
        await until(lambda: "Insufficient cpu" in said(new, "c0") + said(new, "c1"))
        assert node_of(new, "a0", "a1", "c0", "c1") == ["n", "n", "", ""]
        await new.stop()
    directory.close()
