"""Questions to a cluster that no operator serves, answered with the caller's credentials alone.

The other scheduler is played by pods that are created with their nodes; in the long set it is a
second Stellwerk under the name default-scheduler (`test_read_cluster_long`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.answers.answer import codec
from stellwerk.answers.devices import ClaimExplanation, DevicesPage
from stellwerk.answers.group import GroupExplanation
from stellwerk.answers.nodes import NodeExplanation, NodesPage
from stellwerk.answers.pod import (
    BindingFacts,
    DecisionFields,
    LastAttempt,
    LastPreemption,
    PodExplanation,
    PreemptedBy,
    QueueFacts,
    TookPlace,
)
from stellwerk.answers.queue import PendingPod, QueuePage, UnboundPods, UnservedPod
from stellwerk.answers.what_if import WhatIf
from stellwerk.answers.workload import WorkloadExplanation
from stellwerk.client.lease import HOLDER_ANNOTATION, POD_ANNOTATION
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, owned
from tests.support.fake_extender import fake_extender
from tests.support.pod_groups import make_group
from tests.support.processes import command
from tests.support.rights import (
    ENFORCED,
    READER,
    asked_rights,
    kubeconfig_of_reader,
    list_rules,
)
from tests.support.storage import claim_volume, make_claim

STILL = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
READING = frozenset({"get", "list", "watch"})
ONLY_OPERATORS = (
    BindingFacts,
    DecisionFields,
    LastAttempt,
    LastPreemption,
    PendingPod,
    PreemptedBy,
    QueueFacts,
    QueuePage,
    TookPlace,
    UnservedPod,
)
"""Parts of answers that only an operator can know: its queue, its attempts and its decisions."""
INVENTED = frozenset(
    {
        "attempts",
        "backoff",
        "decided_at",
        "ended_at",
        "gated_by",
        "last_attempt",
        "next_retry",
        "position",
        "queue",
        "since",
        "woken_by",
    }
)
"""Names of fields that only an operator can fill."""


def cluster_of(
    *pods: JsonObject, options: ClusterOptions = STILL, more: Sequence[tuple[str, JsonObject]] = ()
) -> EmbeddedCluster:
    """Three nodes of 4 CPU and some pods; `more`: plural.group and the object of others."""
    cluster = EmbeddedCluster([make_node(f"n{number}") for number in range(3)], options=options)
    api = cluster.api
    for pod in pods:
        pod["metadata"].pop("uid", None)
        api.create(api.kinds.resource("pods"), pod["metadata"]["namespace"], pod)
    for plural, obj in more:
        kind = api.kinds.resource(*plural.split(".", 1))
        for field in ("resourceVersion", "uid"):
            obj["metadata"].pop(field, None)
        api.create(kind, obj["metadata"].get("namespace", ""), obj)
    return cluster


def deployment(app: str) -> JsonObject:
    """A Deployment with the pods of that label."""
    labels = {"app": app}
    template = {"metadata": {"labels": labels}, "spec": make_pod("x", cpu="1")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template, "replicas": 3}
    return {"metadata": {"name": app, "namespace": "default"}, "spec": spec}


def device_claim(name: str) -> JsonObject:
    """A claim for a device of a class that is not there."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "none"}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def some_pods() -> list[JsonObject]:
    """Two that run, one that fits nowhere, one that is held back, one of another scheduler."""
    gates, web = [{"name": "example.com/wait"}], {"app": "web"}
    return [
        make_pod("runs", cpu="1", node_name="n0"),
        owned(make_pod("web-1", cpu="3", node_name="n1", labels=web)),
        owned(make_pod("web-2", cpu="9", labels=web)),
        owned(make_pod("web-3", cpu="9", labels=web)),
        make_pod("small", cpu="1"),
        make_pod("gated", cpu="1", schedulingGates=gates),
        make_pod("odd", cpu="1", scheduler_name="volcano"),
    ]


async def answer(kubeconfig: str, *words: str) -> JsonObject:
    """The JSON of a command that succeeds."""
    status, printed, said = await command(*words, "--kubeconfig", kubeconfig, "-o", "json")
    assert status == 0, said
    found: JsonObject = json.loads(printed)
    return found


