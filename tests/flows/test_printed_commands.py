"""The commands that the README and every `--help` print, run with nothing but a context."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from stellwerk.cli import _COMMANDS
from stellwerk.demo.sandbox import open_sandbox
from stellwerk.models.profile import GROUP, PLURAL
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.command import api_features
from stellwerk_cluster.kubeconfig import KubeconfigFile
from tests.support.builders import make_node, make_pod, owned
from tests.support.in_process import make_profile
from tests.support.pod_groups import make_group
from tests.support.processes import command
from tests.support.recorded_kinds import RECORDINGS
from tests.support.repository import ROOT
from tests.support.running_operator import is_active, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

_RUNS_ON: Final = re.compile(
    r"^(run|up|demo|page|record|cluster( --.*)?|completion)\b|^cluster$|convert -$|--watch"
)
"""Those that serve until they are stopped, or read what is typed; other tests run them."""
_ROW: Final = re.compile(r"^\| (`stellwerk .*?) \|", re.MULTILINE)
_EXAMPLE: Final = {"NAME": "hello", "FILE": "cluster.json"}


def examples() -> list[str]:
    """Of `--help`, without the program's name."""
    return [line for module in _COMMANDS.values() for line in module.EXAMPLES]


def of_the_readme() -> list[str]:
    """The first column of its table of commands, with names for the placeholders."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
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
}
"""Commands that the README names without what they need."""


def read(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, **obj}


def write_files(folder: Path) -> None:
    """The files that the examples name."""
    (folder / "home" / ".kube").mkdir(parents=True)
    packing = make_profile("packing", "stellwerk")
    for name, manifest in {
        "pod.yaml": read(make_pod("new", cpu="1"), "Pod"),
        "pods.yaml": read(make_pod("new", cpu="1"), "Pod"),
        "node.yaml": read(make_node("new", cpu="8"), "Node"),
        "shapes.yaml": read(make_node("large", cpu="64"), "Node"),
        "packing.yaml": {**packing, "metadata": {"name": "packing"}},
        "kube-scheduler.yaml": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        },
    }.items():
        (folder / name).write_text(yaml.safe_dump(manifest))
    nodes = [read(make_node(name, cpu="4"), "Node") for name in ("a", "b")]
    pods = [read(owned(make_pod(f"on-{on}", cpu="1", node_name=on)), "Pod") for on in ("a", "b")]
    waits = read(make_pod("waits", cpu="1"), "Pod")
    moves, decides = ({"kind": "List", "items": [*nodes, *pods, *more]} for more in ((), (waits,)))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(moves))
    (folder / "cluster.json").write_text(json.dumps(decides))
    (folder / "day.journal").write_bytes((RECORDINGS / "embedded-cluster.journal").read_bytes())


def fill(cluster: EmbeddedCluster) -> None:
    """The objects that the examples name."""
    api = cluster.api
    api.ensure(api.kinds.resource("namespaces"), "", {"metadata": {"name": "team"}})
    pods = api.kinds.resource("pods")
    for namespace, name in (
        ("default", "hello"),
        ("default", "web-0"),
        ("team", "web-0"),
        ("team", "hello"),
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
    api.create(api.kinds.resource("deployments", "apps"), "default", deployment)
    group = make_group("training", min_count=2)
    group["metadata"].pop("uid", None)
    api.create(api.kinds.resource("podgroups", "scheduling.k8s.io"), "default", group)
    shadow = make_profile("packing-next", "packing-next", shadowOf="packing")
    del shadow["spec"]["schedulerName"]
    for profile in (make_profile("packing", "packing"), shadow):
        profile["metadata"].pop("uid", None)
        api.create(api.kinds.resource(PLURAL, GROUP), "", profile)


@pytest.mark.parametrize("lines", [examples, of_the_readme], ids=["--help", "the README"])
async def test_what_is_printed_runs_with_nothing_but_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    write_files(tmp_path)
    kubeconfig = tmp_path / "home" / ".kube" / "config"
    async with open_sandbox(3, KubeconfigFile(kubeconfig), features=api_features()) as sandbox:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
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
        failed, ran = {}, 0
        for line in lines():
            if _RUNS_ON.search(line):
                continue
            words = shlex.split(line.replace("~", str(tmp_path / "home")))
            status, _, said = await asyncio.wait_for(command(*words), 60)
            ran += 1
            if status:
                failed[line] = said
        assert not failed
        assert ran > 10
