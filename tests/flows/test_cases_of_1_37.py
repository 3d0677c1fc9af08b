"""Cases by hand of Kubernetes 1.37, decided as 1.37, and as 1.36 where they say what it does."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from http import HTTPStatus
from typing import Any

import pytest

from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.framework.events import QUEUE, QUEUE_SKIP, Action, ClusterChange, Resource
from stellwerk.framework.handle import STANDING_CLOCK
from stellwerk.framework.types import CODE_NAMES
from stellwerk.models.api_kinds import API_KINDS, chosen_version
from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.plugins.gang_scheduling import GangScheduling
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.plugin_args import InterPodAffinityArgs
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.scheduler.gangs.group_conditions import ScheduledCondition, conditions_patch
from stellwerk.world.gangs.group_attempt import placement_feasible
from stellwerk.world.gangs.group_request import TakenGroup, take_members, why_disagreeing
from stellwerk.world.gangs.pod_groups import GroupMembers, PodGroupStates
from stellwerk.world.pod_status import SCHEDULER_ERROR
from stellwerk_cluster.apimachinery.feature_gates import feature_gates, gates_of
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.releases import runtime_config
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.compatibility import Compatibility, release_named
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_amounts import resource_amounts
from stellwerk_simulation.cases.decide import CaseError, decide
from tests.flows.corpus_of_1_37 import both_releases, cases, differences
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.group_decisions import GroupWorld
from tests.support.plugin_runs import PluginHandle, make_plugin
from tests.support.pod_groups import make_member
from tests.support.served_cluster import send, served

PATCH_RELEASES = {"1.36": "1.36.2", "1.37": "1.37.0"}
"""The patch releases whose answers the cases have."""


def as_recorded(release: str) -> Compatibility:
    return Compatibility.with_release(release_named(PATCH_RELEASES[release]))


def named(*found: tuple[str, str, JsonObject, Any]) -> list[Any]:
    return [pytest.param(*rest, id=name) for name, *rest in found]


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("decide")))
def test_a_decision(release: str, given: JsonObject, expected: Mapping[str, Any]) -> None:
    case = {"id": "case", **given}
    try:
        result = decide(case, as_recorded(release))
    except (CaseError, ProfileError) as refused:
        result = {"error": str(refused)}
    assert differences(expected, result) == []


@pytest.mark.parametrize("name", ["taint", "constraint"])
def test_a_repair_of_1_36_3_answers_as_1_37(name: str) -> None:
    """#140431: the recorded fault is of 1.36.2, and `"1.36"` means a later patch release."""
    [case] = [each for each in cases("decide") if each["id"] == f"dra-counter-rollback-{name}"]
    for release in ("1.36.3", "1.36"):
        rules = Compatibility.with_release(release_named(release))
        result = decide({"id": "case", **case["given"]}, rules)
        assert differences(case["expect"], result) == []


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("podRequests")))
def test_requests_of_a_pod(release: str, given: JsonObject, expected: Mapping[str, Any]) -> None:
    compatibility = as_recorded(release)
    pod = given["pod"]
    found = resource_amounts(pod["spec"], pod.get("status"), compatibility).requests
    assert {name: amount for name, amount in found.items() if amount} == expected["requests"]


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("validateArgs")))
def test_arguments_of_a_profile(
    release: str, given: JsonObject, expected: Mapping[str, Any]
) -> None:
    config = [{"name": expected["plugin"], "args": given["args"]}]
    spec = {"schedulerName": "s", "compatibility": PATCH_RELEASES[release], "pluginConfig": config}
    try:
        load_profile({"metadata": {"name": "p"}, "spec": spec}, known_plugins())
    except ProfileError:
        valid = False
    else:
        valid = True
    assert valid is expected["valid"]