def parts_of(value: object) -> Iterator[tuple[object, str, object]]:
    """(part, field, value) of every field that is filled, however deep it lies."""
    if is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            held = getattr(value, each.name)
            if held is not None and held != each.default:
                yield value, each.name, held
                yield from parts_of(held)
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from parts_of(held)
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from parts_of(held)


async def test_every_answer_is_read_and_nothing_in_it_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = [
        ("persistentvolumeclaims", make_claim("data")),
        ("deployments.apps", deployment("web")),
        ("resourceclaims.resource.k8s.io", device_claim("gpu")),
        ("podgroups.scheduling.k8s.io", make_group("gang", 3)),
    ]
    pods = [
        *some_pods(),
        make_pod("stored", cpu="1", volumes=claim_volume("data")),
        make_pod("member", cpu="1", schedulingGroup={"podGroupName": "gang"}),
        make_pod("device", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
    ]
    options = replace(STILL, feature_gates=frozenset({"GenericWorkload"}))
    questions: list[tuple[type[Any], Sequence[str]]] = [
        (PodExplanation, ["explain", "pod", "web-2"]),
        (PodExplanation, ["explain", "pod", "runs"]),
        (PodExplanation, ["explain", "pod", "gated"]),
        (PodExplanation, ["explain", "pod", "odd"]),
        (PodExplanation, ["explain", "pod", "stored"]),
        (PodExplanation, ["explain", "pod", "member"]),
        (PodExplanation, ["explain", "pod", "device"]),
        (GroupExplanation, ["explain", "podgroup", "gang"]),
        (ClaimExplanation, ["explain", "resourceclaim", "gpu"]),
        (WorkloadExplanation, ["explain", "deployment", "web"]),
        (NodeExplanation, ["explain", "node", "n0"]),
        (NodesPage, ["nodes"]),
        (UnboundPods, ["queue", "-A"]),
        (DevicesPage, ["devices"]),
        (WhatIf, ["what-if", "--drain", "n1"]),
        (WhatIf, ["what-if"]),
        (WhatIf, ["what-if", "--delete", "pod/runs"]),
        (WhatIf, ["what-if", "--pod", "small", "--set", "spec.containers[0].image=other"]),
    ]
    async with cluster_of(*pods, options=options, more=more) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        before = cluster.api.store.revision
        with asked_rights(monkeypatch, READER) as asked:
            for kind, words in questions:
                found = codec(kind).read(await answer(kubeconfig, *words))
                assert found.read.operator == "no Stellwerk here", words
                assert (found.read.nodes, found.read.pods) == (3, len(pods))
                for part, name, _ in parts_of(found):
                    assert not isinstance(part, ONLY_OPERATORS), (words, part)
                    assert name not in INVENTED, (words, name, part)
        assert cluster.api.store.revision == before
    assert {verb for _, _, verb in asked.allowed | asked.refused} <= READING
    assert {verb for verb, _ in asked.paths} == {"get"}
    assert all(path.startswith(("/version", "/api")) for _, path in asked.paths)


async def test_a_pending_pod_says_why_and_a_bound_one_where_it_would_go(tmp_path: Path) -> None:
    async with cluster_of(*some_pods()) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        status, printed, said = await command("explain", "pod/web-2", "--kubeconfig", kubeconfig)
        pending = await answer(kubeconfig, "explain", "pod/web-2")
        bound = await answer(kubeconfig, "explain", "pod/web-1")
        gated = await answer(kubeconfig, "explain", "pod/gated")
        odd = await answer(kubeconfig, "explain", "pod/odd")
    assert status == 0
    first, *_ = said.splitlines()
    assert first.startswith("stellwerk: no Stellwerk here: read 3 nodes and 7 pods at ")
    assert first.endswith(", decided as kube-scheduler 1.36.2 is assumed to")
    assert "request 4 instead of 9 CPU" in printed
    assert pending["verdicts"]["message"] == "0/3 nodes are available: 3 Insufficient cpu."
    assert pending["wouldFit"]
    assert (bound["node"], bound["wouldGetNode"] in {"n1", "n2"}) == ("n1", True)
    assert (
        bound["note"]
        == "its decision was not seen: its scheduler made it before the cluster was read"
    )
    ranked = {each["node"]: each["rank"] for each in bound["placementNow"]["best"]}
    assert ranked["n1"] == ranked["n2"] == 1 < ranked["n0"]
    assert all(each["scores"] for each in bound["placementNow"]["best"])
    assert "held back by SchedulingGates" in gated["wouldWait"]
    assert gated["schedulerSaid"].startswith("Scheduling is blocked")
    assert odd["state"] == "elsewhere"
    assert 'no profile for schedulerName "volcano"' in odd["reason"]


async def test_the_queue_is_listed_by_scheduler_and_controller(tmp_path: Path) -> None:
    async with cluster_of(*some_pods()) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        found = codec(UnboundPods).read(await answer(kubeconfig, "queue", "-A"))
        filtered = await answer(kubeconfig, "queue", "-A", "--plugin", "NodeResourcesFit")
        status, _, said = await command("queue", "--queue", "gated", "--kubeconfig", kubeconfig)
    rows = {row[0]: row[1:] for row in found.rows()}
    assert rows["default/replicaset/web"] == ("2", "default-scheduler", "NodeResourcesFit")
    assert rows["default/gated"] == ("1", "default-scheduler", "SchedulingGates")
    (foreign,) = [row for row in rows.values() if row[1] == "volcano"]
    assert 'no profile for schedulerName "volcano"' in foreign[2]
    assert [each["pod"] for each in filtered["items"]] == ["default/web-2", "default/web-3"]
    assert (status, "queues of an operator" in said) == (2, True)


async def test_what_a_question_does_not_need_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [("persistentvolumeclaims", make_claim("data"))]
    stored = make_pod("stored", cpu="1", volumes=claim_volume("data"))
    async with cluster_of(*some_pods(), stored, more=claims) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)

        async def listed(*words: str) -> set[str]:
            with asked_rights(monkeypatch, READER) as asked:
                await answer(kubeconfig, *words)
            return {resource for _, resource, verb in asked.allowed if verb == "list"}

        plain, of_volumes = (
            await listed("explain", "pod/small"),
            await listed("explain", "pod/stored"),
        )
        nodes = await listed("nodes")
    assert {"nodes", "pods", "namespaces"} <= plain
    volumes = {"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"}
    assert not plain & (volumes | {"resourceclaims", "resourceslices", "podgroups"})
    assert volumes <= of_volumes
    assert nodes <= {"leases", "nodes", "pods", "schedulerprofiles", "priorityclasses"}


