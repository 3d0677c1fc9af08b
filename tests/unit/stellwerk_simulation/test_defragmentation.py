"""`stellwerk plan defrag`: what moves, what stays, and what is promised."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stellwerk.models.gpu import DEVICE_IDS, DEVICES, MILLI
from stellwerk_cli.cli import main
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.moving import budget, replica


class Plans:
    """The command on files."""

    def __init__(self, folder: Path, printed: pytest.CaptureFixture[str]) -> None:
        self._path, self._printed = folder / "cluster.json", printed

    def status(self, objects: Sequence[JsonObject], *options: str) -> int:
        items = [{"kind": "Pod", **each} for each in objects]
        self._path.write_text(json.dumps({"kind": "List", "items": items}))
        return main(["plan", "defrag", str(self._path), *options])

    def made(self, objects: Sequence[JsonObject], *options: str) -> dict[str, Any]:
        assert self.status(objects, *options, "-o", "json") == 0
        answer: dict[str, Any] = json.loads(self._printed.readouterr().out)
        return answer

    def held(self, objects: Sequence[JsonObject], *options: str) -> str:
        """Why there is no plan: an answer, and a status for those who ask for one."""
        assert self.status(objects, *options, "--exit-code") == 1
        self._printed.readouterr()
        assert self.status(objects, *options) == 0
        printed = self._printed.readouterr()
        assert printed.err.splitlines()[-1].startswith("stellwerk: decisions follow Kubernetes 1.")
        return printed.out

    def refused(self, objects: Sequence[JsonObject], *options: str) -> str:
        assert self.status(objects, *options) == 2
        return self._printed.readouterr().err


@pytest.fixture
def plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plans:
    return Plans(tmp_path, capsys)


def moves(plan: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(move["pod"].partition("/")[2], move["from"], move["to"]) for move in plan["moves"]]


def two_nodes(**fields: Any) -> list[JsonObject]:
    """One pod keeps node b from being empty."""
    nodes = [make_node("a"), make_node("b")]
    return [*nodes, replica("big", "a", app="big", cpu="2"), replica("small", "b", **fields)]


def test_the_node_with_the_fewest_pods_is_freed(plans: Plans) -> None:
    objects = [*two_nodes(cpu="1"), replica("other", "a", cpu="1")]
    plan = plans.made(objects, "--free", "nodes=1", "--cordon")
    assert plan["frees"] == plan["cordons"] == ["b"]
    assert moves(plan) == [("small", "b", "a")]


def spread_pod(node_name: str, policy: str, **fields: Any) -> JsonObject:
    """One of two pods that a constraint keeps on two nodes."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": policy,
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    constraints = [constraint]
    return replica(
        f"on-{node_name}", node_name, app="x", topologySpreadConstraints=constraints, **fields
    )


@pytest.mark.parametrize("policy", ["Honor", "Ignore"])
def test_a_cordoned_node_has_the_taint_that_spread_constraints_honour(
    plans: Plans, policy: str
) -> None:
    spread = [spread_pod(name, policy, cpu="1") for name in "ab"]
    asked = ([make_node("a"), make_node("b"), *spread], "--free", "nodes=1", "--cordon")
    if policy == "Honor":
        assert len(plans.made(*asked)["moves"]) == 1
    else:
        assert "no plan" in plans.held(*asked), "the node that is left counts as an empty domain"


@pytest.mark.parametrize("policy", ["Honor", "Ignore"])
def test_a_node_that_is_cordoned_meanwhile_has_that_taint_meanwhile(
    plans: Plans, policy: str
) -> None:
    spread = [spread_pod(name, policy, requests={DEVICES: "1"}) for name in "ab"]
    asked = ([gpu_node("a", 2), gpu_node("b", 3), *spread], "--free", "gpus=3", "--cordon")
    if policy == "Ignore":
        assert "no plan" in plans.held(*asked)
        return
    [move] = plans.made(*asked)["moves"]
    assert (move["pod"], move["from"], move["to"], move["held"]) == ("default/on-b", "b", "a", True)


def test_a_pod_that_would_come_back_is_not_moved(plans: Plans) -> None:
    # LeastAllocated prefers the node that the pod has just left.
    assert "with --cordon" in plans.held(two_nodes(cpu="1"), "--free", "nodes=1")


