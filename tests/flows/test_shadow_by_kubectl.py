"""A shadow by kubectl: it is applied, watched, looked at, promoted, and promoted back."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.builders import make_pod
from tests.support.kubectls import Kubectl, newest, program_of
from tests.support.processes import command
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, profile_status, until

OPTIONS = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
BIN = Path(sys.executable).parent

PROFILES = """\
apiVersion: scheduling.stellwerk.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: packing}
spec:
  schedulerName: packing
  allowBeside: true
  selector:
    podSelector: {matchLabels: {app: web}}
---
apiVersion: scheduling.stellwerk.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: packing-next}
spec:
  shadowOf: packing
  sampleOneIn: 1
  skipIfWaitedSeconds: 3600
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


async def test_a_shadow_is_watched_and_promoted_by_kubectl(tmp_path: Path) -> None:
    ports: list[int] = []
    async with EmbeddedCluster(4, options=OPTIONS) as cluster:
        install(cluster)
        cluster.write_kubeconfig(tmp_path / "admin")
        plain = Kubectl(program_of(newest()), tmp_path, tmp_path / "admin")
        kubectl = replace(plain, environment={"PATH": f"{BIN}{os.pathsep}{os.defpath}"})

        async def do(*arguments: str, stdin: str = "") -> str:
            done = await asyncio.to_thread(kubectl.run, *arguments, stdin=stdin, seconds=60)
            assert done.code == 0, done.text
            return done.stdout

        async def spec(name: str) -> Any:
            found = json.loads(await do("get", "schedulerprofile", name, "-o", "json"))["spec"]
            return {
                key: found[key] for key in ("schedulerName", "selector", "shadowOf") if key in found
            }

        async def promoted(generation: int) -> None:
            admin = ("--kubeconfig", str(tmp_path / "admin"))
            _, tried, _ = await command("promote", "packing-next", *admin, "--dry-run")
            assert tried.startswith("--- packing as it is\n+++ packing promoted\n")
            said = await do("stellwerk", "promote", "packing-next", "--yes")
            assert said.startswith(tried), "the same, and then it was written"
            last = said.splitlines()[-1]
            assert last.startswith("SchedulerProfile packing now has the spec of packing-next")
            await until(lambda: is_active(cluster, "packing", generation))
            await until(lambda: is_active(cluster, "packing-next", generation))

        def seen(field: str) -> Any:
            return profile_status(cluster, "packing-next").get("shadow", {}).get(field)

        def create(number: int) -> None:
            pod = make_pod(f"p{number}", cpu="500m", labels={"app": "web"})
            del pod["metadata"]["uid"]
            cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)

        async with operator_on(cluster, tmp_path, on_port=ports.append):
            await do("apply", "-f", "-", stdin=PROFILES)
            await until(
                lambda: is_active(cluster, "packing") and is_active(cluster, "packing-next")
            )
            for number in range(6):
                create(number)
            await until(lambda: seen("compared") == 6)
            await until(lambda: profile_status(cluster, "packing").get("scheduledPods") == 6)
            assert seen("differing") > 0
            assert float(seen("meanGain")) > 0
            assert profile_status(cluster, "packing-next")["scheduledPods"] == 0
            url = f"http://127.0.0.1:{ports[0]}"
            shown = await do("stellwerk", "shadow", "diff", "packing-next", "--url", url)
            assert "of 6 decisions differ" in " ".join(shown.split())
            assert "NodeResourcesFit" in shown
            wide = await do("get", "schedulerprofile", "packing-next", "-o", "wide")
            assert "packing" in wide.splitlines()[1].split()[1:]

            whose, beside = await spec("packing"), await spec("packing-next")
            for generation, packs in ((2, "packing"), (3, "packing-next")):
                await promoted(generation)
                assert "MostAllocated" in await do("get", "schedulerprofile", packs, "-o", "yaml")
                assert (await spec("packing"), await spec("packing-next")) == (whose, beside)
