"""What is asked on the sandbox of `stellwerk up` is answered, or refused: nothing is dropped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from stellwerk_cli.demo.sandbox import open_sandbox
from stellwerk_cli.embedded_cluster import api_features
from stellwerk_cluster.kubeconfig import KubeconfigFile
from tests.support.builders import make_pod
from tests.support.processes import command
from tests.support.running_operator import until

pytestmark = pytest.mark.slow

BIG: Final = ("what-if", "--pod", "big")
FOUR: Final = ("--set", "spec.containers[0].resources.requests.cpu=4")


def pod(name: str, cpu: str) -> dict[str, Any]:
    made = make_pod(name, cpu=cpu)
    del made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod", **made}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}]
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": containers},
    }
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": kind.lower()},
        "spec": {**spec, "template": template},
    }


FILES: Final = {
    "deployment.yaml": [
        workload("Deployment", replicas=3, selector={"matchLabels": {"app": "web"}})
    ],
    "job.yaml": [workload("Job", parallelism=2, completions=2)],
    "group.yaml": [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "training"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        }
    ],
    "three.yaml": [pod(name, "2") for name in ("one", "two", "three")],
    "typo.yaml": [
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "proflies": [],
        }
    ],
    "flags.yaml": [
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": True},
            "clientConnection": {"qps": 500},
        }
    ],
}


ANSWERED: Final[dict[tuple[str, ...], list[str]]] = {
    ("what-if", "--pod", "deployment.yaml"): ["3 pods of default/deployment/deployment  node-"],
    ("what-if", "--pod", "deployment.yaml", "-o", "wide"): [
        "default/deployment-0",
        "default/deployment-1",
        "default/deployment-2",
    ],
    ("what-if", "--pod", "job.yaml"): ["2 pods of default/job/job  node-"],
    ("what-if", "--pod", "job.yaml=10000"): [
        "9 of 10,000 pods get a node, 9,991 find no node.",
        "default/job/job: 9 of 10,000 pods get a node",
        "by node: node-1 (3), node-2 (3), node-3 (3)",
        "9,991 pods get no node: 0/3 nodes are available: 3 Insufficient cpu.",
    ],
    ("what-if", "--pod", "three.yaml"): ["default/one", "default/two", "default/three"],
    (*BIG, "--set", "spec.containers[0].resources.requests.cpu=1"): ["default/big  node-"],
    (*BIG, "--set", r"metadata.labels.app\.kubernetes\.io/name=x"): ["default/big gets no node"],
    (*BIG, "--set", "spec.priorityClassName=high", *FOUR): ["Preemption would evict default/web-"],
    ("what-if", "--drain", "node-1", "--drain", "node-2"): [
        "If node-1, node-2 were drained",
        "2 pods of default/deployment/web",
    ],
    ("what-if", "--drain", "node-1", "--pod", "three.yaml"): [
        "default/web-",
        "default/one",
        "default/two",
        "default/three",
    ],
    ("convert", "flags.yaml"): ["schedulerName: default-scheduler"],
}
"""What is asked, and what the answer has."""

REFUSED: Final = {
    ("what-if", "--pod", "group.yaml"): (
        "group.yaml: there is no Pod, Deployment, ReplicaSet, ReplicationController, StatefulSet, "
        "Job or CronJob in it, but 1 PodGroup"
    ),
    ("what-if", "--profile", "deployment.yaml"): (
        "deployment.yaml: there is no SchedulerProfile in it, but 1 Deployment"
    ),
    ("what-if", "--add-nodes", "deployment.yaml"): (
        "deployment.yaml: there is no Node in it, but 1 Deployment"
    ),
    (*BIG, "--set", "spec.nodeSelektor.disk=ssd", "--set", "spec.foo=1"): (
        'unknown field "spec.nodeSelektor", "spec.foo"'
    ),
    (*BIG, "--set", "metadata.labels.app.kubernetes.io/name=x"): (
        "cannot unmarshal object into Go struct field ObjectMeta.metadata.labels"
    ),
    ("convert", "typo.yaml"): 'proflies: unknown field; did you mean "profiles"?',
}
"""What is asked, and what the one line of the refusal has."""


@asynccontextmanager
async def sandbox_of(folder: Path) -> AsyncIterator[None]:
    """Three nodes of 4 CPU, a pod of 1 CPU on each, and `big`, which waits for 100 CPU."""
    for name, documents in FILES.items():
        (folder / name).write_text(yaml.safe_dump_all(documents))
    file = KubeconfigFile(folder / "kubeconfig")
    async with open_sandbox(3, file, features=api_features()) as sandbox:
        api = sandbox.cluster.api
        classes = api.kinds.resource("priorityclasses", "scheduling.k8s.io")
        api.create(classes, "", {"metadata": {"name": "high"}, "value": 1000})
        pods = api.kinds.resource("pods")
        api.create(pods, "default", pod("big", "100"))
        web = workload("Deployment", replicas=3, selector={"matchLabels": {"app": "web"}})
        web["metadata"]["name"] = "web"
        api.create(api.kinds.resource("deployments", "apps"), "default", web)

        def is_tried() -> bool:
            found = [entry.obj["status"] for entry in api.store.collection("pods").entries()]
            return sorted(each["phase"] for each in found) == ["Pending", *["Running"] * 3]

        await until(is_tried)
        yield


async def test_what_is_asked_is_answered_or_refused_in_one_line(tmp_path: Path) -> None:
    async def asked(words: tuple[str, ...]) -> tuple[int, str, str]:
        words = tuple(
            str(tmp_path / word) if word.partition("=")[0] in FILES else word for word in words
        )
        cluster = () if words[0] == "convert" else ("--kubeconfig", str(tmp_path / "kubeconfig"))
        return await asyncio.wait_for(command(*words, *cluster), 20)

    async with sandbox_of(tmp_path):
        answers = {words: await asked(words) for words in (*ANSWERED, *REFUSED)}
    for words, texts in ANSWERED.items():
        status, printed, said = answers[words]
        assert status == 0, said
        assert [text for text in texts if text not in printed] == [], printed
        assert "uncordon" not in printed, "it would undo what is supposed"
    for words, text in REFUSED.items():
        status, printed, said = answers[words]
        assert (status, printed, said.count("\n")) == (2, "", 1), said
        assert text in said
    _, _, said = answers["convert", "flags.yaml"]
    assert "stellwerk run --leader-elect" in said
    assert "clientConnection: has no counterpart" in said
