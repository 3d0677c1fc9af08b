"""The legacy Policy: predicates and priorities as the plugins that took their place.

Called by `convert.conversion`. Invariant: the profile filters with the plugins of the policy's
predicates and scores with those of its priorities, no others; plugins for things that predicates
never spoke of (gates, the queue, preemption, binding, devices) stay as they are by default.
"""

from collections.abc import Mapping
from typing import Any, Final

from stellwerk_cli.convert.draft import (
    NODE_PREFER_AVOID_PODS,
    SELECTOR_SPREAD,
    ProfileDraft,
    RequestedStrategy,
    as_list,
    as_object,
    as_weight,
)
from stellwerk_kube.json_values import JsonObject

_PREDICATES: Final[Mapping[str, tuple[str, ...]]] = {
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "PodFitsResources": ("NodeResourcesFit",),
    "HostName": ("NodeName",),
    "MatchNodeSelector": ("NodeAffinity",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxEBSVolumeCount": ("NodeVolumeLimits",),
    "MaxGCEPDVolumeCount": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("NodeVolumeLimits",),
    "MaxCinderVolumeCount": ("NodeVolumeLimits",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "PodToleratesNodeNoExecuteTaints": ("TaintToleration",),
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    # Conditions of a node have been taints since 1.12.
    "CheckNodeCondition": ("TaintToleration",),
    "CheckNodeMemoryPressure": ("TaintToleration",),
    "CheckNodeDiskPressure": ("TaintToleration",),
    "CheckNodePIDPressure": ("TaintToleration",),
}

_MANDATORY: Final = frozenset({"TaintToleration", "NodeUnschedulable"})
"""The plugins by which kube-scheduler filtered whatever the policy said."""

_PRIORITIES: Final[Mapping[str, str]] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "NodeAffinityPriority": "NodeAffinity",
    "NodePreferAvoidPodsPriority": NODE_PREFER_AVOID_PODS,
    "SelectorSpreadPriority": SELECTOR_SPREAD,
    "ServiceSpreadingPriority": SELECTOR_SPREAD,
    "TaintTolerationPriority": "TaintToleration",
}

_STRATEGIES: Final[Mapping[str, str]] = {
    "LeastRequestedPriority": "NodeResourcesLeastAllocated",
    "MostRequestedPriority": "NodeResourcesMostAllocated",
    "RequestedToCapacityRatioPriority": "RequestedToCapacityRatio",
}

_FILTERS: Final[Mapping[str, bool]] = {
    "NodeUnschedulable": False,
    "NodeName": False,
    "TaintToleration": False,
    "NodeAffinity": True,
    "NodePorts": True,
    "NodeResourcesFit": True,
    "VolumeRestrictions": True,
    "NodeVolumeLimits": True,
    "VolumeBinding": True,
    "VolumeZone": True,
    "PodTopologySpread": True,
    "InterPodAffinity": True,
}
"""The default filters that a policy decides about; whether they have a PreFilter."""

_SCORES: Final[Mapping[str, bool]] = {
    "TaintToleration": True,
    "NodeAffinity": True,
    "NodeResourcesFit": True,
    "PodTopologySpread": True,
    "InterPodAffinity": True,
    "NodeResourcesBalancedAllocation": True,
    "ImageLocality": False,
}
"""The default scores that a policy decides about; whether they have a PreScore."""


_FIELDS: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "metadata",
        "predicates",
        "priorities",
        "extenders",
        "hardPodAffinitySymmetricWeight",
        "alwaysCheckAllPredicates",
    }
)


def apply_policy(policy: Mapping[str, Any], draft: ProfileDraft) -> None:
    """Write what a Policy says into a draft.

    Raises:
        ProfileError: the policy is malformed, or gives a negative weight.
    """
    for name in policy:
        if name not in _FIELDS:
            draft.warn(name, "unknown field, left out")
    filters, scores = set(_FILTERS), set(_SCORES)
    if policy.get("predicates") is not None:
        filters = {*_MANDATORY, *_predicates(policy, draft)}
    if policy.get("priorities") is not None:
        scores = _priorities(policy, draft)
    _leave_out(filters, scores, draft)
    if policy.get("hardPodAffinitySymmetricWeight") is not None:
        weight = policy["hardPodAffinitySymmetricWeight"]
        draft.add_args("InterPodAffinity", {"hardPodAffinityWeight": weight})
    if policy.get("alwaysCheckAllPredicates"):
        draft.settings["checkAllFilters"] = True
    draft.add_extenders(policy.get("extenders"))


