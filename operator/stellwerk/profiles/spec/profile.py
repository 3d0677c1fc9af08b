"""SchedulerProfile objects: from what a user wrote to what a framework is built from.

`load_profile` checks an object by itself. `arbitrate` says which objects serve: of those with one
schedulerName the older one, and none that sorts the queue in another way than the oldest of all.
`profiles` calls both, `stellwerk decide` the former. Invariant: a LoadedProfile can be built into a
framework without a further check of names, points, weights or arguments; everything a user can get
wrong has become a ProfileError that names the field.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from stellwerk.profiles.spec.config_model import profile_error
from stellwerk.profiles.spec.defaults import (
    GANG_SCHEDULING,
    PLACED_ONE_BY_ONE,
    ResolvedPlugins,
    ignored_names,
    known_plugin,
    resolve_plugins,
)
from stellwerk.profiles.spec.plugin_args import NodeResourcesFitArgs
from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginDescription
from stellwerk.profiles.spec.selector import PodsSelected
from stellwerk.profiles.spec.spec_fields import OBSERVE, SchedulerProfileSpec
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import LabelSelector

GROUP: Final = "scheduling.stellwerk.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "SchedulerProfile"
PLURAL: Final = "schedulerprofiles"

FULL_PERCENTAGE: Final = 100

DEFAULT_PROFILE_MANIFEST: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "default"},
        "spec": {"schedulerName": "stellwerk"},
    }
)
"""manifests/profiles/default.yaml: what the operator creates where no profile exists at all."""

OPERATOR_LABEL: Final = f"{GROUP}/operator"
"""The label of a profile that another operator than the unnamed one serves, with its name."""


def operator_of(profile: JsonObject) -> str:
    """The name of the operator that serves a profile; empty: the one without a name."""
    labels = profile["metadata"].get("labels")
    return str(labels.get(OPERATOR_LABEL, "")) if isinstance(labels, dict) else ""


def first_profile(operator_name: str) -> JsonObject:
    """The profile that an operator creates where there is none for it."""
    if not operator_name:
        return dict(DEFAULT_PROFILE_MANIFEST)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": operator_name, "labels": {OPERATOR_LABEL: operator_name}},
        "spec": {"schedulerName": operator_name},
    }


TAKEOVER_PROFILE_MANIFEST: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "default-scheduler"},
        "spec": {"schedulerName": "default-scheduler"},
    }
)
"""manifests/profiles/optional/default-scheduler.yaml: serves the pods that name no scheduler."""


_IGNORED_REPLACED: Final = (
    "spec.pluginConfig: ignoredResources of NodeResourcesFit is replaced by the "
    "managedResources of the extenders"
)


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A profile that was checked and resolved."""

    name: str
    """The name of the object."""

    uid: str
    generation: int

    created: str
    """metadata.creationTimestamp, an RFC 3339 time in UTC; of two profiles the older one wins."""

    spec: SchedulerProfileSpec
    plugins: ResolvedPlugins

    args: Mapping[str, BaseModel]
    """Validated arguments of each plugin that runs and takes any, defaults filled in."""

    remarks: tuple[str, ...]
    """Settings that are accepted but act otherwise than written; for the Accepted condition."""

    auto: Compatibility = AS_RECORDED
    """The meaning of `compatibility: auto` that it was checked with."""

    @property
    def scheduler_name(self) -> str:
        """The schedulerName that the profile serves; of a shadow, what no pod can name."""
        return self.spec.scheduler_name or f"shadow/{self.name}"

    @property
    def observes(self) -> bool:
        """Whether another scheduler serves its pods, and nothing may be written about them."""
        return self.spec.mode == OBSERVE

    @property
    def selected(self) -> PodsSelected | None:
        """The pods that it schedules although they do not name it; None: there are none."""
        selector = self.spec.selector
        if selector is None:
            return None
        return PodsSelected.by(self.scheduler_name, selector, self.namespaces)

    @property
    def namespaces(self) -> LabelSelector | None:
        """The namespaces whose pods it schedules; None: all."""
        namespaces = self.spec.namespaces
        return None if namespaces is None else namespaces.compiled()

    @property
    def percentage_of_nodes_to_score(self) -> int | None:
        """None: every node is scored; 0: the adaptive percentage; else 1 to 100."""
        percentage = self.spec.percentage_of_nodes_to_score
        return None if percentage is None else min(percentage, FULL_PERCENTAGE)


def load_profile(
    obj: Mapping[str, Any],
    known_plugins: Mapping[str, PluginDescription],
    auto: Compatibility = AS_RECORDED,
) -> LoadedProfile:
    """Return a SchedulerProfile object checked against the plugins that exist.

    `auto` is the meaning of `compatibility: auto`: a release may refuse an argument.

    Raises:
        ProfileError: the object cannot be used; the error names the field.
    """
    spec = parse_spec(obj.get("spec"))
    plugins = resolve_plugins(
        spec.plugins, spec.weights, known_plugins, gang_scheduling=spec.gang_scheduling
    )
    args = _load_args(spec, plugins, known_plugins, auto.of(spec.compatibility))
    metadata = obj.get("metadata") or {}
    generation = metadata.get("generation")
    loaded = LoadedProfile(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        generation=generation if isinstance(generation, int) else 0,
        created=str(metadata.get("creationTimestamp") or ""),
        spec=spec,
        plugins=plugins,
        args=MappingProxyType(args),
        remarks=tuple(_remarks(spec, plugins, known_plugins)),
        auto=auto,
    )
    return _leave_to_extenders(loaded)