@pytest.mark.parametrize("case", cases("hint:Pod/Delete"), ids=lambda case: case["id"])
def test_a_deleted_pod_wakes_another(case: JsonObject) -> None:
    # Wherever a term matched, whatever the release: docs/differences.md.
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": case["given"]["pod"]["antiAffinity"]
    }
    pod = pod_info("waiting", affinity={"podAntiAffinity": affinity})
    given = case["given"]["deleted"]
    gone = pod_info("gone", labels=given["labels"], node_name=given["nodeName"])
    change = ClusterChange(Resource.POD, Action.DELETE, gone, None)
    plugin = InterPodAffinity(PluginHandle.empty(), InterPodAffinityArgs.model_validate({}))
    [hint] = [
        each.queueing_hint_fn
        for each in plugin.events_to_register()
        if each.resource is Resource.POD and each.action & Action.DELETE
        if each.queueing_hint_fn
    ]
    expected = QUEUE if case["expect"]["hint"] == "Queue" else QUEUE_SKIP
    assert hint(pod, change) is expected


@pytest.mark.parametrize("case", cases("validateGroup"), ids=lambda case: case["id"])
def test_members_agree_with_their_group(case: JsonObject) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, **case["given"]["group"]}
    metadata = {"name": "g", "namespace": "default"}
    api_version = "scheduling.k8s.io/v1beta1"
    group = parse_pod_group({"apiVersion": api_version, "metadata": metadata, "spec": spec})
    pods = {
        str(number): pod_info(f"p{number}", **each)
        for number, each in enumerate(case["given"]["members"])
    }
    members = GroupMembers(group.key, lambda pod: pod.spec.scheduler_name, group=group, pods=pods)
    message = why_disagreeing(members)
    expected = case["expect"]["condition"]
    if expected is None:
        assert message == ""
        return
    stated = ScheduledCondition("False", SCHEDULER_ERROR, message)
    patch = conditions_patch(group, stated, STANDING_CLOCK.now(), was_placed=False)
    assert patch is not None
    [condition] = patch["status"]["conditions"]
    assert {name: condition[name] for name in expected} == expected


@pytest.mark.parametrize("case", cases("podGroupCondition"), ids=lambda case: case["id"])
def test_a_condition_of_a_group_is_written_until_it_is_true(case: JsonObject) -> None:
    stored, new = case["given"]["stored"], case["given"]["new"]
    kind = case["expect"]["type"]
    conditions = [] if stored is None else [{"type": kind, "message": "", **stored}]
    group = parse_pod_group(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
            "status": {"conditions": conditions},
        }
    )
    stated = ScheduledCondition(new["status"], new["reason"])
    patch = conditions_patch(group, stated, STANDING_CLOCK.now(), was_placed=False)
    written = [
        each["type"] for each in (patch or {"status": {"conditions": []}})["status"]["conditions"]
    ]
    assert (kind in written) is (case["expect"]["action"] == "write")


@pytest.mark.parametrize("case", cases("parsePodGroup"), ids=lambda case: case["id"])
def test_a_pod_group_is_read(case: JsonObject) -> None:
    group = parse_pod_group(case["given"]["object"])
    found = {
        "minCount": group.min_count,
        "evictedWhole": group.evicted_whole,
        "hasRun": group.was_placed,
        "priority": group.priority,
        "topology": group.topology[0] if group.topology else None,
        "claims": len(group.claims),
    }
    assert {name: found[name] for name in case["expect"]} == case["expect"]


@pytest.mark.parametrize("case", cases("discover"), ids=lambda case: case["id"])
def test_the_version_of_a_kind_is_chosen(case: JsonObject) -> None:
    served = case["given"]["served"]
    found = {}
    for kind in case["expect"]:
        row = API_KINDS[kind]
        version = chosen_version(row.plural, row.versions, served.get(row.group, {}))
        found[kind] = None if version is None else f"{row.group}/{version}"
    assert found == case["expect"]


# --- groups in the queue ---------------------------------------------------------------------

AS_1_37 = as_recorded("1.37")


def a_group(name: str, policy: JsonObject, namespace: str = "default") -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": f"group-{namespace}-{name}"},
        "spec": {"schedulingPolicy": policy},
    }


def a_gang(group: Mapping[str, Any]) -> JsonObject:
    return a_group(group["name"], {"gang": {"minCount": group["minCount"]}}, group["namespace"])


def a_member(name: str, given: Mapping[str, Any], **more: Any) -> JsonObject:
    more |= {"node_name": given["nodeName"]} if given.get("nodeName") else {}
    return make_member(name, given["group"], namespace=given["namespace"], **more)


