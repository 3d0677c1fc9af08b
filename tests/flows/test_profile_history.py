"""The history of a profile by kubectl: accepted, edited, refused, rolled back, deleted."""

import asyncio
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import orjson

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.in_process import make_profile
from tests.support.kubectls import Done, Kubectl, newest, program_of
from tests.support.processes import command
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, profile_status, until

OPTIONS = ClusterOptions(kubelet=None, heartbeats=False, identity=ENFORCED)
BIN = Path(sys.executable).parent


def kubectl_on(cluster: EmbeddedCluster, home: Path) -> Kubectl:
    """One that finds the executable kubectl-stellwerk, as after `pip install`."""
    cluster.write_kubeconfig(home / "admin")
    plain = Kubectl(program_of(newest()), home, home / "admin")
    return replace(plain, environment={"PATH": f"{BIN}{os.pathsep}{os.defpath}"})


async def run(kubectl: Kubectl, *arguments: str, stdin: str = "") -> Done:
    return await asyncio.to_thread(kubectl.run, *arguments, stdin=stdin, seconds=60)


async def edit(kubectl: Kubectl, spec: JsonObject) -> None:
    patch = orjson.dumps({"spec": spec}).decode()
    done = await run(kubectl, "patch", "schedulerprofile", "packing", "--type=merge", "-p", patch)
    assert done.code == 0, done.text


def kept(cluster: EmbeddedCluster) -> list[JsonObject]:
    found = cluster.api.all("controllerrevisions.apps", "stellwerk")
    return sorted(found, key=lambda each: int(each["revision"]))


def refused(cluster: EmbeddedCluster, generation: int) -> bool:
    status = profile_status(cluster, "packing")
    (accepted,) = (each for each in status["conditions"] if each["type"] == "Accepted")
    return bool(status["observedGeneration"] == generation and accepted["status"] == "False")


async def test_a_profile_is_edited_looked_at_and_rolled_back_by_kubectl(tmp_path: Path) -> None:
    first: JsonObject = {"weights": {"ImageLocality": 1}}
    async with EmbeddedCluster(1, options=OPTIONS) as cluster:
        install(cluster, make_profile("packing", **first))
        kubectl = kubectl_on(cluster, tmp_path)
        async with operator_on(cluster, tmp_path, history_namespace="stellwerk"):
            await until(lambda: len(kept(cluster)) == 1)
            pod = make_pod("web", scheduler_name="packing")
            del pod["metadata"]["uid"]
            cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)
            await until(lambda: profile_status(cluster, "packing").get("scheduledPods") == 1)
            await edit(kubectl, {"weights": {"ImageLocality": 2}})
            await until(lambda: len(kept(cluster)) == 2)
            await edit(kubectl, {"weights": {"NoSuchPlugin": 3}})
            await until(lambda: refused(cluster, 3))

            listed = await run(kubectl, "stellwerk", "profile", "history", "packing")
            header, *rows = [re.split(" {2,}", line.strip()) for line in listed.stdout.splitlines()]
            assert header == ["REVISION", "GENERATION", "ACCEPTED", "REPLACED", "PODS", "CHANGED"]
            assert [row[:2] for row in rows] == [["2", "2"], ["1", "1"]], listed.text
            assert rows[0][3:] == ["in use", "0", "weights"]
            assert rows[1][4] == "1", "the pod"
            assert rows[1][3] == rows[0][2], "the first was replaced when the second was accepted"

            admin = ("--kubeconfig", str(tmp_path / "admin"))
            back = ("profile", "rollback", "packing", *admin, "--to", "1")
            _, tried, said = await command(*back, "--dry-run")
            assert "-  NoSuchPlugin: 3" in tried, said
            assert "+  ImageLocality: 1" in tried
            assert refused(cluster, 3), "nothing was written"
            _, unnamed, _ = await command(*back[:-2], "--dry-run")
            assert "+++ spec of revision 2" in unnamed, "the one in use, not the one before"

            _, done, _ = await command(*back, "--yes")
            *difference, last = done.splitlines()
            assert difference == tried.splitlines()
            assert last == "SchedulerProfile packing has the spec of revision 1 again"
            await until(lambda: is_active(cluster, "packing", 4))
            await until(lambda: len(kept(cluster)) == 3)
            specs = [each["data"]["spec"] for each in kept(cluster)]
            assert specs[2] == specs[0] != specs[1]
            assert specs[0].items() >= {"schedulerName": "packing", **first}.items()

            # The operator has no part in it: the garbage collector follows the owner references.
            await run(kubectl, "delete", "schedulerprofile", "packing")
            await until(lambda: kept(cluster) == [])
