"""The CEL rules of the CustomResourceDefinition: what an API server refuses as loading would.

`crd` writes them into the schema. Invariant: no rule refuses a profile that could be loaded,
whatever plugins are installed; what it reads is bounded in the schema, so that its estimated cost
stays within the API server's limits.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, get_args

from stellwerk.profiles.spec.defaults import REMOVED_PLUGINS
from stellwerk.profiles.spec.plugin_args import ScoringStrategy


class Rule(NamedTuple):
    """A CEL rule of the schema."""

    rule: str
    message: str
    field: str = ""
    """The field it blames, below the one that carries it."""


_GONE: Final = Rule(
    f"!(self in {sorted(REMOVED_PLUGINS)})", "was removed; NodeVolumeLimits replaces it"
)


def _named(point: str, *names: str) -> str:
    """Whether a list of disabled plugins has one of the names."""
    disabled = f"has(self.{point}) && has(self.{point}.disabled)"
    return f"({disabled} && self.{point}.disabled.exists(p, p.name in {list(names)}))"


def _none_enabled(point: str) -> str:
    return f"(!has(self.{point}) || !has(self.{point}.enabled) || self.{point}.enabled.size() == 0)"


def _keeps_one(point: str, default: str, message: str) -> Rule:
    """Taking the default plugin out of a point asks for another: there, or at multiPoint."""
    out = f"({_named('multiPoint', default, '*')} || {_named(point, default)})"
    lost = f"({out} && {_none_enabled('multiPoint')} || {_named(point, '*')})"
    return Rule(f"!({lost} && {_none_enabled(point)})", message, f".{point}")


_STRATEGIES: Final = get_args(ScoringStrategy.model_fields["type"].annotation)
_STRATEGY: Final = "self.args.scoringStrategy"
_OF_FIT: Final = f"self.name == 'NodeResourcesFit' && has(self.args) && has({_STRATEGY})"
_WEIGHT: Final = "self.args.hardPodAffinityWeight"

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "Plugins": (
        _keeps_one("queueSort", "PrioritySort", "needs exactly one plugin, and has none"),
        _keeps_one("bind", "DefaultBinder", "needs at least one plugin"),
        Rule(
            "!has(self.queueSort) || !has(self.queueSort.enabled) "
            "|| self.queueSort.enabled.all(p, p.name == 'PrioritySort') "
            f"|| {_named('queueSort', 'PrioritySort', '*')} "
            f"|| {_named('multiPoint', 'PrioritySort', '*')}",
            "needs exactly one plugin; disable PrioritySort to enable another",
            ".queueSort",
        ),
    ),
    "EnabledPlugin.name": (_GONE,),
    "PluginConfig.name": (_GONE,),
    "PluginConfig": (
        Rule(
            f"!({_OF_FIT}) || has({_STRATEGY}.type) && {_STRATEGY}.type in {list(_STRATEGIES)}",
            f"must be one of the scoring strategies: {', '.join(_STRATEGIES)}",
            ".args.scoringStrategy.type",
        ),
        Rule(
            f"!({_OF_FIT} && has({_STRATEGY}.type)) || ({_STRATEGY}.type == "
            f"'RequestedToCapacityRatio') == has({_STRATEGY}.requestedToCapacityRatio)",
            "belongs to the strategy RequestedToCapacityRatio, which needs it",
            ".args.scoringStrategy.requestedToCapacityRatio",
        ),
        Rule(
            f"self.name != 'InterPodAffinity' || !has(self.args) || !has({_WEIGHT}) "
            f"|| {_WEIGHT} >= 0 && {_WEIGHT} <= 100",
            "must be from 0 to 100",
            ".args.hardPodAffinityWeight",
        ),
    ),
    "SchedulerProfileSpec": (
        Rule(
            "self.podMaxBackoffSeconds >= self.podInitialBackoffSeconds",
            "must be at least podInitialBackoffSeconds",
            ".podMaxBackoffSeconds",
        ),
        Rule(
            "has(self.schedulerName) != has(self.shadowOf)",
            "needs schedulerName or shadowOf",
            ".schedulerName",
        ),
        Rule(
            "has(self.schedulerName) == has(oldSelf.schedulerName)",
            "schedulerName is immutable; create a new profile",
        ),
        Rule(
            "has(self.shadowOf) || !has(self.sampleOneIn) && !has(self.skipIfWaitedSeconds)",
            "is allowed only with shadowOf",
            ".sampleOneIn",
        ),
        Rule(
            "!has(self.shadowOf) || self.mode == 'Schedule'",
            "a shadow decides for the pods of the profile it shadows",
            ".mode",
        ),
        Rule(
            "!has(self.shadowOf) || !has(self.allowBeside) || !self.allowBeside",
            "a shadow schedules no pod",
            ".allowBeside",
        ),
        Rule(
            "!has(self.shadowOf) || !has(self.selector)",
            "a shadow decides for the pods of the profile it shadows",
            ".selector",
        ),
        Rule(
            "!has(self.shadowOf) || !has(self.extenders) || self.extenders.size() == 0",
            "a shadow asks no extenders",
            ".extenders",
        ),
    ),
    "SchedulerProfileSpec.schedulerName": (
        Rule("self == oldSelf", "schedulerName is immutable; create a new profile"),
    ),
    "SchedulerProfileSpec.extenders": (
        Rule(
            "self.filter(e, has(e.bindVerb) && e.bindVerb != '').size() <= 1",
            "only one extender can bind",
        ),
    ),
    "ProfileSelector": (
        Rule(
            "has(self.schedulerNames) || has(self.namespaceSelector) || has(self.podSelector)",
            "needs schedulerNames, namespaceSelector or podSelector",
        ),
    ),
    "LabelSelectorRequirement": (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "In and NotIn need at least one, Exists and DoesNotExist have none",
            ".values",
        ),
    ),
    "Plugins.queueSort": (
        Rule("!has(self.enabled) || self.enabled.size() <= 1", "needs exactly one plugin"),
    ),
    "Extender": (
        Rule(
            "!has(self.prioritizeVerb) || self.prioritizeVerb == '' "
            "|| (has(self.weight) && self.weight > 0)",
            "must be at least 1 with prioritizeVerb",
            ".weight",
        ),
    ),
    "ExtenderTLSConfig": (
        Rule(
            "(has(self.certFile) || has(self.certData)) "
            "== (has(self.keyFile) || has(self.keyData))",
            "a client certificate needs its key, and a key its certificate",
        ),
        Rule(
            "!has(self.insecure) || !self.insecure || !(has(self.caFile) || has(self.caData))",
            "not allowed together with root certificates",
            ".insecure",
        ),
        Rule(
            "!has(self.secretRef) || !(has(self.certFile) || has(self.certData) "
            "|| has(self.caFile) || has(self.caData))",
            "not allowed together with certificate files or data",
            ".secretRef",
        ),
    ),
    "ExtenderManagedResource.name": (
        Rule(
            "self.contains('/') && !self.contains('kubernetes.io/') "
            "&& !self.startsWith('requests.')",
            "must be the name of an extended resource, such as example.com/gpu",
        ),
    ),
    "RequestedToCapacityRatioParam.shape": (
        Rule("self.map(p, p.utilization).isSorted()", "utilization must rise from point to point"),
    ),
}
"""CEL rules by model, or by model and field. Each repeats a rule of the models, so that the API
server refuses at once what loading would refuse."""