def a_waiting(world: GroupWorld, given: Mapping[str, Any]) -> QueuedPod:
    """A member in the queue's unschedulable pods, refused by GangScheduling."""
    world.apply(a_member("waiting", given, cpu="8"))
    entry = world.world.queue.entries[f"uid-{given['namespace']}-waiting"]
    popped = world.world.queue.pop_with_group(entry.pod.uid)
    assert popped is entry
    world.world.queue.add_unschedulable_if_not_present(entry, {GANG_SCHEDULING}, now=0.0)
    assert entry.place is Place.UNSCHEDULABLE
    return entry


@pytest.mark.parametrize("case", cases("hint:PodGroup/Update"), ids=lambda case: case["id"])
async def test_a_changed_group_wakes_its_members(case: JsonObject) -> None:
    given = case["given"]
    world = GroupWorld()
    # The group that the pod is in, and the one that changes, which may be another.
    own = {"name": given["pod"]["group"], "namespace": given["pod"]["namespace"], "minCount": 1}
    world.apply(a_gang(own), a_gang(given["old"]))
    others = max(own["minCount"], given["old"]["minCount"], given["new"]["minCount"])
    world.apply(*(a_member(f"m{n}", given["pod"], cpu="8") for n in range(others)))
    entry = a_waiting(world, given["pod"])
    changed = a_gang(given["new"])
    changed["metadata"]["resourceVersion"] = "9"
    world.operator.handlers.on_object("PodGroup", "MODIFIED", changed)
    is_woken = entry.place is not Place.UNSCHEDULABLE
    assert is_woken is (case["expect"]["hint"] == "Queue")


@pytest.mark.parametrize("case", cases("hint:Pod/Add"), ids=lambda case: case["id"])
async def test_a_new_pod_wakes_the_members_of_its_group(case: JsonObject) -> None:
    given = case["given"]
    world = GroupWorld(make_node("n1"))
    world.apply(a_group(given["pod"]["group"], {"gang": {"minCount": 1}}))
    entry = a_waiting(world, given["pod"])
    world.apply(a_member("new", given["new"], cpu="1"))
    # A new member without a node takes the others along when it is popped.
    comes = world.world.queue.entries.get(f"uid-{given['new']['namespace']}-new")
    taken = comes is not None and _takes_along(world, comes, entry)
    is_woken = taken or entry.place is not Place.UNSCHEDULABLE
    assert is_woken is (case["expect"]["hint"] == "Queue")


def _takes_along(world: GroupWorld, first: QueuedPod, other: QueuedPod) -> bool:
    members = world.world.pod_groups.of_member(first.pod.uid)
    popped = world.world.queue.pop_with_group(first.pod.uid)
    if members is None or popped is None:
        return False
    taken = TakenGroup(members, world.served, {first.pod.uid: popped})
    for _ in take_members(world.world, taken):
        pass
    return other.pod.uid in taken.queued


@pytest.mark.parametrize("case", cases("preEnqueue"), ids=lambda case: case["id"])
def test_a_member_enters_the_queue(case: JsonObject) -> None:
    given = case["given"]
    group = given["group"]
    name = group["name"] if group is not None else "g"
    book = PodGroupStates()
    if group is not None:
        book.put_group(parse_pod_group(a_group(name, group["schedulingPolicy"])))
    pods = [parse_pod(make_member(f"p{n}", name), None) for n in range(given["members"])]
    for pod in pods:
        book.put_pod(pod, pod.group)
    plugin = make_plugin(GangScheduling, pod_groups=book, compatibility=AS_1_37)
    status = plugin.pre_enqueue(pods[0])
    found = {"code": CODE_NAMES[status.code], "reasons": list(status.reasons)}
    assert found == case["expect"]


@pytest.mark.parametrize("case", cases("placementFeasible"), ids=lambda case: case["id"])
def test_a_group_can_still_be_placed(case: JsonObject) -> None:
    given = case["given"]
    status = placement_feasible(given["minCount"], given["scheduled"], given["remaining"])
    found = {"code": CODE_NAMES[status.code], "reasons": list(status.reasons)}
    assert found == case["expect"]