@pytest.mark.parametrize(
    ("changed", "options", "reason"),
    [
        pytest.param({"owner": "DaemonSet"}, (), "no plan", id="pods of a DaemonSet"),
        pytest.param({"priority": 7}, ("--max-priority", "6"), "a priority above", id="priority"),
        pytest.param({"priority": 2_000_000_000}, (), "a priority above", id="system pods"),
    ],
)
def test_what_stays(
    plans: Plans, changed: dict[str, Any], options: Sequence[str], reason: str
) -> None:
    objects = two_nodes(cpu="1", **changed)
    objects[2]["metadata"].pop("ownerReferences")
    said = plans.held(objects, "--free", "nodes=1", "--cordon", *options)
    assert "no plan of at most 10 moves was found" in said
    assert "the search is limited" in said
    assert reason in said


def test_a_mirror_pod_belongs_to_its_node(plans: Plans) -> None:
    mirror = make_pod("mirror", node_name="b", cpu="1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    plan = plans.made([*two_nodes(cpu="1"), mirror], "--free", "nodes=1", "--cordon")
    assert "mirror" not in {pod for pod, _, _ in moves(plan)}


def test_bare_pods_move_when_asked(plans: Plans) -> None:
    objects = [make_node("a"), make_node("b"), make_pod("bare", node_name="b", cpu="3")]
    objects.append(replica("more", "a", cpu="1", app="more"))
    objects.append(replica("huge", "a", app="fixed", cpu="0", priority=2_000_000_000))
    assert "--bare-pods" in plans.held(objects, "--free", "nodes=1", "--cordon")
    plan = plans.made(objects, "--free", "nodes=1", "--cordon", "--bare-pods")
    assert moves(plan) == [("bare", "b", "a")]


def test_a_budget_that_allows_nothing_holds_its_pods(plans: Plans) -> None:
    objects = [*two_nodes(cpu="1"), budget("web", 0), budget("big", 0)]
    said = plans.held(objects, "--free", "nodes=1", "--cordon")
    assert "2 pods stay: each has a PodDisruptionBudget that allows no disruption" in said
    objects[-2]["status"]["disruptionsAllowed"] = 1
    assert moves(plans.made(objects, "--free", "nodes=1", "--cordon")) == [("small", "b", "a")]


def test_the_moves_together_keep_a_budget(plans: Plans) -> None:
    nodes = [make_node("a"), make_node("b"), replica("fixed", "a", priority=2_000_000_000)]
    objects = [*nodes, replica("x", "b", cpu="1"), replica("y", "b", cpu="1"), budget("web", 1)]
    objects[2]["metadata"]["labels"] = {}
    plans.held(objects, "--free", "nodes=1", "--cordon")
    objects[-1]["status"]["disruptionsAllowed"] = 2
    assert len(plans.made(objects, "--free", "nodes=1", "--cordon")["moves"]) == 2
    plans.held(objects, "--free", "nodes=1", "--cordon", "--most-moves", "1")


def test_anti_affinity_is_respected(plans: Plans) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "w"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [make_node("a"), make_node("b")]
    pods = [replica(f"on-{name}", name, app="w", cpu="1", affinity=apart) for name in "ab"]
    plans.held([*nodes, *pods], "--free", "nodes=1", "--cordon")
    plan = plans.made(
        [*nodes, make_node("c"), *pods, replica("z", "c", app="z", cpu="1")],
        "--free",
        "nodes=1",
        "--cordon",
    )
    assert len(plan["moves"]) == 1
    assert plan["frees"] == ["c"] or plan["moves"][0]["to"] == "c"


def test_a_swap_makes_room_first(plans: Plans) -> None:
    """What has to leave a fits on b alone, once a smaller pod has gone from there to c."""
    nodes = [make_node("a", cpu="4"), make_node("b", cpu="4"), make_node("c", cpu="2")]
    above = 2_000_000_000
    pods = [
        replica("large", "a", app="l", cpu="3"),
        replica("small", "b", app="s", cpu="1"),
        replica("fixed-b", "b", app="f", cpu="1", priority=above),
        replica("fixed-c", "c", app="f", cpu="1", priority=above),
    ]
    plan = plans.made([*nodes, *pods], "--free", "nodes=1", "--cordon")
    assert moves(plan) == [("small", "b", "c"), ("large", "a", "b")]
    assert [move["held"] for move in plan["moves"]] == [True, False]
    assert plan["simulations"] == 5


def gpu_node(name: str, devices: int) -> JsonObject:
    offered = {DEVICES: str(devices), MILLI: str(1000 * devices)}
    return make_node(name, allocatable=offered)


def test_two_pods_change_places_for_gpus(plans: Plans) -> None:
    """Three whole GPUs on a, whose pod of two fits on b once the pod of one has come to a."""
    objects = [gpu_node("a", 4), gpu_node("b", 4)]
    objects += [
        replica("two", "a", app="two", requests={DEVICES: "2"}),
        replica("one", "b", app="one", requests={DEVICES: "1"}),
        replica("held", "b", app="held", requests={DEVICES: "2"}, priority=2_000_000_000),
    ]
    plan = plans.made(objects, "--free", "gpus=3", "--cordon")
    assert moves(plan) == [("one", "b", "a"), ("two", "a", "b")]


def test_shares_leave_a_gpu_whole(plans: Plans) -> None:
    objects = [gpu_node("a", 2), gpu_node("b", 2)]
    for node_name, number, milli in (("a", "0", "400"), ("b", "0", "500"), ("b", "1", "700")):
        name = f"on-{node_name}-{number}"
        share = replica(name, node_name, app=name, requests={MILLI: milli})
        share["metadata"]["annotations"] = {DEVICE_IDS: number}
        objects.append(share)
    plan = plans.made(objects, "--free", "gpus=2", "--profile", "best-fit")
    assert moves(plan) == [("on-a-0", "a", "b")]


def test_pods_written_by_hand_have_no_uid(plans: Plans) -> None:
    objects = two_nodes(cpu="1")
    for pod in objects[2:]:
        del pod["metadata"]["uid"]
    assert moves(plans.made(objects, "--free", "nodes=1", "--cordon")) != []


def test_what_is_free_already_needs_no_move(
    plans: Plans, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [gpu_node("a", 4), replica("one", "a", requests={DEVICES: "1"})]
    assert plans.status(objects, "--free", "gpus=3") == 0
    assert "no pod has to move: a has 3 whole GPUs idle" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(("--free", "gpus=5"), f"that many {DEVICES}; the most is 4", id="GPUs"),
        pytest.param(("--free", "nodes=2"), "of 1 nodes 0 are empty", id="nodes"),
    ],
)
def test_a_goal_beyond_the_cluster_is_an_answer(
    plans: Plans, options: Sequence[str], message: str
) -> None:
    objects = [gpu_node("a", 4), replica("one", "a", requests={DEVICES: "1"})]
    assert message in plans.held(objects, *options)


