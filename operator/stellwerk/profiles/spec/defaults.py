"""The default plugins, and what a profile's plugin lists make of them.

Loading a profile calls `resolve_plugins`; the framework's runtime consumes the result. Invariant:
a result lists, per extension point, only plugins that implement the point, each once, in the order
in which kube-scheduler v1.36 would call them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginDescription
from stellwerk.profiles.spec.spec_fields import EnabledPlugin, Plugins, PluginSet
from stellwerk_kube.errors import ProfileError, UnknownPluginError
from stellwerk_kube.names import suggestion

DEFAULT_PLUGINS: Final[Mapping[str, int | None]] = MappingProxyType(
    {
        "SchedulingGates": None,
        "PrioritySort": None,
        "NodeUnschedulable": None,
        "NodeName": None,
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodePorts": None,
        "NodeResourcesFit": 1,
        "VolumeRestrictions": None,
        "NodeVolumeLimits": None,
        "VolumeBinding": None,
        "VolumeZone": None,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "DefaultPreemption": None,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "DefaultBinder": None,
        "NodeDeclaredFeatures": None,
    }
)
"""The plugins of multiPoint in a profile that says nothing, in order, with their score weights:
those of kube-scheduler v1.36 with its default feature gates."""

REMOVED_PLUGINS: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Names that version v1 of the configuration refuses; NodeVolumeLimits does their work."""

GANG_SCHEDULING: Final = "GangScheduling"
"""The plugin by which groups are placed."""
GROUP_PLUGINS: Final[Mapping[str, int | None]] = MappingProxyType(
    {GANG_SCHEDULING: None, "TopologyPlacementGenerator": None, "PodGroupPodsCount": 1}
)
"""The plugins that `gangScheduling: true` adds to the default ones, as the feature gates do
(v1.36)."""

PLACED_ONE_BY_ONE: Final = (
    "has no effect without GangScheduling: members of a group are placed one by one, and its "
    "topology is ignored. Set gangScheduling: true to place groups as a whole"
)
"""kube-scheduler decides groups as a whole where its gates are on, whatever plugins it has."""
EVERY_PLUGIN: Final = "*"
"""The name that disables every default plugin of a list."""

_FIELD: Final = "spec.plugins"

KnownPlugins = Mapping[str, PluginDescription]


@dataclass(frozen=True, slots=True)
class ResolvedPlugins:
    """The plugins of one profile, per extension point and in calling order."""

    by_point: Mapping[ExtensionPoint, tuple[str, ...]]
    """Every extension point has an entry."""

    weights: Mapping[str, int]
    """The weight of each plugin listed for Score or PlacementScore, at least 1."""

    def at(self, point: ExtensionPoint) -> tuple[str, ...]:
        """Return the names of the plugins that run at an extension point."""
        return self.by_point[point]

    @property
    def names(self) -> tuple[str, ...]:
        """Every plugin that runs anywhere, once, in order of first appearance."""
        return tuple(dict.fromkeys(name for names in self.by_point.values() for name in names))


@dataclass(frozen=True, slots=True)
class _Entry:
    """An enabled plugin: its real name, its weight, and where the user wrote it."""

    name: str
    weight: int | None
    field: str


def resolve_plugins(
    plugins: Plugins,
    weights: Mapping[str, int],
    known: KnownPlugins,
    *,
    gang_scheduling: bool = False,
) -> ResolvedPlugins:
    """Return what a profile's lists and short weights make of the default plugins.

    `gang_scheduling` adds the plugins that place groups to the default ones.

    Precedence as upstream: a specific point over an explicit multiPoint over the default, and
    enabled over disabled (mergePluginSet and expandMultiPointPlugins, v1.36).

    Raises:
        ProfileError: an unknown or repeated plugin, one that does not implement the point, or a
            profile without exactly one QueueSort or without a Bind plugin.
    """
    defaults = {**DEFAULT_PLUGINS, **GROUP_PLUGINS} if gang_scheduling else DEFAULT_PLUGINS
    multi_point = _multi_point(plugins.multi_point, known, defaults)
    specific: dict[ExtensionPoint, list[_Entry]] = {}
    by_point: dict[ExtensionPoint, tuple[str, ...]] = {}
    for point in ExtensionPoint:
        plugin_set = plugins.at(point)
        specific[point] = _specific(point, plugin_set, known)
        disabled = {_canonical(entry.name, known) for entry in plugin_set.disabled}
        shared = [entry for entry in multi_point if point in known[entry.name].extension_points]
        by_point[point] = _ordered(specific[point], shared, disabled)
    if not by_point[ExtensionPoint.PLACEMENT_GENERATE]:
        # There is one placement, and nothing to choose between.
        by_point[ExtensionPoint.PLACEMENT_SCORE] = ()
    _check_singletons(by_point)
    score = {
        **_weights(ExtensionPoint.PLACEMENT_SCORE, by_point, specific, multi_point, known),
        **_weights(ExtensionPoint.SCORE, by_point, specific, multi_point, known),
    }
    return ResolvedPlugins(
        MappingProxyType(by_point), MappingProxyType(_with_short_form(score, weights, known))
    )


def ignored_names(plugins: Plugins, known: KnownPlugins) -> list[str]:
    """Return a remark for each name that is disabled but that no plugin has.

    kube-scheduler ignores such names; a profile that was written for another version still works.
    """
    return [
        f'{_FIELD}.{point}.disabled[{index}]: no plugin "{entry.name}"'
        f"{suggestion(entry.name, known)}"
        for point, plugin_set in plugins.sets()
        for index, entry in enumerate(plugin_set.disabled)
        if entry.name != EVERY_PLUGIN and entry.name not in known
    ]


