"""Every plugin there is, by name: those that come with Stellwerk, and users' own by entry point.

Loading a profile reads the descriptions, `assembly` makes instances. Invariant: `known_plugins`
never raises because of an installed package: an entry point that cannot be used is a warning that
names it, and its plugin is absent. A plugin that is known stays the same. Packages of plugins that
are in Stellwerk's own distribution are imported when one of their plugins is first looked up.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeAlias, cast

from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.extension_points import points_of
from stellwerk.framework.interface import Plugin
from stellwerk.framework.services import Handle
from stellwerk.plugins.cross_node_preemption import CrossNodePreemption
from stellwerk.plugins.default_binder import DefaultBinder
from stellwerk.plugins.default_preemption.plugin import DefaultPreemption
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.fragmentation_gradient_descent import FragmentationGradientDescent
from stellwerk.plugins.gang_scheduling import GangScheduling
from stellwerk.plugins.gpu_best_fit import GpuBestFit
from stellwerk.plugins.gpu_clustering import GpuClustering
from stellwerk.plugins.gpu_dot_product import GpuDotProduct
from stellwerk.plugins.gpu_packing import GpuPacking
from stellwerk.plugins.gpu_pattern_plan import GpuPatternPlan
from stellwerk.plugins.gpu_share import GpuShare
from stellwerk.plugins.image_locality import ImageLocality
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.legacy_balanced_allocation import LegacyBalancedAllocation
from stellwerk.plugins.legacy_least_allocated import LegacyLeastAllocated
from stellwerk.plugins.legacy_requested_to_capacity_ratio import LegacyRequestedToCapacityRatio
from stellwerk.plugins.node_affinity import NodeAffinity
from stellwerk.plugins.node_declared_features import NodeDeclaredFeatures
from stellwerk.plugins.node_name import NodeName
from stellwerk.plugins.node_ports import NodePorts
from stellwerk.plugins.node_prefer_avoid_pods import NodePreferAvoidPods
from stellwerk.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from stellwerk.plugins.node_resources_fit import NodeResourcesFit
from stellwerk.plugins.node_unschedulable import NodeUnschedulable
from stellwerk.plugins.node_volume_limits import NodeVolumeLimits
from stellwerk.plugins.pod_group_pods_count import PodGroupPodsCount
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk.plugins.priority_sort import PrioritySort
from stellwerk.plugins.scheduling_gates import SchedulingGates
from stellwerk.plugins.selector_spread import SelectorSpread
from stellwerk.plugins.taint_toleration import TaintToleration
from stellwerk.plugins.topology_placement_generator import TopologyPlacementGenerator
from stellwerk.plugins.volume_binding.plugin import VolumeBinding
from stellwerk.plugins.volume_restrictions import VolumeRestrictions
from stellwerk.plugins.volume_zone import VolumeZone
from stellwerk.profiles.spec.plugin_description import UNSET_WEIGHT, PluginDescription
from stellwerk.profiles.spec.profile import LoadedProfile

ENTRY_POINT_GROUP: Final = "stellwerk.plugins"
DISTRIBUTION: Final = "stellwerk"

PluginClass: TypeAlias = type[Plugin]

IN_TREE: Final[tuple[PluginClass, ...]] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    NodePreferAvoidPods,
    LegacyBalancedAllocation,
    LegacyLeastAllocated,
    LegacyRequestedToCapacityRatio,
    SelectorSpread,
    CrossNodePreemption,
    GpuShare,
    GpuDotProduct,
    GpuClustering,
    GpuPacking,
    GpuPatternPlan,
    GpuBestFit,
    FragmentationGradientDescent,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
)
"""The built-in plugins: the default ones in calling order, then those off by default."""

_log = logging.getLogger(__name__)


def describe(plugin: PluginClass) -> PluginDescription:
    """The properties of a plugin class that profiles need, read from its attributes."""
    args_model: type[BaseModel] | None = getattr(plugin, "args_model", None)
    weight: int = getattr(plugin, "default_weight", UNSET_WEIGHT)
    return PluginDescription(plugin.name, points_of(plugin), args_model, weight)


def known_plugins() -> Mapping[str, PluginDescription]:
    """Every plugin by name and by alias that is known now; the mapping stays as it is."""
    return _registry().known


def installed_points() -> tuple[EntryPoint, ...]:
    """The plugins that installed packages offer; reads files, and imports nothing."""
    importlib.invalidate_caches()
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def add_installed(points: Iterable[EntryPoint]) -> Mapping[str, PluginDescription]:
    """Take in plugins that were not there before; returns them by name and by alias.

    A package is imported once: a newer version of one that is in use needs a restart.
    """
    return _registry().add(points)


def instantiate(name: str, handle: Handle, args: BaseModel | None) -> Plugin:
    """Make an instance of a known plugin.

    Args:
        name: the plugin's name or an alias.
        handle: what the framework offers to it.
        args: validated by the plugin's `args_model`; None for a plugin without one.

    Raises:
        KeyError: there is no such plugin.
    """
    known = _registry().known
    known.load(name)
    make = cast("Callable[[Handle, BaseModel | None], Plugin]", known.plugins[name])
    return make(handle, args)


def watched_kinds(profile: LoadedProfile) -> frozenset[str]:
    """The kinds of their own that the plugins of a profile read."""
    known = _registry().known
    return frozenset(
        kind.kind
        for name in profile.plugins.names
        for kind in getattr(known.plugins.get(name), "watched_kinds", ())
    )


class _KnownPlugins(Mapping[str, PluginDescription]):
    """Descriptions by name; of entry points that wait to be loaded, made when asked for."""

    def __init__(
        self, plugins: Mapping[str, PluginClass], waiting: Mapping[str, EntryPoint]
    ) -> None:
        self.plugins = dict(plugins)
        self.waiting = dict(waiting)
        self._described = {name: describe(plugin) for name, plugin in plugins.items()}

    @override
    def __getitem__(self, name: str) -> PluginDescription:
        self.load(name)
        return self._described[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter({**self._described, **self.waiting})

    @override
    def __len__(self) -> int:
        return len(self._described.keys() | self.waiting.keys())

    @override
    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self.load(name)
        return name in self._described

    def load(self, name: str) -> None:
        """Import the package of a plugin that waits for it."""
        point = self.waiting.get(name)
        if point is None:
            return
        found = out_of_tree([point], self.plugins)
        # In this order: profiles are also parsed in threads.
        self.plugins |= found
        self._described |= {each: describe(plugin) for each, plugin in found.items()}
        self.waiting.pop(name, None)


class _Registry:
    """The plugin classes that are known, and the entry points that were looked at."""

    def __init__(self) -> None:
        self.known = _KnownPlugins({name: each for each in IN_TREE for name in _names(each)}, {})
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, points: Iterable[EntryPoint]) -> Mapping[str, PluginDescription]:
        """Load the entry points that are new; one that failed is tried again in a new version."""
        identified = {
            (point.name, point.value, point.dist.version if point.dist else ""): point
            for point in points
        }
        new = [point for identity, point in identified.items() if identity not in self._seen]
        self._seen |= identified.keys()
        own = {point.name: point for point in new if _comes_with_stellwerk(point)}
        others = [point for point in new if point.name not in own]
        known = self.known
        found = out_of_tree(others, [*known.plugins, *known.waiting, *own])
        # Anew, since profiles are also parsed in threads.
        self.known = _KnownPlugins(known.plugins | found, known.waiting | own)
        return {name: self.known[name] for name in found}


def _comes_with_stellwerk(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == DISTRIBUTION


@cache
def _registry() -> _Registry:
    registry = _Registry()
    registry.add(installed_points())
    return registry


def out_of_tree(points: Iterable[EntryPoint], taken: Iterable[str]) -> dict[str, PluginClass]:
    """The plugin classes of installed packages, by name; what cannot be used is warned about."""
    names = set(taken)
    found: dict[str, PluginClass] = {}
    for point in points:
        try:
            plugin = point.load()
            _check(plugin, names)
        except Exception as failure:  # noqa: BLE001 whatever another package raises on import
            _log.warning(
                "entry point %s = %s of group %s gives no plugin: %s: %s",
                point.name,
                point.value,
                ENTRY_POINT_GROUP,
                type(failure).__name__,
                failure,
            )
            continue
        for name in _names(plugin):
            found[name] = plugin
            names.add(name)
    return found


def _check(plugin: Any, taken: set[str]) -> None:  # noqa: ANN401 whatever the entry point names
    """Refuse what is no plugin class, or has a name that is in use."""
    if not isinstance(plugin, type) or not isinstance(getattr(plugin, "name", None), str):
        raise TypeError("not a class with a class variable `name`")
    if not points_of(plugin):
        raise TypeError("implements no extension point")
    used = taken.intersection(_names(cast("PluginClass", plugin)))
    if used:
        raise ValueError(f"the name {min(used)} is taken")


def _names(plugin: PluginClass) -> tuple[str, ...]:
    aliases: tuple[str, ...] = getattr(plugin, "aliases", ())
    return (plugin.name, *aliases)
