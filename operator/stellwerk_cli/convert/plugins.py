"""Plugin lists and arguments of any version as those of today.

`convert.conversion` calls it for each profile of a KubeSchedulerConfiguration. Invariant: plugins
that were renamed, merged or taken out are found under what does their work now, or in a warning.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

from stellwerk.profiles.spec.config_model import ConfigModel, field_path, problems
from stellwerk.profiles.spec.defaults import (
    DEFAULT_PLUGINS,
    EVERY_PLUGIN,
    GANG_SCHEDULING,
    PLACED_ONE_BY_ONE,
    REMOVED_PLUGINS,
)
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk_cli.convert.draft import (
    NODE_PREFER_AVOID_PODS,
    NODE_RESOURCES_FIT,
    SELECTOR_SPREAD,
    STRATEGIES,
    ProfileDraft,
    RequestedStrategy,
    as_list,
    as_object,
    as_weight,
    normal_resources,
    with_field_names,
    without_type,
)
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion

ENTRY_POINT_GROUP: Final = "stellwerk.plugins"
OFF_BY_DEFAULT: Final = frozenset(
    {
        "CrossNodePreemption",
        "DefaultPodTopologySpread",
        "FragmentationGradientDescent",
        "GangScheduling",
        "GpuBestFit",
        "GpuClustering",
        "GpuDotProduct",
        "GpuPacking",
        "GpuPatternPlan",
        "GpuShare",
        "LegacyBalancedAllocation",
        "LegacyLeastAllocated",
        "LegacyRequestedToCapacityRatio",
        "NodePreferAvoidPods",
        "PodGroupPodsCount",
        "SelectorSpread",
        "TopologyPlacementGenerator",
    }
)
"""In-tree plugins that no profile has by default, and aliases."""


_NOT_READ: Final = frozenset({"SignalFx"})
"""Metric providers whose usage of nodes Stellwerk does not read by itself."""


@cache
def _installed() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


class _NoArguments(ConfigModel):
    """The arguments of a plugin that takes none."""


@cache
def _args_model(name: str) -> type[BaseModel] | None:
    """The model of an installed plugin's arguments; None: it is not here, or cannot be imported."""
    point = _installed().get(name)
    try:
        plugin = None if point is None else point.load()
    except Exception:  # noqa: BLE001 whatever a user's package does when it is imported
        return None
    if plugin is None:
        return None
    return cast("type[BaseModel]", getattr(plugin, "args_model", None) or _NoArguments)


def unknown_plugin(name: str) -> str:
    """Return what to say of a name that no plugin here has; empty: one has it."""
    in_tree = {*DEFAULT_PLUGINS, *OFF_BY_DEFAULT}
    if name == EVERY_PLUGIN or name in in_tree or name in _installed():
        return ""
    near = suggestion(name, in_tree | _installed().keys())
    return f'no plugin "{name}" is installed here{near}; the profile is refused where none is'


VERSIONS: Final = ("v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")

PER_POINT_VERSIONS: Final = VERSIONS[2:]
"""Versions without multiPoint, with lower default weights."""

OWN_STRATEGY_VERSIONS: Final = VERSIONS[3:]
"""Versions in which the ways to score resources were plugins of their own."""

_RENAMED: Final[Mapping[str, str]] = {"DefaultPodTopologySpread": SELECTOR_SPREAD}
_OPTIONAL_NOW: Final = frozenset({SELECTOR_SPREAD, NODE_PREFER_AVOID_PODS})
_GONE: Final[Mapping[str, str]] = {
    **dict.fromkeys(REMOVED_PLUGINS, "NodeVolumeLimits does its work"),
    "NodeResourcesLimits": "limits are not scored",
    "ServiceAffinity": "pod affinity or spread constraints can take its place",
}

