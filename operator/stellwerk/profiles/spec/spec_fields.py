"""The spec of a SchedulerProfile, as a user writes it.

`crd` makes the schema of the CustomResourceDefinition from these models, `load_profile` checks
objects with them; the docstring of a field is its description in `kubectl explain`. `status_fields`
beside it is what the operator answers.
Invariant: whatever the schema refuses is refused here too, with the same bounds.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from stellwerk.profiles.spec.config_model import (
    INT32_MAX,
    INT64_MAX,
    ConfigModel,
    Items,
    WeightField,
    invalid,
)
from stellwerk.profiles.spec.extender_spec import Extender
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.selector import (
    LabelSelectorSpec,
    ProfileSelector,
    SchedulerName,
)
from stellwerk_kube.compatibility import AUTO, RELEASES, release_named
from stellwerk_kube.errors import ConfigurationError

MAX_LIST_ITEMS: Final = 64
"""Items of a list in the spec, so that the schema bounds what a rule on the list costs."""

PROMOTION_ANNOTATION: Final = "scheduling.stellwerk.dev/promotion"
"""The annotation of a shadow whose promotion is not finished, with what is left to be written."""

SCHEDULE: Final = "Schedule"
"""The mode of a profile that schedules its pods: the default."""
OBSERVE: Final = "Observe"
"""The mode of a profile whose pods another scheduler serves."""

PluginName = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]

_MINOR_RELEASES: Final = "|".join(RELEASES).replace(".", r"\.")
_RELEASE: Final = rf"^({AUTO}|({_MINOR_RELEASES})(\.(0|[1-9][0-9]?))?)$"


def _known_release(value: str) -> str:
    """Refuse a patch release that is later than those known here: its repairs are not known."""
    if value != AUTO:
        try:
            release_named(value)
        except ConfigurationError as error:
            raise invalid("", str(error)) from error
    return value


class EnabledPlugin(ConfigModel):
    """A plugin to enable."""

    name: PluginName
    """Name of the plugin."""

    weight: WeightField | None = None
    """Weight of the plugin's score, at least 1. Only plugins that score use it. 0 means unset."""


class DisabledPlugin(ConfigModel):
    """A plugin to disable."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    """Name of a default plugin, or * for all of them."""

    weight: WeightField | None = None
    """Accepted, as in kube-scheduler, but without effect."""


class PluginSet(ConfigModel):
    """Plugins to enable and to disable at one extension point."""

    enabled: Annotated[Items[EnabledPlugin], Field(max_length=MAX_LIST_ITEMS)] = ()
    """Plugins to call in addition to the default ones, in this order. A default plugin named here
    takes the weight given here."""

    disabled: Annotated[Items[DisabledPlugin], Field(max_length=MAX_LIST_ITEMS)] = ()
    """Default plugins to leave out. The name * leaves out all of them. A plugin that is both
    enabled and disabled is enabled."""


EMPTY_PLUGIN_SET: Final = PluginSet.model_validate({})


class Plugins(ConfigModel):
    """Plugins per extension point, on top of the default ones."""

    multi_point: PluginSet = EMPTY_PLUGIN_SET
    """Plugins for every extension point that they implement. A list for one point overrides this
    one, and this one overrides the defaults."""

    pre_enqueue: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that decide whether a pod may enter the active queue."""

    queue_sort: PluginSet = EMPTY_PLUGIN_SET
    """The plugin that orders the queue: exactly one, the same in all profiles."""

    pre_filter: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that look at a pod before any node is filtered."""

    filter: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that rule out nodes that cannot run the pod."""

    post_filter: PluginSet = EMPTY_PLUGIN_SET
    """Plugins called when no node is left, such as preemption."""

    pre_score: PluginSet = EMPTY_PLUGIN_SET
    """Plugins called once before nodes are scored."""

    score: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that rank the nodes that passed the filters."""

    reserve: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that set resources aside once a node is chosen."""

    permit: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that may refuse or delay a binding."""

    pre_bind: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that prepare a binding."""

    bind: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that bind the pod, at least one. The first one that does not skip the pod ends the
    list."""

    post_bind: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that are informed of a bound pod."""

    placement_generate: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that propose sets of nodes for a group of pods, such as
    TopologyPlacementGenerator."""

    placement_score: PluginSet = EMPTY_PLUGIN_SET
    """Plugins that rank sets of nodes for a group of pods, such as NodeResourcesFit and
    PodGroupPodsCount."""

    def at(self, point: ExtensionPoint) -> PluginSet:
        """Return the lists of one extension point."""
        plugin_set: PluginSet = getattr(self, _ATTRIBUTES[point.value])
        return plugin_set

    def sets(self) -> Iterator[tuple[str, PluginSet]]:
        """Yield the name and the lists of multiPoint and of each extension point."""
        for field, attribute in _ATTRIBUTES.items():
            yield field, getattr(self, attribute)


_ATTRIBUTES: Final[Mapping[str, str]] = {
    field.alias or attribute: attribute for attribute, field in Plugins.model_fields.items()
}
"""From a list's name in the object to the attribute of Plugins."""


