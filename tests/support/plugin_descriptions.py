"""The built-in plugins as a profile sees them, written down from kube-scheduler v1.36's table.

Tests of profiles use it in place of the registry, and a test of the registry can be held to it.
"""

from stellwerk.profiles.spec import plugin_args
from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginDescription

_POINTS = {
    "SchedulingGates": "preEnqueue",
    "PrioritySort": "queueSort",
    "NodeUnschedulable": "filter",
    "NodeName": "filter",
    "TaintToleration": "filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodePorts": "preFilter filter",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "VolumeRestrictions": "preFilter filter",
    "NodeVolumeLimits": "preFilter filter",
    "VolumeBinding": "preFilter filter reserve preBind",
    "VolumeZone": "preFilter filter",
    "PodTopologySpread": "preFilter filter preScore score",
    "InterPodAffinity": "preFilter filter preScore score",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind",
    "DefaultPreemption": "preEnqueue postFilter",
    "NodeResourcesBalancedAllocation": "preScore score",
    "ImageLocality": "score",
    "DefaultBinder": "bind",
    "NodeDeclaredFeatures": "preFilter filter",
    "CrossNodePreemption": "postFilter",
    "NodePreferAvoidPods": "score",
    "SelectorSpread": "preScore score",
    "LegacyBalancedAllocation": "score",
    "LegacyLeastAllocated": "score",
    "LegacyRequestedToCapacityRatio": "score",
}


def describe(name: str, points: str) -> PluginDescription:
    """Return the description of a plugin that implements these points, args model by its name."""
    return PluginDescription(
        name,
        frozenset(ExtensionPoint(point) for point in points.split()),
        getattr(plugin_args, f"{name}Args", None),
    )


BUILT_IN = {name: describe(name, points) for name, points in _POINTS.items()}

KNOWN_PLUGINS = {**BUILT_IN, "DefaultPodTopologySpread": BUILT_IN["SelectorSpread"]}
"""With the alias that SelectorSpread has."""