_GENERATOR: Final = "TopologyPlacementGenerator"
COSCHEDULING: Final = "Coscheduling"
"""The plugin of scheduler-plugins whose groups `gangScheduling` places."""
_OF_CLIENTS: Final = frozenset({"kubeMaster", "kubeConfigPath"})
"""Arguments of old versions of that plugin that say how to reach the API server."""
_GROUP_POINT: Final = "podGroupPostFilter"
_GROUP_PLUGINS: Final = ("DefaultPreemption", "DynamicResources")
"""The plugins that do its work by default there."""

Arguments = dict[str, tuple[str, Mapping[str, Any]]]
"""The arguments of each plugin, with the path they stand at."""


def apply_plugins(
    profile: Mapping[str, Any], version: str, source: str, draft: ProfileDraft
) -> None:
    """Convert plugin lists and arguments of one profile."""
    args = _args_by_plugin(profile, source, draft)
    lists = as_object(profile.get("plugins"), f"{source}plugins")
    strategies: list[RequestedStrategy] = []
    for given, entry in lists.items():
        place = f"{source}plugins.{given}"
        point = _point(given, version)
        if point is None:
            draft.warn(place, "unknown extension point, left out")
            continue
        plugin_set = as_object(entry, place)
        if point == _GROUP_POINT:
            _check_group_point(plugin_set, place, draft)
            continue
        for index, plugin in enumerate(as_list(plugin_set.get("enabled"), f"{place}.enabled")):
            _enable(plugin, point, f"{place}.enabled[{index}]", strategies, draft)
        for index, plugin in enumerate(as_list(plugin_set.get("disabled"), f"{place}.disabled")):
            _disable(plugin, point, f"{place}.disabled[{index}]", draft)
    named = _enabled_at(lists)
    _score_strategies(strategies, args, version, draft)
    _take_coscheduling(named, args, draft)
    _leave_out_unused(named, args, draft)
    if not draft.settings.get("gangScheduling"):
        _check_placements(draft, source)
    # NodeLabel adds to the affinity that NodeAffinity's own arguments give.
    for name in sorted(args, key=lambda each: each == "NodeLabel"):
        place, values = args[name]
        _add_args(name, values, place, draft)
    spread = draft.args.get("PodTopologySpread", {})
    if version in OWN_STRATEGY_VERSIONS and spread.get("defaultConstraints"):
        # Before defaultingType came, constraints that were given were used.
        spread.setdefault("defaultingType", "List")


def _enabled_at(lists: Mapping[str, Any]) -> dict[str, set[str]]:
    """The points at which each plugin is enabled by its name."""
    found: dict[str, set[str]] = {}
    for point, entry in lists.items():
        for plugin in (entry or {}).get("enabled") or ():
            found.setdefault(str(as_object(plugin, point).get("name", "")), set()).add(point)
    return found


def _take_coscheduling(named: Mapping[str, set[str]], args: Arguments, draft: ProfileDraft) -> None:
    """Turn the coscheduling plugin into `gangScheduling`, which places the same groups."""
    place, values = args.pop(COSCHEDULING, (f"plugin {COSCHEDULING}", {}))
    if COSCHEDULING not in named:
        if values:
            draft.warn(place, f"{COSCHEDULING} is not enabled: its arguments have no effect")
        return
    draft.settings["gangScheduling"] = True
    draft.warn(
        place,
        f"{COSCHEDULING} becomes gangScheduling, which reads the same PodGroups and labels, but "
        "decides for a group as a whole: no member holds a node while it waits for the others",
    )
    without = sorted(set(values) - {"permitWaitingTimeSeconds", *_OF_CLIENTS})
    for name in ("permitWaitingTimeSeconds", *without):
        if name in values:
            why = "; spec.scheduleTimeoutSeconds of a group counts" if name not in without else ""
            draft.warn(f"{place}.{name}", f"has no counterpart{why}")
    queue_sort = draft.plugins.get("queueSort")
    if queue_sort is not None and not queue_sort.get("enabled"):
        # The default order was disabled to make room for that of the plugin.
        del draft.plugins["queueSort"]


