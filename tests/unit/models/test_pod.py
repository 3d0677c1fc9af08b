"""A pod as the scheduler sees it, and what pods share."""

import gc
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from typing import Any
from weakref import ref

import orjson
import pytest

from stellwerk.models.pod import parse_pod
from stellwerk.models.scheduling_spec import HostPort
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod, pod_info

# --- fields -------------------------------------------------------------------------------------


def test_what_is_kept_of_a_pod() -> None:
    obj = make_pod(
        "web-0",
        namespace="shop",
        labels={"app": "web"},
        nominated_node_name="n1",
        preemptionPolicy="Never",
        priority=7,
        schedulingGates=[{"name": "foo"}],
        resourceClaims=[{"name": "gpu"}],
    )
    obj["metadata"] |= {
        "resourceVersion": "42",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u0"},
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": "web",
                "uid": "u1",
                "controller": True,
            },
        ],
    }
    pod = parse_pod(obj)
    assert (pod.key, pod.uid) == ("shop/web-0", "uid-shop-web-0")
    assert (pod.resource_version, pod.generation) == ("42", 3)
    assert (pod.priority, pod.spec.preemption_policy) == (7, "Never")
    assert pod.nominated_node_name == "n1"
    assert pod.spec.scheduling_gates == ("foo",)
    assert [reference.name for reference in pod.spec.resource_claims] == ["gpu"]
    assert pod.owner == ("apps/v1 StatefulSet", "web", "u1")
    assert not pod.finished
    assert not pod.terminating


def test_defaults_of_a_pod_that_says_little() -> None:
    pod = parse_pod({"metadata": {"name": "bare"}, "spec": {"containers": []}})
    assert (pod.key, pod.uid) == ("default/bare", "default/bare")
    assert pod.spec.scheduler_name == "default-scheduler"
    assert (pod.priority, pod.spec.preemption_policy) == (0, "PreemptLowerPriority")
    assert (pod.node_name, pod.owner) == ("", None)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param({"spec": {}}, id="no metadata"),
        pytest.param({"metadata": {"name": "p"}}, id="no spec"),
        pytest.param(make_pod("p", cpu="lots"), id="no quantity"),
        pytest.param(make_pod("p", topologySpreadConstraints=[{}]), id="an empty constraint"),
        pytest.param(make_pod("p", tolerations=["key"]), id="a toleration that is a text"),
    ],
)
def test_a_malformed_pod(obj: JsonObject) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        parse_pod(obj)


@pytest.mark.parametrize(
    ("phase", "finished"), [("Pending", False), ("Running", False), ("Failed", True)]
)
def test_a_finished_pod(phase: str, *, finished: bool) -> None:
    obj = make_pod("p")
    obj["status"]["phase"] = phase
    assert parse_pod(obj).finished is finished


def test_conditions_are_kept_of_pods_that_are_not_bound_or_are_going() -> None:
    condition = {"type": "PodScheduled", "status": "False"}

    def conditions(obj: JsonObject) -> tuple[Any, ...]:
        obj["status"]["conditions"] = [condition]
        return parse_pod(obj).conditions

    going = make_pod("p", node_name="n")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert conditions(make_pod("p")) == (condition,)
    assert conditions(make_pod("p", node_name="n")) == ()
    assert conditions(going) == (condition,)


def test_a_priority_class_gives_what_admission_left_open() -> None:
    classes = {"": (1, "PreemptLowerPriority"), "high": (9, "Never")}
    high = make_pod("p", priorityClassName="high")
    assert parse_pod(high, classes.__getitem__).priority == 9
    assert parse_pod(high, classes.__getitem__).spec.preemption_policy == "Never"
    assert parse_pod(make_pod("p"), classes.__getitem__).priority == 1
    assert parse_pod(make_pod("p", priority=0), classes.__getitem__).priority == 0


def test_host_ports_are_those_of_containers_that_stay() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"},
        {"containerPort": 9},
    ]
    obj = make_pod("p")
    obj["spec"]["containers"][0]["ports"] = ports
    obj["spec"]["initContainers"] = [
        {"name": "init", "ports": [{"hostPort": 1}]},
        {"name": "side", "ports": [{"hostPort": 2}], "restartPolicy": "Always"},
    ]
    assert set(parse_pod(obj).spec.host_ports) == {
        HostPort("0.0.0.0", "TCP", 2),  # noqa: S104 what the port claims, not a socket
        HostPort("0.0.0.0", "TCP", 8080),  # noqa: S104
        HostPort("127.0.0.1", "UDP", 53),
    }


def test_an_assumed_pod_is_the_same_but_for_its_node() -> None:
    pod = pod_info("p", cpu="1")
    assumed = pod.with_node("n1")
    assert (pod.node_name, assumed.node_name) == ("", "n1")
    assert all(
        getattr(assumed, field) is getattr(pod, field)
        for field in pod.__slots__
        if field != "node_name"
    )


# --- what is shared -----------------------------------------------------------------------------


def test_equal_specs_are_one_object() -> None:
    assert pod_info("a", cpu="1").spec is pod_info("b", cpu="1").spec
    assert pod_info("a", labels={"x": "y"}).label_set is pod_info("b", labels={"x": "y"}).label_set
    assert pod_info("a").label_set is not pod_info("a", namespace="other").label_set


