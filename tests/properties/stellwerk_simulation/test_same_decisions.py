"""The operator on the embedded cluster, a simulation and a rerun, given the same arrivals, agree.

Which node each pod gets, when and in which order, which pods are preempted for which, and so which
pods never get a node: on random small clusters, under several profiles, with groups of pods and
claims for devices, too.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stellwerk.models.gpu import DEVICES, MILLI, MODEL_LABEL, WHOLE
from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.manifests import ARRIVES, RUNS
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.pod_groups import make_group
from tests.support.same_workload import Workload, operated, operated_and_rerun, simulated

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
CLASSES = {"low": 10, "high": 1000}
POLICIES = ["random", "gpu-clustering", "gpu-packing", "best-fit", "fgd"]

APPS = st.sampled_from(["web", "db", "batch"])


def dedicated(effect: str) -> JsonObject:
    return {"key": "dedicated", "value": "batch", "effect": effect}


def budget(app: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def priority_class(name: str) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": CLASSES[name],
        "globalDefault": name == "low",
    }


def profile_of_user(tie_break: str, *, packs: bool) -> JsonObject:
    fit: dict[str, Any] = {
        "scoringStrategy": {
            "type": "MostAllocated" if packs else "LeastAllocated",
            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 2}],
        }
    }
    return {
        "spec": {
            "schedulerName": "own",
            "tieBreak": tie_break,
            "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 3}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
        }
    }


@st.composite
def nodes(draw: st.DrawFn, *, gpus: bool) -> list[JsonObject]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        devices = draw(st.sampled_from([0, 1, 2, 4])) if gpus else 0
        allocatable = {DEVICES: str(devices), MILLI: str(devices * WHOLE)} if devices else {}
        labels = {MODEL_LABEL: draw(st.sampled_from(["T4", "G2"]))} if devices else {}
        effect = draw(st.sampled_from(["", "", "NoSchedule", "PreferNoSchedule"]))
        made.append(
            make_node(
                f"n{number}",
                cpu=draw(st.sampled_from(["2", "4", "8"])),
                memory="16Gi",
                pods=draw(st.sampled_from(["3", "110"])),
                zone=draw(st.sampled_from(["a", "b"])),
                allocatable=allocatable,
                labels=labels,
                taints=[dedicated(effect)] if effect else [],
            )
        )
    return made


def term(app: str, key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


@st.composite
def affinities(draw: st.DrawFn) -> dict[str, Any]:
    """One kind of (anti-)affinity, spread or node affinity, or none of them."""
    app, key = draw(APPS), draw(st.sampled_from([ZONE, HOSTNAME]))
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}
    weighted = [{"weight": 7, "podAffinityTerm": term(app, key)}]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
    spread = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
        "labelSelector": {"matchLabels": {"app": app}},
    }
    in_zone = {"key": ZONE, "operator": "In", "values": [draw(st.sampled_from(["a", "b"]))]}
    of_nodes = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [in_zone]}}
        ]
    }
    kinds: list[dict[str, Any]] = [
        {},
        {},
        {"affinity": {"podAffinity": required}},
        {"affinity": {"podAntiAffinity": required}},
        {"affinity": {"podAffinity": preferred}},
        {"affinity": {"podAntiAffinity": preferred}},
        {"affinity": {"nodeAffinity": of_nodes}},
        {"topologySpreadConstraints": [spread]},
        {"nodeSelector": {ZONE: "a"}},
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def pods(draw: st.DrawFn, *, gpus: bool, apart: bool) -> list[JsonObject]:
    """Pods with arrivals and run times.

    Those whole seconds at which timers of the queue do something are left alone: what comes first
    in such a moment is chance in the operator. `apart`: no two arrive together.
    """
    made = []
    for number in range(draw(st.integers(1, 14))):
        gpu = draw(st.sampled_from(["", "", MILLI, DEVICES])) if gpus else ""
        amount = draw(st.sampled_from([200, 500, 800] if gpu == MILLI else [1, 2]))
        optional: dict[str, Any] = {}
        if draw(st.booleans()):
            optional["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        class_name = draw(st.sampled_from(["", "low", "high"]))
        if class_name:
            optional["priorityClassName"] = class_name
        pod = make_pod(
            f"p{number:02}",
            cpu=draw(st.sampled_from(["500m", "1", "2", "4"])),
            memory=draw(st.sampled_from(["1Gi", "4Gi"])),
            requests={gpu: str(amount)} if gpu else {},
            labels={"app": draw(APPS)},
            **optional,
            **draw(affinities()),
        )
        del pod["metadata"]["uid"]
        arrives = number / 2 if apart else draw(st.integers(0, 12)) + 1 / 8
        notes = {ARRIVES: str(arrives)}
        if draw(st.booleans()):
            notes[RUNS] = str(draw(st.integers(0, 9)) + (2 * number + 1) / 512)
        pod["metadata"]["annotations"] = notes
        made.append(pod)
    return made


BUDGETS = st.builds(budget, APPS, minAvailable=st.integers(0, 3)) | st.builds(
    budget, APPS, maxUnavailable=st.sampled_from([1, "50%"])
)


def workloads(
    *, gpus: bool = False, queues: bool = True, policies: Sequence[str] = POLICIES
) -> st.SearchStrategy[Workload]:
    own = st.builds(profile_of_user, st.sampled_from(["NodeRank", "Random"]), packs=st.booleans())
    return st.builds(
        Workload,
        nodes(gpus=gpus),
        pods(gpus=gpus, apart=not queues),
        st.just([priority_class(name) for name in CLASSES]).flatmap(
            lambda classes: st.lists(BUDGETS, max_size=1).map(lambda some: [*classes, *some])
        ),
        st.sampled_from(policies) if gpus else st.just("default") | own,
        st.just(queues),
    )


DRIVER = "gpu.example.com"


def device_slice(node: str, count: int) -> JsonObject:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        },
    }


def claim_of(kind: str, name: str, spec: JsonObject) -> JsonObject:
    version = "resource.k8s.io/v1"
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def devices(count: int) -> JsonObject:
    exactly = {"deviceClassName": DRIVER, "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


CLAIMS: list[JsonObject] = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {},
    },
    claim_of("ResourceClaimTemplate", "one", {"spec": devices(1)}),
    claim_of("ResourceClaimTemplate", "two", {"spec": devices(2)}),
    claim_of("ResourceClaim", "shared", devices(1)),
]
REFERENCES = st.sampled_from(
    [
        {},
        {},
        {"resourceClaimTemplateName": "one"},
        {"resourceClaimTemplateName": "two"},
        {"resourceClaimName": "shared"},
    ]
)
GROUPS = st.sampled_from(["", "g0", "g1"])


@st.composite
def groups(draw: st.DrawFn) -> list[JsonObject]:
    made = []
    for name in ("g0", "g1"):
        whole: dict[str, Any] = {"disruptionMode": "PodGroup"} if draw(st.booleans()) else {}
        group = make_group(name, draw(st.integers(0, 4)), **whole)
        del group["metadata"]["uid"]
        made.append(group)
    return made


@st.composite
def groups_and_claims(draw: st.DrawFn) -> Workload:
    """Pods of two groups and of none, some with claims for the devices of some nodes.

    No two come together: whether claims are made for one before the other is decided is chance.
    """
    of_nodes, of_pods = draw(nodes(gpus=False)), draw(pods(gpus=False, apart=True))
    for number, pod in enumerate(of_pods):
        pod["metadata"]["annotations"][ARRIVES] = str(number * 11 / 16)
        group, reference = draw(GROUPS), draw(REFERENCES)
        if group:
            pod["spec"]["schedulingGroup"] = {"podGroupName": group}
        if reference:
            pod["spec"]["resourceClaims"] = [{"name": "gpus", **reference}]
    slices = [
        device_slice(node["metadata"]["name"], count)
        for node in of_nodes
        if (count := draw(st.integers(0, 3)))
    ]
    classes = [priority_class(name) for name in CLASSES]
    profile = profile_of_user(draw(st.sampled_from(["NodeRank", "Random"])), packs=True)
    profile["spec"]["gangScheduling"] = True
    profile["spec"]["compatibility"] = draw(st.sampled_from(["auto", "1.38"]))
    others = [*classes, *draw(groups()), *CLAIMS, *slices]
    return Workload(of_nodes, of_pods, others, profile, feature_gates=GANGS)


def the_same_happens(workload: Workload, *, in_order: bool = True) -> None:
    """`in_order`: also of what happens at the same time."""
    notes, ended_seconds = simulated(workload)
    operator, rerun = operated_and_rerun(workload, ended_seconds)
    assert (operator if in_order else sorted(operator)) == (notes if in_order else sorted(notes))
    assert sorted(rerun) == sorted(notes)


FEW = settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
MANY = settings(FEW, max_examples=examples(100))


@FEW
@given(workloads())
def test_pods_that_wait_are_preempted_and_leave(workload: Workload) -> None:
    the_same_happens(workload)


@FEW
@given(workloads(gpus=True, queues=False))
def test_pods_of_a_gpu_policy_that_are_given_up(workload: Workload) -> None:
    the_same_happens(workload)


@FEW
@given(groups_and_claims())
def test_groups_and_pods_with_claims(workload: Workload) -> None:
    # Members that write claims are bound later than others, though at the same time.
    the_same_happens(workload, in_order=False)


def test_a_preemptor_for_which_a_group_on_two_nodes_is_evicted() -> None:
    """Both nodes fit then: it takes the one that it is nominated to, in a rerun, too."""
    members = [make_pod(f"p{number}", cpu="4", priorityClassName="low") for number in range(2)]
    preemptor = make_pod("p2", cpu="4", priorityClassName="high")
    for number, pod in enumerate((*members, preemptor)):
        del pod["metadata"]["uid"]
        pod["metadata"]["annotations"] = {ARRIVES: str(number)}
    for pod in members:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g0"}
    group = make_group("g0", 2, disruptionMode="PodGroup")
    del group["metadata"]["uid"]
    profile = profile_of_user("Random", packs=True)
    profile["spec"]["gangScheduling"] = True
    workload = Workload(
        [make_node("n0", cpu="4"), make_node("n1", cpu="4")],
        [*members, preemptor],
        [*(priority_class(name) for name in CLASSES), group],
        profile,
        feature_gates=GANGS,
    )
    the_same_happens(workload, in_order=False)


@pytest.mark.long
@settings(FEW, max_examples=examples(40))
@given(groups_and_claims())
def test_groups_and_pods_with_claims_often(workload: Workload) -> None:
    the_same_happens(workload, in_order=False)


@pytest.mark.long
@MANY
@given(workloads())
def test_pods_that_wait_are_preempted_and_leave_often(workload: Workload) -> None:
    the_same_happens(workload)


@pytest.mark.long
@MANY
@given(workloads(queues=False))
def test_pods_that_are_given_up_often(workload: Workload) -> None:
    the_same_happens(workload)


@pytest.mark.long
@MANY
@given(workloads(gpus=True) | workloads(gpus=True, queues=False))
def test_gpu_policies_often(workload: Workload) -> None:
    the_same_happens(workload)


@pytest.mark.long
@settings(FEW, max_examples=examples(20))
@given(workloads(gpus=True, queues=False, policies=["pattern-plan"]))
def test_plans_that_arrive_some_time_later(workload: Workload) -> None:
    notes, ended_seconds = simulated(workload)
    # A rerun plans in real time.
    assert operated(workload, ended_seconds) == notes
