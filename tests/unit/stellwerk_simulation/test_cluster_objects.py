"""Objects beside nodes and pods: what decisions read, and what is named instead."""

import json
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cli.cli import main
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cluster import ActivePods, make_world
from stellwerk_simulation.cluster_objects import ClusterObjects, not_read
from stellwerk_simulation.ready_profiles import profile_of
from tests.support.builders import make_node, make_pod
from tests.support.pod_groups import make_group


def named(kind: str, name: str, **fields: Any) -> JsonObject:
    return {"kind": kind, "metadata": {"name": name}, **fields}


def simulate(tmp_path: Path, *objects: JsonObject, profile: str = "default") -> int:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
    arguments = ("--nodes", str(path), "--pods", str(path), "--profile", profile, "--jobs", "1")
    return main(["simulate", *arguments, "--on-failure", "queue"])


def placed(output: str) -> int:
    head, line = output.splitlines()[:2]
    return int(line.split()[head.split().index("placed")])


def preempted(output: str) -> str:
    return output.splitlines()[1].split()[-1]


def test_kinds_that_no_decision_reads_are_named() -> None:
    jobs = [named("CronJob", "a"), named("CronJob", "c")]
    objects = [*jobs, named("ConfigMap", "b"), named("Pod", "d"), {}]
    assert not_read(objects) == "1 ConfigMap, 2 CronJob, 1 object without a kind"
    assert not_read([named("Node", "n"), named("Service", "s")]) == ""
    kinds = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "PodGroup", "Workload")
    assert not_read([named(kind, "x") for kind in kinds]) == ""


def test_they_are_named_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, read = named("ConfigMap", "c"), named("ConfigMap", "d")
    read["metadata"]["uid"] = "of the cluster that it was read from"
    assert simulate(tmp_path, make_node("n"), make_pod("p"), written, read) == 0
    error = capsys.readouterr().err
    assert error == (
        "stellwerk: simulated without 2 ConfigMap\nstellwerk: decisions follow Kubernetes 1.37.1\n"
    )


def test_a_daemon_set_has_a_pod_on_each_node_that_it_chooses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taint = {"key": "gpu", "value": "", "effect": "NoSchedule"}
    nodes = (
        make_node("a", cpu="4", labels={"pool": "x"}),
        make_node("b", cpu="4", labels={"pool": "x"}),
        make_node("tainted", cpu="4", labels={"pool": "x"}, taints=[taint]),
        make_node("other", cpu="4"),
    )
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "3"}}}
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"nodeSelector": {"pool": "x"}, "containers": [container]},
            },
        },
    }
    big = make_pod("a-big", cpu="2")
    assert simulate(tmp_path, *nodes, agent, big) == 0
    printed = capsys.readouterr()
    # Those of the DaemonSet come first and leave room for the other one elsewhere alone.
    assert placed(printed.out) == 3
    assert "DaemonSet" not in printed.err
    assert simulate(tmp_path, *nodes[:2], agent, big) == 0
    assert placed(capsys.readouterr().out) == 2


def test_priorities_come_from_classes_and_evict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    urgent = make_pod("urgent", cpu="4", priorityClassName="urgent")
    urgent["metadata"]["creationTimestamp"] = "2026-01-01T00:00:09Z"
    first = make_pod("first", cpu="4")
    first["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    cluster = (make_node("n", cpu="4"), urgent, first)
    assert simulate(tmp_path, *cluster) == 0
    assert preempted(capsys.readouterr().out) == "0"
    assert simulate(tmp_path, *cluster, named("PriorityClass", "urgent", value=7)) == 0
    assert preempted(capsys.readouterr().out) == "1"


def test_a_bound_volume_says_where_its_pod_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}}
    reference = {"namespace": "default", "name": "data", "uid": "claim"}
    volume = named(
        "PersistentVolume",
        "disk",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": terms,
            "claimRef": reference,
            "csi": {"driver": "d", "volumeHandle": "disk"},
        },
        status={"phase": "Bound"},
    )
    claim = named(
        "PersistentVolumeClaim",
        "data",
        spec={"volumeName": "disk", "accessModes": ["ReadWriteOnce"]},
        status={"phase": "Bound"},
    )
    claim["metadata"] |= {
        "namespace": "default",
        "uid": "claim",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
    }
    uses = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pods = [make_pod(f"p{number}", cpu="3", volumes=uses) for number in range(2)]
    nodes = [make_node("n1", cpu="4", zone="a"), make_node("n2", cpu="4", zone="b")]
    assert simulate(tmp_path, *nodes, *pods, volume, claim) == 0
    assert placed(capsys.readouterr().out) == 1


def test_namespaces_are_selected_by_their_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = {"kubernetes.io/metadata.name": "team"}
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchLabels": name},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = make_pod("first", namespace="team", labels={"app": "web"})
    second = make_pod("second", namespace="zone", affinity=apart)
    cluster = make_node("n"), first, second, named("Namespace", "team")
    assert simulate(tmp_path, *cluster) == 0
    assert placed(capsys.readouterr().out) == 1


