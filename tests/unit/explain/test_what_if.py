"""What if: devices that one pod gets are gone for the next, those of pods that leave are free."""

from random import Random
from typing import Any

import pytest

from stellwerk.answers.what_if import Supposition
from stellwerk.explain.steps import OutOfTime, finished
from stellwerk.explain.supposed_changes import SupposedChanges
from stellwerk.explain.what_if import what_if
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.shared.pod_resource_claims import given_back
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.answers import written
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import DRIVER, case, claim, device, held, request

PROFILE: JsonObject = {"metadata": {"name": "p"}, "spec": {"schedulerName": "default-scheduler"}}


def claiming(name: str, reference: str, **fields: Any) -> JsonObject:
    references = [{"name": "c", "resourceClaimName": reference}]
    return make_pod(name, uid=name, resourceClaims=references, **fields)


def answered(loaded: Case, supposed: Supposition) -> Any:
    return written(what_if(loaded.world, supposed))


def test_two_pods_that_are_moved_do_not_get_one_device() -> None:
    claims = [held("one", "gpu-0", by="p1"), held("two", "gpu-1", by="p2")]
    written = case(*claims, devices=[device("gpu-0"), device("gpu-1")])
    pool = {"name": "b", "generation": 1, "resourceSliceCount": 1}
    spare = {"driver": DRIVER, "nodeName": "b", "pool": pool, "devices": [device("gpu-0")]}
    written["resourceslices"].append({"metadata": {"name": "b"}, "spec": spare})
    written["pods"] = [
        owned(claiming("p1", "one", node_name="a")),
        owned(claiming("p2", "two", node_name="a")),
    ]
    answer = answered(Case(written), Supposition(drain="a", profile=PROFILE))
    assert [each["node"] for each in answer["placed"]] == ["b"]
    (unplaced,) = answer["unplaced"]
    assert "cannot allocate all claims" in unplaced["message"]


def test_a_claim_that_another_pod_uses_stays() -> None:
    shared = held("one", "gpu-0", by="p1")
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "p2", "uid": "p2"})
    loaded = Case(case(shared, devices=[device("gpu-0")]))
    (left,) = given_back(loaded.world.objects, [parse_pod(claiming("p1", "one"))])
    assert [each["uid"] for each in left["status"]["reservedFor"]] == ["p2"]
    assert left["status"]["allocation"]


def test_a_supposed_node_without_devices_does_not_help() -> None:
    loaded = Case(case(claim("mine", request()), devices=[]))
    pod = claiming("p", "mine")
    supposed = Supposition(pod=pod, add_nodes=[make_node("c")], profile=PROFILE)
    answer = answered(loaded, supposed)
    assert answer["placed"] == []
    assert answer["explanation"]["devices"]["claims"][0]["state"] == "needed"