async def test_a_kind_that_may_not_be_read_is_named_with_its_consequence(tmp_path: Path) -> None:
    claims = [("persistentvolumeclaims", make_claim("data"))]
    stored = make_pod("stored", cpu="9", volumes=claim_volume("data"))
    async with cluster_of(stored, more=claims) as cluster:
        allowed = list_rules(("", ["nodes", "pods"]))
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", allowed)
        _, printed, said = await command("explain", "pod/stored", "--kubeconfig", kubeconfig)
        found = codec(PodExplanation).read(await answer(kubeconfig, "explain", "pod/stored"))
    # Without the claim nothing is said about it: the right reason alone is given.
    assert "Insufficient cpu" in printed
    assert "not found" not in printed
    assert found.read is not None
    left_out = {each.kind: each for each in found.read.left_out or ()}
    assert left_out["PersistentVolumeClaim"].reason == "you may not list persistentvolumeclaims"
    assert "volumes are not looked at" in left_out["PersistentVolumeClaim"].consequence
    assert "without PersistentVolumeClaim: you may not list persistentvolumeclaims; " in said


@pytest.mark.parametrize("missing", ["nodes", "pods"])
async def test_without_nodes_or_pods_the_role_that_gives_them_is_printed(
    missing: str, tmp_path: Path
) -> None:
    async with cluster_of() as cluster:
        allowed = list_rules(("", sorted({"nodes", "pods"} - {missing})))
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", allowed)
        status, printed, said = await command("queue", "-A", "--kubeconfig", kubeconfig)
    assert status == 1
    assert said.startswith(f"stellwerk: you may not list {missing} of the whole cluster")
    role, binding = yaml.safe_load_all(printed)
    assert role["kind"], binding["kind"] == ("ClusterRole", "ClusterRoleBinding")
    assert binding["subjects"][0]["name"] == READER


