"""The device fields of a decision, in the schema of recorded decisions and beyond.

Called by `decide`; the field `devices` says which devices were considered where no node was found.
Invariant: the allocations shown for a node are those that Reserve would keep for it.
"""

from stellwerk.explain.steps import finished
from stellwerk.framework.types import CODE_NAMES
from stellwerk.models.answers.answer import codec
from stellwerk.models.answers.devices import DevicesOfPod
from stellwerk.models.json_values import JsonObject
from stellwerk.plugins.dynamic_resources.claims import consumer_of, reserved_for
from stellwerk.plugins.dynamic_resources.extended_resources import CLAIM_NAME
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.dynamic_resources.state_data import StateData
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.world.decide import Decision
from stellwerk.world.profiles import ServedProfile

_MOST_CONSUMERS = 256


def devices_of(decision: Decision) -> JsonObject:
    """The fields that only cases with claims have; none where devices do not matter."""
    search = decision.search
    state_data = search.found.state.get(DynamicResources.name, StateData)
    plugin = plugin_of(search.profile)
    if plugin is None:
        return {}
    result = _gated(plugin, decision)
    if decision.scores is None:
        nodes = NodeView(search.snapshot)
        report = finished(plugin.explain(search.found.state, search.pod, nodes))
        if report is not None:
            result["devices"] = codec(DevicesOfPod).as_json(report)
    if state_data is None or not state_data.anything:
        return result
    if decision.scores is None:
        return result | _released(plugin, decision, state_data)
    return result | _given(plugin, decision, state_data)


def plugin_of(profile: ServedProfile) -> DynamicResources | None:
    """The profile's plugin for devices, if it has it."""
    plugins = profile.framework.plugins.values()
    return next((each for at in plugins for each in at if isinstance(each, DynamicResources)), None)


def _gated(plugin: DynamicResources, decision: Decision) -> JsonObject:
    status = plugin.pre_enqueue(decision.search.pod)
    if status.ok:
        return {}
    code = CODE_NAMES[status.code]
    gate = {"plugin": status.plugin, "code": code, "reasons": list(status.reasons)}
    return {"preenqueue": gate}


def _released(plugin: DynamicResources, decision: Decision, state_data: StateData) -> JsonObject:
    """The claims that PostFilter deallocates or deletes."""
    if decision.diagnosis is None or decision.post_filter is None:
        return {}
    pod, diagnosis = decision.search.pod, decision.diagnosis
    idle = plugin.deallocatable(state_data, pod, diagnosis)
    if idle:
        return {"deallocate": sorted(claim["metadata"]["name"] for claim in idle)}
    return (
        {"delete": [state_data.stale["metadata"]["name"]]} if state_data.stale is not None else {}
    )


def _given(plugin: DynamicResources, decision: Decision, state_data: StateData) -> JsonObject:
    """The allocation of each claim on each node that takes the pod."""
    search, pod = decision.search, decision.search.pod
    snapshot, found = search.snapshot, search.found
    allocations: JsonObject = {}
    extended: JsonObject = {}
    broken: JsonObject = {}
    for name, row in snapshot.row_of.items():
        if not found.fits[row]:
            continue
        decided = plugin.decide(state_data, pod, name) or []
        allocations[name] = {
            each.claim["metadata"]["name"]: _without_shares(each.allocation) for each in decided
        }
        if state_data.extended is not None and state_data.extended.requests:
            extended[name] = {
                "requests": list(state_data.extended.requests),
                "requestMappings": list(state_data.extended.mappings),
            }
        elif state_data.extended is not None:
            broken[name] = (
                f'running PreBind plugin "{plugin.name}": nil or empty request mappings, no update '
                f"of pod {pod.key} ExtendedResourceClaimStatus"
            )
    result: JsonObject = {"reservedFor": _reserved(state_data, decision)}
    if state_data.to_allocate or state_data.backed:
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


def _reserved(state_data: StateData, decision: Decision) -> JsonObject:
    """The consumers of each claim once the pod is bound; too many are not shown."""
    pod = decision.search.pod
    reserved: JsonObject = {}
    for claim in state_data.claims:
        consumers = reserved_for(claim)
        if not state_data.is_reserved(claim, pod):
            consumers.append(state_data.consumer(claim, pod))
        if len(consumers) > _MOST_CONSUMERS:
            return {}
        reserved[claim["metadata"]["name"]] = consumers
    if state_data.backed:
        reserved[CLAIM_NAME] = [consumer_of(pod)]
    return reserved