# --- the embedded API server -----------------------------------------------------------------


Apis = Callable[..., EmbeddedCluster]


@pytest.fixture(scope="module")
def an_api() -> Iterator[Apis]:
    """API servers by release and gates, which serve every version that they have."""
    with ExitStack() as stack:

        @cache
        def serving(release: str, gates: tuple[str, ...] = ("GenericWorkload",)) -> EmbeddedCluster:
            on = ",".join(f"{name}=true" for name in gates if name in gates_of(release))
            versions = {kind.api_version for kind in kinds_of_release(release)}
            options = ClusterOptions(
                controllers=False,
                kubelet=None,
                heartbeats=False,
                release=release,
                feature_gates=feature_gates(on, release),
                runtime_config=runtime_config("api/all=true", versions),
            )
            return stack.enter_context(served(EmbeddedCluster(0, options=options)))

        yield serving


def sent(cluster: EmbeddedCluster, method: str, path: str, body: JsonObject) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    status, answer = send(cluster.url, method, path, json.dumps(body).encode(), headers)
    return status, json.loads(answer)


def collection(cluster: EmbeddedCluster, obj: JsonObject) -> str:
    """The path under which objects of a kind are created."""
    [kind] = [
        row
        for row in cluster.api.kinds
        if (row.api_version, row.kind) == (obj["apiVersion"], obj["kind"])
    ]
    place = f"namespaces/{obj['metadata']['namespace']}/" if kind.namespaced else ""
    root = "/apis" if "/" in kind.api_version else "/api"
    return f"{root}/{kind.api_version}/{place}{kind.plural}"


def named_object(obj: JsonObject, name: str) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "name": name}}


@pytest.mark.parametrize("case", cases("validateObject"), ids=lambda case: case["id"])
def test_an_object_is_judged(an_api: Apis, case: JsonObject) -> None:
    # Under the case's name: the API server is that of other cases, too.
    given, name, method = case["given"], case["id"], "POST"
    old, obj = given["old"], named_object(given["object"], name)
    cluster = an_api("1.37", tuple(given["gates"]))
    path = collection(cluster, obj)
    if old is not None:
        assert sent(cluster, "POST", path, named_object(old, name))[0] == HTTPStatus.CREATED
        path, method = f"{path}/{name}", "PUT"
    status, answer = sent(cluster, method, path, obj)
    assert (status < HTTPStatus.BAD_REQUEST) is case["expect"]["valid"], answer


@pytest.mark.parametrize("case", cases("defaultObject"), ids=lambda case: case["id"])
def test_an_object_is_defaulted(an_api: Apis, case: JsonObject) -> None:
    obj, cluster = named_object(case["given"]["object"], case["id"]), an_api("1.37")
    status, stored = sent(cluster, "POST", collection(cluster, obj), obj)
    assert status == HTTPStatus.CREATED
    for path, value in case["expect"].items():
        found = stored
        for name in path.split("."):
            found = found[name]
        assert found == value


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("bind")))
def test_a_binding_is_judged(
    an_api: Apis, release: str, given: JsonObject, expected: Mapping[str, Any]
) -> None:
    cluster, pods = an_api(release), "/api/v1/namespaces/default/pods"
    made = {**make_pod("p"), "metadata": {"generateName": "p-"}}
    status, pod = sent(cluster, "POST", pods, made)
    assert status == HTTPStatus.CREATED
    body = {"metadata": {"name": pod["metadata"]["name"]}, "target": given["target"]}
    path = f"{pods}/{pod['metadata']['name']}/binding"
    status, answer = sent(cluster, "POST", path, body)
    assert (status >= HTTPStatus.BAD_REQUEST) is expected["refused"], answer


def test_every_kind_of_case_has_a_test() -> None:
    assert {case["when"] for case in cases()} == {
        "decide",
        "podRequests",
        "validateArgs",
        "discover",
        "parsePodGroup",
        "hint:PodGroup/Update",
        "hint:Pod/Add",
        "hint:Pod/Delete",
        "preEnqueue",
        "placementFeasible",
        "validateGroup",
        "podGroupCondition",
        "validateObject",
        "defaultObject",
        "bind",
    }
