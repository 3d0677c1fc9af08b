"""Explanations of a cluster that is read, held against what its scheduler says of the same pods.

The scheduler is a Stellwerk under the name default-scheduler. It takes part in no election, and the
reader may not list its profiles, so that the cluster seems to have no operator.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.processes import command
from tests.support.rights import ENFORCED, kubeconfig_of_reader, list_rules
from tests.support.running_operator import install, operator_on, until
from tests.support.storage import claim_volume

OPTIONS = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
GROUPS = ("", "apps", "policy", "storage.k8s.io", "resource.k8s.io", "scheduling.k8s.io")
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def anti_affinity() -> JsonObject:
    """No node that has such a pod already."""
    term = {
        "labelSelector": {"matchLabels": {"app": "alone"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def ports() -> list[JsonObject]:
    return [{"name": "main", "image": "x", "ports": [{"containerPort": 80, "hostPort": 8080}]}]


def pending_pods() -> list[JsonObject]:
    """Pods that fit nowhere, each for another reason."""
    alone = {"app": "alone"}
    return [
        make_pod("large", cpu="100"),
        make_pod("memory", memory="900Gi"),
        make_pod("gpus", requests={"example.com/gpu": "1"}),
        make_pod("selector", cpu="1", nodeSelector={"disk": "none"}),
        make_pod("claim", cpu="1", volumes=claim_volume("absent")),
        make_pod("port", containers=ports()),
        make_pod("elsewhere", cpu="1", labels=alone, affinity=anti_affinity()),
        make_pod("large-for-one", cpu="3", nodeSelector={"kubernetes.io/hostname": "n0"}),
        make_pod("toleration", cpu="1", nodeSelector={"kubernetes.io/hostname": "tainted"}),
    ]


def first_pods() -> list[JsonObject]:
    """Pods that are placed, and in the way of others."""
    nodes = [f"n{number}" for number in range(3)]
    alone = [
        make_pod(f"alone-{name}", cpu="2", labels={"app": "alone"}, node_name=name)
        for name in nodes
    ]
    held = [make_pod(f"port-{name}", containers=ports(), node_name=name) for name in nodes]
    return [*alone, *held, make_pod("fits", cpu="1")]


@pytest.mark.long
async def test_the_reasons_are_those_of_the_scheduler(tmp_path: Path) -> None:
    nodes = [
        *(make_node(f"n{number}", zone="a") for number in range(3)),
        make_node("tainted", taints=[TAINT]),
    ]
    cluster = EmbeddedCluster(nodes, options=OPTIONS)
    install(cluster, make_profile("default-scheduler"))
    kind = cluster.api.kinds.resource("pods")

    def pod(name: str) -> JsonObject:
        found: JsonObject = cluster.api.get(kind, "default", name).obj
        return found

    def said(name: str) -> str:
        conditions = pod(name).get("status", {}).get("conditions", [])
        return "".join(
            each.get("message", "") for each in conditions if each["type"] == "PodScheduled"
        )

    async with cluster:
        allowed = list_rules(*((group, ["*"]) for group in GROUPS))
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", allowed)
        for each in (*first_pods(), *pending_pods()):
            each["metadata"].pop("uid", None)
            cluster.api.create(kind, "default", each)
        async with operator_on(cluster, tmp_path):
            names = [each["metadata"]["name"] for each in pending_pods()]
            await until(
                lambda: all(said(name) for name in names) and pod("fits")["spec"].get("nodeName")
            )
            answers: dict[str, dict[str, Any]] = {}
            for name in (*names, "fits"):
                words = ("explain", f"pod/{name}", "-o", "json", "--kubeconfig", kubeconfig)
                status, printed, errors = await command(*words)
                assert (status, "no Stellwerk found" in errors) == (0, True), errors
                answers[name] = json.loads(printed)
        for name in names:
            found = answers[name]
            assert found["schedulerSaid"] == said(name)
            words_of_both = found.get("verdicts", {}).get("message") or found.get("wouldWait", "")
            assert _without_preemption(said(name)).startswith(_without_preemption(words_of_both)), (
                name
            )
        assert answers["fits"]["node"] == pod("fits")["spec"]["nodeName"]
        assert answers["fits"]["placementNow"]["best"]


def _without_preemption(message: str) -> str:
    """The part of a message that counts the nodes."""
    return message.partition(" preemption:")[0].strip()