def scheduler_pod(
    *arguments: str, image: str = "registry.k8s.io/kube-scheduler:v1.35.2"
) -> JsonObject:
    """kube-scheduler as kubeadm runs it."""
    pod = make_pod("kube-scheduler-n0", namespace="kube-system", cpu="100m", node_name="n0")
    pod["metadata"]["labels"] = {"component": "kube-scheduler"}
    pod["spec"]["containers"][0] |= {"image": image, "command": ["kube-scheduler", *arguments]}
    return pod


async def test_the_configuration_is_taken_from_the_scheduler_s_pod(tmp_path: Path) -> None:
    shown = scheduler_pod(
        "--config=/etc/kubernetes/scheduler.yaml",
        "--feature-gates=GenericWorkload=true,NoSuch=true",
    )
    async with cluster_of(*some_pods(), shown) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        found = codec(PodExplanation).read(await answer(kubeconfig, "explain", "pod/small"))
    assert found.read is not None
    assumed = found.read.configuration
    assert assumed.compatibility == "1.35.2" or assumed.compatibility.startswith("1.35")
    assert assumed.source.startswith("the arguments of kube-system/kube-scheduler-n0")
    remarks = "\n".join(assumed.remarks or ())
    assert (
        "/etc/kubernetes/scheduler.yaml lies on the host of kube-system/kube-scheduler-n0"
        in remarks
    )
    assert "feature gate NoSuch=true is not followed" in remarks


CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
  - urlPrefix: http://extender.example:8080
    filterVerb: filter
profiles:
  - schedulerName: default-scheduler
  - schedulerName: volcano
    plugins:
      filter: {disabled: [{name: NodeResourcesFit}]}
