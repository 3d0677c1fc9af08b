"""`stellwerk plan fit`: shapes, prices, and what fits none of them."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from stellwerk_cli.cli import main
from stellwerk_cli.commands.plan_fit import add_arguments, run
from stellwerk_cli.commands.port_arguments import add_output_arguments
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import SchedulerError
from stellwerk_simulation.manifests import HOURLY_PRICE, nodes_of, pods_of
from stellwerk_simulation.node_fit import fit
from stellwerk_simulation.ready_profiles import profile_of
from tests.support.builders import make_node, make_pod


def shape(name: str, cpu: str, price: str, **fields: Any) -> dict[str, Any]:
    node = make_node(name, cpu=cpu, memory="64Gi", **fields)
    node["metadata"]["annotations"] = {HOURLY_PRICE: price}
    return node


def written(path: Path, objects: list[dict[str, Any]], kind: str) -> str:
    path.write_text(yaml.safe_dump_all([{**each, "kind": kind} for each in objects]))
    return str(path)


def planned(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pods: list[dict[str, Any]],
    shapes: list[dict[str, Any]],
) -> dict[str, Any]:
    arguments = ["--for", written(tmp_path / "pods.yaml", pods, "Pod"), "-o", "json"]
    arguments += ["--shapes", written(tmp_path / "shapes.yaml", shapes, "Node")]
    assert main(["plan", "fit", *arguments]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_cheapest_mix_of_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_pod(f"p{number}", cpu="3") for number in range(6)]
    found = planned(tmp_path, capsys, pods, [shape("small", "4", "1.1"), shape("large", "12", "4")])
    assert found["nodes"] == {"small": 6}
    assert found["cost"] == pytest.approx(6.6)
    assert found["bound"] <= found["cost"]
    assert found["placed"] == 6


def test_a_plan_is_all_that_stands_on_standard_output(tmp_path: Path) -> None:
    """Some versions of the solver print a banner there when it is made."""
    pods = written(tmp_path / "pods.yaml", [make_pod("p", cpu="3")], "Pod")
    shapes = written(tmp_path / "shapes.yaml", [shape("small", "4", "1.1")], "Node")
    command = [
        "-m",
        "stellwerk_cli",
        "plan",
        "fit",
        "--for",
        pods,
        "--shapes",
        shapes,
        "-o",
        "json",
    ]
    done = subprocess.run([sys.executable, *command], capture_output=True, check=True)
    assert json.loads(done.stdout)["nodes"] == {"small": 1}


def test_room_in_sum_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In sum three nodes would do; of such pods each takes one.
    pods = [make_pod(f"p{number}", cpu="3") for number in range(4)]
    assert planned(tmp_path, capsys, pods, [shape("n", "4", "1")])["nodes"] == {"n": 4}


def test_members_of_groups_and_pods_with_claims_count_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [
        make_pod("member", cpu="3", schedulingGroup={"podGroupName": "g"}),
        make_pod("labelled", cpu="3", labels={"scheduling.x-k8s.io/pod-group": "g"}),
        make_pod("claims", cpu="3", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}]),
    ]
    assert planned(tmp_path, capsys, pods, [shape("n", "4", "1")])["nodes"] == {"n": 3}


def test_a_selector_decides_which_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_pod("a", cpu="1"), make_pod("b", cpu="1")]
    pods[0]["spec"]["nodeSelector"] = {"disk": "ssd"}
    shapes = [shape("plain", "1", "1"), shape("fast", "1", "3", labels={"disk": "ssd"})]
    assert planned(tmp_path, capsys, pods, shapes)["nodes"] == {"plain": 1, "fast": 1}


def test_pods_that_fit_no_shape_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [make_pod("huge", cpu="90"), make_pod("small", cpu="1")]
    found = planned(tmp_path, capsys, pods, [shape("n", "4", "1")])
    assert found["homeless"] == {"default/huge": "Insufficient cpu"}
    assert found["nodes"] == {"n": 1}


def test_pods_that_have_a_node_do_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = written(tmp_path / "p.yaml", [make_pod("there", node_name="n")], "Pod")
    shapes = written(tmp_path / "s.yaml", [shape("n", "4", "1")], "Node")
    assert main(["plan", "fit", "--for", pods, "--shapes", shapes]) == 2
    assert "there is no Pod" in capsys.readouterr().err


def test_the_plan_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = written(tmp_path / "p.yaml", [make_pod("a", cpu="2"), make_pod("b", cpu="90")], "Pod")
    shapes = written(tmp_path / "s.yaml", [shape("n", "4", "1.5")], "Node")
    assert main(["plan", "fit", "--for", pods, "--shapes", shapes]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == ["n", "1", "1.50", "1.50"]
    assert out[-2] == "left out: 1 pod, which fits no shape even if it is empty:"
    assert out[-1] == "  default/b: Insufficient cpu"


def apart(name: str) -> dict[str, Any]:
    """A pod that shares its node with none of its kind."""
    pod = make_pod(name, cpu="10m", labels={"app": "x"})
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod["spec"]["affinity"] = {"podAntiAffinity": required}
    return pod


def test_pods_that_keep_apart_get_a_node_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = shape("n", "4", "1")
    plain["metadata"]["labels"] = {}  # as people write shapes: the kubelet names its host
    found = planned(tmp_path, capsys, [apart(f"p{number}") for number in range(25)], [plain])
    assert found["nodes"] == {"n": 25}


def test_a_shape_with_a_capacity_alone_offers_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = shape("n", "4", "1")
    node["status"]["capacity"] = node["status"].pop("allocatable")
    pods = [make_pod(f"p{number}", cpu="2") for number in range(4)]
    assert planned(tmp_path, capsys, pods, [node])["nodes"] == {"n": 2}


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ([shape("a", "4", "1"), make_node("b")], "b: no hourly price, where other shapes have one"),
        ([shape("a", "4", "1"), shape("a", "8", "2")], "Node a occurs twice"),
    ],
)
def test_shapes_that_cannot_be_used(
    shapes: list[dict[str, Any]],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pods = written(tmp_path / "p.yaml", [make_pod("p", cpu="1")], "Pod")
    file = written(tmp_path / "s.yaml", shapes, "Node")
    assert main(["plan", "fit", "--for", pods, "--shapes", file]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "status"), [((), 0), (("--exit-code",), 1)], ids=["answered", "as a status"]
)
def test_pods_that_no_shape_takes_are_an_answer(
    options: tuple[str, ...], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = written(tmp_path / "p.yaml", [make_pod("p", cpu="1")], "Pod")
    file = written(tmp_path / "s.yaml", [shape("a", "100m", "1")], "Node")
    command = ["plan", "fit", "--for", pods, "--shapes", file, *options]
    assert main(command) == status
    assert capsys.readouterr().out == (
        "left out: 1 pod, which fits no shape even if it is empty:\n  default/p: Insufficient cpu\n"
    )
    assert main([*command, "-o", "json"]) == status
    answer = json.loads(capsys.readouterr().out)
    assert (answer["nodes"], answer["placed"], answer["cost"]) == ({}, 0, 0.0)
    assert answer["homeless"] == {"default/p": "Insufficient cpu"}


def test_without_the_solver_its_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    pods = written(tmp_path / "p.yaml", [make_pod("p", cpu="1")], "Pod")
    file = written(tmp_path / "s.yaml", [shape("n", "4", "1")], "Node")
    assert main(["plan", "fit", "--for", pods, "--shapes", file]) == 2
    assert "pip install 'stellwerk[planning]'" in capsys.readouterr().err


def test_where_no_pod_waits_nothing_is_to_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "s.yaml", [shape("n", "4", "1")], "Node")
    parser = argparse.ArgumentParser()
    add_arguments(parser, add_output_arguments)
    asked = ["fit", "--for", "pending", "--kubeconfig", "there", "--shapes", file]
    bound = {"kind": "Pod", **make_pod("there", node_name="n")}
    done = run(parser.parse_args(asked), lambda *_: [bound], lambda *_: 1, lambda *_: None)
    assert (done, capsys.readouterr().out) == (0, "no pod waits for a node\n")


def test_pods_that_no_node_would_help_are_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "s.yaml", [shape("n", "4", "1")], "Node")
    parser = argparse.ArgumentParser()
    add_arguments(parser, add_output_arguments)
    asked = ["fit", "--for", "pending", "--kubeconfig", "there", "--shapes", file]
    objects = [
        {"kind": "SchedulerProfile", "spec": {"schedulerName": "default-scheduler"}},
        {"kind": "Pod", **make_pod("waits", cpu="1")},
        {"kind": "Pod", **make_pod("gated", schedulingGates=[{"name": "wait"}])},
        {"kind": "Pod", **make_pod("other", scheduler_name="another")},
    ]
    done = run(parser.parse_args(asked), lambda *_: objects, lambda *_: 1, lambda *_: None)
    out = capsys.readouterr().out
    assert done == 0
    assert "1 pod was placed on them in a simulation, which ignores free room" in out
    assert "not examined: 2 pods" in out
    assert "default/gated: scheduling gates hold it back: wait" in out
    assert "default/other: it waits for another scheduler: another" in out


ZONE = "topology.kubernetes.io/zone"
IN_TWO_ZONES = [make_node(f"in-{zone}", cpu="8", labels={ZONE: zone}) for zone in "ab"]


def spread(name: str, least_domains: int) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "minDomains": least_domains,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
    return make_pod(name, cpu="1", labels={"app": "s"}, topologySpreadConstraints=[constraint])


def apart_by(key: str, name: str) -> dict[str, Any]:
    pod = apart(name)
    [term] = pod["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "topologyKey": key}]}
    pod["spec"]["affinity"]["podAntiAffinity"] = required
    return pod


@pytest.mark.parametrize(
    ("pods", "unplanned"),
    [
        pytest.param([spread(f"s{n}", 2) for n in range(2)], [], id="two zones"),
        pytest.param([spread(f"s{n}", 2) for n in range(4)], [], id="four pods"),
        pytest.param(
            [spread(f"s{n}", 3) for n in range(3)], ["default/s2"], id="more zones than there are"
        ),
        pytest.param([apart_by(ZONE, f"s{n}") for n in range(2)], [], id="anti-affinity"),
        pytest.param(
            [apart_by(ZONE, f"s{n}") for n in range(3)], ["default/s2"], id="one too many"
        ),
    ],
)
def test_each_zone_gets_the_nodes_that_constraints_ask_for(
    pods: list[dict[str, Any]],
    unplanned: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = planned(tmp_path, capsys, pods, IN_TWO_ZONES)
    assert found["nodes"] == {"in-a": 1, "in-b": 1}
    assert found["placed"] == len(pods) - len(unplanned)
    assert list(found.get("unplanned", {})) == unplanned


def test_a_pod_that_wants_to_be_with_another_one_is_placed_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "leader"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    follower = make_pod("a-follower", cpu="4", affinity={"podAffinity": required})
    leader = make_pod("leader", cpu="6", labels={"app": "leader"})
    found = planned(tmp_path, capsys, [follower, leader], IN_TWO_ZONES)
    assert sorted(found["nodes"].values()) == [2]
    assert found["placed"] == 2
    alone = planned(tmp_path, capsys, [follower, make_pod("other", cpu="1")], IN_TWO_ZONES)
    assert list(alone["unplanned"]) == ["default/a-follower"]
    assert alone["placed"] == 1
    nothing = planned(tmp_path, capsys, [follower], IN_TWO_ZONES)
    assert (nothing["nodes"], nothing["placed"], nothing["cost"]) == ({}, 0, 0)
    assert "pod affinity rules" in nothing["unplanned"]["default/a-follower"]


def test_each_new_node_has_the_pods_of_its_daemon_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    agents = [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [container], "nodeSelector": selector},
                },
            },
        }
        for name, selector in (("agent", {}), ("elsewhere", {"pool": "other"}))
    ]
    objects = [*agents, *({"kind": "Pod", **make_pod(f"p{n}", cpu="1")} for n in range(3))]
    pods, shapes = tmp_path / "pods.yaml", tmp_path / "shapes.yaml"
    pods.write_text(yaml.safe_dump_all(objects))
    shapes.write_text(yaml.safe_dump_all([{"kind": "Node", **make_node("four", cpu="4")}]))
    command = ["plan", "fit", "--for", str(pods), "--shapes", str(shapes), "-o", "json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == {"four": 2}


def claimed(name: str, claim: str) -> dict[str, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    return {"kind": "Pod", **make_pod(name, cpu="1", volumes=[volume])}


def test_a_claim_says_in_which_zone_its_pod_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_b = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "in-zone-b"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "now",
            "csi": {"driver": "d.example", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [in_b]}},
        },
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "now",
            "volumeName": "in-zone-b",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    plain = {"kind": "Pod", **make_pod("plain", cpu="1")}
    file, shapes = tmp_path / "pods.yaml", tmp_path / "shapes.yaml"
    shapes.write_text(yaml.safe_dump_all([{"kind": "Node", **each} for each in IN_TWO_ZONES]))
    command = ["plan", "fit", "--for", str(file), "--shapes", str(shapes), "-o", "json"]
    file.write_text(yaml.safe_dump_all([volume, claim, claimed("zoned", "data"), plain]))
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], found["placed"]) == ({"in-b": 1}, 2)
    assert "assumed" not in found
    file.write_text(yaml.safe_dump_all([claimed("zoned", "absent")]))
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["placed"] == 1
    [assumed] = found["assumed"]
    assert "missing in the input, of default/zoned are ignored" in assumed


def test_new_nodes_have_room_for_volumes_of_drivers_that_publish_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [
        {
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "d.example",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {"kind": "CSIDriver", "metadata": {"name": "d.example"}, "spec": {"storageCapacity": True}},
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        claimed("p", "data"),
    ]
    file, shapes = tmp_path / "pods.yaml", tmp_path / "shapes.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    shapes.write_text(yaml.safe_dump_all([{"kind": "Node", **make_node("n", cpu="4")}]))
    command = ["plan", "fit", "--for", str(file), "--shapes", str(shapes), "-o", "json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == {"n": 1}
    [assumed] = found["assumed"]
    assert assumed.startswith("new nodes are assumed to have room for every volume of local: ")


class PassingClock(VirtualClock):
    """A clock on which each look takes a second."""

    @override
    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def test_the_time_limit_holds_for_the_whole_search() -> None:
    pods = pods_of([{"kind": "Pod", **apart(f"p{number}")} for number in range(40)], "test")
    shapes = nodes_of([{"kind": "Node", **shape("n", "4", "1")}], "test")
    profile = profile_of("default", [])
    with pytest.raises(SchedulerError, match="no plan for 40 pods was decided in 30 s; "):
        fit(pods, shapes, profile, 30.0, clock=PassingClock())
    late = fit(pods, shapes, profile, 150.0, clock=PassingClock())
    assert late.placed + len(late.unplanned) == 40
    assert "the search ended after 150 s: there may be a cheaper plan" in late.assumed
    assert set(late.unplanned.values()) == {"the time ran out before a node was found for it"}
    assert list(fit(pods, shapes, profile, 1e6, clock=PassingClock()).counts) == [40]
