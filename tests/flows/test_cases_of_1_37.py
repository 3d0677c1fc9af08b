"""Cases by hand of Kubernetes 1.37, decided as 1.37, and as 1.36 where they say what it does."""

from collections.abc import Mapping
from typing import Any

import pytest

from stellwerk.cases.decide import CaseError, decide
from stellwerk.errors import ProfileError
from stellwerk.framework.events import QUEUE, QUEUE_SKIP, Action, ClusterChange, Resource
from stellwerk.framework.handle import STANDING_CLOCK
from stellwerk.models.api_kinds import API_KINDS, chosen_version
from stellwerk.models.compatibility import Compatibility, release_named
from stellwerk.models.json_values import JsonObject
from stellwerk.models.plugin_args import InterPodAffinityArgs
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.models.pod_resources import resource_amounts
from stellwerk.models.profile import load_profile
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.registry import known_plugins
from stellwerk.scheduler.gangs.group_conditions import ScheduledCondition, conditions_patch
from stellwerk.world.gangs.group_request import why_disagreeing
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.pod_status import SCHEDULER_ERROR
from tests.support.builders import pod_info
from tests.support.corpus_of_1_37 import both_releases, cases, differences
from tests.support.plugin_runs import PluginHandle

AREAS = ("vb-", "vl-", "il-", "preempt-")


def named(*found: tuple[str, str, JsonObject, Any]) -> list[Any]:
    return [pytest.param(*rest, id=name) for name, *rest in found]


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("decide", *AREAS)))
def test_a_decision(release: str, given: JsonObject, expected: Mapping[str, Any]) -> None:
    case = {"id": "case", **given}
    try:
        result = decide(case, Compatibility.with_release(release_named(release)))
    except (CaseError, ProfileError) as refused:
        result = {"error": str(refused)}
    assert differences(expected, result) == []


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("podRequests")))
def test_requests_of_a_pod(release: str, given: JsonObject, expected: Mapping[str, Any]) -> None:
    compatibility = Compatibility.with_release(release_named(release))
    pod = given["pod"]
    found = resource_amounts(pod["spec"], pod.get("status"), compatibility).requests
    assert {name: amount for name, amount in found.items() if amount} == expected["requests"]


@pytest.mark.parametrize(("release", "given", "expected"), named(*both_releases("validateArgs")))
def test_arguments_of_a_profile(
    release: str, given: JsonObject, expected: Mapping[str, Any]
) -> None:
    config = [{"name": expected["plugin"], "args": given["args"]}]
    spec = {"schedulerName": "s", "compatibility": release, "pluginConfig": config}
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