def _leave_out_unused(named: Mapping[str, set[str]], args: Arguments, draft: ProfileDraft) -> None:
    """Drop the arguments of plugins that kube-scheduler would not make, so that they do nothing."""
    for name in list(args):
        place, values = args[name]
        is_made = name in named or name in DEFAULT_PLUGINS
        is_known = not unknown_plugin(name)
        if is_made or name in _GONE or (is_known and name != "NodeLabel"):
            continue
        del args[name]
        if values:
            draft.warn(place, f"{name} is not enabled: its arguments have no effect, left out")
    if "NodeLabel" in args and "filter" not in named["NodeLabel"]:
        place, values = args["NodeLabel"]
        filtering = [field for field in ("presentLabels", "absentLabels") if values.get(field)]
        for field in filtering:
            draft.warn(f"{place}.{field}", "NodeLabel does not filter here: no effect, left out")
        args["NodeLabel"] = place, {k: v for k, v in values.items() if k not in filtering}


def _point(given: str, version: str) -> str | None:
    """Return today's name of a list of plugins."""
    if given == "unreserve":
        return "reserve"
    if given == "postFilter" and version == "v1alpha1":
        return "preScore"  # until 1.18, PostFilter was what PreScore is now
    if given == _GROUP_POINT and version == "v1":
        return given
    known = given == "multiPoint" or given in list(ExtensionPoint)
    return given if known else None


def _check_group_point(plugin_set: Mapping[str, Any], place: str, draft: ProfileDraft) -> None:
    """Warn of what the list for groups, which 1.37 has, changes and a profile cannot."""
    for field in ("enabled", "disabled"):
        for index, plugin in enumerate(as_list(plugin_set.get(field), f"{place}.{field}")):
            where = f"{place}.{field}[{index}]"
            is_default = as_object(plugin, where).get("name") in _GROUP_PLUGINS
            if field == "disabled" or not is_default:
                draft.warn(
                    where, "groups preempt as postFilter says, and have no list of their own"
                )


def _check_placements(draft: ProfileDraft, source: str) -> None:
    """Warn of placements of groups where none is decided as a whole.

    kube-scheduler 1.36 with GenericWorkload and TopologyAwareWorkloadScheduling on and
    GangScheduling off, its default, lists such plugins.
    """
    enabled = {
        point: draft.names(point, "enabled")
        for point in ("multiPoint", "placementGenerate", "preEnqueue")
    }
    has_gangs = GANG_SCHEDULING in enabled["multiPoint"] + enabled["preEnqueue"]
    for name in dict.fromkeys(enabled["placementGenerate"] + enabled["multiPoint"]):
        is_generator = name in enabled["placementGenerate"] or name == _GENERATOR
        if is_generator and not has_gangs:
            draft.warn(f"{source}plugins", f"{name} {PLACED_ONE_BY_ONE}")


def _enable(
    entry: object, point: str, place: str, strategies: list[RequestedStrategy], draft: ProfileDraft
) -> None:
    plugin = as_object(entry, place)
    name = _RENAMED.get(str(plugin.get("name", "")), str(plugin.get("name", "")))
    given = plugin.get("weight")
    weight = None if given is None else as_weight(given, f"{place}.weight")
    if name in STRATEGIES:
        strategies.append(RequestedStrategy(name, weight or 1, place))
    elif name in _GONE:
        draft.warn(place, f"{name} has no counterpart; {_GONE[name]}")
    elif name in {"NodeLabel", COSCHEDULING}:
        return  # its arguments say what it does, and `_take_coscheduling`
    elif name in _OPTIONAL_NOW:
        if point in ("score", "multiPoint"):
            draft.optional[name] = weight or 1
    else:
        _warn_of_unknown(name, place, draft)
        draft.enable(point, name, weight)