"""


@pytest.mark.parametrize("place", ["file", "configmap"])
async def test_a_configuration_is_taken_from_a_file_or_a_config_map(
    place: str, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    config_map = {
        "metadata": {"name": "scheduler", "namespace": "default"},
        "data": {"config.yaml": CONFIGURATION},
    }
    named = str(file) if place == "file" else "configmap/default/scheduler"
    more = [("configmaps", config_map)]
    odd = make_pod("odd", cpu="9", scheduler_name="volcano")
    async with cluster_of(odd, make_pod("big", cpu="9"), more=more) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        of_odd = await answer(kubeconfig, "explain", "pod/odd", "--config", named)
        of_big = await answer(kubeconfig, "explain", "pod/big", "--config", named)
    assert "wouldGetNode" in of_odd
    assert "wouldGetNode" not in of_big
    assumed = of_big["read"]["configuration"]
    assert assumed["schedulerNames"] == ["default-scheduler", "volcano"]
    assert assumed["extendersNotAsked"] == ["http://extender.example:8080"]
    assert any("extender.example" in each["plugin"] for each in of_big["leftOut"])


async def test_a_config_that_cannot_be_used_is_a_mistake(tmp_path: Path) -> None:
    async with cluster_of() as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        for named, expected in (
            ("configmap/only-one", "expected configmap/NAMESPACE/NAME"),
            (str(tmp_path / "absent.yaml"), "cannot be read"),
            ("configmap/default/absent", "--config configmap/default/absent: "),
        ):
            words = ("nodes", "--kubeconfig", kubeconfig, "--config", named)
            status, _, said = await command(*words)
            assert (status, expected in said) == (2, True), said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--local", "--operator"], "--local asks no operator"),
        (["--config", "x", "--operator"], "--config is for a cluster that is read"),
    ],
)
async def test_arguments_that_do_not_go_together(words: list[str], expected: str) -> None:
    status, _, said = await command("nodes", *words)
    assert (status, expected in said) == (2, True)


LEASES = ("coordination.k8s.io", ["leases"])


def lease_of_stellwerk(name: str = "stellwerk", holder: str = "pod-1_x") -> JsonObject:
    """A lease as an operator in a pod writes it."""
    annotations = {HOLDER_ANNOTATION: holder, POD_ANNOTATION: "stellwerk/pod-1"}
    times = {
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    return {
        "metadata": {"name": name, "namespace": "stellwerk", "annotations": annotations},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, **times},
    }


async def test_an_operator_that_cannot_be_reached_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no kubectl
    async with cluster_of(*some_pods()) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        kind = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        cluster.api.create(kind, "stellwerk", lease_of_stellwerk())
        found = await answer(kubeconfig, "explain", "pod/small")
        alone = await command("explain", "pod/small", "--operator", "--kubeconfig", kubeconfig)
        local = await answer(kubeconfig, "explain", "pod/small", "--local")
    assert found["read"]["operator"].startswith("Stellwerk does not answer (")
    assert found["wouldGetNode"]
    assert alone[0] in {2, 3}
    assert local["read"]["operator"] == "no Stellwerk asked"


async def test_other_operators_are_named(tmp_path: Path) -> None:
    async with cluster_of(make_pod("small", cpu="1")) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        kind = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        for name in ("stellwerk-a", "stellwerk-b"):
            cluster.api.create(kind, "stellwerk", lease_of_stellwerk(name))
        found = await answer(kubeconfig, "nodes")
    assert "in stellwerk Stellwerk holds stellwerk-a, stellwerk-b" in found["read"]["operator"]
    assert "--lease" in found["read"]["operator"]


async def test_a_server_of_another_release_is_said(tmp_path: Path) -> None:
    options = replace(STILL, release="1.38")
    async with cluster_of(make_pod("small", cpu="1"), options=options) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        found = await answer(kubeconfig, "explain", "pod/small")
    assert found["read"]["configuration"]["compatibility"].startswith("1.38")


async def test_texts_of_the_cluster_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    shown = scheduler_pod("--config=/etc/\x1b[31mred\x9b.yaml", "--feature-gates=\x1b]0;x\x07=true")
    async with cluster_of(shown, make_pod("small", cpu="1")) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        _, printed, said = await command("explain", "pod/small", "--kubeconfig", kubeconfig)
    assert all(each.isprintable() or each == "\n" for each in printed + said)


async def test_a_kubeconfig_that_acts_for_another_user_has_that_one_s_rights(
    tmp_path: Path,
) -> None:
    account = f"system:serviceaccount:stellwerk:{READER}"
    async with cluster_of(make_pod("small", cpu="1")) as cluster:
        kubeconfig_of_reader(cluster, tmp_path / "reader", list_rules(("", ["nodes"])))
        cluster.write_kubeconfig(tmp_path / "admin")
        config = yaml.safe_load((tmp_path / "admin").read_text())
        assert (await command("nodes", "--kubeconfig", str(tmp_path / "admin")))[0] == 0
        config["users"][0]["user"] |= {"as": account, "as-groups": ["system:authenticated"]}
        (tmp_path / "admin").write_text(yaml.safe_dump(config))
        status, _, said = await command("nodes", "--kubeconfig", str(tmp_path / "admin"))
    assert (status, "you may not list pods" in said) == (1, True), said


def config_with_extender(url: str) -> str:
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [
                {
                    "urlPrefix": url,
                    "filterVerb": "filter",
                    "bindVerb": "bind",
                    "nodeCacheCapable": True,
                }
            ],
        }
    )


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(["n2"], ("n2", None), id="one node"),
        pytest.param([], (None, 3), id="none"),
    ],
)
async def test_extenders_are_called_only_where_the_caller_says_so(
    left: list[str], expected: tuple[str | None, int | None], tmp_path: Path
) -> None:
    reasons = {f"n{number}": "it is reserved" for number in range(3) if f"n{number}" not in left}
    answers = {"filter": {"nodenames": left, "failedNodes": reasons}}
    async with fake_extender(answers) as extender, cluster_of(make_pod("a", cpu="1")) as cluster:
        (tmp_path / "config").write_text(config_with_extender(extender.url))
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        words = ("explain", "pod/a", "--config", str(tmp_path / "config"))
        without = await answer(kubeconfig, *words)
        assert extender.verbs() == []
        found = await answer(kubeconfig, *words, "--call-extenders")
        assert extender.verbs() == ["filter"]
    assert without["read"]["configuration"]["extendersNotAsked"] == [extender.url]
    assert "extendersNotAsked" not in found["read"]["configuration"]
    refused = found["refusedByExtenders"]
    node, nodes = expected
    assert found.get("wouldGetNode") == node
    assert refused["nodes"] == (nodes or 2)
    assert not any("extenders" in each["reason"] for each in found.get("leftOut", ()))