class PluginConfig(ConfigModel):
    """Arguments of one plugin."""

    name: PluginName
    """Name of the plugin."""

    args: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Arguments, as in kubescheduler.config.k8s.io/v1. The plugin validates them when the profile
    is loaded. The condition Accepted says what is wrong."""


class SchedulerProfileSpec(ConfigModel):
    """Settings for scheduling the pods of one schedulerName."""

    scheduler_name: SchedulerName = ""
    """Pods with this spec.schedulerName are scheduled by this profile. Unique among profiles, and
    immutable."""

    mode: Annotated[Literal["Schedule", "Observe"], Field(json_schema_extra={"maxLength": 16})] = (
        SCHEDULE
    )
    """Schedule: this profile schedules its pods. Observe: another scheduler serves them; this
    profile compares its own decisions with that scheduler's, and writes nothing about the pods."""

    allow_beside: bool = False
    """Whether this profile may schedule pods with the schedulerName default-scheduler although the
    operator does not hold kube-scheduler's lease. Set it only where no kube-scheduler serves them:
    two schedulers of one name over-commit nodes."""

    selector: ProfileSelector | None = None
    """Pods that this profile also schedules, although they do not name it. If the selectors of two
    profiles match a pod, the older profile schedules it. A selector takes precedence over the
    schedulerName of other profiles."""

    namespaces: LabelSelectorSpec | None = None
    """This profile schedules only pods in namespaces with these labels, whether they name it or its
    selector matches them. Unset allows pods of all namespaces."""

    shadow_of: Annotated[str, Field(min_length=1, max_length=253)] = ""
    """The name of another SchedulerProfile, instead of schedulerName. This profile then only
    compares its own decisions with that profile's, and schedules no pod."""

    sample_one_in: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    """With shadowOf: this profile also decides one decision out of this many. By default one in
    ten."""

    skip_if_waited_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    """With shadowOf: seconds that a pod may have waited in the queue for its decision to be
    compared. By default one second."""

    percentage_of_nodes_to_score: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    """Percentage of the nodes that must be found feasible before the search ends. Unset scores
    every node. 0 lowers the percentage with the size of the cluster, as kube-scheduler does. More
    than 100 acts as 100. At least 100 nodes are searched."""

    plugins: Plugins = Plugins.model_validate({})
    """Plugins to enable and disable, on top of the default ones."""

    plugin_config: Annotated[Items[PluginConfig], Field(max_length=MAX_LIST_ITEMS)] = ()
    """Arguments of plugins. A plugin that is not listed has its default arguments."""

    weights: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=INT32_MAX)]],
        Field(max_length=MAX_LIST_ITEMS, default_factory=dict),
    ]
    """Short form for score weights, such as NodeResourcesFit: 5. Overrides the weights in plugins.
    To turn a plugin off, disable it."""

    pod_initial_backoff_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    """Seconds that a pod waits after its first failed attempt. They double with each further
    one."""

    pod_max_backoff_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = 10
    """Maximum seconds that a pod waits after a failed attempt, at least
    podInitialBackoffSeconds."""

    extenders: Annotated[Items[Extender], Field(max_length=16)] = ()
    """HTTP services that take part in decisions."""

    check_all_filters: bool = False
    """Whether every filter runs on every node, so that all reasons are reported. By default a
    node's first failing filter ends its check."""

    tie_break_seed: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None
    """Seed of the random choice among nodes of equal score, so that decisions can be repeated."""

    tie_break: Annotated[
        Literal["Random", "NodeRank"], Field(json_schema_extra={"maxLength": 16})
    ] = "Random"
    """The choice among nodes of equal score: at random, or the one that kube-scheduler visits first
    (the oldest, zone by zone). Among equal candidates for preemption it is always random."""

    compatibility: Annotated[
        str, Field(pattern=_RELEASE, max_length=8), AfterValidator(_known_release)
    ] = AUTO
    """The release of kube-scheduler to decide as. auto is the API server's release, without bugs
    that a later release has fixed. A named release keeps its bugs: 1.36.2 those of that patch
    release, 1.36 those of its newest known patch release."""

    gang_scheduling: bool = False
    """Whether pods of one group (spec.schedulingGroup of a PodGroup, or the label of the
    coscheduling plugin) are placed together. Short for enabling the plugin GangScheduling."""

    @model_validator(mode="after")
    def _schedules_or_shadows(self) -> "SchedulerProfileSpec":
        if not self.scheduler_name and not self.shadow_of:
            raise invalid("schedulerName", "required")
        if self.scheduler_name and self.shadow_of:
            raise invalid("shadowOf", "is not allowed together with schedulerName")
        for field in ("sampleOneIn", "skipIfWaitedSeconds"):
            given = self.sample_one_in if field == "sampleOneIn" else self.skip_if_waited_seconds
            if given is not None and not self.shadow_of:
                raise invalid(field, "is allowed only with shadowOf")
        if self.shadow_of and self.mode == OBSERVE:
            raise invalid("mode", "a shadow decides for the pods of the profile it shadows")
        if self.shadow_of and self.allow_beside:
            raise invalid("allowBeside", "a shadow schedules no pod")
        if self.shadow_of and self.namespaces is not None:
            raise invalid("namespaces", "a shadow decides for the pods of the profile it shadows")
        if self.shadow_of and self.selector is not None:
            raise invalid("selector", "a shadow decides for the pods of the profile it shadows")
        if self.shadow_of and self.extenders:
            raise invalid("extenders", "a shadow asks no extenders")
        return self

    @model_validator(mode="after")
    def _backoff_grows(self) -> "SchedulerProfileSpec":
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            raise invalid("podMaxBackoffSeconds", "must be at least podInitialBackoffSeconds")
        return self

    @model_validator(mode="after")
    def _lists_have_no_duplicates(self) -> "SchedulerProfileSpec":
        for field, plugin_set in self.plugins.sets():
            path = f"plugins.{field}"
            _refuse_duplicates(f"{path}.disabled", (each.name for each in plugin_set.disabled))
        _refuse_duplicates("pluginConfig", (config.name for config in self.plugin_config))
        return self

    @model_validator(mode="after")
    def _extenders_agree(self) -> "SchedulerProfileSpec":
        managed: set[str] = set()
        binders = [index for index, extender in enumerate(self.extenders) if extender.bind_verb]
        if len(binders) > 1:
            raise invalid(f"extenders[{binders[1]}].bindVerb", "only one extender can bind")
        for index, extender in enumerate(self.extenders):
            for place, resource in enumerate(extender.managed_resources):
                if resource.name in managed:
                    field = f"extenders[{index}].managedResources[{place}].name"
                    raise invalid(field, f'"{resource.name}" is managed twice')
                managed.add(resource.name)
        return self


def _refuse_duplicates(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise invalid(f"{field}[{index}].name", f'duplicate "{name}"')
        seen.add(name)