def test_a_resource_with_a_typo_is_refused(plans: Plans) -> None:
    objects = [gpu_node("a", 4), replica("one", "a", requests={DEVICES: "1"})]
    said = plans.refused(objects, "--free", "gpus=1", "--gpu-resource", DEVICES[:-1])
    assert f'did you mean "{DEVICES}"?' in said


def test_the_plan_as_a_table(plans: Plans, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [*two_nodes(cpu="3"), make_pod("waits", cpu="1")]
    assert plans.status(objects, "--free", "nodes=1", "--cordon") == 0
    capsys.readouterr()
    objects = [*two_nodes(cpu="1"), make_pod("waits", cpu="1")]
    assert plans.status(objects, "--free", "nodes=1", "--cordon") == 0
    out = capsys.readouterr().out
    assert "cordon first" in out
    assert "in 5 simulations" in out
    assert "1 pod waits for a node" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(("--free", "disks=1"), "expected nodes=N or gpus=N", id="an unknown goal"),
        pytest.param(("--free", "nodes=0"), "expected nodes=N or gpus=N", id="nothing to free"),
        pytest.param(
            ("--free", "nodes=1", "--apply"), "a live cluster, not a file", id="no cluster"
        ),
        pytest.param(("--free", "gpus=1"), f"no node offers {DEVICES}", id="no GPUs"),
    ],
)
def test_wrong_options(plans: Plans, options: Sequence[str], message: str) -> None:
    assert message in plans.refused(two_nodes(cpu="1"), *options)