def change(path: str, value: Any) -> Callable[[JsonObject], None]:
    """Set a value in a pod; numbers in the path are positions."""

    def make(obj: JsonObject) -> None:
        at: Any = obj
        *parts, last = path.split(".")
        for part in parts:
            at = at[int(part)] if part.isdigit() else at.setdefault(part, {})
        at[last] = value

    return make


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {}}
        ]
    }
}
IMAGE_VOLUME = {"name": "v", "image": {"reference": "data:1"}}
RESTART_RULES = [{"action": "RestartAllContainers"}]


@pytest.mark.parametrize(
    "differs",
    [
        change("spec.schedulerName", "other"),
        change("spec.priority", 1),
        change("spec.preemptionPolicy", "Never"),
        change("spec.nodeSelector", {"a": "b"}),
        change("spec.affinity", ANTI_AFFINITY),
        change("spec.tolerations", [{"operator": "Exists"}]),
        change("spec.topologySpreadConstraints", [SPREAD]),
        change("spec.overhead", {"cpu": "1m"}),
        change("spec.resources", {"requests": {"cpu": "5"}}),
        change("spec.schedulingGates", [{"name": "g"}]),
        change("spec.resourceClaims", [{"name": "g"}]),
        change("spec.initContainers", [{"name": "i"}]),
        change("spec.volumes", [IMAGE_VOLUME]),
        change("spec.containers.0.image", "other:1"),
        change("spec.containers.0.resources.requests", {"cpu": "2"}),
        change("spec.containers.0.resources.limits", {"cpu": "2"}),
        change("spec.containers.0.ports", [{"hostPort": 80}]),
        change("spec.containers.0.restartPolicyRules", RESTART_RULES),
    ],
)
def test_a_difference_that_counts_makes_another_spec(differs: Callable[[JsonObject], None]) -> None:
    one, other = make_pod("p", cpu="1"), make_pod("p", cpu="1")
    differs(other)
    before, after = parse_pod(one).spec, parse_pod(other).spec
    assert before is not after
    assert any(
        getattr(before, field) != getattr(after, field)
        for field in before.__slots__
        if field != "__weakref__"
    )


@pytest.mark.parametrize(
    "differs",
    [
        change("metadata.name", "other"),
        change("metadata.uid", "other"),
        change("metadata.labels", {"statefulset.kubernetes.io/pod-name": "web-7"}),
        change("metadata.annotations", {"a": "b"}),
        change("spec.containers.0.name", "other"),
        change("spec.containers.0.env", [{"name": "A", "value": "b"}]),
        change("spec.volumes", [{"name": "d", "persistentVolumeClaim": {"claimName": "data-7"}}]),
        change("spec.nodeName", "n1"),
        change("spec.serviceAccountName", "web"),
        change("spec.terminationGracePeriodSeconds", 5),
        change("status.phase", "Running"),
    ],
)
def test_a_difference_that_does_not_count_leaves_it_shared(
    differs: Callable[[JsonObject], None],
) -> None:
    one, other = make_pod("p", cpu="1"), make_pod("p", cpu="1")
    differs(other)
    assert parse_pod(one).spec is parse_pod(other).spec


