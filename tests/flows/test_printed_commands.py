"""The commands of docs/commands.md, of every `--help` and of pages, run with nothing but a context.

Of the pages: the blocks of the language `sh` that do not say why they are not run.
"""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cli.cli import _COMMANDS
from stellwerk_cli.demo.sandbox import open_sandbox
from stellwerk_cli.embedded_cluster import api_features
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.kubeconfig import KubeconfigFile
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import DRIVER, claim, request
from tests.support.in_process import make_profile
from tests.support.kubectls import newest, program_of
from tests.support.pod_groups import make_group
from tests.support.processes import command
from tests.support.recorded_kinds import RECORDINGS
from tests.support.repository import ROOT
from tests.support.running_operator import is_active, until
from tests.support.shell_steps import blocks, shell

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

_RUNS_ON: Final = re.compile(
    r"^(run|up|down|demo|page|record|cluster( --.*)?|completion)\b|^cluster$|convert -$|--watch"
)
"""Those that serve until they are stopped, or read what is typed; other tests run them."""
_ROW: Final = re.compile(r"^\| (`stellwerk .*?) \|", re.MULTILINE)
_STELLWERK: Final = Path(sys.executable).parent / "stellwerk"
_EXAMPLE: Final = {"NAME": "hello", "FILE": "cluster.json"}


def examples() -> list[str]:
    """Of `--help`, without the program's name."""
    return [line for module in _COMMANDS.values() for line in module.EXAMPLES]