def parse_spec(spec: object) -> SchedulerProfileSpec:
    """Return the model of a spec; plugin names and arguments are not looked at.

    Raises:
        ProfileError: the spec breaks a rule of the schema.
    """
    if spec is None:
        raise ProfileError("spec", "required")
    try:
        return SchedulerProfileSpec.model_validate(spec)
    except ValidationError as error:
        raise profile_error(error, "spec") from error


def _load_args(
    spec: SchedulerProfileSpec,
    plugins: ResolvedPlugins,
    known_plugins: Mapping[str, PluginDescription],
    compatibility: Compatibility,
) -> dict[str, BaseModel]:
    """Validate every pluginConfig entry, and add default arguments of the plugins that run."""
    given: dict[str, BaseModel] = {}
    configured: set[str] = set()
    for index, config in enumerate(spec.plugin_config):
        field = f"spec.pluginConfig[{index}]"
        plugin = known_plugin(config.name, known_plugins, f"{field}.name")
        if plugin.name in configured:
            raise ProfileError(f"{field}.name", f'duplicate "{config.name}"')
        configured.add(plugin.name)
        if plugin.args_model is not None:
            given[plugin.name] = _validate_args(
                plugin.args_model, config.args, f"{field}.args", compatibility
            )
        elif config.args:
            raise ProfileError(f"{field}.args", f'plugin "{config.name}" takes no arguments')
    loaded: dict[str, BaseModel] = {}
    for name in plugins.names:
        model = known_plugins[name].args_model
        if model is not None:
            loaded[name] = given.get(name) or _validate_args(
                model, {}, f"spec.pluginConfig.{name}", compatibility
            )
    return loaded


def _validate_args(
    model: type[BaseModel], args: Mapping[str, Any], field: str, compatibility: Compatibility
) -> BaseModel:
    try:
        return model.model_validate(args, context=compatibility)
    except ValidationError as error:
        raise profile_error(error, field) from error


def _leave_to_extenders(profile: LoadedProfile) -> LoadedProfile:
    """Let NodeResourcesFit ignore what an extender manages alone (buildExtenders, v1.36).

    As upstream, the extenders' list then takes the place of `ignoredResources`.
    """
    ignored = tuple(
        resource.name
        for extender in profile.spec.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    fit = profile.args.get("NodeResourcesFit")
    if not ignored or not isinstance(fit, NodeResourcesFitArgs):
        return profile
    remarks = profile.remarks
    if fit.ignored_resources:
        remarks += (_IGNORED_REPLACED,)
    fit = fit.model_copy(update={"ignored_resources": ignored})
    args = MappingProxyType({**profile.args, "NodeResourcesFit": fit})
    return replace(profile, args=args, remarks=remarks)


def _remarks(
    spec: SchedulerProfileSpec,
    plugins: ResolvedPlugins,
    known_plugins: Mapping[str, PluginDescription],
) -> Iterator[str]:
    percentage = spec.percentage_of_nodes_to_score
    if percentage is not None and percentage > FULL_PERCENTAGE:
        yield f"spec.percentageOfNodesToScore: {percentage} acts as {FULL_PERCENTAGE}"
    yield from ignored_names(spec.plugins, known_plugins)
    if GANG_SCHEDULING not in plugins.at(ExtensionPoint.PRE_ENQUEUE):
        for name in plugins.at(ExtensionPoint.PLACEMENT_GENERATE):
            yield f"spec.plugins: {name} {PLACED_ONE_BY_ONE}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The profile may serve its schedulerName."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The profile is in conflict with an older one."""

    reason: Literal["SchedulerNameTaken", "QueueSortDiffers"]
    message: str


Verdict = Accepted | Rejected


def arbitrate(
    profiles: Iterable[LoadedProfile], oldest: LoadedProfile | None = None
) -> dict[str, Verdict]:
    """Decide by object name which profiles may serve; the older one wins, then the name.

    A pure function of all profiles: a loser recovers as soon as it is asked again without the
    winner. A rejected profile claims nothing. Profiles that share no schedulerName with others
    can be asked about by themselves, beside the `oldest` of all (None: it is among them).
    """
    verdicts: dict[str, Verdict] = {}
    accepted: dict[str, LoadedProfile] = {}
    for profile in sorted(profiles, key=lambda each: (each.created, each.name)):
        oldest = oldest or profile
        verdict = _verdict(profile, accepted, oldest)
        verdicts[profile.name] = verdict
        if isinstance(verdict, Accepted):
            accepted[profile.scheduler_name] = profile
    return verdicts


def _verdict(
    profile: LoadedProfile, accepted: Mapping[str, LoadedProfile], oldest: LoadedProfile
) -> Verdict:
    """The verdict on a profile beside older ones that serve, by their schedulerNames."""
    if (other := accepted.get(profile.scheduler_name)) is not None:
        return Rejected(
            "SchedulerNameTaken",
            f'spec.schedulerName: "{profile.scheduler_name}" is already served by the older '
            f'profile "{other.name}"',
        )
    if profile is not oldest and queue_sort_of(profile) != queue_sort_of(oldest):
        return Rejected(
            "QueueSortDiffers",
            f'spec.plugins.queueSort: differs from that of the older profile "{oldest.name}"; '
            "all profiles share one queue",
        )
    return Accepted()


def queue_sort_of(profile: LoadedProfile) -> tuple[str, BaseModel | None]:
    """The QueueSort plugin of a profile with its arguments."""
    (name,) = profile.plugins.at(ExtensionPoint.QUEUE_SORT)
    return name, profile.args.get(name)
