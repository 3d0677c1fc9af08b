"""The arguments of the in-tree plugins, one model each, as `pluginConfig[].args` gives them.

Fields, defaults and rules are those of kubescheduler.config.k8s.io/v1 (v1.36, default feature
gates); the plugins that kube-scheduler does not have follow at the end. The registry names a
model per plugin and loading a profile validates with it. Invariant: a validated model is
immutable, comparable and complete, so that a reload can keep every plugin whose args are equal.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from stellwerk.profiles.spec.config_model import (
    INT32_MAX,
    INT64_MAX,
    ConfigModel,
    Duration,
    Items,
    QualifiedName,
    invalid,
)
from stellwerk.profiles.spec.selector import LabelSelectorSpec
from stellwerk_kube.compatibility import Compatibility, ReleaseRule
from stellwerk_kube.names import is_label_value, is_qualified_name, parse_duration

ARGS_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"

MAX_SHAPE_SCORE: Final = 10
"""The upper end of a shape's scores; the plugin scales them to 0-100 (MaxCustomPriorityScore)."""

_MAX_UTILIZATION: Final = 100
"""Highest utilization of a shape's point, in percent."""
_MAX_RESOURCE_WEIGHT: Final = 100
"""Highest weight of a resource, as in kube-scheduler."""
_MAX_RESOURCE_NAME_CHARACTERS: Final = 317
"""Characters of a resource's name: a subdomain of 253, a slash and a name of 63."""
MAX_SCORED_RESOURCES: Final = 64
"""Resources that a strategy may score, so that the schema bounds what a rule on them costs."""


