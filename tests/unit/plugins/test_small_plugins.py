"""PrioritySort, SchedulingGates, DefaultBinder, DynamicResources, NodePreferAvoidPods."""

import json
from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.types import Code, CycleState, StatusColumn
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.default_binder import DefaultBinder
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.legacy_balanced_allocation import LegacyBalancedAllocation
from stellwerk.plugins.node_prefer_avoid_pods import ANNOTATION, NodePreferAvoidPods
from stellwerk.plugins.priority_sort import PrioritySort
from stellwerk.plugins.scheduling_gates import SchedulingGates
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.errors import ApiError, api_error
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import filtered, make_plugin, raw_scores, scores_on
from tests.support.recordings import scenario

# --- PrioritySort and SchedulingGates -----------------------------------------------------------


def test_higher_priority_goes_first_then_the_longer_wait() -> None:
    plugin = make_plugin(PrioritySort)
    queued = [("late", 1, 20.0), ("early", 1, 10.0), ("high", 5, 30.0), ("low", -5, 0.0)]
    order = sorted(
        queued, key=lambda each: plugin.sort_key(pod_info(each[0], priority=each[1]), each[2])
    )
    assert [name for name, _, _ in order] == ["high", "early", "late", "low"]


def test_gates_are_listed_as_kube_scheduler_lists_them() -> None:
    pod = pod_info("p", schedulingGates=[{"name": "foo"}, {"name": "bar"}])
    status = make_plugin(SchedulingGates).pre_enqueue(pod)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("waiting for scheduling gates: [foo bar]",)


def test_a_pod_without_gates_may_enter() -> None:
    assert make_plugin(SchedulingGates).pre_enqueue(pod_info("p")).ok


# --- DefaultBinder ------------------------------------------------------------------------------


class Bindings:
    """A client that binds, or fails as told."""

    def __init__(self, failure: ApiError | None = None) -> None:
        self._failure = failure
        self.made: list[tuple[str, str, str, str]] = []

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        if self._failure is not None:
            raise self._failure
        self.made.append((namespace, name, uid, node_name))


async def test_a_pod_is_bound_by_its_uid() -> None:
    client = Bindings()
    pod = pod_info("web", namespace="shop", uid="u1")
    status = await make_plugin(DefaultBinder, client=client).bind(CycleState(), pod, "node-7")
    assert status.ok
    assert client.made == [("shop", "web", "u1", "node-7")]


@pytest.mark.parametrize("name", ["bind-forbidden", "bind-conflict-409", "bind-pod-deleted"])
async def test_a_refused_binding_reads_as_recorded(name: str) -> None:
    recorded = scenario(name)
    answer = next(
        request["responseObject"]
        for request in recorded["schedulerRequests"]
        if request["uri"].endswith("/binding") and request["status"] >= 400
    )
    event = next(each for each in recorded["events"] if each["reason"] == "FailedScheduling")
    failure = api_error("bind default/a", answer["code"], answer["reason"], answer["message"])
    plugin = make_plugin(DefaultBinder, client=Bindings(failure))
    status = await plugin.bind(CycleState(), pod_info("a"), "n1")
    assert status.code is Code.ERROR
    assert event["note"] == f'running Bind plugin "DefaultBinder": {status.message}'


async def test_a_refused_binding_is_an_error_in_the_apis_own_words() -> None:
    failure = api_error("bind default/a", 409, "Conflict", 'pod a is already assigned to node "b"')
    status = await make_plugin(DefaultBinder, client=Bindings(failure)).bind(
        CycleState(), pod_info("a"), "n1"
    )
    assert (status.code, status.plugin) == (Code.ERROR, "DefaultBinder")
    assert status.reasons == ('pod a is already assigned to node "b"',)


async def test_a_failure_without_words_of_the_api_still_says_something() -> None:
    failure = api_error("bind default/a", None, "TimeoutError", "")
    status = await make_plugin(DefaultBinder, client=Bindings(failure)).bind(
        CycleState(), pod_info("a"), "n1"
    )
    assert status.reasons == ("cannot bind default/a: TimeoutError",)


# --- DynamicResources ---------------------------------------------------------------------------

NOTHING_FOUND = Diagnosis(rows=(), statuses=StatusColumn.of(()))


def claiming() -> PodInfo:
    return pod_info("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "my-gpu"}])


def test_a_pod_without_claims_is_skipped_and_scores_0() -> None:
    nodes = NodeView(make_cache([make_node("a"), make_node("b")]).snapshot)
    plugin = make_plugin(DynamicResources)
    assert plugin.pre_filter(CycleState(), pod_info("p"), nodes).status.skip
    assert raw_scores(plugin, pod_info("p"), nodes) == {"a": 0, "b": 0}


def test_a_pod_waits_for_a_claim_that_is_not_there() -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    plugin = make_plugin(DynamicResources)
    for status in (
        plugin.pre_enqueue(claiming()),
        plugin.pre_filter(CycleState(), claiming(), nodes).status,
    ):
        assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert status.reasons == ('could not find ResourceClaim "default/my-gpu"',)


def test_a_pod_with_claims_fits_nowhere_even_without_pre_filter() -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    plugin = make_plugin(DynamicResources)
    assert filtered(plugin, CycleState(), claiming(), nodes).keys() == {"a"}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_info("p"), id="without claims"),
        pytest.param(claiming(), id="with a claim that is not there"),
    ],
)
def test_post_filter_leaves_it_to_preemption(pod: PodInfo) -> None:
    plugin, state = make_plugin(DynamicResources), CycleState()
    plugin.pre_filter(state, pod, NodeView(make_cache().snapshot))
    status = plugin.post_filter(state, pod, NOTHING_FOUND).status
    assert (status.code, status.message) == (Code.UNSCHEDULABLE, "no new claims to deallocate")