def _disable(entry: object, point: str, place: str, draft: ProfileDraft) -> None:
    name = str(as_object(entry, place).get("name", ""))
    if name == "NodeResourcesLeastAllocated" and point == "score":
        draft.disable(point, NODE_RESOURCES_FIT)
    elif name not in (*STRATEGIES, *_GONE, *_OPTIONAL_NOW, *_RENAMED, "NodeLabel", COSCHEDULING):
        # What is off by default now needs no disabling.
        _warn_of_unknown(name, f"{place}.name", draft)
        draft.disable(point, name)


def _warn_of_unknown(name: str, place: str, draft: ProfileDraft) -> None:
    """Say once that a plugin is not installed here; it may be where the profile will be used."""
    remark = unknown_plugin(name)
    if remark and not any(warning.endswith(remark) for warning in draft.warnings):
        draft.warn(place, remark)


def _score_strategies(
    strategies: list[RequestedStrategy],
    args: Arguments,
    version: str,
    draft: ProfileDraft,
) -> None:
    """Fold the old plugins that score resources into NodeResourcesFit."""
    scored_by_default = not {NODE_RESOURCES_FIT, EVERY_PLUGIN} & set(
        draft.names("score", "disabled")
    )
    least = [each for each in strategies if each.plugin == "NodeResourcesLeastAllocated"]
    default_args = args.get("NodeResourcesLeastAllocated")
    old = version in OWN_STRATEGY_VERSIONS
    if old and scored_by_default and not least and (strategies or default_args):
        place = "" if default_args is None else default_args[0]
        strategies.append(RequestedStrategy("NodeResourcesLeastAllocated", 1, place))
    for strategy in strategies:
        if strategy.plugin in args:
            strategy.source, strategy.arguments = args[strategy.plugin]
    used = {strategy.plugin for strategy in strategies}
    for name in STRATEGIES:
        place, values = args.pop(name, ("", {}))
        if values and name not in used:
            draft.warn(place, f"{name} is not enabled: its arguments have no effect, left out")
    if not strategies:
        return
    draft.score_resources(strategies)
    disabled = draft.names("score", "disabled")
    if NODE_RESOURCES_FIT in disabled:
        # The old default was disabled to make room for the plugin that is now its strategy.
        draft.plugins["score"]["disabled"].remove({"name": NODE_RESOURCES_FIT})
    if EVERY_PLUGIN in disabled:
        draft.enable("score", NODE_RESOURCES_FIT, draft.weights.pop(NODE_RESOURCES_FIT))


def _args_by_plugin(profile: Mapping[str, Any], source: str, draft: ProfileDraft) -> Arguments:
    """Return each plugin's arguments with the path they stand at."""
    args: Arguments = {}
    for index, entry in enumerate(as_list(profile.get("pluginConfig"), f"{source}pluginConfig")):
        place = f"{source}pluginConfig[{index}]"
        config = as_object(entry, place)
        name = _RENAMED.get(str(config.get("name", "")), str(config.get("name", "")))
        if name in args:
            raise ProfileError(place, f'duplicate plugin "{name}"')
        given = config.get("args")
        if given is not None and not isinstance(given, Mapping) and unknown_plugin(name):
            draft.warn(f"{place}.args", "must be an object, left out")
            given = None
        draft.plugin_sources[name] = f"{place}.args"
        args[name] = (f"{place}.args", without_type(as_object(given, f"{place}.args"), name))
    return args


def _add_args(name: str, args: Mapping[str, Any], place: str, draft: ProfileDraft) -> None:
    """Copy a plugin's arguments, with what older versions wrote otherwise put right."""
    if name == "NodeLabel":
        _node_label(args, place, draft)
    elif name in _GONE or (name in _OPTIONAL_NOW and args):
        draft.warn(place, f"arguments of {name} have no counterpart")
    else:
        _warn_of_unknown(name, place, draft)
        normal = _normal_args(name, args, place, draft)
        model = _args_model(name)
        if model is not None:
            normal = _accepted_args(model, normal, place, draft)
        draft.add_args(name, normal)


