"""Profiles that each break one rule, with the field that has to be blamed.

Loading must refuse every one; those that the schema sees must be refused by an API server too.
"""

from dataclasses import dataclass
from typing import Any

from stellwerk_kube.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class BadProfile:
    """A spec that breaks one rule."""

    rule: str
    spec: JsonObject
    field: str
    message: str
    """A part of what loading says."""

    seen_by_schema: bool = False
    """Whether the CustomResourceDefinition refuses it already."""


def _spec(**fields: Any) -> JsonObject:
    return {"schedulerName": "bad", **fields}


def _plugins(point: str, **lists: Any) -> JsonObject:
    return _spec(plugins={point: lists})


def _args(plugin: str, args: Any) -> JsonObject:
    return _spec(pluginConfig=[{"name": plugin, "args": args}])


def _fit(**strategy: Any) -> JsonObject:
    return _args("NodeResourcesFit", {"scoringStrategy": strategy})


def _shape(*points: JsonObject) -> JsonObject:
    return _fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": list(points)})


def _affinity(**requirement: Any) -> JsonObject:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    added = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return _args("NodeAffinity", {"addedAffinity": added})


def _node_field(**requirement: Any) -> JsonObject:
    selector = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    added = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
    return _args("NodeAffinity", {"addedAffinity": added})


def _spread(*constraints: JsonObject, kind: str = "List") -> JsonObject:
    return _args(
        "PodTopologySpread", {"defaultingType": kind, "defaultConstraints": list(constraints)}
    )


def _constraint(**fields: Any) -> JsonObject:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"} | fields


def _extender(**fields: Any) -> JsonObject:
    return _spec(extenders=[{"urlPrefix": "http://127.0.0.1:1", **fields}])


def _tls(**fields: Any) -> JsonObject:
    return _extender(tlsConfig=fields)


def _selector(**fields: Any) -> JsonObject:
    return _spec(selector=fields)


def _of_namespaces(**requirement: Any) -> JsonObject:
    return _selector(namespaceSelector={"matchExpressions": [requirement]})


_ARGS = "spec.pluginConfig[0].args"
_NAMESPACES = "spec.selector.namespaceSelector"
_STRATEGY = f"{_ARGS}.scoringStrategy"
_SHAPE = f"{_STRATEGY}.requestedToCapacityRatio.shape"
_EXPRESSION = (
    f"{_ARGS}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    ".nodeSelectorTerms[0].matchExpressions[0]"
)
_NODE_FIELD = _EXPRESSION.replace("matchExpressions", "matchFields")
_CONSTRAINT = f"{_ARGS}.defaultConstraints"
_TLS = "spec.extenders[0].tlsConfig"