GANGS = (
    "kind: SchedulerProfile\nmetadata: {name: gangs}\n"
    "spec: {schedulerName: gangs, gangScheduling: true}\n"
)


def member(name: str, **spec: Any) -> JsonObject:
    return make_pod(name, schedulingGroup={"podGroupName": "g"}, **spec)


def asking(source: str, name: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", source: name}]}


def devices(count: int) -> list[JsonObject]:
    """A node's devices, their class, a template for one, and a claim for one that another has."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    wanted = {"deviceClassName": "gpu.example.com", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": wanted}]}}
    taken = named(
        "ResourceClaim",
        "taken",
        spec=spec,
        status={"allocation": {}, "reservedFor": [{"uid": "another"}]},
    )
    template = named("ResourceClaimTemplate", "one", spec={"spec": spec})
    for each in (taken, template):
        each["metadata"]["namespace"] = "default"
    return [
        taken,
        template,
        named("DeviceClass", "gpu.example.com", spec={}),
        named(
            "ResourceSlice",
            "n",
            spec={
                "driver": "gpu.example.com",
                "nodeName": "n",
                "pool": pool,
                "devices": [{"name": f"gpu-{number}"} for number in range(count)],
            },
        ),
    ]


@pytest.mark.parametrize(("members", "placed_pods"), [(3, 3), (2, 0)])
def test_members_of_a_group_are_placed_together_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], members: int, placed_pods: int
) -> None:
    profile = tmp_path / "gangs.yaml"
    profile.write_text(GANGS)
    pods = [member(f"p{number}") for number in range(members)]
    group = make_group("g", 3)
    assert simulate(tmp_path, make_node("n"), *pods, group, profile=str(profile)) == 0
    assert placed(capsys.readouterr().out) == placed_pods
    # Without gangScheduling they are pods like others.
    assert simulate(tmp_path, make_node("n"), *pods, group) == 0
    assert placed(capsys.readouterr().out) == members


@pytest.mark.parametrize(("source", "name"), [("TemplateName", "one"), ("Name", "taken")])
def test_pods_get_the_devices_of_their_claims_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, name: str
) -> None:
    pods = [make_pod(f"p{number}", **asking(f"resourceClaim{source}", name)) for number in range(3)]
    assert simulate(tmp_path, make_node("n"), *pods, *devices(2)) == 0
    # Each has a claim of its own, or all share one.
    assert placed(capsys.readouterr().out) == (2 if name == "one" else 3)


def test_what_is_not_there_is_named_with_the_pod_that_waits_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "gangs.yaml"
    profile.write_text(GANGS)
    pods = [member("a"), make_pod("b", **asking("resourceClaimTemplateName", "two"))]
    assert simulate(tmp_path, make_node("n"), *pods, *devices(2), profile=str(profile)) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        "stellwerk: 2 of 2 pods name objects that do not exist and wait for them, such as "
        "default/a for "
        "PodGroup g\nstellwerk: decisions follow Kubernetes 1.37.1\n"
    )
    assert "waiting for the pod group" in printed.out
    assert placed(printed.out) == 0


def test_claims_that_were_made_for_pods_are_made_anew_where_their_template_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, of_class, of_node = devices(1)
    generated = devices(1)[0]
    generated["metadata"] |= {"name": "p-gpu-x", "ownerReferences": [{"kind": "Pod", "uid": "p"}]}
    pod = make_pod("p", **asking("resourceClaimTemplateName", "gone"))
    pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}
    assert simulate(tmp_path, make_node("n"), pod, generated, of_class, of_node) == 0
    printed = capsys.readouterr()
    assert printed.err == "stellwerk: decisions follow Kubernetes 1.37.1\n"
    assert placed(printed.out) == 1


def test_an_object_that_is_wrong_is_named() -> None:
    cluster_objects = ClusterObjects((named("PriorityClass", "urgent", value="much"),), "x.yaml")
    with pytest.raises(ConfigurationError, match=r"x\.yaml, PriorityClass urgent: .*much"):
        make_world([], profile_of("default", []), 0, ActivePods(), cluster_objects)


def bare(name: str, **container: object) -> JsonObject:
    """A pod as people write it: nothing that the API server fills in."""
    spec = {"hostNetwork": "ports" in container, "containers": [{"name": "c", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("pods", "count"),
    [
        pytest.param([bare("p", resources={"limits": {"cpu": "1000"}})], 0, id="a limit"),
        pytest.param([bare("p", resources={"limits": {"x.io/gpu": 1}})], 0, id="a device"),
        pytest.param(
            [bare(name, ports=[{"containerPort": 80}]) for name in "abc"], 1, id="the host's ports"
        ),
        pytest.param([bare("p"), bare("q")], 2, id="nothing"),
    ],
)
def test_pods_have_the_defaults_of_the_api(
    pods: list[JsonObject], count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(tmp_path, make_node("n", cpu="4"), *pods) == 0
    assert placed(capsys.readouterr().out) == count
    path = str(tmp_path / "cluster.json")
    assert main(["decide", path, "-o", "json"]) == 0
    decisions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # Each alone: the others wait.
    assert sum(bool(each["selected"]) for each in decisions) == (len(pods) if count else 0)