def _predicates(policy: Mapping[str, Any], draft: ProfileDraft) -> set[str]:
    """Return the plugins that filter as the policy's predicates did."""
    filters: set[str] = set()
    for index, entry in enumerate(as_list(policy["predicates"], "predicates")):
        source = f"predicates[{index}]"
        predicate = as_object(entry, source)
        name = str(predicate.get("name", ""))
        argument = as_object(predicate.get("argument"), f"{source}.argument")
        if argument.get("labelsPresence") is not None:
            presence = as_object(argument["labelsPresence"], f"{source}.argument.labelsPresence")
            draft.require_labels(_label_requirements(presence))
            filters.add("NodeAffinity")
        elif name in _PREDICATES:
            filters.update(_PREDICATES[name])
        else:
            draft.warn(source, f'predicate "{name}" has no counterpart')
    return filters


def _label_requirements(presence: Mapping[str, Any]) -> list[JsonObject]:
    """Return node affinity for CheckNodeLabelPresence: labels that must, or must not, be there."""
    operator = "Exists" if presence.get("presence") else "DoesNotExist"
    return [{"key": label, "operator": operator} for label in presence.get("labels") or []]


def _priorities(policy: Mapping[str, Any], draft: ProfileDraft) -> set[str]:
    """Return the plugins that score as the policy's priorities did, weights set."""
    scores: set[str] = set()
    strategies: list[RequestedStrategy] = []
    for index, entry in enumerate(as_list(policy["priorities"], "priorities")):
        source = f"priorities[{index}]"
        priority = as_object(entry, source)
        name = str(priority.get("name", ""))
        weight = as_weight(priority.get("weight"), f"{source}.weight")
        strategy = _strategy(priority, weight, source)
        if strategy is not None:
            strategies.append(strategy)
            scores.add("NodeResourcesFit")
        elif name in _PRIORITIES:
            plugin = _PRIORITIES[name]
            scores.add(plugin)
            if plugin in _SCORES:
                draft.weights[plugin] = draft.weights.get(plugin, 0) + weight
            else:
                draft.optional[plugin] = draft.optional.get(plugin, 0) + weight
        elif name != "EqualPriority":
            draft.warn(source, f'priority "{name}" has no counterpart')
    draft.score_resources(strategies)
    return scores


def _strategy(priority: Mapping[str, Any], weight: int, source: str) -> RequestedStrategy | None:
    """Return the way to score resources that a priority stands for, if it does."""
    argument = as_object(priority.get("argument"), f"{source}.argument")
    ratio = argument.get("requestedToCapacityRatioArguments")
    if ratio is not None:
        place = f"{source}.argument.requestedToCapacityRatioArguments"
        return RequestedStrategy("RequestedToCapacityRatio", weight, place, as_object(ratio, place))
    plugin = _STRATEGIES.get(str(priority.get("name", "")))
    return None if plugin is None else RequestedStrategy(plugin, weight, source)


def _leave_out(filters: set[str], scores: set[str], draft: ProfileDraft) -> None:
    """Disable the default plugins, or their halves, that the policy does not name."""
    for plugin in dict.fromkeys((*_FILTERS, *_SCORES)):
        filters_here, scores_here = plugin in filters, plugin in scores
        if not filters_here and not scores_here:
            draft.disable("multiPoint", plugin)
            continue
        if plugin in _FILTERS and not filters_here:
            _disable_with_companion(plugin, "filter", "preFilter", _FILTERS, draft)
        if plugin in _SCORES and not scores_here:
            _disable_with_companion(plugin, "score", "preScore", _SCORES, draft)


def _disable_with_companion(
    plugin: str, point: str, companion: str, table: Mapping[str, bool], draft: ProfileDraft
) -> None:
    if table[plugin]:
        draft.disable(companion, plugin)
    draft.disable(point, plugin)