BAD_PROFILES = (
    # The spec itself.
    BadProfile("no schedulerName", {}, "spec.schedulerName", "required", seen_by_schema=True),
    BadProfile(
        "empty schedulerName",
        {"schedulerName": ""},
        "spec.schedulerName",
        "must not be empty",
        seen_by_schema=True,
    ),
    BadProfile(
        "schedulerName with a blank",
        {"schedulerName": "a b"},
        "spec.schedulerName",
        "match",
        seen_by_schema=True,
    ),
    BadProfile(
        "schedulerName too long",
        {"schedulerName": "a" * 64},
        "spec.schedulerName",
        "at most 63 characters",
        seen_by_schema=True,
    ),
    BadProfile(
        "schedulerName that is a number",
        {"schedulerName": 7},
        "spec.schedulerName",
        "must be a string, not 7",
        seen_by_schema=True,
    ),
    # The selector.
    BadProfile(
        "empty selector",
        _selector(),
        "spec.selector",
        "needs schedulerNames, namespaceSelector or podSelector",
        seen_by_schema=True,
    ),
    BadProfile(
        "selector of a shadow",
        {"shadowOf": "active", "selector": {"schedulerNames": ["a"]}},
        "spec.selector",
        "a shadow decides for the pods of the profile it shadows",
        seen_by_schema=True,
    ),
    BadProfile(
        "mode of a shadow",
        {"shadowOf": "active", "mode": "Observe"},
        "spec.mode",
        "a shadow decides for the pods of the profile it shadows",
        seen_by_schema=True,
    ),
    BadProfile(
        "shadow that may schedule beside kube-scheduler",
        {"shadowOf": "active", "allowBeside": True},
        "spec.allowBeside",
        "a shadow schedules no pod",
        seen_by_schema=True,
    ),
    BadProfile(
        "mode that does not exist",
        _spec(mode="observe"),
        "spec.mode",
        "must be 'Schedule' or 'Observe', not 'observe'",
        seen_by_schema=True,
    ),
    BadProfile(
        "shadow of no name",
        {"shadowOf": ""},
        "spec.shadowOf",
        "must not be empty",
        seen_by_schema=True,
    ),
    BadProfile(
        "selector in place of schedulerName",
        {"selector": {"schedulerNames": ["a"]}},
        "spec.schedulerName",
        "required",
        seen_by_schema=True,
    ),
    BadProfile(
        "selector without schedulerNames in their list",
        _selector(schedulerNames=[]),
        "spec.selector.schedulerNames",
        "must have at least 1 items",
        seen_by_schema=True,
    ),
    BadProfile(
        "selector with a schedulerName twice",
        _selector(schedulerNames=["a", "b", "a"]),
        "spec.selector.schedulerNames[2]",
        'duplicate "a"',
        seen_by_schema=True,
    ),
    BadProfile(
        "selector with too many schedulerNames",
        _selector(schedulerNames=[f"s{number}" for number in range(17)]),
        "spec.selector.schedulerNames",
        "at most 16 items",
        seen_by_schema=True,
    ),
    BadProfile(
        "misspelt field of a selector",
        _selector(namespaceLabels={"team": "batch"}),
        "spec.selector.namespaceLabels",
        "unknown field",
    ),
    BadProfile(
        "namespaceSelector with an invalid operator",
        _of_namespaces(key="team", operator="Equals", values=["batch"]),
        f"{_NAMESPACES}.matchExpressions[0].operator",
        "'NotIn'",
        seen_by_schema=True,
    ),
    BadProfile(
        "namespaceSelector with an operator of nodes",
        _of_namespaces(key="size", operator="Gt", values=["3"]),
        f"{_NAMESPACES}.matchExpressions[0].operator",
        "'NotIn'",
        seen_by_schema=True,
    ),
    BadProfile(
        "In without values",
        _of_namespaces(key="team", operator="In"),
        f"{_NAMESPACES}.matchExpressions[0].values",
        "In needs at least one",
        seen_by_schema=True,
    ),
    BadProfile(
        "Exists with values",
        _of_namespaces(key="team", operator="Exists", values=["batch"]),
        f"{_NAMESPACES}.matchExpressions[0].values",
        "Exists has none",
        seen_by_schema=True,
    ),
    BadProfile(
        "label key with a blank",
        _of_namespaces(key="the team", operator="Exists"),
        f"{_NAMESPACES}.matchExpressions[0].key",
        "qualified name",
        seen_by_schema=True,
    ),
    BadProfile(
        "matchLabels with a key that none can have",
        _selector(podSelector={"matchLabels": {"a/b/c": "d"}}),
        "spec.selector.podSelector.matchLabels",
        '"a/b/c" cannot be the key of a label',
    ),
    BadProfile(
        "label value with a slash",
        _selector(podSelector={"matchLabels": {"team": "a/b"}}),
        "spec.selector.podSelector.matchLabels.team",
        '"a/b" cannot be the value of a label',
        seen_by_schema=True,
    ),
    BadProfile(
        "selector with too many values",
        _of_namespaces(key="team", operator="In", values=[f"v{each}" for each in range(257)]),
        f"{_NAMESPACES}.matchExpressions[0].values",
        "at most 256 items",
        seen_by_schema=True,
    ),
    BadProfile(
        "misspelt field",
        _spec(pluginsConfig=[]),
        "spec.pluginsConfig",
        'unknown field; did you mean "pluginConfig"?',
    ),
    BadProfile(
        "negative percentageOfNodesToScore",
        _spec(percentageOfNodesToScore=-1),
        "spec.percentageOfNodesToScore",
        "must be at least 0, not -1",
        seen_by_schema=True,
    ),
    BadProfile(
        "percentageOfNodesToScore as text",
        _spec(percentageOfNodesToScore="50"),
        "spec.percentageOfNodesToScore",
        "must be an integer",
        seen_by_schema=True,
    ),
    BadProfile(
        "percentageOfNodesToScore with a fraction",
        _spec(percentageOfNodesToScore=0.5),
        "spec.percentageOfNodesToScore",
        "must be an integer",
        seen_by_schema=True,
    ),
    BadProfile(
        "initial backoff of 0",
        _spec(podInitialBackoffSeconds=0),
        "spec.podInitialBackoffSeconds",
        "at least 1",
        seen_by_schema=True,
    ),
    BadProfile(
        "maximal backoff of 0",
        _spec(podMaxBackoffSeconds=0),
        "spec.podMaxBackoffSeconds",
        "at least 1",
        seen_by_schema=True,
    ),
    BadProfile(
        "maximal backoff below the initial one",
        _spec(podInitialBackoffSeconds=30, podMaxBackoffSeconds=20),
        "spec.podMaxBackoffSeconds",
        "at least podInitialBackoffSeconds",
        seen_by_schema=True,
    ),
    BadProfile(
        "initial backoff above the default maximum",
        _spec(podInitialBackoffSeconds=11),
        "spec.podMaxBackoffSeconds",
        "at least podInitialBackoffSeconds",
        seen_by_schema=True,
    ),
    BadProfile(
        "checkAllFilters as text",
        _spec(checkAllFilters="yes"),
        "spec.checkAllFilters",
        "must be true or false",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative seed",
        _spec(tieBreakSeed=-1),
        "spec.tieBreakSeed",
        "must be at least 0",
        seen_by_schema=True,
    ),
    # The short form of weights.
    BadProfile(
        "short weight of 0",
        _spec(weights={"ImageLocality": 0}),
        "spec.weights.ImageLocality",
        "at least 1",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative short weight",
        _spec(weights={"ImageLocality": -5}),
        "spec.weights.ImageLocality",
        "at least 1",
        seen_by_schema=True,
    ),
    BadProfile(
        "short weight beyond 32 bits",
        _spec(weights={"ImageLocality": 2**31}),
        "spec.weights.ImageLocality",
        "at most 2147483647",
        seen_by_schema=True,
    ),
    BadProfile(
        "weights as a list",
        _spec(weights=[{"name": "ImageLocality", "weight": 5}]),
        "spec.weights",
        "must be an object",
        seen_by_schema=True,
    ),
    BadProfile(
        "short weight of an unknown plugin",
        _spec(weights={"ImageLocalty": 5}),
        "spec.weights.ImageLocalty",
        'unknown plugin "ImageLocalty"; did you mean "ImageLocality"?',
    ),
    BadProfile(
        "short weight of a plugin that only filters",
        _spec(weights={"NodePorts": 5}),
        "spec.weights.NodePorts",
        "does not score",
    ),
    BadProfile(
        "short weight of a plugin whose score is disabled",
        _spec(
            weights={"ImageLocality": 5},
            plugins={"multiPoint": {"disabled": [{"name": "ImageLocality"}]}},
        ),
        "spec.weights.ImageLocality",
        "does not score",
    ),
    # Plugin lists.
    BadProfile(
        "unknown extension point",
        _plugins("scoring", enabled=[]),
        "spec.plugins.scoring",
        'unknown field; did you mean "score"?',
    ),
    BadProfile(
        "enabled as an object",
        _plugins("score", enabled={"name": "ImageLocality"}),
        "spec.plugins.score.enabled",
        "must be a list",
        seen_by_schema=True,
    ),
    BadProfile(
        "enabled plugin without a name",
        _plugins("score", enabled=[{"weight": 1}]),
        "spec.plugins.score.enabled[0].name",
        "required",
        seen_by_schema=True,
    ),
    BadProfile(
        "enabled star",
        _plugins("score", enabled=[{"name": "*"}]),
        "spec.plugins.score.enabled[0].name",
        "must match",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative weight",
        _plugins("score", enabled=[{"name": "ImageLocality", "weight": -1}]),
        "spec.plugins.score.enabled[0].weight",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "weight beyond 32 bits",
        _plugins("score", enabled=[{"name": "ImageLocality", "weight": 2**31}]),
        "spec.plugins.score.enabled[0].weight",
        "at most",
        seen_by_schema=True,
    ),
    BadProfile(
        "misspelt field of a plugin",
        _plugins("score", enabled=[{"name": "ImageLocality", "wieght": 2}]),
        "spec.plugins.score.enabled[0].wieght",
        'did you mean "weight"?',
    ),
    BadProfile(
        "plugin enabled twice",
        _plugins("score", enabled=[{"name": "ImageLocality"}, {"name": "ImageLocality"}]),
        "spec.plugins.score.enabled[1]",
        "duplicate",
        seen_by_schema=True,
    ),
    BadProfile(
        "plugin disabled twice",
        _plugins("score", disabled=[{"name": "ImageLocality"}, {"name": "ImageLocality"}]),
        "spec.plugins.score.disabled[1]",
        "duplicate",
        seen_by_schema=True,
    ),
    BadProfile(
        "too many plugins",
        _plugins("score", disabled=[{"name": f"P{number}"} for number in range(65)]),
        "spec.plugins.score.disabled",
        "at most 64 items",
        seen_by_schema=True,
    ),
    BadProfile(
        "unknown plugin",
        _plugins("filter", enabled=[{"name": "NodeRessourcesFit"}]),
        "spec.plugins.filter.enabled[0].name",
        'unknown plugin "NodeRessourcesFit"; did you mean "NodeResourcesFit"?',
    ),
    BadProfile(
        "plugin removed from Kubernetes",
        _plugins("filter", enabled=[{"name": "GCEPDLimits"}]),
        "spec.plugins.filter.enabled[0].name",
        "was removed",
        seen_by_schema=True,
    ),
    BadProfile(
        "plugin at a point it does not implement",
        _plugins("permit", enabled=[{"name": "NodeName"}]),
        "spec.plugins.permit.enabled[0].name",
        "does not implement Permit",
    ),
    BadProfile(
        "no queue sort",
        _plugins("queueSort", disabled=[{"name": "*"}]),
        "spec.plugins.queueSort",
        "exactly one plugin, not 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "two queue sorts",
        _plugins("queueSort", enabled=[{"name": "Fifo"}]),
        "spec.plugins.queueSort",
        "exactly one plugin, not 2 (PrioritySort, Fifo)",
        seen_by_schema=True,
    ),
    BadProfile(
        "two queue sorts in the list",
        _plugins("queueSort", enabled=[{"name": "Fifo"}, {"name": "PrioritySort"}]),
        "spec.plugins.queueSort",
        "exactly one plugin",
        seen_by_schema=True,
    ),
    BadProfile(
        "no bind plugin",
        _plugins("multiPoint", disabled=[{"name": "DefaultBinder"}]),
        "spec.plugins.bind",
        "at least one plugin",
        seen_by_schema=True,
    ),
    # Arguments in general.
    BadProfile(
        "arguments without a plugin",
        _spec(pluginConfig=[{"args": {}}]),
        "spec.pluginConfig[0].name",
        "required",
        seen_by_schema=True,
    ),
    BadProfile(
        "arguments of an unknown plugin",
        _args("NodeResourceFit", {}),
        "spec.pluginConfig[0].name",
        'did you mean "NodeResourcesFit"?',
    ),
    BadProfile(
        "arguments twice",
        _spec(pluginConfig=[{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]),
        "spec.pluginConfig[1]",
        "duplicate",
        seen_by_schema=True,
    ),
    BadProfile(
        "arguments twice by an alias",
        _spec(pluginConfig=[{"name": "SelectorSpread"}, {"name": "DefaultPodTopologySpread"}]),
        "spec.pluginConfig[1].name",
        "duplicate",
    ),
    BadProfile(
        "arguments as a list",
        _args("NodeResourcesFit", []),
        "spec.pluginConfig[0].args",
        "must be an object",
        seen_by_schema=True,
    ),
    BadProfile(
        "arguments for a plugin without any",
        _args("NodeName", {"verbose": True}),
        _ARGS,
        "takes no arguments",
    ),
    BadProfile(
        "arguments of another kind",
        _args("NodeAffinity", {"kind": "InterPodAffinityArgs"}),
        f"{_ARGS}.kind",
        'must be "NodeAffinityArgs"',
    ),
    BadProfile(
        "arguments of another version",
        _args("NodeAffinity", {"apiVersion": "kubescheduler.config.k8s.io/v1beta2"}),
        f"{_ARGS}.apiVersion",
        'must be "kubescheduler.config.k8s.io/v1"',
    ),
    BadProfile(
        "misspelt argument",
        _args("NodeResourcesFit", {"scoringStrategie": {}}),
        f"{_ARGS}.scoringStrategie",
        'did you mean "scoringStrategy"?',
    ),
    # NodeResourcesFit.
    BadProfile(
        "strategy without a type",
        _fit(resources=[]),
        f"{_STRATEGY}.type",
        "required",
        seen_by_schema=True,
    ),
    BadProfile(
        "unknown strategy",
        _fit(type="MostRequested"),
        f"{_STRATEGY}.type",
        "'MostAllocated'",
        seen_by_schema=True,
    ),
    BadProfile(
        "resource without a name",
        _fit(type="LeastAllocated", resources=[{"weight": 1}]),
        f"{_STRATEGY}.resources[0].name",
        "required",
        seen_by_schema=True,
    ),
    BadProfile(
        "resource weight above 100",
        _fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": 101}]),
        f"{_STRATEGY}.resources[0].weight",
        "at most 100, not 101",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative resource weight",
        _fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": -1}]),
        f"{_STRATEGY}.resources[0].weight",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "ratio strategy without its parameters",
        _fit(type="RequestedToCapacityRatio"),
        f"{_STRATEGY}.requestedToCapacityRatio",
        "required for this type",
        seen_by_schema=True,
    ),
    BadProfile(
        "ratio parameters for another strategy",
        _fit(type="MostAllocated", requestedToCapacityRatio={"shape": [{"utilization": 0}]}),
        f"{_STRATEGY}.requestedToCapacityRatio",
        "not allowed for type MostAllocated",
        seen_by_schema=True,
    ),
    BadProfile("empty shape", _shape(), _SHAPE, "at least one point"),
    BadProfile(
        "falling shape",
        _shape({"utilization": 60, "score": 0}, {"utilization": 40, "score": 10}),
        f"{_SHAPE}[1].utilization",
        "higher than the point before",
    ),
    BadProfile(
        "shape with a point twice",
        _shape({"utilization": 40, "score": 0}, {"utilization": 40, "score": 10}),
        f"{_SHAPE}[1].utilization",
        "higher than the point before",
    ),
    BadProfile(
        "utilization above 100",
        _shape({"utilization": 101, "score": 0}),
        f"{_SHAPE}[0].utilization",
        "at most 100",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative utilization",
        _shape({"utilization": -1, "score": 0}),
        f"{_SHAPE}[0].utilization",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "shape score above 10",
        _shape({"utilization": 0, "score": 100}),
        f"{_SHAPE}[0].score",
        "at most 10, not 100",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative shape score",
        _shape({"utilization": 0, "score": -1}),
        f"{_SHAPE}[0].score",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "ignored resource that is no name",
        _args("NodeResourcesFit", {"ignoredResources": ["a/b/c"]}),
        f"{_ARGS}.ignoredResources[0]",
        "is not a qualified name",
    ),
    BadProfile(
        "ignored resource group with a slash",
        _args("NodeResourcesFit", {"ignoredResourceGroups": ["example.com", "example.com/gpu"]}),
        f"{_ARGS}.ignoredResourceGroups[1]",
        'must not contain "/"',
    ),
    # NodeResourcesBalancedAllocation.
    BadProfile(
        "balanced resource with a weight",
        _args("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu", "weight": 2}]}),
        f"{_ARGS}.resources[0].weight",
        "must be 1",
    ),
    BadProfile(
        "balanced resource twice",
        _args("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu"}, {"name": "cpu"}]}),
        f"{_ARGS}.resources[1].name",
        'duplicate resource "cpu"',
    ),
    # NodeAffinity.
    BadProfile(
        "added affinity that is a text",
        _args("NodeAffinity", {"addedAffinity": "disktype=ssd"}),
        f"{_ARGS}.addedAffinity",
        "must be an object",
    ),
    BadProfile(
        "node selector without terms",
        _args(
            "NodeAffinity",
            {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
        ),
        f"{_ARGS}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        "required",
    ),
    BadProfile(
        "unknown operator",
        _affinity(key="disk", operator="Equals", values=["ssd"]),
        f"{_EXPRESSION}.operator",
        "must be 'In'",
    ),
    BadProfile(
        "label key that is none",
        _affinity(key="-disk", operator="Exists"),
        f"{_EXPRESSION}.key",
        "is not a label key",
    ),
    BadProfile(
        "In without values",
        _affinity(key="disk", operator="In"),
        f"{_EXPRESSION}.values",
        "at least one value",
    ),
    BadProfile(
        "Exists with values",
        _affinity(key="disk", operator="Exists", values=["ssd"]),
        f"{_EXPRESSION}.values",
        "takes no values",
    ),
    BadProfile(
        "Gt without an integer",
        _affinity(key="disk", operator="Gt", values=["many"]),
        f"{_EXPRESSION}.values",
        "exactly one integer",
    ),
    BadProfile(
        "label value that is none",
        _affinity(key="disk", operator="In", values=["ssd", "a b"]),
        f"{_EXPRESSION}.values[1]",
        "is not a label value",
    ),
    BadProfile(
        "field of a node other than its name",
        _node_field(key="metadata.uid", operator="In", values=["a"]),
        f"{_NODE_FIELD}.key",
        "must be 'metadata.name'",
    ),
    BadProfile(
        "field requirement with two values",
        _node_field(key="metadata.name", operator="In", values=["a", "b"]),
        f"{_NODE_FIELD}.values",
        "must have one element",
    ),
    BadProfile(
        "field requirement with another operator",
        _node_field(key="metadata.name", operator="Exists"),
        f"{_NODE_FIELD}.operator",
        "must be 'In' or 'NotIn'",
    ),
    BadProfile(
        "preferred term with a weight above 100",
        _args(
            "NodeAffinity",
            {
                "addedAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 101, "preference": {}}
                    ]
                }
            },
        ),
        f"{_ARGS}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
        "at most 100",
    ),
    # PodTopologySpread.
    BadProfile(
        "constraints beside System",
        _spread(_constraint(), kind="System"),
        f"{_ARGS}.defaultingType",
        "must be List",
    ),
    BadProfile(
        "constraints without a defaultingType",
        _args("PodTopologySpread", {"defaultConstraints": [_constraint()]}),
        f"{_ARGS}.defaultingType",
        "must be List",
    ),
    BadProfile(
        "unknown defaultingType", _spread(kind="Auto"), f"{_ARGS}.defaultingType", "'System'"
    ),
    BadProfile(
        "constraint with a selector",
        _spread(_constraint(labelSelector={})),
        f"{_CONSTRAINT}[0].labelSelector",
        "not allowed",
    ),
    BadProfile(
        "maxSkew of 0", _spread(_constraint(maxSkew=0)), f"{_CONSTRAINT}[0].maxSkew", "at least 1"
    ),
    BadProfile(
        "constraint without a topology key",
        _spread(_constraint(topologyKey="")),
        f"{_CONSTRAINT}[0].topologyKey",
        "is not a qualified name",
    ),
    BadProfile(
        "topology key that is no label key",
        _spread(_constraint(topologyKey="a b")),
        f"{_CONSTRAINT}[0].topologyKey",
        "is not a qualified name",
    ),
    BadProfile(
        "unknown whenUnsatisfiable",
        _spread(_constraint(whenUnsatisfiable="Maybe")),
        f"{_CONSTRAINT}[0].whenUnsatisfiable",
        "'DoNotSchedule' or 'ScheduleAnyway'",
    ),
    BadProfile(
        "constraint twice",
        _spread(_constraint(), _constraint(maxSkew=5)),
        f"{_CONSTRAINT}[1]",
        "duplicate of {zone, ScheduleAnyway}",
    ),
    # The other plugins.
    BadProfile(
        "hardPodAffinityWeight above 100",
        _args("InterPodAffinity", {"hardPodAffinityWeight": 101}),
        f"{_ARGS}.hardPodAffinityWeight",
        "at most 100",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative hardPodAffinityWeight",
        _args("InterPodAffinity", {"hardPodAffinityWeight": -1}),
        f"{_ARGS}.hardPodAffinityWeight",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "negative bindTimeoutSeconds",
        _args("VolumeBinding", {"bindTimeoutSeconds": -1}),
        f"{_ARGS}.bindTimeoutSeconds",
        "at least 0",
    ),
    BadProfile(
        "volume capacity shape",
        _args("VolumeBinding", {"shape": [{"utilization": 0, "score": 0}]}),
        f"{_ARGS}.shape",
        "not supported",
    ),
    BadProfile(
        "timeout that is no duration",
        _args("DynamicResources", {"filterTimeout": "10"}),
        f"{_ARGS}.filterTimeout",
        "is not a duration",
    ),
    BadProfile(
        "negative filterTimeout",
        _args("DynamicResources", {"filterTimeout": "-1s"}),
        f"{_ARGS}.filterTimeout",
        "must not be negative",
    ),
    BadProfile(
        "bindingTimeout below a second",
        _args("DynamicResources", {"bindingTimeout": "999ms"}),
        f"{_ARGS}.bindingTimeout",
        "at least 1s",
    ),
    BadProfile(
        "candidate percentage above 100",
        _args("DefaultPreemption", {"minCandidateNodesPercentage": 101}),
        f"{_ARGS}.minCandidateNodesPercentage",
        "at most 100",
    ),
    BadProfile(
        "negative candidate number",
        _args("DefaultPreemption", {"minCandidateNodesAbsolute": -1}),
        f"{_ARGS}.minCandidateNodesAbsolute",
        "at least 0",
    ),
    BadProfile(
        "a constraint that gives way before it counts",
        _args("PodTopologySpread", {"giveWayAfterSeconds": -5}),
        f"{_ARGS}.giveWayAfterSeconds",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "a negative time to run",
        _args("DefaultPreemption", {"minRunSeconds": -1}),
        f"{_ARGS}.minRunSeconds",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "a misspelt argument of preemption",
        _args("DefaultPreemption", {"spareDaemonsetPods": True}),
        f"{_ARGS}.spareDaemonsetPods",
        'did you mean "spareDaemonSetPods"',
    ),
    BadProfile(
        "no candidates at all",
        _args(
            "DefaultPreemption", {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}
        ),
        f"{_ARGS}.minCandidateNodesPercentage",
        "must not be 0",
    ),
    BadProfile(
        "cross-node search without time",
        _args("CrossNodePreemption", {"timeoutMilliseconds": 0}),
        f"{_ARGS}.timeoutMilliseconds",
        "at least 1",
    ),
    BadProfile(
        "cross-node search without victims",
        _args("CrossNodePreemption", {"maxVictims": 0}),
        f"{_ARGS}.maxVictims",
        "at least 1",
    ),
    BadProfile(
        "legacy ratio without a shape",
        _args("LegacyRequestedToCapacityRatio", {}),
        f"{_ARGS}.shape",
        "required",
    ),
    # Extenders.
    BadProfile(
        "extender without a URL",
        _spec(extenders=[{"filterVerb": "filter"}]),
        "spec.extenders[0].urlPrefix",
        "required",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender with another scheme",
        _extender(urlPrefix="ftp://127.0.0.1"),
        "spec.extenders[0].urlPrefix",
        "must match",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender whose URL has a password with a slash",
        _extender(urlPrefix="http://me:se/cret@host"),
        "spec.extenders[0].urlPrefix",
        "its host or port is invalid",
    ),
    BadProfile(
        "Secret of another path",
        _tls(secretRef={"namespace": "..", "name": "x"}),
        f"{_TLS}.secretRef.namespace",
        "must match",
        seen_by_schema=True,
    ),
    BadProfile(
        "Secret with a slash in its name",
        _tls(secretRef={"namespace": "n", "name": "x/../../pods/p"}),
        f"{_TLS}.secretRef.name",
        "must match",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender that scores without a weight",
        _extender(prioritizeVerb="prioritize"),
        "spec.extenders[0].weight",
        "at least 1 with prioritizeVerb",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender with a negative weight",
        _extender(weight=-1),
        "spec.extenders[0].weight",
        "at least 0",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender timeout without a unit",
        _extender(httpTimeout="30"),
        "spec.extenders[0].httpTimeout",
        "is not a duration",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender timeout below 0",
        _extender(httpTimeout="-5s"),
        "spec.extenders[0].httpTimeout",
        "must not be negative",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender that manages cpu",
        _extender(managedResources=[{"name": "cpu"}]),
        "spec.extenders[0].managedResources[0].name",
        "is not an extended resource",
        seen_by_schema=True,
    ),
    BadProfile(
        "extender that manages a resource of Kubernetes",
        _extender(managedResources=[{"name": "kubernetes.io/something"}]),
        "spec.extenders[0].managedResources[0].name",
        "is not an extended resource",
        seen_by_schema=True,
    ),
    BadProfile(
        "two extenders with one resource",
        _spec(
            extenders=[
                {"urlPrefix": "http://a", "managedResources": [{"name": "example.com/gpu"}]},
                {"urlPrefix": "http://b", "managedResources": [{"name": "example.com/gpu"}]},
            ]
        ),
        "spec.extenders[1].managedResources[0].name",
        "managed twice",
    ),
    BadProfile(
        "two extenders that bind",
        _spec(
            extenders=[
                {"urlPrefix": "http://a", "bindVerb": "bind"},
                {"urlPrefix": "http://b", "bindVerb": "bind"},
            ]
        ),
        "spec.extenders",
        "only one extender can bind",
        seen_by_schema=True,
    ),
    BadProfile(
        "too many extenders",
        _spec(extenders=[{"urlPrefix": f"http://e{number}"} for number in range(17)]),
        "spec.extenders",
        "at most 16 items",
        seen_by_schema=True,
    ),
    BadProfile(
        "misspelt extender field",
        _extender(nodeCacheCapabel=True),
        "spec.extenders[0].nodeCacheCapabel",
        'did you mean "nodeCacheCapable"?',
    ),
    BadProfile(
        "client certificate without a key",
        _tls(certFile="/tls.crt"),
        f"{_TLS}",
        "required with a client certificate",
        seen_by_schema=True,
    ),
    BadProfile(
        "client key without a certificate",
        _tls(keyFile="/tls.key"),
        f"{_TLS}",
        "required with a client key",
        seen_by_schema=True,
    ),
    BadProfile(
        "root certificates that nobody checks",
        _tls(insecure=True, caFile="/ca.crt"),
        f"{_TLS}.insecure",
        "not allowed together with root certificates",
        seen_by_schema=True,
    ),
    BadProfile(
        "certificates from two sources",
        _tls(caFile="/ca.crt", secretRef={"namespace": "stellwerk", "name": "extender"}),
        f"{_TLS}.secretRef",
        "not allowed together with certificate files or data",
        seen_by_schema=True,
    ),
    BadProfile(
        "Secret without a namespace",
        _tls(secretRef={"name": "extender"}),
        f"{_TLS}.secretRef.namespace",
        "required",
        seen_by_schema=True,
    ),
)