def of_daemon_set(node_name: str, *more: str, **term: Any) -> JsonObject:
    """A pod as the DaemonSet controller makes it for a node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node_name, *more]}
    required = {"nodeSelectorTerms": [{"matchFields": [field], **term}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return make_pod(f"agent-{node_name}", affinity=affinity)


def test_pods_of_a_daemon_set_share_their_spec_though_each_has_its_node() -> None:
    first, second = parse_pod(of_daemon_set("n1")), parse_pod(of_daemon_set("n2"))
    assert first.spec is second.spec
    assert (first.node_names, second.node_names) == (frozenset({"n1"}), frozenset({"n2"}))
    assert first.spec.required_node_affinity is None


def test_other_match_fields_stay_with_the_spec() -> None:
    expression = {"key": "disk", "operator": "Exists"}
    mixed = parse_pod(of_daemon_set("n1", matchExpressions=[expression]))
    assert mixed.node_names is None
    required = mixed.spec.required_node_affinity
    assert required is not None
    assert required.matches({"disk": "ssd"}, "n1")
    assert not required.matches({"disk": "ssd"}, "n2")
    negated = of_daemon_set("n1")
    affinity = negated["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    term["matchFields"][0]["operator"] = "NotIn"
    assert parse_pod(negated).node_names is None


def test_names_of_several_terms_are_one_set() -> None:
    obj = of_daemon_set("n1", "n2")
    affinity = obj["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms.append(deepcopy(terms[0]))
    terms[1]["matchFields"][0]["values"] = ["n3"]
    assert parse_pod(obj).node_names == frozenset({"n1", "n2", "n3"})


def test_terms_default_to_the_namespace_and_so_are_shared_within_it_only() -> None:
    def spec(namespace: str, **labels: str) -> object:
        return pod_info("p", namespace=namespace, labels=labels, affinity=ANTI_AFFINITY).spec

    assert spec("a", x="1") is spec("a", x="2")
    assert spec("a") is not spec("b")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"topologySpreadConstraints": [{**SPREAD, "matchLabelKeys": ["hash"]}]}, id="spread"
        ),
        pytest.param(
            {
                "affinity": {
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 1,
                                "podAffinityTerm": {
                                    "topologyKey": "zone",
                                    "labelSelector": {},
                                    "mismatchLabelKeys": ["hash"],
                                },
                            }
                        ]
                    }
                }
            },
            id="affinity",
        ),
    ],
)
def test_with_match_label_keys_labels_are_part_of_the_spec(fields: JsonObject) -> None:
    first, second = (pod_info("p", labels={"hash": value}, **fields).spec for value in "12")
    assert first is not second
    assert first is pod_info("q", labels={"hash": "1"}, **fields).spec


def test_match_label_keys_narrow_the_selector() -> None:
    constraint = {**SPREAD, "matchLabelKeys": ["hash", "absent"]}
    pod = pod_info("p", labels={"hash": "1"}, topologySpreadConstraints=[constraint])
    selector = pod.spec.spread_constraints[0].selector
    assert selector is not None
    assert selector.matches({"hash": "1"})
    assert not selector.matches({"hash": "2"})


def test_a_resized_pod_has_amounts_of_its_own() -> None:
    plain, resized = make_pod("plain", cpu="1"), make_pod("resized", cpu="1")
    resized["status"]["containerStatuses"] = [
        {"name": "main", "resources": {"requests": {"cpu": "3"}}}
    ]
    first, second = parse_pod(plain), parse_pod(resized)
    assert first.spec is second.spec
    assert first.amounts is first.spec.amounts
    assert second.amounts.requests["cpu"] == 3000
    assert second.spec.amounts.requests["cpu"] == 1000


def test_a_sidecar_may_be_the_only_one_to_report_a_resize() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    obj = make_pod("p", cpu="1", initContainers=[sidecar])
    obj["status"]["initContainerStatuses"] = [
        {"name": "side", "resources": {"requests": {"cpu": "3"}}}
    ]
    assert parse_pod(obj).amounts.requests["cpu"] == 4000


def test_owners_may_be_null() -> None:
    obj = make_pod("p")
    obj["metadata"]["ownerReferences"] = None
    assert parse_pod(obj).owner is None


def test_what_no_pod_uses_any_more_is_dropped() -> None:
    pod = pod_info("p", nodeSelector={"used": "once"}, labels={"used": "once"})
    spec, label_set = ref(pod.spec), ref(pod.label_set)
    del pod
    gc.collect()
    assert (spec(), label_set()) == (None, None)


def _owned(name: str, node_name: str, uid: str = "u1") -> JsonObject:
    pod = make_pod(name, cpu="1", node_name=node_name)
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": uid,
            "controller": True,
        }
    ]
    pod["status"] = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:07Z",
        "qosClass": "Burstable",
    }
    return pod


def test_bound_pods_of_one_owner_share_their_details_and_the_owner() -> None:
    first, second, other = (
        parse_pod(_owned(name, "n1", uid)) for name, uid in (("a", "u1"), ("b", "u1"), ("c", "u2"))
    )
    assert first.details is second.details is other.details
    assert first.owner is second.owner
    assert other.owner == ("apps/v1 ReplicaSet", "web", "u2")


def test_a_pod_with_kept_conditions_has_details_of_its_own() -> None:
    pods = []
    for name in ("a", "b"):
        pod = make_pod(name, cpu="1")
        pod["status"] = {"conditions": [{"type": "PodScheduled", "reason": name}]}
        pods.append(parse_pod(pod))
    assert [pod.conditions[0]["reason"] for pod in pods] == ["a", "b"]


def test_the_start_is_kept_as_a_number_and_read_as_the_api_writes_it() -> None:
    pod = parse_pod(_owned("a", "n1"))
    assert pod.started_seconds == 1767225607.0
    assert pod.start_time == "2026-01-01T00:00:07Z"
    assert pod_info("b").start_time == ""


def test_a_bound_pod_takes_little_memory_beside_what_it_shares() -> None:
    texts = [orjson.dumps(_owned(f"web-{number:06}", f"n{number % 9}")) for number in range(2000)]
    parse_pod(orjson.loads(texts[0]))  # what is made once
    tracemalloc.start()
    pods = [parse_pod(orjson.loads(text)) for text in texts]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A name, a uid, a version, a time and the record: 296 bytes, where it was 736 before.
    assert held / len(pods) < 350


def test_a_spec_and_labels_of_its_own_cost_no_buffers() -> None:
    texts = [
        orjson.dumps(make_pod("a", cpu=f"{number}m", labels={"app": f"app-{number}"}))
        for number in range(1, 500)
    ]
    parse_pod(orjson.loads(orjson.dumps(make_pod("a", cpu="1"))))  # what is made once
    tracemalloc.start()
    pods = [parse_pod(orjson.loads(text)) for text in texts]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Three texts of JSON held 4 KB each, in buffers that they were written into.
    assert held / len(pods) < 4000
