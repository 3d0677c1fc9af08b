"""Which plugin names the operator would know, without the plugins themselves.

`convert.plugins` asks about each name of a configuration. Invariant: no plugin is imported, for
`stellwerk convert` needs none of what plugins need: names of in-tree plugins are listed here, which
a test compares with the registry, and those of installed packages are the names of entry points.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from stellwerk.models.name_syntax import suggestion
from stellwerk.models.profile_defaults import ALL, DEFAULT_PLUGINS

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


@cache
def _installed() -> frozenset[str]:
    return frozenset(point.name for point in entry_points(group=ENTRY_POINT_GROUP))


def unknown_plugin(name: str) -> str:
    """Return what to say of a name that no plugin here has; empty: one has it."""
    in_tree = {*DEFAULT_PLUGINS, *OFF_BY_DEFAULT}
    if name == ALL or name in in_tree or name in _installed():
        return ""
    near = suggestion(name, in_tree | _installed())
    return f'no plugin "{name}" is installed here{near}; the profile is refused where none is'