class PluginArgs(ConfigModel):
    """Arguments of one plugin. `apiVersion` and `kind` may be written, as kube-scheduler allows."""

    @model_validator(mode="before")
    @classmethod
    def _without_type(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the user wrote
        if not isinstance(value, Mapping):
            return value
        expected = {"apiVersion": ARGS_API_VERSION, "kind": cls.__name__}
        for field, wanted in expected.items():
            if value.get(field) not in (None, "", wanted):
                raise invalid(field, f'must be "{wanted}"')
        return {key: item for key, item in value.items() if key not in expected}


class ResourceSpec(ConfigModel):
    """A resource and how much it counts in a score."""

    name: Annotated[str, Field(min_length=1, max_length=_MAX_RESOURCE_NAME_CHARACTERS)]
    """Name of the resource: cpu, memory, or an extended resource."""

    weight: Annotated[int, Field(ge=0, le=_MAX_RESOURCE_WEIGHT)] = 1
    """Weight of the resource; 0 means 1."""

    @field_validator("weight")
    @classmethod
    def _zero_is_unset(cls, weight: int) -> int:
        return weight or 1


class UtilizationShapePoint(ConfigModel):
    """A point of the function from utilization to score."""

    utilization: Annotated[int, Field(ge=0, le=_MAX_UTILIZATION)] = 0
    """Utilization in percent; a full node is 100."""

    score: Annotated[int, Field(ge=0, le=MAX_SHAPE_SCORE)] = 0
    """Score at this utilization, from 0 to 10."""


DEFAULT_RESOURCES: Final = (
    ResourceSpec.model_validate({"name": "cpu"}),
    ResourceSpec.model_validate({"name": "memory"}),
)


def _default_if_empty(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    return resources or DEFAULT_RESOURCES


_ResourceSpecs = Annotated[Items[ResourceSpec], Field(max_length=MAX_SCORED_RESOURCES)]
ScoredResources = Annotated[_ResourceSpecs, AfterValidator(_default_if_empty)]
Shape = Items[UtilizationShapePoint]


def _check_shape(shape: tuple[UtilizationShapePoint, ...], path: str) -> None:
    """Refuse an empty shape, and one whose utilization does not rise from point to point."""
    if not shape:
        raise invalid(path, "needs at least one point")
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            raise invalid(f"{path}[{index}].utilization", "must be higher than the point before")


class RequestedToCapacityRatioParam(ConfigModel):
    """Parameters of the RequestedToCapacityRatio strategy."""

    shape: Shape = ()
    """Points of the scoring function, with strictly increasing utilization."""

    @model_validator(mode="after")
    def _shape_rises(self) -> "RequestedToCapacityRatioParam":
        _check_shape(self.shape, "shape")
        return self


class ScoringStrategy(ConfigModel):
    """The scoring strategy of NodeResourcesFit."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    """The strategy: prefer the emptiest node, the fullest, or follow a shape over utilization."""

    resources: ScoredResources = DEFAULT_RESOURCES
    """Resources that count, cpu and memory by default."""

    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None
    """Required for, and only for, RequestedToCapacityRatio."""

    @model_validator(mode="after")
    def _ratio_belongs_to_its_type(self) -> "ScoringStrategy":
        has_ratio = self.requested_to_capacity_ratio is not None
        if self.type == "RequestedToCapacityRatio" and not has_ratio:
            raise invalid("requestedToCapacityRatio", "required for this type")
        if self.type != "RequestedToCapacityRatio" and has_ratio:
            raise invalid("requestedToCapacityRatio", f"not allowed for type {self.type}")
        return self


LEAST_ALLOCATED: Final = ScoringStrategy.model_validate({"type": "LeastAllocated"})


DEFAULT_CAPACITY_SHAPE: Final = (
    UtilizationShapePoint.model_validate({"utilization": 0, "score": MAX_SHAPE_SCORE}),
    UtilizationShapePoint.model_validate({"utilization": 100, "score": 0}),
)
"""The default of VolumeBinding: the emptiest storage is best (`SetDefaults_VolumeBindingArgs`,
v1.37)."""


class NodeResourcesFitArgs(PluginArgs):
    """Arguments of NodeResourcesFit."""

    ignored_resources: Items[QualifiedName] = ()
    """Resources that the filter ignores; scoring does not."""

    ignored_resource_groups: Items[QualifiedName] = ()
    """Groups (the part before the slash) of resources that the filter ignores."""

    scoring_strategy: ScoringStrategy = LEAST_ALLOCATED
    """The strategy that scores nodes."""

    @field_validator("ignored_resource_groups")
    @classmethod
    def _groups_have_no_slash(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        for index, group in enumerate(groups):
            if "/" in group:
                raise invalid(f"[{index}]", f'"{group}" must not contain "/"')
        return groups


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """Arguments of NodeResourcesBalancedAllocation."""

    resources: ScoredResources = DEFAULT_RESOURCES
    """Resources whose use is balanced, each with weight 1."""

    @field_validator("resources")
    @classmethod
    def _distinct_with_weight_one(
        cls, resources: tuple[ResourceSpec, ...]
    ) -> tuple[ResourceSpec, ...]:
        seen: set[str] = set()
        for index, resource in enumerate(resources):
            if resource.name in seen:
                raise invalid(f"[{index}].name", f'duplicate resource "{resource.name}"')
            if resource.weight != 1:
                raise invalid(f"[{index}].weight", "must be 1")
            seen.add(resource.name)
        return resources


NodeSelectorOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


class LabelRequirement(ConfigModel):
    """A requirement on the value of a node label (labels.NewRequirement)."""

    key: Annotated[str, Field(min_length=1)]
    operator: NodeSelectorOperator
    values: Items[str] = ()

    @model_validator(mode="after")
    def _values_suit_the_operator(self) -> "LabelRequirement":
        if not is_qualified_name(self.key):
            raise invalid("key", f'"{self.key}" is not a label key')
        problem = _values_problem(self.operator, self.values)
        if problem:
            raise invalid("values", problem)
        for index, value in enumerate(self.values):
            if not is_label_value(value):
                raise invalid(f"values[{index}]", f'"{value}" is not a label value')
        return self


def _values_problem(operator: NodeSelectorOperator, values: tuple[str, ...]) -> str:
    """Say what is wrong with the number or the kind of values for an operator, if anything is."""
    match operator:
        case "In" | "NotIn":
            return "" if values else f"{operator} needs at least one value"
        case "Exists" | "DoesNotExist":
            return f"{operator} takes no values" if values else ""
        case "Gt" | "Lt":
            whole = len(values) == 1 and values[0].removeprefix("-").isdecimal()
            return "" if whole else f"{operator} needs exactly one integer"


class FieldRequirement(ConfigModel):
    """A requirement on a node's field."""

    key: Literal["metadata.name"]
    operator: Literal["In", "NotIn"]
    values: Items[str] = ()

    @field_validator("values")
    @classmethod
    def _one_value(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(values) != 1:
            raise invalid("", "must have one element")
        return values


class AddedNodeSelectorTerm(ConfigModel):
    """Requirements that must all hold; a term without any matches no node."""

    match_expressions: Items[LabelRequirement] = ()
    match_fields: Items[FieldRequirement] = ()


class AddedNodeSelector(ConfigModel):
    """Terms; at least one must match."""

    node_selector_terms: Items[AddedNodeSelectorTerm]


class PreferredSchedulingTerm(ConfigModel):
    """A term and what matching it adds to the score; weight 0 turns the term off."""

    weight: Annotated[int, Field(ge=0, le=100)]
    preference: AddedNodeSelectorTerm


class AddedAffinity(ConfigModel):
    """Node affinity that a profile adds to that of every pod."""

    required_during_scheduling_ignored_during_execution: AddedNodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Items[PreferredSchedulingTerm] = ()


class NodeAffinityArgs(PluginArgs):
    """Arguments of NodeAffinity."""

    added_affinity: AddedAffinity | None = None
    """Applied to every pod of the profile, on top of the pod's own affinity. `model_dump` with
    `by_alias` and `exclude_none` gives it in the form of `pod.spec.affinity.nodeAffinity`."""


class InterPodAffinityArgs(PluginArgs):
    """Arguments of InterPodAffinity."""

    hard_pod_affinity_weight: Annotated[int, Field(ge=0, le=100)] = 1
    """Score for a placed pod whose required affinity the new pod matches."""

    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether preferred terms of placed pods count only if the new pod has terms of its own."""


class DefaultConstraint(ConfigModel):
    """A spread constraint for pods that have none. Its selector is derived from the pod."""

    max_skew: Annotated[int, Field(ge=1, le=INT32_MAX)]
    topology_key: Annotated[QualifiedName, Field(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: Items[QualifiedName] = ()

    @model_validator(mode="before")
    @classmethod
    def _no_selector(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the user wrote
        if isinstance(value, Mapping) and value.get("labelSelector") is not None:
            raise invalid("labelSelector", "not allowed: the selector is derived from the pod")
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if key != "labelSelector"}
        return value


class PodTopologySpreadArgs(PluginArgs):
    """Arguments of PodTopologySpread."""

    default_constraints: Items[DefaultConstraint] = ()
    """Constraints for pods without any; needs defaultingType List. An empty list with List
    turns default spreading off."""

    defaulting_type: Literal["System", "List"] = "System"
    """System: hostname with maxSkew 3 and zone with maxSkew 5, both ScheduleAnyway. List: the
    constraints given here."""

    give_way_after_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    """Stellwerk only: seconds since a pod was first refused, after which its DoNotSchedule
    constraints count as ScheduleAnyway. 0, as in kube-scheduler: they never do."""

    @model_validator(mode="after")
    def _constraints_are_distinct_and_need_list(self) -> "PodTopologySpreadArgs":
        if self.default_constraints and self.defaulting_type == "System":
            raise invalid("defaultingType", "must be List when defaultConstraints are given")
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(self.default_constraints):
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise invalid(
                    f"defaultConstraints[{index}]", f"duplicate of {{{pair[0]}, {pair[1]}}}"
                )
            seen.add(pair)
        return self


class VolumeBindingArgs(PluginArgs):
    """Arguments of VolumeBinding."""

    bind_timeout_seconds: Annotated[int, Field(ge=0, le=INT64_MAX)] = 600
    """Time that a binding waits for its volumes; 0 does not wait."""

    shape: Shape = DEFAULT_CAPACITY_SHAPE
    """Score of a node by the utilization of its storage, utilization strictly increasing. By
    default the emptiest storage is best. From Kubernetes 1.37 on."""

    @model_validator(mode="before")
    @classmethod
    def _shape_is_known(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - whatever the user wrote
        # As ValidateVolumeBindingArgsWithOptions without the gate StorageCapacityScoring.
        shape = value.get("shape") if isinstance(value, Mapping) else None
        compatibility = info.context
        if (
            shape is not None
            and isinstance(compatibility, Compatibility)
            and ReleaseRule.SCORE_STORAGE_CAPACITY not in compatibility
        ):
            raise invalid("shape", "not supported: volume capacity is not scored")
        return value

    @model_validator(mode="after")
    def _shape_rises(self) -> "VolumeBindingArgs":
        _check_shape(self.shape, "shape")
        return self


class DynamicResourcesArgs(PluginArgs):
    """Arguments of DynamicResources."""

    filter_timeout: Duration = "10s"
    """Time limit of the search for devices on one node; 0 is no limit."""

    binding_timeout: Duration = "10m0s"
    """Time that a binding waits for its devices, at least a second."""

    @model_validator(mode="after")
    def _timeouts_are_long_enough(self) -> "DynamicResourcesArgs":
        if parse_duration(self.filter_timeout) < 0:
            raise invalid("filterTimeout", "must not be negative")
        if parse_duration(self.binding_timeout) < 1:
            raise invalid("bindingTimeout", "must be at least 1s")
        return self


class PodsOfLowerPriority(ConfigModel):
    """Pods of these namespaces, in addition to those of the preempting pod's own namespace."""

    of: Annotated[LabelSelectorSpec, Field(alias="LowerPriorityClassOf")]
    """The namespaces, by their labels."""


class DefaultPreemptionArgs(PluginArgs):
    """Arguments of DefaultPreemption."""

    min_candidate_nodes_percentage: Annotated[int, Field(ge=0, le=100)] = 10
    """At least this percentage of the nodes is tried for victims."""

    min_candidate_nodes_absolute: Annotated[int, Field(ge=0, le=INT32_MAX)] = 100
    """At least this many nodes are tried for victims."""

    victims: Literal["SameNamespace"] | PodsOfLowerPriority | None = None
    """Stellwerk only: the pods of lower priority that may be evicted. Unset, those of all
    namespaces, as in kube-scheduler."""

    min_run_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    """Stellwerk only: pods that have run for fewer seconds are evicted after others of equal
    priority. 0, as in kube-scheduler: the pod that started last is evicted first."""

    spare_daemon_set_pods: bool = False
    """Stellwerk only: whether pods of DaemonSets, which can run on no other node, are evicted after
    others of equal priority."""

    order_by_deletion_cost: bool = False
    """Stellwerk only: whether pods of equal priority are evicted in the order of their annotation
    controller.kubernetes.io/pod-deletion-cost, the lowest first."""

    @model_validator(mode="after")
    def _some_candidates(self) -> "DefaultPreemptionArgs":
        if not (self.min_candidate_nodes_percentage or self.min_candidate_nodes_absolute):
            raise invalid(
                "minCandidateNodesPercentage", "must not be 0 if minCandidateNodesAbsolute is 0"
            )
        return self


_PERCENTAGE: Final = re.compile(r"(?:100|[1-9]?[0-9])%")


class ReservationArgs(ConfigModel):
    """The room that a profile grants to groups that wait, and for how long."""

    namespaces: Annotated[LabelSelectorSpec, Field(default_factory=LabelSelectorSpec)]
    """The namespaces whose groups may keep nodes, by their labels."""

    max_nodes: int | str = "10%"
    """Number of nodes that all groups of one namespace may keep at a time, or their share."""

    max_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = 300
    """Time for which they may keep them, from the first node that any of these groups keeps."""

    cooldown_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 600
    """Time after that in which nothing is kept for the namespace."""

    @model_validator(mode="after")
    def _nodes_are_a_number_or_a_part(self) -> "ReservationArgs":
        nodes = self.max_nodes
        if isinstance(nodes, int) and not 0 <= nodes <= INT32_MAX:
            raise invalid("maxNodes", "must not be negative")
        if isinstance(nodes, str) and not _PERCENTAGE.fullmatch(nodes):
            raise invalid("maxNodes", "must be a number, or a percentage such as 10%")
        return self

    def most_nodes(self, nodes: int) -> int:
        """The number of nodes that one namespace may keep, of so many."""
        if isinstance(self.max_nodes, int):
            return self.max_nodes
        return nodes * int(self.max_nodes.removesuffix("%")) // 100


class GangSchedulingArgs(PluginArgs):
    """Arguments of GangScheduling."""

    second_look_milliseconds: Annotated[int, Field(ge=0, le=10_000)] = 50
    """Time in which other orders of a group's pods are tried if the first places too few."""

    reservation_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = 300
    """Time for which room is kept for a group whose victims do not end. A group may set its own."""

    strict_queues: bool = False
    """Whether groups of one queue are placed in order, and those behind only beside the first."""

    reservation: ReservationArgs | None = None
    """The room that may be kept for groups that ask for it, or are the first; None: none is."""


class CrossNodePreemptionArgs(PluginArgs):
    """Arguments of CrossNodePreemption, which looks for victims on several nodes at once."""

    timeout_milliseconds: Annotated[int, Field(ge=1, le=60_000)] = 100
    """Time limit of one search. The best set found by then is used."""

    max_victims: Annotated[int, Field(ge=1, le=64)] = 8
    """The most pods one search may choose."""

    ignore_pod_disruption_budgets: bool = False
    """Whether victims may be chosen whose disruption budget is used up."""


class LegacyBalancedAllocationArgs(PluginArgs):
    """Arguments of LegacyBalancedAllocation."""

    balance_attached_node_volumes: bool = False
    """Whether the fraction of attached volumes is balanced beside cpu and memory."""


class LegacyLeastAllocatedArgs(PluginArgs):
    """Arguments of LegacyLeastAllocated."""

    resources: ScoredResources = DEFAULT_RESOURCES
    """Resources that count, cpu and memory by default."""


class LegacyRequestedToCapacityRatioArgs(LegacyLeastAllocatedArgs):
    """Arguments of LegacyRequestedToCapacityRatio, whose scores stay on the scale 0-10."""

    shape: Shape
    """Points of the scoring function, with strictly increasing utilization."""

    @model_validator(mode="after")
    def _shape_rises(self) -> "LegacyRequestedToCapacityRatioArgs":
        _check_shape(self.shape, "shape")
        return self


class GpuShareArgs(PluginArgs):
    """Arguments of GpuShare."""

    device_selection: Literal["BestFit", "Random"] = "BestFit"
    """The device that a share gets among those with room: the fullest, or any at random. A score
    plugin that tries devices, such as FragmentationGradientDescent, chooses first."""


class TypicalPodKind(ConfigModel):
    """A kind of pod that the cluster is typically asked to run."""

    cpu_millis: Annotated[int, Field(ge=0, le=INT64_MAX)]
    """Requested cpu in millicores."""

    gpu_milli: Annotated[int, Field(ge=0, le=1000)] = 0
    """Requested part of each device in thousandths; 0: no GPU."""

    devices: Annotated[int, Field(ge=0, le=64)] = 1
    """Number of requested devices."""

    models: Items[Annotated[str, Field(min_length=1)]] = ()
    """The models that it admits, by the label gpu.stellwerk.dev/model; none: all."""

    count: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    """Frequency of such pods in relation to the other kinds."""


class FragmentationGradientDescentArgs(PluginArgs):
    """Arguments of FragmentationGradientDescent."""

    typical_pods: Annotated[Items[TypicalPodKind], Field(max_length=1024)] = ()
    """The kinds of pods for which devices are to stay useful; none: those that were seen."""


class PlannedPodKind(TypicalPodKind):
    """A kind of pod that a plan reckons with."""

    memory_mib: Annotated[int, Field(alias="memoryMiB", ge=0, le=INT32_MAX)] = 0
    """Requested memory on average in MiB."""


class GpuPatternPlanArgs(PluginArgs):
    """Arguments of GpuPatternPlan."""

    typical_pods: Annotated[Items[PlannedPodKind], Field(max_length=1024)] = ()
    """The kinds of pods that are to be expected; none: those that were seen."""

    solver_seconds: Annotated[int, Field(ge=1, le=600)] = 30
    """Time limit of the search for one plan. After it the best one found counts."""