def test_post_filter_fails_when_an_earlier_plugin_ended_pre_filter() -> None:
    status = make_plugin(DynamicResources).post_filter(CycleState(), pod_info("p"), NOTHING_FOUND)
    assert (status.status.code, status.status.message) == (Code.ERROR, "not found")


# --- NodePreferAvoidPods ------------------------------------------------------------------------


def avoiding(name: str, kind: str, uid: str) -> dict[str, Any]:
    controller = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": uid}
    node = make_node(name)
    node["metadata"]["annotations"] = {
        ANNOTATION: json.dumps(
            {"preferAvoidPods": [{"podSignature": {"podController": controller}}]}
        )
    }
    return node


def owned_by(kind: str, uid: str) -> PodInfo:
    pod = make_pod("p")
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": uid, "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return parse_pod(pod)


@pytest.mark.parametrize(
    ("pod", "score"),
    [
        pytest.param(owned_by("ReplicaSet", "u1"), 0, id="the controller that is avoided"),
        pytest.param(owned_by("ReplicaSet", "u2"), 100, id="another one"),
        pytest.param(owned_by("ReplicationController", "u1"), 100, id="another kind"),
        pytest.param(pod_info("p"), 100, id="no controller"),
    ],
)
def test_a_node_avoids_the_pods_of_a_controller(pod: PodInfo, score: int) -> None:
    nodes = [avoiding("avoids", "ReplicaSet", "u1"), make_node("plain")]
    assert scores_on(NodePreferAvoidPods, pod, nodes) == {"avoids": score, "plain": 100}


def test_only_replica_sets_and_replication_controllers_can_be_avoided() -> None:
    nodes = [avoiding("n", "StatefulSet", "u1")]
    assert scores_on(NodePreferAvoidPods, owned_by("StatefulSet", "u1"), nodes) == {"n": 100}


@pytest.mark.parametrize("text", ["{", "[]", '{"preferAvoidPods": [{}]}', '{"preferAvoidPods": 3}'])
def test_an_annotation_that_cannot_be_read_avoids_no_controller(text: str) -> None:
    node = make_node("n")
    node["metadata"]["annotations"] = {ANNOTATION: text}
    assert scores_on(NodePreferAvoidPods, owned_by("ReplicaSet", "u1"), [node]) == {"n": 100}


def test_changes_of_the_annotation_are_followed() -> None:
    cache = make_cache([avoiding("a", "ReplicaSet", "u1"), make_node("b")])
    plugin, pod = make_plugin(NodePreferAvoidPods, cache.snapshot), owned_by("ReplicaSet", "u1")
    assert raw_scores(plugin, pod, NodeView(cache.update_snapshot())) == {"a": 0, "b": 100}
    cache.set_node(parse_node(make_node("a")))
    cache.set_node(parse_node(avoiding("b", "ReplicaSet", "u1")))
    fork = cache.fork()
    assert raw_scores(plugin, pod, NodeView(cache.update_snapshot())) == {"a": 100, "b": 0}
    cache.remove_node("b")
    assert raw_scores(plugin, pod, NodeView(cache.update_snapshot())) == {"a": 100}
    assert raw_scores(plugin, pod, NodeView(fork.update_snapshot())) == {"a": 100, "b": 0}
    cache.remove_node("b")
    cache.update_snapshot()
    assert raw_scores(plugin, pod, NodeView(cache.snapshot)) == {"a": 100}


# --- LegacyBalancedAllocation with volumes ------------------------------------------------------


def storage(limits: dict[str, int]) -> IndexedObjectStore:
    objects = IndexedObjectStore()
    for number in (1, 2):
        claim = {"name": f"c{number}", "namespace": "default"}
        objects.set(
            "PersistentVolumeClaim", {"metadata": claim, "spec": {"volumeName": f"v{number}"}}
        )
        source = {"driver": "csi.example", "volumeHandle": f"h{number}"}
        objects.set(
            "PersistentVolume", {"metadata": {"name": f"v{number}"}, "spec": {"csi": source}}
        )
    for name, count in limits.items():
        driver = {"name": "csi.example", "allocatable": {"count": count}}
        objects.set("CSINode", {"metadata": {"name": name}, "spec": {"drivers": [driver]}})
    return objects


@pytest.mark.parametrize(
    ("balanced", "scores"),
    [
        pytest.param(True, {"limited": 97, "holds it": 99, "full": 0, "open": 90}, id="on"),
        pytest.param(
            False, {"limited": 90, "holds it": 90, "full": 90, "open": 90}, id="off, as by default"
        ),
    ],
)
def test_attached_volumes_can_be_balanced_too(*, balanced: bool, scores: dict[str, int]) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "c1"}}
    used = make_pod("old", requests={"cpu": "0", "memory": "0"}, node_name="full")
    used["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c2"}}]
    holds = make_pod("other", requests={"cpu": "0", "memory": "0"}, node_name="holds it")
    holds["spec"]["volumes"] = [{"name": "v", **claim}]
    cache = make_cache([make_node(name, cpu="10", memory="10") for name in scores], [used, holds])
    objects = storage({"limited": 2, "holds it": 4, "full": 2})
    args = {"balanceAttachedNodeVolumes": balanced}
    plugin = make_plugin(LegacyBalancedAllocation, cache.snapshot, args, objects=objects)
    pod = pod_info("p", cpu="1", memory="2", volumes=[{"name": "v", **claim}])
    # cpu 10 %, memory 20 %; volumes 1 of 2, 1 of 4 (no new one), 2 of 2, and no limit.
    assert raw_scores(plugin, pod, NodeView(cache.snapshot)) == scores
    assert (plugin.score_key(CycleState(), pod) is None) == balanced
