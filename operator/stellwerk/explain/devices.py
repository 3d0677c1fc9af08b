"""What a decision says about devices, in the schema of recorded decisions and beyond.

Called by `decide`; the field `devices` says which devices were considered where no node was found.
Invariant: the allocations shown for a node are those that Reserve would keep for it.
"""

from stellwerk.explain.device_report import device_report, plugin_of
from stellwerk.explain.steps import finished
from stellwerk.framework.types import CODE_NAMES
from stellwerk.models.answers.answer import codec
from stellwerk.models.answers.devices import DevicesOfPod
from stellwerk.models.json_values import JsonObject
from stellwerk.plugins.devices.attempt import Attempt
from stellwerk.plugins.devices.extended import CLAIM_NAME
from stellwerk.plugins.devices.pod_claims import consumer_of, reserved_for
from stellwerk.plugins.dynamic_resources import DynamicResources
from stellwerk.world.decide import Decision
from stellwerk.world.world import World

_MOST_CONSUMERS = 256


def devices_of(world: World, decision: Decision) -> JsonObject:
    """The fields that only cases with claims have; none where devices do not matter."""
    search = decision.search
    attempt = search.found.state.get(DynamicResources.name, Attempt)
    plugin = plugin_of(search.profile)
    if plugin is None:
        return {}
    result = _gated(plugin, decision)
    if decision.scores is None:
        found = search.found
        report = finished(device_report(world, search.pod, search.profile, found.state))
        if report is not None:
            result["devices"] = codec(DevicesOfPod).as_json(report)
    if attempt is None or not attempt.anything:
        return result
    if decision.scores is None:
        return result | _released(plugin, decision, attempt)
    return result | _given(plugin, decision, attempt)


def _gated(plugin: DynamicResources, decision: Decision) -> JsonObject:
    status = plugin.pre_enqueue(decision.search.pod)
    if status.ok:
        return {}
    code = CODE_NAMES[status.code]
    gate = {"plugin": status.plugin, "code": code, "reasons": list(status.reasons)}
    return {"preenqueue": gate}


def _released(plugin: DynamicResources, decision: Decision, attempt: Attempt) -> JsonObject:
    """The claims that PostFilter deallocates or deletes."""
    if decision.diagnosis is None or decision.post_filter is None:
        return {}
    pod, diagnosis = decision.search.pod, decision.diagnosis
    idle = plugin.deallocatable(attempt, pod, diagnosis)
    if idle:
        return {"deallocate": sorted(claim["metadata"]["name"] for claim in idle)}
    return {"delete": [attempt.stale["metadata"]["name"]]} if attempt.stale is not None else {}


def _given(plugin: DynamicResources, decision: Decision, attempt: Attempt) -> JsonObject:
    """The allocation of each claim on each node that takes the pod."""
    search, pod = decision.search, decision.search.pod
    snapshot, found = search.snapshot, search.found
    allocations: JsonObject = {}
    extended: JsonObject = {}
    broken: JsonObject = {}
    for name, row in snapshot.row_of.items():
        if not found.fits[row]:
            continue
        decided = plugin.decide(attempt, pod, name) or []
        allocations[name] = {
            each.claim["metadata"]["name"]: _without_shares(each.allocation) for each in decided
        }
        if attempt.extended is not None and attempt.extended.requests:
            extended[name] = {
                "requests": list(attempt.extended.requests),
                "requestMappings": list(attempt.extended.mappings),
            }
        elif attempt.extended is not None:
            broken[name] = (
                f'running PreBind plugin "{plugin.name}": nil or empty request mappings, no update '
                f"of pod {pod.key} ExtendedResourceClaimStatus"
            )
    result: JsonObject = {"reservedFor": _reserved(attempt, decision)}
    if attempt.to_allocate or attempt.backed:
        result["allocations"] = allocations
    return result | {
        field: value
        for field, value in (("extendedResourceClaims", extended), ("bindErrors", broken))
        if value
    }


def _without_shares(allocation: JsonObject) -> JsonObject:
    """The allocation with "*" for what is made at random."""
    results = [
        {**each, "shareID": "*"} if "shareID" in each else each
        for each in allocation["devices"].get("results") or ()
    ]
    if not results:
        return allocation
    return {**allocation, "devices": {**allocation["devices"], "results": results}}


def _reserved(attempt: Attempt, decision: Decision) -> JsonObject:
    """Who each claim is reserved for once the pod is bound; too many are not shown."""
    pod = decision.search.pod
    reserved: JsonObject = {}
    for claim in attempt.claims:
        consumers = reserved_for(claim)
        if not attempt.is_reserved(claim, pod):
            consumers.append(attempt.consumer(claim, pod))
        if len(consumers) > _MOST_CONSUMERS:
            return {}
        reserved[claim["metadata"]["name"]] = consumers
    if attempt.backed:
        reserved[CLAIM_NAME] = [consumer_of(pod)]
    return reserved