def of_the_page() -> list[str]:
    """The first columns of docs/commands.md, with names for the placeholders."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    cells = [cell for row in _ROW.findall(text) for cell in re.findall(r"`([^`]*)`", row)]
    assert len(cells) > 20
    found = []
    for cell in cells:
        words = [_EXAMPLE.get(word, word) for word in cell.removeprefix("stellwerk ").split()]
        found.append(_COMPLETED.get(" ".join(words), " ".join(words)))
    return found


_COMPLETED: Final = {
    "explain podgroup hello": "explain podgroup training",
    "what-if": "what-if --drain node-1",
    "convert cluster.json": "convert kube-scheduler.yaml",
    "simulate": "simulate --nodes cluster.json --pods cluster.json",
    "plan fit": "plan fit --for pending --shapes shapes.yaml",
    "plan defrag": "plan defrag --free nodes=1 --bare-pods --cordon",
    "plan profile hello": "plan profile best-fit",
    "shadow diff hello": "shadow diff packing-next",
    "bench": "bench --workload basic --nodes 5 --pods 10",
    "profile history hello": "profile history packing",
    "promote hello": "promote packing-next --yes",
    "profile rollback hello --to 3": "profile rollback packing --to 1 --yes",
}
"""Commands that the page names without what they need."""


PAGES: Final = (
    "explain",
    "monitoring",
    "profiles",
    "recording",
    "simulation",
    "troubleshooting",
    "writing-a-plugin",
)
"""Those of docs/ with such blocks."""
_SUPPOSED: Final = {"NAME": "hello", "node-7": "node-1"}


def of_the_pages() -> list[str]:
    """Line by line, with names for the placeholders."""
    found: list[str] = []
    for page in PAGES:
        for block in blocks(ROOT / "docs" / f"{page}.md"):
            if block.language == "sh" and not block.excuse:
                found += block.text.replace("\\\n", "").splitlines()
    assert len(found) > 15
    for word, name in _SUPPOSED.items():
        found = [re.sub(rf"\b{word}\b", name, line) for line in found]
    return found


def read(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, **obj}


def write_files(folder: Path) -> None:
    """The files that the examples name."""
    (folder / "home" / ".kube").mkdir(parents=True)
    packing = make_profile("packing", "stellwerk")
    for name, manifest in {
        "pod.yaml": read(make_pod("new", cpu="1"), "Pod"),
        "pods.yaml": read(make_pod("new", cpu="1"), "Pod"),
        "job.yaml": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "many"},
            "spec": {"template": {"spec": make_pod("new", cpu="1")["spec"]}},
        },
        "node.yaml": read(make_node("new", cpu="8"), "Node"),
        "shapes.yaml": read(make_node("large", cpu="64"), "Node"),
        "packing.yaml": {**packing, "metadata": {"name": "packing"}},
        "spreading.yaml": {**make_profile("spreading", "stellwerk"), "metadata": {"name": "s"}},
        "case.json": {"id": "1", "nodes": [make_node("n")], "pod": make_pod("new", cpu="1")},
        "cases.jsonl": {"id": "1", "nodes": [make_node("n")], "pod": make_pod("new", cpu="1")},
        "kube-scheduler.yaml": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        },
    }.items():
        written = json.dumps if ".json" in name else yaml.safe_dump
        (folder / name).write_text(written(manifest))
    (folder / "kube-scheduler-config.yaml").symlink_to("kube-scheduler.yaml")
    nodes = [read(make_node(name, cpu="4"), "Node") for name in ("a", "b")]
    pods = [read(owned(make_pod(f"on-{on}", cpu="1", node_name=on)), "Pod") for on in ("a", "b")]
    waits = read(make_pod("waits", cpu="1"), "Pod")
    moves, decides = ({"kind": "List", "items": [*nodes, *pods, *more]} for more in ((), (waits,)))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(moves))
    (folder / "cluster.json").write_text(json.dumps(decides))
    for name in ("day.journal", "tuesday.journal"):
        (folder / name).write_bytes((RECORDINGS / "embedded-cluster.journal").read_bytes())


def fill(cluster: EmbeddedCluster) -> None:
    """The objects that the examples name."""
    api = cluster.api
    for name in ("team", "shop", "jobs"):
        api.ensure(api.kinds.resource("namespaces"), "", {"metadata": {"name": name}})
    pods = api.kinds.resource("pods")
    for namespace, name in (
        ("default", "hello"),
        ("default", "web-0"),
        ("team", "web-0"),
        ("team", "hello"),
        ("shop", "web"),
    ):
        pod = make_pod(name, namespace=namespace, cpu="100m", scheduler_name="stellwerk")
        del pod["metadata"]["uid"]
        api.create(pods, namespace, pod)
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    deployment = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    for namespace in ("default", "shop"):
        api.create(api.kinds.resource("deployments", "apps"), namespace, deployment)
    group = make_group("training", min_count=2)
    group["metadata"].pop("uid", None)
    api.create(api.kinds.resource("podgroups", "scheduling.k8s.io"), "default", group)
    slices = api.kinds.resource("resourceslices", "resource.k8s.io")
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    api.create(slices, "", {"metadata": {"name": "node-1"}, "spec": spec})
    claims = api.kinds.resource("resourceclaims", "resource.k8s.io")
    asked = claim("training", request())["spec"]
    api.create(claims, "team", {"metadata": {"name": "training"}, "spec": asked})
    shadow = make_profile("packing-next", "packing-next", shadowOf="packing")
    del shadow["spec"]["schedulerName"]
    for profile in (make_profile("packing", "packing"), shadow):
        profile["metadata"].pop("uid", None)
        api.create(api.kinds.resource(PLURAL, GROUP), "", profile)


@asynccontextmanager
async def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedCluster]:
    """A sandbox with all of this, which the context of the commands leads to."""
    write_files(folder)
    kubeconfig = folder / "home" / ".kube" / "config"
    async with open_sandbox(3, KubeconfigFile(kubeconfig), features=api_features()) as sandbox:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder / "home"))
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        fill(sandbox.cluster)

        def is_placed() -> bool:
            pods = sandbox.cluster.api.store.collection("pods").entries()
            return all(each.obj["status"].get("phase") == "Running" for each in pods)

        await until(is_placed)
        api = sandbox.cluster.api
        await until(lambda: is_active(sandbox.cluster, "packing"))
        kind = api.kinds.resource(PLURAL, GROUP)
        api.patch(kind, ("", "packing"), {"spec": {"tieBreak": "NodeRank"}})
        await until(lambda: is_active(sandbox.cluster, "packing", 2))
        yield sandbox.cluster


async def said_by(folder: Path, line: str) -> str:
    """Run a command in this process; what it says of its failure, empty if it did not fail."""
    words = shlex.split(line.replace("~", str(folder / "home")), comments=True)
    status, _, said = await asyncio.wait_for(command(*words), 60)
    return f"{status}: {said}" if status else ""


@pytest.mark.parametrize("lines", [examples, of_the_page], ids=["--help", "docs/commands.md"])
async def test_what_is_printed_runs_with_nothing_but_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    async with prepared(tmp_path, monkeypatch):
        said = {
            line: await said_by(tmp_path, line) for line in lines() if not _RUNS_ON.search(line)
        }
    assert {line: why for line, why in said.items() if why} == {}
    assert len(said) > 10


async def test_what_pages_print_runs_with_nothing_but_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {}
    async with prepared(tmp_path, monkeypatch) as cluster:
        waits = make_pod("waits", cpu="60")
        del waits["metadata"]["uid"]
        cluster.api.create(cluster.api.kinds.resource("pods"), "default", waits)
        environment = {name: os.environ[name] for name in ("HOME", "KUBECONFIG")}
        async with shell(tmp_path, environment, program_of(newest()), _STELLWERK) as opened:
            for line in of_the_pages():
                if line.startswith("stellwerk ") and not set("|>") & set(line):
                    failed[line] = await said_by(tmp_path, line.removeprefix("stellwerk "))
                else:
                    status, said = await opened.run(line)
                    failed[line] = f"{status}: {said}" if status else ""
    assert {line: why for line, why in failed.items() if why} == {}