def _accepted_args(
    model: type[BaseModel], args: JsonObject, place: str, draft: ProfileDraft
) -> JsonObject:
    """Return what an installed plugin's model takes of arguments; the rest becomes warnings."""
    result = deepcopy(with_field_names(args, model.model_fields))
    provider = result.get("metricProvider")
    if isinstance(provider, Mapping) and provider.get("type") in _NOT_READ:
        remark = f"{provider['type']} is not read: have a load-watcher read it (watcherAddress)"
        draft.warn(f"{place}.metricProvider.type", remark)
    while True:
        try:
            model.model_validate(result)
        except ValidationError as error:
            path, message = problems(error)[0]
        else:
            return result
        left = path
        while left and not _drop(result, left):
            left = left[:-1]
        where = field_path(place, path)
        if not left:
            draft.warn(where, f"{message}; the profile is refused until it is given")
            return result
        dropped = "" if left == path else f" with all of {field_path('', left)[1:]}"
        draft.warn(where, f"{message}; left out{dropped}")


def _drop(args: JsonObject, path: tuple[int | str, ...]) -> bool:
    """Take a value out of nested objects and lists; whether it was there."""
    *way, last = path
    holder: Any = args
    for step in way:
        holder = _at(holder, step)
    if _at(holder, last) is None:
        return False
    del holder[last]
    return True


def _at(holder: object, step: int | str) -> object:
    """The value at a step of an object or a list; None: there is none."""
    if isinstance(holder, dict):
        return holder.get(step)
    if isinstance(holder, list) and isinstance(step, int) and step < len(holder):
        return holder[step]
    return None


def _normal_args(name: str, args: Mapping[str, Any], place: str, draft: ProfileDraft) -> JsonObject:
    result = deepcopy(dict(args))
    if name == NODE_RESOURCES_FIT and args.get("scoringStrategy"):
        field = f"{place}.scoringStrategy"
        result["scoringStrategy"] = _normal_strategy(
            as_object(args["scoringStrategy"], field), field, draft
        )
    if name == "NodeResourcesBalancedAllocation" and args.get("resources"):
        resources = as_list(args["resources"], f"{place}.resources")
        result["resources"] = normal_resources(resources, f"{place}.resources")
    if name == "VolumeBinding" and result.pop("shape", None) is not None:
        draft.warn(f"{place}.shape", "has no counterpart; volume capacity is not scored")
    return result


def _normal_strategy(strategy: Mapping[str, Any], place: str, draft: ProfileDraft) -> JsonObject:
    result = dict(strategy)
    if strategy.get("resources"):
        resources = as_list(strategy["resources"], f"{place}.resources")
        result["resources"] = normal_resources(resources, f"{place}.resources")
    ratio = as_object(strategy.get("requestedToCapacityRatio"), f"{place}.requestedToCapacityRatio")
    if ratio.get("shape"):
        field = f"{place}.requestedToCapacityRatio.shape"
        shape = draft.shape(as_list(ratio["shape"], field), field)
        result["requestedToCapacityRatio"] = {**ratio, "shape": shape}
    return result


def _node_label(args: Mapping[str, Any], place: str, draft: ProfileDraft) -> None:
    """Turn the labels that NodeLabel asked of nodes into added node affinity."""
    expressions = [
        {"key": label, "operator": operator}
        for field, operator in (("presentLabels", "Exists"), ("absentLabels", "DoesNotExist"))
        for label in as_list(args.get(field), f"{place}.{field}")
    ]
    if expressions:
        draft.require_labels(expressions)
    for field in ("presentLabelsPreference", "absentLabelsPreference"):
        if args.get(field):
            draft.warn(f"{place}.{field}", "has no counterpart")