def with_resources(name: str, prefix: str, number: int) -> JsonObject:
    node = make_node(name)
    node["status"] = {"capacity": {f"example.com/{prefix}-{each}": "1" for each in range(number)}}
    return node


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        pytest.param(
            [make_node("a", labels={f"k{each}": "v" for each in range(66)})],
            "a node may have at most 64 labels",
            id="labels",
        ),
        pytest.param([with_resources("a", "r", 65)], "at most 64 resources", id="resources"),
        pytest.param(
            [with_resources(f"n{each}", f"r{each}", 60) for each in range(3)],
            "more than 128 different resources",
            id="resources of all nodes",
        ),
        pytest.param([make_node("n" * 254)], "at most 253 characters", id="a name"),
        pytest.param([make_node("n", labels={"k" * 318: ""})], "317 characters", id="a key"),
        pytest.param([make_node("n", labels={"k": "v" * 64})], "values of labels 63", id="a value"),
        pytest.param(
            [make_node("n", taints=[{"key": f"{each}"} for each in range(65)])],
            "at most 64 taints",
            id="taints",
        ),
        pytest.param(
            [{"status": {"images": [{"names": ["x"] * 257}]}}], "256 names", id="names of images"
        ),
        pytest.param(
            [{"metadata": []}], "metadata does not have the form of a Node's", id="another form"
        ),
    ],
)
def test_supposed_nodes_have_no_more_than_nodes_have(nodes: list[Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Supposition.of({"addNodes": nodes})


def test_a_thousand_nodes_of_one_manifest_differ_in_name_and_hostname_alone() -> None:
    loaded = Case(case(claim("mine", request()), devices=[]))
    shape = make_node("new", cpu="4", labels={"kubernetes.io/hostname": "new", "disk": "ssd"})
    supposed = Supposition(
        pod=make_pod("p", cpu="4", nodeSelector={"kubernetes.io/hostname": "new-1000"}),
        add_nodes=[shape],
        count=1000,
        profile=PROFILE,
    )
    assert answered(loaded, supposed)["placed"] == [{"pod": "default/p", "node": "new-1000"}]


def test_a_pod_beyond_the_limit_is_not_decided() -> None:
    terms = [
        {"matchExpressions": [{"key": f"k{each}", "operator": "Exists"}]} for each in range(200)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = make_pod("p", affinity={"nodeAffinity": required})
    loaded = Case(case(claim("mine", request()), devices=[]))
    supposed = Supposition(pod=pod, profile=PROFILE)
    answer = written(what_if(loaded.world, supposed, max_complexity=300))
    assert answer["unplaced"][0]["message"].startswith("too complex to schedule")
    assert "explanation" not in answer
    assert written(what_if(loaded.world, supposed, max_complexity=1000))["explanation"]


def test_a_profile_beyond_the_limit_is_refused() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    args = {"defaultingType": "List", "defaultConstraints": [constraint] * 300}
    spec = {**PROFILE["spec"], "pluginConfig": [{"name": "PodTopologySpread", "args": args}]}
    supposed = Supposition(pod=make_pod("p"), profile={**PROFILE, "spec": spec})
    with pytest.raises(ConfigurationError, match=r"this profile cannot be used: spec.pluginConfig"):
        answered(Case(case(claim("mine", request()), devices=[])), supposed)


@pytest.mark.parametrize("at", range(3, 9))
def test_an_answer_out_of_time_has_what_was_decided_until_then(at: int) -> None:
    written_case = case(claim("mine", request()), devices=[])
    written_case["pods"] = [
        owned(make_pod(f"p{each}", uid=f"p{each}", node_name="a")) for each in range(6)
    ]
    steps = what_if(Case(written_case).world, Supposition(drain="a", profile=PROFILE))
    for _ in range(at):
        next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.throw(OutOfTime("no more time"))
    answer = ended.value.value
    looked_at = len(answer.placed) + len(answer.unplaced)
    assert (answer.stopped, answer.left_out) == ("no more time", 6 - looked_at)
    assert looked_at == at - 3


def cluster(*pods: JsonObject, nodes: int = 3) -> Case:
    """Nodes of 4 CPUs with these pods on them."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    made = [make_node(name, cpu="4") for name in names]
    return Case({"id": "w", "nodes": made, "pods": list(pods), "pod": make_pod("other", cpu="1")})


def test_several_nodes_are_drained_at_once() -> None:
    loaded = cluster(
        owned(make_pod("a", cpu="2", node_name="n1")), owned(make_pod("b", cpu="3", node_name="n2"))
    )
    answer = answered(loaded, Supposition(drain=["n1", "n2", "n1"], profile=PROFILE))
    assert answer["drained"] == ["n1", "n2"]
    assert [each["node"] for each in answer["placed"]] == ["n3"], "the other one has no room there"
    assert len(answer["unplaced"]) == 1
    one = answered(loaded, Supposition(drain="n1", profile=PROFILE))
    assert one["drained"] == "n1"
    assert [each["pod"] for each in one["placed"]] == ["default/a"]


def test_drained_pods_are_decided_before_the_supposed_one() -> None:
    loaded = cluster(owned(make_pod("a", cpu="3", node_name="n1")), nodes=2)
    supposed = Supposition(pod=make_pod("new", cpu="3"), drain="n1", profile=PROFILE)
    answer = answered(loaded, supposed)
    assert [(each["pod"], each["node"]) for each in answer["placed"]] == [("default/a", "n2")]
    assert [each["pod"] for each in answer["unplaced"]] == ["default/new"]
    suggested = answer["explanation"]["wouldFit"]
    assert suggested, "other changes help"
    for suggestion in suggested:
        assert not [each for each in suggestion["changes"] if each["kind"] == "uncordon"]


def test_supposed_pods_are_decided_one_after_the_other() -> None:
    pods = [make_pod(f"p{number}", uid="", cpu="3") for number in range(4)]
    answer = answered(cluster(), Supposition(pods=pods, profile=PROFILE))
    assert sorted(each["node"] for each in answer["placed"]) == ["n1", "n2", "n3"]
    assert [each["pod"] for each in answer["unplaced"]] == ["default/p3"]
    assert "explanation" not in answer


def test_two_pods_of_one_name_are_refused() -> None:
    supposed = Supposition(pods=[make_pod("p", cpu="1")] * 2, profile=PROFILE)
    with pytest.raises(ConfigurationError, match="two of the pods have the name default/p"):
        answered(cluster(), supposed)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"pods": {}, "drain": "a"}, None),
        ({"pods": "all"}, "pods must be a list of pods"),
        ({"pods": ["p"]}, "pods must be a list of pods"),
        ({"pods": [{}] * 1001}, "at most 1000 are allowed"),
        ({"drain": 5}, "drain must be the name of a node, or a list of names"),
        ({"drain": ["a", 5]}, "drain must be the name of a node, or a list of names"),
        ({"drain": ["a"] * 1001}, "at most 1000 nodes are allowed"),
    ],
)
def test_pods_and_drains_are_lists(body: JsonObject, message: str | None) -> None:
    if message is None:
        assert Supposition.of(body).drained_nodes == ("a",)
        return
    with pytest.raises(ConfigurationError, match=message):
        Supposition.of(body)


def budget(allowed: int, **status: Any) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def running(name: str, *, cpu: str = "1", node: str = "n1", **fields: Any) -> JsonObject:
    pod = make_pod(name, cpu=cpu, node_name=node, labels={"app": "web"}, **fields)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {**pod, "status": ready}


def drained(allowed: int, *pods: JsonObject, nodes: int = 3, **status: Any) -> Any:
    loaded = cluster(*pods, nodes=nodes)
    loaded.world.objects.set("PodDisruptionBudget", budget(allowed, **status))
    return answered(loaded, Supposition(drain="n1", profile=PROFILE))


def test_a_pod_without_a_controller_is_lost() -> None:
    answer = answered(cluster(running("hello")), Supposition(drain="n1", profile=PROFILE))
    assert answer["lost"] == ["default/hello"]
    assert answer["placed"] == []


def test_a_budget_without_disruptions_holds_the_drain_up() -> None:
    answer = drained(0, owned(running("a")), running("bare"))
    assert answer["placed"] == []
    assert "lost" not in answer
    assert answer["staying"] == [
        {
            "pod": f"default/{name}",
            "node": "n1",
            "budget": "default/web",
            "message": "it allows no disruption now",
        }
        for name in ("bare", "a")
    ]


def test_a_budget_whose_pods_are_all_healthy_lets_those_go_alone_that_are_not_ready() -> None:
    unready = owned(running("unready"))
    unready["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    answer = drained(0, owned(running("a")), unready, currentHealthy=1, desiredHealthy=1)
    assert [each["pod"] for each in answer["placed"]] == ["default/unready"]
    assert [each["pod"] for each in answer["staying"]] == ["default/a"]


def test_a_budget_is_made_good_by_each_pod_that_gets_a_node() -> None:
    pods = [owned(running(name)) for name in "abc"]
    answer = drained(1, *pods)
    assert [each["pod"] for each in answer["placed"]] == [f"default/{name}" for name in "abc"]
    assert "staying" not in answer


def test_a_budget_is_used_up_by_a_pod_that_gets_none() -> None:
    pods = [owned(running(name, cpu="3")) for name in ("a",)]
    full = [make_pod(f"full-{node}", cpu="2", node_name=node) for node in ("n2", "n3")]
    answer = drained(1, *pods, owned(running("b")), *full)
    assert [each["pod"] for each in answer["unplaced"]] == ["default/a"]
    assert [each["pod"] for each in answer["staying"]] == ["default/b"]


def test_a_profile_that_cannot_be_used_is_refused_though_no_pod_waits() -> None:
    broken = {**PROFILE, "spec": {**PROFILE["spec"], "tieBrake": "Random"}}
    with pytest.raises(ConfigurationError, match="this profile cannot be used"):
        answered(cluster(), Supposition(profile=broken))


def test_an_answer_has_one_preemption() -> None:
    pods = [
        owned(make_pod(f"low-{node}", cpu="3", node_name=node, priority=1)) for node in ("n1", "n2")
    ]
    loaded = cluster(*pods, nodes=2)
    supposed = Supposition(pod=make_pod("high", cpu="3", priority=9), profile=PROFILE)
    answer = answered(loaded, supposed)
    (unplaced,) = answer["unplaced"]
    told = answer["explanation"]["preemption"]
    assert unplaced["wouldPreempt"]["node"] == told["node"]
    assert unplaced["wouldPreempt"]["victims"] == [each["pod"] for each in told["victims"]]


def test_a_pod_that_a_gate_holds_back_is_not_placed() -> None:
    gated = make_pod("gated", cpu="1", schedulingGates=[{"name": "wait"}])
    answer = answered(cluster(), Supposition(pods=[gated, make_pod("p")], profile=PROFILE))
    assert [each["pod"] for each in answer["placed"]] == ["default/p"]
    (unplaced,) = answer["unplaced"]
    assert unplaced["heldBack"] is True
    assert unplaced["message"].startswith("held back by SchedulingGates")


def agent(name: str, node: str, **fields: Any) -> JsonObject:
    """A pod of a DaemonSet, as its controller makes it."""
    pod = make_pod(f"{name}-{node}", cpu="500m", node_name=node, **fields)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": name}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return pod


@pytest.mark.parametrize(
    ("daemons", "node", "placed"),
    [
        pytest.param([agent("agent", "a"), agent("agent", "b")], {}, False, id="on all nodes"),
        pytest.param([], {}, True, id="none"),
        pytest.param([agent("agent", "a")], {}, False, id="on half of the nodes"),
        pytest.param(
            [agent("agent", "a", nodeSelector={"disk": "ssd"})], {}, True, id="for other nodes"
        ),
        pytest.param(
            [agent("agent", "a"), agent("agent", "b")],
            {"taints": [{"key": "t", "value": "", "effect": "NoSchedule"}]},
            True,
            id="not where it does not tolerate",
        ),
    ],
)
def test_a_supposed_node_has_the_pods_of_daemon_sets(
    daemons: list[JsonObject],
    node: JsonObject,
    placed: bool,  # noqa: FBT001 a row of the table
) -> None:
    tolerating = [{"key": "t", "operator": "Exists"}]
    pod = make_pod("big", cpu="4", tolerations=tolerating)
    nodes = [make_node(name, cpu="1", labels={"disk": "ssd"}) for name in "ab"]
    loaded = Case({"id": "x", "nodes": nodes, "pods": daemons, "pod": pod})
    supposed = Supposition(pod=pod, add_nodes=[make_node("four", cpu="4", **node)], profile=PROFILE)
    answer = answered(loaded, supposed)
    assert bool(answer["placed"]) is placed
    assert answer.get("daemonSets", []) == ([] if placed else ["default/agent"])


def test_a_supposed_node_that_is_cordoned_has_the_taint_of_cordoning() -> None:
    pod = make_pod("p", cpu="1", topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "minDomains": 2,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ], labels={"app": "x"})  # fmt: skip
    there = make_pod("there", cpu="1", node_name="a", labels={"app": "x"})
    loaded = Case({"id": "x", "nodes": [make_node("a", cpu="4")], "pods": [there], "pod": pod})
    supposed = Supposition(
        pod=pod, add_nodes=[make_node("new", cpu="4", unschedulable=True)], profile=PROFILE
    )
    assert answered(loaded, supposed)["placed"] == []


def test_a_supposed_pod_has_the_defaults_of_the_api() -> None:
    manifest: JsonObject = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1000"}}}]},
    }
    loaded = Case({"id": "x", "nodes": [make_node("a", cpu="4")], "pod": make_pod("q")})
    answer = answered(loaded, Supposition(pod=manifest, profile=PROFILE))
    assert "Insufficient cpu" in answer["unplaced"][0]["message"]
    assert "requests" not in manifest["spec"]["containers"][0]["resources"], "it is the caller's"


def test_a_drained_node_has_the_taint_of_cordoning_which_spread_constraints_honour() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
    pods = []
    for name in "ab":
        pod = make_pod(
            f"x-{name}",
            cpu="1",
            node_name=name,
            labels={"app": "x"},
            topologySpreadConstraints=[constraint],
        )
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        pods.append(pod)
    nodes = [make_node(name, cpu="4") for name in "ab"]
    loaded = Case({"id": "x", "nodes": nodes, "pods": pods, "pod": make_pod("q")})
    answer = answered(loaded, Supposition(drain="b", profile=PROFILE))
    (placed,) = answer["placed"]
    assert (placed["pod"], placed["node"]) == ("default/x-b", "a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"relabel": "n1 a=b"}, "relabel must be a list of strings"),
        ({"taint": [5]}, "taint must be a list of strings"),
        ({"delete": ["node/a"] * 1001}, "delete: at most 1000 entries"),
        ({"scale": ["x" * 40_000]}, "scale: an entry may have at most 32768 characters"),
        ({"relabel": [f"n{n} " + "a=b " * 9 for n in range(900)]}, "at most 8192 labels"),
        ({"relabel": ["n1 a"]}, "relabel 'n1 a': \"a\" is not KEY=VALUE or KEY-"),
        ({"delete": ["node/a", "no/a"]}, "it is named twice"),
        ({"relable": ["n1 a=b"]}, 'unknown field "relable"'),
    ],
)
def test_acts_are_read_at_the_door(body: JsonObject, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Supposition.of(body)
    assert message in f"{raised.value}"


@pytest.mark.parametrize(
    ("acts", "message"),
    [
        ({"relabel": ["n9 a=b"]}, 'there is no node "n9"'),
        ({"relabel": ["n1 a-"]}, "n1 has no label a"),
        ({"taint": ["n1 a:NoExecute-"]}, "n1 has no taint a:NoExecute"),
        ({"taint": ["n1 a-"]}, "n1 has no taint a"),
        ({"delete": ["pod/wbe"]}, 'there is no pod "default/wbe"; did you mean "default/web"'),
        ({"delete": ["node/n4"]}, 'there is no node "n4"'),
        ({"scale": ["deployment/web=2"]}, "the scheduler knows no Deployment default/web"),
        ({"scale": ["job/web=2"]}, "the scheduler knows no Job default/web"),
        ({"scale": ["statefulset/web=2"]}, "the scheduler knows no StatefulSet default/web"),
        ({"scale": ["rs/set=2000"]}, "one answer covers at most 1000"),
        ({"scale": ["deployment/rolling=2"]}, "is being rolled out"),
        ({"scale": ["deployment/roling=2"]}, 'did you mean "rolling"'),
    ],
)
def test_an_act_on_what_is_not_there_is_refused(acts: Any, message: str) -> None:
    loaded = cluster(make_pod("web", node_name="n1"))
    for name in ("set", "new", "old"):
        loaded.world.objects.set("ReplicaSet", replica_set(name, 3))
    with pytest.raises(ConfigurationError) as raised:
        answered(loaded, Supposition(**acts, profile=PROFILE))
    assert message in f"{raised.value}"


def replica_set(name: str, replicas: int) -> JsonObject:
    """One of its own, or with two others of a Deployment that is rolled out."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rolling", "uid": "d"}
    owners = [] if name == "set" else [{**owner, "controller": True}]
    spec = make_pod("template", cpu="1")["spec"]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": owners},
        "spec": {"replicas": replicas, "template": template},
    }


def test_pods_that_one_act_ends_and_another_scales_away_are_not_made_anew() -> None:
    pods = [make_pod(name, cpu="1", node_name=node) for name, node in (("a", "n1"), ("b", "n2"))]
    for pod in pods:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    loaded = cluster(*pods)
    loaded.world.objects.set("ReplicaSet", replica_set("set", 2))
    acts: Any = {"delete": ["node/n1", "pod/a"], "profile": PROFILE}
    alone = answered(loaded, Supposition(**acts))
    assert [each["pod"] for each in alone["placed"]] == ["default/a"]
    both = answered(loaded, Supposition(**acts, scale=["replicaset/set=1"]))
    assert both["placed"] == []
    assert [(each["pod"], each["madeAnew"]) for each in both["ended"]] == [("default/a", False)]


def test_a_node_takes_its_claims_slices_and_attachments_with_it() -> None:
    mine = held("mine", "gpu-0", by="p1")
    loaded = Case(case(mine, devices=[device("gpu-0")]))
    world = loaded.world
    world.cache.set_pod(parse_pod(owned(claiming("p1", "mine", node_name="a"))))
    answer = answered(loaded, Supposition(delete=["node/a"], profile=PROFILE))
    (unplaced,) = answer["unplaced"]
    assert unplaced["pod"] == "default/p1"
    assert world.cache.node("a") is not None, "the live World is as it was"
    assert list(world.objects.list("ResourceSlice"))
    fork = world.fork(Random(0))
    finished(SupposedChanges(fork, ()).apply(Supposition(delete=["node/a"])))
    assert not list(fork.objects.list("ResourceSlice"))
    claim = fork.objects.get("ResourceClaim", "default", "mine")
    assert claim is not None
    assert not claim["status"].get("reservedFor"), "no pod holds it any more"