def known_plugin(name: str, known: KnownPlugins, field: str) -> PluginDescription:
    """Return the plugin of that name.

    Raises:
        ProfileError: there is none.
    """
    if name in known:
        return known[name]
    if name in REMOVED_PLUGINS:
        raise ProfileError(field, f'plugin "{name}" was removed; NodeVolumeLimits replaces it')
    raise UnknownPluginError(field, f'unknown plugin "{name}"{suggestion(name, known)}')


def _multi_point(
    custom: PluginSet, known: KnownPlugins, defaults: Mapping[str, int | None]
) -> list[_Entry]:
    """Merge the user's multiPoint list into the default one (mergePluginSet).

    A default that is configured anew keeps its place, the others follow in the user's order.
    """
    entries = _entries(custom.enabled, "multiPoint", known)
    by_name = {entry.name: entry for entry in entries}
    disabled = {_canonical(entry.name, known) for entry in custom.disabled}
    merged: dict[str, _Entry] = {}
    if EVERY_PLUGIN not in disabled:
        for name, weight in defaults.items():
            # A name that this build lacks is a plugin whose feature gate is off.
            if name in known and name not in disabled:
                merged[name] = by_name.get(name, _Entry(name, weight, f"{_FIELD}.multiPoint"))
    for entry in entries:
        merged.setdefault(entry.name, entry)
    return list(merged.values())


def _specific(point: ExtensionPoint, plugin_set: PluginSet, known: KnownPlugins) -> list[_Entry]:
    """Return the plugins enabled for one point by name, after checking that they implement it."""
    entries = _entries(plugin_set.enabled, point.value, known)
    for entry in entries:
        if point not in known[entry.name].extension_points:
            raise ProfileError(
                entry.field, f'plugin "{entry.name}" does not implement {point.label}'
            )
    return entries


def _entries(enabled: Sequence[EnabledPlugin], list_name: str, known: KnownPlugins) -> list[_Entry]:
    """Look up each enabled plugin under its real name, refusing unknown and repeated ones."""
    entries: list[_Entry] = []
    seen: set[str] = set()
    for index, plugin in enumerate(enabled):
        field = f"{_FIELD}.{list_name}.enabled[{index}].name"
        name = known_plugin(plugin.name, known, field).name
        if name in seen:
            raise ProfileError(field, f'duplicate plugin "{plugin.name}"')
        seen.add(name)
        entries.append(_Entry(name, plugin.weight, field))
    return entries


def _ordered(specific: list[_Entry], shared: list[_Entry], disabled: set[str]) -> tuple[str, ...]:
    """Return the calling order at one point.

    First what is listed for the point and overrides multiPoint, then the rest of multiPoint, then
    what is listed for the point alone (the three parts of expandMultiPointPlugins).
    """
    own = [entry.name for entry in specific]
    if EVERY_PLUGIN in disabled:
        return tuple(own)
    from_multi_point = [entry.name for entry in shared if entry.name not in disabled]
    overriding = [name for name in own if name in from_multi_point]
    rest = [name for name in from_multi_point if name not in own]
    additional = [name for name in own if name not in overriding]
    return (*overriding, *rest, *additional)


def _check_singletons(by_point: Mapping[ExtensionPoint, tuple[str, ...]]) -> None:
    """Refuse a profile that cannot order its queue or bind a pod."""
    queue_sort = by_point[ExtensionPoint.QUEUE_SORT]
    if len(queue_sort) != 1:
        listed = f" ({', '.join(queue_sort)})" if queue_sort else ""
        raise ProfileError(
            f"{_FIELD}.queueSort", f"needs exactly one plugin, not {len(queue_sort)}{listed}"
        )
    if not by_point[ExtensionPoint.BIND]:
        raise ProfileError(f"{_FIELD}.bind", "needs at least one plugin")
    generators = by_point[ExtensionPoint.PLACEMENT_GENERATE]
    if len(generators) > 1:
        raise ProfileError(
            f"{_FIELD}.placementGenerate", f"takes at most one plugin, not {len(generators)}"
        )


def _weights(
    point: ExtensionPoint,
    by_point: Mapping[ExtensionPoint, tuple[str, ...]],
    specific: Mapping[ExtensionPoint, list[_Entry]],
    multi_point: list[_Entry],
    known: KnownPlugins,
) -> dict[str, int]:
    """Return the weight of each plugin of a scoring point; the point's own list goes first."""
    given: dict[str, int | None] = {}
    for entry in (*specific[point], *multi_point):
        given.setdefault(entry.name, entry.weight)
    return {name: given[name] or known[name].default_weight for name in by_point[point]}


def _with_short_form(
    score: dict[str, int], weights: Mapping[str, int], known: KnownPlugins
) -> dict[str, int]:
    """Let `spec.weights` replace the weights of plugins that score anyway."""
    for given, weight in weights.items():
        field = f"spec.weights.{given}"
        name = known_plugin(given, known, field).name
        if name not in score:
            raise ProfileError(field, f'plugin "{given}" does not score in this profile')
        score[name] = weight
    return score


def _canonical(name: str, known: KnownPlugins) -> str:
    """Return the real name behind an alias; an unknown name stands for itself."""
    return known[name].name if name in known else name
